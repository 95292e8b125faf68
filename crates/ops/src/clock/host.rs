//! Converts stamps of the host's other clocks, such as `CLOCK_MONOTONIC`, to the host's real-time clock. The difference between
//! the two clocks is measured and added.
//!
//! If this difference changes a little, host time follows at 500 ppm, so that it does not step. A change above `reset_ms` is
//! applied at once.

use super::device::{SLEW, clamp};
use super::spec::InputSpec;
use super::{ClockKind, Notice, Stamp};

/// Largest change between two readings of a clock difference, ns, that is ignored as noise of the reading.
const SAME_READING_NS: i128 = 10_000;

/// Converts the stamps of one input from a clock of this host to the host's real-time clock.
pub struct HostClock {
    latency: i128,
    reset: i128,
    /// Difference that is added to stamps, ns: the real-time clock minus the clock that stamps the input. `None` before the
    /// first stamp.
    applied: Option<i128>,
    newest: i64,
    epoch: i64,
}

impl HostClock {
    /// Creates the converter for one input, before its first stamp.
    pub fn new(spec: &InputSpec) -> Self {
        Self {
            latency: i128::from(spec.latency_ns),
            reset: i128::from(spec.reset_ns),
            applied: None,
            newest: i64::MIN,
            epoch: 0,
        }
    }

    /// Returns the real time of a message with stamp `stamp_ns`. `difference_ns` is the newest reading of the real-time clock
    /// minus the stamping clock. Also returns a notice if this difference changed by more than `reset_ms`.
    pub fn push(&mut self, stamp_ns: i64, difference_ns: i64) -> (Stamp, Option<Notice>) {
        let difference = i128::from(difference_ns);
        let applied = self.applied.get_or_insert(difference);
        let by = difference - *applied;
        let passed = i128::from(stamp_ns) - i128::from(self.newest);
        let mut notice = None;
        if by.abs() > self.reset {
            *applied = difference;
            self.epoch += i64::from(by < 0);
            notice = Some(Notice::HostClock { ns: clamp(by) });
        } else if by.abs() > SAME_READING_NS {
            let most = (passed.max(0) as f64 * SLEW) as i128;
            *applied += by.clamp(-most, most);
        }
        // A stamp far back counts, too, so that one stamp far ahead does not stop the slew.
        if passed > 0 || passed < -self.reset {
            self.newest = stamp_ns;
        }
        let host_ns = clamp(i128::from(stamp_ns) + *applied - self.latency);
        let stamp = Stamp {
            is_locked: true,
            ..Stamp::new(stamp_ns, host_ns, self.epoch)
        };
        (stamp, notice)
    }

    /// Returns the real time of a message without a stamp: its time of publication, `published_ns`, less the latency.
    pub fn push_unstamped(&self, published_ns: i64) -> Stamp {
        let host = i128::from(published_ns) - self.latency;
        Stamp::new(published_ns, clamp(host), self.epoch)
    }
}

/// Time of the host's real-time clock, ns since 1970.
pub fn now_ns() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

/// Measures the host's real-time clock minus another clock of the host, ns. `None` if the system lacks that clock, or if
/// `clock` is that of a device.
pub fn difference_ns(clock: ClockKind) -> Option<i64> {
    let other = match clock {
        ClockKind::Realtime => return Some(0),
        ClockKind::Device => return None,
        ClockKind::Monotonic => libc::CLOCK_MONOTONIC,
        ClockKind::Boottime => libc::CLOCK_BOOTTIME,
    };
    let read = |clock| {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a timespec that lives through the call.
        let result = unsafe { libc::clock_gettime(clock, &mut time) };
        #[allow(clippy::unnecessary_cast, reason = "both are of 32 bits on some systems")]
        (result == 0).then(|| time.tv_sec as i64 * 1_000_000_000 + time.tv_nsec as i64)
    };
    // Of five readings, takes the one that was interrupted least.
    let readings = (0..5).filter_map(|_| {
        let (before, real, after) = (read(other)?, read(libc::CLOCK_REALTIME)?, read(other)?);
        Some((after - before, real - (before + (after - before) / 2)))
    });
    readings.min().map(|(_, difference)| difference)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{ClockConfig, ClockInput};

    const MS: i64 = 1_000_000;

    fn clock() -> HostClock {
        let input = ClockInput {
            input: "camera".into(),
            clock: ClockKind::Monotonic,
            latency_ms: 5.0,
            ..ClockInput::default()
        };
        HostClock::new(&ClockConfig { inputs: vec![input] }.checked().unwrap()[0])
    }

    #[test]
    fn the_difference_is_added_and_the_latency_subtracted() {
        let mut clock = clock();
        let (stamp, notice) = clock.push(100 * MS, 1000 * MS);
        assert_eq!((stamp.host_ns, stamp.offset_ns, notice), (1095 * MS, 995 * MS, None));
        assert!(stamp.is_locked && stamp.epoch == 0);
        // Readings differ by the time that they take.
        assert_eq!(clock.push(200 * MS, 1000 * MS + 9000).0.host_ns, 1195 * MS);
    }

    #[test]
    fn a_small_step_is_followed_slowly_and_a_large_one_at_once() {
        let mut clock = clock();
        clock.push(0, 1000 * MS);
        // 20 ms back: 500 ppm of a second is half a millisecond.
        let (stamp, notice) = clock.push(1000 * MS, 980 * MS);
        assert_eq!((stamp.host_ns, notice), (1_994_500_000, None));
        let last = (1..60)
            .map(|s| clock.push((1 + s) * 1000 * MS, 980 * MS).0.host_ns)
            .last();
        assert!((last.unwrap() - (60_975 * MS)).abs() <= 10_000);
        let (stamp, notice) = clock.push(61_000 * MS, 500 * MS);
        assert_eq!((stamp.host_ns, stamp.epoch), (61_495 * MS, 1));
        assert!(matches!(notice, Some(Notice::HostClock { ns }) if (ns + 480 * MS).abs() <= 10_000));
        let (stamp, _) = clock.push(61_001 * MS, 5000 * MS);
        assert_eq!((stamp.host_ns, stamp.epoch), (65_996 * MS, 1));
    }

    #[test]
    fn one_stamp_far_ahead_does_not_stop_the_slew() {
        let mut clock = clock();
        clock.push(0, 1000 * MS);
        clock.push(i64::MAX, 1000 * MS);
        clock.push(1000 * MS, 1020 * MS);
        assert_eq!(clock.push(3000 * MS, 1020 * MS).0.host_ns, 3996 * MS);
    }

    #[test]
    fn stamps_at_the_ends_of_int64_stay_there() {
        for stamp in [i64::MIN, i64::MAX] {
            for difference in [i64::MIN, 0, i64::MAX] {
                let mut clock = clock();
                clock.push(stamp, difference);
                clock.push(-stamp.saturating_add(1), difference);
            }
        }
    }

    #[test]
    fn the_clocks_of_this_host_are_read() {
        assert_eq!(difference_ns(ClockKind::Realtime), Some(0));
        assert_eq!(difference_ns(ClockKind::Device), None);
        let text = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = text.split(' ').next().unwrap().parse().unwrap();
        let boottime = now_ns() - difference_ns(ClockKind::Boottime).unwrap();
        assert!((boottime as f64 * 1e-9 - uptime).abs() < 1.0, "{boottime} {uptime}");
        let monotonic = now_ns() - difference_ns(ClockKind::Monotonic).unwrap();
        assert!(monotonic <= boottime + 10 * MS && monotonic > 0);
    }
}
