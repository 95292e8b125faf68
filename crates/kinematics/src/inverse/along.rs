use super::config::Select;
use super::solver::{Answer, Attempt, Solver};
use super::task::Target;
use crate::model::{Pose, Row};
use robocache_geometry::Real;

/// The place that a trajectory has got to: [`Solver::solve_next`].
#[derive(Clone, Debug)]
pub struct Track<R> {
    /// The joints of the last answer.
    last: Option<Row<R>>,
    /// Number of breaks so far.
    branch: u32,
}

impl<R> Default for Track<R> {
    fn default() -> Self {
        Self { last: None, branch: 0 }
    }
}

impl<R> Track<R> {
    /// Number of targets so far for which the joints could not follow from the answer before.
    pub fn branch(&self) -> u32 {
        self.branch
    }

    /// Forgets the last answer, so that the next target is the first of a trajectory. The breaks stay counted.
    pub fn restart(&mut self) {
        self.last = None;
    }
}

impl<R: Real> Track<R> {
    /// The same place in another float type.
    pub fn cast<S: Real>(&self) -> Track<S> {
        Track {
            last: self.last.map(|row| row.map(|value| S::from_f64(value.to_f64()))),
            branch: self.branch,
        }
    }
}

impl<R: Real> Solver<R> {
    /// Finds joints for the targets of a trajectory: for the first as [`solve`](Self::solve) does, for each later one from the
    /// answer before it.
    ///
    /// If that leads to no answer, or moves a joint by more than `max_joint_step`, the nearest answer from all starts is taken, and
    /// the number in `branches` rises by 1 from there on. After a target without an answer the one before stays the start. With a
    /// posture each answer is pulled to rest before the next one starts from it, no further than `max_joint_step` from the last.
    ///
    /// # Panics
    /// If `seed` does not have a value for each joint, `joints` not one for each joint of each target, or `answers` or `branches`
    /// not one for each target.
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
        let start = self.first_start(seed);
        let mut track = Track::default();
        let rows = joints.chunks_exact_mut(n).zip(answers).zip(branches);
        for (target, ((joints, answer), branch)) in targets.iter().zip(rows) {
            *answer = self.follow(target, start.as_ref(), &mut track, joints);
            *branch = track.branch;
        }
    }

    /// Finds joints for the next target of a trajectory, of which targets come one by one: those that
    /// [`solve_along`](Self::solve_along) finds without a seed.
    ///
    /// # Panics
    /// If `joints` does not have a value for each joint.
    pub fn solve_next(&self, target: &Pose<R>, track: &mut Track<R>, joints: &mut [R]) -> Answer<R> {
        assert_eq!(joints.len(), self.model.joints, "a value for each joint");
        self.follow(target, self.first_start(None).as_ref(), track, joints)
    }

    fn follow(&self, target: &Pose<R>, start: Option<&Row<R>>, track: &mut Track<R>, joints: &mut [R]) -> Answer<R> {
        let attempt = match (Target::new(target), start) {
            (Some(target), Some(start)) => self.go_to(&target, start, track),
            _ => Attempt::unusable(),
        };
        joints.copy_from_slice(&attempt.joints[..joints.len()]);
        attempt.answer
    }

    fn go_to(&self, target: &Target<R>, start: &Row<R>, track: &mut Track<R>) -> Attempt<R> {
        let (attempt, from) = match &track.last {
            None => (self.select(target, start, self.spec.select, start), None),
            Some(last) => {
                let attempt = self.descend(target, last, &self.bounds_along);
                if attempt.answer.valid && self.is_step(last, &attempt.joints) {
                    (attempt, Some(last))
                } else {
                    let restarted = self.select(target, start, Select::Nearest, last);
                    let is_near = self.is_step(last, &restarted.joints);
                    track.branch += u32::from(restarted.answer.valid && !is_near);
                    (restarted, is_near.then_some(last))
                }
            }
        };
        let attempt = self.pull_to_rest(target, attempt, from);
        if attempt.answer.valid {
            track.last = Some(attempt.joints);
        }
        attempt
    }

    /// True if no joint moves by more than is allowed.
    pub(super) fn is_step(&self, from: &Row<R>, to: &Row<R>) -> bool {
        let mut pairs = from.iter().zip(to).take(self.model.joints);
        pairs.all(|(&from, &to)| (to - from).abs() <= self.spec.max_joint_step)
    }
}
