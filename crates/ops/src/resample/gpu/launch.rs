//! Launches of `kernels/resample.cu`: the parameters of its kernels, and the choice of the kernel and grid for a batch.

use super::super::spec::Spec;
use crate::channel_groups::{GroupParams, MOST_GROUPS, count_kinds, rotations_first};
use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};
use robocache_device::Dtype;
use robocache_device::gpu::{DeviceFault, DevicePtr, DeviceSlice, Gpu, Params, SliceError};
use robocache_kernels::Kernel;
use robocache_time::Interpolation;

/// Consecutive targets of one trajectory, laid out as the kernels' `ResampleTile`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(super) struct Tile {
    pub sample: u64,
    pub target: u64,
    pub samples: u32,
    pub targets: u32,
}

impl Tile {
    /// Greatest number of targets of a tile. The kernels could take one for each thread of a block.
    const MOST_TARGETS: usize = 64;
}

/// Parameters of the kernels that resample, laid out as the kernels' `ResampleParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ResampleParams<'a> {
    times: DevicePtr<'a>,
    values: DevicePtr<'a>,
    targets: DevicePtr<'a>,
    out: DevicePtr<'a>,
    valid: DevicePtr<'a>,
    tiles: DevicePtr<'a>,
    fill: u64,
    max_age: i64,
    max_gap: i64,
    extrapolate: i64,
    row_samples: u32,
    row_targets: u32,
    tile_targets: u32,
    dim: u32,
    mode: u32,
    row_vectors: u32,
    step_rows: u32,
    step_vectors: u32,
    row_magic: u64,
    overflow: u32,
    unused: u32,
}

// SAFETY: it has the fields of the kernels' struct of that name.
unsafe impl Params for ResampleParams<'_> {}

/// Parameters of the kernels that count dropped samples, laid out as the kernels' `ResampleCountParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CountParams<'a> {
    values: DevicePtr<'a>,
    dropped: DevicePtr<'a>,
    samples: u64,
    dim: u32,
    lanes: u32,
}

// SAFETY: it has the fields of the kernels' struct of that name.
unsafe impl Params for CountParams<'_> {}

/// Parameters of the kernels that resample groups of channels, laid out as the kernels' `ResampleModesParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ModesParams<'a> {
    batch: ResampleParams<'a>,
    groups: u32,
    rotations: u32,
    has_curves: u32,
    unused: u32,
    own_groups: [GroupParams; MOST_GROUPS],
}

// SAFETY: it has the fields of the kernels' struct of that name.
unsafe impl Params for ModesParams<'_> {}

/// Parameters of the kernels that count dropped samples by group, laid out as the kernels' `ResampleCountModesParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CountModesParams<'a> {
    count: CountParams<'a>,
    groups: u32,
    unused: u32,
    own_groups: [GroupParams; MOST_GROUPS],
}

// SAFETY: it has the fields of the kernels' struct of that name.
unsafe impl Params for CountModesParams<'_> {}

/// A batch in the memory of a device. All its trajectories have the same numbers of samples and targets.
#[derive(Clone, Copy, Debug)]
pub struct DeviceBatch<'a> {
    /// B, the number of trajectories.
    pub rows: usize,
    /// S, the samples of each trajectory.
    pub samples: usize,
    /// T, the targets of each trajectory.
    pub targets: usize,
    /// D, the values of a sample.
    pub dim: usize,
    /// Times of the samples, int64 `[B, S]`, ns: ascending in each trajectory, within +-2^61.
    pub times: DeviceSlice<'a>,
    /// Values of the samples, `[B, S, D]` of float32, float64, float16 or bfloat16.
    pub values: DeviceSlice<'a>,
    /// Times at which values are computed, int64 `[B, T]`, ns, in any order; ascending times are found fastest.
    pub targets_ns: DeviceSlice<'a>,
    /// Output: the values at the targets, `[B, T, D]` of the type of `values`.
    pub out: DeviceSlice<'a>,
    /// Output: the validity of the targets, uint8 `[B, T]`; 1 if the target has a value, else 0.
    pub valid: DeviceSlice<'a>,
}

