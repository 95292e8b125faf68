//! Estimates the clock of a device from the times at which its messages are published, and converts its stamps to host time.
//!
//! Each message is late by a constant delay and a random jitter. The host times of messages in order always ascend, unless a
//! clock was set by more than `reset_ms`. If the estimate changes, host time follows at 500 ppm at most.

use super::hull::{Line, Window};
use super::spec::InputSpec;
use super::{Notice, Stamp};

/// Greatest rate at which host time follows a changed estimate: 500 us of correction per second.
pub(super) const SLEW: f64 = 500e-6;

/// Greatest skew with which an estimate is used, in seconds per second. Quartz clocks stay within 100e-6.
const MOST_SKEW: f64 = 2000e-6;

/// Least number of messages before an estimate is used.
const LEAST_MESSAGES: u32 = 8;

/// Time after the first message, ns, in which all messages may be late together. A sender may wait while the dataflow starts.
const START_NS: i128 = 2_000_000_000;

/// Time, ns, after which late messages mean that a clock was set: all of them were late by more than `reset_ms` for so long.
const SET_BACK_AFTER_NS: i128 = 5_000_000_000;

/// Longest silence of the device, in lengths of the window. After a longer silence the estimate starts over.
const LONGEST_SILENCE: i128 = 10;

/// Estimate of the clock of one device, which converts the device's stamps to host time.
///
/// A message with device time x and host time y has y = x + offset + skew x + delay + q. Its jitter q is never negative, so the
/// points (x, y - x) lie on or above the line of q = 0. Only their lower convex hull tells something of this line (Zhang, Liu
/// and Xia, INFOCOM 2002).
///
/// If q is exponential, the most likely line is the line under the hull with the smallest sum of distances to the points (Moon,
/// Skelly and Towsley, INFOCOM 1999). That line is biased upwards. The estimate is therefore the mean of all lines under the
/// hull, weighted by their likelihood.
///
/// Of all estimates that shift with the points, this mean has the least mean square error (Pitman, Biometrika 30, 1939).
pub struct DeviceClock {
    latency: i128,
    lock: i128,
    reset: i128,
    window: Window,
    window_ns: i128,
    /// First message since the estimate last started over: its device time x and its time of publication y, ns. `None`
    /// before it.
    origin: Option<(i128, i128)>,
    newest_x: i128,
    messages: u32,
    /// Host time of the first of a series of messages that are all late by more than `reset_ms`, ns; `None` if the newest
    /// message is not late.
    late_since: Option<i128>,
    line: Option<Line>,
    spread: f64,
    /// Offset applied at the newest message: host time minus device time, ns, relative to that of the `origin`. `None` until an
    /// estimate is used.
    applied: Option<f64>,
    /// Host time returned for the last message in order, ns. The next host time is later, unless a clock was set back.
    last: Option<i128>,
    epoch: i64,
}

impl DeviceClock {
    /// Creates the estimate for one input, before its first message.
    pub fn new(spec: &InputSpec) -> Self {
        Self {
            latency: i128::from(spec.latency_ns),
            lock: i128::from(spec.lock_ns),
            reset: i128::from(spec.reset_ns),
            window: Window::new(spec.window_ns),
            window_ns: i128::from(spec.window_ns),
            origin: None,
            newest_x: 0,
            messages: 0,
            late_since: None,
            line: None,
            spread: 0.0,
            applied: None,
            last: None,
            epoch: 0,
        }
    }

    /// Returns the host time of a message with stamp `device_ns`, published at host time `host_ns`. Also returns a
    /// [`Notice`] if this message locks the estimate, or shows that a clock was set, that its pace is wrong, or that the
    /// device was silent.
    pub fn push(&mut self, device_ns: i64, host_ns: i64) -> (Stamp, Option<Notice>) {
        let (x, y) = (i128::from(device_ns), i128::from(host_ns));
        let was_locked = self.applied.is_some();
        let mut notice = self.discontinuity(x, y);
        let is_reset = notice.is_some();
        if is_reset || self.was_held_up(x, y) {
            self.forget();
        }
        let is_first = self.messages == 0;
        let (x0, y0) = *self.origin.get_or_insert((x, y));
        let dx = if is_first { 0 } else { x - self.newest_x };
        if dx > 0 || is_first {
            self.newest_x = x;
            self.messages = self.messages.saturating_add(1);
            self.observe(x - x0, y - y0 - (x - x0));
            self.apply(x - x0, dx);
        }
        if self.applied.is_some() && !was_locked {
            notice = notice.or(Some(Notice::Locked));
        }
        let skew = self.skew();
        let host = match self.applied {
            // Messages out of order are on the same line.
            Some(applied) => {
                let behind = (x - self.newest_x) as f64;
                x + (y0 - x0) + (applied + skew * behind).round() as i128 - self.latency
            }
            None => y - self.latency,
        };
        let host = if dx > 0 || is_first {
            self.in_order(host, is_reset)
        } else {
            host
        };
        let stamp = Stamp {
            skew,
            sigma_ns: clamp(self.spread.round() as i128),
            is_locked: self.applied.is_some(),
            ..Stamp::new(device_ns, clamp(host), self.epoch)
        };
        (stamp, notice)
    }

    /// Returns the host time of a message without a stamp: its time of publication `host_ns`, less the latency. Such a message
    /// does not change the estimate.
    pub(crate) fn push_unstamped(&mut self, host_ns: i64) -> Stamp {
        let host = self.in_order(i128::from(host_ns) - self.latency, false);
        Stamp::new(host_ns, clamp(host), self.epoch)
    }

