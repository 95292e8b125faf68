//! Dotted paths to fields of Arrow structs of one row, such as `header.stamp`.
//!
//! A path is found once in a schema, and followed in every message of this schema. A null on the way is an error.

use super::SelectError;
use crate::arrow::dtype_of;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type, UInt8Type};
use arrow_array::{Array, ArrayRef, GenericListArray, OffsetSizeTrait, StructArray, downcast_integer_array};
use arrow_schema::{DataType, FieldRef, Fields};
use robocache_device::Dtype;
use std::ops::Range;

/// Dotted path of a field in a struct, as text and as indices of fields.
#[derive(Clone, Debug)]
pub struct Path {
    text: String,
    steps: Vec<usize>,
}

impl Path {
    /// Finds the field at the dotted path `text` below `fields`, and returns the path and the field. The error names the first part
    /// of the path that is missing.
    pub fn find(text: &str, fields: &Fields) -> Result<(Self, FieldRef), SelectError> {
        let (mut steps, mut at, mut fields) = (Vec::new(), 0, fields);
        loop {
            let end = text[at..].find('.').map_or(text.len(), |dot| at + dot);
            let Some((step, field)) = fields.find(&text[at..end]) else {
                let there = fields.iter().map(|field| field.name().as_str());
                return Err(SelectError::missing(&text[..end], &within(&text[..at]), there));
            };
            steps.push(step);
            if end == text.len() {
                let text = text.to_owned();
                return Ok((Self { text, steps }, field.clone()));
            }
            let DataType::Struct(within) = field.data_type() else {
                return Err(SelectError::value(&text[..end], field.data_type(), "a struct"));
            };
            (fields, at) = (within, end + 1);
        }
    }

    /// Finds a field as [`find`](Self::find) does. Refuses a field whose type is not one that the caller allows.
    pub(super) fn typed(
        text: &str,
        fields: &Fields,
        fits: impl Fn(&DataType) -> bool,
        allowed: &str,
    ) -> Result<(Self, FieldRef), SelectError> {
        let (path, field) = Self::find(text, fields)?;
        match fits(field.data_type()) {
            true => Ok((path, field)),
            false => Err(SelectError::value(text, field.data_type(), allowed)),
        }
    }

    /// Returns the path of the field `name` in the struct at this path; `step` is the index of this field in the struct.
    pub fn child(&self, step: usize, name: &str) -> Self {
        let steps = self.steps.iter().copied().chain([step]).collect();
        let text = format!("{}.{name}", self.text);
        Self { text, steps }
    }

    /// The text of the path, with dots between the names.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the array of the field in `payload`, which must have the schema that the path was found in. Fails if a struct
    /// around the field is null.
    pub fn follow<'a>(&self, payload: &'a StructArray) -> Result<&'a ArrayRef, SelectError> {
        let mut within = payload;
        for (depth, &step) in self.steps.iter().enumerate() {
            let column = within.column(step);
            if depth + 1 == self.steps.len() {
                return Ok(column);
            }
            match column.as_struct_opt() {
                Some(inner) if !inner.is_null(0) => within = inner,
                _ => break,
            }
        }
        Err(self.is_null())
    }

    /// Returns the elements of the list in the field: an array, and their range of indices in it. The field must be a list.
    pub(super) fn list<'a>(&self, payload: &'a StructArray) -> Result<(&'a ArrayRef, Range<usize>), SelectError> {
        first_row(self.follow(payload)?).ok_or_else(|| self.is_null())
    }

    /// The bytes of the field, which must be a list of uint8 or binary.
    pub(super) fn bytes<'a>(&self, payload: &'a StructArray) -> Result<&'a [u8], SelectError> {
        bytes(self.follow(payload)?).ok_or_else(|| self.is_null())
    }

    /// The integer in the field.
    pub(super) fn integer(&self, payload: &StructArray) -> Result<i128, SelectError> {
        integer(self.follow(payload)?, 0).ok_or_else(|| self.is_null())
    }

    /// The integer in the field as a size. Refuses negative integers, and integers beyond 32 bits.
    pub(super) fn size(&self, payload: &StructArray) -> Result<usize, SelectError> {
        size(self.integer(payload)?, || self.text.clone())
    }

    /// Returns the error of a null at this path.
    pub fn is_null(&self) -> SelectError {
        SelectError::value(self.text(), "null", "a value")
    }
}

/// Converts an integer to a size. Refuses negative integers, and integers beyond 32 bits; `path` names the field for the error.
pub(super) fn size(value: i128, path: impl FnOnce() -> String) -> Result<usize, SelectError> {
    let no_size = |_| SelectError::value(path(), value, "0 or more");
    Ok(u32::try_from(value).map_err(no_size)? as usize)
}

