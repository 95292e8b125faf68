//! [`PoseTrack`]: the samples of a stream of poses, and the pose at any time between them.

use super::PoseConfig;
use crate::ConfigError;
use robocache_geometry::RigidTransform;
use robocache_geometry::quaternion::{Quaternion, conjugate, from_rotvec, product, to_rotvec};
use robocache_geometry::vector::norm;
use robocache_time::{is_stamp_in_range, ms_to_ns};
use std::collections::VecDeque;

/// Number of values of a pose: a position x, y, z and a quaternion x, y, z, w.
pub(super) const POSE_VALUES: usize = 7;
/// Greatest number of samples that a track keeps: one minute at 1 kHz. Past it, the oldest are dropped.
const MAX_SAMPLES: usize = 60_000;
/// Norms with which a quaternion is accepted. It is then normalized.
const NORMS: std::ops::RangeInclusive<f64> = 1e-6..=1e6;
/// Greatest magnitude of a coordinate of a position, m.
const MAX_DISTANCE: f64 = 1e8;

/// Poses of a moving frame over time, from the samples of a stream.
#[derive(Debug)]
pub struct PoseTrack {
    max_gap: Option<i64>,
    extrapolate: i64,
    reset: i64,
    /// Samples in the order of their times; no two have the same time.
    samples: VecDeque<Sample>,
    /// Time before which samples are late, ns: poses before it have been used. `i64::MIN` if none has.
    unused_from: i64,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    time_ns: i64,
    position: [f64; 3],
    rotation: Quaternion<f64>,
}

/// Result of adding a sample to a [`PoseTrack`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PushedPose {
    /// The sample is kept.
    Kept,
    /// The sample is kept, but is late: poses at its time have been used already.
    Late,
    /// The sample is dropped: a newer one serves all later poses, or it is from before the clock was set back.
    Outdated,
    /// The sample is dropped: the track has a sample of the same time.
    Again,
    /// The sample is dropped: its time, ns, is out of the range of stamps.
    BadStamp(i64),
    /// The sample is kept, and all earlier ones are dropped: its time is more than `reset_ms` before the newest, so the clock
    /// was set back.
    Jumped,
    /// The sample is dropped: the value at this index is not finite, or is a coordinate beyond 1e8 m.
    BadValue(usize, f64),
    /// The sample is dropped: the norm of its quaternion, given here, is not within 1e-6 to 1e6.
    BadNorm(f64),
}

/// Pose at a time: interpolated between two samples, or that of the newest one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoseAt {
    /// Transform from the moving frame to its parent frame.
    pub pose: RigidTransform<f64>,
    /// Age of the newest sample at or before the time of the pose, ns.
    pub age_ns: i64,
    /// True if the time is after the newest sample, whose pose is used unchanged.
    pub is_extrapolated: bool,
}

/// Reason why there is no pose at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPose {
    /// The track has no sample.
    #[error("no pose has come yet")]
    Empty,
    /// The time is before the oldest sample, by this much, ns.
    #[error("the first pose is {:.3} s later", robocache_time::ns_to_s(*.0))]
    Before(i64),
    /// The time between the samples before and after it, given here, ns, is longer than `max_gap_ms`.
    #[error("the poses around it are {:.3} s apart (`max_gap_ms`)", robocache_time::ns_to_s(*.0))]
    Gap(i64),
    /// The time is after the newest sample, by this much, ns, which is more than `extrapolate_ms`.
    #[error("the newest pose is {:.3} s older (`extrapolate_ms`)", robocache_time::ns_to_s(*.0))]
    After(i64),
}

impl PoseTrack {
    /// Creates a track without samples.
    ///
    /// # Errors
    /// [`ConfigError`] names the first invalid key of `config`, its value and the allowed values.
    pub fn new(config: &PoseConfig) -> Result<Self, ConfigError> {
        config.validate("poses")?;
        Ok(Self {
            max_gap: config.max_gap_ms.map(ms_to_ns),
            extrapolate: ms_to_ns(config.extrapolate_ms),
            reset: ms_to_ns(config.reset_ms),
            samples: VecDeque::new(),
            unused_from: i64::MIN,
        })
    }

