//! Checks the section `clock:` of a configuration, and converts its durations to ns.
//!
//! The result, an [`InputSpec`] for each input, holds checked values only. An error names the key, its value and the
//! allowed values.

use super::{ClockConfig, ClockInput, ClockKind};
use crate::{ConfigError, duration_ns, refused};
use robocache_time::ms_to_ns;

/// Checked settings of the clock of one input, with durations in ns.
#[derive(Clone, Debug)]
pub struct InputSpec {
    /// Name of the dataflow input.
    pub input: String,
    /// Clock by which the messages of the input are stamped.
    pub clock: ClockKind,
    /// Smallest delay from the capture of a sample to its publication, ns. It is subtracted from host time.
    pub latency_ns: i64,
    /// Length of the sliding window of messages from which a `device` clock is estimated, ns.
    pub window_ns: i64,
    /// Time from the first message until the estimate of a `device` clock is used, ns. A silence of the device counts for at
    /// most 1 s.
    pub lock_ns: i64,
    /// Largest step of a clock that is followed gradually, ns. After a larger step the estimate starts over.
    pub reset_ns: i64,
}

impl ClockConfig {
    /// Checks the inputs and their settings, and returns them in the same order.
    ///
    /// # Errors
    /// [`ConfigError`] names the invalid key, its value and the allowed values.
    pub fn checked(&self) -> Result<Vec<InputSpec>, ConfigError> {
        if self.inputs.is_empty() {
            return refused("inputs", "none (allowed: one or more)");
        }
        let inputs = self.inputs.iter().enumerate().map(|(i, input)| {
            if self.inputs[..i].iter().any(|other| other.input == input.input) {
                let problem = format!("`{}` is listed twice (allowed: once)", input.input);
                return refused(format!("inputs[{i}].input"), problem);
            }
            InputSpec::new(&format!("inputs[{i}]"), input)
        });
        inputs.collect()
    }
}

impl InputSpec {
    fn new(at: &str, config: &ClockInput) -> Result<Self, ConfigError> {
        let ClockInput {
            input,
            clock,
            latency_ms,
            window_s,
            lock_s,
            reset_ms,
        } = config;
        let refused = |key: &str, problem: String| refused(format!("{at}.{key}"), problem);
        if input.is_empty() {
            return refused("input", "it is empty (allowed: the name of an input)".to_owned());
        }
        for (key, seconds) in [("window_s", window_s), ("lock_s", lock_s)] {
            if !(1.0..=3600.0).contains(seconds) {
                return refused(key, format!("{seconds} (allowed: 1 to 3600 s)"));
            }
        }
        if lock_s > window_s {
            return refused("lock_s", format!("{lock_s} (allowed: at most `window_s`, {window_s})"));
        }
        if !(1.0..=1e9).contains(reset_ms) {
            return refused("reset_ms", format!("{reset_ms} (allowed: 1 to 1e9 ms)"));
        }
        let absent = ClockInput::default();
        let set = [
            ("window_s", *window_s != absent.window_s),
            ("lock_s", *lock_s != absent.lock_s),
        ];
        if let Some((key, _)) = set.iter().find(|(_, is_set)| *is_set && *clock != ClockKind::Device) {
            let name = clock.name();
            return refused(
                key,
                format!("`{name}` does not use this key (allowed with `clock: device`)"),
            );
        }
        Ok(Self {
            input: input.clone(),
            clock: *clock,
            latency_ns: duration_ns(|| format!("{at}.latency_ms"), *latency_ms)?,
            window_ns: ms_to_ns(1e3 * window_s),
            lock_ns: ms_to_ns(1e3 * lock_s),
            reset_ns: ms_to_ns(*reset_ms),
        })
    }
}
