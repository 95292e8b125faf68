//! The values of one modality at the targets of a window, on the CPU.

use super::{Masks, Target, Timeline};
use crate::device::Element;

/// Writes the window of one modality, `[T, dim]` row-major, newest target last, and its masks (with M = 1).
///
/// # Panics
/// If `out` has not T * dim elements.
pub fn align<E: Element>(aligner: &Timeline, target: &Target, modality: usize, out: &mut [E], masks: &mut Masks) {
    window(aligner, target, modality..modality + 1, out, masks);
}

/// Writes the window of a run of modalities side by side.
pub(crate) fn window<E: Element>(
    aligner: &Timeline,
    target: &Target,
    modalities: std::ops::Range<usize>,
    out: &mut [E],
    masks: &mut Masks,
) {
    let columns: usize = modalities.clone().map(|modality| aligner.dim(modality)).sum();
    assert_eq!(out.len(), aligner.window() * columns, "T rows of {columns} columns");
    masks.timestamps_ns.clear();
    masks.valid.clear();
    masks.age_ns.clear();
    masks.overflows.clear();
    masks.overflows.resize(modalities.len(), 0);
    for (row, mut out) in out.chunks_exact_mut(columns).enumerate() {
        let time = aligner.row_time(target, row);
        masks.timestamps_ns.push(time);
        for (i, modality) in modalities.clone().enumerate() {
            let (values, rest) = out.split_at_mut(aligner.dim(modality));
            let known = aligner.value_at(modality, time, values);
            masks.valid.push(i64::from(known.valid));
            masks.age_ns.push(known.age_ns);
            masks.overflows[i] += i64::from(known.overflows);
            out = rest;
        }
    }
}
