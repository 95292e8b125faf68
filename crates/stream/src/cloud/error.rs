//! The error of a message that is not a point cloud, or lacks a field that an operation needs.

use robocache_device::Dtype;
use robocache_yaml::listed;

/// The reason why a message is not a point cloud, or lacks a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointCloudError {
    /// A tensor has neither `fields`, the names of its columns, nor the shape `[N, 3]`.
    #[error(
        "a tensor without `fields`, of `shape` {shape:?} and {length} values (allowed: the `shape` [N, 3], x y z; otherwise the \
         names of its columns in `fields`)"
    )]
    NoFields {
        /// Received `shape`; empty if the message has none.
        shape: Vec<i64>,
        /// Number of elements in the message.
        length: usize,
    },
    /// The shape is not `[points, fields]`.
    #[error("`shape` {shape:?} for {length} values of {fields} `fields` (allowed: [{}, {fields}])", length / fields)]
    Shape {
        /// Received `shape`.
        shape: Vec<i64>,
        /// Number of elements in the message.
        length: usize,
        /// Number of fields of a point.
        fields: usize,
    },
    /// The number of elements is not a multiple of the number of fields of a point.
    #[error("{length} values are not a whole number of points of {fields} `fields` (allowed: {fields} values a point)")]
    Length {
        /// Number of elements in the message.
        length: usize,
        /// Number of fields of a point.
        fields: usize,
    },
    /// A field that an operation needs is missing.
    #[error("no field `{name}`: the cloud has {}", listed(fields))]
    Missing {
        /// Name of the missing field.
        name: String,
        /// Names of the fields that the message has.
        fields: Vec<String>,
    },
    /// A field that an operation needs is not numeric.
    #[error("field `{name}` is {came} ({why})")]
    Type {
        /// Name of the field that is not numeric.
        name: String,
        /// Type of the field, as text.
        came: String,
        /// Allowed types, or the reason why the field can't be used.
        why: &'static str,
    },
    /// Two fields have the same name.
    #[error("field `{name}` occurs twice (allowed: once)")]
    Twice {
        /// Name that two fields have.
        name: String,
    },
    /// The points are in memory of a device, and the operation needs them on the host.
    #[error(
        "the points are in the memory of a device (allowed: in host memory, as by `residence: host` of the sender)"
    )]
    OnDevice,
    /// A column does not have one number for each point.
    #[error("column `{name}` has {length} values of {dtype} for {rows} points (allowed: one number for each point)")]
    Column {
        /// Name of the column.
        name: String,
        /// Number of values in the column.
        length: usize,
        /// Type of the column's values.
        dtype: Dtype,
        /// Number of points of the cloud.
        rows: usize,
    },
}
