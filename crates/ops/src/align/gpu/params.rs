//! Launch parameters of the kernels in `kernels/fuse.cu`: the same structs and constants, field for field.
//!
//! The test writes their layout as assertions in C++, which `make check-layout` compiles against the kernels.

use crate::channel_groups::GroupParams;
use bytemuck::{Pod, Zeroable};
use robocache_device::Dtype;
use robocache_device::gpu::staging::Staged;
use robocache_device::gpu::{DevicePtr, Params};
use robocache_kernels::Kernel;

/// Number of threads of a thread block, as in `kernels/fuse.cu`.
pub(super) const BLOCK: u32 = 256;
/// Number of targets that a thread block computes, as in `kernels/fuse.cu`.
pub(super) const RUN: u32 = 64;
/// Number of elements that a thread of the kernel [`TAKE`] converts at once, as in `kernels/fuse.cu`.
pub(super) const TAKEN_AT_ONCE: u32 = 4;
/// Value of `channel` in a [`Verdict`] if all channels are finite.
pub(super) const ALL_FINITE: u32 = 0xffff_ffff;
/// Value in the kernel's `targets` for a row before the first sample of the trigger's stream, as in `kernels/fuse.cu`.
pub(super) const NO_ROW: i64 = i64::MIN;
/// Value that the kernel writes to `valid` for a row whose values the published type can't hold.
pub(super) const OVERFLOW: u8 = 2;

/// Kernel that copies samples into their ring buffers.
pub(super) const APPEND: Kernel = robocache_kernels::FUSE.kernel("fuse_append");
/// Kernel that converts a sample to float32 and finds its first value that is not finite.
pub(super) const TAKE: Kernel = robocache_kernels::FUSE.kernel("fuse_take");
/// Kernel that inserts a row into a ring buffer.
pub(super) const INSERT: Kernel = robocache_kernels::FUSE.kernel("fuse_insert");

/// Returns the kernel that computes windows with values of type `out`. If `are_plain`, all groups have the mode `previous`,
/// `nearest` or `linear`, for which a smaller kernel is enough.
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

/// Number of modalities, and number of groups, for which the launch parameters have room, as in `kernels/fuse.cu`.
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
    /// Value that the kernel writes to `valid` if the published type can't hold a value: 0, or [`OVERFLOW`] to tell this from other
    /// reasons.
    pub overflow: u32,
    unused: u32,
    own_modalities: [ModalityParams<'a>; INLINE],
    own_groups: [GroupParams; INLINE],
}

// SAFETY: it is `FuseParams` of kernels/fuse.cu.
unsafe impl Params for FuseParams<'_> {}

impl<'a> FuseParams<'a> {
    /// True if the launch parameters have room for these numbers of modalities and groups.
    pub(super) fn holds(modalities: usize, groups: usize) -> bool {
        modalities <= INLINE && groups <= INLINE
    }

    /// Copies modalities and groups into the launch parameters. The caller has checked that there is [room](Self::holds).
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

    /// Sets the addresses of modalities and groups that are in device memory, because the launch parameters have no room for them.
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
    /// Number of elements to copy: `count * dim`, or `count` if only times are copied.
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
    /// Index of the first channel that is not finite; [`ALL_FINITE`] if there is none.
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
