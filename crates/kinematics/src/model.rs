//! A chain in one float type.

use crate::chain::{Chain, JointKind, MAX_JOINTS, Mimic};
use robocache_geometry::polynomial::{MAX_ANGLE, sin_cos};
use robocache_geometry::{Real, RigidTransform};

/// Position, metres, and unit quaternion of a frame: x y z qx qy qz qw, with qw >= 0.
pub type Pose<R> = [R; 7];

/// A chain in one float type, which computes poses and Jacobians.
///
/// A row has a value for each of [`Chain::joints`], radians or metres. A value that is not finite, or larger than 8,192, makes its
/// row invalid.
#[derive(Clone, Debug)]
pub struct Model<R> {
    pub(crate) joints: usize,
    pub(crate) segments: Vec<Segment<R>>,
    pub(crate) first: RigidTransform<R>,
    /// True if each segment has the joint of the same index, and none is a mimic.
    pub(crate) is_direct: bool,
    links: Vec<Link<R>>,
}

/// A moving joint of the chain.
#[derive(Clone, Debug)]
pub struct Segment<R> {
    /// Index of the joint that gives the segment's value.
    pub joint: usize,
    /// True if the joint slides along its axis, false if it turns about the axis.
    pub slides: bool,
    /// True if no segment before has the same joint.
    pub is_first: bool,
    /// The multiplier and the offset of a mimic.
    pub mimic: Option<[R; 2]>,
    /// The frame of the next segment's axis, or of the tip, in the moved frame of this one.
    pub next: RigidTransform<R>,
}

/// A link of the chain.
#[derive(Clone, Debug)]
pub struct Link<R> {
    /// Number of segments above it.
    pub segments: usize,
    /// Frame of the link in the moved frame of the last segment above it, or in the base's frame.
    pub frame: RigidTransform<R>,
}

impl<R: Real> Model<R> {
    /// Rounds each constant of a chain to the type, once.
    pub fn new(chain: &Chain) -> Self {
        let frames = chain.segments.iter().map(|segment| &segment.frame);
        let after = frames.clone().skip(1).chain([&chain.tip]);
        let segment = |(i, next): (usize, &RigidTransform<f64>)| {
            let segment = &chain.segments[i];
            let round = |Mimic { multiplier, offset }| [R::from_f64(multiplier), R::from_f64(offset)];
            Segment {
                joint: segment.joint,
                slides: segment.kind == JointKind::Prismatic,
                is_first: chain.segments[..i].iter().all(|before| before.joint != segment.joint),
                mimic: segment.mimic.map(round),
                next: next.rounded(),
            }
        };
        let link = |link: &crate::chain::Link| Link {
            segments: link.segments,
            frame: link.frame.rounded(),
        };
        Self {
            joints: chain.joints().len(),
            segments: after.enumerate().map(segment).collect(),
            first: chain.segments[0].frame.rounded(),
            is_direct: (chain.segments.iter().enumerate())
                .all(|(i, segment)| segment.joint == i && segment.mimic.is_none()),
            links: chain.links.iter().map(link).collect(),
        }
    }

    /// Number of values of a row.
    pub fn joints(&self) -> usize {
        self.joints
    }

    /// The moving joints from the base to the tip.
    pub fn segments(&self) -> &[Segment<R>] {
        &self.segments
    }

    /// The frame of the first segment's axis in that of the base.
    pub fn first(&self) -> &RigidTransform<R> {
        &self.first
    }

    /// True if each segment has the joint of the same index, and none is a mimic.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// The links from the base to the tip, as [`Chain::links`].
    pub fn link_parts(&self) -> &[Link<R>] {
        &self.links
    }

    /// Number of links from the base to the tip.
    pub(crate) fn link_count(&self) -> usize {
        self.links.len()
    }

    /// True if a row is valid: all values, and the values that mimics make of them, are finite and at most 8,192.
    ///
    /// # Panics
    /// If `q` does not have a value for each joint.
    pub fn takes(&self, q: &[R]) -> bool {
        self.turns(q).is_valid
    }

    /// The pose of the tip; `None` for an invalid row.
    ///
    /// # Panics
    /// If `q` does not have a value for each joint.
    // Inlined: a call returns its result in memory, which takes a fifth longer.
    #[inline(always)]
    pub fn pose(&self, q: &[R]) -> Option<Pose<R>> {
        let turns = self.turns(q);
        turns.is_valid.then(|| pose_of(&self.tip(&turns, |_, _, _| ())))
    }

