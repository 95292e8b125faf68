//! Angles, and the curves through four samples: `cubic` and `pchip`.
//!
//! Both curves are cubic Hermite: between samples a and b, `h` apart, with the tangents m at a and n at b,
//! `a + w (c1 + w (c2 + w c3))` with `c1 = hm`, `c2 = (3 (b - a) - 2 hm) - hn`, `c3 = (hm + hn) - 2 (b - a)`. Tangents are only
//! used multiplied by `h`, so that only ratios of times remain, which are computed in float64 and rounded once.

use super::channels::write_each;
use super::mode::Interpolation;
use robocache_device::{Float, Real};

/// Samples around a target: two on each side of it, and the distances between them.
pub(super) struct Knots {
    /// Indices of four samples: the one before the bracket, the two of the bracket (around the target), and the one after it. A
    /// missing outer sample is replaced by the inner sample beside it.
    pub samples: [usize; 4],
    /// Time between the two inner samples, ns.
    inner: f64,
    /// Time between each outer sample and the inner sample beside it, ns; `None` if the outer sample is missing.
    outer: [Option<f64>; 2],
}

impl Knots {
    /// Finds the samples on both sides of the bracket, which is the two samples around the target. An outer sample more than
    /// `max_gap` ns from its neighbour counts as missing.
    pub(crate) fn of(times: &[i64], before: usize, after: usize, max_gap: i64) -> Self {
        let gap = |earlier: usize| times[earlier + 1].saturating_sub(times[earlier]);
        let near = |earlier: &usize| gap(*earlier) <= max_gap;
        let left = before.checked_sub(1).filter(near);
        let right = (after + 1 < times.len()).then_some(after).filter(near);
        Self {
            samples: [
                left.unwrap_or(before),
                before,
                after,
                right.map_or(after, |right| right + 1),
            ],
            inner: gap(before) as f64,
            outer: [left, right].map(|earlier| earlier.map(|earlier| gap(earlier) as f64)),
        }
    }
}

/// Formula for the tangent at one end of the bracket (the two samples around the target), with its coefficients. The
/// coefficients `inner` and `outer` depend only on the times between the samples.
#[derive(Clone, Copy)]
enum Tangent<R> {
    /// `inner * within + outer * outside`: Bessel's tangent, the slope of the parabola through the bracket and the sample beyond
    /// this end. Without that sample the tangent is the slope of the line through the bracket.
    Parabola { inner: R, outer: R },
    /// The weighted harmonic mean of the slopes within the bracket and beyond this end; 0 if they differ in sign or a slope is 0.
    Harmonic { inner: R, outer: R },
    /// The tangent at an end of the curve, beyond which there is no sample. It is that of the parabola through the bracket and the
    /// sample beyond the other end, limited so that the curve stays monotone.
    End { inner: R, outer: R },
}

impl<R: Real> Tangent<R> {
    /// Chooses the formula for the tangent at one end of the bracket. The time between the bracket's samples, ns, is
    /// `inner`. The times to the samples beyond this end and beyond the other end are `outer` and `other`, or `None` without
    /// such a sample.
    fn of(mode: Interpolation, inner: f64, outer: Option<f64>, other: Option<f64>) -> Self {
        let of = R::from_f64;
        match (mode, outer, other) {
            (Interpolation::Pchip, Some(outer), _) => {
                let whole = 3.0 * (inner + outer);
                Self::Harmonic {
                    inner: of((inner + 2.0 * outer) / whole),
                    outer: of((2.0 * inner + outer) / whole * (outer / inner)),
                }
            }
            (Interpolation::Pchip, None, Some(other)) => Self::End {
                inner: of((2.0 * inner + other) / (inner + other)),
                outer: of(inner / (inner + other) * (inner / other)),
            },
            (_, Some(outer), _) => Self::Parabola {
                inner: of(outer / (inner + outer)),
                outer: of(inner / outer * (inner / (inner + outer))),
            },
            (_, None, _) => Self::Parabola {
                inner: of(1.0),
                outer: of(0.0),
            },
        }
    }

    /// Returns the tangent times `h`, the time between the samples of the bracket. The argument `within` is the difference
    /// of the values within the bracket, `outside` the difference beyond this end, and `other` the difference beyond the
    /// other end.
    fn times_h(self, within: R, outside: R, other: R) -> R {
        let zero = R::from_f64(0.0);
        let same_sign = |a: R, b: R| (a > zero && b > zero) || (a < zero && b < zero);
        match self {
            Self::Parabola { inner, outer } => inner * within + outer * outside,
            Self::Harmonic { inner, outer } if same_sign(within, outside) => {
                within / (inner + outer * (within / outside))
            }
            Self::Harmonic { .. } => zero,
            Self::End { inner, outer } => {
                let tangent = inner * within - outer * other;
                let three = R::from_f64(3.0) * within;
                if !same_sign(tangent, within) {
                    zero
                } else if !same_sign(within, other) && tangent.abs() > three.abs() {
                    three
                } else {
                    tangent
                }
            }
        }
    }
}

