pub use crate::channel_groups::ChannelGroupConfig;
use robocache_time::{Interpolation, QuaternionOrder};
use serde::Deserialize;

/// Configuration of resampling: the section `resample:`.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct ResampleConfig {
    /// Interpolation of values between samples; `linear` by default.
    pub interpolation: Interpolation,
    /// Largest time between the two samples around a target, ms; not for `previous` and `nearest`. `None`: no limit.
    pub max_gap_ms: Option<f64>,
    /// Largest time from a target to the sample that gives its value, ms; only for `previous` and `nearest`. `None`: no limit.
    pub max_age_ms: Option<f64>,
    /// Time after the last sample for which its value is held, ms; not for `previous` and `nearest`. `None`: 0.
    pub extrapolate_ms: Option<f64>,
    /// True if `slerp` returns, of the quaternions q and -q of the same rotation, the one with w >= 0. `None`: false.
    pub canonical: Option<bool>,
    /// Order of a quaternion's values for `slerp`. `None`: `xyzw`.
    pub order: Option<QuaternionOrder>,
    /// Groups of channels, each with an interpolation and limits of its own. Every channel is in exactly one group. If empty,
    /// all channels are one group.
    pub groups: Vec<ChannelGroupConfig>,
    /// Value that is written to a channel without a valid value; NaN is allowed.
    pub fill_value: f32,
}

impl Default for ResampleConfig {
    fn default() -> Self {
        Self {
            interpolation: Interpolation::Linear,
            max_gap_ms: None,
            max_age_ms: None,
            extrapolate_ms: None,
            canonical: None,
            order: None,
            groups: Vec::new(),
            fill_value: 0.0,
        }
    }
}
