//! Point clouds in host memory: the fields x, y, z, intensity and so on as strided views of a message's columns.
//!
//! Fields borrow the message's memory. Values are converted to float32 or float64 only when they are read, to the
//! nearest value.

use super::{FieldType, PointCloudError, TensorColumns, XYZ, find, missing};
use crate::{Cells, Data, Message};
use half::{bf16, f16};
use robocache_device::{Dtype, Values};

/// Point cloud that borrows its points from a message in host memory.
#[derive(Clone, Copy)]
pub struct HostCloud<'a> {
    message: &'a Message,
    /// Interleaved values and column names of a cloud that is a tensor; `None` for a struct, which has one column per field.
    tensor: Option<(Values<'a>, TensorColumns<'a>)>,
    points: usize,
    xyz: [HostField<'a>; 3],
}

/// The values of one field of a cloud, in the order of its points.
#[derive(Clone, Copy, Debug)]
pub struct HostField<'a> {
    values: Values<'a>,
    first: usize,
    stride: usize,
    sent: Dtype,
}

impl<'a> HostCloud<'a> {
    /// Reads a message as a cloud. Nothing is copied or allocated.
    ///
    /// # Errors
    /// A [`PointCloudError`] that names the received and the allowed form.
    pub fn from_message(message: &'a Message) -> Result<Self, PointCloudError> {
        if let Data::Device(_) = message.data() {
            return Err(PointCloudError::OnDevice);
        }
        let (tensor, points) = match message.flat() {
            Some(values) => {
                let (columns, points) = TensorColumns::of(message, values.len())?;
                (Some((values, columns)), points)
            }
            None => (None, points_of_struct(message)),
        };
        let mut cloud = Self {
            message,
            tensor,
            points,
            xyz: [HostField::none(); 3],
        };
        for (axis, name) in XYZ.into_iter().enumerate() {
            cloud.xyz[axis] = cloud.field(name)?;
        }
        Ok(cloud)
    }

    /// The number of points of the cloud.
    pub fn len(&self) -> usize {
        self.points
    }

    /// True if the cloud has no points.
    pub fn is_empty(&self) -> bool {
        self.points == 0
    }

    /// The capture time of the cloud, ns; `None` if the message has no stamp.
    pub fn stamp_ns(&self) -> Option<i64> {
        self.message.header.timestamp_ns.get()
    }

    /// The name of the coordinate frame; `None` if the message does not name one.
    pub fn frame_id(&self) -> Option<&'a str> {
        self.message.header.frame_id.get()
    }

    /// The size of the message's payload, bytes.
    pub fn bytes(&self) -> usize {
        self.message.bytes()
    }

    /// The fields x, y and z in the type in which they are stored.
    pub fn xyz(&self) -> &[HostField<'a>; 3] {
        &self.xyz
    }

    /// The values of all columns, interleaved, and the number of columns, if the cloud is a tensor; else `None`.
    pub fn tensor(&self) -> Option<(Values<'a>, usize)> {
        self.tensor.map(|(values, columns)| (values, columns.len))
    }

    /// The field `name` of the cloud.
    ///
    /// # Errors
    /// [`PointCloudError::Missing`], [`PointCloudError::Type`] or [`PointCloudError::Twice`], or
    /// [`PointCloudError::Column`] if the field is not one number for each point.
    pub fn field(&self, name: &str) -> Result<HostField<'a>, PointCloudError> {
        match self.tensor {
            Some((values, columns)) => {
                let Some(first) = find(name, columns.names())? else {
                    return Err(self.missing(name, columns.names()));
                };
                let sent = self.message.columns().first().and_then(|column| column.integers);
                Ok(HostField {
                    values,
                    first,
                    stride: columns.len,
                    sent: sent.unwrap_or(values.dtype()),
                })
            }
            None => self.column(name),
        }
    }

    fn column(&self, name: &str) -> Result<HostField<'a>, PointCloudError> {
        let columns = self.message.columns();
        let Some(i) = find(name, columns.iter().map(|column| column.name.as_str()))? else {
            // A column of text is not a field.
            let fields = columns.iter().filter(|column| !matches!(column.cells, Cells::Text(_)));
            return Err(self.missing(name, fields.map(|column| column.name.as_str())));
        };
        let column = &columns[i];
        if let Cells::Text(_) = column.cells {
            return Err(PointCloudError::Type {
                name: name.to_owned(),
                came: "text".to_owned(),
                why: "allowed: arrays of floats or integers",
            });
        }
        let values = column.values();
        let is_one_each = matches!(column.cells, Cells::One | Cells::Fixed(1)) || self.message.rows == 1;
        if !is_one_each || values.len() != self.points {
            return Err(PointCloudError::Column {
                name: name.to_owned(),
                length: values.len(),
                dtype: column.dtype,
                rows: self.points,
            });
        }
        Ok(HostField {
            values,
            first: 0,
            stride: 1,
            sent: column.integers.unwrap_or(column.dtype),
        })
    }

    fn missing<'n>(&self, name: &str, fields: impl Iterator<Item = &'n str>) -> PointCloudError {
        let skipped = self.message.skipped();
        match skipped.iter().find(|skipped| skipped.field.name() == name) {
            Some(skipped) => PointCloudError::Type {
                name: name.to_owned(),
                came: skipped.field.data_type().to_string(),
                why: skipped.reason,
            },
            None => missing(name, fields),
        }
    }
}

