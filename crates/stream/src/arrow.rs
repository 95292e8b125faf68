//! Reads Arrow arrays into the columns of messages.

use crate::{Cells, Message};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType,
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, TimeUnit};
use half::{bf16, f16};
use robocache_device::Dtype;
use std::ops::Range;

/// Why a column or a payload can't be read.
pub(super) type Unread = &'static str;

const ALLOWED: Unread = "allowed: arrays of floats, integers, timestamps or durations, in a struct also lists of these";

/// What becomes of the columns of text in a struct.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Text {
    /// They are copied.
    Read,
    /// They are skipped, as what nobody can use.
    Skipped,
}

/// Copies a payload. A column of a struct that can't be read is skipped.
pub(super) fn read(array: &ArrayRef, bfloat16: bool, text: Text, message: &mut Message) -> Result<(), Unread> {
    if array.data_type() == &DataType::Null && array.is_empty() {
        // A message without a payload, such as a tick of a timer.
        message.add_column("", Dtype::UInt8, Cells::One).data.resize(0);
        return Ok(());
    }
    let Some(columns) = array.as_struct_opt() else {
        let source = Source {
            array: &**array,
            from: 0,
            len: array.len(),
            null_rows: [None; 2],
            rows: Rows::Every(1),
        };
        return read_values("", source, Cells::One, bfloat16, message);
    };
    for (field, column) in columns.fields().iter().zip(columns.columns()) {
        let bfloat16 = bfloat16 && field.name() == "values";
        let (name, nulls) = (field.name(), array.nulls());
        let read = match column.data_type() {
            DataType::Utf8 if text == Text::Read => read_text(name, column.as_string::<i32>().iter(), nulls, message),
            DataType::LargeUtf8 if text == Text::Read => {
                read_text(name, column.as_string::<i64>().iter(), nulls, message)
            }
            DataType::Utf8View if text == Text::Read => read_text(name, column.as_string_view().iter(), nulls, message),
            _ => read_column(name, column, nulls, bfloat16, message),
        };
        if let Err(why) = read {
            message.skip(field, why);
        }
    }
    Ok(())
}

/// Copies a range of an array of values as a column of a row each.
pub(super) fn read_range(
    name: &str,
    array: &ArrayRef,
    range: Range<usize>,
    message: &mut Message,
) -> Result<(), Unread> {
    let source = Source {
        array: &**array,
        from: range.start,
        len: range.len(),
        null_rows: [None; 2],
        rows: Rows::Every(1),
    };
    read_values(name, source, Cells::One, false, message)
}

/// Values of an Arrow array, and which of them are null.
#[derive(Clone, Copy)]
struct Source<'a> {
    array: &'a dyn Array,
    /// The values that are read.
    from: usize,
    len: usize,
    /// Null rows, whose values count as null, too.
    null_rows: [Option<&'a NullBuffer>; 2],
    rows: Rows<'a>,
}

/// Which values belong to a row, counted from the first that is read.
#[derive(Clone, Copy)]
enum Rows<'a> {
    Every(usize),
    List(&'a [i32]),
    LargeList(&'a [i64]),
}

impl Rows<'_> {
    fn values(&self, row: usize) -> Range<usize> {
        match *self {
            Self::Every(n) => row * n..(row + 1) * n,
            Self::List(offsets) => {
                let offset = |i: usize| (offsets[i] - offsets[0]) as usize;
                offset(row)..offset(row + 1)
            }
            Self::LargeList(offsets) => {
                let offset = |i: usize| (offsets[i] - offsets[0]) as usize;
                offset(row)..offset(row + 1)
            }
        }
    }
}

impl Source<'_> {
    fn has_nulls(&self) -> bool {
        let nulls = self.null_rows.iter().flatten();
        self.array.null_count() > 0 || nulls.into_iter().any(|nulls| nulls.null_count() > 0)
    }

    /// Calls `forget` once with the index of each value that is null, or in a row that is.
    fn for_each_null(&self, mut forget: impl FnMut(usize)) {
        let is_null = |i: &usize| self.array.is_null(self.from + i);
        if self.array.null_count() > 0 {
            (0..self.len).filter(is_null).for_each(&mut forget);
        }
        let of = |nulls: Option<&NullBuffer>, row| nulls.is_some_and(|nulls| nulls.is_null(row));
        let [outer, inner] = self.null_rows;
        let rows = outer.or(inner).map_or(0, NullBuffer::len);
        let null_rows = (0..rows).filter(|&row| of(outer, row) || of(inner, row));
        let values = null_rows.flat_map(|row| self.rows.values(row));
        values.filter(|i| !is_null(i)).for_each(forget);
    }

    /// Whether these are the values of several lists. Then integers with nulls stay integers, and the null rows are noted.
    fn is_batch(&self) -> bool {
        match self.rows {
            Rows::Every(_) => false,
            Rows::List(offsets) => offsets.len() != 2,
            Rows::LargeList(offsets) => offsets.len() != 2,
        }
    }

    /// The rows that are null; with `looks_within` also those that hold a null.
    fn null_rows(&self, rows: usize, looks_within: bool) -> impl Iterator<Item = usize> + '_ {
        let looks_within = looks_within && self.array.null_count() > 0;
        (0..rows).filter(move |&row| {
            let is_null = |nulls: &&NullBuffer| nulls.is_null(row);
            self.null_rows.iter().flatten().any(is_null)
                || looks_within && self.rows.values(row).any(|i| self.array.is_null(self.from + i))
        })
    }

    fn values<T: ArrowPrimitiveType>(&self) -> &[T::Native] {
        &self.array.as_primitive::<T>().values()[self.from..self.from + self.len]
    }
}

