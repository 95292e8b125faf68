//! Reads Arrow arrays into the columns of messages.
//!
//! A null never becomes a number: it is NaN, or `Column::null_rows` lists its row. A null text is empty.

use crate::cloud::to_f64;
use crate::{Cells, Message};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, GenericListArray, OffsetSizeTrait, downcast_primitive_array};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, TimeUnit};
use half::{bf16, f16};
use robocache_device::{Dtype, Values};
use std::ops::Range;

/// Reason why a column or a payload can't be read, as text for an error.
pub(super) type Refusal = &'static str;

const ALLOWED: Refusal =
    "allowed: arrays of floats, integers, timestamps or durations, in a struct also lists of these";

/// Handling of a struct's text columns: copied into the message, or skipped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Text {
    /// Text columns are copied.
    Read,
    /// Text columns are skipped, because no operation on this input uses them.
    Skipped,
}

/// Copies an Arrow array into `message` as its payload. Struct columns that can't be read go to [`Message::skipped`]. If
/// `bfloat16`, uint16 elements (in a struct, of the column `values`) are bits of bfloat16, and their nulls become NaN.
pub(super) fn read(array: &ArrayRef, bfloat16: bool, text: Text, message: &mut Message) -> Result<(), Refusal> {
    if array.data_type() == &DataType::Null && array.is_empty() {
        // A message without a payload, such as a tick of a timer.
        message.add_column("", Dtype::UInt8, Cells::One).data.resize(0);
        return Ok(());
    }
    let Some(columns) = array.as_struct_opt() else {
        return read_values("", Source::of(array, 0..array.len()), Cells::One, bfloat16, message);
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

/// Copies `range` of `array` to a new column `name` of `message`, one value per row.
pub(super) fn read_range(
    name: &str,
    array: &ArrayRef,
    range: Range<usize>,
    message: &mut Message,
) -> Result<(), Refusal> {
    read_values(name, Source::of(array, range), Cells::One, false, message)
}

/// Range of an Arrow array that becomes a column, with the null masks that apply to it.
#[derive(Clone, Copy)]
struct Source<'a> {
    array: &'a dyn Array,
    /// Index in `array` of the first value of the range.
    from: usize,
    /// Number of values in the range.
    len: usize,
    /// Null masks by row: of the enclosing struct, then of the column. `None` means that no row is null. Every value of a null
    /// row counts as null.
    null_rows: [Option<&'a NullBuffer>; 2],
    rows: Rows<'a>,
}

/// Division of the values of a `Source` into rows. Value indices count from `Source::from`.
#[derive(Clone, Copy)]
enum Rows<'a> {
    /// Rows of equal length: the number of values in each row.
    Every(usize),
    /// Rows of varying length (Arrow lists): their number, and a function that returns the index of a row's first value.
    Lists(usize, &'a dyn Fn(usize) -> usize),
}

impl Rows<'_> {
    fn values(&self, row: usize) -> Range<usize> {
        match *self {
            Self::Every(n) => row * n..(row + 1) * n,
            Self::Lists(_, start) => start(row)..start(row + 1),
        }
    }
}

impl<'a> Source<'a> {
    /// Creates the source for a range of an array: one value per row, no null rows.
    fn of(array: &'a ArrayRef, range: Range<usize>) -> Self {
        Self {
            array,
            from: range.start,
            len: range.len(),
            null_rows: [None; 2],
            rows: Rows::Every(1),
        }
    }

    fn has_nulls(&self) -> bool {
        let nulls = self.null_rows.iter().flatten();
        self.array.null_count() > 0 || nulls.into_iter().any(|nulls| nulls.null_count() > 0)
    }

    /// Calls `forget` with the index of each null value, counted from `from`. A value is null if it or its row is null.
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

    /// True for a column of several lists, or of none. In such a column integers with nulls stay integers, and
    /// `Column::null_rows` lists the rows with nulls.
    fn is_batch(&self) -> bool {
        matches!(self.rows, Rows::Lists(count, _) if count != 1)
    }

    /// Returns the indices, below `rows`, of the null rows. If `looks_within`, rows that contain a null value are included.
    fn null_rows(&self, rows: usize, looks_within: bool) -> impl Iterator<Item = usize> + '_ {
        let looks_within = looks_within && self.array.null_count() > 0;
        (0..rows).filter(move |&row| {
            let is_null = |nulls: &&NullBuffer| nulls.is_null(row);
            self.null_rows.iter().flatten().any(is_null)
                || looks_within && self.rows.values(row).any(|i| self.array.is_null(self.from + i))
        })
    }

    fn values(&self, dtype: Dtype) -> Values<'a> {
        Values::new(dtype, bytes(self.array)).slice(self.from, self.from + self.len)
    }
}

