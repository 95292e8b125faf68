//! The loops that take the time, each compiled for any CPU and for AVX2; both give the same bits.

#[cfg(target_arch = "x86_64")]
#[path = "avx2.rs"]
mod avx2;

use super::grid::VoxelGrid;
use super::quantum;
use robocache_geometry::RigidTransform;

/// Points that are worked on at a time, so that what is known of them stays in the cache.
pub(super) const BLOCK: usize = 1024;

/// The positions of the bits that are set, ascending.
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

/// Whether the CPU has what the wide ways are compiled for.
#[cfg(target_arch = "x86_64")]
#[inline]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("popcnt")
}

/// Defines a function twice: for the target the crate is built for, and for an x86-64 CPU with AVX2, BMI and popcnt,
/// which is taken where it is one. No feature here changes a result: FMA is not among them.
macro_rules! kernel {
    ($(#[$meta:meta])* fn $name:ident($($arg:ident: $T:ty),* $(,)?) $(-> $R:ty)? $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        pub(super) fn $name($($arg: $T),*) $(-> $R)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn body($($arg: $T),*) $(-> $R)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
                #[allow(clippy::too_many_arguments)]
                fn wide($($arg: $T),*) $(-> $R)? {
                    body($($arg),*)
                }
                if has_avx2() {
                    // SAFETY: the CPU has the features that `wide` is compiled for.
                    return unsafe { wide($($arg),*) };
                }
            }
            body($($arg),*)
        }
    };
}

/// A bitmap and the bitmap of its words in use: cell `i` is bit `i % 64` of word `i / 64`, and so again.
pub(super) struct Bitmap<'a> {
    pub(super) words: &'a mut [u64],
    pub(super) used: &'a mut [u64],
}

/// The points of a block that are in the grid.
pub(super) struct Kept<'a> {
    /// Their cells.
    pub(super) cells: &'a mut [u32],
    /// Their indices in the block.
    pub(super) indices: &'a mut [u16],
}

/// The points of a block that are in the grid: their indices in the block, and the numbers of their cells.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    pub(super) indices: &'a [u16],
    pub(super) slots: &'a [u32],
}

impl Block<'_> {
    /// The index in the block and the number of the cell of each point.
    #[inline(always)]
    pub(super) fn points(&self) -> impl Iterator<Item = (usize, usize)> {
        let indices = self.indices.iter().map(|&i| usize::from(i));
        indices.zip(self.slots.iter().map(|&slot| slot as usize))
    }
}

/// What became of points.
#[derive(Clone, Copy, Default)]
pub(super) struct Indexed {
    pub(super) finite: u32,
    /// How many are in the grid.
    pub(super) kept: usize,
}

