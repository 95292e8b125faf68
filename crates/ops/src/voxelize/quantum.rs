//! Integers in which the values of a field are summed: the nearest to `value * 2^s`, where s depends on the type of the
//! field. No sum of a grid's points overflows.

use robocache_device::Dtype;

/// The greatest magnitude of a scaled value that is summed as it is: an int64 holds the sum of 2^22 such values.
pub(super) const SMALL: f64 = 1_099_511_627_776.0;
/// The greatest magnitude of a scaled value that is summed at all. If the value is over [`SMALL`], the sum takes its low
/// [`LOW_BITS`] bits, and the high bits are summed apart.
pub(super) const LARGE: f64 = 4_611_686_018_427_387_904.0;
/// Number of low bits of a scaled value over [`SMALL`] that the sum takes.
const LOW_BITS: u32 = 40;

/// True if the type is a 32- or 64-bit integer. Every other type has the scale of float32.
pub(super) fn is_wide(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::Int32 | Dtype::Int64 | Dtype::UInt32 | Dtype::UInt64)
}

/// The number s for which a field's value is summed as the integer nearest to `value * 2^s`. `wide` comes from
/// [`is_wide`].
pub(super) fn bits(wide: bool) -> i32 {
    if wide { 0 } else { 22 }
}

/// Splits an integer into the high part, in units of 2^40, which is summed apart, and the low part, which the sum takes.
pub(super) fn split(integer: i64) -> (i64, i64) {
    (integer >> LOW_BITS, integer & ((1 << LOW_BITS) - 1))
}

/// The nearest float64 to `high * 2^40 + low`, high being at most 2^52 in magnitude.
#[inline(always)]
pub(super) fn join(high: i64, low: i64) -> f64 {
    let (carry, low) = split(low);
    // Both terms are exact, so that only their sum is rounded.
    (high + carry) as f64 * SMALL + low as f64
}

/// `2^n`, exactly. n must be the exponent of a normal number: -1022 to 1023.
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
