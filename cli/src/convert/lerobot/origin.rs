//! File `meta/robocache.json` of a dataset: the modalities and streams that its features come from. A part is the columns of a
//! feature from one modality or stream. Its index is the same in all features `robocache.*`.

use super::config::Take;
use eyre::WrapErr;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

const FILE: &str = "meta/robocache.json";

/// Name of the feature with the validity of each part, a bool.
pub const VALID: &str = "robocache.valid";
/// Name of the feature with the age of each part's newest sample at the target, ns; -1 if there is no sample.
pub const AGE_NS: &str = "robocache.age_ns";
/// Name of the feature with the capture time of each part's newest sample, ns; -1 if there is no sample.
pub const CAPTURE_NS: &str = "robocache.capture_ns";
/// Name of the feature with the target of each frame, ns.
pub const TARGET_NS: &str = "robocache.target_ns";
/// Name of the feature with the epoch of each frame's observation.
pub const EPOCH: &str = "robocache.epoch";

/// Sources of the features of a dataset.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Origins {
    pub features: Vec<Origin>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Origin {
    pub feature: String,
    /// Modalities or streams whose values make the feature, side by side.
    pub streams: Vec<Part>,
}

/// Part of a feature: its values from one modality or stream.
#[derive(Debug, Serialize, Deserialize)]
pub struct Part {
    pub stream: String,
    /// Index of the part in `robocache.valid`, `robocache.age_ns` and `robocache.capture_ns`.
    pub part: usize,
    /// Number of the part's elements in the feature; `None` if the part is the whole feature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dim: Option<usize>,
    /// True if the values are those of a sample, not interpolated.
    pub as_it_came: bool,
    /// Rule by which frames selected a sample of a stream that the dataset read directly; `None` for modalities and windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub take: Option<Take>,
    /// Number of samples in a window; `None` if the part is not a window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<usize>,
}

impl Origins {
    pub fn write(&self, folder: &Path) -> eyre::Result<()> {
        let path = folder.join(FILE);
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&path, text).wrap_err_with(|| path.display().to_string())
    }

    /// Reads the sources of a dataset's features; empty if robocache did not write the dataset.
    pub fn read(folder: &Path) -> eyre::Result<Self> {
        let path = folder.join(FILE);
        match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).wrap_err_with(|| path.display().to_string()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).wrap_err_with(|| path.display().to_string()),
        }
    }
}

/// Returns the name of the feature that holds the times of the samples of the window `feature`, ns.
pub fn times_of(feature: &str) -> String {
    let name = feature.strip_prefix("robocache.window.").unwrap_or(feature);
    format!("robocache.window_ns.{name}")
}
