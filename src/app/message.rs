//! dora's messages into [`Message`]s: payload and metadata copied out into memory that is reused.

use crate::device::Dtype;
use crate::stream::{Cells, Message, MetadataValue};
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType,
    DurationSecondType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use dora_node_api::{MetadataParameters, Parameter};
use half::{bf16, f16};
use std::ops::Range;

/// Why a message can't be read. It is dropped and counted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The payload is of a type that no operation takes.
    #[error("Arrow type {came} ({why})")]
    ArrowType {
        /// The type that came.
        came: String,
        /// What is allowed.
        why: &'static str,
    },
    /// A metadata key has a value that it can't have.
    #[error("metadata `{key}` is {came} (allowed: {allowed})")]
    Metadata {
        /// The key.
        key: &'static str,
        /// The value that came.
        came: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// `shape` is not that of the payload.
    #[error("metadata `shape` {shape:?} is {expected} values, the payload has {came}")]
    Shape {
        /// The shape.
        shape: Vec<usize>,
        /// Its product.
        expected: usize,
        /// The length of the payload.
        came: usize,
    },
    /// `shape` is not that of the samples or the fields.
    #[error("metadata `shape` {shape:?} does not go with {came} `{key}` (allowed: {came} in its {place} place)")]
    Axis {
        /// The shape.
        shape: Vec<usize>,
        /// The other key.
        key: &'static str,
        /// Its length.
        came: usize,
        /// Where the shape must have it.
        place: &'static str,
    },
    /// `valid` has another length than the samples.
    #[error("metadata `valid` has {came} entries (allowed: {allowed}, one for each sample and modality)")]
    Valid {
        /// Its length.
        came: usize,
        /// What it must be.
        allowed: usize,
    },
}

/// Copies a message: its payload, and the metadata keys that robocache knows. A null becomes NaN, as a value that is not
/// there; a time becomes int64 nanoseconds; a column of a type that nothing can be made of is skipped. `timestamp_ns` is that of the metadata,
/// else an Integer `timestamp`; the returned flag says whether there was either, and without one the caller's stamp
/// stays.
///
/// # Errors
/// A payload or a metadata value that can't be; the message is then of no use.
pub fn read_message(
    parameters: &MetadataParameters,
    array: &ArrayRef,
    message: &mut Message,
) -> Result<bool, MessageError> {
    let timestamp_ns = message.timestamp_ns;
    message.clear();
    message.timestamp_ns = timestamp_ns;
    message.rows = array.len();
    let dtype = parameters.get("dtype");
    let bfloat16 = matches!(dtype, Some(Parameter::String(name)) if *name == *Dtype::BFloat16.name());
    match array.as_struct_opt() {
        Some(columns) => {
            for (field, column) in columns.fields().iter().zip(columns.columns()) {
                let bfloat16 = bfloat16 && field.name() == "values";
                if let Err(why) = read_column(field.name(), column, array.nulls(), bfloat16, message) {
                    message.skip(field, why);
                }
            }
        }
        None => {
            let source = Source {
                array: &**array,
                from: 0,
                len: array.len(),
                null_rows: [None; 2],
                rows: Rows::Every(1),
            };
            read_values("", source, Cells::One, bfloat16, message).map_err(|why| MessageError::ArrowType {
                came: array.data_type().to_string(),
                why,
            })?;
        }
    }
    read_parameters(parameters, message)
}

