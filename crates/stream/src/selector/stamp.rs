//! Capture times in the forms that other software sends, and their conversion to int64 nanoseconds.
//!
//! A time beyond int64 nanoseconds is refused.

use super::path::{Path, integer, number};
use super::{MetadataStamp, NumberStamp, SelectError};
use crate::arrow::{bytes, ns_in};
use crate::{Header, MetadataRef};
use arrow_array::{Array, ArrayRef, StructArray};
use arrow_schema::{DataType, Fields};

/// Nanoseconds in a second.
pub(super) const S: i64 = 1_000_000_000;

/// The metadata key under which other nodes send a capture time, as a Float in seconds.
const TIMESTAMP: &str = "timestamp";

/// Path of the capture time in payloads of one Arrow type.
#[derive(Debug)]
pub(super) enum Stamp {
    /// Paths of two integers: the whole seconds, and the nanoseconds to add to them.
    Parts([Path; 2]),
    /// Path of an integer of ns, or of an Arrow timestamp.
    Whole(Path),
    /// Path of a number, and the length of its unit in ns.
    Number(Path, i64),
}

impl Stamp {
    pub(super) fn find(text: &str, fields: &Fields) -> Result<Self, SelectError> {
        let (path, field) = Path::find(text, fields)?;
        let data_type = field.data_type();
        if let DataType::Struct(parts) = data_type {
            let part = |name: &str| {
                let found = parts.find(name).filter(|(_, part)| part.data_type().is_integer());
                found.map(|(step, _)| path.child(step, name))
            };
            if let (Some(sec), Some(nanosec)) = (part("sec"), part("nanosec")) {
                return Ok(Self::Parts([sec, nanosec]));
            }
        } else if data_type.is_integer() || matches!(data_type, DataType::Timestamp(..)) {
            return Ok(Self::Whole(path));
        }
        Err(SelectError::value(
            text,
            data_type,
            "a struct of integers `sec` and `nanosec`, an integer of ns, or a timestamp",
        ))
    }

    /// Finds the number at the path of a configured stamp.
    pub(super) fn number(stamp: &NumberStamp, fields: &Fields) -> Result<Self, SelectError> {
        let (path, _) = Path::typed(&stamp.path, fields, DataType::is_numeric, "a number")?;
        Ok(Self::Number(path, stamp.unit.ns()))
    }

    /// Reads the stamp of a payload, ns.
    pub(super) fn read(&self, payload: &StructArray) -> Result<i64, SelectError> {
        let (path, ns) = match self {
            Self::Parts([sec, nanosec]) => {
                let (whole, rest) = (sec.integer(payload)?, nanosec.integer(payload)?);
                if !(0..i128::from(S)).contains(&rest) {
                    return Err(SelectError::value(nanosec.text(), rest, "0 to 999999999"));
                }
                (sec, whole.checked_mul(S.into()).map(|ns| ns + rest))
            }
            Self::Whole(path) => {
                let array = path.follow(payload)?;
                if array.is_null(0) {
                    return Err(path.is_null());
                }
                (path, whole(array))
            }
            Self::Number(path, unit_ns) => {
                let array = path.follow(payload)?;
                if array.is_null(0) {
                    return Err(path.is_null());
                }
                let ns = match integer(array, 0) {
                    Some(value) => value.checked_mul((*unit_ns).into()),
                    None => ns_of(number(array, 0), *unit_ns).map(i128::from),
                };
                (path, ns)
            }
        };
        let beyond = || SelectError::value(path.text(), "beyond int64 nanoseconds", "about 292 years around 1970");
        ns.and_then(|ns| i64::try_from(ns).ok()).ok_or_else(beyond)
    }
}

/// Reads the time in the first row of an array, ns; `None` if the array is not of times or integers.
fn whole(array: &ArrayRef) -> Option<i128> {
    match array.data_type() {
        DataType::Timestamp(unit, _) => {
            let times: &[i64] = bytemuck::cast_slice(bytes(array));
            Some(i128::from(times[0]) * i128::from(ns_in(*unit)))
        }
        _ => integer(array, 0),
    }
}

impl MetadataStamp {
    /// Reads the time that the metadata have under the configured key, ns.
    pub(super) fn read(&self, header: &Header) -> Result<i64, SelectError> {
        let unit = self.unit.ns();
        let value = header.get(&self.metadata);
        let ns = match value {
            Some(MetadataRef::Integer(value)) => value.checked_mul(unit),
            Some(MetadataRef::Float(value)) => ns_of(value, unit),
            Some(MetadataRef::Timestamp(ns)) => Some(ns),
            _ => None,
        };
        ns.ok_or_else(|| {
            let came = value.map_or("not there".to_owned(), |value| format!("{value:?}"));
            let path = format!("metadata {}", self.metadata);
            SelectError::value(path, came, "an Integer or a Float, a time within int64 nanoseconds")
        })
    }
}

/// Reads the Float under the key `timestamp`, in seconds, as ns; `None` without such a Float.
pub(super) fn from_seconds(header: &Header) -> Option<i64> {
    match header.other.get(TIMESTAMP)?.as_ref() {
        MetadataRef::Float(seconds) => ns_of(seconds, S),
        _ => None,
    }
}

/// Converts `value` in a unit of `unit_ns` ns to nanoseconds. Whole units are exact, and the rest is rounded to 1 ns. `None` beyond
/// int64.
pub fn ns_of(value: f64, unit_ns: i64) -> Option<i64> {
    const MAX: f64 = i64::MAX as f64;
    let whole = value.floor();
    let units = (whole.abs() < MAX).then_some(whole as i64)?;
    let rest = ((value - whole) * unit_ns as f64).round() as i64;
    units.checked_mul(unit_ns)?.checked_add(rest)
}
