//! Publishes the sensor streams of a simulated robot.

use robocache::app::App;
use robocache::dora;
use robocache_sim::plugin::SimPlugin;
use std::process::ExitCode;

fn main() -> ExitCode {
    dora::main(|| Ok(dora::run(App::new().add_plugin(SimPlugin))?))
}