/// Reads the metadata keys that robocache knows into a message whose columns are there already.
pub(super) fn read_parameters(parameters: &MetadataParameters, message: &mut Message) -> Result<bool, MessageError> {
    let mut stamped = false;
    for key in ["timestamp", "timestamp_ns"] {
        match (parameters.get(key), key) {
            (Some(Parameter::Integer(stamp)), _) => {
                message.timestamp_ns = *stamp;
                stamped = true;
            }
            (Some(other), "timestamp_ns") => {
                return Err(metadata(
                    "timestamp_ns",
                    other,
                    "an Integer; from Python `int(x)`, a NumPy integer becomes text",
                ));
            }
            _ => {}
        }
    }
    message.timestamps_ns.clear();
    message
        .timestamps_ns
        .extend_from_slice(integers(parameters, "timestamps_ns")?);
    message.valid.clear();
    message.valid.extend_from_slice(integers(parameters, "valid")?);
    message.shape.clear();
    for &n in integers(parameters, "shape")? {
        let n = usize::try_from(n).map_err(|_| MessageError::Metadata {
            key: "shape",
            came: n.to_string(),
            allowed: "dimensions of 0 or more",
        })?;
        message.shape.push(n);
    }
    match parameters.get("fields") {
        Some(Parameter::ListString(fields)) => message.set_fields(fields),
        None => message.set_fields::<&str>(&[]),
        Some(other) => return Err(metadata("fields", other, "a list of strings")),
    }
    message.frame_id.clear();
    if let Some(Parameter::String(frame)) = parameters.get("frame_id") {
        message.frame_id.push_str(frame);
    }
    message.dim = match parameters.get("dim") {
        Some(Parameter::Integer(dim)) if *dim > 0 => *dim as usize,
        None => 0,
        Some(other) => return Err(metadata("dim", other, "an Integer of 1 or more")),
    };
    match parameters.get("dtype") {
        Some(Parameter::String(name)) => apply_dtype(name, message)?,
        None => {}
        Some(other) => return Err(metadata("dtype", other, "the name of an element type")),
    }
    read_further(parameters, message);
    check_form(parameters, message)?;
    Ok(stamped)
}

/// Reads what an observation says of itself, and keeps all that no field of [`Message`] says.
fn read_further(parameters: &MetadataParameters, message: &mut Message) {
    message.set_modalities::<&str>(&[]);
    message.epoch = 0;
    message.metadata.clear();
    for (key, value) in parameters {
        match (key.as_str(), value) {
            ("modalities", Parameter::ListString(names)) if !names.is_empty() => message.set_modalities(names),
            ("epoch", Parameter::Integer(epoch)) if *epoch != 0 => message.epoch = *epoch,
            (key, _) if key.starts_with('_') || key == OPEN_TELEMETRY => {}
            (key, value) if is_said(key, value, message) => {}
            (key, value) => copy_value(value, message.metadata.add(key)),
        }
    }
}

/// Whether the fields of the message, which are read already, say all of it: they can't tell what is empty from what is
/// not there.
fn is_said(key: &str, value: &Parameter, message: &Message) -> bool {
    match (key, value) {
        ("timestamp_ns" | "dim", _) => true,
        ("shape" | "timestamps_ns" | "valid", Parameter::ListInt(list)) => !list.is_empty(),
        ("fields", Parameter::ListString(names)) => !names.is_empty(),
        ("frame_id", Parameter::String(frame)) => !frame.is_empty(),
        ("dtype", Parameter::String(name)) => {
            let mut columns = message.columns().iter();
            Dtype::from_name(name) == Some(Dtype::BFloat16) && columns.any(|column| column.dtype == Dtype::BFloat16)
        }
        _ => false,
    }
}

/// The transport's own key among the ones that begin with a letter.
const OPEN_TELEMETRY: &str = "open_telemetry_context";

/// Copies a value into memory of an earlier one.
fn copy_value(value: &Parameter, to: &mut MetadataValue) {
    match (to, value) {
        (MetadataValue::String(to), Parameter::String(text)) => to.clone_from(text),
        (MetadataValue::ListInt(to), Parameter::ListInt(list)) => to.clone_from(list),
        (MetadataValue::ListFloat(to), Parameter::ListFloat(list)) => to.clone_from(list),
        (MetadataValue::ListString(to), Parameter::ListString(list)) => to.clone_from(list),
        (to, value) => {
            *to = match value {
                Parameter::Bool(value) => MetadataValue::Bool(*value),
                Parameter::Integer(value) => MetadataValue::Integer(*value),
                Parameter::Float(value) => MetadataValue::Float(*value),
                Parameter::String(value) => MetadataValue::String(value.clone()),
                Parameter::ListInt(value) => MetadataValue::ListInt(value.clone()),
                Parameter::ListFloat(value) => MetadataValue::ListFloat(value.clone()),
                Parameter::ListString(value) => MetadataValue::ListString(value.clone()),
                // The years that ns in 64 bits can't reach are no times of a message.
                Parameter::Timestamp(value) => MetadataValue::Timestamp(value.timestamp_nanos_opt().unwrap_or(0)),
            }
        }
    }
}

