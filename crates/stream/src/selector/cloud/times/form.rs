//! Units and origins of the point times that lidars send, and their conversion to ns since the cloud's stamp.
//!
//! A stamp is subtracted from a time in whole units before the rest is converted to ns, so that a time since 1970 keeps
//! its digits.

use crate::selector::TimeUnit;

/// Names of fields with the time of a point, and the usual origin of these times.
const NAMES: [(&str, Since); 9] = [
    // Velodyne, LeiShen and Unitree in seconds; datasets of Velodynes in microseconds.
    ("time", Since::Stamp),
    // Ouster, SICK.
    ("t", Since::Stamp),
    // Autoware.
    ("time_stamp", Since::Stamp),
    // Livox.
    ("offset_time", Since::Stamp),
    ("time_offset", Since::Stamp),
    // Aeva.
    ("time_offset_ns", Since::Stamp),
    // Blickfeld.
    ("point_time_offset", Since::Stamp),
    // Hesai, Robosense and Seyond in seconds, Livox in nanoseconds.
    ("timestamp", Since::Epoch),
    ("stamps", Since::Epoch),
];

/// Greatest plausible distance of a point's time from the stamp of its cloud, ns. The stamp may be the sweep's start, end
/// or arrival.
pub(super) const REACH_NS: f64 = 2e9;

/// Origin that the times of a cloud's points count from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// The times count from the stamp of their cloud.
    Stamp,
    /// The times are absolute: they count from the same origin as the stamp, such as 1970.
    Epoch,
}

/// Unit and origin of a field's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub unit: TimeUnit,
    pub since: Since,
}

/// Time of a point as received, in the unit of its field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Float(f64),
    /// Integer; a value beyond int64 becomes the greatest int64, which is far from any stamp.
    Whole(i64),
}

impl Form {
    /// Returns the usual unit and origin of times in a field of this name. Returns `None` if such a field does not have times.
    /// `is_float` is true if the field's type is a float.
    pub(super) fn usual(name: &str, is_float: bool) -> Option<Self> {
        let (_, since) = NAMES.into_iter().find(|(known, _)| *known == name)?;
        let unit = match is_float && !name.ends_with("_ns") {
            true => TimeUnit::Second,
            false => TimeUnit::Nanosecond,
        };
        Some(Self { unit, since })
    }

    /// Converts a time to ns since the stamp of the cloud. NaN and infinite times stay unchanged.
    pub(super) fn ns(self, time: Number, stamp_ns: i64) -> f64 {
        let origin = match self.since {
            Since::Stamp => 0,
            Since::Epoch => stamp_ns,
        };
        let unit_ns = self.unit.ns();
        match time {
            Number::Float(time) if !time.is_finite() => time,
            Number::Float(time) if unit_ns == 1 => {
                // The stamp may have more digits than float64, so whole ns are subtracted in int64.
                ((time.trunc() as i64).saturating_sub(origin) as f64 + time.fract()).round()
            }
            Number::Float(time) => {
                // The whole units are subtracted first: float64 does not have enough digits for all ns.
                let (whole, rest) = (origin.div_euclid(unit_ns), origin.rem_euclid(unit_ns));
                ((time - whole as f64) * unit_ns as f64 - rest as f64).round()
            }
            Number::Whole(time) => {
                let ns = time.saturating_mul(unit_ns);
                ns.saturating_sub(origin) as f64
            }
        }
    }

    /// Converts a time to ns since the stamp for a float64 column `t_ns`. Returns NaN if the time is further than `REACH_NS`
    /// from the stamp. If times are absolute, a received 0 becomes NaN, too, as it stands for a point without a return.
    pub(super) fn t_ns(self, time: Number, stamp_ns: i64) -> f64 {
        let ns = self.ns(time, stamp_ns);
        let is_none = self.since == Since::Epoch && stamp_ns != 0 && time.as_f64() == 0.0;
        if is_none || ns.is_finite() && ns.abs() > REACH_NS {
            f64::NAN
        } else {
            ns
        }
    }

    /// Converts an integer time since the stamp from the form's unit to ns; a value beyond int64 becomes the greatest or
    /// least int64.
    pub(super) fn whole_ns(self, time: Number) -> i64 {
        match time {
            Number::Whole(time) => time.saturating_mul(self.unit.ns()),
            Number::Float(time) => time as i64,
        }
    }

    pub(super) fn words(self) -> String {
        let since = match self.since {
            Since::Stamp => "since the stamp",
            Since::Epoch => "by the clock of the stamp",
        };
        format!("in {} {since}", self.unit.name())
    }
}

impl Number {
    pub(crate) fn as_f64(self) -> f64 {
        match self {
            Self::Float(number) => number,
            Self::Whole(number) => number as f64,
        }
    }
}

impl Since {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Stamp => Self::Epoch,
            Self::Epoch => Self::Stamp,
        }
    }
}
