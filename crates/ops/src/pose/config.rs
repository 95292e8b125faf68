//! The configuration of a stream of poses.

use super::track::POSE_VALUES;
use crate::{ConfigError, check_from, duration_ns, refused};
use robocache_stream::{FromConfig, Selection};
use serde::Deserialize;

/// A stream of poses of a moving frame: an entry of the section `poses:`.
///
/// A sample is a position, metres, and a unit quaternion x, y, z, w. In the 13 values of an odometry message, a velocity follows,
/// which is not used.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct PoseConfig {
    /// The id of the dataflow input.
    pub input: String,
    /// Paths of the values and of the stamp in a struct payload. `None`: well-known structs are recognised.
    pub from: Option<FromConfig>,
    /// Delay of the stamps behind the capture, ms: a sample's time is its stamp minus this delay.
    #[serde(default)]
    pub latency_ms: f64,
    /// Longest time between two samples, ms, over which a pose is interpolated. `None`: any time.
    pub max_gap_ms: Option<f64>,
    /// Time after the newest sample, ms, for which that sample's pose holds. It counts only if the wait for the next sample is over.
    #[serde(default)]
    pub extrapolate_ms: f64,
    /// Step back of the stamps, ms, above which the clock counts as set back.
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
    /// Checks every value. `at` is the place of the stream in the configuration, such as `poses.base`.
    ///
    /// # Errors
    /// The first key whose value is not allowed, the value, and the allowed values.
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

    /// Selection of the values and stamps that are read from a message.
    pub fn selection(&self) -> Selection {
        Selection::named_samples(self.from.clone())
    }
}
