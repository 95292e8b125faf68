//! Jacobians: the velocity of the tip for a unit of velocity of each joint. Sums run over the joints in their order.

use crate::chain::MAX_JOINTS;
use crate::ldl::Ldl;
use crate::model::{Model, Pose, Turns, pose_of};
use robocache_geometry::vector::cross;
use robocache_geometry::{Real, RigidTransform};
use serde::Deserialize;

/// Point and axes in which the velocity of the tip is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Frame {
    /// The velocity of the tip, in the axes of the base. Pinocchio calls it LOCAL_WORLD_ALIGNED.
    #[default]
    Base,
    /// The velocity of the tip, in the axes of the tip. Pinocchio calls it LOCAL.
    Tool,
    /// The velocity of the point of the moving body that is at the base's origin, in the axes of the base. Pinocchio calls it
    /// WORLD.
    Spatial,
}

/// Velocity of a body: the linear velocity, metres per second, and then the angular one, radians per second.
pub type Twist<R> = [R; 6];

/// Column of a Jacobian: the linear velocity of the tip for a unit of velocity of one joint, and then the angular one.
pub(crate) type Column<R> = [R; 6];
/// Columns of all joints or segments; the columns after the last one are 0.
pub(crate) type Columns<R> = [Column<R>; MAX_JOINTS];

impl<R: Real> Model<R> {
    /// Writes the Jacobian of the tip, row-major: 6 rows with a number for each joint, the linear rows first. Returns the pose
    /// of the tip.
    ///
    /// Returns `None`, and writes nothing, if `q` is not [valid](Self::takes).
    ///
    /// # Panics
    /// If `q` does not have a value for each joint, or `jacobian` 6 numbers for each joint.
    pub fn jacobian(&self, q: &[R], frame: Frame, jacobian: &mut [R]) -> Option<Pose<R>> {
        assert_eq!(jacobian.len(), 6 * self.joints, "6 numbers for each joint");
        let turns = self.turns(q);
        if !turns.is_valid {
            return None;
        }
        let mut columns = Columns::default();
        let tip = self.columns(&turns, frame, &mut columns);
        for (i, row) in jacobian.chunks_exact_mut(self.joints).enumerate() {
            for (value, column) in row.iter_mut().zip(&columns) {
                *value = column[i];
            }
        }
        Some(pose_of(&tip))
    }

    /// Computes the velocity of the tip at joints `q` that move with `dq`, radians or metres per second. Each component is the
    /// Jacobian's row times `dq`, summed from the first joint on.
    ///
    /// Returns `None` if `q` is not [valid](Self::takes), or a velocity is not finite.
    ///
    /// # Panics
    /// If `q` or `dq` does not have a value for each joint.
    pub fn twist(&self, q: &[R], dq: &[R], frame: Frame) -> Option<Twist<R>> {
        assert_eq!(dq.len(), self.joints, "a velocity for each joint");
        let turns = self.turns(q);
        if !(turns.is_valid && dq.iter().all(|velocity| velocity.is_finite())) {
            return None;
        }
        let mut columns = Columns::default();
        self.columns(&turns, frame, &mut columns);
        let mut twist = columns[0].map(|x| x * dq[0]);
        for (column, &velocity) in columns[..self.joints].iter().zip(dq).skip(1) {
            for (sum, x) in twist.iter_mut().zip(column) {
                *sum = *sum + *x * velocity;
            }
        }
        twist.iter().all(|x| x.is_finite()).then_some(twist)
    }

    /// Computes the manipulability sqrt(det J J^T), after Yoshikawa, Manipulability of robotic mechanisms, International
    /// Journal of Robotics Research 4(2), 1985; sqrt(det J^T J) for fewer than 6 joints. The result is 0 at a singularity, to
    /// within rounding.
    ///
    /// Returns `None` if `q` is not [valid](Self::takes).
    ///
    /// # Panics
    /// If `q` does not have a value for each joint.
    pub fn manipulability(&self, q: &[R]) -> Option<R> {
        let turns = self.turns(q);
        if !turns.is_valid {
            return None;
        }
        let (zero, one) = (R::from_f64(0.0), R::from_f64(1.0));
        let mut columns = Columns::default();
        self.columns(&turns, Frame::Base, &mut columns);
        let pivots = if self.joints < 6 {
            // The matrix J^T J, with a 1 on the diagonal for each joint that is missing to 6.
            let mut products = [[zero; 6]; 6];
            for (i, row) in products.iter_mut().enumerate() {
                for (value, column) in row.iter_mut().zip(&columns[..=i]) {
                    *value = robocache_geometry::vector::dot(columns[i], *column);
                }
                if i >= self.joints {
                    row[i] = one;
                }
            }
            Ldl::new(products, zero).pivots
        } else {
            Ldl::new(products(&columns[..self.joints]), zero).pivots
        };
        let is_regular = pivots.iter().all(|&pivot| pivot > zero);
        let product = pivots.iter().fold(one, |product, &pivot| product * pivot);
        Some(if is_regular { product.sqrt() } else { zero })
    }

