use super::{Conversion, check, columns};
use crate::arrow::dtype_of;
use crate::selector::path::{Path, item_of, number};
use crate::selector::{CloudFields, SelectError};
use crate::{Cells, Message, arrow};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, StructArray};
use arrow_schema::{DataType, Fields};
use robocache_device::Dtype;

/// A cloud of lists of N values each, or of a list of N structs.
#[derive(Debug)]
pub(in crate::selector) struct Lists(Vec<ListColumn>);

#[derive(Debug)]
struct ListColumn {
    path: Path,
    /// Index of the field in the structs, for a list of structs.
    part: Option<usize>,
    name: String,
    conversion: Conversion,
}

impl Lists {
    /// The one at these paths: a list of numbers is a column by the last name of its path; of structs, each of their fields
    /// is one.
    pub fn find<'a>(
        paths: impl IntoIterator<Item = &'a str>,
        fields: &Fields,
        wanted: &CloudFields,
    ) -> Result<Self, SelectError> {
        let mut found: Vec<(Path, Option<usize>, String, Dtype)> = Vec::new();
        for text in paths {
            let (path, field) = Path::find(text, fields)?;
            let refused = || SelectError::value(text, field.data_type(), "a list of numbers, or of structs of numbers");
            let item = item_of(field.data_type()).ok_or_else(refused)?;
            if let DataType::Struct(parts) = item.data_type() {
                for (part, field) in parts.iter().enumerate() {
                    // Another one is in the way only of whoever wants it.
                    if let Some(dtype) = dtype_of(field.data_type()) {
                        found.push((path.clone(), Some(part), field.name().clone(), dtype));
                    }
                }
            } else {
                let dtype = dtype_of(item.data_type()).ok_or_else(refused)?;
                found.push((path, None, field.name().clone(), dtype));
            }
        }
        let typed: Vec<(&str, Dtype)> = found.iter().map(|(.., name, dtype)| (name.as_str(), *dtype)).collect();
        let columns = columns(&typed, wanted);
        let taken: Vec<&str> = columns.iter().map(|(_, name, _)| name.as_str()).collect();
        check("from", typed.iter().map(|(name, _)| *name), &taken, wanted)?;
        let column = |(i, name, conversion): (usize, String, Conversion)| ListColumn {
            path: found[i].0.clone(),
            part: found[i].1,
            name,
            conversion,
        };
        Ok(Self(columns.into_iter().map(column).collect()))
    }

    /// As [`PointCloud2::read`].
    pub fn read(&self, payload: &StructArray, stamp_ns: i64, message: &mut Message) -> Result<(), SelectError> {
        message.header.forget_form();
        for (i, column) in self.0.iter().enumerate() {
            let (values, range) = column.path.list(payload)?;
            if i == 0 {
                message.rows = range.len();
            } else if range.len() != message.rows {
                let allowed = format!("{}, as many as `{}` has", message.rows, self.0[0].path.text());
                let came = format!("{} values", range.len());
                return Err(SelectError::value(column.path.text(), came, allowed));
            }
            let values: &ArrayRef = match column.part {
                None => values,
                Some(_) if values.null_count() > 0 => return Err(column.path.is_null()),
                Some(part) => values.as_struct().column(part),
            };
            let stamp_ns = match column.conversion {
                Conversion::AsTheyCome => {
                    arrow::read_range(&column.name, values, range, message)
                        .map_err(|why| SelectError::value(column.path.text(), values.data_type(), why))?;
                    continue;
                }
                Conversion::Seconds => 0,
                Conversion::Absolute => stamp_ns,
            };
            let to = message.add_column(&column.name, Dtype::Float64, Cells::One);
            to.data.resize(range.len() * size_of::<f64>());
            let to: &mut [f64] = bytemuck::cast_slice_mut(to.data.bytes_mut());
            to.iter_mut()
                .zip(range)
                .for_each(|(to, i)| *to = Conversion::ns_after(number(&**values, i), stamp_ns));
        }
        Ok(())
    }
}
