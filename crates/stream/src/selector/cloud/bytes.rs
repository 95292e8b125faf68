//! Clouds of `std/media/v1/PointCloud`, one of dora's std types.
//!
//! The bytes of a message must be exactly those of its points, else the message is refused.

use crate::selector::path::{Path, is_bytes};
use crate::selector::{SelectError, XYZ};
use crate::{Cells, Message, key};
use arrow_array::StructArray;
use arrow_schema::{DataType, Fields};
use robocache_device::Dtype;

/// Paths of the point bytes, the width and the height in a `std/media/v1/PointCloud`. The metadata `fields` and `dtype`
/// describe the points; without them a point is x, y, z in float32.
#[derive(Debug)]
pub(in crate::selector) struct Bytes {
    points: Path,
    width: Path,
    height: Path,
}

impl Bytes {
    pub(crate) fn find(fields: &Fields) -> Result<Self, SelectError> {
        let size = |name| Ok(Path::typed(name, fields, DataType::is_integer, "an integer")?.0);
        Ok(Self {
            points: Path::typed("points", fields, is_bytes, "binary, or a list of uint8")?.0,
            width: size("width")?,
            height: size("height")?,
        })
    }

    /// Writes the points of `payload` to `message`, as a flat array `[N, C]`.
    pub(crate) fn read(&self, payload: &StructArray, message: &mut Message) -> Result<(), SelectError> {
        let bytes = self.points.bytes(payload)?;
        let points = self.width.size(payload)? * self.height.size(payload)?;
        let header = &mut message.header;
        let named = header.fields.get().map_or(0, <[String]>::len);
        let fields = if named == 0 { XYZ.len() } else { named };
        let dtype = match header.dtype.get() {
            None => Dtype::Float32,
            Some(name) => Dtype::from_name(name)
                .filter(|dtype| *dtype != Dtype::BFloat16)
                .ok_or_else(|| {
                    let path = format!("metadata {}", key::dtype);
                    SelectError::value(path, name, "a type of numbers but bfloat16")
                })?,
        };
        if Some(bytes.len()) != points.checked_mul(fields * dtype.size()) {
            let allowed = format!(
                "{points} points of {fields} {dtype}; other fields of a point stand in the metadata `{}`, another type in `{}`",
                key::fields,
                key::dtype
            );
            return Err(SelectError::value(
                self.points.text(),
                format!("{} bytes", bytes.len()),
                allowed,
            ));
        }
        if named == 0 {
            header.fields.set(XYZ);
        }
        header.shape.set([points as i64, fields as i64]);
        message.rows = points * fields;
        message.add_column("", dtype, Cells::One).data.copy_from(bytes);
        Ok(())
    }
}
