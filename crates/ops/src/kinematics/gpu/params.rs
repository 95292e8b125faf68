//! Parameters of the kernels of `kernels/kinematics.cu`, and the choice among these kernels. A struct has the same
//! layout in both languages.

use robocache_device::gpu::{DevicePtr, Params};
use robocache_geometry::{Real, RigidTransform};
use robocache_kinematics::{MAX_JOINTS, Model, parts};

/// Flag of a segment whose joint slides along its axis.
const SLIDES: u32 = 1;
/// Flag of a segment that mimics a joint.
const FOLLOWS: u32 = 2;
/// Flag of the first segment that is moved by its joint.
const IS_FIRST: u32 = 4;

/// Rotation and translation of a frame, laid out as the kernels' `Frame`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Frame<R> {
    rotation: [R; 9],
    translation: [R; 3],
}

/// Moving joint of a chain, laid out as the kernels' `Segment`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Segment<R> {
    next: Frame<R>,
    multiplier: R,
    offset: R,
    joint: u32,
    flags: u32,
}

/// Moving joints of a chain, laid out as the kernels' `Chain`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Chain<R> {
    first: Frame<R>,
    segments: [Segment<R>; MAX_JOINTS],
    count: u32,
    joints: u32,
}

/// Link of a chain and index of its pose, laid out as the kernels' `Link`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Link<R> {
    frame: Frame<R>,
    segments: u32,
    place: u32,
}

/// Parameters of the kernels for poses, laid out as the kernels' `PosesParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct PosesParams<'a, R> {
    pub chain: Chain<R>,
    pub joints: DevicePtr<'a>,
    pub poses: DevicePtr<'a>,
    pub links: DevicePtr<'a>,
    pub rows: u64,
    pub link_count: u32,
    pub unused: u32,
}

// SAFETY: it has the fields of the kernels' struct of that name.
unsafe impl<R: Copy> Params for PosesParams<'_, R> {}

/// Parameters of the kernels for Jacobians, twists and manipulability, laid out as the kernels' `JacobiansParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct JacobiansParams<'a, R> {
    pub chain: Chain<R>,
    pub joints: DevicePtr<'a>,
    pub velocities: DevicePtr<'a>,
    pub out: DevicePtr<'a>,
    pub rows: u64,
    pub frame: u32,
    pub unused: u32,
}

// SAFETY: it has the fields of the kernels' struct of that name.
unsafe impl<R: Copy> Params for JacobiansParams<'_, R> {}

impl<R: Real> Frame<R> {
    fn new(frame: &RigidTransform<R>) -> Self {
        let mut rotation = [R::default(); 9];
        rotation.copy_from_slice(frame.rotation.as_flattened());
        Self {
            rotation,
            translation: frame.translation,
        }
    }
}

impl<R: Real> Segment<R> {
    fn new(segment: &parts::Segment<R>) -> Self {
        let [multiplier, offset] = segment.mimic.unwrap_or_default();
        let flag = |is_set, bit| if is_set { bit } else { 0 };
        Self {
            next: Frame::new(&segment.next),
            multiplier,
            offset,
            joint: segment.joint as u32,
            flags: flag(segment.slides, SLIDES)
                | flag(segment.mimic.is_some(), FOLLOWS)
                | flag(segment.is_first, IS_FIRST),
        }
    }
}

impl<R: Real> Chain<R> {
    pub(super) fn new(model: &Model<R>) -> Self {
        let unused = Segment {
            next: Frame::new(&RigidTransform::identity()),
            multiplier: R::default(),
            offset: R::default(),
            joint: 0,
            flags: 0,
        };
        let mut segments = [unused; MAX_JOINTS];
        for (to, from) in segments.iter_mut().zip(model.segments()) {
            *to = Segment::new(from);
        }
        Self {
            first: Frame::new(model.first()),
            segments,
            count: model.segments().len() as u32,
            joints: model.joints() as u32,
        }
    }

    pub(super) fn joints(&self) -> usize {
        self.joints as usize
    }
}

impl<R: Real> Link<R> {
    /// Creates the link whose pose has index `place` in a row of poses.
    pub(super) fn new(link: &parts::Link<R>, place: usize) -> Self {
        Self {
            frame: Frame::new(&link.frame),
            segments: link.segments as u32,
            place: place as u32,
        }
    }

    /// Number of segments (moving joints) between the base and the link.
    pub(super) fn segments(&self) -> u32 {
        self.segments
    }
}

/// Kind of a chain, which selects its kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Six joints that all turn, in the order of the chain and without mimics. These chains have kernels of their own.
    Six,
    /// Seven joints that all turn, in the order of the chain and without mimics.
    Seven,
    /// Any other chain.
    Any,
}

impl Form {
    pub(super) fn of<R: Real>(model: &Model<R>) -> Self {
        let is_plain = model.is_direct() && model.segments().iter().all(|segment| !segment.slides);
        match model.joints() {
            6 if is_plain => Self::Six,
            7 if is_plain => Self::Seven,
            _ => Self::Any,
        }
    }
}

