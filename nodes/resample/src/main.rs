//! Resamples batches of trajectories at their targets.

use robocache::app::{App, plugins::ResamplePlugin};
use std::process::ExitCode;

fn main() -> ExitCode {
    robocache::app::main(|| App::from_env()?.add_plugin(ResamplePlugin).run())
}
