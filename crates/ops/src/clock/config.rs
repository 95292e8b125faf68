//! Configuration of the operation `clock` as a file has it: the section `clock:`. Only the types are checked here; `spec.rs`
//! checks the values.

use serde::Deserialize;

/// Inputs whose stamps are put in host time, and the settings of their clocks: the section `clock:` of a configuration.
///
/// ```
/// use robocache_ops::clock::{ClockConfig, ClockInput};
///
/// let lidar = ClockInput { input: "lidar".into(), ..ClockInput::default() };
/// let config = ClockConfig { inputs: vec![lidar] };
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockConfig {
    /// Inputs whose stamps are put in host time. Each is published under its own name.
    pub inputs: Vec<ClockInput>,
}

/// One input of a [`ClockConfig`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockInput {
    /// Name of the dataflow input.
    pub input: String,
    /// Clock by which the messages of the input are stamped.
    #[serde(default)]
    pub clock: ClockKind,
    /// Smallest time from the capture of a sample to its publication, ms, which is subtracted from the estimated host time. This
    /// delay can't be measured from messages in one direction.
    #[serde(default)]
    pub latency_ms: f64,
    /// Length of the window of messages from which a `device` clock is estimated, s, 1 to 3600.
    #[serde(default = "sixty")]
    pub window_s: f64,
    /// Time with messages after which the estimate of a `device` clock is used, s; 1 to `window_s`. A silence counts for at most 1
    /// s of it.
    #[serde(default = "ten")]
    pub lock_s: f64,
    /// Deviation of a stamp from the estimate, ms, above which the clock counts as set, and the estimate begins anew.
    #[serde(default = "hundred")]
    pub reset_ms: f64,
}

impl Default for ClockInput {
    /// Returns an input without a name; other keys have the defaults of a configuration file.
    fn default() -> Self {
        Self {
            input: String::new(),
            clock: ClockKind::default(),
            latency_ms: 0.0,
            window_s: sixty(),
            lock_s: ten(),
            reset_ms: hundred(),
        }
    }
}

/// Clock by which the messages of an input are stamped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClockKind {
    /// Clock of the device, which runs freely: its offset and skew are estimated.
    #[default]
    Device,
    /// The host's `CLOCK_REALTIME`: stamps are passed on as they are.
    Realtime,
    /// The host's `CLOCK_MONOTONIC`, as V4L2 stamps frames.
    Monotonic,
    /// The host's `CLOCK_BOOTTIME`, as libcamera stamps frames.
    Boottime,
}

impl ClockKind {
    /// Name of the kind in a configuration, such as `device`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Realtime => "realtime",
            Self::Monotonic => "monotonic",
            Self::Boottime => "boottime",
        }
    }
}

fn sixty() -> f64 {
    60.0
}

fn ten() -> f64 {
    10.0
}

fn hundred() -> f64 {
    100.0
}
