use robocache_device::Dtype;
use robocache_kinematics::InverseError;
use robocache_stream::SamplesError;

/// The reason why nothing can be made of a message.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// Its form is not that of samples of the width that is needed, or it has no stamp.
    #[error(transparent)]
    Samples(#[from] SamplesError),
    /// Its values are of a type that is not computed with.
    #[error("the values are {} (allowed: float32, float64)", .0.map_or("none", Dtype::name))]
    Type(Option<Dtype>),
    /// A sample has fewer values than `channels` takes.
    #[error("{width} values a sample (allowed: {end} or more, as `channels` says)")]
    Narrow {
        /// Values that came.
        width: usize,
        /// The end of `channels`.
        end: usize,
    },
    /// A joint of the chain is not there.
    #[error("joint `{joint}` is not among the `fields`{hint} (there: {came})")]
    Missing {
        /// The joint.
        joint: String,
        /// The name that may be meant.
        hint: String,
        /// The names that came.
        came: String,
    },
    /// Several values may be that of a joint.
    #[error(
        "joint `{joint}` may be {came} of the `fields` (allowed: its name, or one that ends in `position.{joint}`)"
    )]
    Ambiguous {
        /// The joint.
        joint: String,
        /// Two of the values that may be meant.
        came: String,
    },
    /// The values that are taken as joints have the names of a rotation.
    #[error(
        "the `fields` of the joints are {came}, those of a rotation (needed: joints; of a pose `make: joints` and `joints_of` make them)"
    )]
    Rotation {
        /// The names that came.
        came: String,
    },
    /// The values of a pose stand in another order.
    #[error("the `fields` of the pose are {came} (needed: the position x y z, and then the quaternion x y z w)")]
    PoseOrder {
        /// The names that came.
        came: String,
    },
    /// The tolerances are too fine for float32.
    #[error("the poses are float32, and of `inverse` {0}; float64 takes it")]
    TooFine(InverseError),
}
