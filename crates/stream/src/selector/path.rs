//! Paths into structs of one row: found once in a schema, followed in every message.

use super::SelectError;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowDictionaryKeyType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, StructArray};
use arrow_schema::{DataType, FieldRef, Fields};
use robocache_device::Dtype;
use std::ops::Range;

/// Where a field stands in a struct.
#[derive(Clone, Debug)]
pub struct Path {
    text: String,
    steps: Vec<usize>,
}

impl Path {
    /// Finds a field below `fields`, and says what it is.
    pub fn find(text: &str, fields: &Fields) -> Result<(Self, FieldRef), SelectError> {
        let (mut steps, mut at, mut fields) = (Vec::new(), 0, fields);
        loop {
            let end = text[at..].find('.').map_or(text.len(), |dot| at + dot);
            let Some((step, field)) = fields.find(&text[at..end]) else {
                return Err(SelectError::Missing {
                    path: text[..end].to_owned(),
                    within: within(&text[..at]),
                    there: fields.iter().map(|field| field.name().clone()).collect(),
                });
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

    /// One field further down.
    pub fn child(&self, step: usize, name: &str) -> Self {
        let steps = self.steps.iter().copied().chain([step]).collect();
        let text = format!("{}.{name}", self.text);
        Self { text, steps }
    }

    /// What it is called.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The array of its field, of a payload of the schema that it was found in; null where the struct around it is.
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

    /// The refusal of a null.
    pub fn is_null(&self) -> SelectError {
        SelectError::value(self.text(), "null", "a value")
    }
}

fn within(path: &str) -> String {
    match path.strip_suffix('.') {
        None => "the message".to_owned(),
        Some(path) => format!("`{path}`"),
    }
}

/// A number, or a list of numbers, in one row.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    pub path: Path,
    pub dtype: Dtype,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    One,
    List(List),
}

/// The kinds of lists, which are taken alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    Small,
    Large,
    Fixed,
}

impl List {
    /// Which kind a type is, and what its elements are.
    pub fn of(data_type: &DataType) -> Option<(Self, &FieldRef)> {
        match data_type {
            DataType::List(item) => Some((Self::Small, item)),
            DataType::LargeList(item) => Some((Self::Large, item)),
            DataType::FixedSizeList(item, _) => Some((Self::Fixed, item)),
            _ => None,
        }
    }

    /// The elements of the first row, as a range of an array. `None` where it is null.
    pub fn first_row(self, array: &ArrayRef) -> Option<(&ArrayRef, Range<usize>)> {
        let ends = |offsets: [usize; 2]| offsets[0]..offsets[1];
        if array.is_null(0) {
            return None;
        }
        Some(match self {
            Self::Small => {
                let lists = array.as_list::<i32>();
                let offsets = lists.value_offsets();
                (lists.values(), ends([offsets[0] as usize, offsets[1] as usize]))
            }
            Self::Large => {
                let lists = array.as_list::<i64>();
                let offsets = lists.value_offsets();
                (lists.values(), ends([offsets[0] as usize, offsets[1] as usize]))
            }
            Self::Fixed => {
                let lists = array.as_fixed_size_list();
                let first = lists.value_offset(0) as usize;
                (lists.values(), first..first + lists.value_length() as usize)
            }
        })
    }
}

impl Numbers {
    /// The numbers of a field. `None` where it holds none.
    pub fn of(path: &Path, field: &FieldRef) -> Option<Self> {
        let (kind, item) = match List::of(field.data_type()) {
            Some((list, item)) => (Kind::List(list), item.data_type()),
            None => (Kind::One, field.data_type()),
        };
        let dtype = dtype_of(item)?;
        let path = path.clone();
        Some(Self { path, dtype, kind })
    }

    pub fn is_list(&self) -> bool {
        self.kind != Kind::One
    }

    /// The numbers of a message, as a range of an array. A number that is null is one of the array's nulls.
    pub fn find<'a>(&self, payload: &'a StructArray) -> Result<(&'a ArrayRef, Range<usize>), SelectError> {
        let array = self.path.follow(payload)?;
        match self.kind {
            Kind::One => Ok((array, 0..1)),
            Kind::List(list) => list.first_row(array).ok_or_else(|| self.path.is_null()),
        }
    }
}

