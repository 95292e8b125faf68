//! Publishes point clouds as voxel grids.

use robocache::app::{App, plugins::VoxelizePlugin};
use std::process::ExitCode;

fn main() -> ExitCode {
    robocache::app::main(|| App::from_env()?.add_plugin(VoxelizePlugin).run())
}