    /// Adds a sample: a position, m, and a quaternion x, y, z, w, which is divided by its norm. If the track has a sample of
    /// the same time, the new one is dropped.
    pub fn push(&mut self, time_ns: i64, position: [f64; 3], rotation: [f64; 4]) -> PushedPose {
        if !is_stamp_in_range(time_ns) {
            return PushedPose::BadStamp(time_ns);
        }
        let values = position.iter().chain(&rotation);
        let is_bad = |(i, value): &(usize, f64)| !value.is_finite() || *i < 3 && value.abs() > MAX_DISTANCE;
        if let Some((i, value)) = values.copied().enumerate().find(is_bad) {
            return PushedPose::BadValue(i, value);
        }
        let norm = norm(rotation);
        if !NORMS.contains(&norm) {
            return PushedPose::BadNorm(norm);
        }
        let sample = Sample {
            time_ns,
            position,
            rotation: rotation.map(|component| component / norm),
        };
        if self
            .newest_ns()
            .is_some_and(|newest| newest.saturating_sub(time_ns) > self.reset)
        {
            self.samples.clear();
            self.samples.push_back(sample);
            self.unused_from = i64::MIN;
            return PushedPose::Jumped;
        }
        let is_late = time_ns < self.unused_from;
        // The oldest sample serves all later poses, if none is between it and them.
        let serves = |oldest: &Sample| time_ns < oldest.time_ns && oldest.time_ns <= self.unused_from;
        if self.samples.front().is_some_and(serves) {
            return PushedPose::Outdated;
        }
        match self.samples.binary_search_by_key(&time_ns, |sample| sample.time_ns) {
            Ok(_) => return PushedPose::Again,
            Err(i) => self.samples.insert(i, sample),
        }
        if self.samples.len() > MAX_SAMPLES {
            self.samples.pop_front();
        }
        if is_late { PushedPose::Late } else { PushedPose::Kept }
    }

    /// Returns the time of the newest sample, ns; `None` without samples.
    pub fn newest_ns(&self) -> Option<i64> {
        self.samples.back().map(|sample| sample.time_ns)
    }

    /// Returns the pose at a time, with its position relative to `anchor`, a point in the parent frame. Between two samples,
    /// positions are interpolated linearly, and rotations by slerp, the shorter way.
    ///
    /// The anchor is subtracted from the samples' positions before they are interpolated. So a pose near the anchor has the
    /// same bits wherever the anchor is.
    ///
    /// # Errors
    /// [`NoPose`]: the reason why there is no pose at this time.
    pub fn at(&self, time_ns: i64, anchor: [f64; 3]) -> Result<PoseAt, NoPose> {
        let after = self.samples.partition_point(|sample| sample.time_ns <= time_ns);
        let next = self.samples.get(after);
        let Some(before) = after.checked_sub(1).map(|before| self.samples[before]) else {
            return Err(next.map_or(NoPose::Empty, |next| {
                NoPose::Before(next.time_ns.saturating_sub(time_ns))
            }));
        };
        let age_ns = time_ns.saturating_sub(before.time_ns);
        let from = |sample: &Sample| std::array::from_fn(|axis| sample.position[axis] - anchor[axis]);
        let here: [f64; 3] = from(&before);
        let held = |is_extrapolated| PoseAt {
            pose: RigidTransform::new(before.rotation, here),
            age_ns,
            is_extrapolated,
        };
        if age_ns == 0 {
            return Ok(held(false));
        }
        let Some(next) = next else {
            return match age_ns <= self.extrapolate {
                true => Ok(held(true)),
                false => Err(NoPose::After(age_ns)),
            };
        };
        let gap = next.time_ns.saturating_sub(before.time_ns);
        if self.max_gap.is_some_and(|max| gap > max) {
            return Err(NoPose::Gap(gap));
        }
        let part = age_ns as f64 / gap as f64;
        let there: [f64; 3] = from(next);
        let position = std::array::from_fn(|axis| here[axis] + part * (there[axis] - here[axis]));
        let turn: [f64; 3] = to_rotvec(product(conjugate(before.rotation), next.rotation));
        let rotation = product(before.rotation, from_rotvec(turn.map(|component| part * component)));
        Ok(PoseAt {
            pose: RigidTransform::new(rotation, position),
            age_ns,
            is_extrapolated: false,
        })
    }