/// Writes the value of a curve between the inner two of four samples. Returns true if all channels are finite.
pub(super) fn between<S, T>(
    mode: Interpolation,
    knots: &Knots,
    [left, before, after, right]: [&[S]; 4],
    w: S::Real,
    out: &mut [T],
) -> bool
where
    S: Float,
    T: Float<Real = S::Real>,
{
    let [to_left, to_right] = knots.outer;
    let start = Tangent::<S::Real>::of(mode, knots.inner, to_left, to_right);
    let end = Tangent::<S::Real>::of(mode, knots.inner, to_right, to_left);
    let is_line = to_left.is_none() && to_right.is_none();
    let (two, three) = (S::Real::from_f64(2.0), S::Real::from_f64(3.0));
    write_each(out, |c| {
        let (a, b) = (before[c].to_real(), after[c].to_real());
        let within = b - a;
        if is_line {
            return a + w * within;
        }
        let (first, last) = (a - left[c].to_real(), right[c].to_real() - b);
        let hm = start.times_h(within, first, last);
        let hn = end.times_h(within, last, first);
        let c2 = (three * within - two * hm) - hn;
        let c3 = (hm + hn) - two * within;
        a + w * (hm + w * (c2 + w * c3))
    })
}

/// Wraps an angle to (-pi, pi].
#[inline(always)]
fn wrapped<R: Real>(angle: R) -> R {
    let (pi, turn) = (R::from_f64(std::f64::consts::PI), R::from_f64(std::f64::consts::TAU));
    let wrapped = angle - turn * (angle / turn).rint();
    if wrapped <= -pi {
        wrapped + turn
    } else if wrapped > pi {
        wrapped - turn
    } else {
        wrapped
    }
}

/// Writes the angles between two samples, channel by channel, along the shorter way around the circle. Returns true if all
/// angles are finite.
pub(super) fn angles_between<S, T>(before: &[S], after: &[S], w: S::Real, out: &mut [T]) -> bool
where
    S: Float,
    T: Float<Real = S::Real>,
{
    let of = S::Real::from_f64;
    let (zero, pi, turn) = (of(0.0), of(std::f64::consts::PI), of(std::f64::consts::TAU));
    // If no angle needs a turn taken away, nothing is divided, and the loop vectorizes. Adding 0 turns -0 into 0, as taking away 0
    // turns does.
    let mut has_turns = false;
    for ((out, a), b) in out.iter_mut().zip(before).zip(after) {
        let (a, b) = (a.to_real(), b.to_real());
        let d = b - a;
        let angle = a + w * (d + zero);
        has_turns |= !((d.abs() <= pi) & (angle.abs() < pi));
        *out = T::from_real(angle + zero);
    }
    !has_turns
        || write_each(out, |channel| {
            let (a, b) = (before[channel].to_real(), after[channel].to_real());
            let d = b - a;
            wrapped(a + w * (d - turn * (d / turn).rint()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f32::consts::{PI, TAU};

    fn formula(a: f32, b: f32, w: f32) -> f32 {
        let less_turns = |x: f32| x - TAU * (x / TAU).round_ties_even();
        let angle = less_turns(a + w * less_turns(b - a));
        match angle {
            _ if angle <= -PI => angle + TAU,
            _ if angle > PI => angle - TAU,
            _ => angle,
        }
    }

    #[test]
    fn an_angle_is_that_of_the_formula_with_turns_and_without() {
        let near = [
            0.0,
            1e-30,
            0.5,
            1.5,
            3.0,
            PI.next_down(),
            PI,
            PI.next_up(),
            6.9,
            50.0,
            3e38,
        ];
        let angles: Vec<f32> = near.into_iter().flat_map(|angle| [angle, -angle]).collect();
        for &a in &angles {
            for &b in &angles {
                for w in [0.0, 0.25, 0.5, 0.999] {
                    let expected = formula(a, b, w);
                    // Alone, and beside a channel whose angles have turns.
                    for (before, after) in [(&[a][..], &[b][..]), (&[a, 9.0], &[b, 2.0])] {
                        let mut out = [7.0f32; 2];
                        let is_finite = angles_between(before, after, w, &mut out[..before.len()]);
                        assert_eq!(is_finite, expected.is_finite(), "{a} {b} {w}");
                        if is_finite {
                            assert_eq!(out[0].to_bits(), expected.to_bits(), "{a} {b} {w}");
                        }
                    }
                }
            }
        }
    }
}
