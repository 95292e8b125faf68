//! Resamples batches of trajectories at their target times.

use robocache::app::{App, plugins::ResamplePlugin};
use robocache::dora;
use std::process::ExitCode;

fn main() -> ExitCode {
    dora::main(|| Ok(dora::run(App::new().add_plugin(ResamplePlugin::default()))?))
}
