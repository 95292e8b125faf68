//! Runs the operations that its configuration lists, in one process.

use robocache::app::{App, plugins};
use robocache::dora;
use std::process::ExitCode;

fn main() -> ExitCode {
    dora::main(|| Ok(dora::run(App::new().add_plugins(plugins::all()))?))
}
