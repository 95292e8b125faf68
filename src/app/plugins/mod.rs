//! robocache's own plugins.

mod align;
mod fuse;
mod observe;
mod record;
mod replay;
mod resample;
mod voxelize;

pub use align::AlignPlugin;
pub use fuse::FusePlugin;
pub use record::RecordPlugin;
pub use replay::ReplayPlugin;
pub use resample::ResamplePlugin;
pub use voxelize::VoxelizePlugin;

use super::Plugin;

/// Every operation of robocache, for [`App::add_plugins`](super::App::add_plugins).
pub fn all() -> Vec<Box<dyn Plugin>> {
    vec![
        Box::new(AlignPlugin),
        Box::new(FusePlugin),
        Box::new(RecordPlugin),
        Box::new(ReplayPlugin),
        Box::new(ResamplePlugin),
        Box::new(VoxelizePlugin),
    ]
}
