//! `meta/robocache.json` of a dataset: the streams that its features come from.

use super::config::Take;
use eyre::WrapErr;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

const FILE: &str = "meta/robocache.json";

/// Features about the other features: for each part its validity, its age and the time of its newest sample; for each frame its
/// target and its epoch.
pub const VALID: &str = "robocache.valid";
pub const AGE_NS: &str = "robocache.age_ns";
pub const CAPTURE_NS: &str = "robocache.capture_ns";
pub const TARGET_NS: &str = "robocache.target_ns";
pub const EPOCH: &str = "robocache.epoch";

/// Sources of the features of a dataset.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Origins {
    pub features: Vec<Origin>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Origin {
    pub feature: String,
    /// Parts of the feature, side by side.
    pub streams: Vec<Part>,
}

/// A part of a feature.
#[derive(Debug, Serialize, Deserialize)]
pub struct Part {
    pub stream: String,
    /// Index of the part in `robocache.valid`, `robocache.age_ns` and `robocache.capture_ns`.
    pub part: usize,
    /// Number of elements; `None` if the part is a whole feature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dim: Option<usize>,
    /// True if the values are those of a sample, not interpolated.
    pub as_it_came: bool,
    /// Rule that chose the sample, for a stream beside the observations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub take: Option<Take>,
    /// Number of samples, for a window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<usize>,
}

impl Origins {
    pub fn write(&self, folder: &Path) -> eyre::Result<()> {
        let path = folder.join(FILE);
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&path, text).wrap_err_with(|| path.display().to_string())
    }

    /// Reads the sources of a dataset. A dataset that robocache did not write has none.
    pub fn read(folder: &Path) -> eyre::Result<Self> {
        let path = folder.join(FILE);
        match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).wrap_err_with(|| path.display().to_string()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).wrap_err_with(|| path.display().to_string()),
        }
    }
}

/// Names the feature that holds the times of a window.
pub fn times_of(feature: &str) -> String {
    let name = feature.strip_prefix("robocache.window.").unwrap_or(feature);
    format!("robocache.window_ns.{name}")
}
