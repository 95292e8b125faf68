//! The reasons why no product can be computed from a message. Each names the values at fault and what is needed.

use robocache_device::Dtype;
use robocache_kinematics::InverseError;
use robocache_stream::SamplesError;

/// The reason why no product can be computed from a message.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The message does not have the form of samples of the needed width, or has no stamp.
    #[error(transparent)]
    Samples(#[from] SamplesError),
    /// The values are neither float32 nor float64, but of this type; `None` if the payload is not a flat array.
    #[error("the values are {} (allowed: float32, float64)", .0.map_or("none", Dtype::name))]
    Type(Option<Dtype>),
    /// A sample has fewer values than `channels` takes.
    #[error("a sample has {width} values (needed: {end} or more, because of `channels`)")]
    Narrow {
        /// Number of values of a sample.
        width: usize,
        /// The end of `channels`: the least number of values that a sample needs.
        end: usize,
    },
    /// A joint of the chain has no value in the message: no value has the joint's name.
    #[error("joint `{joint}` is not among the `fields`{hint} (there: {found})")]
    Missing {
        /// Name of the joint.
        joint: String,
        /// Hint at the name that may be meant; empty without a similar name.
        hint: String,
        /// Names of the message's values, as a list in words.
        found: String,
    },
    /// Several values may belong to a joint.
    #[error(
        "joint `{joint}` may be {found} of the `fields` (allowed: its name, or one that ends in `position.{joint}`)"
    )]
    Ambiguous {
        /// Name of the joint.
        joint: String,
        /// Names of two values that may be the joint's.
        found: String,
    },
    /// The values that are taken as joints have the names of a rotation.
    #[error(
        "the `fields` of the joints are {found}, those of a rotation (needed: joints; from a pose, `make: joints` and `joints_of` find them)"
    )]
    Rotation {
        /// Names of the message's values, as a list in words.
        found: String,
    },
    /// The names of a pose's values do not end in x y z, x y z w, in this order.
    #[error("the `fields` of the pose are {found} (needed: the position x y z, and then the quaternion x y z w)")]
    PoseOrder {
        /// Names of the message's values, as a list in words.
        found: String,
    },
    /// The tolerances are too fine for float32.
    #[error("`inverse` needs float64 poses, but these are float32: {0}")]
    TooFine(InverseError),
}
