//! Rigid transforms, and the exponential map of SE(3). Every sum has a fixed order, so that all machines and devices compute the
//! same bits.

use crate::Real;
use crate::quaternion::{Quaternion, from_rotvec, from_rows, to_matrix, to_rotvec};
use crate::vector::{cross, dot, norm};

/// Rigid transform of points: a rotation and then a translation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RigidTransform<R> {
    /// The rotation matrix, by rows.
    pub rotation: [[R; 3]; 3],
    /// The translation, metres.
    pub translation: [R; 3],
}

impl<R: Real> RigidTransform<R> {
    /// Makes the transform of a quaternion, x y z w, and a translation, metres. The quaternion is divided by its norm.
    pub fn new(rotation: Quaternion<R>, translation: [R; 3]) -> Self {
        let norm = norm(rotation);
        Self {
            rotation: to_matrix(rotation.map(|component| component / norm)),
            translation,
        }
    }

    /// The transform that leaves every point where it is.
    pub fn identity() -> Self {
        let (zero, one) = (R::from_f64(0.0), R::from_f64(1.0));
        Self {
            rotation: [[one, zero, zero], [zero, one, zero], [zero, zero, one]],
            translation: [zero; 3],
        }
    }

    /// The transform with each number rounded to the type `T`.
    pub fn rounded<T: Real>(&self) -> RigidTransform<T> {
        let round = |value: R| T::from_f64(value.to_f64());
        RigidTransform {
            rotation: self.rotation.map(|row| row.map(round)),
            translation: self.translation.map(round),
        }
    }

    /// The image of a point: each coordinate is `((r0 * x + r1 * y) + r2 * z) + t`.
    #[inline(always)]
    pub fn apply(&self, [x, y, z]: [R; 3]) -> [R; 3] {
        std::array::from_fn(|i| {
            let [r0, r1, r2] = self.rotation[i];
            ((r0 * x + r1 * y) + r2 * z) + self.translation[i]
        })
    }

    /// The transform that applies `first` and then `self`: the product `self * first`.
    ///
    /// Each entry of the rotation is `(r0 * x + r1 * y) + r2 * z`, and the translation is the [image](Self::apply) of the
    /// translation of `first`.
    #[inline(always)]
    pub fn compose(&self, first: &Self) -> Self {
        let [x, y, z] = &first.rotation;
        Self {
            rotation: self
                .rotation
                .map(|[r0, r1, r2]| std::array::from_fn(|j| (r0 * x[j] + r1 * y[j]) + r2 * z[j])),
            translation: self.apply(first.translation),
        }
    }

    /// The inverse transform: rotation R^T and translation 0 - R^T t.
    pub fn inverse(&self) -> Self {
        let zero = R::from_f64(0.0);
        let rotation: [[R; 3]; 3] = std::array::from_fn(|i| self.rotation.map(|row| row[i]));
        Self {
            translation: rotation.map(|row| zero - dot(row, self.translation)),
            rotation,
        }
    }

    /// The unit quaternion of the rotation, x y z w, with w >= 0.
    #[inline(always)]
    pub fn quaternion(&self) -> Quaternion<R> {
        let [x, y, _] = self.rotation;
        let q = from_rows([x, y]);
        let is_negative = q[3] < R::from_f64(0.0);
        q.map(|component| if is_negative { -component } else { component })
    }
}

impl RigidTransform<f64> {
    /// The transform after moving for a unit of time with a constant twist. The twist is the linear velocity, metres, and then the
    /// rotation vector, radians, both in the axes of the moving body.
    ///
    /// The exponential map of SE(3): the translation is `V v` with `V = I + b W + c W^2`, where `W x` is the cross product of the
    /// rotation vector and `x`, `b = (1 - cos a) / a^2` and `c = (a - sin a) / a^3` of the angle `a`.
    pub fn exp([vx, vy, vz, wx, wy, wz]: [f64; 6]) -> Self {
        let (linear, angular) = ([vx, vy, vz], [wx, wy, wz]);
        let q = from_rotvec(angular);
        let angle = norm(angular);
        let sine_of_half = norm([q[0], q[1], q[2]]);
        let (b, c) = if angle > SMALL_ANGLE {
            let square = angle * angle;
            let sine = 2.0 * sine_of_half * q[3];
            (
                2.0 * sine_of_half * sine_of_half / square,
                (angle - sine) / (square * angle),
            )
        } else {
            series(angle * angle)
        };
        let once = cross(angular, linear);
        let twice = cross(angular, once);
        Self {
            rotation: to_matrix(q),
            translation: std::array::from_fn(|i| (linear[i] + b * once[i]) + c * twice[i]),
        }
    }

    /// The twist whose [`exp`](Self::exp) is the transform; its rotation vector has an angle in [0, pi].
    pub fn log(&self) -> [f64; 6] {
        let angular: [f64; 3] = to_rotvec(self.quaternion());
        let angle = norm(angular);
        let square = angle * angle;
        // The inverse of V is I - W / 2 + d W^2, d = 1 / a^2 - (1 + cos a) / (2 a sin a).
        let d = if angle > SMALL_ANGLE {
            let q = self.quaternion();
            let tangent_of_half = norm([q[0], q[1], q[2]]) / q[3];
            // At half a turn the tangent is infinite, so that the second fraction is 0.
            1.0 / square - 0.5 / (angle * tangent_of_half)
        } else {
            1.0 / 12.0 + square / 720.0
        };
        let once = cross(angular, self.translation);
        let twice = cross(angular, once);
        let [x, y, z] = std::array::from_fn(|i| (self.translation[i] - 0.5 * once[i]) + d * twice[i]);
        [x, y, z, angular[0], angular[1], angular[2]]
    }
}

