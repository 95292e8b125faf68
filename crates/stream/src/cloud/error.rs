use robocache_device::Dtype;
use robocache_yaml::listed;

/// The reason why a message is not a point cloud, or lacks a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointCloudError {
    /// A tensor has no names for its columns.
    #[error(
        "a tensor without `fields` must have the `shape` [N, 3], x y z, but its shape is {shape:?} and its length {length}"
    )]
    NoFields {
        /// Shape in the message.
        shape: Vec<i64>,
        /// Number of elements in the message.
        length: usize,
    },
    /// The shape is not `[points, fields]`.
    #[error("shape {shape:?} does not fit: {length} elements with {fields} fields must be [{}, {fields}]", length / fields)]
    Shape {
        /// Shape in the message.
        shape: Vec<i64>,
        /// Number of elements in the message.
        length: usize,
        /// The number of fields.
        fields: usize,
    },
    /// The elements are not a whole number of points.
    #[error("{length} elements are not a whole number of points of {fields} fields")]
    Length {
        /// Number of elements in the message.
        length: usize,
        /// The number of fields.
        fields: usize,
    },
    /// A needed field is missing.
    #[error("no field `{name}`: the cloud has {}", listed(fields))]
    Missing {
        /// Name of the field.
        name: String,
        /// Names of the fields in the message.
        fields: Vec<String>,
    },
    /// A needed field is not numeric.
    #[error("field `{name}` is {came} ({why})")]
    Type {
        /// Name of the field.
        name: String,
        /// Type of the field.
        came: String,
        /// The types that are allowed, or another reason.
        why: &'static str,
    },
    /// Two fields have the same name.
    #[error("field `{name}` occurs twice (allowed: once)")]
    Twice {
        /// Name of the field.
        name: String,
    },
    /// The points are on a device, and are needed on the host.
    #[error("the points are in the memory of a device (allowed: in host memory)")]
    OnDevice,
    /// A column does not have one number for each point.
    #[error("column `{name}` has {length} values of {dtype} for {rows} points (one number for each point)")]
    Column {
        /// Name of the column.
        name: String,
        /// Number of values in the column.
        length: usize,
        /// Type of the values.
        dtype: Dtype,
        /// Number of points.
        rows: usize,
    },
}
