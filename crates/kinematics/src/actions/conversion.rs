//! Conversion of a policy's action chunks from one kind to another, such as from poses to joint values, in float64. If one step
//! can't be converted, the whole chunk is refused.

use super::error::{ConversionError, StepError};
use super::pose::{DeltaFrame, PoseKind};
use super::rotation::RotationForm;
use super::value::ValueKind;
use crate::chain::Chain;
use crate::inverse::{InverseConfig, MAX_DISTANCE, Select, Solver};
use crate::limits::ROUNDING;
use crate::model::{Model, pose_of};
use robocache_geometry::RigidTransform;

/// Meaning of the numbers of an action: values or a pose, absolute or as a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Absolute values, such as joints: [`ValueKind::Absolute`].
    Absolute,
    /// Offsets of values from the reference, which are the values before the first step: [`ValueKind::Relative`].
    Relative,
    /// Offsets of values from those of the previous step: [`ValueKind::Delta`].
    Delta,
    /// Velocities of values, per second: [`ValueKind::Velocity`].
    Velocity,
    /// Poses in the frame of the base: [`PoseKind::Absolute`].
    Pose,
    /// Poses in the frame of the reference, which is the pose before the first step: [`PoseKind::Relative`].
    RelativePose,
    /// Motions from the pose of the previous step: [`PoseKind::Delta`].
    DeltaPose,
}

impl Kind {
    /// List of all kinds of actions.
    pub const ALL: [Self; 7] = [
        Self::Absolute,
        Self::Relative,
        Self::Delta,
        Self::Velocity,
        Self::Pose,
        Self::RelativePose,
        Self::DeltaPose,
    ];

    /// Name of the kind in configurations, such as `relative_pose`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Absolute => "absolute",
            Self::Relative => "relative",
            Self::Delta => "delta",
            Self::Velocity => "velocity",
            Self::Pose => "pose",
            Self::RelativePose => "relative_pose",
            Self::DeltaPose => "delta_pose",
        }
    }
}

/// Configuration of a [`Conversion`] of actions.
#[derive(Clone, Debug, PartialEq)]
pub struct ConversionConfig {
    /// Kind of the actions to be converted.
    pub kind: Kind,
    /// Kind of the actions that the conversion returns.
    pub to: Kind,
    /// Form of the rotation in the actions to be converted, if these are poses.
    pub rotation: RotationForm,
    /// Form of the rotation in the actions that the conversion returns, if these are poses.
    pub to_rotation: RotationForm,
    /// Axes of the motions in actions of the kind `delta_pose`, both converted and returned.
    pub frame: DeltaFrame,
    /// Time from one step to the next, ns. It is needed if `kind` or `to` is [`Kind::Velocity`], and has to be
    /// `None` otherwise.
    pub step_ns: Option<i64>,
    /// Largest error of the joints found for a pose: metres, and radians as the chord 2 sin(angle / 2). Joints with an error of
    /// at most 1e-12 are searched first. They may not exist near a singularity, or if the pose was rounded.
    pub tolerance: f64,
}

impl ConversionConfig {
    /// Configures the conversion from one kind to another, with quaternions x y z w, and motions in the axes of the tool.
    pub fn new(kind: Kind, to: Kind) -> Self {
        Self {
            kind,
            to,
            rotation: RotationForm::default(),
            to_rotation: RotationForm::default(),
            frame: DeltaFrame::default(),
            step_ns: None,
            tolerance: 1e-8,
        }
    }
}

/// Lengths of the arrays of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Widths {
    /// Number of values of the reference (the joints, values or pose before the first step); `None` if the conversion needs no
    /// reference.
    pub reference: Option<usize>,
    /// Number of values in a step of the results.
    pub result: usize,
}

