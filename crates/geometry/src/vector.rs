//! Products and norms of vectors. Every sum runs from the first component on, so that all machines compute the same bits.

use crate::Real;

/// The inner product, summed from the first component on.
#[inline(always)]
pub fn dot<R: Real, const N: usize>(a: [R; N], b: [R; N]) -> R {
    (1..N).fold(a[0] * b[0], |sum, i| sum + a[i] * b[i])
}

/// The Euclidean norm.
#[inline(always)]
pub fn norm<R: Real, const N: usize>(a: [R; N]) -> R {
    dot(a, a).sqrt()
}

/// The vector of norm 1 in the same direction: each component times the inverse of the norm.
#[inline(always)]
pub fn unit<R: Real, const N: usize>(a: [R; N]) -> [R; N] {
    let inverse = R::from_f64(1.0) / norm(a);
    a.map(|x| x * inverse)
}

/// The cross product of two vectors.
#[inline(always)]
pub fn cross<R: Real>(a: [R; 3], b: [R; 3]) -> [R; 3] {
    [
        a[1] * b[2] - a[2] * b[1],
        a[2] * b[0] - a[0] * b[2],
        a[0] * b[1] - a[1] * b[0],
    ]
}

/// The part of `second` that is perpendicular to the unit vector `first`. Its norm is not 1 in general.
#[inline(always)]
pub fn rejection<R: Real>(first: [R; 3], second: [R; 3]) -> [R; 3] {
    let along = dot(first, second);
    std::array::from_fn(|i| second[i] - along * first[i])
}
