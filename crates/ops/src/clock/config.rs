use serde::Deserialize;

/// Inputs that get host time, and the estimate of their clocks: the section `clock:` of a configuration.
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
    /// The inputs. Each is published under its own name.
    pub inputs: Vec<ClockInput>,
}

/// One input of a [`ClockConfig`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockInput {
    /// The name of the input.
    pub input: String,
    /// The clock that stamps it.
    #[serde(default)]
    pub clock: ClockKind,
    /// The least time from a sample's capture to its publication. It can't be measured from one side, and is subtracted.
    #[serde(default)]
    pub latency_ms: f64,
    /// Time over which messages make the estimate of a `device` clock.
    #[serde(default = "sixty")]
    pub window_s: f64,
    /// Time after which an estimate is used.
    #[serde(default = "ten")]
    pub lock_s: f64,
    /// Deviation above which a clock was set anew.
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

/// The clock that stamps an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClockKind {
    /// A clock of the device, which runs freely: its offset and skew are estimated.
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
    /// The name of the kind in a configuration.
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
