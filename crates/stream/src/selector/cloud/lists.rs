//! Point clouds whose fields are lists named in `from`, or whose points are a list of structs, as in a CustomMsg of Livox.
//!
//! All lists of a message must have the same length, which is the number of points.

use super::times::{Number, Times};
use super::{ColumnChoice, check, columns};
use crate::arrow::dtype_of;
use crate::selector::path::{Path, integer, item_of, number};
use crate::selector::{CloudFields, SelectError};
use crate::{Message, arrow};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, StructArray};
use arrow_schema::{DataType, Fields};
use robocache_device::Dtype;

/// Reader of clouds whose N points are lists of N values, one for each field, or a list of N structs.
#[derive(Debug)]
pub(in crate::selector) struct Lists {
    columns: Vec<ListColumn>,
    pub times: Option<Times>,
    /// Path of the time that the points' times count from, ns; `None` if the struct has no field for it.
    base: Option<Path>,
    wanted: CloudFields,
}

#[derive(Debug)]
struct ListColumn {
    path: Path,
    /// Index of the column's field in the structs of the list at `path`; `None` if the list holds numbers.
    part: Option<usize>,
    name: String,
    is_time: bool,
}

impl Lists {
    /// Finds the lists of a cloud at these paths. A list of numbers becomes a column with the last name of its path. A list of
    /// structs becomes a column for each field of the structs.
    pub(crate) fn find<'a>(
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
                    // A field of another type is refused only if it is wanted.
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
        let (columns, times) = columns(&typed, wanted);
        let names: Vec<&str> = columns.iter().map(|taken| taken.name.as_str()).collect();
        check("from", typed.iter().map(|(name, _)| *name), &names, wanted)?;
        let column = |taken: ColumnChoice| ListColumn {
            path: found[taken.field].0.clone(),
            part: found[taken.field].1,
            name: taken.name,
            is_time: taken.is_time,
        };
        Ok(Self {
            columns: columns.into_iter().map(column).collect(),
            times,
            base: None,
            wanted: wanted.clone(),
        })
    }

    /// Finds the points of a Livox CustomMsg, whose times count from `timebase`.
    pub(crate) fn livox(fields: &Fields, wanted: &CloudFields) -> Result<Self, SelectError> {
        let (base, _) = Path::typed("timebase", fields, DataType::is_integer, "an integer")?;
        Ok(Self {
            base: Some(base),
            ..Self::find(["points"], fields, wanted)?
        })
    }

    /// Writes the points of `payload` to `message`, as a struct with a column for each field. The points' times become ns since
    /// the cloud's stamp, `stamp_ns`, whether they were sent relative to it or as absolute times.
    pub(crate) fn read(
        &mut self,
        payload: &StructArray,
        stamp_ns: i64,
        message: &mut Message,
    ) -> Result<(), SelectError> {
        message.header.forget_form();
        if let (Some(times), Some(base)) = (&mut self.times, &self.base) {
            times.check_base(base.text(), base.integer(payload)?, stamp_ns);
        }
        for (i, column) in self.columns.iter().enumerate() {
            let (values, range) = column.path.list(payload)?;
            if i == 0 {
                message.rows = range.len();
            } else if range.len() != message.rows {
                let allowed = format!("{}, as many as `{}` has", message.rows, self.columns[0].path.text());
                let came = format!("{} values", range.len());
                return Err(SelectError::value(column.path.text(), came, allowed));
            }
            let values: &ArrayRef = match column.part {
                None => values,
                Some(_) if values.null_count() > 0 => return Err(column.path.is_null()),
                Some(part) => values.as_struct().column(part),
            };
            let mut name = column.name.as_str();
            if let Some(times) = self.times.as_mut().filter(|_| column.is_time) {
                let number = |i| match integer(&**values, i) {
                    Some(whole) => Number::Whole(i64::try_from(whole).unwrap_or(i64::MAX)),
                    None => Number::Float(number(&**values, i)),
                };
                let numbers = range.clone().map(number);
                if times.look(numbers.clone(), range.len(), stamp_ns, &self.wanted)? {
                    times.add_to(message, numbers, range.len(), stamp_ns);
                    continue;
                }
                name = times.name();
            }
            arrow::read_range(name, values, range, message)
                .map_err(|why| SelectError::value(column.path.text(), values.data_type(), why))?;
        }
        Ok(())
    }
}