kernel! {
    /// Applies a transform to coordinates, in float32 and in this order.
    fn transform(transform: &RigidTransform<f32>, xyz: [&[f32]; 3], out: [&mut [f32]; 3]) {
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

/// Puts a cell into the bitmap.
///
/// # Safety
/// It is a cell of the grid that the bitmap was made for.
#[inline(always)]
pub(super) unsafe fn set_bit(words: &mut [u64], used: &mut [u64], cell: u32) {
    let word = cell as usize / 64;
    // SAFETY: there is a bit for each cell, and one for each word.
    unsafe {
        *words.get_unchecked_mut(word) |= 1 << (cell % 64);
        *used.get_unchecked_mut(word / 64) |= 1 << (word % 64);
    }
}

/// `kept` must have room for so many more than there are points.
pub(super) const INDEX_SLACK: usize = 16;

/// Finds the cells of a block of points, puts those in the grid into the bitmap, and lists them.
pub(super) fn index(grid: &VoxelGrid, xyz: [&[f32]; 3], bitmap: Bitmap<'_>, kept: Kept<'_>) -> Indexed {
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the CPU has the features.
        return unsafe { avx2::index(grid, xyz, bitmap, kept) };
    }
    index_portable(grid, xyz, bitmap, kept)
}

fn index_portable(grid: &VoxelGrid, xyz: [&[f32]; 3], bitmap: Bitmap<'_>, kept: Kept<'_>) -> Indexed {
    const LANES: usize = INDEX_SLACK;
    let ([ox, oy, oz], [ix, iy, iz]) = (grid.origin_m(), grid.inverse());
    let [sx, sy, sz] = grid.shape().map(|n| n as f32);
    let [_, ny, nz] = grid.shape().map(|n| n as u32);
    let mut indexed = Indexed::default();
    // What is missing of the last lanes is not finite.
    let mut lanes = [[f32::NAN; LANES]; 3];
    let (mut cells, mut keep) = ([0u32; LANES], [0u32; LANES]);
    for from in (0..xyz[0].len()).step_by(LANES) {
        for (lanes, values) in lanes.iter_mut().zip(xyz) {
            let values = &values[from..values.len().min(from + LANES)];
            lanes[..values.len()].copy_from_slice(values);
            lanes[values.len()..].fill(f32::NAN);
        }
        let [x, y, z] = &lanes;
        // Of arrays of a fixed size the compiler makes vectors.
        for i in 0..LANES {
            let finite = (x[i].abs() <= f32::MAX) & (y[i].abs() <= f32::MAX) & (z[i].abs() <= f32::MAX);
            let (tx, ty, tz) = ((x[i] - ox) * ix, (y[i] - oy) * iy, (z[i] - oz) * iz);
            // Comparing before the conversion keeps values out of it that an integer can't hold. Where t is not
            // negative, cutting the fraction off is the floor. A NaN is neither, and an infinity not both.
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
        // Without a branch: what is not kept sets no bit, and is written over by what comes next.
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

kernel! {
    /// Whether a value is not finite.
    fn any_nonfinite(values: &[f32]) -> bool {
        let mut nonfinite = 0;
        for value in values {
            nonfinite |= 1 ^ u32::from(value.abs() <= f32::MAX);
        }
        nonfinite != 0
    }
}

kernel! {
    /// Whether a value is NaN, or greater than `bound` in magnitude.
    fn any_beyond(values: &[f64], bound: f64) -> bool {
        let mut beyond = 0;
        for value in values {
            beyond |= 1 ^ u64::from(value.abs() <= bound);
        }
        beyond != 0
    }
}

/// Rounds to the nearest integer, ties to even. The magnitude must be less than 2^51.
///
/// Adding 1.5 * 2^52 leaves no place for a fraction, and the integer in the low bits.
#[inline(always)]
pub(super) fn round(value: f64) -> i64 {
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    ((value + MAGIC).to_bits() as i64).wrapping_sub(MAGIC.to_bits() as i64)
}

/// The same for magnitudes up to 2^62. From 2^50 on there is no fraction that needs the trick.
pub(super) fn round_large(value: f64) -> i64 {
    const FROM: f64 = 1_125_899_906_842_624.0;
    if value.abs() < FROM { round(value) } else { value as i64 }
}

kernel! {
    /// Rounds `values * scale` to integers.
    fn fix(values: &[f64], scale: f64, out: &mut [i64; BLOCK]) {
        for (out, value) in out.iter_mut().zip(values) {
            *out = round(value * scale);
        }
    }
}

/// Cells that are listed at a time. [`number`] needs room for so many more than there are.
pub(super) const LIST_STEP: usize = 4;

kernel! {
    /// Numbers the cells of a bitmap, an exclusive scan over its words; lists them, and returns how many there are.
    fn number(words: &[u64], used: &[u64], ranks: &mut [u32], list: &mut [u32]) -> usize {
        let mut rank = 0;
        // Loops and no closures: a closure is not compiled for the CPU that this is compiled for.
        for (group, &used) in used.iter().enumerate() {
            let mut left = used;
            while left != 0 {
                let i = group * 64 + left.trailing_zeros() as usize;
                left &= left - 1;
                ranks[i] = rank as u32;
                let mut word = words[i];
                let (mut at, first) = (rank, (i as u32).wrapping_mul(64));
                rank += word.count_ones() as usize;
                // A few at a time, without a branch for each: what is too much is written over by what comes next.
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

/// Divides by a number with a multiplication (Lemire, Kaser, Kurz: Faster remainder by direct computation, 2019).
#[derive(Clone, Copy)]
struct Divisor(u64);

impl Divisor {
    /// # Panics
    /// If it is zero.
    fn new(divisor: u32) -> Self {
        Self(u64::MAX / u64::from(divisor))
    }

    #[inline(always)]
    fn divide(self, value: u32) -> u32 {
        let value = u128::from(value);
        ((u128::from(self.0) * value + value) >> 64) as u32
    }
}

kernel! {
    /// The coordinates of cells, x y z each.
    fn coordinates(cells: &[u32], ny: u32, nz: u32, coords: &mut [i32]) {
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

/// The number of a cell of a bitmap.
#[inline(always)]
fn number_of(words: &[u64], ranks: &[u32], cell: u32) -> u32 {
    let word = cell as usize / 64;
    let below = words[word] & ((1 << (cell % 64)) - 1);
    ranks[word] + below.count_ones()
}

kernel! {
    /// The numbers of the cells of points, `limit` for those from `limit` on. Returns how many those are.
    fn find(words: &[u64], ranks: &[u32], cells: &[u32], limit: u32, slots: &mut [u32]) -> usize {
        let ranks = &ranks[..words.len()];
        let mut over = 0;
        for (&cell, slot) in cells.iter().zip(slots) {
            let number = number_of(words, ranks, cell);
            over += usize::from(number >= limit);
            *slot = number.min(limit);
        }
        over
    }
}

/// The sums of the scaled x, y and z of the points of a cell, and their count.
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(32))]
pub(super) struct Row(pub(super) [i64; 4]);

impl Row {
    /// Where the count is.
    pub(super) const COUNT: usize = 3;
}

kernel! {
    /// Sums the coordinates of points and counts them, with one addition of a row for each.
    fn add_points(rows: &mut [Row], block: Block<'_>, xyz: [&[f32]; 3], scales: [f64; 3]) {
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

/// Counts points.
pub(super) fn add_ones(rows: &mut [Row], block: Block<'_>) {
    for &slot in block.slots {
        rows[slot as usize].0[Row::COUNT] += 1;
    }
}

/// Sums the values of points that are integers already.
pub(super) fn add_fixed(sums: &mut [i64], block: Block<'_>, values: &[i64; BLOCK]) {
    for (i, slot) in block.points() {
        sums[slot] += values[i];
    }
}

/// An integer that is ordered as the value is, -0 before +0. It is its own inverse on the bits.
#[inline(always)]
pub(super) fn order_key(bits: i32) -> i32 {
    bits ^ (((bits >> 31) as u32) >> 1) as i32
}

/// Keeps the greatest (or the least) key of each cell, of the values that are no NaN.
pub(super) fn add_extreme(keys: &mut [i32], block: Block<'_>, values: &[f32], greatest: bool) {
    for (i, slot) in block.points() {
        if values[i].is_nan() {
            continue;
        }
        let key = order_key(values[i].to_bits() as i32);
        let best = &mut keys[slot];
        *best = if greatest { (*best).max(key) } else { (*best).min(key) };
    }
}

/// The constants of [`to_f64`].
pub(super) mod to_f64 {
    pub(in super::super) const HIGH: u64 = 0x4530_0000_0000_0000;
    pub(in super::super) const LOW: u64 = 0x4330_0000_0000_0000;
    /// 2^84 + 2^63 + 2^52
    pub(in super::super) const BIAS: f64 = 19_342_822_341_709_703_277_445_120.0;
}

/// The nearest float64, as `as f64` gives it, in operations that there are vectors for.
///
/// The halves are put into the mantissas of 2^84 and 2^52, from which subtraction takes them out exactly; the addition
/// rounds once.
#[inline(always)]
fn to_f64(value: i64) -> f64 {
    let high = f64::from_bits(((value as u64 ^ (1 << 63)) >> 32) | to_f64::HIGH);
    let low = f64::from_bits((value as u64 & 0xffff_ffff) | to_f64::LOW);
    (high - to_f64::BIAS) + low
}

kernel! {
    /// The counts.
    fn counts(rows: &[Row], out: &mut [f32]) {
        for (Row(sums), out) in rows.iter().zip(out) {
            *out = to_f64(sums[Row::COUNT]) as f32;
        }
    }
}

kernel! {
    /// The means of one coordinate.
    fn means_of_axis(rows: &[Row], axis: usize, unit: f64, out: &mut [f32]) {
        for (Row(sums), out) in rows.iter().zip(out) {
            *out = (to_f64(sums[axis & 3]) / to_f64(sums[Row::COUNT]) * unit) as f32;
        }
    }
}

kernel! {
    /// The means of a field.
    fn means(sums: &[i64], rows: &[Row], unit: f64, out: &mut [f32]) {
        for ((&sum, Row(of_row)), out) in sums.iter().zip(rows).zip(out) {
            *out = (to_f64(sum) / to_f64(of_row[Row::COUNT]) * unit) as f32;
        }
    }
}

/// What the sum of a field can't take in a cell.
#[derive(Clone, Copy, Default)]
pub(super) struct Exceptions {
    /// What is summed apart, in units of 2^40.
    pub(super) high: i64,
    /// The values that are unusable.
    pub(super) unusable: i64,
}

/// [`means`] of the usable values of cells with exceptions; 0 where there is none.
pub(super) fn means_of_usable(sums: &[i64], rows: &[Row], exceptions: &[Exceptions], unit: f64, out: &mut [f32]) {
    for (((&sum, Row(of_row)), exceptions), out) in sums.iter().zip(rows).zip(exceptions).zip(out) {
        let count = of_row[Row::COUNT] - exceptions.unusable;
        *out = if count == 0 {
            0.0
        } else {
            (quantum::join(exceptions.high, sum) / count as f64 * unit) as f32
        };
    }
}

/// What [`features`] can write of a row: the means of x, y and z, the count, and ones.
pub(super) const TABLE: usize = 8;
pub(super) const TABLE_COUNT: u8 = 3;
pub(super) const TABLE_ONE: u8 = 4;

/// Writes the features of rows: each column is the entry of the table that `columns` says.
pub(super) fn features(rows: &[Row], units: [f64; 3], columns: &[u8], out: &mut [f32]) {
    debug_assert!(columns.len() <= TABLE && out.len() == rows.len() * columns.len());
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the CPU has the features.
        return unsafe { avx2::features(rows, units, columns, out) };
    }
    features_portable(rows, units, columns, out);
}

fn features_portable(rows: &[Row], units: [f64; 3], columns: &[u8], out: &mut [f32]) {
    let mut table = [1.0f32; TABLE];
    for (row, out) in rows.iter().zip(out.chunks_exact_mut(columns.len())) {
        let sums = row.0.map(to_f64);
        for axis in 0..3 {
            table[axis] = (sums[axis] / sums[Row::COUNT] * units[axis]) as f32;
        }
        table[usize::from(TABLE_COUNT)] = sums[Row::COUNT] as f32;
        for (out, &column) in out.iter_mut().zip(columns) {
            *out = table[usize::from(column) % TABLE];
        }
    }
}

kernel! {
    /// The values of keys; 0 for the key that a cell begins with, which is that of a NaN.
    fn extremes(keys: &[i32], out: &mut [f32]) {
        for (&key, out) in keys.iter().zip(out) {
            let value = f32::from_bits(order_key(key) as u32);
            *out = if value.is_nan() { 0.0 } else { value };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers in -1..1 that look random, with what is not finite and what is on an edge among them.
    fn odd_values(seed: u64, len: usize) -> Vec<f32> {
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

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn cells_are_the_same_on_every_cpu() {
        if !has_avx2() {
            return;
        }
        let grid = VoxelGrid::new([-0.75; 3], [0.125, 0.25, 0.5], [12, 6, 3]);
        let words = grid.cells().div_ceil(64);
        for len in (0..70).chain([1000]) {
            let xyz = [1, 2, 3].map(|seed| odd_values(seed + len as u64, len));
            let xyz = xyz.each_ref().map(Vec::as_slice);
            let run = |is_wide: bool| {
                let (mut words, mut used) = (vec![0; words], vec![0; 1]);
                let (mut cells, mut indices) = (vec![0; len + INDEX_SLACK], vec![0; len + INDEX_SLACK]);
                let kept = Kept {
                    cells: &mut cells,
                    indices: &mut indices,
                };
                let bitmap = Bitmap {
                    words: &mut words,
                    used: &mut used,
                };
                let indexed = match is_wide {
                    // SAFETY: the CPU has the features.
                    true => unsafe { avx2::index(&grid, xyz, bitmap, kept) },
                    false => index_portable(&grid, xyz, bitmap, kept),
                };
                cells.truncate(indexed.kept);
                indices.truncate(indexed.kept);
                (indexed.finite, cells, indices, words, used)
            };
            assert_eq!(run(true), run(false), "{len} points");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn features_are_the_same_on_every_cpu() {
        if !has_avx2() {
            return;
        }
        let units = [-31, -32, -35].map(quantum::power_of_two);
        for columns in [&[4u8, 3, 0, 1, 2][..], &[3], &[2, 4], &[1, 0, 3]] {
            let rows = odd_values(7, 40).into_iter().enumerate().map(|(i, value)| {
                let sum = (f64::from(value) * 1e15) as i64;
                Row([sum, -sum / 3, i64::from(i as u32) << 37, i as i64 + 1])
            });
            let rows: Vec<_> = rows.collect();
            let run = |is_wide: bool| {
                let mut out = vec![f32::NAN; rows.len() * columns.len()];
                match is_wide {
                    // SAFETY: the CPU has the features.
                    true => unsafe { avx2::features(&rows, units, columns, &mut out) },
                    false => features_portable(&rows, units, columns, &mut out),
                }
                out.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            };
            assert_eq!(run(true), run(false), "{columns:?}");
        }
    }

    #[test]
    fn integers_become_the_nearest_float64() {
        let mut values = vec![
            0,
            1,
            -1,
            i64::MAX,
            i64::MIN,
            (1 << 53) + 1,
            -(1 << 53) - 1,
            (1 << 62) + 257,
        ];
        let bits = (0..64).map(|bit| 1i64 << bit);
        values.extend(bits.flat_map(|bit| [bit.wrapping_sub(1), -(bit >> 1) - 3]));
        values.extend((1..10_000i64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15u64 as i64) >> (i % 40)));
        for value in values {
            assert_eq!(to_f64(value).to_bits(), (value as f64).to_bits(), "{value}");
        }
    }

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
        }
    }
}
