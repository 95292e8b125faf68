//! States of a message's rows: whether products can be computed from a row, and if not, why.

use super::Product;
use robocache_kinematics::MAX_DISTANCE;
use robocache_yaml::listed;
use std::fmt::{self, Display};

/// State of one row of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RowState {
    /// The message has no sample for the row: its `valid` is 0.
    Masked,
    /// The row is a sample that can be used.
    Good,
    /// The row is a sample that can't be used, for this reason.
    Refused(Reason),
}

impl RowState {
    /// The reason why `product` can't be computed for the row; `None` if it can, or if the row is not a sample.
    pub(super) fn reason(&self, product: Product) -> Option<&Reason> {
        match self {
            Self::Refused(Reason::Velocity { .. }) if product != Product::Twist => None,
            Self::Refused(reason) => Some(reason),
            Self::Masked | Self::Good => None,
        }
    }

    /// True if `product` (a pose, Jacobian, twist or joints) can be computed for the row.
    pub(super) fn has(&self, product: Product) -> bool {
        *self != Self::Masked && self.reason(product).is_none()
    }
}

/// The reason why a sample can't be used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// A value is NaN or infinite.
    NonFinite {
        /// Index of the joint, or of the value within a pose.
        index: usize,
        /// The value, NaN or infinite.
        value: f64,
    },
    /// The velocity of a joint is NaN or infinite, or too large for a twist in the message's float type. The row still has a
    /// pose and a Jacobian.
    Velocity {
        /// Index of the joint.
        index: usize,
        /// Velocity of the joint, rad/s or m/s.
        value: f64,
    },
    /// The value of a joint, or of a joint that mimics it, is too large to compute a pose: its magnitude is above 8,192.
    Range {
        /// Index of the joint.
        index: usize,
        /// Value of the joint, radians or metres.
        value: f64,
    },
    /// The position of a pose is too large to find joints for it: the magnitude of a coordinate is above 1e6 m.
    Far {
        /// Index of the value within the pose.
        index: usize,
        /// The value, metres.
        value: f64,
    },
    /// The quaternion of a pose is not of norm 1.
    NotUnitQuaternion,
    /// No joints were found for a pose.
    Unreachable {
        /// Distance of the tool from the target at the best joints found, metres.
        position_error_m: f64,
        /// Rotation of the tool from the target at the best joints found, as the chord 2 sin(angle / 2), radians.
        rotation_error_rad: f64,
    },
}

impl Reason {
    /// True if the reason is a NaN or infinite value, or a quaternion whose norm is not 1.
    pub fn is_nonfinite(&self) -> bool {
        matches!(
            self,
            Self::NonFinite { .. } | Self::Velocity { .. } | Self::NotUnitQuaternion
        )
    }

    /// True if the reason is a joint value or a pose coordinate that is too large to compute with.
    pub fn is_range(&self) -> bool {
        matches!(self, Self::Range { .. } | Self::Far { .. })
    }

    /// True if the reason is that no joints were found for a pose.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}

/// Row of a message that can't be used, and the reason. Its text names the joint, or the value of the pose, at fault.
#[derive(Clone, Copy, Debug)]
pub struct RefusedRow<'a> {
    /// Index of the row in the message.
    pub row: usize,
    /// The reason why the row can't be used.
    pub reason: Reason,
    /// Names of the joints, or of a pose's values, to which the index in `reason` refers.
    pub(super) names: &'a [String],
}

impl Display for RefusedRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {}: ", self.row)?;
        let name = |index: usize| self.names.get(index).map_or("", String::as_str);
        match self.reason {
            Reason::NonFinite { index, value } => write!(f, "`{}` is {value} (needed: a finite number)", name(index)),
            Reason::Velocity { index, value } => {
                write!(
                    f,
                    "the velocity of `{}` is {value} (needed: a number whose twist is finite)",
                    name(index)
                )
            }
            Reason::Range { index, value } => {
                write!(
                    f,
                    "`{}` is {value} (allowed: -8192 to 8192, also of joints that mimic it)",
                    name(index)
                )
            }
            Reason::Far { index, value } => {
                let name = name(index);
                write!(f, "`{name}` is {value} (allowed: -{MAX_DISTANCE} to {MAX_DISTANCE} m)")
            }
            Reason::NotUnitQuaternion => {
                f.write_str("the norm of its quaternion is not 1 (allowed: x, y, z, w of norm 0.99 to 1.01)")
            }
            Reason::Unreachable {
                position_error_m,
                rotation_error_rad,
            } => write!(
                f,
                "no joints were found for its pose: the best are {position_error_m:.3e} m and {rotation_error_rad:.3e} rad off"
            ),
        }
    }
}

/// Values that are taken as joints in the chain's order, because none has the name of a joint.
#[derive(Clone, Copy, Debug)]
pub struct Unnamed<'a> {
    /// Names of the values in the message.
    pub fields: &'a [String],
    /// Names of the joints, in the chain's order.
    pub joints: &'a [String],
}

impl Display for Unnamed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fields, joints) = (listed(self.fields), listed(self.joints));
        write!(
            f,
            "none of the `fields` {fields} is a joint: the values are taken in the order of the chain, {joints}"
        )
    }
}

/// An implausible value of a joint: more than a full turn beyond its limits.
#[derive(Clone, Copy, Debug)]
pub struct Implausible<'a> {
    /// Name of the joint.
    pub joint: &'a str,
    /// Value of the joint as it was sent; it should be in radians.
    pub value: f64,
    /// Lower and upper limit of the joint, radians.
    pub limits: [f64; 2],
}

impl Display for Implausible<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self { joint, value, .. }, [lower, upper]) = (self, self.limits);
        write!(
            f,
            "`{joint}` is {value:.3}, more than a turn beyond its limits {lower:.3} and {upper:.3} (allowed: radians; are these degrees?)"
        )
    }
}
