//! Publishes sensor streams on common timestamps, each by itself.

use robocache::app::{App, plugins::AlignPlugin};
use std::process::ExitCode;

fn main() -> ExitCode {
    robocache::app::main(|| App::from_env()?.add_plugin(AlignPlugin).run())
}