/// Converter of chunks of actions from one kind to another, in float64.
///
/// With a [`Chain`], joints and poses are converted into each other. Without a chain, values can only become values, and poses
/// only poses. Joints are found as by [`Solver::solve_next`], which starts at the reference. A redundant arm may get other
/// joints than those from which the poses were computed.
///
/// If no joints within the limits reach the poses to 1e-12, joints may be up to 1e-6 past their limits: limits may be rounded
/// to float32.
///
/// The reference is the state before the first step. With a chain, it is a row of joint values. Without a chain, it is a row of
/// values, or a pose x y z qx qy qz qw.
#[derive(Clone, Debug)]
pub struct Conversion {
    from: Meaning,
    to: Meaning,
    inverse: Option<Inverse>,
}

/// Solvers that find the joints for poses of a chain.
#[derive(Clone, Debug)]
struct Inverse {
    /// Solvers in the order in which they are tried on a chunk. The first has a tolerance of 1e-12. The second has the same
    /// tolerance, and limits wider by [`ROUNDING`]. The third has the configured tolerance, and the wider limits.
    solvers: [Solver<f64>; 3],
    /// Solver with the configured tolerance and the limits of the chain. It checks that joints moved back to a limit still
    /// reach the pose.
    limited: Solver<f64>,
    /// Solver with limits so wide that one step of a chunk can't exceed them. It finds the joint limits that keep a pose from
    /// being reached, for the error text.
    unlimited: Solver<f64>,
    chain: Chain,
}

/// Meaning of the numbers of a step: values such as joints, or a pose.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Meaning {
    Values(ValueKind),
    Poses(PoseKind, RotationForm),
}

/// Reference of a chunk: the values that the caller gives, and their pose. The pose is the identity if the conversion
/// needs none.
struct Reference<'a> {
    values: &'a [f64],
    pose: RigidTransform<f64>,
}

/// Tolerance of the first search for joints, metres and radians. The configured tolerance is used only if this search fails.
const FINE: f64 = 1e-12;
/// Number of initial guesses that are tried for a pose if the search from the joints of the previous step fails.
const SEEDS: usize = 64;
/// Largest number of iterations of the solver from one initial guess. Near a singularity it needs many.
const MAX_ITERATIONS: u32 = 100;
/// Largest change of a joint from one step of a chunk to the next, radians or metres.
const MAX_JOINT_STEP: f64 = 0.5;

impl Conversion {
    /// Makes the converter for a configuration, which is checked first. `chain` is needed to convert values to poses, or poses
    /// to values.
    ///
    /// # Errors
    /// Names the field, the value found and the values allowed.
    pub fn new(config: &ConversionConfig, chain: Option<&Chain>) -> Result<Self, ConversionError> {
        let refuse = |key, problem| Err(ConversionError { key, problem });
        let is_velocity = [config.kind, config.to].contains(&Kind::Velocity);
        let step_s = match (config.step_ns, is_velocity) {
            (Some(step_ns), true) if step_ns > 0 => step_ns as f64 / 1e9,
            (Some(step_ns), true) => return refuse("step_ns", format!("{step_ns} (allowed: above 0)")),
            (None, true) => {
                let problem = "absent (needed for `velocity`: the time from one step to the next, ns)";
                return refuse("step_ns", problem.to_owned());
            }
            (Some(_), false) => {
                return refuse("step_ns", "given, and no kind is `velocity` (allowed: none)".to_owned());
            }
            (None, false) => 0.0,
        };
        let meaning = |kind, rotation| match kind {
            Kind::Absolute => Meaning::Values(ValueKind::Absolute),
            Kind::Relative => Meaning::Values(ValueKind::Relative),
            Kind::Delta => Meaning::Values(ValueKind::Delta),
            Kind::Velocity => Meaning::Values(ValueKind::Velocity { step_s }),
            Kind::Pose => Meaning::Poses(PoseKind::Absolute, rotation),
            Kind::RelativePose => Meaning::Poses(PoseKind::Relative, rotation),
            Kind::DeltaPose => Meaning::Poses(PoseKind::Delta(config.frame), rotation),
        };
        let from = meaning(config.kind, config.rotation);
        let to = meaning(config.to, config.to_rotation);
        if from.is_pose() != to.is_pose() && chain.is_none() {
            let (kind, to) = (config.kind.name(), config.to.name());
            return refuse("chain", format!("absent (needed from `{kind}` to `{to}`)"));
        }
        Ok(Self {
            from,
            to,
            inverse: chain.map(|chain| Inverse::new(chain, config.tolerance)).transpose()?,
        })
    }

