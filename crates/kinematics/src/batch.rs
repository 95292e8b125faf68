//! Poses, Jacobians and velocities for batches of rows of joint values, on all threads. A row gives the same bits alone and in
//! any batch, for any number of threads.

use crate::jacobian::{Frame, Twist};
use crate::lanes::LANES;
use crate::model::{Model, Pose, pose_of};
use rayon::prelude::*;
use robocache_geometry::{Real, RigidTransform};

/// Number of rows that a thread processes at a time. A batch of at most this many runs on the calling thread.
const ROWS_AT_A_TIME: usize = 1024;

impl<R: Real> Model<R> {
    /// Computes the [pose](Self::pose) for each row of joint values in `q`, on all threads. A row that is not
    /// [valid](Self::takes) gets a pose of NaN. Returns the number of such rows.
    ///
    /// # Panics
    /// If `q` does not have a value for each joint of each pose.
    pub fn poses(&self, q: &[R], poses: &mut [Pose<R>]) -> usize {
        assert_eq!(q.len(), poses.len() * self.joints, "a value for each joint of each row");
        self.share(q, poses, 1, |q, poses| self.dispatch(q, poses))
    }

    /// Computes the poses of some links for each row of joint values in `q`, on all threads: `links` has their indices in
    /// [`Chain::links`](crate::Chain::links). The poses of the first row come first, then those of the second, and so on. A row
    /// that is not [valid](Self::takes) gets poses of NaN. Returns the number of such rows.
    ///
    /// # Panics
    /// If an index is not that of a link, or `q` does not have a value for each joint of each row. If `poses` does not have an
    /// element for each link of each row.
    pub fn link_poses(&self, q: &[R], links: &[usize], poses: &mut [Pose<R>]) -> usize {
        assert_eq!(
            q.len() * links.len(),
            poses.len() * self.joints,
            "a value for each joint of each row"
        );
        if links.is_empty() {
            return 0;
        }
        self.share(q, poses, links.len(), |q, poses| {
            let mut frames = vec![RigidTransform::identity(); self.link_count()];
            let mut invalid = 0;
            let rows = q.chunks_exact(self.joints).zip(poses.chunks_exact_mut(links.len()));
            for (q, poses) in rows {
                if self.links(q, &mut frames) {
                    for (pose, &link) in poses.iter_mut().zip(links) {
                        *pose = pose_of(&frames[link]);
                    }
                } else {
                    poses.fill([R::from_f64(f64::NAN); 7]);
                    invalid += 1;
                }
            }
            invalid
        })
    }

    /// Computes the [manipulability](Self::manipulability) for each row of joint values in `q`, on all threads: NaN for a row
    /// that is not [valid](Self::takes). Returns the number of such rows.
    ///
    /// # Panics
    /// If `q` does not have a value for each joint of each row.
    pub fn manipulabilities(&self, q: &[R], manipulabilities: &mut [R]) -> usize {
        assert_eq!(
            q.len(),
            manipulabilities.len() * self.joints,
            "a value for each joint of each row"
        );
        self.share(q, manipulabilities, 1, |q, out| {
            let mut invalid = 0;
            for (q, out) in q.chunks_exact(self.joints).zip(out) {
                let manipulability = self.manipulability(q);
                *out = manipulability.unwrap_or(R::from_f64(f64::NAN));
                invalid += usize::from(manipulability.is_none());
            }
            invalid
        })
    }

    /// Computes the [twist](Self::twist) for each row of joint values in `q` and velocities in `dq`, on all threads. If a row
    /// is not [valid](Self::takes), or a velocity is not finite, the twist is NaN. Returns the number of such rows.
    ///
    /// # Panics
    /// If `q` or `dq` does not have a value for each joint of each twist.
    pub fn twists(&self, q: &[R], dq: &[R], frame: Frame, twists: &mut [Twist<R>]) -> usize {
        let n = self.joints;
        assert_eq!(q.len(), twists.len() * n, "a value for each joint of each row");
        assert_eq!(dq.len(), twists.len() * n, "a velocity for each joint of each row");
        let row = |((q, dq), out): ((&[R], &[R]), &mut Twist<R>)| {
            let twist = self.twist(q, dq, frame);
            *out = twist.unwrap_or([R::from_f64(f64::NAN); 6]);
            usize::from(twist.is_none())
        };
        if twists.len() <= ROWS_AT_A_TIME {
            return q.chunks_exact(n).zip(dq.chunks_exact(n)).zip(twists).map(row).sum();
        }
        let rows = q.par_chunks_exact(n).zip(dq.par_chunks_exact(n)).zip(twists);
        rows.with_min_len(ROWS_AT_A_TIME).map(row).sum()
    }

