//! The interpolation modes: their names, their numbers in the kernels, their limits, and the samples that each mode needs.
//!
//! A mode needs up to two samples on each side of a target ([`Interpolation::needs`]). The operation align waits for these
//! samples with the watermark of its `Timeline`, and keeps them with `History::forget_before`.
//!
//! `docs/architecture.md` lists the code that a new mode has to change.

use robocache_yaml::did_you_mean;
use serde::{Deserialize, Deserializer, de};

/// Interpolation mode: how the value at a target is computed from the samples around the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Interpolation {
    /// The newest sample at or before the target.
    Previous = 0,
    /// The sample whose time is nearest to the target; at equal distances the earlier sample.
    Nearest = 1,
    /// The straight line between the two samples around the target.
    Linear = 2,
    /// Angles, radians, along the shorter way around the circle.
    Angle = 3,
    /// A unit quaternion, along the shorter arc at constant speed.
    Slerp = 4,
    /// The first two rows of a rotation matrix, interpolated by [`Slerp`](Self::Slerp).
    Rot6d = 5,
    /// The first two columns of a rotation matrix, one after the other, interpolated by [`Slerp`](Self::Slerp).
    Rot6dColumns = 6,
    /// A rotation vector, radians, interpolated by [`Slerp`](Self::Slerp).
    Rotvec = 7,
    /// A cubic Hermite curve with Bessel tangents.
    Cubic = 8,
    /// A monotone cubic Hermite curve, which does not overshoot: SciPy's `PchipInterpolator`.
    Pchip = 9,
}

impl Interpolation {
    /// Every mode, in the order of the numbers that the kernels use.
    pub const ALL: [Self; 10] = [
        Self::Previous,
        Self::Nearest,
        Self::Linear,
        Self::Angle,
        Self::Slerp,
        Self::Rot6d,
        Self::Rot6dColumns,
        Self::Rotvec,
        Self::Cubic,
        Self::Pchip,
    ];

    /// The mode's name in a configuration, such as `rot6d`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Previous => "previous",
            Self::Nearest => "nearest",
            Self::Linear => "linear",
            Self::Angle => "angle",
            Self::Slerp => "slerp",
            Self::Rot6d => "rot6d",
            Self::Rot6dColumns => "rot6d_columns",
            Self::Rotvec => "rotvec",
            Self::Cubic => "cubic",
            Self::Pchip => "pchip",
        }
    }

    /// The names of all modes, for an error: `previous, nearest, linear`.
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// The mode's number in the kernels, as in `enum Interpolation` of kernels/time.cuh.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// Configuration keys of the [`Limits`] that the mode uses.
    pub const fn limits(self) -> &'static [&'static str] {
        match self {
            Self::Previous | Self::Nearest => &["max_age_ms"],
            _ => &["max_gap_ms", "extrapolate_ms"],
        }
    }

    /// Number of samples that the mode needs at or before a target, and number of samples after the target.
    pub const fn needs(self) -> [usize; 2] {
        match self {
            Self::Previous => [1, 0],
            Self::Cubic | Self::Pchip => [2, 2],
            _ => [1, 1],
        }
    }

    /// Number of channels that a group of this mode must have, such as 4 for a quaternion; `None` if any number will do.
    pub const fn width(self) -> Option<usize> {
        match self {
            Self::Slerp => Some(4),
            Self::Rot6d | Self::Rot6dColumns => Some(6),
            Self::Rotvec => Some(3),
            _ => None,
        }
    }

    /// True if the mode interpolates rotations. Samples whose channels are not a rotation then can't be used.
    pub const fn is_rotation(self) -> bool {
        self.width().is_some()
    }

    /// True for `previous`, `nearest` and `linear`, whose value is one sample, or two samples blended with one weight for
    /// all channels.
    #[inline(always)]
    pub const fn is_plain(self) -> bool {
        matches!(self, Self::Previous | Self::Nearest | Self::Linear)
    }

    /// True if GPUs can compute the mode. If they can't compute one mode of a configuration, the CPU computes the
    /// whole configuration.
    pub const fn is_on_gpu(self) -> bool {
        !matches!(self, Self::Rotvec)
    }
}

