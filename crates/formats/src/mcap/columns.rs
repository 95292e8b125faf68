//! Column buffers for the values of decoded fields, which become Arrow arrays. The number of missing values that are filled in
//! is bounded, so that a short message never takes much memory.

use super::types::{Count, Kind, Type};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, FixedSizeListArray, ListArray, NullArray, StringArray, StructArray, make_array,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::ArrowError;
use arrow_schema::{DataType, Fields};
use robocache_device::Dtype;
use std::sync::Arc;

/// Makes an empty column for each field of a message type.
pub(super) fn of(of: &Type) -> Vec<Column> {
    let fields = of.fields.iter();
    fields.map(|field| Column::new(&field.kind, field.count)).collect()
}

/// Makes an Arrow struct array of `rows` rows from columns. `fields` has the Arrow field of each column.
pub(super) fn finish(columns: Vec<Column>, fields: &Fields, rows: usize) -> Result<StructArray, String> {
    let columns = columns.into_iter().zip(fields);
    let columns = columns.map(|(column, field)| column.finish(field.data_type()));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    StructArray::try_new_with_length(fields.clone(), columns, None, rows).map_err(|error| error.to_string())
}

/// Largest number of missing values that are filled in for one message. In some encodings, a list element of two bytes stands
/// for a struct of thousands of missing values.
const MOST_FILLED: usize = 1 << 22;

/// Number of missing values that were filled in so far for one message.
#[derive(Default)]
pub(super) struct Filled(usize);

impl Filled {
    /// Appends a row for a missing value to a column. Fails if the message then has more than `MOST_FILLED` missing values.
    pub(super) fn add(&mut self, column: &mut Column) -> Result<(), String> {
        self.0 += column.add_absent();
        match self.0 {
            ..=MOST_FILLED => Ok(()),
            _ => Err(format!("more than {MOST_FILLED} missing values")),
        }
    }
}

/// Decoded values of a field: a row for each message, or for each element of a list.
pub(super) enum Column {
    Bools(Vec<bool>),
    Numbers {
        dtype: Dtype,
        /// Bytes of the numbers, little-endian, row after row.
        values: Vec<u8>,
        /// Indices of the rows without a value, whose bytes are 0.
        absent: Vec<usize>,
    },
    /// Strings, or byte strings: the offsets at which they begin and end, and the bytes of all of them.
    Texts(Vec<i32>, Vec<u8>),
    Structs {
        columns: Vec<Column>,
        rows: usize,
        /// True while a row is incomplete: some of its fields were decoded, and others may follow.
        is_open: bool,
    },
    Lists(Vec<i32>, Box<Column>),
    /// Number of rows of a field that is not decoded.
    Opaque(usize),
}

impl Column {
    fn new(kind: &Kind, count: Count) -> Self {
        let numbers = |dtype| Self::Numbers {
            dtype,
            values: Vec::new(),
            absent: Vec::new(),
        };
        let one = match kind {
            Kind::Bool => Self::Bools(Vec::new()),
            Kind::Flag => numbers(Dtype::UInt8),
            Kind::Number(dtype) => numbers(*dtype),
            Kind::Text | Kind::Bytes => Self::Texts(vec![0], Vec::new()),
            Kind::Struct(inner) => Self::Structs {
                columns: of(inner),
                rows: 0,
                is_open: false,
            },
            Kind::Opaque => Self::Opaque(0),
        };
        match count {
            Count::One => one,
            _ => Self::Lists(vec![0], Box::new(one)),
        }
    }

