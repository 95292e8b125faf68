//! Inverse kinematics of many targets on all threads. The results depend neither on the batch nor on the number of threads: a
//! separate call for each target or trajectory gives the same.

use super::solver::{Answer, Attempt, Solver};
use crate::model::Pose;
use rayon::prelude::*;
use robocache_geometry::Real;

/// Smallest number of targets that a thread processes at a time. A batch of at most this many runs on the calling thread.
const TARGETS_AT_A_TIME: usize = 16;

impl<R: Real> Solver<R> {
    /// Finds joints for each target as [`solve`](Self::solve) does, on all threads. `seeds` has an initial guess for each
    /// target, a row of joint values. Without `seeds`, each search starts in the middle of the limits.
    ///
    /// # Panics
    /// If `seeds` or `joints` does not have a value for each joint of each target, or `answers` not one for each target.
    pub fn solve_batch(&self, targets: &[Pose<R>], seeds: Option<&[R]>, joints: &mut [R], answers: &mut [Answer<R>]) {
        let n = self.model.joints;
        assert_eq!(joints.len(), targets.len() * n, "a value for each joint of each target");
        assert_eq!(answers.len(), targets.len(), "an answer for each target");
        if let Some(seeds) = seeds {
            assert_eq!(seeds.len(), joints.len(), "a start for each target");
        }
        let row = |(i, (joints, answer)): (usize, (&mut [R], &mut Answer<R>))| {
            let seed = seeds.map(|seeds| &seeds[i * n..][..n]);
            *answer = self.solve(&targets[i], seed, joints);
        };
        if targets.len() <= TARGETS_AT_A_TIME {
            return joints.chunks_exact_mut(n).zip(answers).enumerate().for_each(row);
        }
        let rows = joints.par_chunks_exact_mut(n).zip(answers).enumerate();
        rows.with_min_len(TARGETS_AT_A_TIME).for_each(row);
    }

    /// Finds all solutions for each target as [`solve_all`](Self::solve_all) does, on all threads. `seeds` has the first
    /// initial guess for each target, a row of joint values. Without `seeds`, it is the middle of the limits.
    ///
    /// `joints` and `answers` have room for as many solutions for each target as there are [`starts`](Self::starts). The
    /// solutions found come first. After them, the joints are NaN, and the answers are not valid.
    ///
    /// # Panics
    /// If `seeds` does not have a value for each joint of each target. If `joints` or `answers` does not have room for as many
    /// solutions for each target as there are starts.
    pub fn solve_all_batch(
        &self,
        targets: &[Pose<R>],
        seeds: Option<&[R]>,
        joints: &mut [R],
        answers: &mut [Answer<R>],
    ) {
        let (n, starts) = (self.model.joints, self.starts());
        let places = targets.len() * starts;
        assert_eq!(joints.len(), places * n, "a value for each joint of each place");
        assert_eq!(answers.len(), places, "an answer for each place");
        if let Some(seeds) = seeds {
            assert_eq!(seeds.len(), targets.len() * n, "a start for each target");
        }
        let none = Attempt::unusable();
        type Found<R> = (Vec<R>, Vec<Answer<R>>);
        type Row<'a, R> = (&'a mut [R], &'a mut [Answer<R>]);
        let all = |found: &mut Found<R>, (i, (joints, answers)): (usize, Row<'_, R>)| {
            found.0.clear();
            found.1.clear();
            let seed = seeds.map(|seeds| &seeds[i * n..][..n]);
            let count = self.solve_all(&targets[i], seed, &mut found.0, &mut found.1);
            joints[..count * n].copy_from_slice(&found.0);
            joints[count * n..].fill(none.joints[0]);
            answers[..count].copy_from_slice(&found.1);
            answers[count..].fill(none.answer);
        };
        let room = || (Vec::with_capacity(starts * n), Vec::with_capacity(starts));
        // All starts of each target are tried.
        let at_a_time = TARGETS_AT_A_TIME.div_ceil(starts);
        if targets.len() <= at_a_time {
            let mut found = room();
            let rows = joints
                .chunks_exact_mut(starts * n)
                .zip(answers.chunks_exact_mut(starts));
            return rows.enumerate().for_each(|row| all(&mut found, row));
        }
        let rows = joints.par_chunks_exact_mut(starts * n);
        let rows = rows.zip(answers.par_chunks_exact_mut(starts)).enumerate();
        rows.with_min_len(at_a_time).for_each_init(room, all);
    }

    /// Finds joints for trajectories of `length` targets each as [`solve_along`](Self::solve_along) does, on all threads.
    /// `seeds` has an initial guess for each trajectory, a row of joint values. Without `seeds`, the first targets are solved
    /// as by [`solve`](Self::solve).
    ///
    /// # Panics
    /// If `length` is 0 or does not divide the number of targets. If `seeds` does not have a value for each joint of each
    /// trajectory, or `joints` for each joint of each target. If `answers` or `branches` does not have an element for
    /// each target.
    pub fn solve_trajectories(
        &self,
        targets: &[Pose<R>],
        length: usize,
        seeds: Option<&[R]>,
        joints: &mut [R],
        answers: &mut [Answer<R>],
        branches: &mut [u32],
    ) {
        let n = self.model.joints;
        assert!(
            length > 0 && targets.len().is_multiple_of(length),
            "trajectories of one length"
        );
        assert_eq!(joints.len(), targets.len() * n, "a value for each joint of each target");
        assert_eq!(answers.len(), targets.len(), "an answer for each target");
        assert_eq!(branches.len(), targets.len(), "a branch for each target");
        if let Some(seeds) = seeds {
            assert_eq!(seeds.len(), targets.len() / length * n, "a start for each trajectory");
        }
        type Row<'a, R> = ((&'a mut [R], &'a mut [Answer<R>]), &'a mut [u32]);
        let along = |(i, ((joints, answers), branches)): (usize, Row<'_, R>)| {
            let targets = &targets[i * length..][..length];
            let seed = seeds.map(|seeds| &seeds[i * n..][..n]);
            self.solve_along(targets, seed, joints, answers, branches);
        };
        if targets.len() <= length.max(TARGETS_AT_A_TIME) {
            let rows = joints.chunks_exact_mut(length * n);
            let rows = rows
                .zip(answers.chunks_exact_mut(length))
                .zip(branches.chunks_exact_mut(length));
            return rows.enumerate().for_each(along);
        }
        let rows = joints.par_chunks_exact_mut(length * n);
        let rows = rows
            .zip(answers.par_chunks_exact_mut(length))
            .zip(branches.par_chunks_exact_mut(length));
        rows.enumerate().for_each(along);
    }
}
