//! Writes the channels of one row: `write` for the plain modes (`previous`, `nearest`, `linear`), `write_each` for the other
//! modes. A value that is not finite in the published type is replaced by the fill value.

use super::pick::Pick;
use robocache_device::{Float, Real, convert, zip_map};

/// Number of rows that are computed together. Groups of channels share the samples picked for these rows, and the rotations of
/// these rows are computed in SIMD lanes.
pub(super) const ROWS: usize = 8;

/// Outcome of writing the value at a target, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Written {
    /// The value at the target was written.
    Value,
    /// The fill value was written: the samples give no valid value.
    Fill,
    /// The fill value was written: the computed value overflows the published type.
    Overflow,
}

/// Writes the value of a plain mode (`previous`, `nearest` or `linear`) at a target, one element for each channel, or `fill` if
/// there is no valid value.
///
/// `sample(i)` returns the channels of sample i, all of them finite. If `is_moderate`, they are also
/// [moderate](Float::all_moderate), too small to overflow, so that the result need not be checked. Float64 samples are computed
/// in float64, all others in float32, with the weight rounded to that type.
#[inline(always)]
pub fn write<'a, S: Float, T: Float<Real = S::Real>>(
    picked: Pick,
    sample: impl Fn(usize) -> &'a [S],
    is_moderate: bool,
    fill: T,
    out: &mut [T],
) -> Written {
    let is_finite = match picked {
        Pick::Invalid => {
            out.fill(fill);
            return Written::Fill;
        }
        Pick::Sample(i) => convert(sample(i), out),
        Pick::Between { before, after, weight } => {
            let weight = S::Real::from_f64(weight);
            let is_finite = zip_map(sample(before), sample(after), out, |a, b| a + weight * (b - a));
            (is_moderate && S::DTYPE == T::DTYPE) || is_finite
        }
    };
    if is_finite {
        return Written::Value;
    }
    out.fill(fill);
    Written::Overflow
}

/// Writes `value(channel)` to each channel of `out`. Returns true if all written values are finite.
pub(super) fn write_each<T: Float>(out: &mut [T], value: impl Fn(usize) -> T::Real) -> bool {
    let mut is_finite = true;
    for (channel, out) in out.iter_mut().enumerate() {
        let value = value(channel);
        is_finite &= value.is_finite();
        *out = T::from_real(value);
    }
    is_finite && T::all_finite(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn a_value_is_written_in_the_type_that_is_published() {
        let rows = [[0.0f32, 1.0], [1.0, 2.5]];
        let sample = |i: usize| &rows[i][..];
        let between = Pick::Between {
            before: 0,
            after: 1,
            weight: 0.25,
        };
        let mut out = [f16::ZERO; 2];
        assert_eq!(write(between, sample, false, f16::NEG_ONE, &mut out), Written::Value);
        assert_eq!(out.map(f16::to_f32), [0.25, 1.375]);
        assert_eq!(
            write(Pick::Sample(1), sample, false, f16::NEG_ONE, &mut out),
            Written::Value
        );
        assert_eq!(out.map(f16::to_f32), [1.0, 2.5]);
        assert_eq!(
            write(Pick::Invalid, sample, false, f16::NEG_ONE, &mut out),
            Written::Fill
        );
        assert_eq!(out, [f16::NEG_ONE; 2]);
    }

    #[test]
    fn a_value_that_the_type_cannot_hold_is_the_fill_value() {
        let ends = [[7e4f32, 0.0], [f32::MAX, 0.0], [f32::MIN, 0.0]];
        let sample = |i: usize| &ends[i][..];
        let mut out = [f16::ZERO; 2];
        let written = write(Pick::Sample(0), sample, false, f16::ONE, &mut out);
        assert_eq!((written, out), (Written::Overflow, [f16::ONE; 2]));
        let between = Pick::Between {
            before: 1,
            after: 2,
            weight: 0.5,
        };
        let mut out = [0.0f32; 2];
        let written = write(between, sample, false, -1.0, &mut out);
        assert_eq!((written, out), (Written::Overflow, [-1.0; 2]));
        let written = write(Pick::Sample(1), sample, false, -1.0, &mut out);
        assert_eq!((written, out), (Written::Value, [f32::MAX, 0.0]));
    }
}
