//! Float types of samples and of published values, and loops over slices of them. A loop over a slice gives the same bits as its
//! elements one by one, however it is vectorized.

use super::Primitive;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use robocache_geometry::Real;

/// A float type of samples or of published values: float32, float64, float16 or bfloat16.
///
/// Loops over slices vectorize, and are inlined, so that a caller that is compiled for wider vectors uses wider vectors. Vectors
/// change no result: each lane computes what a scalar would.
pub trait Float: Primitive + Send + Sync {
    /// True if converting a whole slice is faster than converting its elements one by one.
    const CONVERTS_SLICES: bool = false;
    /// The type in which values are computed: float64 for float64, float32 for the other types.
    type Real: Real + Float<Real = Self::Real>;
    /// Rounds a float32 to the nearest value of this type, ties to even.
    fn from_f32(value: f32) -> Self;
    /// Converts the value to the type in which it is computed, without rounding.
    fn to_real(self) -> Self::Real;
    /// Rounds a number that is not NaN to the nearest value of this type, ties to even.
    fn from_real(value: Self::Real) -> Self;
    /// A number whose highest bit is set if the value is NaN or infinite. Or-ing this bit over many values needs no branch.
    fn nonfinite_bit(self) -> u32;
    /// True if there is no NaN and no infinity among `values`.
    fn all_finite(values: &[Self]) -> bool;
    /// True if all `values` are finite, and small enough that interpolating between any two of them can't overflow.
    fn all_moderate(values: &[Self]) -> bool;

    /// Writes [`to_real`](Self::to_real) of each element to `out`. Both slices have the same length.
    #[inline(always)]
    fn to_reals(values: &[Self], out: &mut [Self::Real]) {
        for (out, &value) in out.iter_mut().zip(values) {
            *out = value.to_real();
        }
    }

    /// Writes [`from_real`](Self::from_real) of each element to `out`. Both slices have the same length.
    #[inline(always)]
    fn from_reals(values: &[Self::Real], out: &mut [Self]) {
        for (out, &value) in out.iter_mut().zip(values) {
            *out = Self::from_real(value);
        }
    }
}

/// Number of elements that are converted at a time, for types with `CONVERTS_SLICES`: few enough for the L1 cache.
const PIECE: usize = 64;

/// Writes `f(a[i], b[i])`, computed in float32 or float64, to each `out[i]`. All slices have the same length.
///
/// Returns whether all written values are finite. If the caller ignores the result, the compiler removes the check.
#[inline(always)]
pub fn zip_map<S: Float, T: Float<Real = S::Real>>(
    a: &[S],
    b: &[S],
    out: &mut [T],
    f: impl Fn(S::Real, S::Real) -> S::Real,
) -> bool {
    let mut nonfinite = 0;
    if !S::CONVERTS_SLICES && !T::CONVERTS_SLICES {
        for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
            *out = T::from_real(f(a.to_real(), b.to_real()));
            nonfinite |= out.nonfinite_bit();
        }
        return nonfinite >> 31 == 0;
    }
    let mut finite = true;
    let zero = S::Real::from_f64(0.0);
    let (mut from, mut to) = ([zero; PIECE], [zero; PIECE]);
    for ((out, a), b) in out.chunks_mut(PIECE).zip(a.chunks(PIECE)).zip(b.chunks(PIECE)) {
        let (from, to) = (&mut from[..out.len()], &mut to[..out.len()]);
        S::to_reals(a, from);
        S::to_reals(b, to);
        for (a, &b) in from.iter_mut().zip(&*to) {
            *a = f(*a, b);
        }
        T::from_reals(from, out);
        finite &= T::all_finite(out);
    }
    finite
}

/// Converts each element to the nearest value of type `T`; if the types are the same, copies its bits. Both slices have the same
/// length.
///
/// Returns whether all written values are finite. A copy of the same type is not checked, and counts as finite.
#[inline(always)]
pub fn convert<S: Float, T: Float<Real = S::Real>>(values: &[S], out: &mut [T]) -> bool {
    if S::DTYPE == T::DTYPE {
        // A loop, because calling memcpy for a few channels takes longer.
        for (out, &value) in out.iter_mut().zip(values) {
            *out = bytemuck::cast(value);
        }
        return true;
    }
    let (mut nonfinite, mut finite) = (0, true);
    if !S::CONVERTS_SLICES && !T::CONVERTS_SLICES {
        for (out, &value) in out.iter_mut().zip(values) {
            *out = T::from_real(value.to_real());
            nonfinite |= out.nonfinite_bit();
        }
    } else {
        let mut reals = [S::Real::from_f64(0.0); PIECE];
        for (out, values) in out.chunks_mut(PIECE).zip(values.chunks(PIECE)) {
            let reals = &mut reals[..out.len()];
            S::to_reals(values, reals);
            T::from_reals(reals, out);
            finite &= T::all_finite(out);
        }
    }
    finite && nonfinite >> 31 == 0
}