/// Largest angle, radians, for which [`RigidTransform::exp`] computes its coefficients `b` and `c` by series, and `log` its
/// coefficient `d`. The exact formulas subtract nearly equal numbers, and would lose half of the digits.
const SMALL_ANGLE: f64 = 1e-2;

/// The first terms of the series of `(1 - cos a) / a^2` and `(a - sin a) / a^3`, given the square of `a`.
fn series(square: f64) -> (f64, f64) {
    (
        0.5 - square * (1.0 / 24.0 - square / 720.0),
        1.0 / 6.0 - square * (1.0 / 120.0 - square / 5040.0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::{FRAC_PI_2, PI};

    fn assert_near(a: &RigidTransform<f64>, b: &RigidTransform<f64>, tolerance: f64) {
        let entries = |t: &RigidTransform<f64>| {
            let mut all = t.rotation.as_flattened().to_vec();
            all.extend(t.translation);
            all
        };
        for (x, y) in entries(a).iter().zip(entries(b)) {
            assert!((x - y).abs() <= tolerance, "{a:?} {b:?}");
        }
    }

    #[test]
    fn a_quarter_turn_about_z_takes_x_to_y() {
        let transform = RigidTransform::new([0.0, 0.0, 2.0, 2.0], [1.0, 2.0, 3.0]).rounded::<f32>();
        let expected = [[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]];
        for (row, expected) in transform.rotation.iter().zip(expected) {
            for (value, expected) in row.iter().zip(expected) {
                assert!((value - expected).abs() < 1e-15, "{:?}", transform.rotation);
            }
        }
        assert_eq!(transform.translation, [1.0, 2.0, 3.0]);
    }

    #[test]
    fn a_product_moves_a_point_as_its_factors_do_one_after_the_other() {
        let a = RigidTransform::new([0.1, -0.2, 0.3, 0.9], [1.0, 2.0, 3.0]);
        let b = RigidTransform::new([-0.5, 0.2, 0.3, 0.1], [-4.0, 0.5, 0.25]);
        let point = [0.3, -0.7, 2.0];
        let (at_once, one_by_one) = (a.compose(&b).apply(point), a.apply(b.apply(point)));
        assert!((0..3).all(|i| (at_once[i] - one_by_one[i]).abs() < 1e-15));
        assert_near(&a.compose(&a.inverse()), &RigidTransform::identity(), 1e-15);
        assert_near(&a.inverse().compose(&a), &RigidTransform::identity(), 1e-15);
    }

    #[test]
    fn a_quarter_turn_on_the_spot_and_on_a_circle() {
        let turn = RigidTransform::exp([0.0, 0.0, 0.0, 0.0, 0.0, FRAC_PI_2]);
        assert_near(&turn, &RigidTransform::new([0.0, 0.0, 1.0, 1.0], [0.0; 3]), 1e-15);
        // Ahead while turning to the left: a quarter of a circle of radius 2 about (0, 2).
        let circle = RigidTransform::exp([PI, 0.0, 0.0, 0.0, 0.0, FRAC_PI_2]);
        assert_near(
            &circle,
            &RigidTransform::new([0.0, 0.0, 1.0, 1.0], [2.0, 2.0, 0.0]),
            1e-15,
        );
    }

    #[test]
    fn the_logarithm_of_the_exponential_is_the_velocity() {
        let axis = [2.0 / 3.0, -1.0 / 3.0, 2.0 / 3.0];
        // Angles on both sides of `SMALL_ANGLE`, and up to a half turn, near which the error grows.
        for angle in [0.0, 1e-9, 1e-3, 0.99e-2, 1.01e-2, 0.5, 3.0, PI - 1e-9] {
            let velocity: [f64; 6] = std::array::from_fn(|i| match i {
                0..3 => [0.5, -2.0, 1.5][i],
                _ => angle * axis[i - 3],
            });
            let back = RigidTransform::exp(velocity).log();
            for (a, b) in velocity.iter().zip(back) {
                assert!(
                    (a - b).abs() < 4e-15 / (1.0 - angle / PI).max(1e-3),
                    "{angle} {velocity:?} {back:?}"
                );
            }
        }
    }

    #[test]
    fn the_quaternion_has_w_of_at_least_0() {
        for q in [[0.1, 0.2, 0.3, -0.9], [0.9, 0.1, -0.2, 0.1], [0.0, 0.0, -1.0, 0.0]] {
            let back = RigidTransform::<f64>::new(q, [0.0; 3]).quaternion();
            assert!(back[3] >= 0.0);
            assert_near(
                &RigidTransform::new(back, [0.0; 3]),
                &RigidTransform::new(q, [0.0; 3]),
                1e-15,
            );
        }
    }
}
