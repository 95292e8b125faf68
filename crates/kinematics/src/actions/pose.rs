//! Meanings of actions that are poses: absolute, relative to a reference, or motions from step to step. Encoding turns poses
//! into actions, and decoding turns the actions back into the same poses, up to rounding.

use robocache_geometry::RigidTransform;

/// Meaning of an action that is a pose, or a motion from one pose to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoseKind {
    /// The pose itself, in the frame of the base.
    Absolute,
    /// The pose in the frame of the reference, the pose before the first step, as in UMI.
    Relative,
    /// Motion from the pose of the previous step. The first step's motion starts at the reference, the pose before the
    /// first step.
    Delta(DeltaFrame),
}

/// Axes in which a motion from one pose to the next is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeltaFrame {
    /// Axes of the pose before the motion: the motion is multiplied from the right.
    #[default]
    Tool,
    /// Axes of the base: the translation is added, and the rotation multiplied from the left.
    Base,
}

type Transform = RigidTransform<f64>;

impl PoseKind {
    /// Turns a chunk of actions into absolute poses, in place, one step after the other. `reference` is the pose before the
    /// first step.
    pub fn decode(self, reference: &Transform, steps: &mut [Transform]) {
        let mut before = *reference;
        for step in steps {
            *step = match self {
                Self::Absolute => *step,
                Self::Relative => reference.compose(step),
                Self::Delta(DeltaFrame::Tool) => before.compose(step),
                Self::Delta(DeltaFrame::Base) => Transform {
                    rotation: turn(step).compose(&turn(&before)).rotation,
                    translation: std::array::from_fn(|i| before.translation[i] + step.translation[i]),
                },
            };
            before = *step;
        }
    }

    /// Turns a chunk of absolute poses into actions, in place. `reference` is the pose before the first step.
    pub fn encode(self, reference: &Transform, steps: &mut [Transform]) {
        let mut before = *reference;
        for step in steps {
            let pose = *step;
            *step = match self {
                Self::Absolute => pose,
                Self::Relative => reference.inverse().compose(&pose),
                Self::Delta(DeltaFrame::Tool) => before.inverse().compose(&pose),
                Self::Delta(DeltaFrame::Base) => Transform {
                    rotation: turn(&pose).compose(&turn(&before).inverse()).rotation,
                    translation: std::array::from_fn(|i| pose.translation[i] - before.translation[i]),
                },
            };
            before = pose;
        }
    }
}

/// Returns the rotation of a pose, as a transform whose translation is 0.
fn turn(pose: &Transform) -> Transform {
    Transform {
        translation: [0.0; 3],
        ..*pose
    }
}
