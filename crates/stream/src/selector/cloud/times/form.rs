//! The forms in which lidars send the time of a point.

use crate::selector::TimeUnit;

/// Names of fields with the time of a point, and what those who use them count from.
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

/// A point is no further from the stamp of its cloud, ns: that may be of the sweep's start or its end, or of when it came.
pub(super) const REACH_NS: f64 = 2e9;

/// The origin of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// The stamp of the cloud.
    Stamp,
    /// The origin of the stamp itself.
    Epoch,
}

/// The meaning of a field's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub unit: TimeUnit,
    pub since: Since,
}

/// A number of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Float(f64),
    /// One beyond int64 is the greatest of it, which is near no stamp.
    Whole(i64),
}

impl Form {
    /// The form that is usual of a field of this name, if it is one of times.
    pub(super) fn usual(name: &str, is_float: bool) -> Option<Self> {
        let (_, since) = NAMES.into_iter().find(|(known, _)| *known == name)?;
        let unit = match is_float && !name.ends_with("_ns") {
            true => TimeUnit::Second,
            false => TimeUnit::Nanosecond,
        };
        Some(Self { unit, since })
    }

    /// A time in ns since the stamp of the cloud. One that is not finite stays so, so that nothing uses it.
    pub(super) fn ns(self, time: Number, stamp_ns: i64) -> f64 {
        let origin = match self.since {
            Since::Stamp => 0,
            Since::Epoch => stamp_ns,
        };
        let unit_ns = self.unit.ns();
        match time {
            Number::Float(time) if !time.is_finite() => time,
            Number::Float(time) if unit_ns == 1 => {
                // What float64 has of it is whole, and the stamp may have more digits than float64.
                ((time.trunc() as i64).saturating_sub(origin) as f64 + time.fract()).round()
            }
            Number::Float(time) => {
                // The whole units go first: float64 has not the digits for all.
                let (whole, rest) = (origin.div_euclid(unit_ns), origin.rem_euclid(unit_ns));
                ((time - whole as f64) * unit_ns as f64 - rest as f64).round()
            }
            Number::Whole(time) => {
                let ns = time.saturating_mul(unit_ns);
                ns.saturating_sub(origin) as f64
            }
        }
    }

    /// The same for the column: NaN is what lies too far from the stamp to be the time of one of its points, as 0 does that
    /// stands for a point that came back from nowhere.
    pub(super) fn t_ns(self, time: Number, stamp_ns: i64) -> f64 {
        let ns = self.ns(time, stamp_ns);
        let is_none = self.since == Since::Epoch && stamp_ns != 0 && time.as_f64() == 0.0;
        if is_none || ns.is_finite() && ns.abs() > REACH_NS {
            f64::NAN
        } else {
            ns
        }
    }

    /// A whole number since the stamp in ns.
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