/// Copies a column that is not a list. A null becomes NaN; integers with nulls become float64 for that. On an error
/// nothing is added.
fn read_values(
    name: &str,
    source: Source<'_>,
    cells: Cells,
    bfloat16: bool,
    message: &mut Message,
) -> Result<(), Unread> {
    let has_nulls = source.has_nulls();
    let becomes_float = has_nulls && !source.is_batch();
    macro_rules! floats {
        ($T:ty, $Native:ty, $dtype:ident, $nan:expr) => {{
            let column = message.add_column(name, Dtype::$dtype, cells);
            column.data.copy_from(bytemuck::cast_slice(source.values::<$T>()));
            if has_nulls {
                let values: &mut [$Native] = bytemuck::cast_slice_mut(column.data.bytes_mut());
                source.for_each_null(|i| values[i] = $nan);
            }
        }};
    }
    macro_rules! integers {
        ($T:ty, $dtype:ident) => {{
            if becomes_float {
                let column = message.add_column(name, Dtype::Float64, cells);
                column.integers = Some(Dtype::$dtype);
                column.data.resize(source.len * size_of::<f64>());
                let values: &mut [f64] = bytemuck::cast_slice_mut(column.data.bytes_mut());
                for (to, from) in values.iter_mut().zip(source.values::<$T>()) {
                    *to = *from as f64;
                }
                source.for_each_null(|i| values[i] = f64::NAN);
            } else {
                let column = message.add_column(name, Dtype::$dtype, cells);
                column.data.copy_from(bytemuck::cast_slice(source.values::<$T>()));
            }
        }};
    }
    macro_rules! times {
        ($T:ty, $unit_ns:expr) => {{
            const UNIT_NS: i64 = $unit_ns;
            const MAX: i64 = i64::MAX / UNIT_NS;
            let beyond = |time: &i64| UNIT_NS > 1 && !(-MAX..=MAX).contains(time);
            let mut count = source.values::<$T>().iter().filter(|time| beyond(time)).count();
            // A value under a null does not count.
            source.for_each_null(|i| count -= usize::from(beyond(&source.values::<$T>()[i])));
            if count > 0 {
                return Err("a time in it is beyond int64 nanoseconds");
            }
            let (dtype, integers) = match becomes_float {
                true => (Dtype::Float64, Some(Dtype::Int64)),
                false => (Dtype::Int64, None),
            };
            let column = message.add_column(name, dtype, cells);
            column.integers = integers;
            column.data.resize(source.len * size_of::<i64>());
            let times = source.values::<$T>().iter().map(|time| time.wrapping_mul(UNIT_NS));
            if becomes_float {
                let values: &mut [f64] = bytemuck::cast_slice_mut(column.data.bytes_mut());
                values.iter_mut().zip(times).for_each(|(to, time)| *to = time as f64);
                source.for_each_null(|i| values[i] = f64::NAN);
            } else {
                let values: &mut [i64] = bytemuck::cast_slice_mut(column.data.bytes_mut());
                values.iter_mut().zip(times).for_each(|(to, time)| *to = time);
            }
        }};
    }
    match source.array.data_type() {
        DataType::Float32 => floats!(Float32Type, f32, Float32, f32::NAN),
        DataType::Float64 => floats!(Float64Type, f64, Float64, f64::NAN),
        DataType::Float16 => floats!(Float16Type, f16, Float16, f16::NAN),
        DataType::UInt16 if bfloat16 => floats!(UInt16Type, bf16, UInt16, bf16::NAN),
        DataType::Int8 => integers!(Int8Type, Int8),
        DataType::Int16 => integers!(Int16Type, Int16),
        DataType::Int32 => integers!(Int32Type, Int32),
        DataType::Int64 => integers!(Int64Type, Int64),
        DataType::UInt8 => integers!(UInt8Type, UInt8),
        DataType::UInt16 => integers!(UInt16Type, UInt16),
        DataType::UInt32 => integers!(UInt32Type, UInt32),
        DataType::UInt64 => integers!(UInt64Type, UInt64),
        DataType::Timestamp(TimeUnit::Second, _) => times!(TimestampSecondType, 1_000_000_000),
        DataType::Timestamp(TimeUnit::Millisecond, _) => times!(TimestampMillisecondType, 1_000_000),
        DataType::Timestamp(TimeUnit::Microsecond, _) => times!(TimestampMicrosecondType, 1000),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => times!(TimestampNanosecondType, 1),
        DataType::Duration(TimeUnit::Second) => times!(DurationSecondType, 1_000_000_000),
        DataType::Duration(TimeUnit::Millisecond) => times!(DurationMillisecondType, 1_000_000),
        DataType::Duration(TimeUnit::Microsecond) => times!(DurationMicrosecondType, 1000),
        DataType::Duration(TimeUnit::Nanosecond) => times!(DurationNanosecondType, 1),
        _ => return Err(ALLOWED),
    }
    Ok(())
}

