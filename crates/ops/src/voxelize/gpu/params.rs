//! The kernels of `kernels/voxelize.cu` and their parameters, which are documented in that file. A struct has the same
//! layout in both languages.

use super::super::channel::Output;
use robocache_device::gpu::{DevicePtr, Params};
use robocache_kernels::Kernel;

/// Greatest number of fields beside x, y and z that channels can be computed from.
pub(super) const MAX_FIELDS: usize = 16;
const MAX_SUMS: usize = MAX_FIELDS + 3;
const MAX_EXTREMES: usize = 2 * MAX_SUMS;
/// Greatest number of channels: occupancy and count, mean, max and min of each coordinate and field, and padding that
/// makes the structs a multiple of 16 bytes.
pub(super) const MAX_CHANNELS: usize = 2 + 3 * MAX_SUMS + 5;

/// Threads of a block of most kernels.
pub(super) const BLOCK: u32 = 256;
/// Threads of a block of [`POINTS`] and [`CELLS`].
pub(super) const POINT_BLOCK: u32 = 512;
/// Threads of a block of [`RANK`].
pub(super) const RANK_BLOCK: u32 = 512;

/// Number of copies of a grid's four counters, which the host adds up.
pub(super) const COUNTER_SLOTS: usize = 8;
/// Greatest number of superblocks of a grid. A superblock is a run of bitmap words that one block of [`RANK`] ranks.
pub(super) const MAX_SUPERBLOCKS: usize = 1024;

/// Arrangement of a cloud's coordinates in memory. Each array of kernels, such as [`POINTS`], has one kernel for each
/// arrangement, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Any,
    Packed3,
    Packed4,
}

const fn kernel(name: &'static str) -> Kernel {
    robocache_kernels::VOXELIZE.kernel(name)
}

pub(super) const POINTS: [Kernel; 3] = [
    kernel("voxelize_points"),
    kernel("voxelize_points_packed3"),
    kernel("voxelize_points_packed4"),
];
pub(super) const CELLS: [Kernel; 3] = [
    kernel("voxelize_cells"),
    kernel("voxelize_cells_packed3"),
    kernel("voxelize_cells"),
];
pub(super) const SECTORS: Kernel = kernel("voxelize_sectors");
pub(super) const ROWS: Kernel = kernel("voxelize_rows");
pub(super) const RANK: Kernel = kernel("voxelize_rank");
pub(super) const SUMS: Kernel = kernel("voxelize_sums");
pub(super) const SUMS_XYZ: [Kernel; 3] = [
    kernel("voxelize_sums_xyz"),
    kernel("voxelize_sums_xyz_packed3"),
    kernel("voxelize_sums_xyz_packed4"),
];
pub(super) const FEATURES: Kernel = kernel("voxelize_features");
pub(super) const SCATTER: Kernel = kernel("voxelize_scatter");

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Column<'a> {
    pub(super) data: DevicePtr<'a>,
    pub(super) stride: u32,
    pub(super) dtype: u32,
}

/// The fields that channels are computed from.
pub(super) type Fields<'a> = [Column<'a>; MAX_FIELDS];

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct CloudParams<'a> {
    pub(super) axes: [Column<'a>; 3],
    pub(super) starts: DevicePtr<'a>,
    pub(super) points: u32,
    pub(super) is_moved: u32,
    pub(super) origin: [f32; 3],
    pub(super) inverse: [f32; 3],
    pub(super) shape: [f32; 3],
    pub(super) ny: u32,
    pub(super) nz: u32,
    pub(super) field_count: u32,
    pub(super) rotation: [[f32; 3]; 3],
    pub(super) translation: [f32; 3],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct PointsParams<'a> {
    pub(super) cloud: CloudParams<'a>,
    pub(super) words: DevicePtr<'a>,
    pub(super) counts: DevicePtr<'a>,
    pub(super) cells: DevicePtr<'a>,
    pub(super) counters: DevicePtr<'a>,
    pub(super) clearing_blocks: u32,
    pub(super) words_per_grid: u32,
    pub(super) superblocks: u32,
    pub(super) superblock_shift: u32,
    pub(super) save: u32,
    pub(super) group: u32,
    pub(super) clear: DevicePtr<'a>,
    pub(super) clear_quads: u64,
    pub(super) old_words: DevicePtr<'a>,
    pub(super) old_cells: DevicePtr<'a>,
    pub(super) old_starts: DevicePtr<'a>,
    pub(super) old_points: u32,
    pub(super) unused: u32,
}