impl<'a> DeviceBatch<'a> {
    /// Checks that every slice is as large as the batch says, of its type and on the device.
    pub(super) fn checked(&self, gpu: &Gpu) -> Result<Batch<'a>, SliceError> {
        let dtype = match self.values.dtype() {
            dtype @ (Dtype::Float32 | Dtype::Float64 | Dtype::Float16 | Dtype::BFloat16) => dtype,
            came => {
                return Err(SliceError::Dtype {
                    tensor: "values",
                    expected: self.out.dtype(),
                    came,
                });
            }
        };
        let samples = self.rows.saturating_mul(self.samples);
        let targets = self.rows.saturating_mul(self.targets);
        let elements = |rows: usize| rows.saturating_mul(self.dim);
        Ok(Batch {
            dtype,
            dim: self.dim,
            times: self.times.expect("times", Dtype::Int64, samples, gpu)?.pointer(),
            values: self.values.expect("values", dtype, elements(samples), gpu)?.pointer(),
            targets: self
                .targets_ns
                .expect("targets_ns", Dtype::Int64, targets, gpu)?
                .pointer(),
            out: self.out.expect("out", dtype, elements(targets), gpu)?.pointer(),
            valid: self.valid.expect("valid", Dtype::UInt8, targets, gpu)?.pointer(),
            tiling: Tiling::Regular {
                rows: self.rows,
                samples: self.samples,
                targets: self.targets,
            },
        })
    }
}

/// Addresses of a batch and its answer in the memory of a device, and the division of the targets among blocks.
pub(super) struct Batch<'a> {
    pub dtype: Dtype,
    pub dim: usize,
    pub times: DevicePtr<'a>,
    pub values: DevicePtr<'a>,
    pub targets: DevicePtr<'a>,
    pub out: DevicePtr<'a>,
    pub valid: DevicePtr<'a>,
    pub tiling: Tiling<'a>,
}

/// Assignment of targets to blocks of threads.
pub(super) enum Tiling<'a> {
    /// All rows have the same numbers of samples and targets: a block computes which targets it has.
    Regular {
        rows: usize,
        samples: usize,
        targets: usize,
    },
    /// Rows differ: a block looks up its targets in a table of `count` [`Tile`]s on the device.
    Ragged { tiles: DevicePtr<'a>, count: usize },
}

/// Value of `valid` for a target whose result the type can't hold, if the launch asks for it.
pub(super) const OVERFLOW: u8 = 2;

/// Threads of a block of the kernels that resample.
const BLOCK: u32 = 128;

/// Greatest number of vectors (loads of up to 16 bytes) in the samples of a trajectory that counts as short.
const SHORT_VECTORS: usize = 4 * BLOCK as usize;

/// Greatest number of trajectories in a launch: each takes one row of blocks of the CUDA grid. A larger batch takes
/// several launches.
const MOST_ROWS: usize = 65_535;

/// Greatest size of a sample, bytes: the kernels count the bytes of a tile in 32 bits.
const MOST_ROW_BYTES: usize = 1 << 24;

