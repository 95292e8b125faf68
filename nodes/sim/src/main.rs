//! Publishes the sensor streams of a simulated robot.

use robocache::app::App;
use robocache_sim::plugin::SimPlugin;
use std::process::ExitCode;

fn main() -> ExitCode {
    robocache::app::main(|| App::from_env()?.add_plugin(SimPlugin).run())
}
