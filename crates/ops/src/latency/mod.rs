//! Lag of one channel behind another, found offline by cross-correlation: [`Correlator`].
//!
//! Two sensors that see the same movement, such as joint speeds and the motion of a camera, give the same signal except for a
//! lag. Both channels are resampled to common time steps, and differentiated, because levels correlate at every lag. The result
//! is the lag with the highest correlation, or a [`LatencyError`] if the lag can't be known.
//!
//! ```
//! use robocache_ops::latency::{Channel, Correlator, LatencyConfig};
//!
//! // The same movement, every 2 ms and every 33 ms; the second stream is stamped 40 ms late.
//! let movement = |ns: i64| {
//!     let t = ns as f64 * 1e-9;
//!     (3.1 * t).sin() + 0.6 * (7.7 * t + 1.0).sin() + 0.5 * (11.3 * t * (1.0 + 0.02 * t)).cos()
//! };
//! let times = |step: i64| (0..30_000 / step).map(|i| i * step * 1_000_000).collect::<Vec<_>>();
//! let (joint_ns, camera_ns) = (times(2), times(33));
//! let joint: Vec<f64> = joint_ns.iter().map(|&ns| movement(ns)).collect();
//! let camera: Vec<f64> = camera_ns.iter().map(|&ns| movement(ns - 40_000_000)).collect();
//!
//! let correlator = Correlator::new(&LatencyConfig::default())?;
//! let a = Channel { times_ns: &joint_ns, values: &joint };
//! let b = Channel { times_ns: &camera_ns, values: &camera };
//! let latency = correlator.latency(a, b)?;
//! assert!((latency.lag_ms - 40.0).abs() < 0.5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod correlate;

pub use correlate::correlation;

use super::ConfigError;

/// Settings of the search for the lag between two channels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyConfig {
    /// Smallest and greatest lag to search, ms; positive if the second channel is behind the first.
    pub range_ms: (f64, f64),
    /// Length of the time steps on which both channels are compared, ms. A lag is found to a fraction of a step.
    pub step_ms: f64,
    /// Time over which the difference of a channel is computed, ms: a longer time suppresses noise, a shorter one keeps detail.
    pub smooth_ms: f64,
    /// Greatest time between two samples for values to be interpolated between them, ms.
    pub max_gap_ms: f64,
    /// Smallest correlation at which a lag is accepted, 0 to 1.
    pub min_peak: f64,
    /// Greatest height of the second peak at which a lag is accepted, as a fraction of the highest peak, 0 to 1.
    pub max_second: f64,
}

impl Default for LatencyConfig {
    fn default() -> Self {
        Self {
            range_ms: (-500.0, 500.0),
            step_ms: 1.0,
            smooth_ms: 20.0,
            max_gap_ms: 200.0,
            min_peak: 0.3,
            max_second: 0.9,
        }
    }
}

/// Scalar signal over time: one channel of a sensor.
#[derive(Clone, Copy, Debug)]
pub struct Channel<'a> {
    /// Times of the samples, ns, ascending. If two samples have the same time, the later one in the list counts.
    pub times_ns: &'a [i64],
    /// Values of the samples, one for each time. A value that is not finite is left out.
    pub values: &'a [f64],
}

/// Lag of one channel behind another, and the evidence for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency {
    /// Delay of the second channel behind the first, ms; negative if the second channel is ahead. It is the `latency_ms` to
    /// configure for the second channel if the `latency_ms` of the first channel is 0.
    pub lag_ms: f64,
    /// Correlation of the channels at `lag_ms`: the height of the parabola through the highest value of `curve` and
    /// its two neighbours.
    pub peak: f64,
    /// Highest peak of `curve` outside the main peak: its lag, ms, and its correlation. `None` if there is none.
    pub second: Option<(f64, f64)>,
    /// Standard deviation that chance gives the correlation of unrelated channels that move as fast as these two.
    pub noise: f64,
    /// Correlation at every lag of the range.
    pub curve: Curve,
}