impl Batch<'_> {
    fn row_bytes(&self) -> usize {
        self.dim * self.dtype.size()
    }

    /// Bytes of the widest vector with which the values of every sample can be loaded, and those of every target
    /// stored.
    fn vector_bytes(&self) -> usize {
        let fits = |bytes: &usize| {
            let are_aligned = [self.values, self.out].iter().all(|begin| begin.is_aligned_to(*bytes));
            are_aligned && self.row_bytes().is_multiple_of(*bytes)
        };
        let narrower = [16, 8, 4].into_iter().filter(|&bytes| bytes > self.dtype.size());
        narrower.into_iter().find(fits).unwrap_or(self.dtype.size())
    }

    /// Number of the `targets` that each block takes. A block first finds the brackets of its targets, so it takes many
    /// targets, but leaves some for every multiprocessor.
    pub(super) fn tile_targets(&self, gpu: &Gpu, targets: usize) -> usize {
        const BLOCKS_PER_MULTIPROCESSOR: usize = 2;
        const LEAST: usize = 16;
        const MOST_VECTORS: usize = 2048;
        let row_vectors = (self.row_bytes() / self.vector_bytes()).max(1);
        let least = (BLOCK as usize / row_vectors).clamp(1, LEAST);
        let most = (MOST_VECTORS / row_vectors).clamp(least, Tile::MOST_TARGETS);
        let tile = (targets / (gpu.multiprocessors() as usize * BLOCKS_PER_MULTIPROCESSOR)).clamp(least, most);
        1 << tile.ilog2()
    }

    /// The kernel for any batch of this type and alignment, and the kernel for few and short trajectories.
    fn kernels(&self) -> [Kernel; 2] {
        macro_rules! kernels {
            ($name:literal) => {
                [
                    const { robocache_kernels::RESAMPLE.kernel($name) },
                    const { robocache_kernels::RESAMPLE.kernel(concat!($name, "_short")) },
                ]
            };
        }
        match (self.dtype, self.vector_bytes()) {
            (Dtype::Float64, 16) => kernels!("resample_f64_16"),
            (Dtype::Float64, _) => kernels!("resample_f64_8"),
            (Dtype::Float16, 16) => kernels!("resample_f16_16"),
            (Dtype::Float16, 8) => kernels!("resample_f16_8"),
            (Dtype::Float16, 4) => kernels!("resample_f16_4"),
            (Dtype::Float16, _) => kernels!("resample_f16_2"),
            (Dtype::BFloat16, 16) => kernels!("resample_bf16_16"),
            (Dtype::BFloat16, 8) => kernels!("resample_bf16_8"),
            (Dtype::BFloat16, 4) => kernels!("resample_bf16_4"),
            (Dtype::BFloat16, _) => kernels!("resample_bf16_2"),
            (_, 16) => kernels!("resample_f32_16"),
            (_, 8) => kernels!("resample_f32_8"),
            (_, _) => kernels!("resample_f32_4"),
        }
    }

    /// The kernel for groups of channels, and for interpolations that are not [plain](Interpolation::is_plain).
    fn modes_kernel(&self) -> Kernel {
        match self.dtype {
            Dtype::Float64 => const { robocache_kernels::RESAMPLE.kernel("resample_modes_f64") },
            Dtype::Float16 => const { robocache_kernels::RESAMPLE.kernel("resample_modes_f16") },
            Dtype::BFloat16 => const { robocache_kernels::RESAMPLE.kernel("resample_modes_bf16") },
            _ => const { robocache_kernels::RESAMPLE.kernel("resample_modes_f32") },
        }
    }

    /// Number of targets that each block takes, if the batch has few and short trajectories; else `None`.
    fn short_tile_targets(&self, gpu: &Gpu, [rows, samples, targets]: [usize; 3]) -> Option<usize> {
        const BLOCKS_PER_MULTIPROCESSOR: usize = 4;
        let row_vectors = self.row_bytes() / self.vector_bytes();
        let tile = BLOCK as usize / row_vectors;
        let is_short = tile > 0 && samples < BLOCK as usize && samples * row_vectors <= SHORT_VECTORS;
        let most_blocks = BLOCKS_PER_MULTIPROCESSOR * gpu.multiprocessors() as usize;
        (is_short && rows * targets.div_ceil(tile) <= most_blocks).then_some(tile)
    }
}

impl Spec {
    /// The fill value in the batch's type, repeated over 8 bytes.
    fn fill_bits(&self, dtype: Dtype) -> u64 {
        const HALVES: u64 = 0x0001_0001_0001_0001;
        const WORDS: u64 = 0x0000_0001_0000_0001;
        match dtype {
            Dtype::Float64 => f64::from(self.fill).to_bits(),
            Dtype::Float16 => HALVES * u64::from(f16::from_f32(self.fill).to_bits()),
            Dtype::BFloat16 => HALVES * u64::from(bf16::from_f32(self.fill).to_bits()),
            _ => WORDS * u64::from(self.fill.to_bits()),
        }
    }

    /// The kernel parameters of the channel groups of samples with `dim` values, and the number of groups.
    fn group_params(&self, dim: usize) -> ([GroupParams; MOST_GROUPS], u32) {
        let mut params = [GroupParams::zeroed(); MOST_GROUPS];
        let groups = rotations_first(self.groups(dim).map(|group| (group.from..group.to, group.rule)));
        for (to, group) in params.iter_mut().zip(groups) {
            *to = group;
        }
        (params, self.groups.len() as u32)
    }

