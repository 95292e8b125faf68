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
    /// Targets per second: they lie at whole multiples of `round(1e9 / rate_hz)` ns.
    pub rate_hz: f64,
    /// T, the rows of an observation.
    #[serde(default = "one")]
    pub window: usize,
    /// Grid steps between the rows of a window.
    #[serde(default = "one")]
    pub stride: usize,
    /// Grid steps between observations.
    #[serde(default = "one")]
    pub emit_every: usize,
    /// Longest wait of a target for a stream that is behind the newest one; `None`: for ever.
    pub max_wait_ms: Option<f64>,
    /// Trigger of an observation; `None`: the grid.
    pub trigger: Option<TriggerConfig>,
    /// The type of the published values.
    #[serde(default = "crate::float32")]
    pub dtype: Dtype,
    /// Fill value of targets without a valid value.
    #[serde(default)]
    pub fill_value: f32,
    /// The streams, in the order of their columns.
    pub modalities: Vec<ModalityConfig>,
    /// Streams whose messages are attached to the observations unchanged, such as voxel grids. Only fuse has them.
    #[serde(default)]
    pub attach: Vec<AttachConfig>,
}

/// One stream of an [`AlignConfig`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModalityConfig {
    /// The input of the stream.
    pub input: String,
    /// Number of values in a sample.
    pub dim: usize,
    /// Paths of the values and of the stamp in a struct. `None`: the recognised ones.
    pub from: Option<FromConfig>,
    /// Interpolation of values between samples; may be left out if every group has its own.
    pub interpolation: Option<Interpolation>,
    /// Delay of its stamps behind the capture: a sample's time is its stamp minus this.
    #[serde(default)]
    pub latency_ms: f64,
    /// See [`Limits::max_age`](robocache_time::Limits::max_age).
    pub max_age_ms: Option<f64>,
    /// See [`Limits::max_gap`](robocache_time::Limits::max_gap).
    pub max_gap_ms: Option<f64>,
    /// See [`Limits::extrapolate`](robocache_time::Limits::extrapolate).
    pub extrapolate_ms: Option<f64>,
    /// `slerp`: true to publish, of a rotation's two quaternions, the one with w >= 0. `None`: false.
    pub canonical: Option<bool>,
    /// `slerp`: place of w in a quaternion. `None`: `xyzw`.
    pub order: Option<QuaternionOrder>,
    /// Least time between two samples: targets do not wait for a sample that would come sooner.
    pub min_period_ms: Option<f64>,
    /// Time by which a sample may be late and still be sorted in before it is used.
    #[serde(default)]
    pub reorder_ms: f64,
    /// True if a target waits for this stream.
    #[serde(default = "yes")]
    pub wait: bool,
    /// A stamp that goes back by more than this is a clock jump; at least `reorder_ms`. `None`: 1000, or `reorder_ms`
    /// if that is more.
    pub reset_ms: Option<f64>,
    /// A stamp is too far ahead if it is more than this after the newest of its stream, and of every other stream that is
    /// waited for. It is a clock jump then, or with `max_wait_ms` its stream may go aside. `None`: 10,000 with `max_wait_ms`,
    /// else no limit.
    pub jump_ms: Option<f64>,
    /// Groups of channels with rules of their own; together they cover each channel once.
    #[serde(default)]
    pub groups: Vec<ChannelGroupConfig>,
}

/// A stream whose messages are attached to the observations of an [`AlignConfig`] unchanged: the key `attach`.
///
/// `Default` has no input; other keys have the defaults of a configuration file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachConfig {
    /// The input of the stream.
    pub input: String,
    /// The output on which the messages of a window are published, and the name of their column in `observation`.
    #[serde(default = "grids")]
    pub output: String,
    /// Paths as of a [`ModalityConfig`], but of the columns of a cloud.
    pub from: Option<FromConfig>,
    /// Number of rows, the newest ones, that have messages. `None`: all.
    pub rows: Option<usize>,
    /// Greatest age of a message at a row. `None`: no limit.
    pub max_age_ms: Option<f64>,
    /// Delay of its stamps behind the capture: a message's time is its stamp minus this.
    #[serde(default)]
    pub latency_ms: f64,
    /// Least time between two messages: targets do not wait for a message that would come sooner.
    pub min_period_ms: Option<f64>,
    /// Time by which a message may be late and still be sorted in before it is used.
    #[serde(default)]
    pub reorder_ms: f64,
    /// True if a target waits for this stream.
    #[serde(default = "yes")]
    pub wait: bool,
    /// The same as [`ModalityConfig::reset_ms`].
    pub reset_ms: Option<f64>,
    /// The same as [`ModalityConfig::jump_ms`].
    pub jump_ms: Option<f64>,
    /// Limit of the messages that are held, MiB.
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
    /// Returns 50 Hz and no modality; other keys have the defaults of a configuration file.
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
    /// Returns no input and no channel; other keys have the defaults of a configuration file.
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
    /// D, the columns of all modalities side by side.
    pub fn columns(&self) -> usize {
        self.modalities.iter().map(|modality| modality.dim).sum()
    }

    /// Selections of the inputs: those of the modalities, then of the attached streams.
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