/// The kernel with a name, for a float type.
macro_rules! kernel {
    ($R:ty, $name:expr) => {
        match <$R as robocache_device::Primitive>::DTYPE {
            robocache_device::Dtype::Float64 => {
                const { robocache_kernels::KINEMATICS.kernel(concat!("kinematics_", $name, "_f64")) }
            }
            _ => const { robocache_kernels::KINEMATICS.kernel(concat!("kinematics_", $name, "_f32")) },
        }
    };
}

/// The kernel with a name, for a float type and a form of chain.
macro_rules! kernel_for {
    ($R:ty, $form:expr, $name:literal, $any:literal) => {
        match $form {
            Form::Six => kernel!($R, concat!($name, "_6")),
            Form::Seven => kernel!($R, concat!($name, "_7")),
            Form::Any => kernel!($R, $any),
        }
    };
}
pub(super) use {kernel, kernel_for};

#[cfg(test)]
mod tests {
    use super::super::forward::{JACOBIANS_ANY_BLOCK, JACOBIANS_BLOCK, LINKS_AT_A_TIME, LINKS_BLOCK, POSES_BLOCK};
    use super::super::inverse::{
        Answers, GROUP, INVERSE_ANY_BLOCK, INVERSE_BLOCK, InverseParams, PathParams, Solver, select_code,
    };
    use super::*;
    use crate::layout::{Header, shared_constants, shared_structs};
    use robocache_kinematics::{Frame as JacobianFrame, Select};

    /// Lists the structs with numbers of a type: `in_type!(header, f32, "Frame<float>", ...)`.
    macro_rules! in_type {
        ($header:ident, $R:ty, $frame:literal, $segment:literal, $chain:literal, $link:literal, $poses:literal, $jacobians:literal,
         $solver:literal, $answers:literal, $inverse:literal, $path:literal) => {{
            type FrameOf = Frame<$R>;
            type SegmentOf = Segment<$R>;
            type ChainOf = Chain<$R>;
            type LinkOf = Link<$R>;
            type PosesOf<'a> = PosesParams<'a, $R>;
            type JacobiansOf<'a> = JacobiansParams<'a, $R>;
            type SolverOf<'a> = Solver<'a, $R>;
            type InverseOf<'a> = InverseParams<'a, $R>;
            type PathOf<'a> = PathParams<'a, $R>;
            shared_structs! { $header:
                FrameOf = $frame { rotation, translation }
                SegmentOf = $segment { next, multiplier, offset, joint, flags }
                ChainOf = $chain { first, segments, count, joints }
                LinkOf = $link { frame, segments, place }
                PosesOf = $poses { chain, joints, poses, links, rows, link_count, unused }
                JacobiansOf = $jacobians { chain, joints, velocities, out, rows, frame, unused }
                SolverOf = $solver {
                    chain, lower, upper, weights, position, rotation, floor, gain, max_joint_step, posture, most_pull, rest, turns,
                    holds, has_weights, max_iterations, select, starts, table,
                }
                Answers = $answers { joints, position_error, rotation_error, valid, start, iterations }
                InverseOf = $inverse {
                    solver, targets, starts, answers, list, list_count, left, left_count, least, next, targets_count,
                    start_stride, from, to, width, unused,
                }
                PathOf = $path { solver, targets, starts, answers, branches, length, trajectories, start_stride }
            }
        }};
    }

    #[test]
    fn the_layout_is_written_for_the_kernels() {
        let mut header = Header::new("kinematics");
        in_type!(
            header,
            f32,
            "Frame<float>",
            "Segment<float>",
            "Chain<float>",
            "Link<float>",
            "PosesParams<float>",
            "JacobiansParams<float>",
            "Solver<float>",
            "Answers<float>",
            "InverseParams<float>",
            "PathParams<float>"
        );
        in_type!(
            header,
            f64,
            "Frame<double>",
            "Segment<double>",
            "Chain<double>",
            "Link<double>",
            "PosesParams<double>",
            "JacobiansParams<double>",
            "Solver<double>",
            "Answers<double>",
            "InverseParams<double>",
            "PathParams<double>"
        );
        let frames = [JacobianFrame::Base, JacobianFrame::Tool, JacobianFrame::Spatial];
        header.codes(
            "JacobianFrame",
            &frames.map(|frame| (format!("{frame:?}"), frame as u32)),
        );
        let selects = [Select::First, Select::Nearest];
        header.codes(
            "Select",
            &selects.map(|select| (format!("{select:?}"), select_code(select))),
        );
        shared_constants! { header:
            POSES_BLOCK, LINKS_BLOCK, LINKS_AT_A_TIME, JACOBIANS_BLOCK, JACOBIANS_ANY_BLOCK, INVERSE_BLOCK, INVERSE_ANY_BLOCK,
            GROUP, SLIDES, FOLLOWS, IS_FIRST,
            MAX_JOINTS = "MOST_JOINTS",
        }
        header.write();
    }
}
