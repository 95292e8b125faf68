//! The fused window on the CPU.

use crate::device::Element;
use crate::ops::align::{Masks, Target, Timeline, cpu};

/// Writes the window of all modalities, `[T, D]` row-major, newest target last, modality after modality in a row, and
/// its masks `[T, M]`.
///
/// # Panics
/// If `out` has not T * D elements.
pub fn fuse<E: Element>(aligner: &Timeline, target: &Target, out: &mut [E], masks: &mut Masks) {
    cpu::window(aligner, target, 0..aligner.modalities(), out, masks);
}
