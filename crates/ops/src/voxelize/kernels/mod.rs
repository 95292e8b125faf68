//! The hot loops of voxel grids on the CPU, each compiled for any CPU and for AVX2, with the same bits.

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

/// Number of points of a block: few enough that their data stays in the cache.
pub(super) const BLOCK: usize = 1024;

/// The positions of the bits that are set in `word`, ascending.
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

/// Finds the cells of a block of points. Marks the cells of the points in the grid in the bitmap, and lists these cells
/// and points in `kept`.
pub(super) fn index(grid: &VoxelGrid, xyz: [&[f32]; 3], bitmap: Bitmap<'_>, kept: Kept<'_>) -> Indexed {
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the CPU has the features.
        return unsafe { avx2::index(grid, xyz, bitmap, kept) };
    }
    cells::index(grid, xyz, bitmap, kept)
}

/// Writes the features of rows. Feature `i` is entry `columns[i]` of the row's table: mean x, y and z, count, 1.
/// `units` are the values of 1 in the sums of x, y and z.
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
    /// Pseudo-random numbers in -1..1, among them values that are not finite, a huge value, and 0.75 and -0.0, which
    /// may lie on the edge of a cell.
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