/// Value of [`PointsParams::save`]: no cells are saved.
pub(super) const SAVE_NONE: u32 = 0;
/// Value of [`PointsParams::save`]: the cell of every point is saved.
pub(super) const SAVE_ALL: u32 = 1;
/// Value of [`PointsParams::save`]: of a group of neighbouring cells, only the first is saved.
pub(super) const SAVE_FIRST: u32 = 2;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct CellsParams<'a> {
    pub(super) cloud: CloudParams<'a>,
    pub(super) out: DevicePtr<'a>,
    pub(super) cells: DevicePtr<'a>,
    pub(super) counters: DevicePtr<'a>,
    pub(super) out_elements: u64,
    pub(super) clearing_blocks: u32,
    pub(super) one: u32,
    pub(super) element_bytes: u32,
    pub(super) old_points: u32,
    pub(super) old_out: DevicePtr<'a>,
    pub(super) old_cells: DevicePtr<'a>,
    pub(super) old_starts: DevicePtr<'a>,
    pub(super) clear: DevicePtr<'a>,
    pub(super) clear_quads: u64,
    pub(super) is_split: u32,
    pub(super) unused: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct SectorsParams<'a> {
    pub(super) words: DevicePtr<'a>,
    pub(super) cells: DevicePtr<'a>,
    pub(super) starts: DevicePtr<'a>,
    pub(super) old_cells: DevicePtr<'a>,
    pub(super) old_starts: DevicePtr<'a>,
    pub(super) out: DevicePtr<'a>,
    pub(super) out_elements: u64,
    pub(super) points: u32,
    pub(super) old_points: u32,
    pub(super) words_per_grid: u32,
    pub(super) one: u32,
    pub(super) element_bytes: u32,
    pub(super) is_split: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RowsParams<'a> {
    pub(super) counts: DevicePtr<'a>,
    pub(super) rows: DevicePtr<'a>,
    pub(super) grids: u32,
    pub(super) superblocks: u32,
    pub(super) limit: u32,
    pub(super) unused: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RankParams<'a> {
    pub(super) words: DevicePtr<'a>,
    pub(super) counts: DevicePtr<'a>,
    pub(super) ranks: DevicePtr<'a>,
    pub(super) sums: DevicePtr<'a>,
    pub(super) keys: DevicePtr<'a>,
    pub(super) order: DevicePtr<'a>,
    pub(super) rows: DevicePtr<'a>,
    pub(super) key_rows: u64,
    pub(super) greatest: u64,
    pub(super) words_per_grid: u32,
    pub(super) superblocks: u32,
    pub(super) superblock_shift: u32,
    pub(super) limit: u32,
    pub(super) stride: u32,
    pub(super) extremes: u32,
    pub(super) exceptions: DevicePtr<'a>,
    pub(super) planes: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct SumsParams<'a> {
    pub(super) cloud: CloudParams<'a>,
    pub(super) cells: DevicePtr<'a>,
    pub(super) words: DevicePtr<'a>,
    pub(super) ranks: DevicePtr<'a>,
    pub(super) sums: DevicePtr<'a>,
    pub(super) keys: DevicePtr<'a>,
    pub(super) order: DevicePtr<'a>,
    pub(super) rows: DevicePtr<'a>,
    pub(super) counters: DevicePtr<'a>,
    pub(super) key_rows: u64,
    pub(super) greatest: u64,
    pub(super) words_per_grid: u32,
    pub(super) limit: u32,
    pub(super) stride: u32,
    pub(super) extremes: u32,
    pub(super) is_whole: u32,
    pub(super) axis_sums: u32,
    pub(super) exceptions: DevicePtr<'a>,
    pub(super) unusable: DevicePtr<'a>,
    pub(super) scales: [f64; MAX_SUMS],
    pub(super) field_scales: [f64; MAX_FIELDS],
    pub(super) sum_sources: [u8; MAX_SUMS + 1],
    pub(super) extreme_sources: [[u8; 20]; 2],
    pub(super) unused: u32,
    pub(super) fields: [Column<'a>; MAX_FIELDS],
}

const _: () = assert!(MAX_EXTREMES + 2 == 40, "the length of extreme_sources");

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Channels<'a> {
    pub(super) sums: DevicePtr<'a>,
    pub(super) keys: DevicePtr<'a>,
    pub(super) exceptions: DevicePtr<'a>,
    pub(super) key_rows: u64,
    pub(super) units: [f64; MAX_SUMS],
    pub(super) stride: u32,
    pub(super) count: u32,
    pub(super) axis_sums: u32,
    pub(super) unused: u32,
    pub(super) outputs: [u8; MAX_CHANNELS],
    pub(super) places: [u8; MAX_CHANNELS],
}

impl Default for Channels<'_> {
    fn default() -> Self {
        Self {
            sums: DevicePtr::NULL,
            keys: DevicePtr::NULL,
            exceptions: DevicePtr::NULL,
            key_rows: 0,
            units: [0.0; MAX_SUMS],
            stride: 0,
            count: 0,
            axis_sums: 0,
            unused: 0,
            outputs: [0; MAX_CHANNELS],
            places: [0; MAX_CHANNELS],
        }
    }
}

/// Code of [`Output::One`] in [`Channels::outputs`].
const OUTPUT_ONE: u8 = 0;
/// Code of [`Output::Count`] in [`Channels::outputs`].
const OUTPUT_COUNT: u8 = 1;
/// Code of [`Output::Mean`] in [`Channels::outputs`].
const OUTPUT_MEAN: u8 = 2;
/// Code of [`Output::Extreme`] in [`Channels::outputs`].
const OUTPUT_EXTREME: u8 = 3;

