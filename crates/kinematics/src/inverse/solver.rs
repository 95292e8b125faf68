//! Solver of inverse kinematics: Levenberg-Marquardt from a fixed list of initial guesses. A result depends only on the chain,
//! the configuration, the target and the caller's guess.

use super::config::{InverseConfig, InverseError, Select, Spec};
use super::posture::Posture;
use super::seeds;
use super::step::{Bound, Bounds};
use super::task::{PositionAndAxis, PositionOnly, Residual, Rows, Target, Task, WholePose};
use crate::chain::{Chain, MAX_JOINTS};
use crate::jacobian::{Columns, Frame};
use crate::model::{Model, Pose, Row};
use robocache_geometry::Real;

/// Result of the search for a target's joints: its errors, and the initial guess that led to it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Answer<R> {
    /// True if the joints are a solution: both errors are within the tolerances. If false, they are the joints with the
    /// smallest error at which a search ended. They are NaN for a target or an initial guess that can't be used.
    pub valid: bool,
    /// Distance of the tip from the target, metres; NaN for a target that can't be used.
    pub position_error_m: R,
    /// Rotation of the tip from the target, as the chord 2 sin(angle / 2), radians; 0 for a task without a rotation.
    pub rotation_error_rad: R,
    /// Index of the initial guess that led to the joints. It is 0 for the caller's guess, the middle of the limits, or the last
    /// solution of a trajectory.
    pub seed: u32,
    /// Number of iterations from the initial guess to the joints: 0 if the guess is a solution. Steps towards a posture do
    /// not count.
    pub iterations: u32,
}

/// Solver that finds joints for poses. The same target always gets the same joints, whatever was solved before.
///
/// From each initial guess the solver makes steps of Levenberg-Marquardt, damped by the squared error after Sugihara,
/// Solvability-unconcerned inverse kinematics by the Levenberg-Marquardt method, IEEE Transactions on Robotics 27(5), 2011.
#[derive(Clone, Debug)]
pub struct Solver<R> {
    pub(super) model: Model<R>,
    pub(super) spec: Spec<R>,
    bounds: Bounds<R>,
    /// Joint limits for steps from a solution: a joint stays at a limit, and does not make a full turn.
    pub(super) bounds_along: Bounds<R>,
    /// Table of initial guesses, a row of joint values for each.
    seeds: Vec<R>,
}

/// Joints at which the search from one initial guess ended, with their errors.
#[derive(Clone, Copy)]
pub(super) struct Attempt<R> {
    pub joints: Row<R>,
    pub answer: Answer<R>,
    /// Sum of the squared, weighted errors of the pose that the joints reach.
    pub square: R,
}

/// Squared errors of a row of joint values against a target.
struct Measured<R> {
    /// True if both errors are within the tolerances, and the row of joints is valid: all values finite and at most 8,192 in
    /// magnitude.
    valid: bool,
    position: R,
    rotation: R,
    /// Sum of the squared, weighted errors.
    square: R,
}

impl<R: Real> Solver<R> {
    /// Checks a configuration, rounds the chain to the float type, and makes the table of initial guesses.
    ///
    /// # Errors
    /// Names the field, the value found and the values allowed.
    pub fn new(chain: &Chain, config: &InverseConfig) -> Result<Self, InverseError> {
        let bounds = Bounds::new(chain);
        Ok(Self {
            model: Model::new(chain),
            spec: Spec::new(config, chain, &bounds)?,
            bounds_along: bounds.along(),
            bounds,
            seeds: seeds::table(chain.joints(), config.seeds),
        })
    }

    /// The chain in the float type of the solver.
    pub fn model(&self) -> &Model<R> {
        &self.model
    }

    /// The checked configuration, in the float type of the solver.
    pub fn spec(&self) -> &Spec<R> {
        &self.spec
    }

    /// Limits of the joints, in the order of a row of joint values.
    pub fn bounds(&self) -> &[Bound<R>] {
        self.bounds.all()
    }

    /// Table of initial guesses, row-major: a row of joint values for each guess.
    pub fn start_table(&self) -> &[R] {
        &self.seeds
    }

    /// Largest number of initial guesses that are tried for a target.
    pub fn starts(&self) -> usize {
        self.seeds.len() / self.model.joints
    }

    /// Finds joints for a target and writes them to `joints`. The first initial guess is `seed`; without `seed`, it is the
    /// middle of the limits.
    ///
    /// # Panics
    /// If `seed` or `joints` does not have a value for each joint.
    pub fn solve(&self, target: &Pose<R>, seed: Option<&[R]>, joints: &mut [R]) -> Answer<R> {
        assert_eq!(joints.len(), self.model.joints, "a value for each joint");
        let attempt = match (Target::new(target), self.first_start(seed)) {
            (Some(target), Some(start)) => {
                let attempt = self.select(&target, &start, self.spec.select, &start, None);
                self.pull_to_rest(&target, attempt, None)
            }
            _ => Attempt::unusable(),
        };
        joints.copy_from_slice(&attempt.joints[..joints.len()]);
        attempt.answer
    }

