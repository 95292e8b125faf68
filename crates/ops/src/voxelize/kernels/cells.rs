//! Finds the cells of points on the CPU, and ranks the occupied cells of a bitmap. Each point undergoes the same
//! float32 operations as on the device.

use super::super::grid::VoxelGrid;
use robocache_geometry::RigidTransform;

/// A bitmap of occupied cells, and a second bitmap of the words of the first that are in use. Cell or word `i` is bit
/// `i % 64` of word `i / 64`.
pub(crate) struct Bitmap<'a> {
    pub words: &'a mut [u64],
    pub used: &'a mut [u64],
}

/// Output lists for the points of a block that are in the grid. Each list is at least [`INDEX_SLACK`] elements longer
/// than the block.
pub(crate) struct Kept<'a> {
    /// Cells of the points that are in the grid.
    pub cells: &'a mut [u32],
    /// Indices, within the block, of the points that are in the grid.
    pub indices: &'a mut [u16],
}

/// Counts of a block's points: those with finite coordinates, and those in the grid.
#[derive(Clone, Copy, Default)]
pub(crate) struct Indexed {
    pub finite: u32,
    /// Number of points in the grid.
    pub kept: usize,
}

multiversion! {
    /// Applies a rigid transform to coordinates in float32. The order of the operations is the same as on the device.
    pub(crate) fn transform(transform: &RigidTransform<f32>, xyz: [&[f32]; 3], out: [&mut [f32]; 3]) {
        let n = xyz[0].len();
        let [x, y, z] = xyz.map(|axis| &axis[..n]);
        for (axis, out) in out.into_iter().enumerate() {
            let ([r0, r1, r2], t) = (transform.rotation[axis], transform.translation[axis]);
            for (i, out) in out[..n].iter_mut().enumerate() {
                *out = ((r0 * x[i] + r1 * y[i]) + r2 * z[i]) + t;
            }
        }
    }
}

/// Marks a cell as occupied in the bitmap `words`, and its word in `used`.
///
/// # Safety
/// `cell` is a cell of the grid that the bitmap was made for.
#[inline(always)]
pub(super) unsafe fn set_bit(words: &mut [u64], used: &mut [u64], cell: u32) {
    let word = cell as usize / 64;
    // SAFETY: there is a bit for each cell, and one for each word.
    unsafe {
        *words.get_unchecked_mut(word) |= 1 << (cell % 64);
        *used.get_unchecked_mut(word / 64) |= 1 << (word % 64);
    }
}

/// Number of elements that the lists of [`Kept`] need beyond the number of points, because points are processed in
/// groups of this size.
pub(crate) const INDEX_SLACK: usize = 16;

/// Finds the cell of each point of a block. Marks the cells inside the grid in `bitmap`, and lists these cells and
/// their points in `kept`.
pub(super) fn index(grid: &VoxelGrid, xyz: [&[f32]; 3], bitmap: Bitmap<'_>, kept: Kept<'_>) -> Indexed {
    const LANES: usize = INDEX_SLACK;
    let ([ox, oy, oz], [ix, iy, iz]) = (grid.origin_m(), grid.inverse());
    let [sx, sy, sz] = grid.shape().map(|n| n as f32);
    let [_, ny, nz] = grid.shape().map(|n| n as u32);
    let mut indexed = Indexed::default();
    // The last lanes are padded with NaN.
    let mut lanes = [[f32::NAN; LANES]; 3];
    let (mut cells, mut keep) = ([0u32; LANES], [0u32; LANES]);
    for from in (0..xyz[0].len()).step_by(LANES) {
        for (lanes, values) in lanes.iter_mut().zip(xyz) {
            let values = &values[from..values.len().min(from + LANES)];
            lanes[..values.len()].copy_from_slice(values);
            lanes[values.len()..].fill(f32::NAN);
        }
        let [x, y, z] = &lanes;
        // The compiler vectorizes this loop over arrays of a fixed size.
        for i in 0..LANES {
            let finite = (x[i].abs() <= f32::MAX) & (y[i].abs() <= f32::MAX) & (z[i].abs() <= f32::MAX);
            let (tx, ty, tz) = ((x[i] - ox) * ix, (y[i] - oy) * iy, (z[i] - oz) * iz);
            // Compared before the conversion, so that no value is converted that an integer can't hold. If t is not
            // negative, truncation is the floor. A NaN fails both comparisons, an infinity one of them.
            let inside = (tx >= 0.0) & (tx < sx) & (ty >= 0.0) & (ty < sy) & (tz >= 0.0) & (tz < sz);
            let cell = |t: f32| {
                let t = if inside { t } else { 0.0 };
                // SAFETY: t is 0 or in 0..shape, and shape is at most 2^24.
                unsafe { t.to_int_unchecked::<i32>() as u32 }
            };
            cells[i] = cell(tx)
                .wrapping_mul(ny)
                .wrapping_add(cell(ty))
                .wrapping_mul(nz)
                .wrapping_add(cell(tz));
            keep[i] = u32::from(inside);
            indexed.finite += u32::from(finite);
        }
        // Without a branch: a point that is not kept sets no bit, and the next point overwrites its entry.
        for (i, (&cell, &keep)) in cells.iter().zip(&keep).enumerate() {
            let word = cell as usize / 64;
            bitmap.words[word] |= u64::from(keep) << (cell % 64);
            bitmap.used[word / 64] |= u64::from(keep) << (word % 64);
            kept.cells[indexed.kept] = cell;
            kept.indices[indexed.kept] = (from + i) as u16;
            indexed.kept += keep as usize;
        }
    }
    indexed
}

