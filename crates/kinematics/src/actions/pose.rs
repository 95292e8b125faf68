use robocache_geometry::RigidTransform;

/// Meaning of an action that is a pose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoseKind {
    /// The pose, in the frame of the base.
    Absolute,
    /// The pose in the frame of the reference, as in UMI.
    Relative,
    /// Motion from the step before; of the first step from the reference.
    Delta(DeltaFrame),
}

/// The axes that a motion from one pose to the next is given in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeltaFrame {
    /// The axes of the pose before: the motion is multiplied from the right.
    #[default]
    Tool,
    /// The axes of the base: the translation is added, and the rotation multiplied from the left.
    Base,
}

type Transform = RigidTransform<f64>;

impl PoseKind {
    /// Turns a chunk of actions into absolute poses, in place, multiplied from the first step on.
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

    /// Turns a chunk of absolute poses into actions, in place.
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

/// Returns the rotation alone.
fn turn(pose: &Transform) -> Transform {
    Transform {
        translation: [0.0; 3],
        ..*pose
    }
}
