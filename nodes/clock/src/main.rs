//! Puts the stamps of devices that have clocks of their own on the clock of the host.

use robocache::app::{App, plugins::ClockPlugin};
use robocache::dora;
use std::process::ExitCode;

fn main() -> ExitCode {
    dora::main(|| Ok(dora::run(App::new().add_plugin(ClockPlugin::default()))?))
}
