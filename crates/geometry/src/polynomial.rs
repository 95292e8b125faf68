//! Sine and cosine in float32 and float64 as polynomials, with the same bits on every machine and device.
//!
//! The polynomials use only additions and multiplications, so that a kernel on a device can compute them, too.
//! [`angle`](crate::angle) has functions for the host, which take angles of any size.

use crate::Real;

/// The largest magnitude of an angle, radians, at which [`sin_cos`] is accurate.
pub const MAX_ANGLE: f64 = 8192.0;

/// The constants of [`sin_cos`] in float32 or float64.
pub trait Polynomials: Sized + 'static {
    /// Large number: adding it to a number of quarter turns rounds that number to an integer, ties to even. The lowest bits of
    /// the sum hold the integer.
    const ROUNDS: Self;
    /// Number of quarter turns in a radian, 2 / pi.
    const QUARTERS: Self;
    /// A quarter turn, pi / 2, as a sum of three numbers. The first two have few digits, so that their products with a number of
    /// quarter turns are exact.
    const QUARTER: [Self; 3];
    /// Coefficients of (sin r - r) / r^3 as a polynomial in r^2, the highest power first.
    const SINE: &'static [Self];
    /// Coefficients of (cos r - 1 + r^2 / 2) / r^4 as a polynomial in r^2, the highest power first.
    const COSINE: &'static [Self];
    /// Returns sine and cosine of an angle, given `sine` and `cosine` of the remainder after a whole number of quarter turns.
    /// For an odd number, sine and cosine are exchanged. The sine changes sign in the third and fourth quarter, the cosine in
    /// the second and third.
    ///
    /// The number of quarters is in the lowest bits of `quarters`, a sum with [`ROUNDS`](Self::ROUNDS). The code uses masks
    /// instead of branches, since masks vectorize better.
    fn behind_quarters(quarters: Self, sine: Self, cosine: Self) -> (Self, Self);
}

macro_rules! behind_quarters {
    () => {
        #[inline(always)]
        fn behind_quarters(quarters: Self, sine: Self, cosine: Self) -> (Self, Self) {
            let quarters = quarters.to_bits();
            let exchanged = (sine.to_bits() ^ cosine.to_bits()) & (quarters & 1).wrapping_neg();
            // The second lowest bit, moved to the sign.
            let sign = |bits: _| (bits & 2) << (8 * size_of::<Self>() - 2);
            (
                Self::from_bits(sine.to_bits() ^ exchanged ^ sign(quarters)),
                Self::from_bits(cosine.to_bits() ^ exchanged ^ sign(quarters.wrapping_add(1))),
            )
        }
    };
}

/// Coefficients of Cephes' `sinf` and `cosf`.
impl Polynomials for f32 {
    const ROUNDS: Self = 12_582_912.0;
    const QUARTERS: Self = std::f32::consts::FRAC_2_PI;
    const QUARTER: [Self; 3] = [1.570_312_5, 4.837_513e-4, 7.549_79e-8];
    const SINE: &'static [Self] = &[-1.951_529_6e-4, 8.332_161e-3, -1.666_665_5e-1];
    const COSINE: &'static [Self] = &[2.443_315_7e-5, -1.388_731_6e-3, 4.166_664_6e-2];

    behind_quarters!();
}

/// Coefficients of fdlibm's `__kernel_sin` and `__kernel_cos`.
impl Polynomials for f64 {
    const ROUNDS: Self = 6_755_399_441_055_744.0;
    const QUARTERS: Self = std::f64::consts::FRAC_2_PI;
    const QUARTER: [Self; 3] = [
        1.570_796_326_734_125_6,
        6.077_100_506_303_966e-11,
        2.022_266_248_795_950_6e-21,
    ];
    const SINE: &'static [Self] = &[
        1.589_690_995_211_55e-10,
        -2.505_076_025_340_686_3e-8,
        2.755_731_370_707_006_8e-6,
        -1.984_126_982_985_795e-4,
        8.333_333_333_322_49e-3,
        -1.666_666_666_666_663_2e-1,
    ];
    const COSINE: &'static [Self] = &[
        -1.135_964_755_778_819_5e-11,
        2.087_572_321_298_175e-9,
        -2.755_731_435_139_066_3e-7,
        2.480_158_728_947_673e-5,
        -1.388_888_888_887_411e-3,
        4.166_666_666_666_66e-2,
    ];

    behind_quarters!();
}

/// The sine and the cosine of an angle of at most [`MAX_ANGLE`]: to within 1.6e-16 in float64, 8e-8 in float32.
#[inline(always)]
pub fn sin_cos<R: Real>(angle: R) -> (R, R) {
    let (half, one) = (R::from_f64(0.5), R::from_f64(1.0));
    let shifted = angle * R::QUARTERS + R::ROUNDS;
    let quarters = shifted - R::ROUNDS;
    let [high, middle, low] = R::QUARTER;
    let r = ((angle - quarters * high) - quarters * middle) - quarters * low;
    let square = r * r;
    let sine = (horner(square, R::SINE) * square) * r + r;
    let cosine = (horner(square, R::COSINE) * square * square - half * square) + one;
    R::behind_quarters(shifted, sine, cosine)
}

/// Evaluates the polynomial with `coefficients`, the highest power first, at `x`.
#[inline(always)]
fn horner<R: Real>(x: R, coefficients: &[R]) -> R {
    let (first, others) = coefficients.split_at(1);
    others.iter().fold(first[0], |sum, &coefficient| sum * x + coefficient)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Angles from `-MAX_ANGLE` to `MAX_ANGLE`: multiples of a quarter turn, evenly spaced angles, and very small ones.
    fn angles() -> impl Iterator<Item = f64> {
        let quarters = (-5215..=5215).map(|i| f64::from(i) * std::f64::consts::FRAC_PI_2);
        let others = (-100_000..=100_000).map(|i| f64::from(i) * 0.081_919_99);
        quarters.chain(others).chain([1e-300, -1e-9, MAX_ANGLE, -MAX_ANGLE])
    }

    #[test]
    fn sine_and_cosine_are_those_of_the_standard_library() {
        for angle in angles() {
            let (sine, cosine) = sin_cos(angle);
            let (s, c) = (f64::sin(angle), f64::cos(angle));
            // Each side may be off by a unit in the last place.
            assert!((sine - s).abs() < 3e-16 && (cosine - c).abs() < 3e-16, "{angle}");

            let single = angle as f32;
            let (sine, cosine) = sin_cos(single);
            let (s, c) = (f64::from(single).sin(), f64::from(single).cos());
            assert!((f64::from(sine) - s).abs() < 8e-8, "{single}");
            assert!((f64::from(cosine) - c).abs() < 8e-8, "{single}");
        }
    }

    #[test]
    fn the_angle_0_is_exact() {
        assert_eq!(sin_cos(0.0f64), (0.0, 1.0));
        assert_eq!(sin_cos(0.0f32), (0.0, 1.0));
    }
}
