use crate::quaternion::{Quaternion, to_matrix};
use crate::vector::norm;
use robocache_device::Real;

/// A rotation and then a translation.
#[derive(Clone, Debug, PartialEq)]
pub struct RigidTransform<R> {
    /// The rotation matrix, by rows.
    pub rotation: [[R; 3]; 3],
    /// The translation, metres.
    pub translation: [R; 3],
}

impl<R: Real> RigidTransform<R> {
    /// Normalizes the quaternion, x y z w, by dividing it by its norm, and makes its matrix.
    pub fn new(rotation: Quaternion<R>, translation: [R; 3]) -> Self {
        let norm = norm(rotation);
        Self {
            rotation: to_matrix(rotation.map(|component| component / norm)),
            translation,
        }
    }

    /// The transform with each number rounded to another type.
    pub fn rounded<T: Real>(&self) -> RigidTransform<T> {
        let round = |value: R| T::from_f64(value.to_f64());
        RigidTransform {
            rotation: self.rotation.map(|row| row.map(round)),
            translation: self.translation.map(round),
        }
    }

    /// The image of a point: each coordinate is `((r0 * x + r1 * y) + r2 * z) + t`.
    #[inline]
    pub fn apply(&self, [x, y, z]: [R; 3]) -> [R; 3] {
        std::array::from_fn(|i| {
            let [r0, r1, r2] = self.rotation[i];
            ((r0 * x + r1 * y) + r2 * z) + self.translation[i]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
