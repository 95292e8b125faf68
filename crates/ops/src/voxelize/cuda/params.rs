//! The kernels of `kernels/voxelize.cu` and their parameters, which are documented there.

use super::super::channel::Output;
use robocache_device::cuda::Params;
use robocache_kernels::Kernel;

/// The most fields other than x, y and z that channels can be computed from.
pub(super) const MAX_FIELDS: usize = 16;
const MAX_SUMS: usize = MAX_FIELDS + 3;
const MAX_EXTREMES: usize = 2 * MAX_SUMS;
/// Two of points, three of each coordinate and field, and room to make the structs a whole number of 16 bytes.
pub(super) const MAX_CHANNELS: usize = 2 + 3 * MAX_SUMS + 5;

/// Threads of a block, of one of [`POINTS`] and [`CELLS`], and of one of [`RANK`].
pub(super) const BLOCK: u32 = 256;
pub(super) const POINT_BLOCK: u32 = 512;
pub(super) const RANK_BLOCK: u32 = 512;

/// The counters of a grid are in so many places, four each.
pub(super) const COUNTER_SLOTS: usize = 8;
/// A grid is divided into no more superblocks than this.
pub(super) const MAX_SUPERBLOCKS: usize = 1024;

/// How coordinates lie; a kernel for each, in this order.
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
pub(super) struct Column {
    pub(super) data: u64,
    pub(super) stride: u32,
    pub(super) dtype: u32,
}

/// The fields that channels are computed from.
pub(super) type Fields = [Column; MAX_FIELDS];

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct CloudParams {
    pub(super) axes: [Column; 3],
    pub(super) starts: u64,
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
pub(super) struct PointsParams {
    pub(super) cloud: CloudParams,
    pub(super) words: u64,
    pub(super) counts: u64,
    pub(super) cells: u64,
    pub(super) counters: u64,
    pub(super) clearing_blocks: u32,
    pub(super) words_per_grid: u32,
    pub(super) superblocks: u32,
    pub(super) superblock_shift: u32,
    pub(super) save: u32,
    pub(super) group: u32,
    pub(super) clear: u64,
    pub(super) clear_quads: u64,
    pub(super) old_words: u64,
    pub(super) old_cells: u64,
    pub(super) old_starts: u64,
    pub(super) old_points: u32,
    pub(super) unused: u32,
}

/// Values of [`PointsParams::save`].
pub(super) const SAVE_NONE: u32 = 0;
pub(super) const SAVE_ALL: u32 = 1;
pub(super) const SAVE_FIRST: u32 = 2;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct CellsParams {
    pub(super) cloud: CloudParams,
    pub(super) out: u64,
    pub(super) cells: u64,
    pub(super) counters: u64,
    pub(super) out_elements: u64,
    pub(super) clearing_blocks: u32,
    pub(super) one: u32,
    pub(super) element_bytes: u32,
    pub(super) old_points: u32,
    pub(super) old_out: u64,
    pub(super) old_cells: u64,
    pub(super) old_starts: u64,
    pub(super) clear: u64,
    pub(super) clear_quads: u64,
    pub(super) is_split: u32,
    pub(super) unused: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct SectorsParams {
    pub(super) words: u64,
    pub(super) cells: u64,
    pub(super) starts: u64,
    pub(super) old_cells: u64,
    pub(super) old_starts: u64,
    pub(super) out: u64,
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
pub(super) struct RowsParams {
    pub(super) counts: u64,
    pub(super) rows: u64,
    pub(super) grids: u32,
    pub(super) superblocks: u32,
    pub(super) limit: u32,
    pub(super) unused: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RankParams {
    pub(super) words: u64,
    pub(super) counts: u64,
    pub(super) ranks: u64,
    pub(super) sums: u64,
    pub(super) keys: u64,
    pub(super) order: u64,
    pub(super) rows: u64,
    pub(super) key_rows: u64,
    pub(super) greatest: u64,
    pub(super) words_per_grid: u32,
    pub(super) superblocks: u32,
    pub(super) superblock_shift: u32,
    pub(super) limit: u32,
    pub(super) stride: u32,
    pub(super) extremes: u32,
    pub(super) exceptions: u64,
    pub(super) planes: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct SumsParams {
    pub(super) cloud: CloudParams,
    pub(super) cells: u64,
    pub(super) words: u64,
    pub(super) ranks: u64,
    pub(super) sums: u64,
    pub(super) keys: u64,
    pub(super) order: u64,
    pub(super) rows: u64,
    pub(super) counters: u64,
    pub(super) key_rows: u64,
    pub(super) greatest: u64,
    pub(super) words_per_grid: u32,
    pub(super) limit: u32,
    pub(super) stride: u32,
    pub(super) extremes: u32,
    pub(super) is_whole: u32,
    pub(super) axis_sums: u32,
    pub(super) exceptions: u64,
    pub(super) unusable: u64,
    pub(super) scales: [f64; MAX_SUMS],
    pub(super) field_scales: [f64; MAX_FIELDS],
    pub(super) sum_sources: [u8; MAX_SUMS + 1],
    pub(super) extreme_sources: [[u8; 20]; 2],
    pub(super) unused: u32,
    pub(super) fields: [Column; MAX_FIELDS],
}

const _: () = assert!(MAX_EXTREMES + 2 == 40, "the length of extreme_sources");

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Channels {
    pub(super) sums: u64,
    pub(super) keys: u64,
    pub(super) exceptions: u64,
    pub(super) key_rows: u64,
    pub(super) units: [f64; MAX_SUMS],
    pub(super) stride: u32,
    pub(super) count: u32,
    pub(super) axis_sums: u32,
    pub(super) unused: u32,
    pub(super) outputs: [u8; MAX_CHANNELS],
    pub(super) places: [u8; MAX_CHANNELS],
}

impl Default for Channels {
    fn default() -> Self {
        Self {
            sums: 0,
            keys: 0,
            exceptions: 0,
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

/// Values of [`Channels::outputs`].
const OUTPUT_ONE: u8 = 0;
const OUTPUT_COUNT: u8 = 1;
const OUTPUT_MEAN: u8 = 2;
const OUTPUT_EXTREME: u8 = 3;

/// The value of [`Channels::outputs`], and the one of [`Channels::places`] that says which sum or extreme it is.
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
pub(super) struct FeaturesParams {
    pub(super) channels: Channels,
    pub(super) out: u64,
    pub(super) coords: u64,
    pub(super) order: u64,
    pub(super) rows: u64,
    pub(super) ny: u32,
    pub(super) nz: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct ScatterParams {
    pub(super) channels: Channels,
    pub(super) words: u64,
    pub(super) order: u64,
    pub(super) rows: u64,
    pub(super) old_order: u64,
    pub(super) old_rows: u64,
    pub(super) out: u64,
    pub(super) cells: u64,
    pub(super) saturated: u64,
    pub(super) words_per_grid: u32,
    pub(super) dtype: u32,
}

/// Marks the parameters of the kernels, and holds their sizes against those in the kernels' source.
macro_rules! params {
    ($($name:ident $bytes:literal),* $(,)?) => {
        $(
            // SAFETY: the fields are those of the struct of the same name in kernels/voxelize.cu.
            unsafe impl Params for $name {}
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