    /// Returns a notice if a message with device time `x`, published at `y`, shows that a clock was set or has a wrong pace.
    /// Also returns one if the device was silent for too long.
    fn discontinuity(&mut self, x: i128, y: i128) -> Option<Notice> {
        let (x0, y0) = self.origin?;
        let step = x - self.newest_x;
        if step > LONGEST_SILENCE * self.window_ns {
            return Some(Notice::Silence { ns: clamp(step) });
        }
        if let Some(pace) = self.wrong_pace(self.window_ns) {
            return Some(pace);
        }
        let late = self.late(x, y)?;
        if step < -self.reset {
            return Some(Notice::Reset { ns: clamp(step) });
        }
        // No message comes early: a clock was set, unless all messages before this one were late.
        if late < -self.reset {
            return (!self.is_starting(y)).then(|| Notice::Reset { ns: clamp(-late) });
        }
        if late <= self.reset {
            self.late_since = None;
            return None;
        }
        let since = *self.late_since.get_or_insert(y);
        (y - since >= SET_BACK_AFTER_NS).then(|| {
            let (device_time, host_time) = (x - x0, y - y0);
            // A clock that was set back goes on at the pace of the host's. A clock with less than half of that pace was not set.
            if let Some(pace) = self.wrong_pace(self.lock) {
                pace
            } else if device_time.abs() * 2 < host_time {
                Notice::Pace {
                    ratio: device_time as f64 / host_time as f64,
                }
            } else {
                Notice::Reset { ns: clamp(-late) }
            }
        })
    }

    /// Returns the delay of a message beyond the estimated line, ns; negative if the message is earlier than the line. Until an
    /// estimate is used, the delay is relative to the least delayed message. `None` before the first message.
    fn late(&self, x: i128, y: i128) -> Option<i128> {
        let (x0, y0) = self.origin?;
        let d = y - y0 - (x - x0);
        let usual = match (self.applied, &self.line) {
            (Some(_), Some(line)) => line.at(x - x0),
            _ => self.window.lowest()? as f64,
        };
        Some(d - usual.round() as i128)
    }

    /// True while all messages so far may have been held back: in the first 2 s, and for the first 8 messages. False once an
    /// estimate is used.
    fn is_starting(&self, y: i128) -> bool {
        let is_short = self.origin.is_none_or(|(_, y0)| y - y0 < START_NS);
        self.applied.is_none() && (is_short || self.messages < LEAST_MESSAGES)
    }

    /// True if this message comes so early that all messages before it must have been held back. The estimate then starts over.
    fn was_held_up(&self, x: i128, y: i128) -> bool {
        self.is_starting(y) && self.late(x, y).is_some_and(|late| late < -self.reset)
    }

    /// Returns a notice if the device's clock runs at a pace more than [`MOST_SKEW`] from the host's. Returns `None` until
    /// messages span `after` ns, and once an estimate is used.
    fn wrong_pace(&self, after: i128) -> Option<Notice> {
        let line = self.line.filter(|line| line.slope.abs() > MOST_SKEW)?;
        let is_told = self.applied.is_none() && self.window.spoken() >= after;
        is_told.then(|| Notice::Pace {
            ratio: 1.0 / (1.0 + line.slope),
        })
    }

    fn forget(&mut self) {
        self.window.clear();
        (self.origin, self.line, self.applied, self.late_since) = (None, None, None, None);
        (self.messages, self.spread) = (0, 0.0);
    }

    fn observe(&mut self, x: i128, d: i128) {
        let completes = self.window.push(x, d);
        self.line = self.window.line();
        if completes && let Some(line) = &self.line {
            self.spread = self.window.spread(line);
        }
    }

    /// Moves the applied offset towards the estimate at device time `x`; `dx` is the device time since the last message, ns.
    /// Begins to use the estimate once it spans `lock_s`, has enough messages and a plausible skew.
    fn apply(&mut self, x: i128, dx: i128) {
        let Some(line) = &self.line else { return };
        let is_known = self.window.spoken() >= self.lock
            && self.messages >= LEAST_MESSAGES
            && line.slope.abs() <= MOST_SKEW
            && self.late_since.is_none();
        let wanted = line.at(x);
        match &mut self.applied {
            Some(applied) => {
                let dx = dx as f64;
                *applied += line.slope.clamp(-MOST_SKEW, MOST_SKEW) * dx;
                *applied += (wanted - *applied).clamp(-SLEW * dx, SLEW * dx);
            }
            None if is_known => self.applied = Some(wanted),
            None => {}
        }
    }

    fn skew(&self) -> f64 {
        let line = self.line.filter(|_| self.applied.is_some());
        line.map_or(0.0, |line| line.slope.clamp(-MOST_SKEW, MOST_SKEW))
    }

    /// Returns `host`, or 1 ns after the last returned host time if `host` is not later. If a clock was set (`is_reset`) and
    /// the step back is more than `reset_ms`, returns `host` and increases the epoch.
    fn in_order(&mut self, host: i128, is_reset: bool) -> i128 {
        let host = match self.last {
            Some(last) if host <= last && is_reset && last - host > self.reset => {
                self.epoch += 1;
                host
            }
            Some(last) => host.max(last + 1),
            None => host,
        };
        self.last = Some(host);
        host
    }
}

/// Converts a time, ns, to int64, and saturates at the ends of its range.
pub(super) fn clamp(ns: i128) -> i64 {
    ns.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}
