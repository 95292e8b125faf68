//! Publishes the messages of a recording, at their recorded pace or as fast as the consumers read them.

use robocache::app::{App, plugins::ReplayPlugin};
use robocache::dora;
use std::process::ExitCode;

fn main() -> ExitCode {
    dora::main(|| Ok(dora::run(App::new().add_plugin(ReplayPlugin::default()))?))
}