    /// Computes the [Jacobian](Self::jacobian) and the pose for each row of joint values in `q`, on all threads. Both are NaN
    /// for a row that is not [valid](Self::takes). Returns the number of such rows.
    ///
    /// # Panics
    /// If `q` does not have a value for each joint of each pose, or `jacobians` does not have 6 numbers for each value of `q`.
    pub fn jacobians(&self, q: &[R], frame: Frame, jacobians: &mut [R], poses: &mut [Pose<R>]) -> usize {
        assert_eq!(q.len(), poses.len() * self.joints, "a value for each joint of each row");
        assert_eq!(jacobians.len(), 6 * q.len(), "6 numbers for each value");
        let nan = R::from_f64(f64::NAN);
        let n = self.joints;
        let row = |((q, jacobian), out): ((&[R], &mut [R]), &mut Pose<R>)| {
            let pose = self.jacobian(q, frame, jacobian);
            if pose.is_none() {
                jacobian.fill(nan);
            }
            *out = pose.unwrap_or([nan; 7]);
            usize::from(pose.is_none())
        };
        if poses.len() <= ROWS_AT_A_TIME {
            let rows = q.chunks_exact(n).zip(jacobians.chunks_exact_mut(6 * n)).zip(poses);
            return rows.map(row).sum();
        }
        let rows = q
            .par_chunks_exact(n)
            .zip(jacobians.par_chunks_exact_mut(6 * n))
            .zip(poses);
        rows.with_min_len(ROWS_AT_A_TIME).map(row).sum()
    }

    /// Runs `work` on all threads, each time with a chunk of the rows in `q` and their results, `of_row` for each row. A batch
    /// of at most `ROWS_AT_A_TIME` rows runs on the calling thread: it is done before another thread wakes up. Returns the sum
    /// of the numbers of invalid rows that `work` returns.
    fn share<T: Send>(
        &self,
        q: &[R],
        results: &mut [T],
        of_row: usize,
        work: impl Fn(&[R], &mut [T]) -> usize + Sync,
    ) -> usize {
        if results.len() <= ROWS_AT_A_TIME * of_row {
            return work(q, results);
        }
        let chunks = q.par_chunks(ROWS_AT_A_TIME * self.joints);
        let chunks = chunks.zip(results.par_chunks_mut(ROWS_AT_A_TIME * of_row));
        chunks.map(|(q, results)| work(q, results)).sum()
    }

    /// Computes the poses of rows, with code compiled for AVX2 if the CPU has it. The bits are the same without AVX2: each lane
    /// computes what scalar code would. Returns the number of invalid rows.
    fn dispatch(&self, q: &[R], poses: &mut [Pose<R>]) -> usize {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has AVX2.
            return unsafe { self.poses_avx2(q, poses) };
        }
        self.poses_in_lanes(q, poses)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn poses_avx2(&self, q: &[R], poses: &mut [Pose<R>]) -> usize {
        self.poses_in_lanes(q, poses)
    }

    #[inline(always)]
    fn poses_in_lanes(&self, q: &[R], poses: &mut [Pose<R>]) -> usize {
        let n = self.joints;
        let mut groups = poses.chunks_exact_mut(LANES);
        let mut invalid = 0;
        for (q, poses) in q.chunks_exact(LANES * n).zip(&mut groups) {
            invalid += self.poses_of_lanes(q, poses);
        }
        let rest = groups.into_remainder();
        let rows = q[q.len() - rest.len() * n..].chunks_exact(n);
        for (q, out) in rows.zip(rest) {
            let pose = self.pose(q);
            *out = pose.unwrap_or([R::from_f64(f64::NAN); 7]);
            invalid += usize::from(pose.is_none());
        }
        invalid
    }
}
