//! The loops that take the time, each compiled for any CPU and for AVX2; both give the same bits.

use super::grid::{Grid, Transform};
use super::quantum;

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
                if is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("popcnt")
                {
                    // SAFETY: the CPU has the features that `wide` is compiled for.
                    return unsafe { wide($($arg),*) };
                }
            }
            body($($arg),*)
        }
    };
}

/// What became of the points of a block.
#[derive(Clone, Copy, Default)]
pub(super) struct Sorted {
    pub(super) nonfinite: u32,
    pub(super) outside: u32,
}

kernel! {
    /// Applies a transform to coordinates, in float32 and in this order.
    fn transform(transform: &Transform, xyz: [&[f32]; 3], out: &mut [[f32; BLOCK]; 3]) {
        let n = xyz[0].len().min(BLOCK);
        let [x, y, z] = xyz.map(|axis| &axis[..n]);
        for (axis, out) in out.iter_mut().enumerate() {
            let ([r0, r1, r2], t) = (transform.rotation[axis], transform.translation[axis]);
            for (i, out) in out[..n].iter_mut().enumerate() {
                *out = ((r0 * x[i] + r1 * y[i]) + r2 * z[i]) + t;
            }
        }
    }
}

kernel! {
    /// Finds the cells of points: `keep` becomes 1 where there is one, 0 elsewhere.
    fn index(grid: &Grid, xyz: [&[f32]; 3], cells: &mut [u32; BLOCK], keep: &mut [u32; BLOCK]) -> Sorted {
        let n = xyz[0].len().min(BLOCK);
        let [x, y, z] = xyz.map(|axis| &axis[..n]);
        let ([ox, oy, oz], [ix, iy, iz]) = (grid.origin_m(), grid.inverse());
        let [sx, sy, sz] = grid.shape().map(|n| n as f32);
        let [_, ny, nz] = grid.shape().map(|n| n as u32);
        let (cells, keep) = (&mut cells[..n], &mut keep[..n]);
        let (mut finite_points, mut inside_points) = (0u32, 0u32);
        for i in 0..n {
            let finite = (x[i].abs() <= f32::MAX) & (y[i].abs() <= f32::MAX) & (z[i].abs() <= f32::MAX);
            let (tx, ty, tz) = ((x[i] - ox) * ix, (y[i] - oy) * iy, (z[i] - oz) * iz);
            // Comparing before the conversion keeps values out of it that an integer can't hold. Where t is not
            // negative, cutting the fraction off is the floor.
            let inside = (tx >= 0.0) & (tx < sx) & (ty >= 0.0) & (ty < sy) & (tz >= 0.0) & (tz < sz) & finite;
            let cell = |t: f32| {
                let t = if inside { t } else { 0.0 };
                // SAFETY: t is 0 or in 0..shape, and shape is at most 2^24.
                unsafe { t.to_int_unchecked::<i32>() as u32 }
            };
            cells[i] = cell(tx).wrapping_mul(ny).wrapping_add(cell(ty)).wrapping_mul(nz).wrapping_add(cell(tz));
            keep[i] = u32::from(inside);
            finite_points += u32::from(finite);
            inside_points += u32::from(inside);
        }
        Sorted {
            nonfinite: n as u32 - finite_points,
            outside: finite_points - inside_points,
        }
    }
}

kernel! {
    /// How many values of points that are kept are not finite.
    fn count_nonfinite(values: &[f32], keep: &[u32]) -> u32 {
        let mut nonfinite = 0;
        for (value, keep) in values.iter().zip(keep) {
            nonfinite += keep & (1 ^ u32::from(value.abs() <= f32::MAX));
        }
        nonfinite
    }
}

