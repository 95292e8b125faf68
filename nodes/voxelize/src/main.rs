//! Publishes point clouds as voxel grids.

use robocache::app::{App, plugins::VoxelizePlugin};
use robocache::dora;
use std::process::ExitCode;

fn main() -> ExitCode {
    dora::main(|| Ok(dora::run(App::new().add_plugin(VoxelizePlugin::default()))?))
}
