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
    masks.valid.clear();
    masks.age_ns.clear();
    masks.overflows.clear();
    masks.overflows.resize(modalities.len(), 0);
    for (row, mut out) in out.chunks_exact_mut(columns).enumerate() {
        let row = timeline.row(target, row);
        masks.timestamps_ns.push(row.time_ns);
        for (i, modality) in modalities.clone().enumerate() {
            let (values, rest) = out.split_at_mut(timeline.dim(modality));
            let known = match row.is_there {
                true => value_at(timeline, modality, row.time_ns, values),
                false => nothing(timeline, values),
            };
            masks.valid.push(i64::from(known.valid));
            masks.age_ns.push(known.age_ns);
            masks.overflows[i] += i64::from(known.overflows);
            out = rest;
        }
    }
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

/// Writes the value of a modality at `time`, `dim` elements.
fn value_at<E: Element>(timeline: &Timeline, modality: usize, time: i64, out: &mut [E]) -> Known {
    let fill = E::from_f32(timeline.fill_value());
    let history = timeline.history(modality);
    let times = history.times();
    let until = times.partition_point(|&t| t <= time);
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
