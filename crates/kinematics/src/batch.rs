//! Poses and Jacobians of many rows.

use crate::jacobian::Frame;
use crate::lanes::LANES;
use crate::model::{Model, Pose};
use rayon::prelude::*;
use robocache_geometry::Real;

/// Rows that a thread takes at a time.
const ROWS_AT_A_TIME: usize = 1024;

impl<R: Real> Model<R> {
    /// Computes the [pose](Self::pose) of each row, on all threads. Those of invalid rows are NaN. Returns the number of
    /// invalid rows.
    ///
    /// # Panics
    /// If `q` does not have a value for each joint of each pose.
    pub fn poses(&self, q: &[R], poses: &mut [Pose<R>]) -> usize {
        assert_eq!(q.len(), poses.len() * self.joints, "a value for each joint of each row");
        let rows = q.par_chunks(ROWS_AT_A_TIME * self.joints);
        let rows = rows.zip(poses.par_chunks_mut(ROWS_AT_A_TIME));
        rows.map(|(q, poses)| self.dispatch(q, poses)).sum()
    }

    /// Computes the [Jacobian](Self::jacobian) and the pose of each row, on all threads. Those of invalid rows are NaN. Returns the
    /// number of invalid rows.
    ///
    /// # Panics
    /// If `q` does not have a value for each joint of each pose, or `jacobians` not 6 numbers for each value.
    pub fn jacobians(&self, q: &[R], frame: Frame, jacobians: &mut [R], poses: &mut [Pose<R>]) -> usize {
        assert_eq!(q.len(), poses.len() * self.joints, "a value for each joint of each row");
        assert_eq!(jacobians.len(), 6 * q.len(), "6 numbers for each value");
        let nan = R::from_f64(f64::NAN);
        let rows = q
            .par_chunks(self.joints)
            .zip(jacobians.par_chunks_mut(6 * self.joints))
            .zip(poses);
        let rows = rows.with_min_len(ROWS_AT_A_TIME);
        let invalid = rows.map(|((q, jacobian), out)| {
            let pose = self.jacobian(q, frame, jacobian);
            if pose.is_none() {
                jacobian.fill(nan);
            }
            *out = pose.unwrap_or([nan; 7]);
            usize::from(pose.is_none())
        });
        invalid.sum()
    }

    /// Runs the code compiled for AVX2 where the CPU has it. The result is the same: each lane computes what a scalar
    /// would.
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
