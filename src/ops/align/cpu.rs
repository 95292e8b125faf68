//! The values of a window on the CPU: the specification that other backends equal to the bit.

use super::{Masks, Target, Timeline};
use crate::device::Element;
use crate::time::blend::Written;
use std::ops::Range;

/// Writes the window of a run of modalities side by side, `[T, D]` row-major, newest target last, and its masks.
///
/// No value is valid of a modality whose samples are on a device: see [`Timeline::rows_are_elsewhere`].
///
/// # Panics
/// If `out` has not T * D elements.
pub fn window<E: Element>(
    timeline: &Timeline,
    target: &Target,
    modalities: Range<usize>,
    out: &mut [E],
    masks: &mut Masks,
) {
    let columns: usize = modalities.clone().map(|modality| timeline.dim(modality)).sum();
    assert_eq!(out.len(), timeline.window() * columns, "T rows of {columns} columns");
    masks.timestamps_ns.clear();
    // Rows that are not there come before those that are.
    let mut absent = 0;
    for row in 0..timeline.window() {
        let row = timeline.row(target, row);
        masks.timestamps_ns.push(row.time_ns);
        absent += usize::from(!row.is_there);
    }
    let count = modalities.len();
    for mask in [&mut masks.valid, &mut masks.age_ns] {
        mask.clear();
        mask.resize(timeline.window() * count, 0);
    }
    masks.overflows.clear();
    masks.overflows.resize(count, 0);
    let mut from = 0;
    for (i, modality) in modalities.enumerate() {
        let channels = from..from + timeline.dim(modality);
        from = channels.end;
        let times = timeline.history(modality).times();
        let mut cursor = Cursor::default();
        for (row, (out, &time)) in out.chunks_exact_mut(columns).zip(&masks.timestamps_ns).enumerate() {
            let out = &mut out[channels.clone()];
            let known = if row < absent {
                nothing(timeline, out)
            } else {
                value_at(timeline, modality, time, cursor.until(times, time), out)
            };
            masks.valid[row * count + i] = i64::from(known.valid);
            masks.age_ns[row * count + i] = known.age_ns;
            masks.overflows[i] += i64::from(known.overflows);
        }
    }
}

/// Finds brackets at ascending targets. Samples come at a nearly constant rate, so that the next one is near to where the
/// last step, taken again, leads.
#[derive(Default)]
struct Cursor {
    until: usize,
    step: usize,
}

impl Cursor {
    /// How many samples are at or before `time`.
    fn until(&mut self, times: &[i64], time: i64) -> usize {
        let guess = (self.until + self.step).min(times.len());
        let until = walk(times, time, guess).unwrap_or_else(|| times.partition_point(|&t| t <= time));
        self.step = until.saturating_sub(self.until);
        self.until = until;
        until
    }
}

/// How many of the ascending `times` are at or before `time`, if that is next to the guess.
fn walk(times: &[i64], time: i64, guess: usize) -> Option<usize> {
    const STEPS: usize = 4;
    let mut until = guess;
    for _ in 0..STEPS {
        if until < times.len() && times[until] <= time {
            until += 1;
        } else if until > 0 && times[until - 1] > time {
            until -= 1;
        } else {
            return Some(until);
        }
    }
    None
}

/// What is known of the value of a modality at a target.
struct Known {
    /// Whether all groups are valid.
    valid: bool,
    /// Whether the published type can't hold some group.
    overflows: bool,
    /// The target minus the newest sample at or before it, -1 where there is none, ns.
    age_ns: i64,
}

/// Writes what stands in a row that is not there.
fn nothing<E: Element>(timeline: &Timeline, out: &mut [E]) -> Known {
    out.fill(E::from_f32(timeline.fill_value()));
    Known {
        valid: false,
        overflows: false,
        age_ns: -1,
    }
}

/// Writes the value of a modality at `time`, `dim` elements. `until` of its samples are at or before that.
fn value_at<E: Element>(timeline: &Timeline, modality: usize, time: i64, until: usize, out: &mut [E]) -> Known {
    let fill = E::from_f32(timeline.fill_value());
    let history = timeline.history(modality);
    let times = history.times();
    let age_ns = until.checked_sub(1).map_or(-1, |newest| time - times[newest]);
    let (mut valid, mut overflows) = (true, false);
    if history.rows_are_elsewhere() {
        out.fill(fill);
        return Known {
            valid: false,
            overflows,
            age_ns,
        };
    }
    for group in timeline.groups(modality) {
        let channels = group.from..group.to;
        let sample = |i: usize| &history.row(i)[channels.clone()];
        let out = &mut out[channels.clone()];
        let written = group.rule.value(times, until, time, sample, false, fill, out);
        valid &= written == Written::Value;
        overflows |= written == Written::Overflow;
    }
    Known {
        valid,
        overflows,
        age_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_cursor_finds_what_a_search_finds_at_any_rate_and_in_any_order(
            gaps in prop::collection::vec(prop_oneof![0..3i64, 9..12i64, 0..1000i64], 0..60),
            targets in prop::collection::vec(-5..3000i64, 0..60),
        ) {
            let times: Vec<i64> = gaps
                .iter()
                .scan(0, |time, gap| {
                    *time += gap;
                    Some(*time)
                })
                .collect();
            let mut cursor = Cursor::default();
            for target in targets {
                let expected = times.partition_point(|&t| t <= target);
                prop_assert_eq!(cursor.until(&times, target), expected);
            }
        }
    }
}
