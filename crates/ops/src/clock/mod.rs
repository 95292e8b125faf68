//! Operation `clock`: puts the stamps of devices on the clock of the host, with [`Clocks`].
//!
//! A device with a clock of its own (a lidar without PTP, an IMU on USB) is seen only through messages that come late, by a
//! constant and a jitter. [`DeviceClock`] estimates the offset and skew of its clock from them, as `docs/semantics.md` defines
//! it. [`HostClock`] adds the difference between two clocks of the host. Work per message and memory are bounded: the hull of a
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

/// Time after which the difference between two clocks of the host is read again.
const READ_EVERY: Duration = Duration::from_secs(1);

/// Stamp of a message in host time, and the state of the estimate that it follows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stamp {
    /// Capture time on the real-time clock of the host, ns since 1970.
    pub host_ns: i64,
    /// Host time minus the time of the device, ns.
    pub offset_ns: i64,
    /// Skew of the device's clock: seconds of the host in a second of the device, less 1; 0 as long as it is not known.
    pub skew: f64,
    /// Uncertainty of the estimate, ns: the earliest message of each thirtieth of the window lies this far above the estimated
    /// line, as a root mean square. 0 as long as there is no estimated line.
    pub sigma_ns: i64,
    /// True if `host_ns` follows the estimate of the clock. If false, `host_ns` is the time of publication, less the latency.
    pub is_locked: bool,
    /// Number of times that host time went back so far.
    pub epoch: i64,
}

impl Stamp {
    /// Returns the host time of another sample of the same message, with device time `device_ns`. This stamp must be the one of the
    /// message's newest sample, with device time `newest_ns`.
    pub fn of_sample(&self, newest_ns: i64, device_ns: i64) -> i64 {
        let before = i128::from(newest_ns) - i128::from(device_ns);
        let stretched = before + (before as f64 * self.skew).round() as i128;
        device::clamp(i128::from(self.host_ns) - stretched)
    }

    /// Creates a stamp that does not follow an estimate. `stamp_ns` is the time of the device, or of the publication.
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

/// Event of a clock that the user must be told of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Notice {
    /// The estimate of the clock is used from this message on.
    Locked,
    /// The device's clock was set by `ns`, or the host's clock by as much in the other direction. The estimate begins anew.
    Reset {
        /// Step of the device's clock against the host's, ns; negative: back.
        ns: i64,
    },
    /// The device was silent for so long that the estimate begins anew: longer than ten windows.
    Silence {
        /// Length of the silence by the clock of the device, ns.
        ns: i64,
    },
    /// The stamps of the device do not advance, or not at the pace of a clock in ns.
    Pace {
        /// Pace of the stamps: nanoseconds of the device in a nanosecond of the host, near 1 for a clock.
        ratio: f64,
    },
    /// A clock of the host was set, so that stamps of that host clock map to other real times.
    HostClock {
        /// Step of the real-time clock against the clock that stamps the input, ns; negative: back.
        ns: i64,
    },
}

impl Notice {
    /// Name under which warnings of this kind are counted.
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

/// Clocks of the inputs of a configuration, which turn the stamps of each into host time.
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

    /// Returns the host time of a message of an input with stamp `stamp_ns`, and a [`Notice`] if the message shows an event of
    /// its clock. The message was published at `published_ns` by the real-time clock of the host; `None`: now.
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

    /// Returns the host time of a message of an input that has no stamp: its time of publication, `published_ns`, less the
    /// latency.
    pub fn push_unstamped(&mut self, input: usize, published_ns: i64) -> Stamp {
        match &mut self.clocks[input] {
            Clock::Device(clock) => clock.push_unstamped(published_ns),
            Clock::Host { clock, .. } => clock.push_unstamped(published_ns),
        }
    }
}

#[cfg(test)]
mod tests;
