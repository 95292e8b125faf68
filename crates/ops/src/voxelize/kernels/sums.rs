//! Adds points to the sums and extremes of their cells. Sums are of integers, so the order of the points does not
//! change a bit.

use super::BLOCK;

/// The points of a block that are in the grid: their indices in the block, and the ranks ("slots") of their cells.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    pub indices: &'a [u16],
    pub slots: &'a [u32],
}

impl Block<'_> {
    /// Iterates over the points: the index of each in the block, and the rank of its cell.
    #[inline(always)]
    pub(crate) fn points(&self) -> impl Iterator<Item = (usize, usize)> {
        let indices = self.indices.iter().map(|&i| usize::from(i));
        indices.zip(self.slots.iter().map(|&slot| slot as usize))
    }
}

multiversion! {
    /// True if any of the values is not finite.
    pub(crate) fn any_nonfinite(values: &[f32]) -> bool {
        let mut nonfinite = 0;
        for value in values {
            nonfinite |= 1 ^ u32::from(value.abs() <= f32::MAX);
        }
        nonfinite != 0
    }
}

multiversion! {
    /// True if any of the values is NaN, or greater than `bound` in magnitude.
    pub(crate) fn any_beyond(values: &[f64], bound: f64) -> bool {
        let mut beyond = 0;
        for value in values {
            beyond |= 1 ^ u64::from(value.abs() <= bound);
        }
        beyond != 0
    }
}

/// Rounds to the nearest integer, ties to even. The magnitude must be less than 2^51.
///
/// Adding 1.5 * 2^52 leaves no room for a fraction, and puts the integer into the low bits.
#[inline(always)]
pub(super) fn round(value: f64) -> i64 {
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    ((value + MAGIC).to_bits() as i64).wrapping_sub(MAGIC.to_bits() as i64)
}

/// Rounds to the nearest integer, ties to even. The magnitude must be at most 2^62.
pub(crate) fn round_large(value: f64) -> i64 {
    value.round_ties_even() as i64
}

multiversion! {
    /// Multiplies each value by `scale`, and rounds it to an integer.
    pub(crate) fn fix(values: &[f64], scale: f64, out: &mut [i64; BLOCK]) {
        for (out, value) in out.iter_mut().zip(values) {
            *out = round(value * scale);
        }
    }
}

/// Sums of a cell: the scaled x, y and z of its points, and their count.
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(32))]
pub(crate) struct Row(pub(in crate::voxelize) [i64; 4]);

impl Row {
    /// Index of the count in the row.
    pub(crate) const COUNT: usize = 3;
}

multiversion! {
    /// Adds the scaled coordinates of a block's points, and a count of 1 for each point, to the rows of their cells.
    pub(crate) fn add_points(rows: &mut [Row], block: Block<'_>, xyz: [&[f32]; 3], scales: [f64; 3]) {
        let n = xyz[0].len();
        let [x, y, z] = xyz.map(|axis| &axis[..n]);
        // The sum of ones is the count.
        let scales = [scales[0], scales[1], scales[2], 1.0];
        for (&i, &slot) in block.indices.iter().zip(block.slots) {
            let i = usize::from(i);
            let point = [x[i], y[i], z[i], 1.0];
            let Row(sums) = &mut rows[slot as usize];
            for lane in 0..4 {
                sums[lane] += round(f64::from(point[lane]) * scales[lane]);
            }
        }
    }
}

/// Adds 1 to the count of each point's cell.
pub(crate) fn add_ones(rows: &mut [Row], block: Block<'_>) {
    for &slot in block.slots {
        rows[slot as usize].0[Row::COUNT] += 1;
    }
}

/// Adds a value of each point, already rounded to an integer, to the sum of the point's cell.
pub(crate) fn add_fixed(sums: &mut [i64], block: Block<'_>, values: &[i64; BLOCK]) {
    for (i, slot) in block.points() {
        sums[slot] += values[i];
    }
}

/// Maps the bits of a float32 to an integer key. Keys sort as the floats do, with -0 before +0. The map is
/// its own inverse.
#[inline(always)]
pub(super) fn order_key(bits: i32) -> i32 {
    bits ^ (((bits >> 31) as u32) >> 1) as i32
}

/// Updates each cell's greatest value (`greatest`) or least value, stored as an [`order_key`], with its points' values.
/// NaN is skipped.
pub(crate) fn add_extreme(keys: &mut [i32], block: Block<'_>, values: &[f32], greatest: bool) {
    for (i, slot) in block.points() {
        if values[i].is_nan() {
            continue;
        }
        let key = order_key(values[i].to_bits() as i32);
        let best = &mut keys[slot];
        *best = if greatest { (*best).max(key) } else { (*best).min(key) };
    }
}

/// Parts of a field's values in a cell that the cell's int64 sum leaves out: the high bits of large values, and the
/// number of unusable values.
#[derive(Clone, Copy, Default)]
pub(crate) struct Exceptions {
    /// Sum of the high bits of values that are too large for the cell's sum, in units of 2^40.
    pub high: i64,
    /// Number of unusable values.
    pub unusable: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_takes_ties_to_even() {
        for (value, expected) in [
            (0.5, 0),
            (1.5, 2),
            (2.5, 2),
            (-0.5, 0),
            (-1.5, -2),
            (-2.4, -2),
            (2e15, 2_000_000_000_000_000),
        ] {
            assert_eq!(round(value), expected, "{value}");
            assert_eq!(round_large(value), expected, "{value}");
        }
        for (value, expected) in [
            (4_503_599_627_370_494.5, 4_503_599_627_370_494),
            (4_503_599_627_370_495.5, 4_503_599_627_370_496),
            (-4_503_599_627_370_495.5, -4_503_599_627_370_496),
            (4_611_686_018_427_387_904.0, 1 << 62),
        ] {
            assert_eq!(round_large(value), expected, "{value}");
        }
    }
}
