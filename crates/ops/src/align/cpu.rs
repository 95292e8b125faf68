//! CPU computation of the values and masks of an observation. It is the specification: other backends give the same bits.

use super::{Masks, Target, Timeline};
use robocache_device::Element;
use robocache_time::blend::{Rows, Written};
use std::ops::Range;

/// Writes the values of a range of modalities, side by side, to `out`: `[T, D]` row-major, the newest row last. Writes their
/// validity and ages to `masks`.
///
/// Where only a device holds the samples of a modality, its columns get the fill value and are not
/// valid: see [`Timeline::are_rows_on_device`].
///
/// # Panics
/// If `out` does not have T * D elements.
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
    // Absent rows come before all others.
    let mut absent = 0;
    for row in 0..timeline.window() {
        let row = timeline.row(target, row);
        masks.timestamps_ns.push(row.time_ns);
        absent += usize::from(!row.is_there);
    }
    let count = modalities.len();
    for (mask, unknown) in [(&mut masks.valid, 0), (&mut masks.age_ns, -1)] {
        mask.clear();
        mask.resize(timeline.window() * count, unknown);
    }
    masks.overflows.clear();
    masks.overflows.resize(count, 0);
    let fill = E::from_f32(timeline.fill_value());
    let mut from = 0;
    for (i, modality) in modalities.enumerate() {
        let channels = from..from + timeline.dim(modality);
        from = channels.end;
        let history = timeline.history(modality);
        let (times, targets) = (history.times(), &masks.timestamps_ns[absent..]);
        let entry = |row: usize| (absent + row) * count + i;
        let mut cursor = Cursor::default();
        let mut until = |row: usize| {
            let until = cursor.until(times, targets[row]);
            masks.age_ns[entry(row)] = until.checked_sub(1).map_or(-1, |newest| targets[row] - times[newest]);
            until
        };
        let filled_rows = if history.are_rows_on_device() {
            timeline.window()
        } else {
            absent
        };
        for out in out.chunks_exact_mut(columns).take(filled_rows) {
            out[channels.clone()].fill(fill);
        }
        if history.are_rows_on_device() {
            (0..targets.len()).for_each(|row| _ = until(row));
            continue;
        }
        let rows = Rows {
            targets,
            out: &mut out[absent * columns..],
            columns,
            channels,
            fill,
        };
        let groups = timeline
            .groups(modality)
            .iter()
            .map(|group| (group.from..group.to, group.rule));
        let sample = |i: usize| history.row(i);
        rows.write(times, groups, until, sample, |row, written| {
            masks.valid[entry(row)] = i64::from(written == Written::Value);
            masks.overflows[i] += i64::from(written == Written::Overflow);
        });
    }
}

/// Search for the number of samples at or before each of several ascending target times. The rate of a sensor is nearly
/// constant, so each search starts from a guess: the last result plus its distance from the result before.
#[derive(Default)]
struct Cursor {
    until: usize,
    step: usize,
}

impl Cursor {
    /// Returns the number of samples at or before `time`.
    #[inline]
    fn until(&mut self, times: &[i64], time: i64) -> usize {
        let guess = (self.until + self.step).min(times.len());
        let until = walk(times, time, guess).unwrap_or_else(|| times.partition_point(|&t| t <= time));
        self.step = until.saturating_sub(self.until);
        self.until = until;
        until
    }
}

/// Returns the number of the ascending `times` that are at or before `time`; `None` if it is more than four steps
/// away from `guess`.
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
