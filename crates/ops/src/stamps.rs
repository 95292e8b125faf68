//! What the stamps of a stream say of it: rate, jitter, gaps, losses, order and delay. [`StampStatistics`].
//!
//! ```
//! use robocache_ops::stamps::StampStatistics;
//!
//! const MS: i64 = 1_000_000;
//! // Every 10 ms; two are missing, and two came the wrong way round.
//! let stamps: Vec<i64> = [0, 10, 20, 50, 60, 80, 70, 90].iter().map(|ms| ms * MS).collect();
//! let statistics = StampStatistics::of(&stamps, None);
//! assert_eq!(statistics.step.p50_ns, 10 * MS);
//! assert_eq!(statistics.longest_gap, Some((20 * MS, 30 * MS)));
//! assert_eq!((statistics.lost, statistics.out_of_order, statistics.furthest_back_ns), (2, 1, 10 * MS));
//! ```

/// How a quantity is distributed, ns. Zero where there is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// The least.
    pub min_ns: i64,
    /// The median: half of the values are no greater.
    pub p50_ns: i64,
    /// 99 of 100 are no greater.
    pub p99_ns: i64,
    /// The greatest.
    pub max_ns: i64,
}

/// Of the stamps of one stream, in the order of arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StampStatistics {
    /// Messages.
    pub messages: usize,
    /// The least and the greatest stamp.
    pub ends_ns: Option<(i64, i64)>,
    /// Messages a second from the first stamp to the last, without repeated stamps; 0 where that can't be said.
    pub rate_hz: f64,
    /// Distances of neighbouring stamps in the order of time, without repeated ones.
    pub step: Spread,
    /// How far those are from the median.
    pub jitter: Spread,
    /// The greatest distance of two neighbouring stamps: the stamp before it, and how long it is.
    pub longest_gap: Option<(i64, i64)>,
    /// How many messages of a stream of regular steps would have fitted into the gaps: the sum of `step / median`, rounded,
    /// less one.
    pub lost: u64,
    /// Messages whose stamp is before one that came earlier.
    pub out_of_order: usize,
    /// The most by which one is.
    pub furthest_back_ns: i64,
    /// Messages with a stamp that another one has, too.
    pub repeated: usize,
    /// From stamp to arrival, where that is known.
    pub delay: Option<Spread>,
}

impl StampStatistics {
    /// Of these stamps, in the order of arrival. `arrivals_ns` are when they came, where that is known, one for each.
    ///
    /// # Panics
    /// If there are arrivals, but not as many as stamps.
    pub fn of(stamps_ns: &[i64], arrivals_ns: Option<&[i64]>) -> Self {
        let mut statistics = Self {
            messages: stamps_ns.len(),
            ..Self::default()
        };
        let mut newest = i64::MIN;
        for &stamp in stamps_ns {
            if stamp < newest {
                statistics.out_of_order += 1;
                statistics.furthest_back_ns = statistics.furthest_back_ns.max(apart(stamp, newest));
            }
            newest = newest.max(stamp);
        }
        if let Some(arrivals) = arrivals_ns {
            assert_eq!(arrivals.len(), stamps_ns.len(), "an arrival for each stamp");
            let delays = stamps_ns
                .iter()
                .zip(arrivals)
                .map(|(&stamp, &arrival)| apart(stamp, arrival));
            statistics.delay = Some(Spread::of(delays.collect()));
        }
        let mut times = stamps_ns.to_vec();
        times.sort_unstable();
        times.dedup();
        statistics.repeated = stamps_ns.len() - times.len();
        statistics.ends_ns = times.first().copied().zip(times.last().copied());
        let gaps = times.windows(2).map(|pair| (pair[0], apart(pair[0], pair[1])));
        // Of gaps of the same length the first one.
        statistics.longest_gap = gaps.clone().rev().max_by_key(|(_, gap)| *gap);
        let steps: Vec<i64> = gaps.map(|(_, gap)| gap).collect();
        statistics.step = Spread::of(steps.clone());
        let median = statistics.step.p50_ns;
        if median > 0 {
            let whole = |step: i64| (i128::from(step) + i128::from(median) / 2) / i128::from(median);
            let lost: i128 = steps.iter().map(|&step| (whole(step) - 1).max(0)).sum();
            statistics.lost = u64::try_from(lost).unwrap_or(u64::MAX);
            let seconds = steps.iter().map(|&step| step as f64).sum::<f64>() / 1e9;
            statistics.rate_hz = steps.len() as f64 / seconds;
        }
        statistics.jitter = Spread::of(steps.iter().map(|step| (step - median).saturating_abs()).collect());
        statistics
    }
}

