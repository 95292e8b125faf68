//! Forms in which policies write rotations: quaternions, 6D and rotation vectors. Reading the numbers that a form has written
//! gives the same rotation, up to rounding.

use crate::chain::UNIT_NORMS;
use robocache_geometry::RigidTransform;
use robocache_geometry::quaternion::{from_rotvec, to_matrix, to_rotvec};
use robocache_geometry::vector::{cross, norm, rejection, unit};

/// Form in which a policy writes a rotation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RotationForm {
    /// A quaternion x y z w.
    #[default]
    Xyzw,
    /// A quaternion w x y z.
    Wxyz,
    /// The first two rows of the rotation matrix, as in pytorch3d, Diffusion Policy, UMI and GR00T.
    Rot6dRows,
    /// The first two columns of the rotation matrix, as in 3D Diffuser Actor and X-VLA.
    Rot6dColumns,
    /// The rotation vector: axis times angle, radians.
    Rotvec,
}

/// Norms that each of the two vectors of a 6D rotation may have before it is normalized. The upper end also bounds the length
/// of a rotation vector.
const NORMS: std::ops::RangeInclusive<f64> = 1e-6..=1e18;

type Matrix = [[f64; 3]; 3];

impl RotationForm {
    /// List of all forms of a rotation.
    pub const ALL: [Self; 5] = [
        Self::Xyzw,
        Self::Wxyz,
        Self::Rot6dRows,
        Self::Rot6dColumns,
        Self::Rotvec,
    ];

    /// Name of the form in configurations, such as `rot6d_rows`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xyzw => "xyzw",
            Self::Wxyz => "wxyz",
            Self::Rot6dRows => "rot6d_rows",
            Self::Rot6dColumns => "rot6d_columns",
            Self::Rotvec => "rotvec",
        }
    }

    /// Number of values of a rotation in this form.
    pub fn width(self) -> usize {
        match self {
            Self::Xyzw | Self::Wxyz => 4,
            Self::Rot6dRows | Self::Rot6dColumns => 6,
            Self::Rotvec => 3,
        }
    }

    /// Describes the numbers that the form allows, for error texts.
    pub(super) fn allowed(self) -> &'static str {
        match self {
            Self::Xyzw | Self::Wxyz => "of norm 1, to within 1 %",
            Self::Rot6dRows | Self::Rot6dColumns => "two vectors that are neither 0 nor parallel",
            Self::Rotvec => "axis times angle",
        }
    }

    /// Reads a rotation in this form, and returns its matrix. Quaternions are normalized, and the two rows or columns of a 6D
    /// rotation are made orthonormal (Gram-Schmidt). Returns `None` if a quaternion's norm is not 1 to within 1 %, or a
    /// rotation vector is longer than 1e18. Also `None` if rows or columns are too small, too large or parallel.
    ///
    /// # Panics
    /// If there are fewer numbers than the [width](Self::width).
    pub fn read(self, numbers: &[f64]) -> Option<Matrix> {
        let quaternion = |q: [f64; 4]| UNIT_NORMS.contains(&norm(q)).then(|| to_matrix(unit(q)));
        match self {
            Self::Xyzw => quaternion([numbers[0], numbers[1], numbers[2], numbers[3]]),
            Self::Wxyz => quaternion([numbers[1], numbers[2], numbers[3], numbers[0]]),
            Self::Rot6dRows => orthonormal(numbers),
            Self::Rot6dColumns => orthonormal(numbers).map(transposed),
            Self::Rotvec => {
                let vector = [numbers[0], numbers[1], numbers[2]];
                (norm(vector) <= *NORMS.end()).then(|| to_matrix(from_rotvec(vector)))
            }
        }
    }

    /// Writes a rotation matrix in this form. Quaternions have w >= 0, and rotation vectors an angle of up to pi.
    ///
    /// # Panics
    /// If there are not as many numbers as the [width](Self::width).
    pub fn write(self, rotation: &Matrix, numbers: &mut [f64]) {
        let pose = RigidTransform {
            rotation: *rotation,
            translation: [0.0; 3],
        };
        let [x, y, z, w] = pose.quaternion();
        match self {
            Self::Xyzw => numbers.copy_from_slice(&[x, y, z, w]),
            Self::Wxyz => numbers.copy_from_slice(&[w, x, y, z]),
            Self::Rot6dRows => numbers.copy_from_slice(rotation[..2].as_flattened()),
            Self::Rot6dColumns => numbers.copy_from_slice(transposed(*rotation)[..2].as_flattened()),
            Self::Rotvec => numbers.copy_from_slice(&to_rotvec::<f64>([x, y, z, w])),
        }
    }
}

/// Makes an orthonormal matrix from its first two rows; `None` if they are too small, too large or parallel.
fn orthonormal(numbers: &[f64]) -> Option<Matrix> {
    let (first, second) = (
        [numbers[0], numbers[1], numbers[2]],
        [numbers[3], numbers[4], numbers[5]],
    );
    if !(NORMS.contains(&norm(first)) && NORMS.contains(&norm(second))) {
        return None;
    }
    let x = unit(first);
    let rest = rejection(x, unit(second));
    if norm(rest) < *NORMS.start() {
        return None;
    }
    let y = unit(rest);
    Some([x, y, cross(x, y)])
}

fn transposed(matrix: Matrix) -> Matrix {
    std::array::from_fn(|i| matrix.map(|row| row[i]))
}