/// Holds what the metadata says of the form of a tensor against the payload, and against itself.
fn check_form(parameters: &MetadataParameters, message: &Message) -> Result<(), MessageError> {
    let len = match (message.on_device(), message.flat()) {
        (Some(tensor), _) => tensor.len,
        (None, Some(values)) => values.len(),
        (None, None) => return Ok(()),
    };
    let shape = message.shape.as_slice();
    let samples = message.timestamps_ns.len().max(1);
    let axis = |key, came, place| MessageError::Axis {
        shape: shape.to_vec(),
        key,
        came,
        place,
    };
    if let [first, .., last] | [first @ last] = shape {
        let cells = shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
        // The bits of a voxel grid are eight cells to a byte.
        let is_bits = parameters.contains_key("grid_shape") && cells.map(|cells| cells.div_ceil(8)) == Some(len);
        if cells != Some(len) && !is_bits {
            return Err(MessageError::Shape {
                shape: shape.to_vec(),
                expected: cells.unwrap_or(usize::MAX),
                came: len,
            });
        }
        if samples > 1 && *first != samples {
            return Err(axis("timestamps_ns", samples, "first"));
        }
        if !message.fields.is_empty() && *last != message.fields.len() {
            return Err(axis("fields", message.fields.len(), "last"));
        }
    }
    let parts = match parameters.get("modalities") {
        Some(Parameter::ListString(names)) => names.len(),
        _ => 1,
    };
    match message.valid.len() {
        0 => Ok(()),
        came if came == samples * parts => Ok(()),
        came => Err(MessageError::Valid {
            came,
            allowed: samples * parts,
        }),
    }
}

/// `dtype` tells bfloat16 from UInt16; in every other case it has to be what the payload is.
fn apply_dtype(name: &str, message: &mut Message) -> Result<(), MessageError> {
    let Some(dtype) = Dtype::from_name(name) else {
        return Err(MessageError::Metadata {
            key: "dtype",
            came: format!("`{name}`"),
            allowed: "float32, float64, float16, bfloat16, int8 to int64, uint8 to uint64",
        });
    };
    let is_flat = message.flat().is_some();
    for column in message.columns_mut() {
        let is_value = is_flat || column.name == "values";
        let came = column.integers.unwrap_or(column.dtype);
        if is_value && dtype == Dtype::BFloat16 && column.dtype == Dtype::UInt16 {
            column.dtype = Dtype::BFloat16;
        } else if is_value && dtype != came {
            return Err(MessageError::Metadata {
                key: "dtype",
                came: format!("`{name}`, the payload is {came}"),
                allowed: "the payload's type, or bfloat16 with a payload of UInt16",
            });
        }
    }
    Ok(())
}

fn integers<'a>(parameters: &'a MetadataParameters, key: &'static str) -> Result<&'a [i64], MessageError> {
    match parameters.get(key) {
        Some(Parameter::ListInt(list)) => Ok(list),
        // An empty list from Python arrives as a list of strings.
        Some(Parameter::ListString(list)) if list.is_empty() => Ok(&[]),
        None => Ok(&[]),
        Some(other) => Err(metadata(key, other, "a list of integers")),
    }
}

fn metadata(key: &'static str, came: &Parameter, allowed: &'static str) -> MessageError {
    MessageError::Metadata {
        key,
        came: format!("{came:?}"),
        allowed,
    }
}

/// A column or payload that can't be read, and why not.
type Unread = &'static str;

const ALLOWED: Unread = "allowed: arrays of floats, integers, timestamps or durations, in a struct also lists of these";

/// Values of an Arrow array, and which of them are not there.
#[derive(Clone, Copy)]
struct Source<'a> {
    array: &'a dyn Array,
    /// The values that are read.
    from: usize,
    len: usize,
    /// The nulls of rows: a row that is null has no values.
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
                let place = |i: usize| (offsets[i] - offsets[0]) as usize;
                place(row)..place(row + 1)
            }
            Self::LargeList(offsets) => {
                let place = |i: usize| (offsets[i] - offsets[0]) as usize;
                place(row)..place(row + 1)
            }
        }
    }
}

