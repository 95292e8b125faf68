//! Hot loops of voxel grids on the CPU. Each is compiled for any CPU and for AVX2, with the same bits.

use super::grid::VoxelGrid;
#[cfg(target_arch = "x86_64")]
use crate::simd::has_avx2;

#[cfg(target_arch = "x86_64")]
mod avx2;
mod cells;
mod sums;
mod values;

pub(super) use cells::{Bitmap, INDEX_SLACK, Indexed, Kept, LIST_STEP, coordinates, find, rank, transform};
pub(super) use sums::{
    Block, Exceptions, Row, add_extreme, add_fixed, add_ones, add_points, any_beyond, any_nonfinite, fix, round_large,
};
pub(super) use values::{TABLE_COUNT, TABLE_ONE, counts, extremes, means, means_of_axis, means_of_usable};

/// Number of points that are processed together: few enough that their data stays in the cache.
pub(super) const BLOCK: usize = 1024;

/// Iterates over the positions of the set bits of `word`, ascending.
#[inline(always)]
pub(super) fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (word != 0).then(|| {
            let bit = word.trailing_zeros() as usize;
            word &= word - 1;
            bit
        })
    })
}

/// Finds the cell of each point of a block. Marks the cells inside the grid in `bitmap`, and lists these cells and
/// their points in `kept`.
pub(super) fn index(grid: &VoxelGrid, xyz: [&[f32]; 3], bitmap: Bitmap<'_>, kept: Kept<'_>) -> Indexed {
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the CPU has the features.
        return unsafe { avx2::index(grid, xyz, bitmap, kept) };
    }
    cells::index(grid, xyz, bitmap, kept)
}

/// Writes the features (channel values) of the occupied cells `rows`. Feature `i` is entry `columns[i]` of a cell's
/// table: mean x, y and z, count, 1. In the integer sums of x, y and z, 1 stands for the lengths `units`, metres.
pub(super) fn features(rows: &[Row], units: [f64; 3], columns: &[u8], out: &mut [f32]) {
    debug_assert!(columns.len() <= values::TABLE && out.len() == rows.len() * columns.len());
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the CPU has the features.
        return unsafe { avx2::features(rows, units, columns, out) };
    }
    values::features(rows, units, columns, out);
}

#[cfg(test)]
mod tests {
    /// Returns pseudo-random numbers in -1..1, mixed with values that are not finite, a huge value, and 0.75 and -0.0,
    /// which may lie on the edge of a cell.
    pub(super) fn odd_values(seed: u64, len: usize) -> Vec<f32> {
        let value = |i: u64| {
            let bits = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_mul(seed | 1) >> 40;
            match bits % 37 {
                0 => f32::NAN,
                1 => f32::INFINITY,
                2 => f32::NEG_INFINITY,
                3 => -0.0,
                4 => 0.75,
                5 => 3.4e38,
                _ => bits as f32 / (1 << 23) as f32 - 1.0,
            }
        };
        (0..len as u64).map(value).collect()
    }
}
