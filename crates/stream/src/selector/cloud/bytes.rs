use crate::selector::path::{Path, bytes, integer, is_bytes};
use crate::selector::{SelectError, XYZ};
use crate::{Cells, Message, key};
use arrow_array::StructArray;
use arrow_schema::{DataType, Fields};
use robocache_device::Dtype;

/// A `std/media/v1/PointCloud`: bytes whose form the metadata say, or twelve of them a point.
#[derive(Debug)]
pub(in crate::selector) struct Bytes {
    points: Path,
    width: Path,
    height: Path,
}

impl Bytes {
    pub fn find(fields: &Fields) -> Result<Self, SelectError> {
        let find = |name: &str, fits: fn(&DataType) -> bool, allowed: &str| {
            let (path, field) = Path::find(name, fields)?;
            match fits(field.data_type()) {
                true => Ok(path),
                false => Err(SelectError::value(name, field.data_type(), allowed)),
            }
        };
        Ok(Self {
            points: find("points", is_bytes, "binary, or a list of uint8")?,
            width: find("width", DataType::is_integer, "an integer")?,
            height: find("height", DataType::is_integer, "an integer")?,
        })
    }

    /// Makes the payload of `message` a flat array `[N, C]`.
    pub fn read(&self, payload: &StructArray, message: &mut Message) -> Result<(), SelectError> {
        let size = |path: &Path| -> Result<u64, SelectError> {
            let value = integer(path.follow(payload)?, 0).ok_or_else(|| path.is_null())?;
            let no_size = |_| SelectError::value(path.text(), value, "0 or more");
            Ok(u32::try_from(value).map_err(no_size)?.into())
        };
        let bytes = bytes(self.points.follow(payload)?).ok_or_else(|| self.points.is_null())?;
        let points = usize::try_from(size(&self.width)? * size(&self.height)?).unwrap_or(usize::MAX);
        let header = &mut message.header;
        let fields = match header.fields.len() {
            0 => XYZ.len(),
            named => named,
        };
        let dtype = match header.dtype.get() {
            None => Some(Dtype::Float32),
            Some(name) => Dtype::from_name(name).filter(|dtype| *dtype != Dtype::BFloat16),
        };
        let Some(dtype) = dtype else {
            let path = format!("metadata {}", key::dtype);
            return Err(SelectError::value(
                path,
                header.dtype.as_str(),
                "a type of numbers but bfloat16",
            ));
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
        if header.fields.is_empty() {
            header.fields.set(XYZ);
        }
        header.shape.set([points as i64, fields as i64]);
        message.rows = points * fields;
        message.add_column("", dtype, Cells::One).data.copy_from(bytes);
        Ok(())
    }
}