    fn model(&self) -> Option<&Model<f64>> {
        self.inverse.as_ref().map(|inverse| inverse.solvers[0].model())
    }

    /// Returns the number of values of the reference, and of each step of the results, for actions of `width` numbers each.
    ///
    /// # Errors
    /// If the configured kind of actions has another width.
    pub fn widths(&self, width: usize) -> Result<Widths, ConversionError> {
        let joints = self.model().map(Model::joints);
        let (needed, words) = match (self.from, joints) {
            (Meaning::Values(_), None) if width > 0 => (width, "values"),
            (Meaning::Values(_), None) => (1, "values, one or more"),
            (Meaning::Values(_), Some(joints)) => (joints, "a value for each joint of the chain"),
            (Meaning::Poses(_, form), _) => (3 + form.width(), "x y z and the rotation"),
        };
        if width != needed {
            return Err(ConversionError {
                key: "actions",
                problem: format!("{width} numbers a step (allowed: {needed}, {words})"),
            });
        }
        let is_absolute = |meaning| {
            matches!(
                meaning,
                Meaning::Values(ValueKind::Absolute) | Meaning::Poses(PoseKind::Absolute, _)
            )
        };
        // The search for joints begins at the reference.
        let is_inverse = self.from.is_pose() && !self.to.is_pose();
        let needs_reference = is_inverse || !is_absolute(self.from) || !is_absolute(self.to);
        let of_reference = joints.unwrap_or(if self.from.is_pose() { 7 } else { width });
        let result = match (self.to, joints) {
            (Meaning::Poses(_, form), _) => 3 + form.width(),
            (Meaning::Values(_), Some(joints)) => joints,
            (Meaning::Values(_), None) => width,
        };
        Ok(Widths {
            reference: needs_reference.then_some(of_reference),
            result,
        })
    }

    /// Converts `actions`, a chunk of steps of `width` numbers each, and writes `results`. After an error the contents of
    /// `results` are undefined.
    ///
    /// # Errors
    /// Names the step at which a number is not finite, a rotation can't be [read](RotationForm::read), a joint's value is above
    /// 8,192 in magnitude, or a pose can't be reached. Joints found for a pose must be within 0.5 rad or m of the joints of the
    /// previous step, or of the reference for the first step.
    ///
    /// # Panics
    /// If `reference` or `results` do not have their [widths](Self::widths).
    pub fn convert(
        &self,
        actions: &[f64],
        width: usize,
        reference: &[f64],
        results: &mut [f64],
    ) -> Result<(), StepError> {
        if let Some(at) = actions.iter().position(|x| !x.is_finite()) {
            let (step, value) = (at / width, actions[at]);
            return Err(StepError::step(step, format!("{value} (allowed: finite numbers)")));
        }
        let reference = self.reference(reference)?;
        match (self.from, self.to) {
            (Meaning::Values(from), Meaning::Values(to)) => {
                results.copy_from_slice(actions);
                from.decode(reference.values, results);
                to.encode(reference.values, results);
            }
            (Meaning::Values(from), Meaning::Poses(to, form)) => {
                let mut values = actions.to_vec();
                from.decode(reference.values, &mut values);
                let poses = values.chunks_exact(width).enumerate();
                let poses = poses.map(|(step, q)| self.pose(q).ok_or_else(|| StepError::step(step, too_large(q))));
                let mut poses = poses.collect::<Result<Vec<_>, _>>()?;
                to.encode(&reference.pose, &mut poses);
                write(&poses, form, results);
            }
            (Meaning::Poses(from, form), to) => {
                let mut poses = read(actions, form)?;
                from.decode(&reference.pose, &mut poses);
                match to {
                    Meaning::Poses(to, form) => {
                        to.encode(&reference.pose, &mut poses);
                        write(&poses, form, results);
                    }
                    Meaning::Values(to) => {
                        if let Some(inverse) = &self.inverse {
                            inverse.solve(&poses, reference.values, results)?;
                        }
                        to.encode(reference.values, results);
                    }
                }
            }
        }
        Ok(())
    }

