//! Tasks of inverse kinematics: the part of a pose that the tip has to reach, and the error of the tip against it. Linear rows
//! of the error are metres, and angular rows have the length 2 sin(angle / 2).

use crate::chain::MAX_JOINTS;
use crate::jacobian::{Column, to_tool};
use crate::model::Pose;
use robocache_geometry::quaternion::Quaternion;
use robocache_geometry::vector::dot;
use robocache_geometry::{Real, RigidTransform};
use serde::Deserialize;

/// Part of a target pose that the tip has to reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// The position and the rotation of the tip.
    #[default]
    Pose,
    /// The position of the tip, with any rotation.
    Position,
    /// The position of the tip and the direction of its z axis: the tool may turn about this axis.
    PositionAxis,
}

impl Task {
    /// Number of rows of the task's error: three linear rows, and the angular rows.
    pub fn rows(self) -> usize {
        match self {
            Self::Pose => 6,
            Self::Position => 3,
            Self::PositionAxis => 5,
        }
    }
}

/// Largest coordinate of a target that can be used, metres.
pub const MAX_DISTANCE: f64 = 1e6;
/// Squares of the smallest and the largest norm of a target's quaternion: the ends of [`UNIT_NORMS`](crate::UNIT_NORMS).
const SQUARED_NORMS: [f64; 2] = [0.9801, 1.0201];

/// A pose to be reached, with a quaternion of norm 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<R> {
    position: [R; 3],
    rotation: Quaternion<R>,
}

impl<R: Real> Target<R> {
    /// Checks a pose, and normalizes its quaternion. Returns `None` if the pose is not finite or too far away, or if the norm
    /// of its quaternion is not 1 to within 1 %.
    pub fn new(&[x, y, z, qx, qy, qz, qw]: &Pose<R>) -> Option<Self> {
        let (position, rotation) = ([x, y, z], [qx, qy, qz, qw]);
        let [least, most] = SQUARED_NORMS.map(R::from_f64);
        let square = dot(rotation, rotation);
        let is_near = position.iter().all(|x| x.abs() <= R::from_f64(MAX_DISTANCE));
        let inverse = R::from_f64(1.0) / square.sqrt();
        (is_near && square >= least && square <= most).then(|| Self {
            position,
            rotation: rotation.map(|component| component * inverse),
        })
    }
}

/// Residual of a row of joints: its error against a target, and the Jacobian of the tip.
pub(super) struct Residual<R, const M: usize> {
    /// Error in each row of the task: the three linear rows, and then the angular rows.
    pub error: [R; M],
    /// Jacobian in the rows of the task, a column for each joint.
    pub columns: [[R; M]; MAX_JOINTS],
    /// Sum of the squared linear errors.
    pub position: R,
    /// Sum of the squared angular errors; 0 for a task without a rotation.
    pub rotation: R,
}

/// Rows of the error and of the Jacobian for one task, `M` in number.
pub(super) trait Rows<const M: usize> {
    /// Writes the angular rows of the error from the tip to a target, after the three linear rows.
    fn angular_error<R: Real>(target: &Target<R>, tip: &RigidTransform<R>, error: &mut [R; M]);
    /// Returns the task's rows of a column of the Jacobian.
    fn rows<R: Real>(tip: &RigidTransform<R>, column: Column<R>) -> [R; M];
}

/// Rows of [`Task::Pose`]: position and rotation.
pub(super) struct WholePose;
/// Rows of [`Task::Position`]: the position alone.
pub(super) struct PositionOnly;
/// Rows of [`Task::PositionAxis`]: the position and the direction of the z axis.
pub(super) struct PositionAndAxis;

impl Rows<6> for WholePose {
    /// Writes twice the vector part of q* q^-1, with q* the target's quaternion and q the tip's. This vector lies along the
    /// axis of the shorter rotation from the tip to the target, and has the length 2 sin(angle / 2).
    #[inline(always)]
    fn angular_error<R: Real>(target: &Target<R>, tip: &RigidTransform<R>, error: &mut [R; 6]) {
        let (a, b) = (target.rotation, tip.quaternion());
        let is_negative = dot(a, b) < R::from_f64(0.0);
        let two = R::from_f64(if is_negative { -2.0 } else { 2.0 });
        for (i, j, k) in [(0, 1, 2), (1, 2, 0), (2, 0, 1)] {
            error[3 + i] = two * (((a[i] * b[3] - a[3] * b[i]) - a[j] * b[k]) + a[k] * b[j]);
        }
    }