/// Correlation of two channels as a function of their lag.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Lag of `values[0]`, ms.
    pub first_ms: f64,
    /// Distance from the lag of one value to the lag of the next, ms.
    pub step_ms: f64,
    /// Correlation at each lag, -1 to 1.
    pub values: Vec<f64>,
}

impl Curve {
    /// Returns the lag, ms, at an index of `values`; a fraction gives a lag between two values.
    pub fn lag_ms(&self, index: f64) -> f64 {
        self.first_ms + index * self.step_ms
    }
}

/// Reason why the lag of two channels can't be known.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LatencyError {
    /// The channel has unequal numbers of times and values, or its times are not ascending.
    #[error("channel {channel}: {problem}")]
    Channel {
        /// Channel with the error: `a`, the first, or `b`, the second.
        channel: char,
        /// Description of the error: what the channel has, and what is allowed.
        problem: String,
    },
    /// The value of a channel changes too rarely.
    #[error("channel {channel} hardly moves: it changes {changes} times (needed: {needed} or more)")]
    Still {
        /// Channel with too few changes: `a`, the first, or `b`, the second.
        channel: char,
        /// Number of times that the value of the channel changes.
        changes: usize,
        /// Smallest number of changes with which a channel is accepted.
        needed: usize,
    },
    /// The time that both channels cover is too short for the range of lags.
    #[error(
        "the channels have {common_s:.1} s in common (needed: {needed_s:.1} s, four times the greatest lag: a longer recording, or a narrower range)"
    )]
    Short {
        /// Time that both channels cover, s.
        common_s: f64,
        /// Shortest common time in which a lag is searched, s: about four times the greatest lag.
        needed_s: f64,
    },
    /// The time that both channels cover has too many steps to compute.
    #[error("the channels have {steps} steps in common (allowed: {allowed}; a part of the recording is enough)")]
    Long {
        /// Number of steps in the time that both channels cover.
        steps: i128,
        /// Greatest number of steps that is accepted.
        allowed: i128,
    },
    /// The channels change too slowly for the time that both cover: no correlation would stand out from chance.
    #[error(
        "chance alone correlates them by {chance:.2} (allowed: up to {allowed:.2}): they move too slowly for the {common_s:.1} s that they have in common (needed: more time, or quicker movement)"
    )]
    Slow {
        /// Standard deviation that chance gives the correlation of such channels.
        chance: f64,
        /// Greatest value of `chance` that is accepted.
        allowed: f64,
        /// Time that both channels cover, s.
        common_s: f64,
    },
    /// The highest correlation is too low: the channels may be unrelated.
    #[error(
        "the highest correlation is {peak:.2}, at {lag_ms:.1} ms (needed: {needed:.2}; the lowest is {trough:.2}: if that is further from 0, one channel seems to be inverted)"
    )]
    Weak {
        /// Highest correlation within the range of lags.
        peak: f64,
        /// Lag of the highest correlation, ms.
        lag_ms: f64,
        /// Smallest value of `peak` with which the lag is accepted.
        needed: f64,
        /// Lowest correlation within the range of lags.
        trough: f64,
    },
    /// The channels correlate better if the sign of one of them is inverted.
    #[error(
        "the lowest correlation, {trough:.2} at {trough_ms:.1} ms, is further from 0 than the highest, {peak:.2} at {lag_ms:.1} ms: one channel seems to be inverted (allowed: both with the same sign)"
    )]
    Inverted {
        /// Highest correlation within the range of lags.
        peak: f64,
        /// Lag of the highest correlation, ms.
        lag_ms: f64,
        /// Lowest correlation within the range of lags.
        trough: f64,
        /// Lag of the lowest correlation, ms.
        trough_ms: f64,
    },
    /// The correlation is highest at an end of the range of lags, so the true lag may lie outside.
    #[error(
        "the correlation is highest at {lag_ms:.1} ms, an end of the range (needed: a peak within it; try a wider range)"
    )]
    AtEnd {
        /// Lag at the end of the range where the correlation is highest, ms.
        lag_ms: f64,
    },
    /// The correlation is about as high at a second lag, as with a movement that repeats itself.
    #[error(
        "a peak of {peak:.2} at {lag_ms:.1} ms and one of {second:.2} at {second_ms:.1} ms: a movement that repeats itself (allowed: a second peak of {allowed:.2} of the first; take a narrower range, or a movement that does not repeat)"
    )]
    Ambiguous {
        /// Correlation at the highest peak.
        peak: f64,
        /// Lag of the highest peak, ms.
        lag_ms: f64,
        /// Correlation at the second-highest peak.
        second: f64,
        /// Lag of the second-highest peak, ms.
        second_ms: f64,
        /// Greatest ratio of `second` to `peak` at which the lag is accepted.
        allowed: f64,
    },
}