    /// Launches a kernel, and passes it the groups of channels if the configuration [is grouped](Self::is_grouped).
    ///
    /// # Safety
    /// As [`launch`](Self::launch).
    unsafe fn launch_one(
        &self,
        gpu: &Gpu,
        kernel: Kernel,
        grid: [u32; 3],
        batch: &ResampleParams<'_>,
    ) -> Result<(), DeviceFault> {
        if !self.is_grouped {
            // SAFETY: as the caller promises.
            return unsafe { gpu.launch(kernel, grid, BLOCK, batch) };
        }
        let (own_groups, groups) = self.group_params(batch.dim as usize);
        let (rotations, has_curves) = count_kinds(self.groups.iter().map(|group| group.rule));
        let params = ModesParams {
            batch: *batch,
            groups,
            rotations,
            has_curves,
            unused: 0,
            own_groups,
        };
        // SAFETY: as the caller promises.
        unsafe { gpu.launch(kernel, grid, BLOCK, &params) }
    }

    /// Enqueues the kernels that resample a batch. They write `overflow` to `valid` if the type can't hold a result.
    ///
    /// # Safety
    /// Every address of the batch is memory of the device that is as large as the batch says, and aligned for its type. It
    /// lives until the stream is synchronized. The times of each trajectory ascend.
    pub(super) unsafe fn launch(&self, gpu: &Gpu, batch: &Batch<'_>, overflow: u8) -> Result<(), DeviceFault> {
        let row_bytes = batch.row_bytes();
        if row_bytes > MOST_ROW_BYTES {
            return Err(DeviceFault::OutOfMemory {
                device: gpu.device(),
                kind: "device",
                bytes: row_bytes,
            });
        }
        let row_vectors = (row_bytes / batch.vector_bytes()) as u32;
        let params = ResampleParams {
            times: batch.times,
            values: batch.values,
            targets: batch.targets,
            out: batch.out,
            valid: batch.valid,
            tiles: DevicePtr::NULL,
            fill: self.fill_bits(batch.dtype),
            max_age: self.limits.max_age,
            max_gap: self.limits.max_gap,
            extrapolate: self.limits.extrapolate,
            row_samples: 0,
            row_targets: 0,
            tile_targets: 0,
            row_vectors,
            step_rows: BLOCK / row_vectors,
            step_vectors: BLOCK % row_vectors,
            row_magic: (1u64 << 32).div_ceil(u64::from(row_vectors)),
            dim: batch.dim as u32,
            mode: self.mode.code(),
            overflow: overflow.into(),
            unused: 0,
        };
        let [kernel, short_kernel] = match self.is_grouped {
            true => [batch.modes_kernel(); 2],
            false => batch.kernels(),
        };
        match batch.tiling {
            Tiling::Ragged { tiles, count } => {
                let params = ResampleParams { tiles, ..params };
                // SAFETY: as the caller promises; there is a tile for each block.
                unsafe { self.launch_one(gpu, kernel, [count as u32, 1, 1], &params) }
            }
            Tiling::Regular { targets: 0, .. } => Ok(()),
            Tiling::Regular { rows, samples, targets } => {
                let short = batch
                    .short_tile_targets(gpu, [rows, samples, targets])
                    .filter(|_| !self.is_grouped);
                let kernel = short.map_or(kernel, |_| short_kernel);
                let tile = short.unwrap_or_else(|| batch.tile_targets(gpu, rows * targets));
                let row_tiles = targets.div_ceil(tile);
                for first in (0..rows).step_by(MOST_ROWS) {
                    let params = ResampleParams {
                        times: batch.times.offset(first * samples * size_of::<i64>()),
                        values: batch.values.offset(first * samples * row_bytes),
                        targets: batch.targets.offset(first * targets * size_of::<i64>()),
                        out: batch.out.offset(first * targets * row_bytes),
                        valid: batch.valid.offset(first * targets),
                        row_samples: samples as u32,
                        row_targets: targets as u32,
                        tile_targets: tile as u32,
                        ..params
                    };
                    let grid = [row_tiles as u32, (rows - first).min(MOST_ROWS) as u32, 1];
                    // SAFETY: as the caller promises; these rows are part of the batch.
                    unsafe { self.launch_one(gpu, kernel, grid, &params) }?;
                }
                Ok(())
            }
        }
    }

