//! Rotations: `slerp`, and `rot6d` and `rotvec` through it.
//!
//! All modes but `rotvec` use multiplications, additions, divisions and square roots alone, so that a GPU computes the same bits.
//! The mode `rotvec` also needs a sine, a cosine and an arc tangent, from [`robocache_geometry::angle`].

use super::channels::{ROWS, write_each};
use super::mode::{Interpolation, QuaternionOrder, Rule};
use super::pick::Pick;
use robocache_device::{Float, Real};
use robocache_geometry::quaternion::{self, Quaternion};
use robocache_geometry::vector::{dot, norm, rejection, unit};

/// Smallest and largest accepted norm of a quaternion, or of another vector that represents a rotation.
const NORMS: [f64; 2] = [1e-6, 1e18];

/// Number of terms of the polynomial for slerp. `BALANCE` is the factor of its last term, which balances the error. Source: Eberly,
/// A Fast and Accurate Algorithm for Computing SLERP, Journal of Graphics, GPU, and Game Tools 15(3), 2011.
const TERMS: usize = 16;
const BALANCE: f64 = 1.92697;

/// Eberly's coefficients u and v of each term of the polynomial for slerp.
const U_V: [[f64; 2]; TERMS] = {
    let mut terms = [[0.0; 2]; TERMS];
    let mut i = 0;
    while i < TERMS {
        let n = (i + 1) as f64;
        let balance = if i + 1 == TERMS { BALANCE } else { 1.0 };
        terms[i] = [balance / (n * (2.0 * n + 1.0)), balance * n / (2.0 * n + 1.0)];
        i += 1;
    }
    terms
};

/// True if the channels of a sample are a rotation, in the representation of the mode.
pub(super) fn is_rotation_sample<S: Float>(mode: Interpolation, sample: &[S]) -> bool {
    match mode {
        Interpolation::Slerp => has_direction(read::<S, 4>(sample)),
        Interpolation::Rotvec => norm(read::<S, 3>(sample)) <= S::Real::from_f64(NORMS[1]),
        _ => {
            let [first, second] = vectors(sample);
            has_direction(first) && has_direction(second) && has_direction(rejection(unit(first), unit(second)))
        }
    }
}

/// Writes the normalised rotation of one sample, as the value at a target. Returns whether all written values are finite.
pub(super) fn hold<S: Float, T: Float<Real = S::Real>>(rule: &Rule, sample: &[S], out: &mut [T]) -> bool {
    match rule.mode {
        Interpolation::Slerp => put(canonical(rule, unit(read(sample))), out),
        Interpolation::Rotvec => put(quaternion::to_rotvec(quaternion::from_rotvec(read(sample))), out),
        _ => {
            let [x, y] = rows(sample);
            put([x[0], x[1], x[2], y[0], y[1], y[2]], out)
        }
    }
}

/// Interpolates the rotation of each row whose target is between two samples. Calls `put` with the row and the channels of
/// its rotation.
pub(super) fn between<'a, S: Float>(
    rule: &Rule,
    picks: &[Pick],
    sample: impl Fn(usize) -> &'a [S],
    mut put: impl FnMut(usize, &[S::Real]),
) {
    match rule.mode {
        Interpolation::Slerp => {
            let quaternion = |i| unit(read(sample(i)));
            slerp::<S::Real, _>(picks, quaternion, |row, q| put(row, &canonical(rule, q)));
        }
        Interpolation::Rotvec => {
            let quaternion = |i| quaternion::from_rotvec::<S::Real>(read(sample(i)));
            slerp::<S::Real, _>(picks, quaternion, |row, q| put(row, &quaternion::to_rotvec(q)));
        }
        // The inverse of an interpolated rotation is the interpolation of the inverses, so columns can be read as rows.
        _ => {
            let quaternion = |i| quaternion::from_rows(rows(sample(i)));
            slerp::<S::Real, _>(picks, quaternion, |row, q| put(row, &rot6d(q)));
        }
    }
}

fn read<S: Float, const N: usize>(sample: &[S]) -> [S::Real; N] {
    std::array::from_fn(|i| sample[i].to_real())
}

fn put<T: Float, const N: usize>(values: [T::Real; N], out: &mut [T]) -> bool {
    write_each(out, |channel| values[channel])
}

fn has_direction<R: Real, const N: usize>(a: [R; N]) -> bool {
    let norm = norm(a);
    norm >= R::from_f64(NORMS[0]) && norm <= R::from_f64(NORMS[1])
}

