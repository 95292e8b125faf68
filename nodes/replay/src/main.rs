//! Publishes a recording.

use robocache::app::{App, plugins::ReplayPlugin};
use std::process::ExitCode;

fn main() -> ExitCode {
    robocache::app::main(|| App::from_env()?.add_plugin(ReplayPlugin).run())
}
