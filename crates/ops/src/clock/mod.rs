//! Operation `clock`: converts the stamps of devices to the clock of the host, with [`Clocks`].
//!
//! A device with its own clock (a lidar without PTP, an IMU on USB) is known only by its messages, which are late by a constant
//! and a jitter. [`DeviceClock`] estimates the offset and skew of its clock from them, as `docs/semantics.md` defines.
//! [`HostClock`] converts the stamps of another clock of the same host. Work per message and memory are bounded: the hull of a
//! window has at most a few thousand vertices.
//!
//! ```
//! use robocache_ops::clock::{ClockConfig, ClockInput, Clocks};
//!
//! const MS: i64 = 1_000_000;
//! let imu = ClockInput { input: "imu".into(), ..ClockInput::default() };
//! let mut clocks = Clocks::new(&ClockConfig { inputs: vec![imu] })?;
//! for i in 0..2000 {
//!     // Every 10 ms; its clock begins at 0 and is 20 ppm slow. Two of three messages are late.
//!     let (device, host) = (i * 10 * MS, 5_000 * MS + i * 10 * MS + i * 200 + (i % 3) * 4 * MS);
//!     let (stamp, _) = clocks.push(0, device, Some(host));
//!     assert_eq!(stamp.is_locked, i >= 1000);
//!     if stamp.is_locked {
//!         assert!((stamp.host_ns - (host - (i % 3) * 4 * MS)).abs() < 1000);
//!         assert!((stamp.skew * 1e6 - 20.0).abs() < 0.1);
//!     }
//! }
//! # Ok::<(), robocache_ops::ConfigError>(())
//! ```

mod config;
mod device;
mod host;
mod hull;
pub mod key;
mod spec;

pub use config::{ClockConfig, ClockInput, ClockKind};
pub use device::DeviceClock;
pub use host::{HostClock, difference_ns, now_ns};
pub use spec::InputSpec;

use super::ConfigError;
use std::fmt;
use std::time::{Duration, Instant};

/// Interval at which the difference between two clocks of the host is measured again.
const READ_EVERY: Duration = Duration::from_secs(1);

/// Stamp of a message in host time, and the state of the clock estimate that gave it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stamp {
    /// Capture time on the real-time clock of the host, ns since 1970.
    pub host_ns: i64,
    /// Offset between the clocks: host time minus device time, ns.
    pub offset_ns: i64,
    /// Skew of the device's clock: host seconds per device second, minus 1. 0 until an estimate is used.
    pub skew: f64,
    /// Uncertainty of the estimate, ns: root mean square height above the estimated line of the earliest messages, one from
    /// each thirtieth of the window. 0 without an estimate.
    pub sigma_ns: i64,
    /// True if `host_ns` is computed from the device's stamp. False if it is the time of publication, less the latency.
    pub is_locked: bool,
    /// Number of times so far that host time went back because a clock was set.
    pub epoch: i64,
}

impl Stamp {
    /// Returns the host time of an older sample of the same message, with device time `device_ns`. `self` must be the stamp of
    /// the message's newest sample, with device time `newest_ns`.
    pub fn of_sample(&self, newest_ns: i64, device_ns: i64) -> i64 {
        let before = i128::from(newest_ns) - i128::from(device_ns);
        let stretched = before + (before as f64 * self.skew).round() as i128;
        device::clamp(i128::from(self.host_ns) - stretched)
    }

    /// Creates a stamp without an estimate. `stamp_ns` is the device's stamp, or the time of publication if there is none.
    fn new(stamp_ns: i64, host_ns: i64, epoch: i64) -> Self {
        Self {
            host_ns,
            offset_ns: host_ns.saturating_sub(stamp_ns),
            skew: 0.0,
            sigma_ns: 0,
            is_locked: false,
            epoch,
        }
    }
}

/// Event of a clock that is reported to the user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Notice {
    /// The estimate of the clock has become good enough, and is used from this message on.
    Locked,
    /// The device's clock was set by `ns`, or the host's clock by `-ns`. The estimate starts over.
    Reset {
        /// Step of the device's clock relative to the host's, ns; negative if it went back.
        ns: i64,
    },
    /// The device was silent for more than ten windows. The estimate starts over.
    Silence {
        /// Length of the silence by the device's clock, ns.
        ns: i64,
    },
    /// The device's stamps do not advance by one nanosecond per nanosecond: they stand still, are in another unit, or the clock
    /// is faulty.
    Pace {
        /// Pace of the stamps: device nanoseconds per host nanosecond; near 1 for a correct clock.
        ratio: f64,
    },
    /// The host's real-time clock was set relative to the clock that stamps the input.
    HostClock {
        /// Step of the real-time clock relative to the stamping clock, ns; negative if it went back.
        ns: i64,
    },
}