/// The number of points of a struct: its number of rows or, in a struct of one row, the length of the list `x`.
fn points_of_struct(message: &Message) -> usize {
    match message.column(XYZ[0]) {
        Some(x) if message.rows == 1 => x.values().len(),
        _ => message.rows,
    }
}

impl<'a> HostField<'a> {
    fn none() -> Self {
        Self {
            values: Values::new(Dtype::UInt8, &[]),
            first: 0,
            stride: 1,
            sent: Dtype::UInt8,
        }
    }

    /// The array that contains the field's values. In a tensor, this array interleaves the values of all fields.
    pub fn values(&self) -> Values<'a> {
        self.values
    }

    /// The index in [`values`](Self::values) of the first point's value.
    pub fn first(&self) -> usize {
        self.first
    }

    /// The type of the field's values, in memory and as the sender sent them.
    pub fn field_type(&self) -> FieldType {
        FieldType {
            dtype: self.values.dtype(),
            sent: self.sent,
        }
    }

    /// The type of the field's values in memory.
    pub fn dtype(&self) -> Dtype {
        self.values.dtype()
    }

    /// Borrows the values from point `from` on, if they are contiguous float32; else `None`.
    pub fn as_f32(&self, from: usize) -> Option<&'a [f32]> {
        (self.stride == 1 && self.dtype() == Dtype::Float32)
            .then(|| &self.values.as_slice::<f32>()[self.first + from..])
    }

    /// Converts the values from point `from` on to the nearest float32 until `out` is full.
    pub fn to_f32(&self, from: usize, out: &mut [f32]) {
        self.values
            .strided_to_f32(self.first + from * self.stride, self.stride, out);
    }

    /// Converts the values from point `from` on to the nearest float64 until `out` is full.
    pub fn to_f64(&self, from: usize, out: &mut [f64]) {
        to_f64(self.values, self.first + from * self.stride, self.stride, out);
    }
}

/// Converts values `first`, `first + stride`, ... to the nearest float64 until `out` is full.
pub(crate) fn to_f64(values: Values<'_>, first: usize, stride: usize, out: &mut [f64]) {
    macro_rules! read {
        ($T:ty, $v:ident => $value:expr) => {{
            let source = &values.as_slice::<$T>()[first..];
            for (to, $v) in out.iter_mut().zip(source.iter().step_by(stride)) {
                *to = $value;
            }
        }};
    }
    match values.dtype() {
        Dtype::Float32 => read!(f32, v => f64::from(*v)),
        Dtype::Float64 => read!(f64, v => *v),
        Dtype::Float16 => read!(f16, v => v.to_f64()),
        Dtype::BFloat16 => read!(bf16, v => v.to_f64()),
        Dtype::Int8 => read!(i8, v => f64::from(*v)),
        Dtype::Int16 => read!(i16, v => f64::from(*v)),
        Dtype::Int32 => read!(i32, v => f64::from(*v)),
        Dtype::Int64 => read!(i64, v => *v as f64),
        Dtype::UInt8 => read!(u8, v => f64::from(*v)),
        Dtype::UInt16 => read!(u16, v => f64::from(*v)),
        Dtype::UInt32 => read!(u32, v => f64::from(*v)),
        Dtype::UInt64 => read!(u64, v => *v as f64),
    }
}
