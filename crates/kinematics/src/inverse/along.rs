//! Inverse kinematics along a trajectory: the search for each target begins at the last solution. `solve_next`, called for one
//! target after the other, gives the results of `solve_along`.

use super::config::Select;
use super::solver::{Answer, Attempt, Solver};
use super::task::Target;
use crate::model::{Pose, Row};
use robocache_geometry::Real;

/// State of a trajectory between calls of [`Solver::solve_next`].
#[derive(Clone, Debug)]
pub struct Track<R> {
    /// Joints at which the search for the first target begins; `None` for the middle of the limits.
    start: Option<Row<R>>,
    /// Joints of the last solution; `None` before the first solution.
    last: Option<Row<R>>,
    branch: u32,
}

impl<R> Default for Track<R> {
    fn default() -> Self {
        Self {
            start: None,
            last: None,
            branch: 0,
        }
    }
}

impl<R> Track<R> {
    /// Number of jumps so far. A jump is a solution with a joint further than `max_joint_step` from the previous solution.
    pub fn branch(&self) -> u32 {
        self.branch
    }

    /// Forgets the last solution, so that the next target is the first of a trajectory. [`branch`](Self::branch) keeps
    /// its value.
    pub fn restart(&mut self) {
        self.last = None;
    }
}

impl<R: Real> Track<R> {
    /// Converts the state to another float type. Joints are rounded to the type.
    pub fn cast<S: Real>(&self) -> Track<S> {
        let cast = |row: Row<R>| row.map(|value| S::from_f64(value.to_f64()));
        Track {
            start: self.start.map(cast),
            last: self.last.map(cast),
            branch: self.branch,
        }
    }
}

impl<R: Real> Solver<R> {
    /// Finds joints for the targets of a trajectory. The search for the first target begins at `seed`, and the search for each
    /// later target at the last solution.
    ///
    /// If this search gives no solution, or moves a joint by more than `max_joint_step`, all initial guesses of the solver are
    /// tried as well. The solution that is nearest to the last one is then taken. Each element of `branches` is the number of
    /// jumps up to its target: solutions with a joint further than `max_joint_step` from the previous solution.
    ///
    /// For the first target, any solution of the search from `seed` is taken if `select` is `first`. Without `seed`, the first
    /// target is solved as by [`solve`](Self::solve). With a posture, each solution is pulled to rest before the next search,
    /// no further than `max_joint_step` from the last solution.
    ///
    /// # Panics
    /// If `seed` does not have a value for each joint, `joints` not one for each joint of each target, or `answers` or
    /// `branches` not one for each target.
    pub fn solve_along(
        &self,
        targets: &[Pose<R>],
        seed: Option<&[R]>,
        joints: &mut [R],
        answers: &mut [Answer<R>],
        branches: &mut [u32],
    ) {
        let n = self.model.joints;
        assert_eq!(joints.len(), targets.len() * n, "a value for each joint of each target");
        assert_eq!(answers.len(), targets.len(), "an answer for each target");
        assert_eq!(branches.len(), targets.len(), "a branch for each target");
        let track = match seed {
            Some(seed) => self.track_from(seed),
            None => Some(Track::default()),
        };
        let Some(mut track) = track else {
            let none = Attempt::unusable();
            joints.fill(none.joints[0]);
            answers.fill(none.answer);
            return branches.fill(0);
        };
        let rows = joints.chunks_exact_mut(n).zip(answers).zip(branches);
        for (target, ((joints, answer), branch)) in targets.iter().zip(rows) {
            *answer = self.solve_next(target, &mut track, joints);
            *branch = track.branch;
        }
    }

    /// Returns the state of a trajectory that begins at `joints`, brought within the limits; `None` if a value of `joints` is
    /// not finite.
    ///
    /// # Panics
    /// If `joints` does not have a value for each joint.
    pub fn track_from(&self, joints: &[R]) -> Option<Track<R>> {
        let start = self.first_start(Some(joints));
        start.is_some().then(|| Track {
            start,
            ..Track::default()
        })
    }

    /// Finds joints for the next target of a trajectory, and writes them to `joints`. Called for one target after the other, it
    /// gives the results of [`solve_along`](Self::solve_along).
    ///
    /// # Panics
    /// If `joints` does not have a value for each joint.
    pub fn solve_next(&self, target: &Pose<R>, track: &mut Track<R>, joints: &mut [R]) -> Answer<R> {
        assert_eq!(joints.len(), self.model.joints, "a value for each joint");
        let target = Target::new(target);
        let attempt = target.map_or_else(Attempt::unusable, |target| self.go_to(&target, track));
        joints.copy_from_slice(&attempt.joints[..joints.len()]);
        attempt.answer
    }

    fn go_to(&self, target: &Target<R>, track: &mut Track<R>) -> Attempt<R> {
        let near = track.last.as_ref().or(track.start.as_ref());
        let is_near = |attempt: &Attempt<R>| near.is_some_and(|near| self.is_step(near, &attempt.joints));
        let is_first = track.last.is_none();
        let select = if is_first { self.spec.select } else { Select::Nearest };
        let followed = near.map(|near| self.descend(target, near, &self.bounds_along));
        let attempt = match followed {
            Some(attempt) if attempt.answer.valid && (select == Select::First || is_near(&attempt)) => attempt,
            _ => {
                let start = track.start.unwrap_or_else(|| self.middle());
                self.select(target, &start, select, near.unwrap_or(&start), followed)
            }
        };
        let attempt = self.pull_to_rest(target, attempt, near.filter(|_| is_near(&attempt)));
        if attempt.answer.valid {
            track.branch += u32::from(!is_first && !is_near(&attempt));
            track.last = Some(attempt.joints);
        }
        attempt
    }

    /// True if no joint differs between two rows by more than `max_joint_step`.
    pub(super) fn is_step(&self, from: &Row<R>, to: &Row<R>) -> bool {
        let mut pairs = from.iter().zip(to).take(self.model.joints);
        pairs.all(|(&from, &to)| (to - from).abs() <= self.spec.max_joint_step)
    }
}
