//! The stamps of messages, as other software writes them.

use arrow_array::StructArray;
use arrow_schema::{DataType, Fields};
use robocache_stream::{Path, integer, key, ns_of, number};

/// Paths of stamps, in the order in which they are looked for.
const PATHS: [&str; 6] = [
    "header.stamp",
    "header.timestamp",
    "timestamp",
    key::timestamp_ns,
    "stamp",
    "time",
];
/// Names of the seconds of a stamp, and of the nanoseconds on top of them.
const PARTS: [[&str; 2]; 4] = [
    ["sec", "nanosec"],
    ["sec", "nsec"],
    ["secs", "nsecs"],
    ["seconds", "nanos"],
];
const SECOND: i128 = 1_000_000_000;
/// Units of numbers, ns.
const UNITS: [(i64, &str); 4] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us"), (1, "ns")];
const DAY_NS: i64 = 86_400_000_000_000;

/// True if a field of this name may be a stamp, or a part of one.
pub(super) fn is_part(name: &str) -> bool {
    let is_last = |path: &str| path.rsplit('.').next() == Some(name);
    PATHS.into_iter().any(is_last) || PARTS.as_flattened().contains(&name)
}

/// Place of a message's stamp.
pub(super) struct Stamp {
    path: Path,
    form: Form,
}

enum Form {
    /// Seconds, and nanoseconds.
    Parts([Path; 2]),
    /// A number, of which no message was seen yet.
    Number,
    /// A number of units, each of this many ns.
    Units(i64),
    /// A number that is not a time since 1970.
    Other,
}

impl Stamp {
    pub fn of(fields: &Fields) -> Option<Self> {
        PATHS.into_iter().find_map(|path| {
            let (path, field) = Path::find(path, fields).ok()?;
            let DataType::Struct(within) = field.data_type() else {
                let form = Form::Number;
                return field.data_type().is_numeric().then_some(Self { path, form });
            };
            let part = |name: &str| {
                let (step, field) = within.find(name)?;
                field.data_type().is_numeric().then(|| path.child(step, name))
            };
            let parts = PARTS
                .into_iter()
                .find_map(|[sec, nanosec]| Some([part(sec)?, part(nanosec)?]))?;
            let form = Form::Parts(parts);
            Some(Self { path, form })
        })
    }

    /// True if the field at a path is nothing but the stamp.
    pub fn is_at(&self, path: &str) -> bool {
        matches!(self.form, Form::Parts(_)) && self.path.text() == path
    }

    /// The stamp in words, if it is a number whose unit was found out.
    pub fn guess(&self) -> Option<String> {
        let Form::Units(unit_ns) = self.form else { return None };
        let (_, word) = UNITS.into_iter().find(|(ns, _)| *ns == unit_ns)?;
        Some(format!(
            "`{}` is the stamp, in {word} since 1970 by its first value",
            self.path.text()
        ))
    }

    /// The time, ns, of a message that was published at another one. `None` if there is none, or it is zero. The first
    /// message tells what a number is: times are within a day of their publication.
    pub fn read(&mut self, payload: &StructArray, published_ns: i64) -> Option<i64> {
        let whole = |path: &Path| {
            let array = path.follow(payload).ok()?;
            integer(&**array, 0).or_else(|| {
                let float = number(&**array, 0);
                (float.fract() == 0.0).then_some(float as i128)
            })
        };
        let units = |unit_ns: i64| {
            let array = self.path.follow(payload).ok()?;
            match integer(&**array, 0) {
                Some(whole) => i64::try_from(whole.checked_mul(unit_ns.into())?).ok(),
                None => ns_of(number(&**array, 0), unit_ns),
            }
        };
        match &self.form {
            Form::Parts([sec, nanosec]) => {
                let (sec, nanosec) = (whole(sec)?, whole(nanosec)?);
                let is_usable = (0..SECOND).contains(&nanosec) && (sec, nanosec) != (0, 0);
                let ns = sec.checked_mul(SECOND)?.checked_add(nanosec)?;
                i64::try_from(ns).ok().filter(|_| is_usable)
            }
            Form::Number => {
                let is_near = |ns: &i64| ns.abs_diff(published_ns) < DAY_NS as u64;
                let found = UNITS
                    .into_iter()
                    .find_map(|(unit_ns, _)| Some((unit_ns, units(unit_ns).filter(is_near)?)));
                self.form = found.map_or(Form::Other, |(unit_ns, _)| Form::Units(unit_ns));
                found.map(|(_, ns)| ns)
            }
            Form::Units(unit_ns) => units(*unit_ns).filter(|&ns| ns != 0),
            Form::Other => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Float64Array};
    use std::sync::Arc;

    #[test]
    fn the_first_message_tells_the_unit() {
        const NOW: i64 = 1_700_000_000_000_000_000;
        let cases = [
            ([1.7e9, 1.7e9 + 0.5], [Some(NOW), Some(NOW + 500_000_000)]),
            ([1.7e12, 0.0], [Some(NOW), None]),
            ([1.7e15, f64::NAN], [Some(NOW), None]),
            ([1.7e18, 1.7e18], [Some(NOW); 2]),
            // Since the start of something.
            ([12.5, 1.7e9], [None; 2]),
            ([1.5e9, 1.7e9], [None; 2]),
        ];
        for (times, wanted) in cases {
            let payload = |time: f64| {
                let array: ArrayRef = Arc::new(Float64Array::from(vec![time]));
                StructArray::try_from(vec![("time", array)]).unwrap()
            };
            let mut stamp = Stamp::of(payload(0.0).fields()).unwrap();
            assert_eq!(
                times.map(|time| stamp.read(&payload(time), NOW + 1000)),
                wanted,
                "{times:?}"
            );
        }
    }
}