/// Returns the quaternion `q` or `-q`, which is the same rotation: the one with w >= 0 if the rule is `canonical`, else `q`.
fn canonical<R: Real>(rule: &Rule, q: Quaternion<R>) -> Quaternion<R> {
    let w = match rule.order {
        QuaternionOrder::Xyzw => q[3],
        QuaternionOrder::Wxyz => q[0],
    };
    if rule.canonical && w < R::from_f64(0.0) {
        q.map(|x| -x)
    } else {
        q
    }
}

/// Interpolates the unit quaternion of each row whose target is between two samples, along the shorter arc, in the
/// hemisphere of the first sample. Each row is a SIMD lane: the terms of the polynomial depend on one another, but loops
/// over rows vectorize.
fn slerp<W: Real, R: Real>(
    picks: &[Pick],
    quaternion: impl Fn(usize) -> Quaternion<R>,
    mut put: impl FnMut(usize, Quaternion<R>),
) {
    let (zero, one) = (R::from_f64(0.0), R::from_f64(1.0));
    let mut ends = [[[zero; 4]; 2]; ROWS];
    let mut weights = [[one; ROWS]; 2];
    let mut cosine_minus_one = [zero; ROWS];
    let mut is_any = false;
    for (row, &picked) in picks.iter().enumerate() {
        if let Pick::Between { before, after, weight } = picked {
            let [a, b] = [quaternion(before), quaternion(after)];
            let cosine = dot(a, b);
            let sign = if cosine < zero { -one } else { one };
            let cosine = cosine * sign;
            let weight = R::from_f64(W::from_f64(weight).to_f64());
            ends[row] = [a, b.map(|x| x * sign)];
            weights[0][row] = one - weight;
            weights[1][row] = weight;
            cosine_minus_one[row] = if cosine > one { zero } else { cosine - one };
            is_any = true;
        }
    }
    if !is_any {
        return;
    }
    let [of_a, of_b] = sine_ratios(&weights, &cosine_minus_one);
    for (row, &picked) in picks.iter().enumerate() {
        if let Pick::Between { .. } = picked {
            let [a, b] = ends[row];
            put(row, unit(std::array::from_fn(|i| of_a[row] * a[i] + of_b[row] * b[i])));
        }
    }
}

/// Returns `sin(t * angle) / sin(angle)` for the two weights t of each row: of the sample before its target, and of the sample
/// after it. The argument `cosine_minus_one` is the cosine of the angle between the two quaternions, minus 1.
#[inline(always)]
fn sine_ratios<R: Real>(weights: &[[R; ROWS]; 2], cosine_minus_one: &[R; ROWS]) -> [[R; ROWS]; 2] {
    let one = R::from_f64(1.0);
    let squares = weights.map(|weights| weights.map(|t| t * t));
    let mut nested = [[one; ROWS]; 2];
    for [u, v] in U_V.into_iter().rev() {
        let (u, v) = (R::from_f64(u), R::from_f64(v));
        for (nested, squares) in nested.iter_mut().zip(&squares) {
            for ((nested, &square), &cosine_minus_one) in nested.iter_mut().zip(squares).zip(cosine_minus_one) {
                *nested = one + ((u * square - v) * cosine_minus_one) * *nested;
            }
        }
    }
    std::array::from_fn(|end| std::array::from_fn(|row| weights[end][row] * nested[end][row]))
}

fn vectors<S: Float>(sample: &[S]) -> [[S::Real; 3]; 2] {
    [read(&sample[..3]), read(&sample[3..])]
}

/// Reads the two vectors of a sample and makes them orthonormal (Gram-Schmidt).
fn rows<S: Float>(sample: &[S]) -> [[S::Real; 3]; 2] {
    let [first, second] = vectors(sample).map(unit);
    [first, unit(rejection(first, second))]
}

/// The first two rows of the matrix of a unit quaternion, one after the other.
fn rot6d<R: Real>(q: Quaternion<R>) -> [R; 6] {
    let [x, y, _] = quaternion::to_matrix(q);
    [x[0], x[1], x[2], y[0], y[1], y[2]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_polynomial_is_the_ratio_of_the_sines() {
        for i in 1..=157 {
            let angle = f64::from(i) * 0.01;
            for t in [0.0, 0.1, 0.5, 0.73, 1.0] {
                let expected = (t * angle).sin() / angle.sin();
                let [_, ratios] = sine_ratios(&[[0.0; ROWS], [t; ROWS]], &[angle.cos() - 1.0; ROWS]);
                assert!(
                    ratios.iter().all(|ratios| (ratios - expected).abs() < 2e-7),
                    "{angle} {t}"
                );
            }
        }
    }
}
