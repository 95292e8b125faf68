//! Configuration of a stream of poses: one entry of the section `poses:`.

use super::track::POSE_VALUES;
use crate::{ConfigError, check_from, duration_ns, refused};
use robocache_stream::{FromConfig, Selection};
use serde::Deserialize;

/// Stream of poses of a moving frame, such as odometry: one entry of the section `poses:`.
///
/// A sample is a position, metres, and a unit quaternion x, y, z, w. An odometry message has 13 values: the velocities that
/// follow the pose are ignored.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct PoseConfig {
    /// Name of the dataflow input that brings the poses.
    pub input: String,
    /// Paths of the values and of the stamp within messages that are structs. `None`: the fields of a recognised struct, such
    /// as a ROS message.
    pub from: Option<FromConfig>,
    /// Delay of the stream's stamps behind the capture, ms: the time of a sample is its stamp minus this delay.
    #[serde(default)]
    pub latency_ms: f64,
    /// Longest time between two samples, ms, over which a pose is interpolated. `None`: no limit.
    pub max_gap_ms: Option<f64>,
    /// Longest time after the newest sample, ms, for which its pose is still used. It is used only once the operation no longer
    /// waits for the next sample.
    #[serde(default)]
    pub extrapolate_ms: f64,
    /// Greatest step back of a stamp, ms, that is not a clock jump: past it, all earlier samples are dropped.
    #[serde(default = "default_reset_ms")]
    pub reset_ms: f64,
}

fn default_reset_ms() -> f64 {
    1000.0
}

impl Default for PoseConfig {
    fn default() -> Self {
        Self {
            input: String::new(),
            from: None,
            latency_ms: 0.0,
            max_gap_ms: None,
            extrapolate_ms: 0.0,
            reset_ms: default_reset_ms(),
        }
    }
}

impl PoseConfig {
    /// Checks every value. `at` is the key of the stream in the configuration, such as `poses.base`, for errors.
    ///
    /// # Errors
    /// [`ConfigError`] names the first invalid key, its value and the allowed values.
    pub fn validate(&self, at: &str) -> Result<(), ConfigError> {
        let Self {
            input,
            from,
            latency_ms,
            max_gap_ms,
            extrapolate_ms,
            reset_ms,
        } = self;
        if input.is_empty() {
            return refused(format!("{at}.input"), "is empty (allowed: the id of an input)");
        }
        check_from(at, from.as_ref(), Some(POSE_VALUES))?;
        if !(-1e12..=1e12).contains(latency_ms) {
            let problem = format!("{latency_ms} is not allowed (allowed: -1e12 to 1e12 ms)");
            return refused(format!("{at}.latency_ms"), problem);
        }
        if let Some(ms) = max_gap_ms {
            duration_ns(|| format!("{at}.max_gap_ms"), *ms)?;
        }
        duration_ns(|| format!("{at}.extrapolate_ms"), *extrapolate_ms)?;
        duration_ns(|| format!("{at}.reset_ms"), *reset_ms)?;
        Ok(())
    }

    /// Returns the selection of the values and stamps to read from a message.
    pub fn selection(&self) -> Selection {
        Selection::named_samples(self.from.clone())
    }
}
