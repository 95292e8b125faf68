//! Computation of poses for several rows of joint values at once, a vector lane for each row. The compiler vectorizes the loops
//! over lanes.
//!
//! Each lane computes one row, so that no sum changes its order: the bits are those of [`Model::pose`].

use crate::chain::MAX_JOINTS;
use crate::model::{Model, Pose, Segment, pose_of, slid};
use robocache_geometry::polynomial::{MAX_ANGLE, sin_cos};
use robocache_geometry::{Real, RigidTransform};
use std::array::from_fn;

/// Number of rows that are computed at once: one vector of AVX2 in float32, two vectors in float64.
pub(crate) const LANES: usize = 8;

/// A number for each lane.
type Lanes<R> = [R; LANES];

/// A frame for each lane, aligned so that no vector lies across two cache lines.
#[repr(C, align(64))]
struct Frames<R> {
    rotation: [[Lanes<R>; 3]; 3],
    translation: [Lanes<R>; 3],
}

impl<R: Real> Model<R> {
    /// Computes the poses of [`LANES`] rows of joint values. Poses of invalid rows are NaN. Returns the number of invalid rows.
    #[inline(always)]
    pub(crate) fn poses_of_lanes(&self, q: &[R], poses: &mut [Pose<R>]) -> usize {
        let (zero, one, most) = (R::from_f64(0.0), R::from_f64(1.0), R::from_f64(MAX_ANGLE));
        // All values are copied first: reading a vector right after its lanes were written would stall.
        let mut values = [[zero; LANES]; MAX_JOINTS];
        for (lane, q) in q.chunks_exact(self.joints).enumerate() {
            for (values, segment) in values.iter_mut().zip(&self.segments) {
                values[lane] = q[segment.joint];
            }
        }
        // 1 in the lanes of invalid rows.
        let mut invalid = [zero; LANES];
        let mut note = |values: &Lanes<R>| {
            invalid = from_fn(|l| if values[l].abs() <= most { invalid[l] } else { one });
        };
        let mut frames = Frames::all(&self.first);
        for (segment, values) in self.segments.iter().zip(&mut values) {
            note(values);
            if let Some([multiplier, offset]) = segment.mimic {
                *values = values.map(|value| multiplier * value + offset);
                note(values);
            }
            frames.pass(segment, values);
        }
        let mut columns = [[zero; LANES]; 7];
        for lane in 0..LANES {
            let pose = pose_of(&frames.get(lane));
            for (column, value) in columns.iter_mut().zip(pose) {
                column[lane] = value;
            }
        }
        for (lane, pose) in poses.iter_mut().enumerate() {
            *pose = match invalid[lane] == zero {
                true => columns.map(|column| column[lane]),
                false => [R::from_f64(f64::NAN); 7],
            };
        }
        invalid.iter().filter(|&&invalid| invalid != zero).count()
    }
}

impl<R: Real> Frames<R> {
    /// Makes the same frame for all lanes.
    #[inline(always)]
    fn all(frame: &RigidTransform<R>) -> Self {
        Self {
            rotation: frame.rotation.map(|row| row.map(|x| [x; LANES])),
            translation: frame.translation.map(|x| [x; LANES]),
        }
    }

    /// Moves the frames along or about a segment's axis by `values`, and then to the axis of the next segment.
    #[inline(always)]
    fn pass(&mut self, segment: &Segment<R>, values: &Lanes<R>) {
        if segment.slides {
            for (lane, &value) in values.iter().enumerate() {
                self.set(lane, &slid(&self.get(lane), value).compose(&segment.next));
            }
            return;
        }
        let (mut sines, mut cosines) = ([R::default(); LANES], [R::default(); LANES]);
        for lane in 0..LANES {
            (sines[lane], cosines[lane]) = sin_cos(values[lane]);
        }
        // Computes `turned` and `compose` for one row of the frames at a time: its numbers fit the registers.
        let [f0, f1, f2] = segment.next.rotation;
        let [t0, t1, t2] = segment.next.translation;
        for i in 0..3 {
            let ([x, y, z], t) = (self.rotation[i], self.translation[i]);
            let u: Lanes<R> = from_fn(|l| x[l] * cosines[l] + y[l] * sines[l]);
            let v: Lanes<R> = from_fn(|l| y[l] * cosines[l] - x[l] * sines[l]);
            for j in 0..3 {
                self.rotation[i][j] = from_fn(|l| (u[l] * f0[j] + v[l] * f1[j]) + z[l] * f2[j]);
            }
            self.translation[i] = from_fn(|l| ((u[l] * t0 + v[l] * t1) + z[l] * t2) + t[l]);
        }
    }

    #[inline(always)]
    fn get(&self, lane: usize) -> RigidTransform<R> {
        RigidTransform {
            rotation: from_fn(|i| from_fn(|j| self.rotation[i][j][lane])),
            translation: from_fn(|i| self.translation[i][lane]),
        }
    }

    #[inline(always)]
    fn set(&mut self, lane: usize, frame: &RigidTransform<R>) {
        for i in 0..3 {
            for j in 0..3 {
                self.rotation[i][j][lane] = frame.rotation[i][j];
            }
            self.translation[i][lane] = frame.translation[i];
        }
    }
}