/// Copies the values of `source` to a new column of `message`. A null float becomes NaN. Integers with nulls become float64
/// with NaN, unless the rows are several lists. On an error no column is added.
fn read_values(
    name: &str,
    source: Source<'_>,
    cells: Cells,
    bfloat16: bool,
    message: &mut Message,
) -> Result<(), Refusal> {
    let (dtype, unit_ns) = match source.array.data_type() {
        DataType::Timestamp(unit, _) | DataType::Duration(unit) => (Dtype::Int64, ns_in(*unit)),
        other => (dtype_of(other).ok_or(ALLOWED)?, 1),
    };
    let values = source.values(dtype);
    if unit_ns > 1 {
        let times = values.as_slice::<i64>();
        let most = i64::MAX / unit_ns;
        let beyond = |time: &i64| !(-most..=most).contains(time);
        let mut count = times.iter().filter(|time| beyond(time)).count();
        // The value behind a null does not count.
        source.for_each_null(|i| count -= usize::from(beyond(&times[i])));
        if count > 0 {
            return Err("a time is beyond int64 nanoseconds");
        }
    }
    let nan: &[u8] = match dtype {
        Dtype::Float32 => &f32::NAN.to_ne_bytes(),
        Dtype::Float64 => &f64::NAN.to_ne_bytes(),
        Dtype::Float16 => &f16::NAN.to_ne_bytes(),
        Dtype::UInt16 if bfloat16 => &bf16::NAN.to_ne_bytes(),
        _ => &[],
    };
    let has_nulls = source.has_nulls();
    if has_nulls && nan.is_empty() && !source.is_batch() {
        let column = message.add_column(name, Dtype::Float64, cells);
        column.integers = Some(dtype);
        column.data.resize(source.len * size_of::<f64>());
        let floats: &mut [f64] = bytemuck::cast_slice_mut(column.data.bytes_mut());
        if unit_ns > 1 {
            let times = values.as_slice::<i64>().iter();
            floats
                .iter_mut()
                .zip(times)
                .for_each(|(to, time)| *to = time.wrapping_mul(unit_ns) as f64);
        } else {
            to_f64(values, 0, 1, floats);
        }
        source.for_each_null(|i| floats[i] = f64::NAN);
        return Ok(());
    }
    let column = message.add_column(name, dtype, cells);
    column.data.copy_from(values.bytes());
    let copied = column.data.bytes_mut();
    if unit_ns > 1 {
        let times: &mut [i64] = bytemuck::cast_slice_mut(copied);
        times.iter_mut().for_each(|time| *time = time.wrapping_mul(unit_ns));
    } else if has_nulls && !nan.is_empty() {
        source.for_each_null(|i| copied[i * nan.len()..][..nan.len()].copy_from_slice(nan));
    }
    Ok(())
}

/// The number of nanoseconds in one `unit`, such as 1000 for a microsecond.
pub(super) fn ns_in(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1000,
        TimeUnit::Nanosecond => 1,
    }
}

/// The element type of an array of numbers; `None` for other arrays.
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