/// Number of cells that [`rank`] writes to its list at a time. The list needs room for as many elements beyond
/// the occupied cells.
pub(crate) const LIST_STEP: usize = 4;

multiversion! {
    /// Ranks the occupied cells of a bitmap by an exclusive scan. Writes the number of occupied cells before each word
    /// to `ranks`, and the indices of the cells to `list`. Returns the number of cells.
    pub(crate) fn rank(words: &[u64], used: &[u64], ranks: &mut [u32], list: &mut [u32]) -> usize {
        let mut rank = 0;
        // Loops instead of closures: a closure is not compiled with the target features of this function.
        for (group, &used) in used.iter().enumerate() {
            let mut left = used;
            while left != 0 {
                let i = group * 64 + left.trailing_zeros() as usize;
                left &= left - 1;
                ranks[i] = rank as u32;
                let mut word = words[i];
                let (mut at, first) = (rank, (i as u32).wrapping_mul(64));
                rank += word.count_ones() as usize;
                // A few cells at a time, without a branch for each: the next cells overwrite the surplus entries.
                while at < rank {
                    for cell in &mut list[at..at + LIST_STEP] {
                        *cell = first.wrapping_add(word.trailing_zeros());
                        word &= word.wrapping_sub(1);
                    }
                    at += LIST_STEP;
                }
            }
        }
        rank
    }
}

/// Divisor of u32 numbers. A division is done by multiplication (Lemire, Kaser, Kurz: Faster remainder by
/// direct computation, 2019).
#[derive(Clone, Copy)]
struct Divisor(u64);

impl Divisor {
    /// Computes the multiplier for divisions by `divisor`.
    ///
    /// # Panics
    /// If `divisor` is zero.
    fn new(divisor: u32) -> Self {
        Self(u64::MAX / u64::from(divisor))
    }

    #[inline(always)]
    fn divide(self, value: u32) -> u32 {
        let value = u128::from(value);
        ((u128::from(self.0) * value + value) >> 64) as u32
    }
}

multiversion! {
    /// Splits each cell index into the cell's x, y and z, and writes them to `coords`.
    pub(crate) fn coordinates(cells: &[u32], ny: u32, nz: u32, coords: &mut [i32]) {
        let (by_ny, by_nz) = (Divisor::new(ny), Divisor::new(nz));
        for (&cell, out) in cells.iter().zip(coords.chunks_exact_mut(3)) {
            let column = by_nz.divide(cell);
            let x = by_ny.divide(column);
            out[0] = x as i32;
            out[1] = column.wrapping_sub(x.wrapping_mul(ny)) as i32;
            out[2] = cell.wrapping_sub(column.wrapping_mul(nz)) as i32;
        }
    }
}

/// Returns the rank of a cell: the number of occupied cells before it.
#[inline(always)]
fn rank_of(words: &[u64], ranks: &[u32], cell: u32) -> u32 {
    let word = cell as usize / 64;
    let below = words[word] & ((1 << (cell % 64)) - 1);
    ranks[word] + below.count_ones()
}

multiversion! {
    /// Writes the rank of each point's cell to `slots`, or `limit` if the rank is `limit` or greater. Returns the
    /// number of points whose rank was limited.
    pub(crate) fn find(words: &[u64], ranks: &[u32], cells: &[u32], limit: u32, slots: &mut [u32]) -> usize {
        let ranks = &ranks[..words.len()];
        let mut over = 0;
        for (&cell, slot) in cells.iter().zip(slots) {
            let rank = rank_of(words, ranks, cell);
            over += usize::from(rank >= limit);
            *slot = rank.min(limit);
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiplication_divides() {
        let odd = |i: u32| i.wrapping_mul(0x9e37_79b9) >> (i % 29);
        let values = [0, 1, 2, 3, 255, 256, 257, u32::MAX - 1, u32::MAX];
        let values: Vec<_> = values.into_iter().chain((1..500).map(odd)).collect();
        for &divisor in values.iter().filter(|&&divisor| divisor > 0) {
            for &value in &values {
                assert_eq!(
                    Divisor::new(divisor).divide(value),
                    value / divisor,
                    "{value} / {divisor}"
                );
            }
        }
    }
}
