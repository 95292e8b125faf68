//! Configuration of inverse kinematics: an [`InverseConfig`] is what a user writes. A [`Spec`] is a checked configuration,
//! rounded to one float type.

use super::posture::Posture;
use super::step::Bounds;
use super::task::Task;
use crate::chain::Chain;
use robocache_geometry::Real;
use serde::Deserialize;

/// Configuration of inverse kinematics, the search for the joints of a pose.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InverseConfig {
    /// Part of the target pose that the tip has to reach.
    pub task: Task,
    /// Largest distance of the tip from the target in a solution, metres.
    pub position_tolerance_m: f64,
    /// Largest rotation of the tip from the target in a solution, as the chord 2 sin(angle / 2), radians.
    pub rotation_tolerance_rad: f64,
    /// Weights of the components of the task's error: x, y, z, and then the angular components. A component of weight 0
    /// is ignored.
    pub weights: [f64; 6],
    /// Largest number of initial guesses that are tried for a target: 1 to 4,096.
    pub seeds: usize,
    /// Largest number of iterations from each initial guess, 1 to 1,000. If `None`, 16, or 24 for a tolerance below 1e-7.
    pub max_iterations: Option<u32>,
    /// Choice of a solution if several initial guesses lead to one.
    pub select: Select,
    /// Largest change of a joint from one target of a trajectory to the next, radians or metres. A larger change counts as
    /// a jump.
    pub max_joint_step: f64,
    /// Fraction of the way to `rest` by which each solution is pulled, as far as the task leaves joints free: above 0, up to 1.
    /// The chain must have more joints than the task's error has components. If `None`, solutions are not pulled.
    pub posture: Option<f64>,
    /// Joint values to which `posture` pulls, radians or metres, within the limits. If `None`, they are the middle of the
    /// limits, and 0 for a continuous joint.
    pub rest: Option<Vec<f64>>,
}

/// Choice of a solution if several initial guesses lead to one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Select {
    /// Takes the first solution that is found. Further initial guesses are not tried.
    #[default]
    First,
    /// Takes the solution with the smallest sum of squared differences from the first initial guess. A tie goes to the
    /// earlier guess.
    Nearest,
}

/// Reason why an [`InverseConfig`] is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct InverseError {
    /// Name of the field of [`InverseConfig`] that is refused.
    pub key: &'static str,
    /// Error text with the value found in the field and the values allowed.
    pub problem: String,
}

/// Smallest tolerance that is allowed in float32, metres or radians: rounding errors alone are as large.
const LEAST_SINGLE: f64 = 2e-6;
const MAX_SEEDS: usize = 4096;
const MAX_ITERATIONS: u32 = 1000;

impl Default for InverseConfig {
    fn default() -> Self {
        Self {
            task: Task::Pose,
            position_tolerance_m: 1e-4,
            rotation_tolerance_rad: 1e-3,
            weights: [1.0; 6],
            seeds: 16,
            max_iterations: None,
            select: Select::First,
            max_joint_step: 0.5,
            posture: None,
            rest: None,
        }
    }
}

impl InverseConfig {
    /// Returns the weights of the components that the task's error has: 3, 5 or 6.
    pub(super) fn weights_of_task(&self) -> &[f64] {
        &self.weights[..self.task.rows()]
    }
}

/// A checked [`InverseConfig`], rounded to one float type.
#[derive(Clone, Debug)]
pub struct Spec<R> {
    /// Part of the target pose that the tip has to reach.
    pub task: Task,
    /// Square of the position's tolerance, m^2.
    pub position: R,
    /// Square of the rotation's tolerance, as the chord 2 sin(angle / 2), rad^2.
    pub rotation: R,
    /// Weights of the components of the task's error; `None` if each weight is 1.
    pub weights: Option<[R; 6]>,
    /// Largest number of iterations from each initial guess.
    pub max_iterations: u32,
    /// Choice of a solution if several initial guesses lead to one.
    pub select: Select,
    /// Largest change of a joint from one target of a trajectory to the next, radians or metres. A larger change counts as
    /// a jump.
    pub max_joint_step: R,
    /// Smallest damping of a step: the damping is `floor + gain |e|^2`, with the weighted error `e`.
    pub floor: R,
    /// Damping of a step for each unit of the squared, weighted error.
    pub gain: R,
    /// Pull of solutions to a posture of rest; `None` if solutions are not pulled.
    pub posture: Option<Posture<R>>,
}

impl<R: Real> Spec<R> {
    pub(super) fn new(config: &InverseConfig, chain: &Chain, bounds: &Bounds<R>) -> Result<Self, InverseError> {
        let refuse = |key, problem| Err(InverseError { key, problem });
        let is_single = size_of::<R>() == size_of::<f32>();
        let tolerances = [
            ("position_tolerance_m", config.position_tolerance_m),
            ("rotation_tolerance_rad", config.rotation_tolerance_rad),
        ];
        for (key, value) in tolerances {
            if is_single && !(LEAST_SINGLE..=1e3).contains(&value) {
                return refuse(key, format!("{value} (allowed: {LEAST_SINGLE} to 1000 in float32)"));
            }
            if !(value > 0.0 && value <= 1e3) {
                return refuse(key, format!("{value} (allowed: above 0, up to 1000)"));
            }
        }
        let weights = config.weights;
        let judged = config.weights_of_task();
        let is_weight = |&weight: &f64| weight == 0.0 || (1e-6..=1e3).contains(&weight);
        if !weights.iter().all(is_weight) || judged.iter().all(|&weight| weight == 0.0) {
            return refuse(
                "weights",
                format!("{weights:?} (allowed: 0, or 1e-6 to 1000; one of the task's above 0)"),
            );
        }
        if !(1..=MAX_SEEDS).contains(&config.seeds) {
            return refuse("seeds", format!("{} (allowed: 1 to {MAX_SEEDS})", config.seeds));
        }
        let is_fine = tolerances.iter().any(|&(_, tolerance)| tolerance < 1e-7);
        let max_iterations = config.max_iterations.unwrap_or(if is_fine { 24 } else { 16 });
        if !(1..=MAX_ITERATIONS).contains(&max_iterations) {
            return refuse(
                "max_iterations",
                format!("{max_iterations} (allowed: 1 to {MAX_ITERATIONS})"),
            );
        }
        if !(config.max_joint_step > 0.0 && config.max_joint_step.is_finite()) {
            return refuse(
                "max_joint_step",
                format!("{} (allowed: above 0, finite)", config.max_joint_step),
            );
        }
        let square = |tolerance: f64| R::from_f64(tolerance) * R::from_f64(tolerance);
        Ok(Self {
            task: config.task,
            position: square(config.position_tolerance_m),
            rotation: square(config.rotation_tolerance_rad),
            weights: (weights != [1.0; 6]).then(|| weights.map(R::from_f64)),
            max_iterations,
            select: config.select,
            max_joint_step: R::from_f64(config.max_joint_step),
            floor: R::from_f64(if is_single { 1e-7 } else { 1e-8 }),
            gain: R::from_f64(0.05),
            posture: Posture::new(config, chain, bounds)?,
        })
    }
}
