//! Writes what is wired to it to a recording.

use robocache::app::{App, plugins::RecordPlugin};
use std::process::ExitCode;

fn main() -> ExitCode {
    robocache::app::main(|| App::from_env()?.add_plugin(RecordPlugin).run())
}
