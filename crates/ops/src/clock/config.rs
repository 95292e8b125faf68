//! Types of the section `clock:` of a configuration file. Reading them checks their types only; `spec.rs` checks the values.

use serde::Deserialize;

/// Inputs whose stamps are converted to host time, each with the settings of its clock: the section `clock:` of
/// a configuration.
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
    /// Inputs whose stamps are converted to host time. The messages of each input are published on an output of the same name.
    pub inputs: Vec<ClockInput>,
}

/// One input of a [`ClockConfig`]: its name, and the clock that stamps its messages.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockInput {
    /// Name of the dataflow input.
    pub input: String,
    /// Clock by which the messages of the input are stamped.
    #[serde(default)]
    pub clock: ClockKind,
    /// Smallest delay from the capture of a sample to its publication, ms. It is subtracted from host time, because it can't be
    /// measured from messages in one direction. 0 by default.
    #[serde(default)]
    pub latency_ms: f64,
    /// Length of the sliding window of messages from which a `device` clock is estimated, s; 1 to 3600, 60 by default.
    #[serde(default = "sixty")]
    pub window_s: f64,
    /// Time from the first message until the estimate of a `device` clock is used, s; 1 to `window_s`, 10 by default. A silence
    /// of the device counts for at most 1 s.
    #[serde(default = "ten")]
    pub lock_s: f64,
    /// Largest step of a clock, ms, that is followed gradually. A larger step means that somebody set the clock, and the
    /// estimate starts over. 1 to 1e9, 100 by default.
    #[serde(default = "hundred")]
    pub reset_ms: f64,
}

impl Default for ClockInput {
    /// Returns an input without a name. The other fields have the defaults of a configuration file.
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
    /// The device's own clock, which nothing synchronizes with the host: its offset and skew are estimated.
    #[default]
    Device,
    /// The host's `CLOCK_REALTIME`: stamps are already in host time, and only `latency_ms` is subtracted.
    Realtime,
    /// The host's `CLOCK_MONOTONIC`, as V4L2 stamps frames.
    Monotonic,
    /// The host's `CLOCK_BOOTTIME`, as libcamera stamps frames.
    Boottime,
}

impl ClockKind {
    /// Returns the name of the clock in a configuration, such as `device`.
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