    fn reference<'a>(&self, values: &'a [f64]) -> Result<Reference<'a>, StepError> {
        let refused = |problem: String| Err(StepError::Reference(problem));
        if let Some(value) = values.iter().find(|x| !x.is_finite()) {
            return refused(format!("{value} (allowed: finite numbers)"));
        }
        let is_of_values = !(self.from.is_pose() || self.to.is_pose());
        let pose = if values.is_empty() || is_of_values {
            Some(RigidTransform::identity())
        } else if self.inverse.is_some() {
            self.pose(values)
        } else {
            let rotation = RotationForm::Xyzw.read(&values[3..]);
            rotation.map(|rotation| RigidTransform {
                rotation,
                translation: [values[0], values[1], values[2]],
            })
        };
        match pose {
            Some(pose) => Ok(Reference { values, pose }),
            None if self.inverse.is_some() => refused(too_large(values)),
            None => {
                let (rotation, allowed) = (&values[3..], RotationForm::Xyzw.allowed());
                refused(format!("{rotation:?} is not a quaternion (allowed: {allowed})"))
            }
        }
    }

    /// Computes the pose of the tip for joints `q`; `None` without a chain, or if a joint's value is above 8,192 in magnitude.
    fn pose(&self, q: &[f64]) -> Option<RigidTransform<f64>> {
        let [x, y, z, rotation @ ..] = self.model()?.pose(q)?;
        Some(RigidTransform::new(rotation, [x, y, z]))
    }
}

impl Inverse {
    fn new(chain: &Chain, tolerance: f64) -> Result<Self, ConversionError> {
        let solver = |chain: &Chain, tolerance, seeds| {
            let config = InverseConfig {
                position_tolerance_m: tolerance,
                rotation_tolerance_rad: tolerance,
                seeds,
                max_iterations: Some(MAX_ITERATIONS),
                select: Select::Nearest,
                max_joint_step: MAX_JOINT_STEP,
                ..InverseConfig::default()
            };
            Solver::new(chain, &config).map_err(|error| ConversionError {
                key: "tolerance",
                problem: error.problem,
            })
        };
        let (fine, wider) = (tolerance.min(FINE), chain.with_wider_limits(ROUNDING));
        Ok(Self {
            solvers: [
                solver(chain, fine, 1)?,
                solver(&wider, fine, 1)?,
                solver(&wider, tolerance, SEEDS)?,
            ],
            limited: solver(chain, tolerance, 1)?,
            unlimited: solver(&chain.with_wider_limits(2.0 * MAX_JOINT_STEP), tolerance, 1)?,
            chain: chain.clone(),
        })
    }

    /// Finds joints for the poses of a chunk, one after the other. The search for the first pose starts at the joints
    /// `reference`, each later one at the joints of the previous pose.
    fn solve(&self, poses: &[RigidTransform<f64>], reference: &[f64], joints: &mut [f64]) -> Result<(), StepError> {
        let [fine, wider, coarse] = &self.solvers;
        let mut follow = |solver| self.follow(solver, poses, reference, joints);
        follow(fine).or_else(|_| follow(wider)).or_else(|_| follow(coarse))
    }

    fn follow(
        &self,
        solver: &Solver<f64>,
        poses: &[RigidTransform<f64>],
        reference: &[f64],
        joints: &mut [f64],
    ) -> Result<(), StepError> {
        let mut track = solver.track_from(reference).unwrap_or_default();
        let mut before = reference;
        for (step, (pose, now)) in poses.iter().zip(joints.chunks_exact_mut(reference.len())).enumerate() {
            let answer = solver.solve_next(&pose_of(pose), &mut track, now);
            let refuse = |problem: String| Err(StepError::step(step, problem + &self.past_limits(pose, before)));
            if answer.position_error_m.is_nan() {
                let position = pose.translation;
                return refuse(format!("a pose at {position:?} m (allowed: up to {MAX_DISTANCE} m)"));
            }
            if !answer.valid {
                let (metres, radians) = (answer.position_error_m, answer.rotation_error_rad);
                return refuse(format!(
                    "the chain does not reach the pose: it comes to within {metres:.2e} m and {radians:.2e} rad"
                ));
            }
            if before.iter().zip(&*now).any(|(a, b)| (a - b).abs() > MAX_JOINT_STEP) {
                let from = if step == 0 { "the reference" } else { "the step before" };
                return refuse(format!(
                    "no joints were found for the pose within {MAX_JOINT_STEP} rad or m of {from} (needed: a pose nearer to it)"
                ));
            }
            self.put_at_limits(pose, now);
            before = now;
        }
        Ok(())
    }

