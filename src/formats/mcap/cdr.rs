//! Messages in CDR, the serialization of ROS 2, to Arrow.

use super::types::{Count, Kind, Type};
use crate::arrow::array::{
    ArrayData, ArrayRef, BooleanArray, FixedSizeListArray, ListArray, StringArray, StructArray, make_array,
};
use crate::arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use crate::arrow::datatypes::{DataType, Fields};
use crate::arrow::error::ArrowError;
use crate::device::Dtype;
use std::sync::Arc;

/// Reads a message into a struct of one row. `fields` are those that the type becomes.
pub(super) fn read(of: &Type, fields: &Fields, data: &[u8]) -> Result<StructArray, String> {
    let mut cdr = Cdr::new(data)?;
    let mut columns: Vec<Column> = of
        .fields
        .iter()
        .map(|field| Column::new(&field.kind, field.count))
        .collect();
    for (column, field) in columns.iter_mut().zip(&of.fields) {
        column
            .read(&field.kind, field.count, &mut cdr)
            .map_err(|problem| format!("`{}`: {problem}", field.name))?;
    }
    finish_struct(columns, fields, 1)
}

/// Reads a message that is one text.
pub(super) fn text(data: &[u8]) -> Result<String, String> {
    let mut cdr = Cdr::new(data)?;
    let length = cdr.length()?;
    let text = cdr.take(length, 1)?;
    Ok(String::from_utf8_lossy(text.strip_suffix(&[0]).unwrap_or(text)).into_owned())
}

fn finish_struct(columns: Vec<Column>, fields: &Fields, rows: usize) -> Result<StructArray, String> {
    let columns = columns
        .into_iter()
        .zip(fields)
        .map(|(column, field)| column.finish(field.data_type()));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    StructArray::try_new_with_length(fields.clone(), columns, None, rows).map_err(|error| error.to_string())
}

/// Bytes, each number at a multiple of its size.
struct Cdr<'a> {
    data: &'a [u8],
    at: usize,
    is_big: bool,
    /// No number is aligned to more.
    alignment: usize,
}

impl<'a> Cdr<'a> {
    fn new(message: &'a [u8]) -> Result<Self, String> {
        let Some(([kind @ .., _, _], data)) = message.split_first_chunk::<4>() else {
            return Err(format!("{} bytes, less than the header of CDR", message.len()));
        };
        let (is_big, alignment) = match kind {
            [0, 0] => (true, 8),
            [0, 1] => (false, 8),
            [0, 6] => (true, 4),
            [0, 7] => (false, 4),
            [a, b] => {
                return Err(format!(
                    "representation {a:02x}{b:02x} (allowed: 0000, 0001, 0006, 0007, which are plain CDR)"
                ));
            }
        };
        Ok(Self {
            data,
            at: 0,
            is_big,
            alignment,
        })
    }

    fn take(&mut self, bytes: usize, size: usize) -> Result<&'a [u8], String> {
        let from = self.at.next_multiple_of(size.min(self.alignment));
        let taken = from.checked_add(bytes).and_then(|end| self.data.get(from..end));
        self.at = from.saturating_add(bytes);
        taken.ok_or_else(|| format!("{bytes} bytes at byte {from} of {}", self.data.len()))
    }

    fn length(&mut self) -> Result<usize, String> {
        let bytes = self.take(4, 4)?;
        let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
        let length = if self.is_big {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        };
        Ok(length as usize)
    }

    /// How many elements a sequence has, each of which takes a byte at least.
    fn count(&mut self) -> Result<usize, String> {
        let count = self.length()?;
        let there = self.data.len() - self.at;
        if count > there {
            return Err(format!("a sequence of {count} in {there} bytes"));
        }
        Ok(count)
    }
}

/// Values of a field, of as many messages or elements as were read.
enum Column {
    Bools(Vec<bool>),
    Numbers(Dtype, Vec<u8>),
    Texts(Vec<i32>, Vec<u8>),
    Structs(Vec<Column>, usize),
    Lists(Vec<i32>, Box<Column>),
}