    /// Restarts after a clock was set back: a stamp after `until` is from before the step. Drops all samples if one has such a
    /// stamp. No sample counts as late until poses are used again.
    pub(crate) fn jump(&mut self, until: i64) {
        if self.newest_ns().is_some_and(|newest| newest > until) {
            self.samples.clear();
        }
        self.unused_from = i64::MIN;
    }

    /// Drops the samples that no pose at or after `time_ns` needs. New samples from before that time are late.
    pub fn forget_before(&mut self, time_ns: i64) {
        self.unused_from = self.unused_from.max(time_ns);
        while self.samples.get(1).is_some_and(|second| second.time_ns <= time_ns) {
            self.samples.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::{FRAC_PI_2, FRAC_PI_4};

    const NONE: [f64; 4] = [0.0, 0.0, 0.0, 1.0];

    fn track(config: PoseConfig) -> PoseTrack {
        let input = "base".into();
        PoseTrack::new(&PoseConfig { input, ..config }).unwrap()
    }

    /// Returns the quaternion x, y, z, w of a rotation about z; `angle` in radians.
    fn about_z(angle: f64) -> [f64; 4] {
        [0.0, 0.0, (angle / 2.0).sin(), (angle / 2.0).cos()]
    }

    #[test]
    fn a_pose_between_two_samples() {
        let mut track = track(PoseConfig::default());
        track.push(0, [1.0, 2.0, 3.0], NONE);
        // The quaternion is of norm 2, and stands for the same rotation as its opposite.
        track.push(
            100,
            [2.0, 2.0, 1.0],
            about_z(FRAC_PI_2).map(|component| -2.0 * component),
        );
        let at = track.at(50, [1.0, 0.0, 0.0]).unwrap();
        assert_eq!((at.age_ns, at.is_extrapolated), (50, false));
        assert_eq!(at.pose.translation, [0.5, 2.0, 2.0]);
        let [[cos, minus_sin, _], ..] = at.pose.rotation;
        assert!((cos - FRAC_PI_4.cos()).abs() < 1e-15 && (minus_sin + FRAC_PI_4.sin()).abs() < 1e-15);
        assert_eq!(track.at(100, [0.0; 3]).unwrap().pose.translation, [2.0, 2.0, 1.0]);
    }

    #[test]
    fn a_frame_that_does_not_turn_keeps_its_bits() {
        let mut track = track(PoseConfig::default());
        let rotation = [0.3, -0.5, 0.1, 0.7];
        for time in [0, 7, 50] {
            track.push(time, [0.1, 0.2, 0.3], rotation);
        }
        let first = track.at(0, [0.0; 3]).unwrap().pose;
        for time in 1..=50 {
            assert_eq!(track.at(time, [0.0; 3]).unwrap().pose, first);
        }
    }

    #[test]
    fn times_without_a_pose() {
        let mut track = track(PoseConfig {
            max_gap_ms: Some(1e-3),
            extrapolate_ms: 2e-5,
            ..PoseConfig::default()
        });
        assert_eq!(track.at(0, [0.0; 3]), Err(NoPose::Empty));
        track.push(1000, [0.0; 3], NONE);
        track.push(2001, [0.0; 3], NONE);
        assert_eq!(track.at(999, [0.0; 3]), Err(NoPose::Before(1)));
        assert_eq!(track.at(1500, [0.0; 3]), Err(NoPose::Gap(1001)));
        assert_eq!(track.at(2022, [0.0; 3]), Err(NoPose::After(21)));
        assert!(track.at(2021, [0.0; 3]).unwrap().is_extrapolated);
    }

    #[test]
    fn samples_that_come_late_or_again_or_can_t_be() {
        let mut track = track(PoseConfig {
            reset_ms: 2e-3,
            ..PoseConfig::default()
        });
        assert_eq!(track.push(2000, [1.0, 0.0, 0.0], NONE), PushedPose::Kept);
        assert_eq!(track.push(1000, [0.0; 3], NONE), PushedPose::Kept);
        assert_eq!(track.push(2000, [5.0, 0.0, 0.0], NONE), PushedPose::Again);
        assert_eq!(track.at(1500, [0.0; 3]).unwrap().pose.translation, [0.5, 0.0, 0.0]);
        track.forget_before(1200);
        assert_eq!(track.push(999, [5.0; 3], NONE), PushedPose::Outdated);
        assert_eq!(track.at(1200, [0.0; 3]).unwrap().pose.translation, [0.2, 0.0, 0.0]);
        // A pose that comes too late for those of its time is not too late for later ones.
        assert_eq!(track.push(1100, [0.1, 0.0, 0.0], NONE), PushedPose::Late);
        assert_eq!(track.at(1550, [0.0; 3]).unwrap().pose.translation, [0.55, 0.0, 0.0]);
        assert_eq!(track.push(-1, [0.0; 3], NONE), PushedPose::Jumped);
        assert_eq!(track.newest_ns(), Some(-1));
        assert_eq!(track.push(1000, [0.0, 1e9, 0.0], NONE), PushedPose::BadValue(1, 1e9));
        assert_eq!(track.push(i64::MAX, [0.0; 3], NONE), PushedPose::BadStamp(i64::MAX));
        assert_eq!(track.push(1000, [0.0; 3], [0.0; 4]), PushedPose::BadNorm(0.0));
        let PushedPose::BadValue(6, value) = track.push(1000, [0.0; 3], [0.0, 0.0, 1.0, f64::NAN]) else {
            panic!("a NaN is a pose");
        };
        assert!(value.is_nan());
    }

    #[test]
    fn the_first_pose_may_be_late() {
        let mut track = track(PoseConfig {
            extrapolate_ms: 1.0,
            ..PoseConfig::default()
        });
        track.forget_before(1000);
        assert_eq!(track.push(900, [1.0, 0.0, 0.0], NONE), PushedPose::Late);
        assert_eq!(track.push(950, [2.0, 0.0, 0.0], NONE), PushedPose::Late);
        assert_eq!(track.at(1200, [0.0; 3]).unwrap().pose.translation, [2.0, 0.0, 0.0]);
        track.forget_before(1200);
        assert_eq!(track.push(940, [5.0; 3], NONE), PushedPose::Outdated);
        assert_eq!(track.push(1300, [3.0, 0.0, 0.0], NONE), PushedPose::Kept);
        // None is at 1200 or before, so that one that comes late is still needed.
        track.samples.pop_front();
        assert_eq!(track.push(1100, [1.0, 0.0, 0.0], NONE), PushedPose::Late);
        assert_eq!(track.at(1200, [0.0; 3]).unwrap().pose.translation, [2.0, 0.0, 0.0]);
    }

    #[test]
    fn a_world_that_is_moved_changes_no_bit() {
        let places = |shift: f64| {
            let mut track = track(PoseConfig::default());
            let anchor = [0.5 + shift, 0.0, -shift];
            for (i, time) in [0, 10, 33].into_iter().enumerate() {
                let x = 0.125 * i as f64;
                track.push(time, [x + shift, x * x, x - shift], about_z(x));
            }
            (0..33)
                .map(|time| track.at(time, anchor).unwrap().pose)
                .collect::<Vec<_>>()
        };
        assert_eq!(places(0.0), places(131_072.0));
    }
}
