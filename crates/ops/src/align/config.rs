//! Configuration of align and fuse, as read from a file: the sections `align:` and `fuse:`.
//!
//! Only the types are checked here; `spec.rs` checks the values. Optional keys that a file leaves out take the
//! values of `Default`.

use super::TriggerConfig;
pub use crate::channel_groups::ChannelGroupConfig;
use robocache_device::Dtype;
use robocache_stream::{CloudFields, FromConfig, Selection};
use robocache_time::{Interpolation, QuaternionOrder};
use serde::Deserialize;

/// Configuration of align and fuse: the sections `align:` and `fuse:`.
///
/// ```
/// use robocache_ops::align::{AlignConfig, ModalityConfig};
/// use robocache_time::Interpolation;
///
/// let config = AlignConfig {
///     rate_hz: 50.0,
///     window: 16,
///     modalities: vec![ModalityConfig {
///         input: "force".into(),
///         dim: 6,
///         interpolation: Some(Interpolation::Linear),
///         max_gap_ms: Some(50.0),
///         ..ModalityConfig::default()
///     }],
///     ..AlignConfig::default()
/// };
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlignConfig {
    /// Rate of the target times, for which values are computed, Hz, 1e-6 to 1e9. A target time is a whole multiple of the
    /// period, `round(1e9 / rate_hz)` ns.
    pub rate_hz: f64,
    /// T, the number of rows of an observation, 1 to 2^20.
    #[serde(default = "one")]
    pub window: usize,
    /// Distance between two rows of a window, 1 to 2^20: in periods of `rate_hz`, or with `rows: samples` in samples of the
    /// stream that `trigger:` names.
    #[serde(default = "one")]
    pub stride: usize,
    /// Distance between two observations, in periods of `rate_hz`, 1 to 2^20.
    #[serde(default = "one")]
    pub emit_every: usize,
    /// Longest wait for a stream that is behind the newest stream, ms of capture time. After it, the missing values are masked.
    /// `None`: the wait has no end.
    pub max_wait_ms: Option<f64>,
    /// Source of the target times; `None`: whole multiples of the period of `rate_hz`.
    pub trigger: Option<TriggerConfig>,
    /// Element type of the published values.
    #[serde(default = "crate::float32")]
    pub dtype: Dtype,
    /// Value that is published where a modality has no valid value.
    #[serde(default)]
    pub fill_value: f32,
    /// Streams to align, in the order of their columns in the output.
    pub modalities: Vec<ModalityConfig>,
    /// Streams whose messages are attached to the observations unchanged, such as voxel grids. Only fuse may have them.
    #[serde(default)]
    pub attach: Vec<AttachConfig>,
}

/// One stream of numeric samples of an [`AlignConfig`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModalityConfig {
    /// Name of the dataflow input that brings the samples.
    pub input: String,
    /// Number of values in a sample, 1 or more.
    pub dim: usize,
    /// Paths of the values and of the stamp within messages that are structs. `None`: the fields of a recognised struct, such
    /// as a ROS message.
    pub from: Option<FromConfig>,
    /// Interpolation mode between samples. `None` is allowed only if every group in `groups` has its own mode.
    pub interpolation: Option<Interpolation>,
    /// Delay of the stream's stamps behind the capture, ms: the time of a sample is its stamp minus this delay.
    #[serde(default)]
    pub latency_ms: f64,
    /// Greatest distance of a target from the sample that gives its value, ms; beyond it the value is not valid. Only
    /// `previous` and `nearest` use it. `None`: no limit.
    pub max_age_ms: Option<f64>,
    /// Greatest time between the two samples around a target, ms; beyond it the value is not valid. All modes but `previous`
    /// and `nearest` use it. `None`: no limit.
    pub max_gap_ms: Option<f64>,
    /// Longest time after the newest sample for which its value is still used, ms, for all modes but `previous` and
    /// `nearest`. `None`: 0.
    pub extrapolate_ms: Option<f64>,
    /// True if `slerp` publishes each quaternion with w >= 0; q and -q are the same rotation. `None`: false.
    pub canonical: Option<bool>,
    /// Order of the components of a quaternion for `slerp`: w last (`xyzw`) or first (`wxyz`). `None`: `xyzw`.
    pub order: Option<QuaternionOrder>,
    /// Shortest time between two samples of the stream, ms: observations do not wait for a sample that would come sooner.
    /// `None`: not known.
    pub min_period_ms: Option<f64>,
    /// Longest time by which a sample's stamp may be behind the newest stamp of its stream, ms. Observations wait this much
    /// longer, so that a sample out of order is still used.
    #[serde(default)]
    pub reorder_ms: f64,
    /// True if observations wait for the samples of this stream, unless it is closed.
    #[serde(default = "yes")]
    pub wait: bool,
    /// A stamp that goes back by more than this, ms, is a clock jump; at least `reorder_ms`. `None`: 1000, or `reorder_ms` if
    /// that is more.
    pub reset_ms: Option<f64>,
    /// Greatest distance, ms, by which a stamp may be ahead of the newest stamps of its own stream and of all streams that are
    /// waited for. Beyond it the clock has jumped; with `max_wait_ms`, observations may instead stop waiting for the stream.
    /// `None`: 10,000 with `max_wait_ms`, else no limit.
    pub jump_ms: Option<f64>,
    /// Groups of channels, each with its own interpolation and limits; together they cover each channel once. Empty: all channels
    /// are one group.
    #[serde(default)]
    pub groups: Vec<ChannelGroupConfig>,
}

