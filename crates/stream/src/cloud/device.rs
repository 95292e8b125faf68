//! Point clouds in memory of a device: a buffer, and the type, offset and stride of each field.
//!
//! Every field of a cloud is aligned to its type and lies within the buffer.

use super::{PointCloudError, TensorColumns, XYZ, find, missing};
use crate::{DeviceColumn, Message};
use robocache_device::Dtype;
use robocache_device::gpu::DeviceBuf;

/// Point cloud that borrows its points from memory of a device.
#[derive(Clone, Copy)]
pub struct DeviceCloud<'a> {
    buffer: &'a DeviceBuf,
    points: usize,
    /// Message that holds the points; `None` for a cloud made from a buffer.
    message: Option<&'a Message>,
    fields: Fields<'a>,
}

#[derive(Clone, Copy)]
enum Fields<'a> {
    Listed(&'a [DeviceField<'a>]),
    Tensor(TensorColumns<'a>, Dtype),
}

/// One field of a point cloud on a device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceField<'a> {
    /// Name of the field, such as `x`.
    pub name: &'a str,
    /// Type of the field's values.
    pub dtype: Dtype,
    /// Offset of the first point's value in the buffer, bytes.
    pub at: usize,
    /// Distance from the value of a point to that of the next point, bytes.
    pub stride: usize,
}

/// The error of a field that does not lie within the buffer, or is not aligned to its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "field `{name}` of {points} points, {dtype} at byte {at} and every {stride} bytes, in a buffer of {capacity} \
     bytes (allowed: both multiples of the type's size, and the last value within the buffer)"
)]
pub struct DeviceCloudError {
    /// Name of the field that does not fit.
    pub name: String,
    /// Type of the field's values.
    pub dtype: Dtype,
    /// Offset of the field's first value in the buffer, bytes.
    pub at: usize,
    /// Distance from the value of a point to that of the next point, bytes.
    pub stride: usize,
    /// Number of points of the cloud.
    pub points: usize,
    /// Size of the buffer, bytes.
    pub capacity: usize,
}

impl<'a> DeviceCloud<'a> {
    /// Creates a cloud of `points` points in a buffer. The caller must list `x`, `y` and `z` among the fields; this is not checked.
    ///
    /// # Errors
    /// [`DeviceCloudError`] if a field is not within the buffer, is not aligned to its type, or has a stride beyond 32 bits.
    pub fn new(buffer: &'a DeviceBuf, points: usize, fields: &'a [DeviceField<'a>]) -> Result<Self, DeviceCloudError> {
        for field in fields {
            let size = field.dtype.size();
            let is_aligned = field.at.is_multiple_of(size) && field.stride.is_multiple_of(size);
            let end = points
                .saturating_sub(1)
                .checked_mul(field.stride)
                .and_then(|bytes| bytes.checked_add(field.at + size));
            let fits = points == 0 || end.is_some_and(|end| end <= buffer.capacity());
            if !is_aligned || !fits || field.stride > u32::MAX as usize {
                return Err(DeviceCloudError {
                    name: field.name.to_owned(),
                    dtype: field.dtype,
                    at: field.at,
                    stride: field.stride,
                    points,
                    capacity: buffer.capacity(),
                });
            }
        }
        Ok(Self {
            buffer,
            points,
            message: None,
            fields: Fields::Listed(fields),
        })
    }

    pub(super) fn from_tensor(message: &'a Message, tensor: &'a DeviceColumn) -> Result<Self, PointCloudError> {
        let (columns, points) = TensorColumns::of(message, tensor.len)?;
        let cloud = Self {
            buffer: &tensor.memory,
            points,
            message: Some(message),
            fields: Fields::Tensor(columns, tensor.dtype),
        };
        XYZ.into_iter().try_for_each(|name| cloud.field(name).map(|_| ()))?;
        Ok(cloud)
    }

    /// Returns the cloud of the first `points` points; of all points if there are fewer.
    pub fn first(self, points: usize) -> Self {
        Self {
            points: points.min(self.points),
            ..self
        }
    }

    /// The device memory that holds the points.
    pub fn buffer(&self) -> &'a DeviceBuf {
        self.buffer
    }

    /// The number of points of the cloud.
    pub fn len(&self) -> usize {
        self.points
    }

    /// True if the cloud has no points.
    pub fn is_empty(&self) -> bool {
        self.points == 0
    }

    /// The capture time of the cloud, ns; `None` if the cloud has no message, or its message has no stamp.
    pub fn stamp_ns(&self) -> Option<i64> {
        self.message?.header.timestamp_ns.get()
    }

    /// The name of the coordinate frame; `None` if no message names one.
    pub fn frame_id(&self) -> Option<&'a str> {
        self.message?.header.frame_id.get()
    }

    /// The field `name` of the cloud.
    ///
    /// # Errors
    /// [`PointCloudError::Missing`] if the cloud lacks the field; [`PointCloudError::Twice`] if a tensor has two fields of this
    /// name.
    pub fn field(&self, name: &str) -> Result<DeviceField<'a>, PointCloudError> {
        match self.fields {
            Fields::Listed(fields) => {
                let found = fields.iter().find(|field| field.name == name).copied();
                found.ok_or_else(|| missing(name, fields.iter().map(|field| field.name)))
            }
            Fields::Tensor(columns, dtype) => {
                let Some(i) = find(name, columns.names())? else {
                    return Err(missing(name, columns.names()));
                };
                Ok(DeviceField {
                    name: columns.names().nth(i).unwrap_or_default(),
                    dtype,
                    at: i * dtype.size(),
                    stride: columns.len * dtype.size(),
                })
            }
        }
    }
}