/// The element type of an array of numbers.
pub(super) fn dtype_of(data_type: &DataType) -> Option<Dtype> {
    Some(match data_type {
        DataType::Float16 => Dtype::Float16,
        DataType::Float32 => Dtype::Float32,
        DataType::Float64 => Dtype::Float64,
        DataType::Int8 => Dtype::Int8,
        DataType::Int16 => Dtype::Int16,
        DataType::Int32 => Dtype::Int32,
        DataType::Int64 => Dtype::Int64,
        DataType::UInt8 => Dtype::UInt8,
        DataType::UInt16 => Dtype::UInt16,
        DataType::UInt32 => Dtype::UInt32,
        DataType::UInt64 => Dtype::UInt64,
        _ => return None,
    })
}

/// Element `i` of an array of numbers, NaN where it is null.
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

/// Element `i` of an array of integers; `None` where it is null or no integer.
pub fn integer(array: &dyn Array, i: usize) -> Option<i128> {
    if array.is_null(i) {
        return None;
    }
    Some(match array.data_type() {
        DataType::Int8 => array.as_primitive::<Int8Type>().value(i).into(),
        DataType::Int16 => array.as_primitive::<Int16Type>().value(i).into(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(i).into(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(i).into(),
        DataType::UInt8 => array.as_primitive::<UInt8Type>().value(i).into(),
        DataType::UInt16 => array.as_primitive::<UInt16Type>().value(i).into(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(i).into(),
        DataType::UInt64 => array.as_primitive::<UInt64Type>().value(i).into(),
        _ => return None,
    })
}

/// Whether elements of an array are texts.
pub(super) fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_text(values),
        other => matches!(other, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View),
    }
}

/// Element `i` of an array of texts; `None` where it is null.
pub(super) fn text(array: &dyn Array, i: usize) -> Option<&str> {
    fn key<K: ArrowDictionaryKeyType>(array: &dyn Array, i: usize) -> Option<&str> {
        let dictionary = array.as_dictionary::<K>();
        text(&**dictionary.values(), dictionary.key(i)?)
    }
    if array.is_null(i) {
        return None;
    }
    match array.data_type() {
        DataType::Utf8 => Some(array.as_string::<i32>().value(i)),
        DataType::LargeUtf8 => Some(array.as_string::<i64>().value(i)),
        DataType::Utf8View => Some(array.as_string_view().value(i)),
        DataType::Dictionary(keys, _) => match **keys {
            DataType::Int8 => key::<Int8Type>(array, i),
            DataType::Int16 => key::<Int16Type>(array, i),
            DataType::Int32 => key::<Int32Type>(array, i),
            DataType::Int64 => key::<Int64Type>(array, i),
            DataType::UInt8 => key::<UInt8Type>(array, i),
            DataType::UInt16 => key::<UInt16Type>(array, i),
            DataType::UInt32 => key::<UInt32Type>(array, i),
            DataType::UInt64 => key::<UInt64Type>(array, i),
            _ => None,
        },
        _ => None,
    }
}

/// Whether the first row of an array of this type is bytes.
pub(super) fn is_bytes(data_type: &DataType) -> bool {
    match List::of(data_type) {
        Some((_, item)) => item.data_type() == &DataType::UInt8,
        None => matches!(data_type, DataType::Binary | DataType::LargeBinary),
    }
}

/// The bytes of the first row, where they are bytes, and none of them is null.
pub(super) fn bytes(array: &ArrayRef) -> Option<&[u8]> {
    if array.is_null(0) {
        return None;
    }
    match array.data_type() {
        DataType::Binary => Some(array.as_binary::<i32>().value(0)),
        DataType::LargeBinary => Some(array.as_binary::<i64>().value(0)),
        data_type => {
            let (values, range) = List::of(data_type)?.0.first_row(array)?;
            let values = values.as_primitive_opt::<UInt8Type>()?;
            (values.null_count() == 0).then(|| &values.values()[range])
        }
    }
}