impl Source<'_> {
    fn has_nulls(&self) -> bool {
        let nulls = self.null_rows.iter().flatten();
        self.array.null_count() > 0 || nulls.into_iter().any(|nulls| nulls.null_count() > 0)
    }

    /// Calls `forget` once with the place of each value that is null, or in a row that is.
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

    fn values<T: ArrowPrimitiveType>(&self) -> &[T::Native] {
        &self.array.as_primitive::<T>().values()[self.from..self.from + self.len]
    }
}

/// Copies a column that is not a list. A null becomes NaN, integers with nulls becoming float64 for that. Nothing is
/// left behind where it can't be read.
fn read_values(
    name: &str,
    source: Source<'_>,
    cells: Cells,
    bfloat16: bool,
    message: &mut Message,
) -> Result<(), Unread> {
    let has_nulls = source.has_nulls();
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
            if has_nulls {
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
            // What lies under a null is of no consequence.
            source.for_each_null(|i| count -= usize::from(beyond(&source.values::<$T>()[i])));
            if count > 0 {
                return Err("a time in it is beyond int64 nanoseconds");
            }
            let (dtype, integers) = match has_nulls {
                true => (Dtype::Float64, Some(Dtype::Int64)),
                false => (Dtype::Int64, None),
            };
            let column = message.add_column(name, dtype, cells);
            column.integers = integers;
            column.data.resize(source.len * size_of::<i64>());
            let times = source.values::<$T>().iter().map(|time| time.wrapping_mul(UNIT_NS));
            if has_nulls {
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

/// Copies a column of a struct, of whose rows some may be null.
fn read_column(
    name: &str,
    array: &ArrayRef,
    null_rows: Option<&NullBuffer>,
    bfloat16: bool,
    message: &mut Message,
) -> Result<(), Unread> {
    let list = |values: &ArrayRef, range: Range<usize>, rows: Rows<'_>, cells, message: &mut Message| {
        let source = Source {
            array: &**values,
            from: range.start,
            len: range.len(),
            null_rows: [null_rows, array.nulls()],
            rows,
        };
        read_values(name, source, cells, bfloat16, message)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::voxelize::Cloud;
    use arrow::array::{
        BooleanArray, DictionaryArray, DurationMicrosecondArray, FixedSizeListArray, Float32Array, LargeListArray,
        ListArray, StringArray, StructArray, TimestampMillisecondArray, TimestampNanosecondArray, UInt16Array,
        UInt32Array,
    };
    use arrow::datatypes::{Field, Int32Type};
    use std::sync::Arc;

    fn read(parameters: &[(&str, Parameter)], array: impl Array + 'static) -> Result<(Message, bool), MessageError> {
        let mut message = Message::default();
        let parameters = parameters
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.clone()))
            .collect();
        let array: ArrayRef = Arc::new(array);
        let stamped = read_message(&parameters, &array, &mut message)?;
        Ok((message, stamped))
    }

    #[test]
    fn a_tensor_is_copied_with_what_its_metadata_says() {
        let array = Float32Array::from(vec![9.0, 1.0, 2.0, 3.0, 4.0]).slice(1, 4);
        let parameters = [
            ("timestamp_ns", Parameter::Integer(7)),
            ("timestamp", Parameter::Integer(6)),
            ("timestamps_ns", Parameter::ListInt(vec![5, 7])),
            ("shape", Parameter::ListInt(vec![2, 2])),
            ("frame_id", Parameter::String("tool".into())),
        ];
        let (message, stamped) = read(&parameters, array).unwrap();
        assert!(stamped);
        assert_eq!(message.timestamp_ns, 7);
        assert_eq!(message.timestamps_ns, [5, 7]);
        assert_eq!(message.shape, [2, 2]);
        assert_eq!(message.frame_id, "tool");
        assert_eq!(message.flat().unwrap().as_slice::<f32>(), [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn what_an_observation_says_and_what_nobody_knows_is_kept() {
        let names = |names: &[&str]| Parameter::ListString(names.iter().map(|name| (*name).to_owned()).collect());
        let parameters = [
            ("timestamp_ns", Parameter::Integer(7)),
            ("shape", Parameter::ListInt(vec![1])),
            ("modalities", names(&["camera", "force"])),
            ("epoch", Parameter::Integer(2)),
            ("age_ns", Parameter::ListInt(vec![-1, 5])),
            ("encoding", Parameter::String("rgb8".into())),
            ("gain", Parameter::Float(0.5)),
            ("_framing", Parameter::String("arrow_ipc".into())),
        ];
        let (mut message, _) = read(&parameters, Float32Array::from(vec![1.0])).unwrap();
        assert_eq!(message.modalities(), ["camera", "force"]);
        assert_eq!(message.epoch, 2);
        let kept: Vec<_> = message.metadata.iter().collect();
        assert_eq!(
            kept,
            [
                ("age_ns", &MetadataValue::ListInt(vec![-1, 5])),
                ("encoding", &MetadataValue::String("rgb8".into())),
                ("gain", &MetadataValue::Float(0.5)),
            ]
        );
        // What a field can't tell from what is not there.
        let parameters = [
            ("dtype", Parameter::String("float32".into())),
            ("epoch", Parameter::Integer(0)),
            ("fields", names(&[])),
            ("frame_id", Parameter::String(String::new())),
            ("shape", Parameter::ListInt(vec![])),
        ];
        let (empty, _) = read(&parameters, Float32Array::from(vec![1.0])).unwrap();
        assert!(
            empty
                .metadata
                .iter()
                .map(|(key, _)| key)
                .eq(parameters.iter().map(|(key, _)| *key))
        );
        // Of another type they are the sender's own, and no error.
        let parameters = [("epoch", Parameter::Float(1.5)), ("modalities", Parameter::Integer(3))];
        let parameters = parameters.map(|(key, value)| (key.to_owned(), value)).into();
        read_parameters(&parameters, &mut message).unwrap();
        assert!(message.modalities().is_empty() && message.epoch == 0);
        assert_eq!(message.metadata.get("epoch"), Some(&MetadataValue::Float(1.5)));
        assert_eq!(message.metadata.iter().count(), 2);
    }

    #[test]
    fn the_stamp_may_be_the_older_key_or_missing() {
        let array = || Float32Array::from(vec![1.0]);
        let (message, stamped) = read(&[("timestamp", Parameter::Integer(6))], array()).unwrap();
        assert_eq!((message.timestamp_ns, stamped), (6, true));
        assert!(!read(&[], array()).unwrap().1);
    }

    #[test]
    fn ragged_columns_start_at_zero_even_in_a_slice() {
        let list = ListArray::from_iter_primitive::<arrow::datatypes::Int64Type, _, _>([
            Some(vec![Some(1), Some(2)]),
            Some(vec![Some(3)]),
            Some(vec![]),
        ]);
        let field = Arc::new(Field::new("targets_ns", list.data_type().clone(), false));
        let batch = StructArray::from(vec![(field, Arc::new(list) as ArrayRef)]).slice(1, 2);
        let (message, _) = read(&[], batch).unwrap();
        let column = message.column("targets_ns").unwrap();
        assert_eq!(message.rows, 2);
        assert_eq!(column.offsets, [0, 1, 1]);
        assert_eq!(column.row(0).as_slice::<i64>(), [3]);
    }

    #[test]
    fn bfloat16_travels_as_uint16() {
        let bits = half::bf16::from_f32(1.5).to_bits();
        let dtype = ("dtype", Parameter::String("bfloat16".into()));
        let (message, _) = read(&[dtype], UInt16Array::from(vec![bits])).unwrap();
        let mut value = [0.0];
        message.flat().unwrap().to_f32(&mut value);
        assert_eq!(value, [1.5]);
    }

    fn columns(columns: Vec<(&str, ArrayRef)>, nulls: Option<NullBuffer>) -> StructArray {
        let field = |(name, column): &(&str, ArrayRef)| Field::new(*name, column.data_type().clone(), true);
        let fields: Vec<_> = columns.iter().map(field).collect();
        StructArray::new(
            fields.into(),
            columns.into_iter().map(|(_, column)| column).collect(),
            nulls,
        )
    }

    fn floats_of(message: &Message, name: &str) -> Vec<f32> {
        let values = message.column(name).unwrap().values();
        let mut out = vec![0.0; values.len()];
        values.to_f32(&mut out);
        out
    }

    #[test]
    fn what_nothing_asks_for_is_skipped_and_what_is_asked_for_is_named() {
        let xyz = || -> ArrayRef { Arc::new(Float32Array::from(vec![1.0, 2.0])) };
        let dictionary: DictionaryArray<Int32Type> = vec!["a", "b"].into_iter().collect();
        let nested = columns(vec![("x", xyz())], None);
        let cloud = columns(
            vec![
                ("valid", Arc::new(BooleanArray::from(vec![true, false]))),
                ("x", xyz()),
                ("name", Arc::new(StringArray::from(vec!["a", "b"]))),
                ("y", xyz()),
                ("class", Arc::new(dictionary)),
                ("pose", Arc::new(nested)),
                ("z", xyz()),
            ],
            None,
        );
        let (message, _) = read(&[], cloud).unwrap();
        let cloud = Cloud::from_message(&message).unwrap();
        assert_eq!(cloud.len(), 2);
        let asked = |name| cloud.field(name).unwrap_err().to_string();
        assert!(asked("valid").starts_with("field `valid` is Boolean (allowed: arrays of floats"));
        assert!(asked("class").starts_with("field `class` is Dictionary(Int32, Utf8) (allowed"));
        assert_eq!(asked("ring"), "no field `ring`: the cloud has x, y, z");
        let mut copy = Message::default();
        copy.copy_from(&message);
        assert_eq!(copy.skipped().len(), 4);
    }

    #[test]
    fn a_null_is_a_value_that_is_not_there() {
        let (message, _) = read(&[], Float32Array::from(vec![Some(1.0), None, Some(3.0)])).unwrap();
        let values = floats_of(&message, "");
        assert!(values[0] == 1.0 && values[1].is_nan() && values[2] == 3.0);
        // The second row of the struct is null, and so is a value of another.
        let cloud = columns(
            vec![
                ("x", Arc::new(Float32Array::from(vec![1.0, 2.0, 3.0]))),
                ("ring", Arc::new(UInt32Array::from(vec![Some(7), Some(8), None]))),
                (
                    "t",
                    Arc::new(TimestampMillisecondArray::from(vec![Some(1), None, Some(2)])),
                ),
            ],
            Some(NullBuffer::from(vec![true, false, true])),
        );
        let (message, _) = read(&[], cloud.slice(1, 2)).unwrap();
        let (x, ring) = (floats_of(&message, "x"), floats_of(&message, "ring"));
        assert!(x[0].is_nan() && x[1] == 3.0);
        assert!(ring.iter().all(|ring| ring.is_nan()));
        let ring = message.column("ring").unwrap();
        assert_eq!((ring.dtype, ring.integers), (Dtype::Float64, Some(Dtype::UInt32)));
        assert!(floats_of(&message, "t")[0].is_nan() && floats_of(&message, "t")[1] == 2e6);
        // Without nulls nothing changes, though there is a bitmap for them.
        let (message, _) = read(&[], UInt32Array::from(vec![Some(7), None]).slice(0, 1)).unwrap();
        assert_eq!(
            (message.flat().unwrap().dtype(), message.columns()[0].integers),
            (Dtype::UInt32, None)
        );
    }

    #[test]
    fn nulls_go_with_the_dtype_that_the_metadata_names() {
        let dtype = |name: &str| ("dtype", Parameter::String(name.into()));
        let nulls = || UInt16Array::from(vec![Some(half::bf16::from_f32(1.5).to_bits()), None]);
        let (message, _) = read(&[dtype("bfloat16")], nulls()).unwrap();
        assert_eq!(message.flat().unwrap().dtype(), Dtype::BFloat16);
        assert!(floats_of(&message, "")[0] == 1.5 && floats_of(&message, "")[1].is_nan());
        let (message, _) = read(&[dtype("uint16")], nulls()).unwrap();
        assert!(floats_of(&message, "")[1].is_nan());
    }

    #[test]
    fn times_are_nanoseconds_in_every_unit() {
        let list = ListArray::from_iter_primitive::<arrow::datatypes::TimestampSecondType, _, _>([
            Some(vec![Some(1), None]),
            None,
            Some(vec![Some(-2)]),
        ]);
        let message = columns(
            vec![
                (
                    "ns",
                    Arc::new(TimestampNanosecondArray::from(vec![5, i64::MAX, i64::MIN])),
                ),
                ("ms", Arc::new(TimestampMillisecondArray::from(vec![5, -6, 7]))),
                ("us", Arc::new(DurationMicrosecondArray::from(vec![5, 6, 7]))),
                (
                    "far",
                    Arc::new(TimestampMillisecondArray::from(vec![0, i64::MAX / 1000, 0])),
                ),
                ("list", Arc::new(list)),
            ],
            None,
        );
        let (message, _) = read(&[], message).unwrap();
        let int64 = |name| message.column(name).unwrap().data.as_slice::<i64>().to_vec();
        assert_eq!(int64("ns"), [5, i64::MAX, i64::MIN]);
        assert_eq!(int64("ms"), [5_000_000, -6_000_000, 7_000_000]);
        assert_eq!(int64("us"), [5000, 6000, 7000]);
        assert_eq!(message.skipped()[0].reason, "a time in it is beyond int64 nanoseconds");
        let list = message.column("list").unwrap();
        assert_eq!(list.offsets, [0, 2, 2, 3]);
        assert_eq!(floats_of(&message, "list")[2], -2e9);
        // What is under a null is no time.
        let hidden = TimestampMillisecondArray::new(vec![i64::MAX, 1].into(), Some(vec![false, true].into()));
        let (message, _) = read(&[], hidden).unwrap();
        assert_eq!(floats_of(&message, "")[1], 1e6);
    }

    #[test]
    fn lists_of_every_kind_are_columns() {
        let rows = || {
            [
                Some(vec![Some(0)]),
                Some(vec![Some(1), Some(2)]),
                None,
                Some(vec![Some(3), None]),
            ]
        };
        let list = ListArray::from_iter_primitive::<Int64Type, _, _>(rows());
        let large = LargeListArray::from_iter_primitive::<Int64Type, _, _>(rows());
        let fixed = [
            Some(vec![Some(0), Some(9)]),
            Some(vec![Some(1), Some(2)]),
            None,
            Some(vec![Some(3), None]),
        ];
        let fixed = FixedSizeListArray::from_iter_primitive::<Int64Type, _, _>(fixed, 2);
        let batch = columns(
            vec![
                ("list", Arc::new(list)),
                ("large", Arc::new(large)),
                ("fixed", Arc::new(fixed)),
            ],
            None,
        );
        let (message, _) = read(&[], batch.slice(1, 3)).unwrap();
        for name in ["list", "large"] {
            let column = message.column(name).unwrap();
            assert_eq!(
                (column.cells, &column.offsets[..]),
                (Cells::Ragged(4), &[0, 2, 2, 4][..]),
                "{name}"
            );
            let values = floats_of(&message, name);
            assert!(values[..3] == [1.0, 2.0, 3.0] && values[3].is_nan(), "{name}");
        }
        assert_eq!(message.column("fixed").unwrap().cells, Cells::Fixed(2));
        let fixed = floats_of(&message, "fixed");
        assert!(fixed[..2] == [1.0, 2.0] && fixed[2..4].iter().all(|value| value.is_nan()));
        assert!(fixed[4] == 3.0 && fixed[5].is_nan());
    }

    #[test]
    fn lists_in_the_only_row_are_a_cloud() {
        let list = |values: [f32; 3]| -> ArrayRef {
            let values = Some(values.map(Some).to_vec());
            Arc::new(LargeListArray::from_iter_primitive::<Float32Type, _, _>([values]))
        };
        let cloud = columns(
            vec![
                ("x", list([1.0, 2.0, 3.0])),
                ("y", list([0.0; 3])),
                ("z", list([4.0; 3])),
            ],
            None,
        );
        let (message, _) = read(&[], cloud).unwrap();
        assert_eq!(Cloud::from_message(&message).unwrap().len(), 3);
    }

    #[test]
    fn what_the_metadata_says_of_the_form_must_agree() {
        let list = |key: &'static str, values: &[i64]| (key, Parameter::ListInt(values.to_vec()));
        let names = |key: &'static str, names: &[&str]| {
            (
                key,
                Parameter::ListString(names.iter().map(|name| (*name).to_owned()).collect()),
            )
        };
        let six = || Float32Array::from(vec![0.0; 6]);
        let refused = |parameters: &[(&str, Parameter)]| read(parameters, six()).err().map(|error| error.to_string());
        let (shape, stamps) = (
            |shape: &[i64]| list("shape", shape),
            |stamps: &[i64]| list("timestamps_ns", stamps),
        );
        assert_eq!(
            refused(&[shape(&[2, 3]), stamps(&[1, 2, 3])]).unwrap(),
            "metadata `shape` [2, 3] does not go with 3 `timestamps_ns` (allowed: 3 in its first place)"
        );
        assert_eq!(
            refused(&[shape(&[2, 3]), names("fields", &["x", "y"])]).unwrap(),
            "metadata `shape` [2, 3] does not go with 2 `fields` (allowed: 2 in its last place)"
        );
        assert_eq!(
            refused(&[stamps(&[1, 2]), list("valid", &[1, 1, 1])]).unwrap(),
            "metadata `valid` has 3 entries (allowed: 2, one for each sample and modality)"
        );
        assert!(refused(&[list("valid", &[1, 1])]).unwrap().contains("allowed: 1"));
        assert!(
            refused(&[shape(&[7])])
                .unwrap()
                .contains("`shape` [7] is 7 values, the payload has 6")
        );
        assert!(refused(&[shape(&[1, i64::MAX, 4])]).is_some());
        let good = [
            vec![
                shape(&[2, 3]),
                stamps(&[1, 2]),
                list("valid", &[0, 1]),
                names("fields", &["x", "y", "z"]),
            ],
            vec![shape(&[6]), stamps(&[1]), list("valid", &[1])],
            vec![shape(&[]), stamps(&[])],
            // A window of two rows of three modalities.
            vec![
                shape(&[2, 3]),
                stamps(&[1, 2]),
                names("modalities", &["a", "b", "c"]),
                list("valid", &[1; 6]),
            ],
        ];
        for parameters in good {
            assert_eq!(refused(&parameters), None, "{parameters:?}");
        }
        // The shape of bits is that of their cells.
        let bits = |bytes: usize| {
            let parameters = [shape(&[5, 2, 1]), list("grid_shape", &[5, 2, 1])];
            read(&parameters, arrow::array::UInt8Array::from(vec![0; bytes]))
        };
        assert!(bits(2).is_ok() && bits(3).is_err());
    }

    #[test]
    fn what_cannot_be_read_is_said_in_full() {
        let floats = || Float32Array::from(vec![1.0, 2.0]);
        let message = |result: Result<(Message, bool), MessageError>| match result {
            Ok(_) => panic!("it was read"),
            Err(error) => error.to_string(),
        };
        assert!(
            message(read(&[], StringArray::from(vec!["a"]))).contains("Arrow type Utf8 (allowed: arrays of floats")
        );
        // A list is the column of a struct, and of numbers.
        let nested = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1)])]);
        assert!(message(read(&[], nested)).contains("Arrow type List(Int64) (allowed: arrays of floats"));
        let text = ("timestamp_ns", Parameter::String("17".into()));
        assert!(message(read(&[text], floats())).contains("a NumPy integer becomes text"));
        let shape = ("shape", Parameter::ListInt(vec![3]));
        assert!(message(read(&[shape], floats())).contains("`shape` [3] is 3 values, the payload has 2"));
        let dtype = ("dtype", Parameter::String("float64".into()));
        assert!(message(read(&[dtype], floats())).contains("the payload is float32"));
    }
}
