//! robocache's own plugins.

mod align;
mod fuse;
mod group;
mod observe;
mod record;
mod replay;
mod resample;
mod voxelize;
mod watch;

pub use align::AlignPlugin;
pub use fuse::FusePlugin;
pub use group::GroupPlugin;
pub use record::{RecordConfig, RecordPlugin};
pub use replay::{ReplayConfig, ReplayPlugin, Speed};
pub use resample::ResamplePlugin;
pub use voxelize::VoxelizePlugin;

use super::{Fault, Plugin, Value};

/// Every operation of robocache, for [`App::add_plugins`](super::App::add_plugins).
pub fn all() -> Vec<Box<dyn Plugin>> {
    vec![
        Box::new(AlignPlugin::default()),
        Box::new(FusePlugin::default()),
        Box::new(GroupPlugin::default()),
        Box::new(RecordPlugin::default()),
        Box::new(ReplayPlugin::default()),
        Box::new(ResamplePlugin::default()),
        Box::new(VoxelizePlugin::default()),
    ]
}

/// The value of a live parameter that may be switched off with null.
fn number_or_null(value: &Value) -> Result<Option<f64>, Fault> {
    match value {
        Value::Null => Ok(None),
        value => Ok(Some(value.as_f64().ok_or("it must be a number or null")?)),
    }
}
