//! Datasets of LeRobot.

mod config;
mod counts;
mod observed;
mod origin;
mod plan;
mod sink;
mod source;
mod stream;

pub use sink::Sink;
pub use source::Source;

use std::path::Path;

/// Whether it is the folder of a dataset.
pub fn is_dataset(path: &Path) -> bool {
    path.join("meta/info.json").is_file()
}