/// The code of an output for [`Channels::outputs`], and the index of its sum or extreme for [`Channels::places`].
pub(super) fn output_code(output: Output) -> (u8, u8) {
    match output {
        Output::One => (OUTPUT_ONE, 0),
        Output::Count => (OUTPUT_COUNT, 0),
        Output::Mean(plane) => (OUTPUT_MEAN, plane as u8),
        Output::Extreme(index) => (OUTPUT_EXTREME, index as u8),
    }
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct FeaturesParams<'a> {
    pub(super) channels: Channels<'a>,
    pub(super) out: DevicePtr<'a>,
    pub(super) coords: DevicePtr<'a>,
    pub(super) order: DevicePtr<'a>,
    pub(super) rows: DevicePtr<'a>,
    pub(super) ny: u32,
    pub(super) nz: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct ScatterParams<'a> {
    pub(super) channels: Channels<'a>,
    pub(super) words: DevicePtr<'a>,
    pub(super) order: DevicePtr<'a>,
    pub(super) rows: DevicePtr<'a>,
    pub(super) old_order: DevicePtr<'a>,
    pub(super) old_rows: DevicePtr<'a>,
    pub(super) out: DevicePtr<'a>,
    pub(super) cells: u64,
    pub(super) saturated: DevicePtr<'a>,
    pub(super) words_per_grid: u32,
    pub(super) dtype: u32,
}

/// Implements [`Params`] for the parameters of kernels, and checks their sizes against the kernels' source.
macro_rules! params {
    ($($name:ident $bytes:literal),* $(,)?) => {
        $(
            // SAFETY: the fields are those of the struct of the same name in kernels/voxelize.cu.
            unsafe impl Params for $name<'_> {}
            const _: () = assert!(
                size_of::<$name>() == $bytes,
                concat!("the size of ", stringify!($name), " is not ", stringify!($bytes), ", as in kernels/voxelize.cu")
            );
        )*
    };
}
params! {
    PointsParams 264, CellsParams 256, SectorsParams 80, RowsParams 32, RankParams 112,
    SumsParams 880, FeaturesParams 368, ScatterParams 400,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Header, shared_constants, shared_structs};

    #[test]
    fn the_layout_is_written_for_the_kernels() {
        let mut header = Header::new("voxelize");
        shared_structs! { header:
            Column = "Column" { data, stride, dtype }
            CloudParams = "Cloud" {
                axes, starts, points, is_moved, origin, inverse, shape, ny, nz, field_count, rotation, translation,
            }
            PointsParams = "VoxelizePointsParams" {
                cloud, words, counts, cells, counters, clearing_blocks, words_per_grid, superblocks,
                superblock_shift, save, group, clear, clear_quads, old_words, old_cells, old_starts, old_points,
                unused,
            }
            CellsParams = "VoxelizeCellsParams" {
                cloud, out, cells, counters, out_elements, clearing_blocks, one, element_bytes, old_points, old_out,
                old_cells, old_starts, clear, clear_quads, is_split, unused,
            }
            SectorsParams = "VoxelizeSectorsParams" {
                words, cells, starts, old_cells, old_starts, out, out_elements, points, old_points, words_per_grid,
                one, element_bytes, is_split,
            }
            RowsParams = "VoxelizeRowsParams" { counts, rows, grids, superblocks, limit, unused }
            RankParams = "VoxelizeRankParams" {
                words, counts, ranks, sums, keys, order, rows, key_rows, greatest, words_per_grid, superblocks,
                superblock_shift, limit, stride, extremes, exceptions, planes,
            }
            SumsParams = "VoxelizeSumsParams" {
                cloud, cells, words, ranks, sums, keys, order, rows, counters, key_rows, greatest, words_per_grid,
                limit, stride, extremes, is_whole, axis_sums, exceptions, unusable, scales, field_scales,
                sum_sources, extreme_sources, unused, fields,
            }
            Channels = "Channels" {
                sums, keys, exceptions, key_rows, units, stride, count, axis_sums, unused, outputs, places,
            }
            FeaturesParams = "VoxelizeFeaturesParams" { channels, out, coords, order, rows, ny, nz }
            ScatterParams = "VoxelizeScatterParams" {
                channels, words, order, rows, old_order, old_rows, out, cells, saturated, words_per_grid, dtype,
            }
        }
        shared_constants! { header:
            BLOCK, POINT_BLOCK, RANK_BLOCK, COUNTER_SLOTS, MAX_SUPERBLOCKS, MAX_FIELDS, MAX_SUMS, MAX_EXTREMES,
            MAX_CHANNELS, SAVE_NONE, SAVE_ALL, SAVE_FIRST, OUTPUT_ONE, OUTPUT_COUNT, OUTPUT_MEAN, OUTPUT_EXTREME,
        }
        header.write();
    }
}