kernel! {
    /// How many values of points that are kept are NaN, or greater than `bound` in magnitude.
    fn count_beyond(values: &[f64], bound: f64, keep: &[u32]) -> u32 {
        let mut beyond = 0;
        for (value, keep) in values.iter().zip(keep) {
            beyond += keep & (1 ^ u32::from(value.abs() <= bound));
        }
        beyond
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

/// Appends the values of the points that are kept.
#[inline]
pub(super) fn append<T: Copy + Default>(to: &mut Vec<T>, values: &[T], keep: &[u32], kept: usize) {
    if kept == values.len() {
        to.extend_from_slice(values);
        return;
    }
    let from = to.len();
    // One place more: what is not kept is written too, and then over again.
    to.resize(from + kept + 1, T::default());
    let out = &mut to[from..];
    let mut next = 0;
    for (value, &keep) in values.iter().zip(keep) {
        out[next] = *value;
        next += keep as usize;
    }
    to.truncate(from + kept);
}

kernel! {
    fn set_bits(words: &mut [u64], used: &mut [u64], cells: &[u32]) {
        for &cell in cells {
            let word = cell as usize / 64;
            words[word] |= 1 << (cell % 64);
            used[word / 64] |= 1 << (word % 64);
        }
    }
}

kernel! {
    fn number(words: &[u64], used: &[u64], ranks: &mut [u32], limit: usize, order: &mut Vec<u32>) -> usize {
        order.clear();
        let mut rank = 0;
        // Loops and no closures: a closure is not compiled for the CPU that this is compiled for.
        for (group, &used) in used.iter().enumerate() {
            let mut left = used;
            while left != 0 {
                let i = group * 64 + left.trailing_zeros() as usize;
                left &= left - 1;
                let mut word = words[i];
                let count = word.count_ones() as usize;
                ranks[i] = rank as u32;
                if rank < limit {
                    if order.len() < rank + 64 {
                        order.resize((rank + 64) * 2, 0);
                    }
                    // Most words have one cell or two. The second is written in any case, and over again if it is none.
                    for cell in &mut order[rank..rank + count.max(2)] {
                        *cell = (i as u32 * 64).wrapping_add(word.trailing_zeros());
                        word &= word.wrapping_sub(1);
                    }
                }
                rank += count;
            }
        }
        order.truncate(limit.min(rank));
        rank
    }
}

kernel! {
    fn find(words: &[u64], ranks: &[u32], limit: u32, cells: &mut [u32]) -> usize {
        let mut over = 0;
        for cell in cells {
            let word = *cell as usize / 64;
            let below = words[word] & ((1 << (*cell % 64)) - 1);
            let number = ranks[word] + below.count_ones();
            over += usize::from(number >= limit);
            *cell = number.min(limit);
        }
        over
    }
}

kernel! {
    /// Counts the points of each cell and sums their coordinates, into the first 4 of `stride` sums for each cell.
    fn add_points(sums: &mut [i64], stride: usize, slots: &[u32], xyz: [&[f32]; 3], scales: [f64; 3]) {
        // Rounded by blocks first, which is done in vectors; the sums are not.
        const PART: usize = 128;
        let mut fixed = [[1i64; 4]; PART];
        for (i, slots) in slots.chunks(PART).enumerate() {
            let from = i * PART;
            for (axis, (values, scale)) in xyz.into_iter().zip(scales).enumerate() {
                for (out, &value) in fixed.iter_mut().zip(&values[from..from + slots.len()]) {
                    out[1 + axis] = round(f64::from(value) * scale);
                }
            }
            for (point, &slot) in fixed.iter().zip(slots) {
                for (sum, value) in sums[slot as usize * stride..][..4].iter_mut().zip(point) {
                    *sum += value;
                }
            }
        }
    }
}

/// Counts the points of each cell in the first of `stride` sums for each.
pub(super) fn add_ones(sums: &mut [i64], stride: usize, slots: &[u32]) {
    for &slot in slots {
        sums[slot as usize * stride] += 1;
    }
}

/// Sums one coordinate in plane `plane`.
pub(super) fn add_axis(sums: &mut [i64], stride: usize, plane: usize, slots: &[u32], values: &[f32], scale: f64) {
    for (&slot, &value) in slots.iter().zip(values) {
        sums[slot as usize * stride + plane] += round(f64::from(value) * scale);
    }
}

/// Sums values that are integers already in plane `plane`.
pub(super) fn add_fixed(sums: &mut [i64], stride: usize, plane: usize, slots: &[u32], values: &[i64]) {
    for (&slot, value) in slots.iter().zip(values) {
        sums[slot as usize * stride + plane] += value;
    }
}

/// An integer that is ordered as the value is, -0 before +0. It is its own inverse on the bits.
#[inline(always)]
pub(super) fn order_key(bits: i32) -> i32 {
    bits ^ (((bits >> 31) as u32) >> 1) as i32
}

/// Keeps the greatest (or the least) key of each cell, of the values that are no NaN.
pub(super) fn add_extreme(keys: &mut [i32], slots: &[u32], values: &[f32], greatest: bool) {
    for (&slot, value) in slots.iter().zip(values) {
        if value.is_nan() {
            continue;
        }
        let key = order_key(value.to_bits() as i32);
        let best = &mut keys[slot as usize];
        *best = if greatest { (*best).max(key) } else { (*best).min(key) };
    }
}

kernel! {
    /// The coordinates of cells that are in ascending order.
    fn coordinates(order: &[u32], ny: u32, nz: u32, coords: &mut [i32]) {
        // Neighbours in this order are mostly in one column along z, and columns in one plane: divisions are few.
        let (mut x, mut y, mut plane, mut column) = (0, 0, 0, 0);
        for (&cell, out) in order.iter().zip(coords.chunks_exact_mut(3)) {
            let mut z = cell - column * nz;
            if z >= nz {
                column = cell / nz;
                z = cell - column * nz;
                y = column - plane;
                if y >= ny {
                    x = column / ny;
                    plane = x * ny;
                    y = column - plane;
                }
            }
            out.copy_from_slice(&[x as i32, y as i32, z as i32]);
        }
    }
}

/// The nearest float64, as `as f64` gives it, in operations that there are vectors for.
///
/// The halves are put into the mantissas of 2^84 and 2^52, from which subtraction takes them out exactly; the addition
/// rounds once.
#[inline(always)]
fn to_f64(value: i64) -> f64 {
    const HIGH: u64 = 0x4530_0000_0000_0000;
    const LOW: u64 = 0x4330_0000_0000_0000;
    // 2^84 + 2^63 + 2^52
    const BIAS: f64 = 19_342_822_341_709_703_277_445_120.0;
    let high = f64::from_bits(((value as u64 ^ (1 << 63)) >> 32) | HIGH);
    let low = f64::from_bits((value as u64 & 0xffff_ffff) | LOW);
    (high - BIAS) + low
}

kernel! {
    /// The counts as they are, and sum plane `plane` over the counts for others.
    fn means(sums: &[i64], stride: usize, plane: usize, unit: f64, out: &mut [f32]) {
        for (sums, out) in sums.chunks_exact(stride).zip(out) {
            *out = match plane {
                0 => sums[0] as f32,
                _ => (to_f64(sums[plane]) / to_f64(sums[0]) * unit) as f32,
            };
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
pub(super) fn means_of_usable(
    sums: &[i64],
    stride: usize,
    plane: usize,
    unit: f64,
    exceptions: &[Exceptions],
    out: &mut [f32],
) {
    for ((sums, exceptions), out) in sums.chunks_exact(stride).zip(exceptions).zip(out) {
        let count = sums[0] - exceptions.unusable;
        let sum = quantum::join(exceptions.high, sums[plane]);
        *out = if count == 0 {
            0.0
        } else {
            (sum / count as f64 * unit) as f32
        };
    }
}

kernel! {
    /// The counts and the means of planes 1 to 3, a row for each cell.
    fn rows(sums: &[i64], stride: usize, units: [f64; 3], out: &mut [[f32; 4]]) {
        for (sums, out) in sums.chunks_exact(stride).zip(out) {
            let mut values = [0.0; 4];
            for (value, &sum) in values.iter_mut().zip(&sums[..4]) {
                *value = to_f64(sum);
            }
            let [x, y, z] = units;
            let (over, units) = ([1.0, values[0], values[0], values[0]], [1.0, x, y, z]);
            for (plane, out) in out.iter_mut().enumerate() {
                *out = (values[plane] / over[plane] * units[plane]) as f32;
            }
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
        values.extend((0..64).flat_map(|bit| [1i64.wrapping_shl(bit) - 1, -(1i64.wrapping_shl(bit) >> 1) - 3]));
        values.extend((1..10_000i64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15u64 as i64) >> (i % 40)));
        for value in values {
            assert_eq!(to_f64(value).to_bits(), (value as f64).to_bits(), "{value}");
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
