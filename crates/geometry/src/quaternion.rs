//! Rotations as unit quaternions (x y z w), matrices and rotation vectors, converted with the same bits on every machine.

use crate::Real;
use crate::angle::{arc, sin_cos};
use crate::vector::{cross, norm, unit};

/// A quaternion in the order x y z w.
pub type Quaternion<R> = [R; 4];

/// The unit quaternion of the rotation matrix with these first two rows, after Shepperd, Quaternion from rotation matrix,
/// Journal of Guidance and Control 1(3), 1978.
#[inline(always)]
pub fn from_rows<R: Real>([x, y]: [[R; 3]; 2]) -> Quaternion<R> {
    let z = cross(x, y);
    let (zero, one) = (R::from_f64(0.0), R::from_f64(1.0));
    let sum = (x[0] + y[1]) + z[2];
    let is_w = sum > zero;
    let is_x = (x[0] >= y[1]) & (x[0] >= z[2]);
    let is_y = y[1] >= z[2];
    // Each component is multiplied by 4 times the largest one, which is not small. Selects take the place of branches, since they
    // vectorize.
    let choose = |with_w, with_x, with_y, with_z| {
        let of_axis = if is_x {
            with_x
        } else if is_y {
            with_y
        } else {
            with_z
        };
        if is_w { with_w } else { of_axis }
    };
    unit([
        choose(z[1] - y[2], ((one + x[0]) - y[1]) - z[2], x[1] + y[0], x[2] + z[0]),
        choose(x[2] - z[0], x[1] + y[0], ((one - x[0]) + y[1]) - z[2], y[2] + z[1]),
        choose(y[0] - x[1], x[2] + z[0], y[2] + z[1], ((one - x[0]) - y[1]) + z[2]),
        choose(one + sum, z[1] - y[2], x[2] - z[0], y[0] - x[1]),
    ])
}

/// The rotation matrix of a unit quaternion, by rows.
pub fn to_matrix<R: Real>([x, y, z, w]: Quaternion<R>) -> [[R; 3]; 3] {
    let (one, two) = (R::from_f64(1.0), R::from_f64(2.0));
    [
        [
            one - two * (y * y + z * z),
            two * (x * y - z * w),
            two * (x * z + y * w),
        ],
        [
            two * (x * y + z * w),
            one - two * (x * x + z * z),
            two * (y * z - x * w),
        ],
        [
            two * (x * z - y * w),
            two * (y * z + x * w),
            one - two * (x * x + y * y),
        ],
    ]
}

/// Returns the product of two unit quaternions: the rotation `b` followed by the rotation `a`. The product of a quaternion and
/// its [`conjugate`] has exactly 0 as its vector part.
pub fn product<R: Real>([ax, ay, az, aw]: Quaternion<R>, [bx, by, bz, bw]: Quaternion<R>) -> Quaternion<R> {
    [
        (aw * bx + ax * bw) + (ay * bz - az * by),
        (aw * by + ay * bw) + (az * bx - ax * bz),
        (aw * bz + az * bw) + (ax * by - ay * bx),
        (aw * bw - ax * bx) - (ay * by + az * bz),
    ]
}

/// The unit quaternion of the inverse rotation.
pub fn conjugate<R: Real>([x, y, z, w]: Quaternion<R>) -> Quaternion<R> {
    let zero = R::from_f64(0.0);
    [zero - x, zero - y, zero - z, w]
}

/// The unit quaternion of a rotation vector, radians.
pub fn from_rotvec<R: Real>(vector: [R; 3]) -> Quaternion<f64> {
    let [x, y, z] = vector.map(R::to_f64);
    let angle = norm([x, y, z]);
    let (sine, cosine) = sin_cos(0.5 * angle);
    // The limit of sin(angle / 2) / angle.
    let scale = if angle > 0.0 { sine / angle } else { 0.5 };
    unit([x * scale, y * scale, z * scale, cosine])
}

/// The rotation vector of a unit quaternion, with an angle in [0, pi].
pub fn to_rotvec<R: Real>(q: Quaternion<f64>) -> [R; 3] {
    let [x, y, z, w] = if q[3] < 0.0 { q.map(|x| -x) } else { q };
    let sine = norm([x, y, z]);
    // The limit of angle / sin(angle / 2).
    let scale = if sine > 1e-12 { 2.0 * arc(sine, w) / sine } else { 2.0 };
    [x, y, z].map(|x| R::from_f64(x * scale))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::dot;

    #[test]
    fn a_product_is_one_rotation_after_the_other() {
        let (a, b) = (unit([0.1, -0.4, 0.3, 0.8]), unit([-0.7, 0.2, 0.1, -0.3]));
        let of_product = to_matrix::<f64>(product(a, b));
        let (first, then) = (to_matrix(b), to_matrix(a));
        for (i, row) in of_product.iter().enumerate() {
            for (j, value) in row.iter().enumerate() {
                let expected: f64 = (0..3).map(|k| then[i][k] * first[k][j]).sum();
                assert!((value - expected).abs() < 1e-15, "{of_product:?}");
            }
        }
        let [x, y, z, w] = product(conjugate(a), a);
        assert_eq!([x, y, z], [0.0; 3]);
        assert!((w - 1.0).abs() < 1e-15);
    }

    #[test]
    fn a_rotation_matrix_comes_back_from_its_quaternion() {
        for q in [
            [0.1, 0.2, 0.3, 0.9],
            [0.9, 0.1, 0.1, -0.1],
            [0.1, -0.9, 0.2, 0.1],
            [0.1, 0.1, 0.9, 0.05],
        ] {
            let q = unit::<f64, 4>(q);
            let [x, y, z] = to_matrix(q);
            let back = from_rows([x, y]);
            assert!(cross(x, y).iter().zip(z).all(|(a, b)| (a - b).abs() < 1e-15), "{q:?}");
            assert!(1.0 - dot(q, back).abs() < 1e-14, "{q:?} {back:?}");
        }
    }
}
