//! Picks the samples that give the value at a target. A sample beyond the limits of its mode is never picked.

use super::mode::{Interpolation, Limits};

/// Indices of the samples that give the value at a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pick {
    /// No valid value: no sample is within the limits.
    Invalid,
    /// The value of the sample with this index.
    Sample(usize),
    /// A value between two samples: for `linear`, `before + weight * (after - before)`. `cubic` and `pchip` also use the
    /// samples next to these two.
    Between {
        /// Index of the newest sample before the target.
        before: usize,
        /// Index of the oldest sample after the target.
        after: usize,
        /// `(target - before) / (after - before)` of their times, in 0..1.
        weight: f64,
    },
}

/// Picks the samples that give the value at `target`, ns, by the ascending `times` of all samples, ns.
///
/// `until` is the number of samples at or before the target, `times.partition_point(|&t| t <= target)`, which is looked up once for
/// all groups of channels. A sample exactly at the target is picked whatever the mode.
#[inline]
pub fn pick(times: &[i64], until: usize, target: i64, mode: Interpolation, limits: &Limits) -> Pick {
    let before = until.checked_sub(1);
    let age = before.map(|i| target.saturating_sub(times[i]));
    if let (Some(i), Some(0)) = (before, age) {
        return Pick::Sample(i);
    }
    let after = (until < times.len()).then_some(until);
    let within = |i: usize, distance: i64| {
        if distance <= limits.max_age {
            Pick::Sample(i)
        } else {
            Pick::Invalid
        }
    };
    match (mode, before.zip(age), after) {
        (Interpolation::Previous, Some((i, age)), _) | (Interpolation::Nearest, Some((i, age)), None) => within(i, age),
        (Interpolation::Nearest, None, Some(i)) => within(i, times[i].saturating_sub(target)),
        (Interpolation::Nearest, Some((i, age)), Some(j)) => {
            let ahead = times[j].saturating_sub(target);
            if age <= ahead { within(i, age) } else { within(j, ahead) }
        }
        (_, Some((i, age)), Some(j)) => {
            let gap = times[j].saturating_sub(times[i]);
            if gap <= limits.max_gap {
                Pick::Between {
                    before: i,
                    after: j,
                    weight: age as f64 / gap as f64,
                }
            } else {
                Pick::Invalid
            }
        }
        (_, Some((i, age)), None) if age <= limits.extrapolate => Pick::Sample(i),
        _ => Pick::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Interpolation::{Linear, Nearest, Previous};

    const TIMES: [i64; 3] = [100, 200, 400];

    fn at(target: i64, mode: Interpolation, limits: Limits) -> Pick {
        let until = TIMES.partition_point(|&t| t <= target);
        pick(&TIMES, until, target, mode, &limits)
    }

    fn limits(max_age: i64, max_gap: i64, extrapolate: i64) -> Limits {
        Limits {
            max_age,
            max_gap,
            extrapolate,
        }
    }

    #[test]
    fn a_sample_at_the_target_is_the_value_whatever_the_mode_and_the_limits() {
        for mode in Interpolation::ALL {
            assert_eq!(at(200, mode, limits(0, 0, 0)), Pick::Sample(1));
        }
    }

    #[test]
    fn previous_holds_a_sample_for_max_age() {
        assert_eq!(at(250, Previous, limits(50, 0, 0)), Pick::Sample(1));
        assert_eq!(at(251, Previous, limits(50, 0, 0)), Pick::Invalid);
        assert_eq!(at(99, Previous, Limits::default()), Pick::Invalid);
        assert_eq!(at(i64::MAX, Previous, Limits::default()), Pick::Sample(2));
    }

    #[test]
    fn nearest_takes_the_earlier_one_of_a_tie() {
        assert_eq!(at(300, Nearest, Limits::default()), Pick::Sample(1));
        assert_eq!(at(301, Nearest, Limits::default()), Pick::Sample(2));
        assert_eq!(at(301, Nearest, limits(98, 0, 0)), Pick::Invalid);
        assert_eq!(at(90, Nearest, limits(10, 0, 0)), Pick::Sample(0));
        assert_eq!(at(89, Nearest, limits(10, 0, 0)), Pick::Invalid);
        assert_eq!(at(410, Nearest, limits(10, 0, 0)), Pick::Sample(2));
    }

    #[test]
    fn linear_needs_both_neighbours_no_further_apart_than_max_gap() {
        let between = Pick::Between {
            before: 1,
            after: 2,
            weight: 0.25,
        };
        assert_eq!(at(250, Linear, Limits::default()), between);
        assert_eq!(at(250, Linear, limits(0, 200, 0)), between);
        assert_eq!(at(250, Linear, limits(0, 199, 500)), Pick::Invalid);
        assert_eq!(at(99, Linear, limits(0, 0, 500)), Pick::Invalid);
    }

    #[test]
    fn linear_holds_the_newest_sample_for_extrapolate() {
        assert_eq!(at(405, Linear, limits(0, 0, 5)), Pick::Sample(2));
        assert_eq!(at(406, Linear, limits(0, 0, 5)), Pick::Invalid);
    }
}
