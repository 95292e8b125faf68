//! The scale of the sums of a field, by its type.

use crate::device::Dtype;

/// Whether it is a 32- or 64-bit integer. Every other type goes with float32.
pub(super) fn is_wide(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::Int32 | Dtype::Int64 | Dtype::UInt32 | Dtype::UInt64)
}

/// The number s for which a value is summed as the integer nearest to `value * 2^s`.
pub(super) fn bits(wide: bool) -> i32 {
    if wide { 0 } else { 22 }
}

/// [`bits`] of a type.
pub(super) fn field_bits(dtype: Dtype) -> i32 {
    bits(is_wide(dtype))
}

/// The greatest magnitude of a value that can be summed: in every case 2^40 as an integer.
pub(super) fn bound(dtype: Dtype) -> f64 {
    power_of_two(40 - field_bits(dtype))
}

/// `2^n`, exactly, for any n of a normal number.
pub(super) fn power_of_two(n: i32) -> f64 {
    debug_assert!((-1022..=1023).contains(&n));
    f64::from_bits(((1023 + n) as u64) << 52)
}
