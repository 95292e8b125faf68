//! Errors for messages from which no pose, Jacobian, twist or joints can be computed. Each names the values at fault and what
//! is needed.

use robocache_device::Dtype;
use robocache_kinematics::InverseError;
use robocache_stream::SamplesError;

/// Reason why no pose, Jacobian, twist or joints can be computed from a message.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The message does not consist of samples with the needed number of values, or has no stamp.
    #[error(transparent)]
    Samples(#[from] SamplesError),
    /// The values are neither float32 nor float64, but of this type; `None` if the payload is not a flat array.
    #[error("the values are {} (allowed: float32, float64)", .0.map_or("none", Dtype::name))]
    Type(Option<Dtype>),
    /// A sample has too few values for the configured range `channels`.
    #[error("a sample has {width} values (needed: {end} or more, because of `channels`)")]
    Narrow {
        /// Number of values of a sample.
        width: usize,
        /// End of the range `channels`, exclusive: the least number of values that a sample needs.
        end: usize,
    },
    /// No value of the message has the name of a certain joint of the chain.
    #[error("joint `{joint}` is not among the `fields`{hint} (there: {found})")]
    Missing {
        /// Name of the joint.
        joint: String,
        /// Suggestion for the error text, if the message has a similar name; otherwise empty.
        hint: String,
        /// Names of the message's values, as text for the error.
        found: String,
    },
    /// Several values may belong to a joint.
    #[error(
        "joint `{joint}` may be {found} of the `fields` (allowed: its name, or one that ends in `position.{joint}`)"
    )]
    Ambiguous {
        /// Name of the joint.
        joint: String,
        /// Names of the first two values that match the joint, as text for the error.
        found: String,
    },
    /// Values were expected to be joints, but have the names of a rotation.
    #[error(
        "the `fields` of the joints are {found}, those of a rotation (needed: joints; from a pose, `make: joints` and `joints_of` find them)"
    )]
    Rotation {
        /// Names of the message's values, as text for the error.
        found: String,
    },
    /// The names of a pose's values do not end in x y z, x y z w, in this order.
    #[error("the `fields` of the pose are {found} (needed: the position x y z, and then the quaternion x y z w)")]
    PoseOrder {
        /// Names of the message's values, as text for the error.
        found: String,
    },
    /// The configured tolerances are too fine for poses in float32.
    #[error("`inverse` needs float64 poses, but these are float32: {0}")]
    TooFine(InverseError),
}
