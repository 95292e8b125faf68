//! Statistics over the last 5 to 10 seconds.
//!
//! Each statistic is kept in two accumulators that start 5 s apart, and the older one is dropped every 5 s. So old values
//! disappear without a list of samples. Recording allocates nothing.

use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

/// Time after which the older of a statistic's two accumulators is dropped, and a new one starts. Statistics cover one to two
/// such periods.
const TURN: Duration = Duration::from_secs(5);

/// Upper bound of a histogram, ns; a longer time counts as this one. It is the greatest difference of two valid stamps.
const LONGEST_NS: u64 = 1 << 62;

/// Two accumulators of the same statistic, started one [`TURN`] apart. After each `TURN` the older one is dropped, and a new
/// one starts. Readers get the older one.
pub(in crate::app) struct Recent<T> {
    older: T,
    newer: T,
    older_since: Instant,
    newer_since: Instant,
}

/// Accumulator that can be reset without an allocation.
pub(in crate::app) trait Figure: Default {
    fn clear(&mut self);
}

impl<T: Figure> Recent<T> {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            older: T::default(),
            newer: T::default(),
            older_since: now,
            newer_since: now,
        }
    }

    pub(crate) fn record(&mut self, mut record: impl FnMut(&mut T)) {
        record(&mut self.older);
        record(&mut self.newer);
    }

    /// Drops the older accumulator and starts a new one, if the newer is at least one [`TURN`] old.
    pub(crate) fn turn(&mut self, now: Instant) {
        if now.saturating_duration_since(self.newer_since) >= TURN {
            std::mem::swap(&mut self.older, &mut self.newer);
            self.newer.clear();
            (self.older_since, self.newer_since) = (self.newer_since, now);
        }
    }

    /// The older accumulator, which covers the last one to two periods.
    pub(crate) fn get(&self) -> &T {
        &self.older
    }

    /// Time at which the accumulator that [`get`](Self::get) returns was started.
    pub(crate) fn since(&self) -> Instant {
        self.older_since
    }
}

/// Histogram of times of 0 ns and more, accurate to 1 %. Recording a time allocates nothing.
pub(super) struct Times {
    /// Counts of the recorded times; `None` only if the crate `hdrhistogram` refuses the histogram's bounds.
    histogram: Option<Histogram<u32>>,
    max_ns: i64,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            histogram: Histogram::new_with_bounds(1, LONGEST_NS, 2).ok(),
            max_ns: 0,
        }
    }
}

impl Figure for Times {
    fn clear(&mut self) {
        self.histogram.iter_mut().for_each(Histogram::reset);
        self.max_ns = 0;
    }
}

impl Times {
    /// Records a time, ns. A negative time counts as 0.
    pub(super) fn record(&mut self, ns: i64) {
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(u64::try_from(ns).unwrap_or(0));
        }
        self.max_ns = self.max_ns.max(ns);
    }

    /// Quantile `share` (0 to 1) of the recorded times, ns: 0.5 gives the median. `None` if no time was recorded.
    pub(super) fn quantile(&self, share: f64) -> Option<i64> {
        let histogram = self.histogram.as_ref().filter(|histogram| !histogram.is_empty())?;
        let value = histogram.median_equivalent(histogram.value_at_quantile(share));
        Some(i64::try_from(value).unwrap_or(i64::MAX).min(self.max_ns))
    }

    /// Longest recorded time, ns; `None` if no time was recorded.
    pub(super) fn max(&self) -> Option<i64> {
        self.quantile(1.0).map(|_| self.max_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_hundredth() {
        let mut times = Times::default();
        assert_eq!((times.quantile(0.5), times.max()), (None, None));
        times.record(-5);
        assert_eq!((times.quantile(0.5), times.max()), (Some(0), Some(0)));
        times.clear();
        for ms in 1..=100 {
            times.record(ms * 1_000_000);
        }
        for (share, ms) in [(0.5, 50.0), (0.99, 99.0)] {
            let found = times.quantile(share).unwrap() as f64 * 1e-6;
            assert!((found / ms - 1.0).abs() < 0.01, "{found} instead of {ms}");
        }
        assert_eq!(times.max(), Some(100_000_000));
        // A time of two days is not cut off.
        times.record(172_800_000_000_000);
        let found = times.quantile(1.0).unwrap() as f64 / 172_800_000_000_000.0;
        assert!((found - 1.0).abs() < 0.01, "{found}");
        times.record(i64::MAX);
        assert_eq!(times.max(), Some(i64::MAX));
        assert!(times.quantile(1.0).unwrap() >= 1 << 61);
    }

    #[test]
    fn what_is_older_than_two_turns_is_forgotten() {
        let start = Instant::now();
        let mut recent = Recent::<Times>::new(start);
        recent.record(|times| times.record(1_000_000_000));
        recent.turn(start + TURN);
        assert!(recent.get().max().is_some());
        assert_eq!(recent.since(), start);
        recent.record(|times| times.record(1_000_000));
        recent.turn(start + 2 * TURN);
        assert_eq!(recent.get().max(), Some(1_000_000));
        assert_eq!(recent.since(), start + TURN);
    }
}