impl<'de> Deserialize<'de> for Interpolation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if let Some(mode) = Self::ALL.into_iter().find(|mode| mode.name() == name) {
            return Ok(mode);
        }
        let allowed = Self::names();
        Err(de::Error::custom(if name.starts_with("euler") {
            format!(
                "`{name}` is not an interpolation: what lies between two triples of Euler angles is not the shortest rotation; send a \
                 quaternion for `slerp`, or `rot6d`, `rotvec` (allowed: {allowed})"
            )
        } else {
            let hint = did_you_mean(&name, &Self::ALL.map(Self::name));
            format!("`{name}` is not an interpolation{hint} (allowed: {allowed})")
        }))
    }
}

/// Position of w among the four channels of a quaternion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuaternionOrder {
    /// w is the last channel, as in ROS and SciPy.
    #[default]
    Xyzw,
    /// w is the first channel, as in MuJoCo and Isaac.
    Wxyz,
}

impl<'de> Deserialize<'de> for QuaternionOrder {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "xyzw" => Ok(Self::Xyzw),
            "wxyz" => Ok(Self::Wxyz),
            other => Err(de::Error::custom(format!(
                "`{other}` is not an order of a quaternion (allowed: xyzw, wxyz)"
            ))),
        }
    }
}

/// Rule by which the values of a group of channels are computed: the interpolation mode, its limits and its options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// Mode in which the value at a target is computed.
    pub mode: Interpolation,
    /// Limits on the times between a target and its samples. Beyond them the value is not valid.
    pub limits: Limits,
    /// Option of `slerp`, which chooses between the quaternions q and -q of the same rotation. True: the one with w >= 0.
    /// False: the one in the hemisphere of the sample before the target.
    pub canonical: bool,
    /// Option of `slerp`: position of w among the four channels.
    pub order: QuaternionOrder,
}

impl Rule {
    /// Creates a rule with this mode and these limits, and the default options.
    pub fn new(mode: Interpolation, limits: Limits) -> Self {
        Self {
            mode,
            limits,
            canonical: false,
            order: QuaternionOrder::default(),
        }
    }
}

/// Limits on the times between a target and its samples, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Limit of `previous` and `nearest`: the largest distance of the sample from the target, ns.
    pub max_age: i64,
    /// Limit of all other modes: the largest distance between the two samples around the target, ns.
    pub max_gap: i64,
    /// Limit of all other modes: the longest time for which the newest sample is held after its own time, ns.
    pub extrapolate: i64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_age: i64::MAX,
            max_gap: i64::MAX,
            extrapolate: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_the_indices_and_the_names_are_read_back() {
        for (code, mode) in (0..).zip(Interpolation::ALL) {
            assert_eq!(mode.code(), code);
            assert_eq!(serde_yaml::from_str::<Interpolation>(mode.name()).unwrap(), mode);
        }
        assert_eq!(
            Interpolation::names(),
            "previous, nearest, linear, angle, slerp, rot6d, rot6d_columns, rotvec, cubic, pchip"
        );
    }

    /// Guards a limit that the watermark, the histories and the kernels rely on: two samples on each side of a target.
    #[test]
    fn no_mode_needs_more_than_two_samples_on_each_side() {
        for mode in Interpolation::ALL {
            assert!(mode.needs().iter().all(|&samples| samples <= 2), "{mode:?}");
        }
    }

    #[test]
    fn what_is_no_mode_is_refused_with_those_that_are() {
        let refused = |name: &str| serde_yaml::from_str::<Interpolation>(name).unwrap_err().to_string();
        assert!(refused("spline").contains("`spline` is not an interpolation (allowed: previous, nearest"));
        let euler = refused("euler");
        assert!(
            euler.contains("`slerp`") && euler.contains("allowed: previous"),
            "{euler}"
        );
        let refused = serde_yaml::from_str::<QuaternionOrder>("zyxw").unwrap_err().to_string();
        assert!(refused.contains("allowed: xyzw, wxyz"), "{refused}");
    }
}
