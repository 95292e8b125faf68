//! Clouds out of structs of one row.

mod bytes;
mod lists;
mod point_cloud2;

pub(super) use bytes::Bytes;
pub(super) use lists::Lists;
pub use point_cloud2::DATATYPES;
pub(super) use point_cloud2::PointCloud2;

use super::stamp::S;
use super::{CloudFields, SelectError};
use robocache_device::Dtype;

/// The column that has the time of a point since the message's `timestamp_ns`, ns.
const T_NS: &str = "t_ns";

/// Conversion of a field's values into those of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conversion {
    AsTheyCome,
    /// Seconds since the message's stamp.
    Seconds,
    /// Seconds since 1970.
    Absolute,
}

/// Names that lidars give the time of a point, and the type in which they send it.
const TIMES: [(&str, Dtype, Conversion); 5] = [
    ("time", Dtype::Float32, Conversion::Seconds),
    ("t", Dtype::UInt32, Conversion::AsTheyCome),
    ("time_stamp", Dtype::UInt32, Conversion::AsTheyCome),
    ("offset_time", Dtype::UInt32, Conversion::AsTheyCome),
    ("timestamp", Dtype::Float64, Conversion::Absolute),
];

impl Conversion {
    /// Conversion of a field into `t_ns`, if it is the time of a point.
    fn of_time(name: &str, dtype: Dtype) -> Option<Self> {
        let time = TIMES.iter().find(|time| (time.0, time.1) == (name, dtype));
        time.map(|&(_, _, values)| values)
    }

    /// A time in seconds as whole ns after `stamp_ns`. A time that is not a finite number stays so, so that nothing
    /// uses it.
    fn ns_after(seconds: f64, stamp_ns: i64) -> f64 {
        // The whole seconds go first: float64 has not the digits for both.
        let (whole, rest) = (stamp_ns.div_euclid(S), stamp_ns.rem_euclid(S));
        ((seconds - whole as f64) * S as f64 - rest as f64).round()
    }
}

/// The columns that fields of these names and types become, in their order: which field, the column's name, and how.
fn columns(fields: &[(&str, Dtype)], wanted: &CloudFields) -> Vec<(usize, String, Conversion)> {
    let has_t_ns = fields.iter().any(|(name, _)| *name == T_NS);
    let mut time = None;
    let mut columns = Vec::new();
    for (i, &(name, dtype)) in fields.iter().enumerate() {
        if !has_t_ns && time.is_none() && wanted.has(T_NS) {
            time = Conversion::of_time(name, dtype);
            if let Some(values) = time {
                columns.push((i, T_NS.to_owned(), values));
                if *wanted == CloudFields::All {
                    continue;
                }
            }
        }
        if wanted.has(name) {
            columns.push((i, name.to_owned(), Conversion::AsTheyCome));
        }
    }
    columns
}

/// Refuses a cloud without a field that is wanted.
fn check<'a>(
    path: &str,
    there: impl Iterator<Item = &'a str>,
    taken: &[&str],
    wanted: &CloudFields,
) -> Result<(), SelectError> {
    let Some(name) = wanted.names().find(|name| !taken.contains(name)) else {
        return Ok(());
    };
    Err(SelectError::missing(name, &format!("`{path}`"), there))
}