    #[inline(always)]
    fn rows<R: Real>(_: &RigidTransform<R>, column: Column<R>) -> [R; 6] {
        column
    }
}

impl Rows<3> for PositionOnly {
    #[inline(always)]
    fn angular_error<R: Real>(_: &Target<R>, _: &RigidTransform<R>, _: &mut [R; 3]) {}

    #[inline(always)]
    fn rows<R: Real>(_: &RigidTransform<R>, [x, y, z, ..]: Column<R>) -> [R; 3] {
        [x, y, z]
    }
}

impl Rows<5> for PositionAndAxis {
    /// Writes the rotation from the tool's z axis to the target's z axis d, both in the tool's axes: (-d_y, d_x), scaled to a
    /// length of 2 sin(angle / 2).
    #[inline(always)]
    fn angular_error<R: Real>(target: &Target<R>, tip: &RigidTransform<R>, error: &mut [R; 5]) {
        let (zero, one, two) = (R::from_f64(0.0), R::from_f64(1.0), R::from_f64(2.0));
        let [x, y, z, w] = target.rotation;
        let wanted = [
            two * (x * z + y * w),
            two * (y * z - x * w),
            one - two * (x * x + y * y),
        ];
        let d = to_tool(tip, wanted);
        // If the axes are opposite, `rest` is 0, and half a turn about any perpendicular axis reaches the target.
        let (rest, least) = (one + d[2], R::from_f64(1e-6));
        let scale = (two / if rest > least { rest } else { least }).sqrt();
        [error[3], error[4]] = if rest > least {
            [-d[1] * scale, d[0] * scale]
        } else {
            [two, zero]
        };
    }

    #[inline(always)]
    fn rows<R: Real>(tip: &RigidTransform<R>, [x, y, z, angular @ ..]: Column<R>) -> [R; 5] {
        let [about_x, about_y, _] = to_tool(tip, angular);
        [x, y, z, about_x, about_y]
    }
}

impl<R: Real, const M: usize> Residual<R, M> {
    /// Makes a residual of zeros, to be filled by `compare`.
    pub fn zero() -> Self {
        Self {
            error: [R::default(); M],
            columns: [[R::default(); M]; MAX_JOINTS],
            position: R::default(),
            rotation: R::default(),
        }
    }

    /// Computes the error between the tip's frame and a target. `columns` is the Jacobian at the same joints, in the
    /// base's axes.
    #[inline(always)]
    pub fn compare<T: Rows<M>>(&mut self, target: &Target<R>, tip: &RigidTransform<R>, columns: &[Column<R>]) {
        for i in 0..3 {
            self.error[i] = target.position[i] - tip.translation[i];
        }
        T::angular_error(target, tip, &mut self.error);
        for (to, &from) in self.columns.iter_mut().zip(columns) {
            *to = T::rows(tip, from);
        }
        self.measure();
    }

    /// Sets the error in rows of weight 0 to 0, and multiplies all rows by their weights. Returns the squared linear and
    /// angular errors before the multiplication, which are compared with the tolerances.
    pub fn weigh(&mut self, weights: &[R; 6]) -> [R; 2] {
        for (error, &weight) in self.error.iter_mut().zip(weights) {
            *error = if weight == R::default() { weight } else { *error };
        }
        self.measure();
        let judged = [self.position, self.rotation];
        for row in self.columns.iter_mut().chain([&mut self.error]) {
            for (value, &weight) in row.iter_mut().zip(weights) {
                *value = *value * weight;
            }
        }
        self.measure();
        judged
    }

    #[inline(always)]
    fn measure(&mut self) {
        let square = |from: usize, to: usize| {
            let mut sum = self.error[from] * self.error[from];
            for i in from + 1..to {
                sum = sum + self.error[i] * self.error[i];
            }
            sum
        };
        self.position = square(0, 3);
        self.rotation = if M > 3 { square(3, M) } else { R::default() };
    }
}
