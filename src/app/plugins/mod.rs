//! robocache's own plugins.

mod align;
mod fuse;
mod observe;
mod resample;
mod voxelize;

pub use align::AlignPlugin;
pub use fuse::FusePlugin;
pub use resample::ResamplePlugin;
pub use voxelize::VoxelizePlugin;

use super::Plugin;

/// Every operation of robocache, for [`App::add_plugins`](super::App::add_plugins).
pub fn all() -> Vec<Box<dyn Plugin>> {
    vec![
        Box::new(AlignPlugin),
        Box::new(FusePlugin),
        Box::new(ResamplePlugin),
        Box::new(VoxelizePlugin),
    ]
}
