use super::posture::Posture;
use super::step::Bounds;
use super::task::Task;
use crate::chain::Chain;
use robocache_geometry::Real;
use serde::Deserialize;

/// Configuration of the search for the joints of a pose.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InverseConfig {
    /// The part of the pose that is to be reached.
    pub task: Task,
    /// Largest distance from the target at which an answer is valid, metres.
    pub position_tolerance_m: f64,
    /// Largest rotation from the target at which an answer is valid, as the chord 2 sin(angle / 2), radians.
    pub rotation_tolerance_rad: f64,
    /// Weights of the task's rows: three linear ones, and its angular ones. A row of weight 0 is not judged.
    pub weights: [f64; 6],
    /// The most starts that are tried.
    pub seeds: usize,
    /// The most steps from each start. If `None`, 16, or 24 for a tolerance below 1e-7.
    pub max_iterations: Option<u32>,
    /// The answer that is taken if several starts lead to one.
    pub select: Select,
    /// Largest change of a joint from one target of a trajectory to the next, radians or metres.
    pub max_joint_step: f64,
    /// Part of the way to `rest` that joints are pulled with each answer, as far as the task leaves them free: above 0, up to 1.
    /// The chain must have more joints than the task has rows. If `None`, joints are not pulled.
    pub posture: Option<f64>,
    /// Joints that `posture` pulls to, within the limits. If `None`, the middle of the limits, 0 for a continuous joint.
    pub rest: Option<Vec<f64>>,
}

/// The answer that is taken if several starts lead to one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Select {
    /// The answer of the first start that leads to one; later ones are not tried.
    #[default]
    First,
    /// The answer with the least sum of squared differences to the joints of the first start. Ties go to the earliest start.
    Nearest,
}

/// The reason why a configuration is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct InverseError {
    /// The field of [`InverseConfig`].
    pub key: &'static str,
    /// The problem: the value found, and the values allowed.
    pub problem: String,
}

/// The least tolerance in float32: rounding alone is that large.
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
    /// The weights of the rows that the task has.
    pub(super) fn weights_of_task(&self) -> &[f64] {
        &self.weights[..self.task.rows()]
    }
}

/// A configuration that was checked, in one type.
#[derive(Clone, Debug)]
pub struct Spec<R> {
    /// The part of the pose that is to be reached.
    pub task: Task,
    /// Square of the tolerance of the position.
    pub position: R,
    /// Square of the tolerance of the rotation.
    pub rotation: R,
    /// `None` if each weight is 1.
    pub weights: Option<[R; 6]>,
    /// The most steps from a start.
    pub max_iterations: u32,
    /// The answer that is taken if several starts lead to one.
    pub select: Select,
    /// Largest change of a joint from one target of a trajectory to the next, radians or metres.
    pub max_joint_step: R,
    /// The least damping of a step, `floor + gain |e|^2`.
    pub floor: R,
    /// The damping of a step for each unit of the squared error.
    pub gain: R,
    /// The pull to rest, if there is one.
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
