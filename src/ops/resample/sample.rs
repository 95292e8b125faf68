use bytemuck::Pod;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// A type that the values of a trajectory can have.
pub(super) trait Sample: Send + Sync + Pod {
    fn from_fill(value: f32) -> Self;
    /// Whether there is no NaN and no infinity among `values`.
    fn all_finite(values: &[Self]) -> bool;
    /// Whether they are finite, and so small that what lies between any two of them is computed without overflow.
    fn all_moderate(values: &[Self]) -> bool;
    /// `a + weight * (b - a)` for each element. All have the same length.
    fn lerp(a: &[Self], b: &[Self], weight: f64, out: &mut [Self]);
}

/// Whether the exponents of all `values` are such that adding `$step`, times the lowest bit of an exponent, does not carry
/// into the sign, which has been cleared: with 1, that they are finite. Or-ing that over all values has no branch and
/// vectorizes for every width.
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

impl Sample for f32 {
    fn from_fill(value: f32) -> Self {
        value
    }

    #[inline(always)]
    fn all_finite(values: &[Self]) -> bool {
        exponents_below!(values, u32, 1 << 23)
    }

    #[inline(always)]
    fn all_moderate(values: &[Self]) -> bool {
        exponents_below!(values, u32, 3 << 23)
    }

    #[inline(always)]
    fn lerp(a: &[Self], b: &[Self], weight: f64, out: &mut [Self]) {
        let weight = weight as f32;
        for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
            *out = a + weight * (b - a);
        }
    }
}

impl Sample for f64 {
    fn from_fill(value: f32) -> Self {
        value.into()
    }

    #[inline(always)]
    fn all_finite(values: &[Self]) -> bool {
        exponents_below!(values, u64, 1 << 52)
    }

    #[inline(always)]
    fn all_moderate(values: &[Self]) -> bool {
        exponents_below!(values, u64, 3 << 52)
    }

    #[inline(always)]
    fn lerp(a: &[Self], b: &[Self], weight: f64, out: &mut [Self]) {
        for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
            *out = a + weight * (b - a);
        }
    }
}

impl Sample for f16 {
    fn from_fill(value: f32) -> Self {
        Self::from_f32(value)
    }

    #[inline(always)]
    fn all_finite(values: &[Self]) -> bool {
        exponents_below!(values, u16, 1 << 10)
    }

    #[inline(always)]
    fn all_moderate(values: &[Self]) -> bool {
        // Their differences are those of float32, which holds them.
        exponents_below!(values, u16, 1 << 10)
    }

    #[inline(always)]
    fn lerp(a: &[Self], b: &[Self], weight: f64, out: &mut [Self]) {
        // The conversion of slices uses the CPU's instructions: a piece at a time that fits the nearest cache.
        const PIECE: usize = 64;
        let (mut from, mut to) = ([0.0; PIECE], [0.0; PIECE]);
        let weight = weight as f32;
        for ((out, a), b) in out.chunks_mut(PIECE).zip(a.chunks(PIECE)).zip(b.chunks(PIECE)) {
            let (from, to) = (&mut from[..out.len()], &mut to[..out.len()]);
            a.convert_to_f32_slice(from);
            b.convert_to_f32_slice(to);
            for (a, &b) in from.iter_mut().zip(&*to) {
                *a += weight * (b - *a);
            }
            out.convert_from_f32_slice(from);
        }
    }
}

impl Sample for bf16 {
    fn from_fill(value: f32) -> Self {
        Self::from_f32(value)
    }

    #[inline(always)]
    fn all_finite(values: &[Self]) -> bool {
        exponents_below!(values, u16, 1 << 7)
    }

    #[inline(always)]
    fn all_moderate(values: &[Self]) -> bool {
        exponents_below!(values, u16, 3 << 7)
    }

    #[inline(always)]
    fn lerp(a: &[Self], b: &[Self], weight: f64, out: &mut [Self]) {
        let weight = weight as f32;
        let widen = |v: Self| f32::from_bits(u32::from(v.to_bits()) << 16);
        for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
            let (a, b) = (widen(a), widen(b));
            let bits = (a + weight * (b - a)).to_bits();
            // To the nearest, ties to even. Between finite values there is no NaN, which alone would need a branch.
            let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
            *out = Self::from_bits(rounded as u16);
        }
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
            assert_eq!(bf16::all_finite(&[brain]), brain.is_finite(), "{bits:#x}");
            let single = f32::from_bits(u32::from(bits) << 16);
            assert_eq!(f32::all_finite(&[single]), single.is_finite(), "{bits:#x}");
            let double = f64::from_bits(u64::from(bits) << 48);
            assert_eq!(f64::all_finite(&[double]), double.is_finite(), "{bits:#x}");
        }
    }

    /// The middle between the two ends of what counts as moderate, and of all that is finite.
    fn middles<T: Sample>(moderate: T, largest: T, negate: impl Fn(T) -> T) -> [bool; 2] {
        [moderate, largest].map(|end| {
            let mut out = [end];
            T::lerp(&[negate(end)], &[end], 0.5, &mut out);
            T::all_finite(&out)
        })
    }

    #[test]
    fn nothing_between_moderate_values_overflows() {
        for bits in 0..=u16::MAX {
            let single = f32::from_bits(u32::from(bits) << 16);
            assert_eq!(f32::all_moderate(&[single]), single.abs() < 2f32.powi(126), "{bits:#x}");
            let brain = bf16::from_bits(bits);
            assert_eq!(
                bf16::all_moderate(&[brain]),
                brain.to_f32().abs() < 2f32.powi(126),
                "{bits:#x}"
            );
            let double = f64::from_bits(u64::from(bits) << 48);
            assert_eq!(
                f64::all_moderate(&[double]),
                double.abs() < 2f64.powi(1022),
                "{bits:#x}"
            );
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
}
