//! Publishes a recording.

use robocache::app::{App, plugins::ReplayPlugin};
use robocache::dora;
use std::process::ExitCode;

fn main() -> ExitCode {
    dora::main(|| Ok(dora::run(App::new().add_plugin(ReplayPlugin::default()))?))
}
