//! The structs of `kernels/fuse.cu`, field for field.

use crate::channel_groups::GroupParams;
use bytemuck::{Pod, Zeroable};
use robocache_device::Dtype;
use robocache_device::gpu::staging::Staged;
use robocache_device::gpu::{DevicePtr, Params};
use robocache_kernels::Kernel;

/// Threads of a block, as in `kernels/fuse.cu`.
pub(super) const BLOCK: u32 = 256;
/// Targets of a block, as in `kernels/fuse.cu`.
pub(super) const RUN: u32 = 64;
/// Elements that a thread of [`TAKE`] has in flight, as in `kernels/fuse.cu`.
pub(super) const TAKEN_AT_ONCE: u32 = 4;
/// Channel of a [`Verdict`] if all channels are finite.
pub(super) const ALL_FINITE: u32 = 0xffff_ffff;
/// Time of an absent row, as in `kernels/fuse.cu`.
pub(super) const NO_ROW: i64 = i64::MIN;
/// Value of `valid` if the published type can't hold the value.
pub(super) const OVERFLOW: u8 = 2;

/// Kernel that copies runs of samples into their rings.
pub(super) const APPEND: Kernel = robocache_kernels::FUSE.kernel("fuse_append");
/// Kernel that converts a sample to float32 and looks for values that are not finite.
pub(super) const TAKE: Kernel = robocache_kernels::FUSE.kernel("fuse_take");
/// Kernel that inserts a row into a ring.
pub(super) const INSERT: Kernel = robocache_kernels::FUSE.kernel("fuse_insert");

/// Returns the kernel that writes windows of type `out`: a smaller one if all groups are of plain modes.
pub(super) fn kernel(out: Dtype, are_plain: bool) -> Kernel {
    robocache_kernels::FUSE.kernel(match (out, are_plain) {
        (Dtype::Float16, true) => "fuse_f16",
        (Dtype::BFloat16, true) => "fuse_bf16",
        (_, true) => "fuse_f32",
        (Dtype::Float16, false) => "fuse_modes_f16",
        (Dtype::BFloat16, false) => "fuse_modes_bf16",
        (_, false) => "fuse_modes_f32",
    })
}

/// Most modalities, and most groups, in the launch parameters, as in `kernels/fuse.cu`.
const INLINE: usize = 8;

#[repr(C)]
#[derive(Clone, Copy, Zeroable)]
pub(super) struct ModalityParams<'a> {
    pub times: DevicePtr<'a>,
    pub values: DevicePtr<'a>,
    pub out: DevicePtr<'a>,
    pub pitch: i64,
    pub head: u32,
    pub count: u32,
    pub mask: u32,
    pub dim: u32,
    pub dtype: u32,
    pub columns: u32,
    pub first_group: u32,
    pub groups: u32,
    pub rotations: u32,
    pub has_curves: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Zeroable)]
pub(super) struct FuseParams<'a> {
    modalities: DevicePtr<'a>,
    groups: DevicePtr<'a>,
    pub targets: DevicePtr<'a>,
    pub age: DevicePtr<'a>,
    pub valid: DevicePtr<'a>,
    pub target_pitch: i64,
    pub rows: u32,
    pub fill: f32,
    /// Value of `valid` for a value that the type can't hold: 0, or another number that tells this from other reasons.
    pub overflow: u32,
    unused: u32,
    own_modalities: [ModalityParams<'a>; INLINE],
    own_groups: [GroupParams; INLINE],
}

// SAFETY: it is `FuseParams` of kernels/fuse.cu.
unsafe impl Params for FuseParams<'_> {}

impl<'a> FuseParams<'a> {
    /// True if these numbers of modalities and groups fit into the launch parameters.
    pub(super) fn holds(modalities: usize, groups: usize) -> bool {
        modalities <= INLINE && groups <= INLINE
    }

    /// Puts modalities and groups into the launch parameters, if those [hold](Self::holds) them.
    pub(super) fn embed(
        &mut self,
        modalities: impl Iterator<Item = ModalityParams<'a>>,
        groups: impl Iterator<Item = GroupParams>,
    ) {
        self.own_modalities
            .iter_mut()
            .zip(modalities)
            .for_each(|(to, own)| *to = own);
        self.own_groups.iter_mut().zip(groups).for_each(|(to, own)| *to = own);
    }

    /// Points to modalities and groups in device memory.
    pub(super) fn point_to(&mut self, modalities: DevicePtr<'a>, groups: DevicePtr<'a>) {
        (self.modalities, self.groups) = (modalities, groups);
    }
}

// SAFETY: the fields leave no gap, which `make check-layout` checks.
unsafe impl Staged for ModalityParams<'_> {}

#[repr(C)]
#[derive(Clone, Copy, Zeroable)]
pub(super) struct Fresh<'a> {
    pub times: DevicePtr<'a>,
    pub values: DevicePtr<'a>,
    pub ring_times: DevicePtr<'a>,
    pub ring_values: DevicePtr<'a>,
    pub first: u32,
    pub count: u32,
    pub mask: u32,
    pub dim: u32,
}

// SAFETY: the fields leave no gap, which `make check-layout` checks.
unsafe impl Staged for Fresh<'_> {}

impl Fresh<'_> {
    /// The number of elements to copy, at least one for each sample.
    pub(super) fn elements(&self) -> u32 {
        self.count.saturating_mul(self.dim.max(1))
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct AppendParams<'a> {
    pub fresh: DevicePtr<'a>,
}

// SAFETY: it is `FuseAppendParams` of kernels/fuse.cu.
unsafe impl Params for AppendParams<'_> {}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct Verdict {
    /// The first channel that is not finite; [`ALL_FINITE`] if there is none.
    pub channel: u32,
    pub value: f32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct TakeParams<'a> {
    pub sample: DevicePtr<'a>,
    pub row: DevicePtr<'a>,
    pub verdicts: DevicePtr<'a>,
    pub dim: u32,
    pub dtype: u32,
}

// SAFETY: it is `FuseTakeParams` of kernels/fuse.cu.
unsafe impl Params for TakeParams<'_> {}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct InsertParams<'a> {
    pub row: DevicePtr<'a>,
    pub ring_values: DevicePtr<'a>,
    pub first: u32,
    pub moved: u32,
    pub mask: u32,
    pub dim: u32,
}

// SAFETY: it is `FuseInsertParams` of kernels/fuse.cu.
unsafe impl Params for InsertParams<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Header, shared_constants, shared_structs};

    #[test]
    fn the_layout_is_written_for_the_kernels() {
        let mut header = Header::new("fuse");
        crate::channel_groups::list_shared(&mut header);
        shared_structs! { header:
            ModalityParams = "Modality" {
                times, values, out, pitch, head, count, mask, dim, dtype, columns, first_group, groups, rotations,
                has_curves,
            }
            FuseParams = "FuseParams" {
                modalities, groups, targets, age, valid, target_pitch, rows, fill, overflow, unused, own_modalities,
                own_groups,
            }
            Fresh = "Fresh" { times, values, ring_times, ring_values, first, count, mask, dim }
            AppendParams = "FuseAppendParams" { fresh }
            Verdict = "Verdict" { channel, value }
            TakeParams = "FuseTakeParams" { sample, row, verdicts, dim, dtype }
            InsertParams = "FuseInsertParams" { row, ring_values, first, moved, mask, dim }
        }
        shared_constants! { header:
            BLOCK, RUN, TAKEN_AT_ONCE, ALL_FINITE, INLINE = "INLINE_MODALITIES", INLINE = "INLINE_GROUPS",
            OVERFLOW = "OVERFLOWED",
        }
        header.write();
    }
}