/// Smallest number of changes of a channel's value with which its lag can be known.
const LEAST_CHANGES: usize = 10;

/// Smallest height of a peak that is accepted, in standard deviations of the correlation by chance.
const DEVIATIONS: f64 = 5.0;

/// Greatest number of time steps at which channels are compared: three hours at 1 ms.
const MOST_STEPS: i128 = 10_800_000;

/// Search for the lag between two channels, with checked settings.
#[derive(Clone, Copy, Debug)]
pub struct Correlator {
    config: LatencyConfig,
    step_ns: i64,
    /// Smallest lag of the range, in time steps of `step_ms`.
    first: i64,
    /// Greatest lag of the range, in time steps of `step_ms`.
    last: i64,
    /// Half of `smooth_ms`, rounded to time steps of `step_ms`, at least 1.
    half_smooth: i64,
    max_gap_ns: i64,
}

impl Correlator {
    /// Checks a configuration, and creates a search with it.
    ///
    /// # Errors
    /// [`ConfigError`] names the invalid key, its value and the allowed values.
    pub fn new(config: &LatencyConfig) -> Result<Self, ConfigError> {
        let refused = |key: &str, problem: String| Err(ConfigError::new(key, problem));
        let LatencyConfig {
            range_ms: (from, to),
            step_ms,
            smooth_ms,
            max_gap_ms,
            ..
        } = *config;
        if !(0.01..=1000.0).contains(&step_ms) {
            return refused("step_ms", format!("{step_ms} (allowed: 0.01 to 1000 ms)"));
        }
        let is_range = from < to && from >= -60_000.0 && to <= 60_000.0 && to - from >= 4.0 * step_ms;
        if !is_range {
            let problem = format!("{from} to {to} (allowed: at least 4 steps of {step_ms}, from -60000 to 60000 ms)");
            return refused("range_ms", problem);
        }
        if !(step_ms..=10_000.0).contains(&smooth_ms) {
            return refused(
                "smooth_ms",
                format!("{smooth_ms} (allowed: `step_ms`, {step_ms}, to 10000 ms)"),
            );
        }
        if !(0.01..=60_000.0).contains(&max_gap_ms) {
            return refused("max_gap_ms", format!("{max_gap_ms} (allowed: 0.01 to 60000 ms)"));
        }
        for (key, share) in [("min_peak", config.min_peak), ("max_second", config.max_second)] {
            if !(0.0..=1.0).contains(&share) {
                return refused(key, format!("{share} (allowed: 0 to 1)"));
            }
        }
        Ok(Self {
            config: *config,
            step_ns: robocache_time::ms_to_ns(step_ms),
            first: (from / step_ms).ceil() as i64,
            last: (to / step_ms).floor() as i64,
            half_smooth: ((smooth_ms / step_ms / 2.0).round() as i64).max(1),
            max_gap_ns: robocache_time::ms_to_ns(max_gap_ms),
        })
    }

