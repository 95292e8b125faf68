//! Runs the operations that its configuration lists, in one process.

use robocache::app::{App, plugins};
use std::process::ExitCode;

fn main() -> ExitCode {
    robocache::app::main(|| App::from_env()?.add_plugins(plugins::all()).run())
}
