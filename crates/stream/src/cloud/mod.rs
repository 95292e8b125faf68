//! Point clouds, borrowed from the columns of a message or from memory of a device.
//!
//! A message is a cloud if it is a flat tensor `[N, C]` with `fields`, or a struct with one column per field. The struct has N rows
//! of a number each, or one row of lists of N numbers. The fields must include `x`, `y` and `z`. A tensor `[N, 3]` without
//! `fields` is x, y, z; without a `shape`, N follows from the length and the `fields`. Only a tensor can be on a device.

mod device;
mod error;
mod host;

pub use device::{DeviceCloud, DeviceCloudError, DeviceField};
pub use error::PointCloudError;
pub(crate) use host::to_f64;
pub use host::{HostCloud, HostField};

use crate::{Data, Message};
use robocache_device::Dtype;

const XYZ: [&str; 3] = ["x", "y", "z"];

/// A point cloud on the host or on a device.
#[derive(Clone, Copy)]
pub enum PointCloud<'a> {
    /// Points in host memory.
    Host(HostCloud<'a>),
    /// Points in memory of a device.
    Device(DeviceCloud<'a>),
}

/// The type of a cloud's field: in memory, and as the sender sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldType {
    /// Type of the field's values in memory.
    pub dtype: Dtype,
    /// Type in which the sender sent the field's values. It differs from `dtype` only for integers with nulls, which are
    /// float64 in memory.
    pub sent: Dtype,
}

impl<'a> PointCloud<'a> {
    /// Reads a message as a cloud. Nothing is copied or allocated.
    ///
    /// # Errors
    /// A [`PointCloudError`] that names the received and the allowed form.
    pub fn from_message(message: &'a Message) -> Result<Self, PointCloudError> {
        match message.data() {
            Data::Host(_) => HostCloud::from_message(message).map(Self::Host),
            Data::Device([tensor]) => DeviceCloud::from_tensor(message, tensor).map(Self::Device),
            Data::Device(_) => Err(PointCloudError::OnDevice),
        }
    }

    /// The number of points of the cloud.
    pub fn len(&self) -> usize {
        match self {
            Self::Host(cloud) => cloud.len(),
            Self::Device(cloud) => cloud.len(),
        }
    }

    /// True if the cloud has no points.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The capture time of the cloud, ns; `None` if the message has no stamp.
    pub fn stamp_ns(&self) -> Option<i64> {
        match self {
            Self::Host(cloud) => cloud.stamp_ns(),
            Self::Device(cloud) => cloud.stamp_ns(),
        }
    }

    /// The name of the coordinate frame; `None` if the message does not name one.
    pub fn frame_id(&self) -> Option<&'a str> {
        match self {
            Self::Host(cloud) => cloud.frame_id(),
            Self::Device(cloud) => cloud.frame_id(),
        }
    }

    /// The type of the field `name`.
    ///
    /// # Errors
    /// The errors of [`HostCloud::field`].
    pub fn field_type(&self, name: &str) -> Result<FieldType, PointCloudError> {
        match self {
            Self::Host(cloud) => cloud.field(name).map(|field| field.field_type()),
            Self::Device(cloud) => cloud.field(name).map(|field| FieldType {
                dtype: field.dtype,
                sent: field.dtype,
            }),
        }
    }
}

impl<'a> From<HostCloud<'a>> for PointCloud<'a> {
    fn from(cloud: HostCloud<'a>) -> Self {
        Self::Host(cloud)
    }
}

impl<'a> From<DeviceCloud<'a>> for PointCloud<'a> {
    fn from(cloud: DeviceCloud<'a>) -> Self {
        Self::Device(cloud)
    }
}

/// The columns of a flat tensor `[N, C]`, which are the fields of its points.
#[derive(Clone, Copy)]
struct TensorColumns<'a> {
    /// Names of the columns; empty if the columns are x, y, z.
    names: &'a [String],
    len: usize,
}

impl<'a> TensorColumns<'a> {
    /// Returns the columns and the number of points of a flat tensor of `length` elements.
    fn of(message: &'a Message, length: usize) -> Result<(Self, usize), PointCloudError> {
        let shape = message.header.shape.get().unwrap_or_default();
        let names = message.header.fields.get().unwrap_or_default();
        let len = match names.len() {
            // Without elements there are no points, whatever the columns.
            0 if shape.is_empty() && length == 0 => 3,
            0 if shape.len() == 2 && shape[1] == 3 => 3,
            0 => {
                return Err(PointCloudError::NoFields {
                    shape: shape.to_vec(),
                    length,
                });
            }
            named => named,
        };
        if !length.is_multiple_of(len) {
            return Err(PointCloudError::Length { length, fields: len });
        }
        let points = length / len;
        if !shape.is_empty() && shape != [points as i64, len as i64] {
            return Err(PointCloudError::Shape {
                shape: shape.to_vec(),
                length,
                fields: len,
            });
        }
        Ok((Self { names, len }, points))
    }

    fn names(self) -> impl Iterator<Item = &'a str> {
        let given = self.names.iter().map(String::as_str);
        given.chain(XYZ.into_iter().filter(move |_| self.names.is_empty()))
    }
}

/// Finds the index of the column `name`; `None` if there is no such column. Two columns of this name are an error.
fn find<'a>(name: &str, mut columns: impl Iterator<Item = &'a str>) -> Result<Option<usize>, PointCloudError> {
    let found = columns.position(|column| column == name);
    match found.is_some() && columns.any(|column| column == name) {
        true => Err(PointCloudError::Twice { name: name.to_owned() }),
        false => Ok(found),
    }
}

fn missing<'a>(name: &str, fields: impl Iterator<Item = &'a str>) -> PointCloudError {
    PointCloudError::Missing {
        name: name.to_owned(),
        fields: fields.map(str::to_owned).collect(),
    }
}
