//! robocache's own plugins.

mod align;
mod fuse;
mod observe;

pub use align::AlignPlugin;
pub use fuse::FusePlugin;

use super::Plugin;

/// Every operation of robocache, for [`App::add_plugins`](super::App::add_plugins).
pub fn all() -> Vec<Box<dyn Plugin>> {
    vec![Box::new(AlignPlugin), Box::new(FusePlugin)]
}