/// Copies a column of text. A null becomes an empty one.
fn read_text<'a>(
    name: &str,
    rows: impl Iterator<Item = Option<&'a str>> + Clone,
    null_rows: Option<&NullBuffer>,
    message: &mut Message,
) -> Result<(), Unread> {
    let is_valid = |row: usize| null_rows.is_none_or(|nulls| nulls.is_valid(row));
    let rows = rows.enumerate().map(|(row, text)| text.filter(|_| is_valid(row)));
    let total = rows.clone().flatten().map(str::len).sum();
    if i32::try_from(total).is_err() {
        return Err("it has more than 2^31 - 1 bytes");
    }
    let column = message.add_column(name, Dtype::UInt8, Cells::Text(total));
    column.data.resize(total);
    column.offsets.push(0);
    let mut at = 0;
    for (row, text) in rows.enumerate() {
        let text = text.unwrap_or_else(|| {
            column.null_rows.push(row);
            ""
        });
        column.data.bytes_mut()[at..at + text.len()].copy_from_slice(text.as_bytes());
        at += text.len();
        column.offsets.push(at as i32);
    }
    Ok(())
}

/// Copies a column of a struct, some rows of which may be null.
fn read_column(
    name: &str,
    array: &ArrayRef,
    null_rows: Option<&NullBuffer>,
    bfloat16: bool,
    message: &mut Message,
) -> Result<(), Unread> {
    let list =
        |values: &ArrayRef, range: Range<usize>, rows: Rows<'_>, cells, message: &mut Message| -> Result<(), Unread> {
            let source = Source {
                array: &**values,
                from: range.start,
                len: range.len(),
                null_rows: [null_rows, array.nulls()],
                rows,
            };
            read_values(name, source, cells, bfloat16, message)?;
            if let Some(column) = message.columns_mut().last_mut()
                && source.has_nulls()
                && matches!(cells, Cells::Ragged(_))
            {
                let is_float = matches!(column.dtype, Dtype::Float16 | Dtype::Float32 | Dtype::Float64);
                // bfloat16 is read as the integers it travels as.
                let is_integer = column.integers.is_none() && !is_float && !bfloat16;
                column.null_rows.extend(source.null_rows(array.len(), is_integer));
            }
            Ok(())
        };
    match array.data_type() {
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            let offsets = lists.offsets();
            let range = offsets[0] as usize..offsets[lists.len()] as usize;
            let cells = Cells::Ragged(range.len());
            list(lists.values(), range, Rows::List(offsets), cells, message)?;
            push_offsets(message, offsets.iter().map(|offset| offset - offsets[0]));
        }
        DataType::LargeList(_) => {
            let lists = array.as_list::<i64>();
            let offsets = lists.offsets();
            let range = offsets[0] as usize..offsets[lists.len()] as usize;
            if i32::try_from(range.len()).is_err() {
                return Err("it has more than 2^31 - 1 values");
            }
            let cells = Cells::Ragged(range.len());
            list(lists.values(), range, Rows::LargeList(offsets), cells, message)?;
            push_offsets(message, offsets.iter().map(|offset| (offset - offsets[0]) as i32));
        }
        DataType::FixedSizeList(_, size) => {
            let lists = array.as_fixed_size_list();
            let size = *size as usize;
            let from = lists.offset() * size;
            let range = from..from + lists.len() * size;
            list(lists.values(), range, Rows::Every(size), Cells::Fixed(size), message)?;
        }
        _ => {
            let source = Source {
                array: &**array,
                from: 0,
                len: array.len(),
                null_rows: [null_rows, None],
                rows: Rows::Every(1),
            };
            read_values(name, source, Cells::One, bfloat16, message)?;
        }
    }
    Ok(())
}

fn push_offsets(message: &mut Message, offsets: impl Iterator<Item = i32>) {
    if let Some(column) = message.columns_mut().last_mut() {
        column.offsets.extend(offsets);
    }
}
