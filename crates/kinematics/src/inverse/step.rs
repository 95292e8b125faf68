//! Joint limits, and the steps of the inverse kinematics search. Every step ends within the limits.

use super::task::Residual;
use crate::chain::{Chain, JointKind};
use crate::jacobian::products;
use crate::ldl::Ldl;
use crate::limits::inwards;
use robocache_geometry::Real;
use std::f64::consts::TAU;

/// Largest change of a joint in one step of the search, radians or metres.
pub(super) const MAX_STEP: f64 = 1.0;
/// Largest distance of a seed's value past a limit, radians or metres, at which the value becomes the limit. Real arms exceed
/// their limits by as much, and a full turn back would lead to the other end of the range.
const SLACK: f64 = 0.1;
/// Smallest range of a revolute joint, radians, for which a step past one limit leads to the other end of the range. With a
/// smaller range the joint stays at the limit.
const TURNING_RANGE: f64 = 6.2;

/// Limits of all joints of a chain, and the steps within them.
#[derive(Clone, Debug)]
pub(super) struct Bounds<R> {
    joints: Vec<Bound<R>>,
}

/// Limits of a joint, and the treatment of steps that exceed them.
#[derive(Clone, Debug)]
pub struct Bound<R> {
    /// Smallest value of the joint within the limits, radians or metres.
    pub lower: R,
    /// Largest value of the joint within the limits, radians or metres.
    pub upper: R,
    /// True if a value past a limit may be brought back by a full turn, which leads to the same pose of the tip.
    pub turns: bool,
    /// True if the joint stays at a limit that a step would pass; false if the step leads to the other end of the range.
    pub holds: bool,
}

impl<R: Real> Bounds<R> {
    pub fn new(chain: &Chain) -> Self {
        let bound = |(i, joint): (usize, &crate::chain::Joint)| {
            let [lower, upper] = inwards(joint.limits);
            let drives_itself = chain
                .segments
                .iter()
                .all(|segment| segment.joint != i || segment.mimic.is_none());
            let turns = joint.kind == JointKind::Revolute && drives_itself;
            Bound {
                lower,
                upper,
                turns,
                holds: !(turns && joint.limits[1] - joint.limits[0] >= TURNING_RANGE),
            }
        };
        Self {
            joints: chain.joints().iter().enumerate().map(bound).collect(),
        }
    }

    /// Returns the limits for steps along a trajectory: every joint stays at a limit, as a full turn would be a jump.
    pub fn along(&self) -> Self {
        let held = |bound: &Bound<R>| Bound {
            turns: false,
            holds: true,
            ..bound.clone()
        };
        Self {
            joints: self.joints.iter().map(held).collect(),
        }
    }

    /// Limits of the joints, in the order of a row of joint values.
    pub fn all(&self) -> &[Bound<R>] {
        &self.joints
    }

    /// Brings a value within the limits of a joint. A value past a limit becomes the value a full turn back, if the joint turns
    /// and that value is within the limits, else the limit.
    #[inline(always)]
    pub fn inside(&self, joint: usize, value: R) -> R {
        let bound = &self.joints[joint];
        let turn = R::from_f64(TAU);
        let (is_above, is_below) = (value > bound.upper, value < bound.lower);
        let turned = value + if is_above { -turn } else { turn };
        let limit = if is_above { bound.upper } else { bound.lower };
        if !(is_above | is_below) {
            value
        } else if bound.turns & (turned >= bound.lower) & (turned <= bound.upper) {
            turned
        } else {
            limit
        }
    }

    /// Brings a value of a seed within the limits of a joint. A value up to 0.1 past a limit becomes the limit. Any other value
    /// is treated as by [`inside`](Self::inside).
    pub fn admit(&self, joint: usize, value: R) -> R {
        let bound = &self.joints[joint];
        let held = match (value > bound.upper, value < bound.lower) {
            (true, _) => bound.upper,
            (_, true) => bound.lower,
            _ => value,
        };
        match (value - held).abs() <= R::from_f64(SLACK) {
            true => held,
            false => self.inside(joint, value),
        }
    }

    /// Makes one step of Levenberg-Marquardt: `dq = D J^T (J D J^T + damping)^-1 e`. D leaves out joints at a limit that J^T e
    /// pushes outwards. The whole step is scaled so that no joint moves by more than 1 (rad or m).
    #[inline(always)]
    pub fn step<const M: usize>(&self, residual: &mut Residual<R, M>, damping: R, q: &mut [R]) {
        let zero = R::default();
        let columns = &mut residual.columns[..q.len()];
        for ((column, bound), &q) in columns.iter_mut().zip(&self.joints).zip(&*q) {
            let push = product(column, &residual.error);
            let is_held = ((q <= bound.lower) & (push < zero)) | ((q >= bound.upper) & (push > zero));
            if is_held & bound.holds {
                *column = [zero; M];
            }
        }
        let mut matrix = products(columns);
        for (i, row) in matrix.iter_mut().enumerate() {
            row[i] = row[i] + damping;
        }
        let y = Ldl::new(matrix, damping).solve(residual.error);
        let mut step = [zero; crate::chain::MAX_JOINTS];
        for (step, column) in step.iter_mut().zip(&*columns) {
            let found = product(column, &y);
            // Rounding may leave a singular matrix, such as for an arm that is far away from its first joint.
            *step = if found.is_finite() { found } else { zero };
        }
        let scale = scale_within(&step[..q.len()], R::from_f64(MAX_STEP));
        for (i, (q, step)) in q.iter_mut().zip(step).enumerate() {
            *q = self.inside(i, *q + step * scale);
        }
    }
}

/// Returns the factor that scales the largest magnitude among `values` to `most`; 1 if no magnitude is above `most`.
#[inline(always)]
pub(super) fn scale_within<R: Real>(values: &[R], most: R) -> R {
    let mut largest = R::default();
    for value in values {
        let size = value.abs();
        largest = if size > largest { size } else { largest };
    }
    if largest > most {
        most / largest
    } else {
        R::from_f64(1.0)
    }
}

/// Computes the inner product, summed from the first component on.
#[inline(always)]
pub(super) fn product<R: Real, const M: usize>(a: &[R; M], b: &[R; M]) -> R {
    robocache_geometry::vector::dot(*a, *b)
}
