//! The structs of `kernels/fuse.cu`, field for field.

use crate::channel_groups::GroupParams;
use bytemuck::{Pod, Zeroable};
use robocache_device::Dtype;
use robocache_device::cuda::Params;
use robocache_kernels::Kernel;

/// Threads of a block, as in `kernels/fuse.cu`.
pub(super) const BLOCK: u32 = 256;
/// Targets of a block, as in `kernels/fuse.cu`.
pub(super) const RUN: u32 = 64;
/// Elements that a thread of [`TAKE`] has in flight, as in `kernels/fuse.cu`.
pub(super) const TAKEN_AT_ONCE: u32 = 4;
/// In a [`Verdict`]: there is no channel that is not finite.
pub(super) const ALL_FINITE: u32 = 0xffff_ffff;
/// The time of a row that is not there, as in `kernels/fuse.cu`.
pub(super) const NO_ROW: i64 = i64::MIN;
/// In `valid` of a window: the published type can't hold the value.
pub(super) const OVERFLOW: u8 = 2;

/// Copies runs of samples into their rings.
pub(super) const APPEND: Kernel = robocache_kernels::FUSE.kernel("fuse_append");
/// Converts a sample to float32 and looks for values that are not finite.
pub(super) const TAKE: Kernel = robocache_kernels::FUSE.kernel("fuse_take");
/// Inserts a row into a ring.
pub(super) const INSERT: Kernel = robocache_kernels::FUSE.kernel("fuse_insert");

/// The kernel that writes windows of that type. Where all groups are of plain modes, that is a smaller one.
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

/// Modalities and groups that travel in the launch parameters at most, as in `kernels/fuse.cu`.
const INLINE: usize = 8;

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct ModalityParams {
    pub times: u64,
    pub values: u64,
    pub out: u64,
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
pub(super) struct FuseParams {
    modalities: u64,
    groups: u64,
    pub targets: u64,
    pub age: u64,
    pub valid: u64,
    pub target_pitch: i64,
    pub rows: u32,
    pub fill: f32,
    /// What `valid` becomes where the type can't hold the value: 0, or another number to tell that from other reasons.
    pub overflow: u32,
    unused: u32,
    own_modalities: [ModalityParams; INLINE],
    own_groups: [GroupParams; INLINE],
}

// SAFETY: it is `FuseParams` of kernels/fuse.cu.
unsafe impl Params for FuseParams {}

impl FuseParams {
    /// Whether so many modalities with so many groups can travel in the launch parameters.
    pub fn holds(modalities: usize, groups: usize) -> bool {
        modalities <= INLINE && groups <= INLINE
    }

    /// Puts modalities and groups into the parameters, which [`hold`](Self::holds) them.
    pub fn embed(&mut self, modalities: &[ModalityParams], groups: &[GroupParams]) {
        (self.modalities, self.groups) = (0, 0);
        self.own_modalities[..modalities.len()].copy_from_slice(modalities);
        self.own_groups[..groups.len()].copy_from_slice(groups);
    }

    /// Points to modalities and groups in device memory.
    pub fn point_to(&mut self, modalities: u64, groups: u64) {
        (self.modalities, self.groups) = (modalities, groups);
    }
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct Fresh {
    pub times: u64,
    pub values: u64,
    pub ring_times: u64,
    pub ring_values: u64,
    pub first: u32,
    pub count: u32,
    pub mask: u32,
    pub dim: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct AppendParams {
    pub fresh: u64,
}

// SAFETY: it is `FuseAppendParams` of kernels/fuse.cu.
unsafe impl Params for AppendParams {}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct Verdict {
    /// The first channel that is not finite; [`ALL_FINITE`] where there is none.
    pub channel: u32,
    pub value: f32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct TakeParams {
    pub sample: u64,
    pub row: u64,
    pub verdicts: u64,
    pub dim: u32,
    pub dtype: u32,
}

// SAFETY: it is `FuseTakeParams` of kernels/fuse.cu.
unsafe impl Params for TakeParams {}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct InsertParams {
    pub row: u64,
    pub ring_values: u64,
    pub first: u32,
    pub moved: u32,
    pub mask: u32,
    pub dim: u32,
}

// SAFETY: it is `FuseInsertParams` of kernels/fuse.cu.
unsafe impl Params for InsertParams {}