impl Spread {
    fn of(mut values: Vec<i64>) -> Self {
        values.sort_unstable();
        let Some(last) = values.len().checked_sub(1) else {
            return Self::default();
        };
        // The nearest rank.
        let rank = |percent: usize| values[(values.len() * percent).div_ceil(100).saturating_sub(1)];
        Self {
            min_ns: values[0],
            p50_ns: rank(50),
            p99_ns: rank(99),
            max_ns: values[last],
        }
    }
}

/// From one time to another, as far as int64 goes.
fn apart(from: i64, to: i64) -> i64 {
    to.saturating_sub(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn a_regular_stream_has_neither_jitter_nor_losses() {
        let stamps: Vec<i64> = (0..1001).map(|i| i * 2 * MS).collect();
        let arrivals: Vec<i64> = stamps.iter().map(|stamp| stamp + 5 * MS + stamp % 7).collect();
        let statistics = StampStatistics::of(&stamps, Some(&arrivals));
        assert_eq!((statistics.messages, statistics.ends_ns), (1001, Some((0, 2000 * MS))));
        assert!((statistics.rate_hz - 500.0).abs() < 1e-9);
        assert_eq!((statistics.step.p50_ns, statistics.step.max_ns), (2 * MS, 2 * MS));
        assert_eq!((statistics.jitter, statistics.lost), (Spread::default(), 0));
        let delay = statistics.delay.unwrap();
        assert_eq!(
            (delay.min_ns, delay.p50_ns, delay.max_ns),
            (5 * MS, 5 * MS + 3, 5 * MS + 6)
        );
        assert_eq!((statistics.out_of_order, statistics.repeated), (0, 0));
    }

    #[test]
    fn gaps_disorder_and_repetition_are_counted() {
        let stamps = [0, 10, 10, 22, 30, 100, 90, 40, 110].map(|ms| ms * MS);
        let statistics = StampStatistics::of(&stamps, None);
        assert_eq!((statistics.repeated, statistics.out_of_order), (1, 2));
        assert_eq!(statistics.furthest_back_ns, 60 * MS);
        assert_eq!(statistics.longest_gap, Some((40 * MS, 50 * MS)));
        assert_eq!(statistics.lost, 4);
        assert_eq!(statistics.jitter.max_ns, 40 * MS);
    }

    #[test]
    fn nothing_is_too_strange() {
        let none = StampStatistics::of(&[], None);
        assert_eq!(none, StampStatistics::default());
        let one = StampStatistics::of(&[5], Some(&[7]));
        assert_eq!((one.messages, one.rate_hz, one.delay.unwrap().max_ns), (1, 0.0, 2));
        let same = StampStatistics::of(&[5; 4], None);
        assert_eq!((same.repeated, same.rate_hz, same.lost), (3, 0.0, 0));
        let ends = [i64::MAX, i64::MIN, 0, i64::MIN, i64::MAX];
        let statistics = StampStatistics::of(&ends, Some(&[i64::MIN; 5]));
        assert_eq!((statistics.repeated, statistics.step.max_ns), (2, i64::MAX));
        assert!(statistics.rate_hz > 0.0 && statistics.delay.is_some());
    }
}
