use super::config::Select;
use super::solver::{Answer, Attempt, Solver};
use super::task::Target;
use crate::model::{Pose, Row};
use robocache_geometry::Real;

/// The place that a trajectory has got to: [`Solver::solve_next`].
#[derive(Clone, Debug)]
pub struct Track<R> {
    /// The joints that the next ones are to follow: those of the last answer, before it a given start.
    last: Option<Row<R>>,
    /// True if they are those of an answer.
    has_answer: bool,
    /// Number of breaks so far.
    branch: u32,
}

impl<R> Default for Track<R> {
    fn default() -> Self {
        Self {
            last: None,
            has_answer: false,
            branch: 0,
        }
    }
}

impl<R> Track<R> {
    /// Number of targets so far for which the joints could not follow from the answer before.
    pub fn branch(&self) -> u32 {
        self.branch
    }

    /// Forgets the last answer, so that the next target is the first of a trajectory. The breaks stay counted.
    pub fn restart(&mut self) {
        (self.last, self.has_answer) = (None, false);
    }
}

impl<R: Real> Track<R> {
    /// The same place in another float type.
    pub fn cast<S: Real>(&self) -> Track<S> {
        Track {
            last: self.last.map(|row| row.map(|value| S::from_f64(value.to_f64()))),
            has_answer: self.has_answer,
            branch: self.branch,
        }
    }
}

impl<R: Real> Solver<R> {
    /// Finds joints for the targets of a trajectory: for each one from the answer before it, for the first one from `seed`.
    ///
    /// If that leads to no answer, or moves a joint by more than `max_joint_step`, the nearest answer from all starts is taken. The
    /// number in `branches` rises by 1 from there on if a joint of it is further from the last answer. The first target is then, or
    /// without a seed, as [`solve`](Self::solve) has it. After a target without an answer the one before stays the start. With a
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
        let mut track = Track {
            last: seed.and(start),
            ..Track::default()
        };
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
        let is_near = |attempt: &Attempt<R>| {
            track
                .last
                .as_ref()
                .is_some_and(|last| self.is_step(last, &attempt.joints))
        };
        let followed = track
            .last
            .as_ref()
            .map(|last| self.descend(target, last, &self.bounds_along));
        let attempt = match (followed, &track.last) {
            (Some(attempt), _) if attempt.answer.valid && is_near(&attempt) => attempt,
            (_, Some(last)) if track.has_answer => self.select(target, start, Select::Nearest, last),
            _ => self.select(target, start, self.spec.select, start),
        };
        let attempt = self.pull_to_rest(target, attempt, track.last.as_ref().filter(|_| is_near(&attempt)));
        if attempt.answer.valid {
            track.branch += u32::from(track.has_answer && !is_near(&attempt));
            (track.last, track.has_answer) = (Some(attempt.joints), true);
        }
        attempt
    }

    /// True if no joint moves by more than is allowed.
    pub(super) fn is_step(&self, from: &Row<R>, to: &Row<R>) -> bool {
        let mut pairs = from.iter().zip(to).take(self.model.joints);
        pairs.all(|(&from, &to)| (to - from).abs() <= self.spec.max_joint_step)
    }
}