impl Column {
    fn new(kind: &Kind, count: Count) -> Self {
        let one = match kind {
            Kind::Bool => Self::Bools(Vec::new()),
            Kind::Flag => Self::Numbers(Dtype::UInt8, Vec::new()),
            Kind::Number(dtype) => Self::Numbers(*dtype, Vec::new()),
            Kind::Text => Self::Texts(vec![0], Vec::new()),
            Kind::Struct(of) => {
                let fields = of.fields.iter().map(|field| Self::new(&field.kind, field.count));
                Self::Structs(fields.collect(), 0)
            }
        };
        match count {
            Count::One => one,
            _ => Self::Lists(vec![0], Box::new(one)),
        }
    }

    fn read(&mut self, kind: &Kind, count: Count, cdr: &mut Cdr<'_>) -> Result<(), String> {
        let n = match count {
            Count::One => return self.read_all(kind, 1, cdr),
            Count::Array(n) => n,
            Count::Sequence => cdr.count()?,
        };
        let Self::Lists(offsets, items) = self else {
            return Ok(());
        };
        items.read_all(kind, n, cdr)?;
        let end = i32::try_from(n).ok().and_then(|n| offsets.last()?.checked_add(n));
        offsets.push(end.ok_or("more than 2^31 - 1 elements")?);
        Ok(())
    }

    fn read_all(&mut self, kind: &Kind, n: usize, cdr: &mut Cdr<'_>) -> Result<(), String> {
        match (self, kind) {
            (Self::Bools(values), _) => values.extend(cdr.take(n, 1)?.iter().map(|&byte| byte != 0)),
            (Self::Numbers(dtype, values), kind) => {
                let size = dtype.size();
                // Nothing is aligned where there is nothing.
                if n == 0 {
                    return Ok(());
                }
                let bytes = cdr.take(n.saturating_mul(size), size)?;
                let from = values.len();
                values.extend_from_slice(bytes);
                if cdr.is_big && size > 1 {
                    values[from..].chunks_exact_mut(size).for_each(<[u8]>::reverse);
                }
                if matches!(kind, Kind::Flag) {
                    values[from..].iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
                }
            }
            (Self::Texts(offsets, bytes), _) => {
                for _ in 0..n {
                    let length = cdr.length()?;
                    let text = cdr.take(length, 1)?;
                    let text = text.strip_suffix(&[0]).unwrap_or(text);
                    bytes.extend_from_slice(String::from_utf8_lossy(text).as_bytes());
                    offsets.push(i32::try_from(bytes.len()).map_err(|_| "texts of more than 2^31 - 1 bytes")?);
                }
            }
            (Self::Structs(columns, rows), Kind::Struct(of)) => {
                for _ in 0..n {
                    for (column, field) in columns.iter_mut().zip(&of.fields) {
                        column
                            .read(&field.kind, field.count, cdr)
                            .map_err(|problem| format!("`{}`: {problem}", field.name))?;
                    }
                }
                *rows += n;
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(self, data_type: &DataType) -> Result<ArrayRef, String> {
        let failed = |error: ArrowError| error.to_string();
        Ok(match (self, data_type) {
            (Self::Bools(values), _) => Arc::new(BooleanArray::from(values)),
            (Self::Numbers(dtype, values), _) => {
                let rows = values.len() / dtype.size();
                let data = ArrayData::builder(dtype.arrow_type())
                    .len(rows)
                    .add_buffer(Buffer::from_vec(values));
                make_array(data.align_buffers(true).build().map_err(failed)?)
            }
            (Self::Texts(offsets, bytes), _) => {
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
                Arc::new(StringArray::try_new(offsets, Buffer::from_vec(bytes), None).map_err(failed)?)
            }
            (Self::Structs(columns, rows), DataType::Struct(fields)) => Arc::new(finish_struct(columns, fields, rows)?),
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
            (_, other) => return Err(format!("no {other}")),
        })
    }
}