/// Stream whose messages are attached to the observations of an [`AlignConfig`] unchanged: the key `attach`.
///
/// `Default` has no input; other keys have the defaults of a configuration file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachConfig {
    /// Name of the dataflow input that brings the messages.
    pub input: String,
    /// Name of the output on which the messages of a window are published, and of their column in the output `observation`.
    #[serde(default = "grids")]
    pub output: String,
    /// Paths of the columns of a point cloud and of its stamp within messages that are structs. `None`: the fields of a
    /// recognised struct, such as a ROS message.
    pub from: Option<FromConfig>,
    /// Number of rows of a window, counted from the newest, that get an attached message. `None`: all rows.
    pub rows: Option<usize>,
    /// Greatest age of a message at the time of its row, ms. `None`: no limit.
    pub max_age_ms: Option<f64>,
    /// Delay of the stream's stamps behind the capture, ms: the time of a message is its stamp minus this delay.
    #[serde(default)]
    pub latency_ms: f64,
    /// Shortest time between two messages of the stream, ms: observations do not wait for a message that would come sooner.
    /// `None`: not known.
    pub min_period_ms: Option<f64>,
    /// Longest time by which a message's stamp may be behind the newest stamp of its stream, ms. Observations wait this much
    /// longer, so that a message out of order is still used.
    #[serde(default)]
    pub reorder_ms: f64,
    /// True if observations wait for the messages of this stream, unless it is closed.
    #[serde(default = "yes")]
    pub wait: bool,
    /// Greatest step back of a stamp, ms, that is not a clock jump: as [`ModalityConfig::reset_ms`].
    pub reset_ms: Option<f64>,
    /// Greatest distance, ms, by which a stamp may be ahead of its own and the other streams: as [`ModalityConfig::jump_ms`].
    pub jump_ms: Option<f64>,
    /// Limit of the memory for messages of this stream that are kept until observations no longer need them, MiB.
    #[serde(default = "crate::quarter_gib")]
    pub max_held_mb: f64,
}

impl Default for AttachConfig {
    fn default() -> Self {
        Self {
            input: String::new(),
            output: grids(),
            from: None,
            rows: None,
            max_age_ms: None,
            latency_ms: 0.0,
            min_period_ms: None,
            reorder_ms: 0.0,
            wait: yes(),
            reset_ms: None,
            jump_ms: None,
            max_held_mb: crate::quarter_gib(),
        }
    }
}

impl Default for AlignConfig {
    /// Returns a configuration of 50 Hz without modalities; other keys have the defaults of a configuration file.
    fn default() -> Self {
        Self {
            rate_hz: 50.0,
            window: one(),
            stride: one(),
            emit_every: one(),
            max_wait_ms: None,
            trigger: None,
            dtype: Dtype::Float32,
            fill_value: 0.0,
            modalities: Vec::new(),
            attach: Vec::new(),
        }
    }
}

impl Default for ModalityConfig {
    /// Returns a modality without an input name and without channels; other keys have the defaults of a configuration file.
    fn default() -> Self {
        Self {
            input: String::new(),
            dim: 0,
            from: None,
            interpolation: None,
            latency_ms: 0.0,
            max_age_ms: None,
            max_gap_ms: None,
            extrapolate_ms: None,
            canonical: None,
            order: None,
            min_period_ms: None,
            reorder_ms: 0.0,
            wait: yes(),
            reset_ms: None,
            jump_ms: None,
            groups: Vec::new(),
        }
    }
}

impl AlignConfig {
    /// Returns D, the number of columns of all modalities side by side.
    pub fn columns(&self) -> usize {
        self.modalities.iter().map(|modality| modality.dim).sum()
    }

    /// Returns the fields to read from the messages of each input: first for the modalities, then for the attached streams.
    pub fn selections(&self) -> impl Iterator<Item = Selection> {
        let modalities = self.modalities.iter();
        let samples = modalities.map(|modality| Selection::samples(modality.dim, modality.from.clone()));
        let attached = self.attach.iter();
        samples.chain(attached.map(|attach| Selection::cloud(CloudFields::All, attach.from.clone())))
    }
}

fn one() -> usize {
    1
}

fn yes() -> bool {
    true
}

fn grids() -> String {
    "grids".to_owned()
}