fn within(path: &str) -> String {
    match path.strip_suffix('.') {
        None => "the message".to_owned(),
        Some(path) => format!("`{path}`"),
    }
}

/// Path and type of a field that is a number, or a list of numbers.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    pub path: Path,
    pub dtype: Dtype,
    pub is_list: bool,
}

/// The field that describes the elements of a list type of any kind; `None` for a type that is not a list.
pub(super) fn item_of(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => Some(item),
        _ => None,
    }
}

/// Returns the elements of the list in the first row: an array, and their range of indices in it. `None` if the row is null.
fn first_row(array: &ArrayRef) -> Option<(&ArrayRef, Range<usize>)> {
    fn ends<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> (&ArrayRef, Range<usize>) {
        let offsets = lists.value_offsets();
        (lists.values(), offsets[0].as_usize()..offsets[1].as_usize())
    }
    if array.is_null(0) {
        return None;
    }
    Some(match array.data_type() {
        DataType::List(_) => ends(array.as_list::<i32>()),
        DataType::LargeList(_) => ends(array.as_list::<i64>()),
        _ => {
            let lists = array.as_fixed_size_list_opt()?;
            let first = lists.value_offset(0) as usize;
            (lists.values(), first..first + lists.value_length() as usize)
        }
    })
}

impl Numbers {
    /// Describes the field at `path`; `None` if the field does not hold numbers.
    pub(super) fn of(path: &Path, field: &FieldRef) -> Option<Self> {
        let item = item_of(field.data_type());
        Some(Self {
            path: path.clone(),
            dtype: dtype_of(item.unwrap_or(field).data_type())?,
            is_list: item.is_some(),
        })
    }

    /// Returns the numbers in a payload: an array, and their range of indices in it. Null numbers are nulls of the array.
    pub(super) fn find<'a>(&self, payload: &'a StructArray) -> Result<(&'a ArrayRef, Range<usize>), SelectError> {
        match self.is_list {
            true => self.path.list(payload),
            false => Ok((self.path.follow(payload)?, 0..1)),
        }
    }
}

/// Element `i` of an array of numbers, as the nearest float64; NaN if the element is null.
pub fn number(array: &dyn Array, i: usize) -> f64 {
    if array.is_null(i) {
        return f64::NAN;
    }
    match array.data_type() {
        DataType::Float16 => array.as_primitive::<Float16Type>().value(i).to_f64(),
        DataType::Float32 => f64::from(array.as_primitive::<Float32Type>().value(i)),
        DataType::Float64 => array.as_primitive::<Float64Type>().value(i),
        _ => integer(array, i).map_or(f64::NAN, |value| value as f64),
    }
}

/// Element `i` of an array of integers; `None` if the element is null or not an integer.
pub fn integer(array: &dyn Array, i: usize) -> Option<i128> {
    if array.is_null(i) {
        return None;
    }
    downcast_integer_array!(array => Some(array.value(i).into()), _ => None)
}

/// True if the elements of an array of this type are texts.
pub(super) fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_text(values),
        other => matches!(other, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View),
    }
}

/// Element `i` of an array of texts; `None` if the element is null.
pub(super) fn text(array: &dyn Array, i: usize) -> Option<&str> {
    if array.is_null(i) {
        return None;
    }
    match array.data_type() {
        DataType::Utf8 => Some(array.as_string::<i32>().value(i)),
        DataType::LargeUtf8 => Some(array.as_string::<i64>().value(i)),
        DataType::Utf8View => Some(array.as_string_view().value(i)),
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary_opt()?;
            text(
                dictionary.values(),
                usize::try_from(integer(dictionary.keys(), i)?).ok()?,
            )
        }
        _ => None,
    }
}

/// True if the rows of an array of this type are bytes.
pub(super) fn is_bytes(data_type: &DataType) -> bool {
    match item_of(data_type) {
        Some(item) => item.data_type() == &DataType::UInt8,
        None => matches!(data_type, DataType::Binary | DataType::LargeBinary),
    }
}

/// The bytes of the first row; `None` if the row is not bytes, or if the row or a byte is null.
fn bytes(array: &ArrayRef) -> Option<&[u8]> {
    if array.is_null(0) {
        return None;
    }
    match array.data_type() {
        DataType::Binary => Some(array.as_binary::<i32>().value(0)),
        DataType::LargeBinary => Some(array.as_binary::<i64>().value(0)),
        _ => {
            let (values, range) = first_row(array)?;
            let values = values.as_primitive_opt::<UInt8Type>()?;
            (values.null_count() == 0).then(|| &values.values()[range])
        }
    }
}
