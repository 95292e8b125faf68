//! Scaling of field values to integers, whose sums are exact. A value is summed as the integer nearest to
//! `value * 2^s`, where s depends on the type of the field. No sum of a grid's points overflows.

use robocache_device::Dtype;

/// Greatest magnitude, 2^40, of a scaled value that is summed whole: an int64 holds the sum of 2^22 such values.
pub(super) const SMALL: f64 = 1_099_511_627_776.0;
/// Greatest magnitude, 2^62, of a usable scaled value. Of a value over [`SMALL`], the low [`LOW_BITS`] bits are added
/// to the sum, and the high bits to a second sum.
pub(super) const LARGE: f64 = 4_611_686_018_427_387_904.0;
/// Number of low bits of a large scaled value that are added to the main sum.
const LOW_BITS: u32 = 40;

/// True if the type is a 32- or 64-bit integer. Every other type has the scale of float32.
pub(super) fn is_wide(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::Int32 | Dtype::Int64 | Dtype::UInt32 | Dtype::UInt64)
}

/// Returns the exponent s with which a field is summed: as the integers nearest to `value * 2^s`. `wide` is the
/// result of [`is_wide`].
pub(super) fn bits(wide: bool) -> i32 {
    if wide { 0 } else { 22 }
}

/// Splits an integer into its high bits, in units of 2^40, and its low 40 bits, which are summed separately.
pub(super) fn split(integer: i64) -> (i64, i64) {
    (integer >> LOW_BITS, integer & ((1 << LOW_BITS) - 1))
}

/// Returns the float64 nearest to `high * 2^40 + low`. The magnitude of `high` must be at most 2^52.
#[inline(always)]
pub(super) fn join(high: i64, low: i64) -> f64 {
    let (carry, low) = split(low);
    // Both terms are exact, so that only their sum is rounded.
    (high + carry) as f64 * SMALL + low as f64
}

/// Returns exactly `2^n`. n must be the exponent of a normal float64: -1022 to 1023.
pub(super) fn power_of_two(n: i32) -> f64 {
    debug_assert!((-1022..=1023).contains(&n));
    f64::from_bits(((1023 + n) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_split_is_joined_to_the_nearest_float64() {
        for integer in [
            0,
            1,
            -1,
            1 << 40,
            -(1 << 40) - 1,
            (1 << 62) - 1,
            -(1 << 62),
            (1 << 53) + 1,
            3 << 52,
        ] {
            let (high, low) = split(integer);
            assert!((0..1 << 40).contains(&low));
            assert_eq!(join(high, low), integer as f64, "{integer}");
            // The sum of 2^20 such integers.
            let sum = i128::from(integer) << 20;
            assert_eq!(join(high << 20, low << 20), sum as f64, "{integer}");
        }
    }
}