    /// Finds the lag of channel `b` behind channel `a`.
    ///
    /// # Errors
    /// [`LatencyError`]: the reason why the lag can't be known.
    pub fn latency(&self, a: Channel<'_>, b: Channel<'_>) -> Result<Latency, LatencyError> {
        let (start, steps) = self.common(a, b)?;
        let speed = |channel: Channel<'_>| {
            correlate::speed(channel, start, steps, self.step_ns, self.half_smooth, self.max_gap_ns)
        };
        let (a, b) = (speed(a), speed(b));
        let values = correlation(&a, &b, self.first, self.last);
        let noise = correlate::chance(&a, &b);
        let config = &self.config;
        let curve = Curve {
            first_ms: self.first as f64 * config.step_ms,
            step_ms: config.step_ms,
            values,
        };
        let values = &curve.values;
        let order = |a: &usize, b: &usize| values[*a].total_cmp(&values[*b]);
        let best = (0..values.len()).max_by(order).unwrap_or(0);
        let lowest = (0..values.len()).min_by(order).unwrap_or(0);
        let trough = values[lowest];
        let allowed = 1.0 / DEVIATIONS;
        if !noise.is_finite() || noise > allowed {
            return Err(LatencyError::Slow {
                chance: noise,
                allowed,
                common_s: steps as f64 * self.step_ns as f64 / 1e9,
            });
        }
        let needed = config.min_peak.max(DEVIATIONS * noise);
        if values[best] < needed {
            return Err(LatencyError::Weak {
                peak: values[best],
                lag_ms: curve.lag_ms(best as f64),
                needed,
                trough,
            });
        }
        if best == 0 || best == values.len() - 1 {
            let lag_ms = curve.lag_ms(best as f64);
            return Err(LatencyError::AtEnd { lag_ms });
        }
        if -trough > values[best] {
            return Err(LatencyError::Inverted {
                peak: values[best],
                lag_ms: curve.lag_ms(best as f64),
                trough,
                trough_ms: curve.lag_ms(lowest as f64),
            });
        }
        let (place, peak) = correlate::vertex(values[best - 1], values[best], values[best + 1]);
        let lag_ms = curve.lag_ms(best as f64 + place);
        let second = correlate::second_peak(values, best).map(|at| (curve.lag_ms(at as f64), values[at]));
        if let Some((second_ms, second)) = second.filter(|(_, second)| *second > config.max_second * values[best]) {
            return Err(LatencyError::Ambiguous {
                peak,
                lag_ms,
                second,
                second_ms,
                allowed: config.max_second,
            });
        }
        Ok(Latency {
            lag_ms,
            peak,
            second,
            noise,
            curve,
        })
    }

    /// Returns the start of the time that both channels cover, ns, and the number of time steps in it.
    fn common(&self, a: Channel<'_>, b: Channel<'_>) -> Result<(i64, usize), LatencyError> {
        let ends = |channel, of: Channel<'_>| {
            let refused = |problem| Err(LatencyError::Channel { channel, problem });
            let (times, values) = (of.times_ns, of.values);
            if times.len() != values.len() {
                let problem = format!("{} times and {} values (allowed: as many)", times.len(), values.len());
                return refused(problem);
            }
            if let Some(at) = times.windows(2).position(|pair| pair[1] < pair[0]) {
                let problem = format!(
                    "time {} is earlier than the previous one (allowed: ascending times)",
                    at + 1
                );
                return refused(problem);
            }
            let finite = values.iter().filter(|value| value.is_finite());
            let changes = finite.clone().zip(finite.skip(1)).filter(|(a, b)| a != b).count();
            if changes < LEAST_CHANGES {
                let needed = LEAST_CHANGES;
                return Err(LatencyError::Still {
                    channel,
                    changes,
                    needed,
                });
            }
            Ok((times[0], times[times.len() - 1]))
        };
        let ((from_a, to_a), (from_b, to_b)) = (ends('a', a)?, ends('b', b)?);
        let (start, end) = (from_a.max(from_b), to_a.min(to_b));
        let step = i128::from(self.step_ns);
        let steps = (i128::from(end) - i128::from(start)).max(0) / step + 1;
        let needed = 4 * i128::from(self.last.abs().max(self.first.abs())) + 2 * i128::from(self.half_smooth);
        if steps < needed {
            let seconds = |steps: i128| (steps * step) as f64 / 1e9;
            return Err(LatencyError::Short {
                common_s: seconds(steps - 1),
                needed_s: seconds(needed),
            });
        }
        if steps > MOST_STEPS {
            let allowed = MOST_STEPS;
            return Err(LatencyError::Long { steps, allowed });
        }
        Ok((start, steps as usize))
    }
}

#[cfg(test)]
mod tests;
