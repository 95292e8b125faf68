use super::config::Select;
use super::solver::{Answer, Attempt, Solver};
use super::task::Target;
use crate::model::{Pose, Row};
use robocache_geometry::Real;

/// The place that a trajectory has got to.
struct Progress<R> {
    /// The joints of the last answer.
    last: Option<Row<R>>,
    /// Number of breaks so far.
    branch: u32,
}

impl<R: Real> Solver<R> {
    /// Finds joints for the targets of a trajectory: for the first as [`solve`](Self::solve) does, for each later one from the
    /// answer before it.
    ///
    /// If that leads to no answer, or moves a joint by more than `max_joint_step`, the nearest answer from all starts is taken, and
    /// the number in `branches` rises by 1 from there on. After a target without an answer the one before stays the start.
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
        let mut progress = Progress { last: None, branch: 0 };
        let rows = joints.chunks_exact_mut(n).zip(answers).zip(branches);
        for (target, ((joints, answer), branch)) in targets.iter().zip(rows) {
            let attempt = match (Target::new(target), &start) {
                (Some(target), Some(start)) => self.go_to(&target, start, &mut progress),
                _ => Attempt::unusable(),
            };
            joints.copy_from_slice(&attempt.joints[..n]);
            *answer = attempt.answer;
            *branch = progress.branch;
        }
    }

    fn go_to(&self, target: &Target<R>, start: &Row<R>, progress: &mut Progress<R>) -> Attempt<R> {
        let attempt = match &progress.last {
            None => self.select(target, start, self.spec.select, start),
            Some(last) => {
                let attempt = self.descend(target, last);
                if attempt.answer.valid && self.is_step(last, &attempt.joints) {
                    attempt
                } else {
                    let restarted = self.select(target, start, Select::Nearest, last);
                    progress.branch += u32::from(restarted.answer.valid);
                    restarted
                }
            }
        };
        if attempt.answer.valid {
            progress.last = Some(attempt.joints);
        }
        attempt
    }

    /// True if no joint moves by more than is allowed.
    fn is_step(&self, from: &Row<R>, to: &Row<R>) -> bool {
        let mut pairs = from.iter().zip(to).take(self.model.joints);
        pairs.all(|(&from, &to)| (to - from).abs() <= self.spec.max_joint_step)
    }
}