    /// Finds joints for a target from every initial guess. Appends distinct solutions to `joints` and `answers`, in the order
    /// of their guesses. Solutions are distinct if some joint differs by more than 1e-3 (rad or m). Returns the number of
    /// solutions appended; 0 for a target that can't be used.
    ///
    /// # Panics
    /// If `seed` does not have a value for each joint. If the solver has a posture, which would pull distinct
    /// solutions together.
    pub fn solve_all(
        &self,
        target: &Pose<R>,
        seed: Option<&[R]>,
        joints: &mut Vec<R>,
        answers: &mut Vec<Answer<R>>,
    ) -> usize {
        assert!(self.spec.posture.is_none(), "all answers are those without a posture");
        let (n, first) = (self.model.joints, joints.len());
        let (Some(target), Some(start)) = (Target::new(target), self.first_start(seed)) else {
            return 0;
        };
        let least = R::from_f64(1e-3);
        for attempt in self.attempts(&target, &start).filter(|attempt| attempt.answer.valid) {
            let found = &attempt.joints[..n];
            let mut known = joints[first..].chunks_exact(n);
            let is_near = |known: &[R]| known.iter().zip(found).all(|(&a, &b)| (a - b).abs() <= least);
            if !known.any(is_near) {
                joints.extend_from_slice(found);
                answers.push(attempt.answer);
            }
        }
        (joints.len() - first) / n
    }

    /// Returns the first initial guess: `seed`, brought within the limits, or the middle of the limits without `seed`. Returns
    /// `None` if `seed` is not finite.
    pub(super) fn first_start(&self, seed: Option<&[R]>) -> Option<Row<R>> {
        let Some(seed) = seed else {
            return Some(self.middle());
        };
        assert_eq!(seed.len(), self.model.joints, "a value for each joint");
        let mut start = [R::default(); MAX_JOINTS];
        for (i, &value) in seed.iter().enumerate() {
            start[i] = self.bounds.admit(i, value);
        }
        seed.iter().all(|value| value.is_finite()).then_some(start)
    }

    /// Returns the first initial guess of the table: the middle of the limits.
    pub(super) fn middle(&self) -> Row<R> {
        let n = self.model.joints;
        let mut start = [R::default(); MAX_JOINTS];
        start[..n].copy_from_slice(&self.seeds[..n]);
        start
    }