    /// Writes the frame of each of [`Chain::links`] in that of the base. Returns false, and writes nothing, for an invalid row.
    ///
    /// # Panics
    /// If `q` does not have a value for each joint, or `frames` not a place for each link.
    pub fn links(&self, q: &[R], frames: &mut [RigidTransform<R>]) -> bool {
        assert_eq!(frames.len(), self.links.len(), "a frame for each link");
        let turns = self.turns(q);
        if !turns.is_valid {
            return false;
        }
        let mut links = self.links.iter().zip(frames).peekable();
        while let Some((link, frame)) = links.next_if(|(link, _)| link.segments == 0) {
            *frame = link.frame;
        }
        self.tip(&turns, |segment, _, moved| {
            while let Some((link, frame)) = links.next_if(|(link, _)| link.segments == segment + 1) {
                *frame = moved.compose(&link.frame);
            }
        });
        true
    }

    /// The frame of the tip. Calls `visit` with each segment's index, the frame of its axis, and the same frame moved.
    #[inline(always)]
    pub(crate) fn tip(
        &self,
        turns: &Turns<R>,
        mut visit: impl FnMut(usize, &RigidTransform<R>, &RigidTransform<R>),
    ) -> RigidTransform<R> {
        let mut axis = self.first;
        for (i, segment) in self.segments.iter().enumerate() {
            let moved = match segment.slides {
                true => slid(&axis, turns.values[i]),
                false => turned(&axis, turns.sines[i], turns.cosines[i]),
            };
            visit(i, &axis, &moved);
            axis = moved.compose(&segment.next);
        }
        axis
    }

    /// The value of each segment, and its sine and cosine, which are computed side by side, in vectors.
    ///
    /// # Panics
    /// If `q` does not have a value for each joint.
    #[inline(always)]
    pub(crate) fn turns(&self, q: &[R]) -> Turns<R> {
        assert_eq!(q.len(), self.joints, "a value for each joint");
        let most = R::from_f64(MAX_ANGLE);
        let mut turns = Turns {
            is_valid: true,
            values: Row::default(),
            sines: Row::default(),
            cosines: Row::default(),
        };
        for (value, segment) in turns.values.iter_mut().zip(&self.segments) {
            *value = q[segment.joint];
            if let Some([multiplier, offset]) = segment.mimic {
                turns.is_valid &= value.abs() <= most;
                *value = multiplier * *value + offset;
            }
        }
        let lanes = vector_lanes::<R>();
        let values = turns.values.chunks_exact(lanes);
        let turned = turns
            .sines
            .chunks_exact_mut(lanes)
            .zip(turns.cosines.chunks_exact_mut(lanes));
        let vectors = self.segments.len().div_ceil(lanes);
        for (values, (sines, cosines)) in values.zip(turned).take(vectors) {
            for i in 0..lanes {
                turns.is_valid &= values[i].abs() <= most;
                (sines[i], cosines[i]) = sin_cos(values[i]);
            }
        }
        turns
    }
}

/// The values of all segments, and their sines and cosines.
pub(crate) struct Turns<R> {
    /// True if each value is finite and small enough.
    pub is_valid: bool,
    values: Row<R>,
    sines: Row<R>,
    cosines: Row<R>,
}

/// Number of sines that are computed side by side: a vector of 16 bytes, which any CPU has.
const fn vector_lanes<R>() -> usize {
    16 / size_of::<R>()
}

/// A frame moved along its z axis: each coordinate is `t + z * q`.
#[inline(always)]
pub(crate) fn slid<R: Real>(frame: &RigidTransform<R>, q: R) -> RigidTransform<R> {
    RigidTransform {
        rotation: frame.rotation,
        translation: std::array::from_fn(|i| frame.translation[i] + frame.rotation[i][2] * q),
    }
}

/// A frame turned about its z axis by an angle of this sine and cosine: the columns are `x cos + y sin` and `y cos - x sin`.
#[inline(always)]
pub(crate) fn turned<R: Real>(frame: &RigidTransform<R>, sine: R, cosine: R) -> RigidTransform<R> {
    RigidTransform {
        rotation: frame
            .rotation
            .map(|[x, y, z]| [x * cosine + y * sine, y * cosine - x * sine, z]),
        translation: frame.translation,
    }
}

/// The pose of a frame.
#[inline(always)]
pub(crate) fn pose_of<R: Real>(frame: &RigidTransform<R>) -> Pose<R> {
    let [x, y, z] = frame.translation;
    let [qx, qy, qz, qw] = frame.quaternion();
    [x, y, z, qx, qy, qz, qw]
}

/// A value for each joint or segment, and zeros behind them.
pub(crate) type Row<R> = [R; MAX_JOINTS];