    /// Number of complete rows in the column.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Bools(values) => values.len(),
            Self::Numbers { dtype, values, .. } => values.len() / dtype.size(),
            Self::Texts(offsets, _) | Self::Lists(offsets, _) => offsets.len() - 1,
            Self::Structs { rows, .. } | Self::Opaque(rows) => *rows,
        }
    }

    /// Appends a row for a missing value: a null, an empty string or list, or a struct of missing values. Returns the number of
    /// values filled in.
    fn add_absent(&mut self) -> usize {
        match self {
            Self::Bools(values) => values.push(false),
            Self::Numbers { dtype, values, absent } => {
                absent.push(values.len() / dtype.size());
                values.resize(values.len() + dtype.size(), 0);
            }
            Self::Texts(offsets, _) | Self::Lists(offsets, _) => offsets.extend(offsets.last().copied()),
            Self::Structs { columns, rows, .. } => {
                *rows += 1;
                return columns.iter_mut().map(Self::add_absent).sum();
            }
            Self::Opaque(rows) => *rows += 1,
        }
        1
    }

    /// Appends a number to a column of numbers. The low bits of `bits`, as many as the column's type has, are the bits of
    /// the number.
    pub(super) fn add_number(&mut self, bits: u64) {
        if let Self::Numbers { dtype, values, .. } = self {
            values.extend_from_slice(&bits.to_le_bytes()[..dtype.size()]);
        }
    }

    /// Appends numbers of one byte each to a column of numbers.
    pub(super) fn add_bytes(&mut self, bytes: &[u8]) {
        if let Self::Numbers { values, .. } = self {
            values.extend_from_slice(bytes);
        }
    }

    /// Appends a string or a byte string to a column of strings.
    pub(super) fn add_text(&mut self, text: &[u8]) -> Result<(), String> {
        if let Self::Texts(offsets, bytes) = self {
            bytes.extend_from_slice(text);
            offsets.push(end(bytes.len(), "texts of more than 2^31 - 1 bytes")?);
        }
        Ok(())
    }

    /// Ends a row of a column of lists. The elements appended since the previous call are its list.
    pub(super) fn end_list(&mut self) -> Result<(), String> {
        if let Self::Lists(offsets, items) = self {
            offsets.push(end(items.len(), "more than 2^31 - 1 elements")?);
        }
        Ok(())
    }

    /// Drops the rows after the first `len`, in a column of numbers or strings.
    pub(super) fn truncate(&mut self, len: usize) {
        match self {
            Self::Numbers { dtype, values, absent } => {
                values.truncate(len * dtype.size());
                // `absent` is sorted.
                absent.truncate(absent.partition_point(|&row| row < len));
            }
            Self::Texts(offsets, bytes) if len + 1 < offsets.len() => {
                offsets.truncate(len + 1);
                bytes.truncate(offsets[len] as usize);
            }
            _ => {}
        }
    }

    fn finish(self, data_type: &DataType) -> Result<ArrayRef, String> {
        let failed = |error: ArrowError| error.to_string();
        Ok(match (self, data_type) {
            (Self::Bools(values), _) => Arc::new(BooleanArray::from(values)),
            (Self::Numbers { dtype, values, absent }, _) => {
                let rows = values.len() / dtype.size();
                let mut is_there = vec![true; if absent.is_empty() { 0 } else { rows }];
                absent.iter().for_each(|&row| is_there[row] = false);
                let data = ArrayData::builder(dtype.arrow_type())
                    .len(rows)
                    .nulls((!absent.is_empty()).then(|| NullBuffer::from(is_there)))
                    .add_buffer(Buffer::from_vec(values));
                make_array(data.align_buffers(true).build().map_err(failed)?)
            }
            (Self::Texts(offsets, bytes), data_type) => {
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
                let bytes = Buffer::from_vec(bytes);
                match data_type {
                    DataType::Binary => Arc::new(BinaryArray::try_new(offsets, bytes, None).map_err(failed)?),
                    _ => Arc::new(StringArray::try_new(offsets, bytes, None).map_err(failed)?),
                }
            }
            (Self::Structs { columns, rows, .. }, DataType::Struct(fields)) => Arc::new(finish(columns, fields, rows)?),
            (Self::Lists(offsets, items), DataType::List(item)) => {
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
                let items = items.finish(item.data_type())?;
                Arc::new(ListArray::try_new(item.clone(), offsets, items, None).map_err(failed)?)
            }
            (Self::Lists(offsets, items), DataType::FixedSizeList(item, size)) => {
                let items = items.finish(item.data_type())?;
                let rows = offsets.len() - 1;
                let list = FixedSizeListArray::try_new_with_length(item.clone(), *size, items, None, rows);
                Arc::new(list.map_err(failed)?)
            }
            (Self::Opaque(rows), _) => Arc::new(NullArray::new(rows)),
            (_, other) => return Err(format!("a column can't become {other}")),
        })
    }
}

fn end(len: usize, too_many: &str) -> Result<i32, String> {
    i32::try_from(len).map_err(|_| too_many.to_owned())
}