    /// Moves joints that are past a limit to the limit, if the tip then stays within the tolerance of `pose`.
    fn put_at_limits(&self, pose: &RigidTransform<f64>, joints: &mut [f64]) {
        let limits = self.chain.joints().iter().map(|joint| joint.limits);
        let put: Vec<f64> = (joints.iter().zip(limits))
            .map(|(value, [lower, upper])| value.clamp(lower, upper))
            .collect();
        if put != joints {
            let mut found = put.clone();
            let answer = self.limited.solve(&pose_of(pose), Some(&put), &mut found);
            // A start within the tolerance is the answer itself.
            if answer.valid && found == put {
                joints.copy_from_slice(&put);
            }
        }
    }

    /// Names the joints that would have to exceed their limits to reach `pose` in one step from the joints `before`. Returns
    /// the end of an error's sentence; an empty string if wider limits would not help.
    fn past_limits(&self, pose: &RigidTransform<f64>, before: &[f64]) -> String {
        let mut track = self.unlimited.track_from(before).unwrap_or_default();
        let mut now = vec![0.0; before.len()];
        let answer = self.unlimited.solve_next(&pose_of(pose), &mut track, &mut now);
        let is_step = before.iter().zip(&now).all(|(a, b)| (a - b).abs() <= MAX_JOINT_STEP);
        let joints = self.chain.joints().iter().zip(&now);
        let past: Vec<String> = joints
            .filter(|(joint, value)| {
                let [lower, upper] = joint.limits;
                !(lower - ROUNDING..=upper + ROUNDING).contains(*value)
            })
            .map(|(joint, value)| {
                let (name, [lower, upper]) = (&joint.name, joint.limits);
                format!("`{name}` at {value} (limits: {lower} to {upper})")
            })
            .collect();
        if past.is_empty() || !answer.valid || !is_step {
            return String::new();
        }
        let past = past.join(" and ");
        format!("; within wider limits it is reached, with {past}: `limits` of the chain widen them")
    }
}

impl Meaning {
    fn is_pose(self) -> bool {
        matches!(self, Self::Poses(..))
    }
}

fn too_large(q: &[f64]) -> String {
    let largest = q.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
    format!("a joint of magnitude {largest} (allowed: up to 8192)")
}

fn read(numbers: &[f64], form: RotationForm) -> Result<Vec<RigidTransform<f64>>, StepError> {
    let steps = numbers.chunks_exact(3 + form.width()).enumerate();
    let poses = steps.map(|(step, numbers)| {
        let (position, rotation) = numbers.split_at(3);
        let transform = form.read(rotation).map(|rotation| RigidTransform {
            rotation,
            translation: [position[0], position[1], position[2]],
        });
        transform.ok_or_else(|| {
            let (name, allowed) = (form.name(), form.allowed());
            StepError::step(
                step,
                format!("{rotation:?} is not a rotation of the form `{name}` (allowed: {allowed})"),
            )
        })
    });
    poses.collect()
}

fn write(poses: &[RigidTransform<f64>], form: RotationForm, numbers: &mut [f64]) {
    for (pose, numbers) in poses.iter().zip(numbers.chunks_exact_mut(3 + form.width())) {
        let (position, rotation) = numbers.split_at_mut(3);
        position.copy_from_slice(&pose.translation);
        form.write(&pose.rotation, rotation);
    }
}
