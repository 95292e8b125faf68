//! Pull of inverse kinematics solutions to a posture of rest, where the task leaves joints free. The pull moves joints in the
//! null space of the task, and keeps them within their limits.

use super::config::{InverseConfig, InverseError};
use super::seeds;
use super::step::{Bounds, MAX_STEP, product, scale_within};
use crate::chain::{Chain, MAX_JOINTS};
use crate::jacobian::products;
use crate::ldl::Ldl;
use crate::limits::ROUNDING;
use robocache_geometry::Real;

/// Pull of solutions to a posture of rest, after Liegeois, Automatic supervisory control of the configuration and behavior of
/// multibody mechanisms, IEEE Transactions on Systems, Man, and Cybernetics 7(12), 1977.
#[derive(Clone, Debug)]
pub struct Posture<R> {
    /// Fraction of the way to rest by which each solution is pulled.
    pub gain: R,
    /// Joint values at rest, radians or metres, within the limits.
    pub rest: Vec<R>,
    /// Largest distance by which a joint is pulled in one solution, radians or metres.
    pub most: R,
}

impl<R: Real> Posture<R> {
    /// Checks the posture of a configuration; `None` if the configuration has no posture.
    pub(super) fn new(config: &InverseConfig, chain: &Chain, bounds: &Bounds<R>) -> Result<Option<Self>, InverseError> {
        let refuse = |key, problem| Err(InverseError { key, problem });
        let n = chain.joints().len();
        let rows = config.weights_of_task().iter().filter(|&&weight| weight != 0.0).count();
        let Some(gain) = config.posture else {
            return match &config.rest {
                Some(rest) => refuse("rest", format!("{rest:?} without `posture` (needed: both, or neither)")),
                None => Ok(None),
            };
        };
        if !(gain > 0.0 && gain <= 1.0) {
            return refuse("posture", format!("{gain} (allowed: above 0, up to 1)"));
        }
        if n <= rows {
            let problem = format!(
                "{gain} with {n} joints and {rows} rows that `task` and `weights` judge (allowed: more joints than rows, or no `posture`)"
            );
            return refuse("posture", problem);
        }
        let rest = match &config.rest {
            None => seeds::table(chain.joints(), 1),
            Some(rest) if rest.len() == n && rest.iter().all(|value| value.is_finite()) => {
                for (joint, &value) in chain.joints().iter().zip(rest) {
                    let [lower, upper] = joint.limits;
                    if !(lower - ROUNDING..=upper + ROUNDING).contains(&value) {
                        let name = &joint.name;
                        return refuse(
                            "rest",
                            format!("{value} for the joint `{name}` (allowed: its limits, {lower} to {upper})"),
                        );
                    }
                }
                let values = rest.iter().enumerate();
                values.map(|(i, &value)| bounds.admit(i, R::from_f64(value))).collect()
            }
            Some(rest) => {
                return refuse(
                    "rest",
                    format!("{rest:?} (allowed: {n} finite numbers, one for each joint)"),
                );
            }
        };
        Ok(Some(Self {
            gain: R::from_f64(gain),
            most: R::from_f64(most_pull(config)),
            rest,
        }))
    }

    /// Moves joints towards rest in the null space of the task: `dq = v - J^T (J J^T + floor)^-1 J v`. Here v is the gain times
    /// the difference from rest, and J is the task's Jacobian with each row multiplied by its weight.
    ///
    /// The order of operations: v = gain (rest - q), scaled so that no joint is beyond `most`. J v and J J^T are summed over
    /// the joints from the base on, beginning with the first product. The floor is added to the diagonal, and is the smallest
    /// pivot; y is the solution for J v. J^T y is summed over the rows from the first on, and subtracted from v. The sum of q
    /// and the difference is brought within the limits.
    #[inline(always)]
    pub(super) fn pull<const M: usize>(&self, columns: &[[R; M]], floor: R, bounds: &Bounds<R>, q: &mut [R]) {
        let mut wanted = [R::default(); MAX_JOINTS];
        let wanted = &mut wanted[..q.len()];
        for ((wanted, &rest), &q) in wanted.iter_mut().zip(&self.rest).zip(&*q) {
            *wanted = self.gain * (rest - q);
        }
        let scale = scale_within(wanted, self.most);
        for wanted in &mut *wanted {
            *wanted = *wanted * scale;
        }
        let mut felt = columns[0].map(|x| x * wanted[0]);
        for (column, &wanted) in columns.iter().zip(&*wanted).skip(1) {
            for (sum, &x) in felt.iter_mut().zip(column) {
                *sum = *sum + x * wanted;
            }
        }
        let mut matrix = products(columns);
        for (i, row) in matrix.iter_mut().enumerate() {
            row[i] = row[i] + floor;
        }
        let y = Ldl::new(matrix, floor).solve(felt);
        for (i, ((q, &wanted), column)) in q.iter_mut().zip(&*wanted).zip(columns).enumerate() {
            *q = bounds.inside(i, *q + (wanted - product(column, &y)));
        }
    }
}

/// Returns the largest pull of a joint, radians or metres: half of the fourth root of the smaller tolerance, but at most 1, and
/// at most a quarter of `max_joint_step`. The tip moves by about the square of the pull, and one step back to the target leaves
/// the square of that error. The other three quarters of `max_joint_step` are left to the task.
fn most_pull(config: &InverseConfig) -> f64 {
    let tolerance = config.position_tolerance_m.min(config.rotation_tolerance_rad);
    let within_tolerance = 0.5 * tolerance.sqrt().sqrt();
    within_tolerance.min(0.25 * config.max_joint_step).min(MAX_STEP)
}