    /// Writes the Jacobian's column for each joint. Returns the frame of the tip.
    #[inline(always)]
    pub(crate) fn columns(&self, turns: &Turns<R>, frame: Frame, columns: &mut Columns<R>) -> RigidTransform<R> {
        // First, the column of each segment holds the segment's axis and origin.
        let tip = self.tip(turns, |i, axis, _| {
            let ([x, y, z], [a, b, c]) = (axis.rotation.map(|row| row[2]), axis.translation);
            columns[i] = [x, y, z, a, b, c];
        });
        for (segment, column) in self.segments.iter().zip(&mut *columns) {
            let [x, y, z, a, b, c] = *column;
            *column = velocity(segment.slides, [x, y, z], [a, b, c], frame, &tip);
        }
        if !self.is_direct {
            *columns = self.by_joint(columns);
        }
        tip
    }

    /// Sums the columns of segments to columns of joints. The column of a mimic is multiplied by its multiplier, and added to
    /// the column of the joint that it mimics.
    fn by_joint(&self, of_segments: &Columns<R>) -> Columns<R> {
        let mut columns = Columns::default();
        for (segment, column) in self.segments.iter().zip(of_segments) {
            let column = match segment.mimic {
                Some([multiplier, _]) => column.map(|x| x * multiplier),
                None => *column,
            };
            let whole = &mut columns[segment.joint];
            *whole = match segment.is_first {
                true => column,
                false => std::array::from_fn(|i| whole[i] + column[i]),
            };
        }
        columns
    }
}

/// Computes the velocity of the tip for a unit of velocity about, or along, the axis `z` at `origin`.
#[inline(always)]
fn velocity<R: Real>(slides: bool, z: [R; 3], origin: [R; 3], frame: Frame, tip: &RigidTransform<R>) -> Column<R> {
    let zero = [R::from_f64(0.0); 3];
    let [linear, angular] = match (slides, frame) {
        (true, _) => [z, zero],
        (false, Frame::Spatial) => [cross(origin, z), z],
        (false, Frame::Base | Frame::Tool) => {
            let arm = std::array::from_fn(|i| tip.translation[i] - origin[i]);
            [cross(z, arm), z]
        }
    };
    let [[a, b, c], [d, e, f]] = match frame {
        Frame::Tool => [to_tool(tip, linear), to_tool(tip, angular)],
        Frame::Base | Frame::Spatial => [linear, angular],
    };
    [a, b, c, d, e, f]
}

/// Turns a vector from the base's axes to the tip's: the transposed rotation times the vector.
#[inline(always)]
pub(crate) fn to_tool<R: Real>(tip: &RigidTransform<R>, [x, y, z]: [R; 3]) -> [R; 3] {
    let [a, b, c] = tip.rotation;
    std::array::from_fn(|i| (a[i] * x + b[i] * y) + c[i] * z)
}

/// Computes the lower triangle of J J^T from the columns of J. Each entry is summed over the columns in their order.
#[inline(always)]
pub(crate) fn products<R: Real, const M: usize>(columns: &[[R; M]]) -> [[R; M]; M] {
    let mut products = [[R::default(); M]; M];
    for h in 0..M {
        let mut sums: [R; M] = std::array::from_fn(|i| columns[0][h] * columns[0][i]);
        for column in &columns[1..] {
            for i in h..M {
                sums[i] = sums[i] + column[h] * column[i];
            }
        }
        for i in h..M {
            products[i][h] = sums[i];
        }
    }
    products
}
