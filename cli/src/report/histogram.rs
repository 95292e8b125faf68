//! Histogram of durations, on a logarithmic scale. Every duration is counted, also if it is too short or too long for a bar of its
//! own.

use serde::Serialize;

/// Number of bars per decade of durations, such as from 1 to 10 ms.
const DECADE: f64 = 10.0;

/// Lower end of the first bar, ns. Shorter durations are counted in `below`.
const LEAST_NS: i64 = 1000;

/// Number of bars, for durations from 1 us up to 10^14 us, or three years.
const BARS: usize = 140;

/// Counts of durations. Bar i counts durations from 10^(i / 10) us up to the start of the next bar; the last bar also counts longer
/// ones.
#[derive(Default, Serialize)]
pub struct Histogram {
    /// Number of durations below a microsecond, negative durations included.
    below: u64,
    bars: Vec<u64>,
}

impl Histogram {
    pub fn add(&mut self, ns: i64) {
        if ns < LEAST_NS {
            self.below += 1;
            return;
        }
        let bar = (ns as f64 / LEAST_NS as f64).log10() * DECADE;
        // The logarithm may be rounded to just below the start of the bar.
        let bar = ((bar + 1e-9) as usize).min(BARS - 1);
        if bar >= self.bars.len() {
            self.bars.resize(bar + 1, 0);
        }
        self.bars[bar] += 1;
    }

    /// Counts a duration, ns; `None` is ignored.
    pub fn add_some(&mut self, ns: Option<i64>) {
        ns.into_iter().for_each(|ns| self.add(ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_begins_at_its_time() {
        let mut histogram = Histogram::default();
        for ns in [-5, 0, 999, 1000, 1258, 1259, 9_999, 10_000, 1_000_000, i64::MAX] {
            histogram.add(ns);
        }
        let bars: Vec<(usize, u64)> = histogram
            .bars
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(histogram.below, 3);
        assert_eq!(bars, [(0, 2), (1, 1), (9, 1), (10, 1), (30, 1), (BARS - 1, 1)]);
    }
}