    /// Searches from each initial guess in turn. `first` replaces the first guess of the table.
    fn attempts<'a>(&'a self, target: &'a Target<R>, first: &'a Row<R>) -> impl Iterator<Item = Attempt<R>> + 'a {
        let n = self.model.joints;
        self.seeds.chunks_exact(n).enumerate().map(move |(s, row)| {
            let mut start = *first;
            if s > 0 {
                start[..n].copy_from_slice(row);
            }
            let mut attempt = self.descend(target, &start, &self.bounds);
            attempt.answer.seed = s as u32;
            attempt
        })
    }

    /// Returns the best attempt, of `before` and one from each initial guess: a valid one, else the one with the smallest
    /// error. Of several valid attempts, the one with the joints nearest to `near` is taken. [`Select::First`] ends the search
    /// at the first valid one.
    pub(super) fn select(
        &self,
        target: &Target<R>,
        first: &Row<R>,
        select: Select,
        near: &Row<R>,
        before: Option<Attempt<R>>,
    ) -> Attempt<R> {
        let distance_of = |attempt: &Attempt<R>| match attempt.answer.valid {
            true => self.squared_distance(&attempt.joints, near),
            false => attempt.square,
        };
        let mut best = before.map(|attempt| (attempt, distance_of(&attempt)));
        for attempt in self.attempts(target, first) {
            let distance = distance_of(&attempt);
            let is_better = best
                .as_ref()
                .is_none_or(|(best, least)| match (attempt.answer.valid, best.answer.valid) {
                    (true, false) => true,
                    (false, true) => false,
                    _ => distance < *least,
                });
            if is_better {
                best = Some((attempt, distance));
            }
            if attempt.answer.valid && select == Select::First {
                break;
            }
        }
        best.map_or_else(Attempt::unusable, |(best, _)| best)
    }

    fn squared_distance(&self, a: &[R], b: &[R]) -> R {
        let differences = a.iter().zip(b).map(|(&a, &b)| a - b);
        differences
            .take(self.model.joints)
            .fold(R::default(), |sum, d| sum + d * d)
    }

    /// Makes steps from the initial guess `start` until the errors are within the tolerances, or `max_iterations` steps
    /// are made.
    pub(super) fn descend(&self, target: &Target<R>, start: &Row<R>, bounds: &Bounds<R>) -> Attempt<R> {
        match self.spec.task {
            Task::Pose => self.descend_with::<WholePose, 6>(target, start, bounds),
            Task::Position => self.descend_with::<PositionOnly, 3>(target, start, bounds),
            Task::PositionAxis => self.descend_with::<PositionAndAxis, 5>(target, start, bounds),
        }
    }

    fn descend_with<T: Rows<M>, const M: usize>(
        &self,
        target: &Target<R>,
        start: &Row<R>,
        bounds: &Bounds<R>,
    ) -> Attempt<R> {
        let mut joints = *start;
        let mut columns = Columns::default();
        let mut residual = Residual::zero();
        let mut iterations = 0;
        loop {
            let measured = self.measure::<T, M>(target, &joints, &mut columns, &mut residual);
            if measured.valid || iterations == self.spec.max_iterations {
                return measured.attempt(joints, 0, iterations);
            }
            self.step(&measured, &mut residual, bounds, &mut joints);
            iterations += 1;
        }
    }

    /// Computes the squared errors of joints against a target. Writes the Jacobian of the tip to `columns`, and the error and
    /// the task's Jacobian to `residual`.
    #[inline(always)]
    fn measure<T: Rows<M>, const M: usize>(
        &self,
        target: &Target<R>,
        joints: &Row<R>,
        columns: &mut Columns<R>,
        residual: &mut Residual<R, M>,
    ) -> Measured<R> {
        let n = self.model.joints;
        let turns = self.model.turns(&joints[..n]);
        let tip = self.model.columns(&turns, Frame::Base, columns);
        residual.compare::<T>(target, &tip, &columns[..n]);
        let [position, rotation] = match &self.spec.weights {
            Some(weights) => residual.weigh(weights),
            None => [residual.position, residual.rotation],
        };
        Measured {
            valid: turns.is_valid && position <= self.spec.position && rotation <= self.spec.rotation,
            position,
            rotation,
            square: residual.position + residual.rotation,
        }
    }

    /// Moves `joints` by one step of Levenberg-Marquardt, computed from the squared errors and the residual at these joints.
    #[inline(always)]
    fn step<const M: usize>(
        &self,
        measured: &Measured<R>,
        residual: &mut Residual<R, M>,
        bounds: &Bounds<R>,
        joints: &mut Row<R>,
    ) {
        let damping = self.spec.floor + self.spec.gain * measured.square;
        bounds.step(residual, damping, &mut joints[..self.model.joints]);
    }

    /// Pulls a valid attempt to rest, if the solver has a posture. Returns the attempt unchanged if the pulled joints are not a
    /// solution, are further from rest, or have a joint further than `max_joint_step` from `last`.
    #[inline(always)]
    pub(super) fn pull_to_rest(&self, target: &Target<R>, attempt: Attempt<R>, last: Option<&Row<R>>) -> Attempt<R> {
        let posture = match &self.spec.posture {
            Some(posture) if attempt.answer.valid => posture,
            _ => return attempt,
        };
        let pulled = match self.spec.task {
            Task::Pose => self.pull_with::<WholePose, 6>(posture, target, &attempt),
            Task::Position => self.pull_with::<PositionOnly, 3>(posture, target, &attempt),
            Task::PositionAxis => self.pull_with::<PositionAndAxis, 5>(posture, target, &attempt),
        };
        let distance = |joints: &Row<R>| self.squared_distance(joints, &posture.rest);
        let is_step = last.is_none_or(|last| self.is_step(last, &pulled.joints));
        match pulled.answer.valid && is_step && distance(&pulled.joints) <= distance(&attempt.joints) {
            true => pulled,
            false => attempt,
        }
    }

    /// Moves the joints of a solution towards rest. Makes one step back to the target if the moved joints exceed
    /// the tolerances.
    fn pull_with<T: Rows<M>, const M: usize>(
        &self,
        posture: &Posture<R>,
        target: &Target<R>,
        from: &Attempt<R>,
    ) -> Attempt<R> {
        let n = self.model.joints;
        let mut joints = from.joints;
        let mut columns = Columns::default();
        let mut residual = Residual::zero();
        self.measure::<T, M>(target, &joints, &mut columns, &mut residual);
        posture.pull(
            &residual.columns[..n],
            self.spec.floor,
            &self.bounds_along,
            &mut joints[..n],
        );
        let mut measured = self.measure::<T, M>(target, &joints, &mut columns, &mut residual);
        if !measured.valid {
            self.step(&measured, &mut residual, &self.bounds_along, &mut joints);
            measured = self.measure::<T, M>(target, &joints, &mut columns, &mut residual);
        }
        measured.attempt(joints, from.answer.seed, from.answer.iterations)
    }
}

impl<R: Real> Measured<R> {
    /// Makes the attempt that ended at `joints`, from the errors in `self`.
    #[inline(always)]
    fn attempt(&self, joints: Row<R>, seed: u32, iterations: u32) -> Attempt<R> {
        let answer = Answer {
            valid: self.valid,
            position_error_m: self.position.sqrt(),
            rotation_error_rad: self.rotation.sqrt(),
            seed,
            iterations,
        };
        let square = self.square;
        Attempt { joints, answer, square }
    }
}

impl<R: Real> Attempt<R> {
    /// Makes the attempt for a target or an initial guess that can't be used: not valid, with joints and errors of NaN.
    pub fn unusable() -> Self {
        let nan = R::from_f64(f64::NAN);
        Self {
            joints: [nan; MAX_JOINTS],
            answer: Answer {
                position_error_m: nan,
                rotation_error_rad: nan,
                ..Answer::default()
            },
            square: nan,
        }
    }
}