/// True if the exponents of all values are so small that adding `$step` to the bits does not carry into the cleared sign bit. If
/// `$step` is the exponent's lowest bit, true means that all values are finite. Or-ing the sums needs no branch, and vectorizes for
/// every width.
macro_rules! exponents_below {
    ($values:expr, $Bits:ty, $step:expr) => {{
        let bits: &[$Bits] = bytemuck::cast_slice($values);
        let sign: $Bits = 1 << (<$Bits>::BITS - 1);
        let carried = bits
            .iter()
            .fold(0, |carried: $Bits, &b| carried | (b & !sign).wrapping_add($step));
        carried & sign == 0
    }};
}

/// Implements `Float` for float32 or float64, with `$mantissa` bits of mantissa.
macro_rules! real {
    ($T:ty, $Bits:ty, $mantissa:literal) => {
        impl Float for $T {
            type Real = Self;

            #[inline(always)]
            fn from_f32(value: f32) -> Self {
                value.into()
            }

            #[inline(always)]
            fn to_real(self) -> Self {
                self
            }

            #[inline(always)]
            fn from_real(value: Self) -> Self {
                value
            }

            #[inline(always)]
            fn nonfinite_bit(self) -> u32 {
                const LOW: u32 = <$Bits>::BITS - 32;
                ((self.to_bits() >> LOW) as u32 & 0x7fff_ffff) + (1 << ($mantissa - LOW))
            }

            #[inline(always)]
            fn all_finite(values: &[Self]) -> bool {
                exponents_below!(values, $Bits, 1 << $mantissa)
            }

            #[inline(always)]
            fn all_moderate(values: &[Self]) -> bool {
                exponents_below!(values, $Bits, 3 << $mantissa)
            }
        }
    };
}

real!(f32, u32, 23);
real!(f64, u64, 52);

impl Float for f16 {
    /// True, since the CPU has instructions that convert slices. Converting one by one would check each time whether the CPU has
    /// these instructions.
    const CONVERTS_SLICES: bool = true;
    type Real = f32;

    #[inline]
    fn from_f32(value: f32) -> Self {
        Self::from_f32(value)
    }

    #[inline]
    fn to_real(self) -> f32 {
        self.to_f32()
    }

    #[inline]
    fn from_real(value: f32) -> Self {
        Self::from_f32(value)
    }

    #[inline(always)]
    fn nonfinite_bit(self) -> u32 {
        (u32::from(self.to_bits()) << 16 & 0x7fff_ffff) + (1 << 26)
    }

    #[inline(always)]
    fn all_finite(values: &[Self]) -> bool {
        exponents_below!(values, u16, 1 << 10)
    }

    #[inline(always)]
    fn all_moderate(values: &[Self]) -> bool {
        // Differences of float16 values are computed in float32, which can hold all of them.
        exponents_below!(values, u16, 1 << 10)
    }

    #[inline(always)]
    fn to_reals(values: &[Self], out: &mut [f32]) {
        values.convert_to_f32_slice(out);
    }

    #[inline(always)]
    fn from_reals(values: &[f32], out: &mut [Self]) {
        out.convert_from_f32_slice(values);
    }
}

impl Float for bf16 {
    type Real = f32;

    #[inline]
    fn from_f32(value: f32) -> Self {
        Self::from_f32(value)
    }

