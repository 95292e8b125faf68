//! The float types that values are computed in, float32 and float64. Every function here gives the same bits on every machine.

use crate::polynomial::Polynomials;
use std::fmt::{Debug, Display};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// A type that values are computed in: float32 or float64.
pub trait Real:
    Polynomials
    + Copy
    + Debug
    + Default
    + Display
    + PartialOrd
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// Rounds a float64 to the nearest value of this type.
    fn from_f64(value: f64) -> Self;
    /// Converts the value to float64, exactly.
    fn to_f64(self) -> f64;
    /// The square root, correctly rounded (to nearest, ties to even).
    fn sqrt(self) -> Self;
    /// Rounds to the nearest integer, ties to even.
    fn rint(self) -> Self;
    /// The next smaller value of this type: the largest that is less than `self`.
    fn next_down(self) -> Self;
    /// The next larger value of this type: the smallest that is greater than `self`.
    fn next_up(self) -> Self;
    /// The value without its sign.
    fn abs(self) -> Self;
    /// True if the value is neither NaN nor infinite.
    fn is_finite(self) -> bool;
}

/// Implements `Real` for a type with `$mantissa` bits of mantissa.
macro_rules! real {
    ($T:ty, $mantissa:literal) => {
        impl Real for $T {
            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as Self
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }

            #[inline(always)]
            fn sqrt(self) -> Self {
                Self::sqrt(self)
            }

            #[inline(always)]
            fn rint(self) -> Self {
                // Adding 1.5 * 2^mantissa, where neighbouring floats are 1 apart, rounds to an integer. `round_ties_even` alone is
                // a function call if the CPU may lack the instruction.
                const ROUNDS: $T = 1.5 * (1u64 << $mantissa) as $T;
                if self.abs() < (1u64 << ($mantissa - 1)) as $T {
                    ((self + ROUNDS) - ROUNDS).copysign(self)
                } else {
                    self.round_ties_even()
                }
            }

            #[inline(always)]
            fn next_down(self) -> Self {
                Self::next_down(self)
            }

            #[inline(always)]
            fn next_up(self) -> Self {
                Self::next_up(self)
            }

            #[inline(always)]
            fn abs(self) -> Self {
                Self::abs(self)
            }

            #[inline(always)]
            fn is_finite(self) -> bool {
                Self::is_finite(self)
            }
        }
    };
}

real!(f32, 23);
real!(f64, 52);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_integer_is_that_of_the_standard_library() {
        let halves = (-40..40).map(|i| f64::from(i) * 0.25);
        let large = [
            4_194_303.5,
            4_194_304.5,
            8_388_607.5,
            1e30,
            2_251_799_813_685_247.5,
            4_503_599_627_370_495.5,
        ];
        for value in halves.chain(large).flat_map(|value| [value, -value]) {
            assert_eq!(
                Real::rint(value).to_bits(),
                value.round_ties_even().to_bits(),
                "{value}"
            );
            let single = value as f32;
            assert_eq!(
                Real::rint(single).to_bits(),
                single.round_ties_even().to_bits(),
                "{single}"
            );
        }
    }
}
