//! Conversion of point clouds that other software sends, as Arrow structs of one row, to messages with one number per point and
//! column. A cloud that lacks a wanted field is refused.

mod bytes;
mod lists;
mod point_cloud2;
mod times;

pub(super) use bytes::Bytes;
pub(super) use lists::Lists;
pub use point_cloud2::DATATYPES;
pub(super) use point_cloud2::PointCloud2;
pub(super) use times::Times;

use super::{CloudFields, SelectError};
use robocache_device::Dtype;

/// Name of the column with the time of each point, ns since the message's `timestamp_ns`.
const T_NS: &str = "t_ns";

/// Column that is made from a field of a cloud.
#[derive(Debug, PartialEq)]
struct ColumnChoice {
    /// Index of the field among the cloud's fields.
    field: usize,
    /// Name of the column.
    name: String,
    /// True for the field with the points' times. The field becomes `t_ns` if its times can be converted. If not, it stays
    /// unchanged if all fields are wanted, and the cloud is refused if only named fields are wanted.
    is_time: bool,
}

/// Chooses the columns to make from fields of these names and types, in field order. Also returns the reader of the points'
/// times; `None` if no field has times that become `t_ns`.
fn columns(fields: &[(&str, Dtype)], wanted: &CloudFields) -> (Vec<ColumnChoice>, Option<Times>) {
    let has_t_ns = fields.iter().any(|(name, _)| *name == T_NS);
    let mut times: Option<Times> = None;
    let mut columns = Vec::new();
    for (field, &(name, dtype)) in fields.iter().enumerate() {
        let is_time = !has_t_ns && times.is_none() && wanted.has(T_NS) && {
            times = Times::of(name, dtype);
            times.is_some()
        };
        if is_time {
            let name = T_NS.to_owned();
            columns.push(ColumnChoice { field, name, is_time });
        } else if let Some(times) = &mut times
            && Times::of(name, dtype).is_some()
        {
            times.pass_over(name);
        }
        if wanted.has(name) && !(is_time && *wanted == CloudFields::All) {
            let name = name.to_owned();
            let is_time = false;
            columns.push(ColumnChoice { field, name, is_time });
        }
    }
    (columns, times)
}

/// Checks that the columns `taken` include every wanted field. The error names the first missing field, and `there`, the fields
/// that the cloud has.
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