    #[inline(always)]
    fn to_real(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    /// Rounds to nearest, ties to even, without the branch that a NaN would need.
    #[inline(always)]
    fn from_real(value: f32) -> Self {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        Self::from_bits(rounded as u16)
    }

    #[inline(always)]
    fn nonfinite_bit(self) -> u32 {
        (u32::from(self.to_bits()) << 16 & 0x7fff_ffff) + (1 << 23)
    }

    #[inline(always)]
    fn all_finite(values: &[Self]) -> bool {
        exponents_below!(values, u16, 1 << 7)
    }

    #[inline(always)]
    fn all_moderate(values: &[Self]) -> bool {
        exponents_below!(values, u16, 3 << 7)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_16_bit_pattern_is_finite_or_not_as_the_type_says() {
        for bits in 0..=u16::MAX {
            let (half, brain) = (f16::from_bits(bits), bf16::from_bits(bits));
            assert_eq!(f16::all_finite(&[half]), half.is_finite(), "{bits:#x}");
            assert_eq!(half.nonfinite_bit() >> 31 == 0, half.is_finite(), "{bits:#x}");
            assert_eq!(brain.nonfinite_bit() >> 31 == 0, brain.is_finite(), "{bits:#x}");
            assert_eq!(bf16::all_finite(&[brain]), brain.is_finite(), "{bits:#x}");
            let single = f32::from_bits(u32::from(bits) << 16);
            assert_eq!(f32::all_finite(&[single]), single.is_finite(), "{bits:#x}");
            assert_eq!(single.nonfinite_bit() >> 31 == 0, single.is_finite(), "{bits:#x}");
            let double = f64::from_bits(u64::from(bits) << 48);
            assert_eq!(f64::all_finite(&[double]), double.is_finite(), "{bits:#x}");
            assert_eq!(double.nonfinite_bit() >> 31 == 0, double.is_finite(), "{bits:#x}");
        }
    }

    /// Returns whether interpolating halfway from `-x` to `x` gives a finite number, for `moderate` and for `largest` as `x`.
    fn middles<T: Float>(moderate: T, largest: T, negate: impl Fn(T) -> T) -> [bool; 2] {
        [moderate, largest].map(|end| {
            let mut out = [end];
            let half = T::Real::from_f64(0.5);
            let finite = zip_map(&[negate(end)], &[end], &mut out, |a, b| a + half * (b - a));
            assert_eq!(finite, T::all_finite(&out));
            finite
        })
    }

    #[test]
    fn nothing_between_moderate_values_overflows() {
        for bits in 0..=u16::MAX {
            let single = f32::from_bits(u32::from(bits) << 16);
            assert_eq!(f32::all_moderate(&[single]), single.abs() < 2f32.powi(126), "{bits:#x}");
            let brain = bf16::from_bits(bits);
            let is_moderate = brain.to_f32().abs() < 2f32.powi(126);
            assert_eq!(bf16::all_moderate(&[brain]), is_moderate, "{bits:#x}");
            let double = f64::from_bits(u64::from(bits) << 48);
            let is_moderate = double.abs() < 2f64.powi(1022);
            assert_eq!(f64::all_moderate(&[double]), is_moderate, "{bits:#x}");
        }
        let below = |x: f32| f32::from_bits(x.to_bits() - 1);
        assert_eq!(middles(below(2f32.powi(126)), f32::MAX, |x| -x), [true, false]);
        assert_eq!(middles(bf16::from_bits(0x7e7f), bf16::MAX, |x| -x), [true, false]);
        assert_eq!(middles(2f64.powi(1021) * 1.9, f64::MAX, |x| -x), [true, false]);
        assert_eq!(middles(f16::MAX, f16::MAX, |x| -x), [true, true]);
    }

    #[test]
    fn one_value_that_is_not_finite_is_found_wherever_it_is() {
        for len in 1..70 {
            for at in 0..len {
                let mut values = vec![f32::MAX; len];
                assert!(f32::all_finite(&values));
                values[at] = f32::NEG_INFINITY;
                assert!(!f32::all_finite(&values));
                values[at] = -f32::NAN;
                assert!(!f32::all_finite(&values));
            }
        }
        assert!(f32::all_finite(&[]));
    }

    /// Converts slices that are shorter than `PIECE`, as long, and longer.
    #[test]
    fn slices_convert_as_their_elements_do() {
        fn check<T: Float<Real = f32> + PartialEq + std::fmt::Debug>(from_f32: impl Fn(f32) -> T) {
            let ends = [
                0.0,
                -0.0,
                1.0 + 2f32.powi(-8),
                1.0 + 2f32.powi(-11),
                65519.0,
                65520.0,
                -3.4e38,
                1e-42,
            ];
            for len in [0, 1, 63, 64, 65, 200] {
                let a: Vec<f32> = (0..len).map(|i| ends[i % ends.len()] + i as f32).collect();
                let b: Vec<f32> = a.iter().rev().copied().collect();
                let mut out = vec![T::from_f32(7.0); len];
                let finite = convert(&a, &mut out);
                assert_eq!(finite, T::all_finite(&out));
                assert_eq!(out, a.iter().map(|&value| from_f32(value)).collect::<Vec<_>>());
                zip_map(&a, &b, &mut out, |a, b| a - b);
                let expected: Vec<T> = a.iter().zip(&b).map(|(a, b)| from_f32(a - b)).collect();
                assert_eq!(out, expected);
            }
        }
        check(|value| value);
        check(f16::from_f32);
        check(bf16::from_f32);
    }
}