    /// Enqueues the count of dropped samples among the first `samples`: not finite, or not the rotation that a group needs.
    /// The count is added to the u64 at `dropped`.
    ///
    /// # Safety
    /// The samples and `dropped` are memory of the device of that size, which lives until the stream is synchronized.
    pub(super) unsafe fn count_dropped(
        &self,
        gpu: &Gpu,
        batch: &Batch<'_>,
        samples: usize,
        dropped: DevicePtr<'_>,
    ) -> Result<(), DeviceFault> {
        const BLOCK: u32 = 256;
        const BLOCKS_PER_MULTIPROCESSOR: usize = 8;
        let mut modes = self.groups.iter().map(|group| group.rule.mode);
        let has_rotations = modes.any(Interpolation::is_rotation);
        let kernel = match (batch.dtype, has_rotations) {
            (Dtype::Float64, false) => const { robocache_kernels::RESAMPLE.kernel("resample_count_f64") },
            (Dtype::Float16, false) => const { robocache_kernels::RESAMPLE.kernel("resample_count_f16") },
            (Dtype::BFloat16, false) => const { robocache_kernels::RESAMPLE.kernel("resample_count_bf16") },
            (_, false) => const { robocache_kernels::RESAMPLE.kernel("resample_count_f32") },
            (Dtype::Float64, true) => const { robocache_kernels::RESAMPLE.kernel("resample_count_modes_f64") },
            (Dtype::Float16, true) => const { robocache_kernels::RESAMPLE.kernel("resample_count_modes_f16") },
            (Dtype::BFloat16, true) => const { robocache_kernels::RESAMPLE.kernel("resample_count_modes_bf16") },
            (_, true) => const { robocache_kernels::RESAMPLE.kernel("resample_count_modes_f32") },
        };
        // A whole warp checks the rotations of a sample.
        let lanes = if has_rotations {
            32
        } else {
            batch.dim.next_power_of_two().min(32)
        };
        let params = CountParams {
            values: batch.values,
            dropped,
            samples: samples as u64,
            dim: batch.dim as u32,
            lanes: lanes as u32,
        };
        let most = gpu.multiprocessors() as usize * BLOCKS_PER_MULTIPROCESSOR;
        let blocks = samples.div_ceil(BLOCK as usize / lanes).min(most);
        let grid = [blocks as u32, 1, 1];
        if !has_rotations {
            // SAFETY: as the caller promises.
            return unsafe { gpu.launch(kernel, grid, BLOCK, &params) };
        }
        let (own_groups, groups) = self.group_params(batch.dim);
        let params = CountModesParams {
            count: params,
            groups,
            unused: 0,
            own_groups,
        };
        // SAFETY: as the caller promises.
        unsafe { gpu.launch(kernel, grid, BLOCK, &params) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Header, shared_constants, shared_structs};

    #[test]
    fn the_layout_is_written_for_the_kernels() {
        let mut header = Header::new("resample");
        crate::channel_groups::list_shared(&mut header);
        shared_structs! { header:
            Tile = "ResampleTile" { sample, target, samples, targets }
            ResampleParams = "ResampleParams" {
                times, values, targets, out, valid, tiles, fill, max_age = "limits.max_age",
                max_gap = "limits.max_gap", extrapolate = "limits.extrapolate", row_samples, row_targets,
                tile_targets, dim, mode, row_vectors, step_rows, step_vectors, row_magic, overflow, unused,
            }
            CountParams = "ResampleCountParams" { values, dropped, samples, dim, lanes }
            ModesParams = "ResampleModesParams" { batch, groups, rotations, has_curves, unused, own_groups }
            CountModesParams = "ResampleCountModesParams" { count, groups, unused, own_groups }
        }
        shared_constants! { header: BLOCK, SHORT_VECTORS }
        header.write();
    }
}