impl Notice {
    /// Returns the name under which events of this kind are counted, such as `clock reset`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Locked => "locked",
            Self::Reset { .. } => "clock reset",
            Self::Silence { .. } => "silence",
            Self::Pace { .. } => "pace of the clock",
            Self::HostClock { .. } => "host clock set",
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = robocache_time::ns_to_s;
        match *self {
            Self::Locked => write!(f, "its stamps are in host time from here on"),
            Self::Reset { ns } => write!(
                f,
                "its clock was set by {:+.3} s against the host's: its stamps are times of publication until it is known again",
                seconds(ns)
            ),
            Self::Silence { ns } => write!(
                f,
                "it was silent for {:.0} s: its stamps are times of publication until its clock is known again",
                seconds(ns)
            ),
            Self::Pace { ratio } => {
                let unit = robocache_time::unit_of_pace(1.0 / ratio);
                let unit = unit.map_or(String::new(), |unit| format!(", so they are in {unit}"));
                write!(
                    f,
                    "its stamps advance by {ratio:.3e} ns per nanosecond{unit} (needed: `timestamp_ns` in ns, the capture time of \
                     each message)"
                )
            }
            Self::HostClock { ns } => write!(
                f,
                "the real-time clock was set by {:+.3} s against the one that stamps it",
                seconds(ns)
            ),
        }
    }
}

/// Clocks of all configured inputs, which convert the stamps of each input to host time.
pub struct Clocks {
    clocks: Vec<Clock>,
}

enum Clock {
    Device(Box<DeviceClock>),
    Host {
        kind: ClockKind,
        clock: HostClock,
        difference_ns: i64,
        read: Instant,
    },
}

impl Clocks {
    /// Creates the clocks of a configuration, one for each input.
    ///
    /// # Errors
    /// [`ConfigError`] names a setting that is not allowed, or a clock that this system does not have.
    pub fn new(config: &ClockConfig) -> Result<Self, ConfigError> {
        let inputs = config.checked()?;
        let clocks = inputs.iter().enumerate().map(|(i, input)| {
            if input.clock == ClockKind::Device {
                return Ok(Clock::Device(Box::new(DeviceClock::new(input))));
            }
            let difference_ns = difference_ns(input.clock).ok_or_else(|| {
                let problem = format!(
                    "`{}`: this system has no such clock (allowed here: device, realtime)",
                    input.clock.name()
                );
                ConfigError::new(format!("inputs[{i}].clock"), problem)
            })?;
            Ok(Clock::Host {
                kind: input.clock,
                clock: HostClock::new(input),
                difference_ns,
                read: Instant::now(),
            })
        });
        Ok(Self {
            clocks: clocks.collect::<Result<_, _>>()?,
        })
    }

    /// Returns the host time of a message with stamp `stamp_ns`, which came on the input with this index. Also returns a
    /// [`Notice`] if it shows an event of the clock. `published_ns` is its time of publication by the real-time clock; `None`
    /// means now.
    pub fn push(&mut self, input: usize, stamp_ns: i64, published_ns: Option<i64>) -> (Stamp, Option<Notice>) {
        match &mut self.clocks[input] {
            Clock::Device(clock) => clock.push(stamp_ns, published_ns.unwrap_or_else(now_ns)),
            Clock::Host {
                kind,
                clock,
                difference_ns: difference,
                read,
            } => {
                let now = Instant::now();
                if now.duration_since(*read) >= READ_EVERY {
                    *read = now;
                    *difference = difference_ns(*kind).unwrap_or(*difference);
                }
                clock.push(stamp_ns, *difference)
            }
        }
    }

    /// Returns the host time of a message without a stamp, which came on the input with this index: its time of publication
    /// `published_ns`, less the latency.
    pub fn push_unstamped(&mut self, input: usize, published_ns: i64) -> Stamp {
        match &mut self.clocks[input] {
            Clock::Device(clock) => clock.push_unstamped(published_ns),
            Clock::Host { clock, .. } => clock.push_unstamped(published_ns),
        }
    }
}

#[cfg(test)]
mod tests;
