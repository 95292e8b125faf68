use robocache_device::Dtype;
use robocache_yaml::listed;

/// A message that is not a point cloud, or lacks a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointCloudError {
    /// A tensor has no names for its columns.
    #[error(
        "a tensor without `fields` must have the `shape` [N, 3], x y z, but its shape is {shape:?} and its length {length}"
    )]
    NoFields {
        /// The shape that came.
        shape: Vec<i64>,
        /// The elements that came.
        length: usize,
    },
    /// The shape belongs neither to the fields nor to the length.
    #[error("shape {shape:?} does not fit: {length} elements with {fields} fields must be [{}, {fields}]", length / fields)]
    Shape {
        /// The shape that came.
        shape: Vec<i64>,
        /// The elements that came.
        length: usize,
        /// The number of fields.
        fields: usize,
    },
    /// The elements are not a whole number of points.
    #[error("{length} elements are not a whole number of points of {fields} fields")]
    Length {
        /// The elements that came.
        length: usize,
        /// The number of fields.
        fields: usize,
    },
    /// A field that is needed is not there.
    #[error("no field `{name}`: the cloud has {}", listed(fields))]
    Missing {
        /// The field.
        name: String,
        /// The fields that came.
        fields: Vec<String>,
    },
    /// A field that is needed is not of a type of numbers.
    #[error("field `{name}` is {came} ({why})")]
    Type {
        /// The field.
        name: String,
        /// Its Arrow type.
        came: String,
        /// The reason.
        why: &'static str,
    },
    /// A field is there twice.
    #[error("field `{name}` is there twice (each once)")]
    Twice {
        /// The field.
        name: String,
    },
    /// The points are on a device, and are needed on the host.
    #[error("the points are in the memory of a device (allowed: in host memory)")]
    OnDevice,
    /// A column is not one number for each point.
    #[error("column `{name}` has {length} values of {dtype} for {rows} points (one number for each point)")]
    Column {
        /// The column.
        name: String,
        /// Its values.
        length: usize,
        /// Their type.
        dtype: Dtype,
        /// The rows of the struct.
        rows: usize,
    },
}
