//! Percentiles of durations. A percentile is one of the durations, never a value between two.

use robocache::time::ns_to_ms;
use serde::Serialize;

/// Median, 99th percentile and maximum of durations, ms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

impl Spread {
    /// Computes the statistics of durations in ns, which are reordered; `None` if there are none. A percentile is the smallest
    /// value that the given share of the values does not exceed.
    pub fn of_ns(values: &mut [i64]) -> Option<Self> {
        let max = values.iter().max().copied()?;
        let mut at = |percent: usize| {
            let rank = (values.len() * percent).div_ceil(100).max(1);
            *values.select_nth_unstable(rank - 1).1
        };
        let ms = ns_to_ms;
        Some(Self {
            p50: ms(at(50)),
            p99: ms(at(99)),
            max: ms(max),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_came() {
        let mut values: Vec<i64> = (1..=200).rev().map(|ms| ms * 1_000_000).collect();
        let spread = Spread {
            p50: 100.0,
            p99: 198.0,
            max: 200.0,
        };
        assert_eq!(Spread::of_ns(&mut values), Some(spread));
        let one = Spread {
            p50: 3.0,
            p99: 3.0,
            max: 3.0,
        };
        assert_eq!(Spread::of_ns(&mut [3_000_000]), Some(one));
        assert_eq!(Spread::of_ns(&mut []), None);
    }
}
