//! Computes the values of channels from the sums and extremes of cells. A cell without a usable value gets 0, not NaN.

use super::super::quantum;
use super::sums::{Exceptions, Row, order_key};

/// Constants of the function `to_f64`: the bit patterns of 2^84 and 2^52, and the bias that it subtracts.
pub(super) mod to_f64 {
    pub(crate) const HIGH: u64 = 0x4530_0000_0000_0000;
    pub(crate) const LOW: u64 = 0x4330_0000_0000_0000;
    /// Bias that the function `to_f64` subtracts: 2^84 + 2^63 + 2^52.
    pub(crate) const BIAS: f64 = 19_342_822_341_709_703_277_445_120.0;
}

/// Converts an integer to the nearest float64, as `as f64` does, but in operations that vectorize.
///
/// The high and low 32 bits become the low mantissa bits of 2^84 and 2^52. The subtraction of the bias is exact, and
/// the addition rounds once.
#[inline(always)]
fn to_f64(value: i64) -> f64 {
    let high = f64::from_bits(((value as u64 ^ (1 << 63)) >> 32) | to_f64::HIGH);
    let low = f64::from_bits((value as u64 & 0xffff_ffff) | to_f64::LOW);
    (high - to_f64::BIAS) + low
}

multiversion! {
    /// Writes the number of points of each cell, as float32.
    pub(crate) fn counts(rows: &[Row], out: &mut [f32]) {
        for (Row(sums), out) in rows.iter().zip(out) {
            *out = to_f64(sums[Row::COUNT]) as f32;
        }
    }
}

multiversion! {
    /// Writes each cell's mean of one coordinate, metres. In the integer sums, 1 stands for the length `unit`, metres.
    pub(crate) fn means_of_axis(rows: &[Row], axis: usize, unit: f64, out: &mut [f32]) {
        for (Row(sums), out) in rows.iter().zip(out) {
            *out = (to_f64(sums[axis & 3]) / to_f64(sums[Row::COUNT]) * unit) as f32;
        }
    }
}

multiversion! {
    /// Writes each cell's mean of a field. All values must be usable and fit their sum. In `sums`, 1 stands for
    /// the value `unit`.
    pub(crate) fn means(sums: &[i64], rows: &[Row], unit: f64, out: &mut [f32]) {
        for ((&sum, Row(of_row)), out) in sums.iter().zip(rows).zip(out) {
            *out = (to_f64(sum) / to_f64(of_row[Row::COUNT]) * unit) as f32;
        }
    }
}

/// Writes each cell's mean of a field's usable values; 0 if it has none. Each element of `exceptions` has a cell's
/// number of unusable values, and the high bits of values too large for the sum.
pub(crate) fn means_of_usable(sums: &[i64], rows: &[Row], exceptions: &[Exceptions], unit: f64, out: &mut [f32]) {
    for (((&sum, Row(of_row)), exceptions), out) in sums.iter().zip(rows).zip(exceptions).zip(out) {
        let count = of_row[Row::COUNT] - exceptions.unusable;
        *out = if count == 0 {
            0.0
        } else {
            (quantum::join(exceptions.high, sum) / count as f64 * unit) as f32
        };
    }
}

/// Number of entries of a cell's table in [`features`]: mean x, y and z, the count, 1, and padding of ones.
pub(super) const TABLE: usize = 8;
/// Index of the count of points in a cell's table.
pub(crate) const TABLE_COUNT: u8 = 3;
/// Index of the constant 1 in a cell's table.
pub(crate) const TABLE_ONE: u8 = 4;

/// Writes the features (channel values) of the occupied cells `rows`. Feature `i` is entry `columns[i]` of a cell's
/// table: mean x, y and z, count, 1. In the integer sums of x, y and z, 1 stands for the lengths `units`, metres.
pub(super) fn features(rows: &[Row], units: [f64; 3], columns: &[u8], out: &mut [f32]) {
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

multiversion! {
    /// Converts the integer keys of greatest or least values back to values. A cell's initial key, which stands for
    /// NaN, becomes 0.
    pub(crate) fn extremes(keys: &[i32], out: &mut [f32]) {
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
        let bits = (0..64).map(|bit| 1i64 << bit);
        values.extend(bits.flat_map(|bit| [bit.wrapping_sub(1), -(bit >> 1) - 3]));
        values.extend((1..10_000i64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15u64 as i64) >> (i % 40)));
        for value in values {
            assert_eq!(to_f64(value).to_bits(), (value as f64).to_bits(), "{value}");
        }
    }
}
