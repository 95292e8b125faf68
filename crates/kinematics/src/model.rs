//! Forward kinematics of a chain in one float type. The bits of a result depend on nothing but the chain, the type and the row
//! of joints.

use crate::chain::{Chain, JointKind, MAX_JOINTS, Mimic};
use robocache_geometry::polynomial::{MAX_ANGLE, sin_cos};
use robocache_geometry::{Real, RigidTransform};

/// Position, metres, and unit quaternion of a frame: x y z qx qy qz qw, with qw >= 0.
pub type Pose<R> = [R; 7];

/// Model of a chain in one float type, which computes poses and Jacobians.
///
/// A row has a value for each of [`Chain::joints`], radians or metres. A value that is not finite, or larger than 8,192 in
/// magnitude, makes its row invalid.
#[derive(Clone, Debug)]
pub struct Model<R> {
    pub(crate) joints: usize,
    pub(crate) segments: Vec<Segment<R>>,
    pub(crate) first: RigidTransform<R>,
    /// True if each segment is moved by the joint of the same index, and no segment is a mimic.
    pub(crate) is_direct: bool,
    links: Vec<Link<R>>,
}

/// A moving joint of the chain, with its constants in the float type.
#[derive(Clone, Debug)]
pub struct Segment<R> {
    /// Index of the joint that gives the segment's value, in a row of joints.
    pub joint: usize,
    /// True if the joint slides along its axis, false if it turns about the axis.
    pub slides: bool,
    /// True if no earlier segment is moved by the same joint.
    pub is_first: bool,
    /// Multiplier and offset, radians or metres, of a segment that mimics a joint; `None` if the segment is the joint itself.
    pub mimic: Option<[R; 2]>,
    /// Frame of the next segment's axis, or of the tip, relative to the frame that this segment moves.
    pub next: RigidTransform<R>,
}

/// A link of the chain, with its frame in the float type.
#[derive(Clone, Debug)]
pub struct Link<R> {
    /// Number of segments between the base and the link.
    pub segments: usize,
    /// Frame of the link, relative to the frame that the last segment above the link moves, or to the base if no segment is
    /// above it.
    pub frame: RigidTransform<R>,
}

impl<R: Real> Model<R> {
    /// Makes the model of a chain. Each constant is rounded once to the float type.
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

    /// Number of joints, and so of values in a row.
    pub fn joints(&self) -> usize {
        self.joints
    }

    /// Moving joints from the base to the tip, including those that mimic others.
    pub fn segments(&self) -> &[Segment<R>] {
        &self.segments
    }

    /// Frame of the first segment's axis, in the frame of the base.
    pub fn first(&self) -> &RigidTransform<R> {
        &self.first
    }

    /// True if each segment is moved by the joint of the same index, and no segment is a mimic.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Links from the base to the tip with their frames, in the order of [`Chain::links`].
    pub fn link_parts(&self) -> &[Link<R>] {
        &self.links
    }

    /// Number of links from the base to the tip.
    pub(crate) fn link_count(&self) -> usize {
        self.links.len()
    }

    /// True if a row of joint values is valid: all values, and the values that mimics make of them, are finite and at most
    /// 8,192 in magnitude.
    ///
    /// # Panics
    /// If `q` does not have a value for each joint.
    pub fn takes(&self, q: &[R]) -> bool {
        self.turns(q).is_valid
    }

    /// Computes the pose of the tip for a row of joint values; `None` if the row is not [valid](Self::takes).
    ///
    /// # Panics
    /// If `q` does not have a value for each joint.
    // Inlined: a call returns its result in memory, which takes a fifth longer.
    #[inline(always)]
    pub fn pose(&self, q: &[R]) -> Option<Pose<R>> {
        let turns = self.turns(q);
        turns.is_valid.then(|| pose_of(&self.tip(&turns, |_, _, _| ())))
    }

    /// Writes the frame of each of [`Chain::links`], in the frame of the base. Returns true if `q` is [valid](Self::takes);
    /// otherwise returns false, and writes nothing.
    ///
    /// # Panics
    /// If `q` does not have a value for each joint, or `frames` a frame for each link.
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

    /// Computes the frame of the tip. Calls `visit` with each segment's index, the frame of its axis, and this frame moved by
    /// the segment's value.
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

    /// Computes the value of each segment, its sine and its cosine. Several sines and cosines are computed at a time, with
    /// vector instructions.
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

/// Values of all segments for a row of joint values, with their sines and cosines.
pub(crate) struct Turns<R> {
    /// True if each value is finite and at most 8,192 in magnitude.
    pub is_valid: bool,
    values: Row<R>,
    sines: Row<R>,
    cosines: Row<R>,
}

/// Number of sines that are computed at a time: as many as fit in a vector of 16 bytes, which any CPU has.
const fn vector_lanes<R>() -> usize {
    16 / size_of::<R>()
}

/// Moves a frame along its z axis by `q`: each coordinate becomes `t + z * q`.
#[inline(always)]
pub(crate) fn slid<R: Real>(frame: &RigidTransform<R>, q: R) -> RigidTransform<R> {
    RigidTransform {
        rotation: frame.rotation,
        translation: std::array::from_fn(|i| frame.translation[i] + frame.rotation[i][2] * q),
    }
}

/// Turns a frame about its z axis by the angle with this sine and cosine. Its columns x and y become
/// `x cos + y sin` and `y cos - x sin`.
#[inline(always)]
pub(crate) fn turned<R: Real>(frame: &RigidTransform<R>, sine: R, cosine: R) -> RigidTransform<R> {
    RigidTransform {
        rotation: frame
            .rotation
            .map(|[x, y, z]| [x * cosine + y * sine, y * cosine - x * sine, z]),
        translation: frame.translation,
    }
}

/// Converts a frame to a position and a quaternion.
#[inline(always)]
pub(crate) fn pose_of<R: Real>(frame: &RigidTransform<R>) -> Pose<R> {
    let [x, y, z] = frame.translation;
    let [qx, qy, qz, qw] = frame.quaternion();
    [x, y, z, qx, qy, qz, qw]
}

/// Values of all joints or segments; the values after the last one are 0.
pub(crate) type Row<R> = [R; MAX_JOINTS];