/// The bytes of the values of a primitive array; empty for other arrays.
pub(super) fn bytes(array: &dyn Array) -> &[u8] {
    downcast_primitive_array!(array => array.values().inner().as_slice(), _ => &[])
}

impl Cells {
    /// Replaces the total of a ragged or text column by 0, so that columns that differ only in this total compare as equal.
    pub fn form(self) -> Self {
        match self {
            Self::Ragged(_) => Self::Ragged(0),
            Self::Text(_) => Self::Text(0),
            other => other,
        }
    }

    /// Returns the Arrow type of a column with elements of type `dtype`, arranged in rows as `self` says. If `nullable`, the
    /// elements of lists may be null.
    pub fn arrow_type(self, dtype: Dtype, nullable: bool) -> DataType {
        let item = || Field::new_list_field(dtype.arrow_type(), nullable).into();
        match self {
            Self::One => dtype.arrow_type(),
            Self::Fixed(n) => DataType::FixedSizeList(item(), n as i32),
            Self::Ragged(_) => DataType::List(item()),
            Self::Text(_) => DataType::Utf8,
        }
    }
}

/// Copies a text column to a new column of `message`. A null becomes an empty text, and `Column::null_rows` lists its row.
fn read_text<'a>(
    name: &str,
    rows: impl Iterator<Item = Option<&'a str>> + Clone,
    null_rows: Option<&NullBuffer>,
    message: &mut Message,
) -> Result<(), Refusal> {
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

/// Copies a struct's column of numbers, or of lists of numbers, to `message`. `null_rows` is the null mask of the
/// struct's rows.
fn read_column(
    name: &str,
    array: &ArrayRef,
    null_rows: Option<&NullBuffer>,
    bfloat16: bool,
    message: &mut Message,
) -> Result<(), Refusal> {
    let null_rows = [null_rows, array.nulls()];
    match array.data_type() {
        DataType::List(_) => read_lists(name, array.as_list::<i32>(), null_rows, bfloat16, message),
        DataType::LargeList(_) => read_lists(name, array.as_list::<i64>(), null_rows, bfloat16, message),
        DataType::FixedSizeList(_, size) => {
            let (lists, size) = (array.as_fixed_size_list(), *size as usize);
            let from = lists.offset() * size;
            let source = Source {
                null_rows,
                rows: Rows::Every(size),
                ..Source::of(lists.values(), from..from + lists.len() * size)
            };
            read_values(name, source, Cells::Fixed(size), bfloat16, message)
        }
        _ => {
            let source = Source {
                null_rows: [null_rows[0], None],
                ..Source::of(array, 0..array.len())
            };
            read_values(name, source, Cells::One, bfloat16, message)
        }
    }
}

fn read_lists<O: OffsetSizeTrait>(
    name: &str,
    lists: &GenericListArray<O>,
    null_rows: [Option<&NullBuffer>; 2],
    bfloat16: bool,
    message: &mut Message,
) -> Result<(), Refusal> {
    let offsets = lists.value_offsets();
    let start = |row: usize| (offsets[row] - offsets[0]).as_usize();
    let (from, total) = (offsets[0].as_usize(), start(lists.len()));
    if i32::try_from(total).is_err() {
        return Err("it has more than 2^31 - 1 values");
    }
    let source = Source {
        null_rows,
        rows: Rows::Lists(lists.len(), &start),
        ..Source::of(lists.values(), from..from + total)
    };
    read_values(name, source, Cells::Ragged(total), bfloat16, message)?;
    if let Some(column) = message.columns_mut().last_mut() {
        if source.has_nulls() {
            let is_float = matches!(column.dtype, Dtype::Float16 | Dtype::Float32 | Dtype::Float64);
            // bfloat16 travels as integers; its nulls are already NaN.
            let is_integer = column.integers.is_none() && !is_float && !bfloat16;
            column.null_rows.extend(source.null_rows(lists.len(), is_integer));
        }
        column.offsets.extend((0..=lists.len()).map(|row| start(row) as i32));
    }
    Ok(())
}
