//! dora's messages into [`Message`]s: payload and metadata copied out into memory that is reused.

use crate::device::Dtype;
use crate::stream::{Cells, Column, Message};
use arrow::array::{Array, ArrayRef, AsArray, make_array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use dora_node_api::{MetadataParameters, Parameter};
use half::f16;

/// Why a message can't be read. It is dropped and counted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The payload is of a type that no operation takes.
    #[error("{place}Arrow type {came} (allowed: arrays of floats or integers, or a struct of such columns)")]
    ArrowType {
        /// The column, or nothing.
        place: String,
        /// The type that came.
        came: String,
    },
    /// There are nulls in the payload.
    #[error("{place}{count} nulls (none are allowed: leave the values out)")]
    Nulls {
        /// The column, or nothing.
        place: String,
        /// How many.
        count: usize,
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
}

/// Copies a message: its payload, and the metadata keys that robocache knows. `timestamp_ns` is that of the metadata,
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
    match array.as_struct_opt() {
        Some(columns) => {
            for (field, column) in columns.fields().iter().zip(columns.columns()) {
                read_column(field.name(), column, None, message)?;
                match (array.nulls(), message.columns_mut().last_mut()) {
                    (Some(rows), Some(column)) if matches!(column.cells, Cells::Ragged(_)) => {
                        note_null_rows(column, rows);
                    }
                    _ => check_nulls("", array)?,
                }
            }
        }
        None => read_column("", array, None, message)?,
    }
    let stamped = read_parameters(parameters, message)?;
    if let Some(values) = message.flat()
        && !message.shape.is_empty()
    {
        let expected = message
            .shape
            .iter()
            .try_fold(1usize, |product, &n| product.checked_mul(n));
        if expected != Some(values.len()) {
            return Err(MessageError::Shape {
                shape: message.shape.clone(),
                expected: expected.unwrap_or(usize::MAX),
                came: values.len(),
            });
        }
    }
    Ok(stamped)
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
    Ok(stamped)
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
        if is_value && dtype == Dtype::BFloat16 && column.dtype == Dtype::UInt16 {
            column.dtype = Dtype::BFloat16;
        } else if is_value && dtype != column.dtype {
            return Err(MessageError::Metadata {
                key: "dtype",
                came: format!("`{name}`, the payload is {}", column.dtype),
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

fn check_nulls(name: &str, array: &ArrayRef) -> Result<(), MessageError> {
    match array.null_count() {
        0 => Ok(()),
        count => Err(MessageError::Nulls {
            place: place(name),
            count,
        }),
    }
}

fn place(name: &str) -> String {
    if name.is_empty() {
        String::new()
    } else {
        format!("column `{name}`: ")
    }
}

fn read_column(name: &str, array: &ArrayRef, cells: Option<Cells>, message: &mut Message) -> Result<(), MessageError> {
    let is_list = matches!(array.data_type(), DataType::List(_));
    if !is_list {
        check_nulls(name, array)?;
    }
    macro_rules! copy {
        ($T:ty, $dtype:ident) => {{
            let column = message.add_column(name, Dtype::$dtype, cells.unwrap_or(Cells::One));
            let values: &[<$T as ArrowPrimitiveType>::Native] = array.as_primitive::<$T>().values();
            column.data.copy_from(bytemuck::cast_slice(values));
        }};
    }
    match (array.data_type(), cells) {
        (DataType::Float32, _) => copy!(Float32Type, Float32),
        (DataType::Float64, _) => copy!(Float64Type, Float64),
        (DataType::Float16, _) => copy!(Float16Type, Float16),
        (DataType::Int8, _) => copy!(Int8Type, Int8),
        (DataType::Int16, _) => copy!(Int16Type, Int16),
        (DataType::Int32, _) => copy!(Int32Type, Int32),
        (DataType::Int64, _) => copy!(Int64Type, Int64),
        (DataType::UInt8, _) => copy!(UInt8Type, UInt8),
        (DataType::UInt16, _) => copy!(UInt16Type, UInt16),
        (DataType::UInt32, _) => copy!(UInt32Type, UInt32),
        (DataType::UInt64, _) => copy!(UInt64Type, UInt64),
        (DataType::List(_), None) if !name.is_empty() => {
            let list = array.as_list::<i32>();
            let (first, last) = match list.offsets().as_ref() {
                [first, .., last] => (*first, *last),
                _ => (0, 0),
            };
            let values = list.values().slice(first as usize, (last - first) as usize);
            let without_nulls = values.to_data().into_builder().nulls(None).build();
            let all_there = make_array(without_nulls.map_err(|_| unreadable(name, array))?);
            read_column(name, &all_there, Some(Cells::Ragged(values.len())), message)?;
            if let Some(column) = message.columns_mut().last_mut() {
                column
                    .offsets
                    .extend(list.offsets().iter().map(|offset| offset - first));
                if let Some(nulls) = values.nulls() {
                    forget_nulls(column, nulls);
                }
                if let Some(rows) = array.nulls() {
                    note_null_rows(column, rows);
                }
            }
        }
        (DataType::FixedSizeList(_, size), None) if !name.is_empty() => {
            let list = array.as_fixed_size_list();
            let size = *size as usize;
            let values = list.values().slice(list.offset() * size, list.len() * size);
            read_column(name, &values, Some(Cells::Fixed(size)), message)?;
        }
        _ => return Err(unreadable(name, array)),
    }
    Ok(())
}

fn unreadable(name: &str, array: &ArrayRef) -> MessageError {
    MessageError::ArrowType {
        place: place(name),
        came: array.data_type().to_string(),
    }
}

/// Makes floats that are null NaN, and notes the rows of other types that have a null in them.
fn forget_nulls(column: &mut Column, nulls: &NullBuffer) {
    let are_null = (0..nulls.len()).filter(|&i| nulls.is_null(i));
    match column.dtype {
        Dtype::Float32 => are_null.for_each(|i| column.data.as_mut_slice::<f32>()[i] = f32::NAN),
        Dtype::Float64 => are_null.for_each(|i| column.data.as_mut_slice::<f64>()[i] = f64::NAN),
        Dtype::Float16 => are_null.for_each(|i| column.data.as_mut_slice::<f16>()[i] = f16::NAN),
        _ => {
            let rows = column.offsets.windows(2).enumerate();
            let has_null = |span: &[i32]| (span[0]..span[1]).any(|i| nulls.is_null(i as usize));
            let null_rows = rows.filter(|(_, span)| has_null(span)).map(|(row, _)| row);
            column.null_rows.extend(null_rows);
        }
    }
}

/// Notes the rows that are null as a whole.
fn note_null_rows(column: &mut Column, rows: &NullBuffer) {
    column
        .null_rows
        .extend((0..rows.len()).filter(|&row| rows.is_null(row)));
    column.null_rows.sort_unstable();
    column.null_rows.dedup();
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Float32Array, ListArray, StringArray, StructArray, UInt16Array};
    use arrow::datatypes::Field;
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
    fn nulls_in_lists_are_noted_by_row_and_floats_are_nan() {
        use arrow::datatypes::{Float32Type, Int64Type};
        let stamps = ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(1), None]),
            Some(vec![Some(3)]),
            None,
            Some(vec![Some(5)]),
        ]);
        let values = ListArray::from_iter_primitive::<Float32Type, _, _>([
            Some(vec![Some(1.0), None]),
            None,
            Some(vec![]),
            Some(vec![Some(5.0)]),
        ]);
        let field = |name: &str, list: &ListArray| Arc::new(Field::new(name, list.data_type().clone(), true));
        let fields = vec![field("timestamps_ns", &stamps), field("values", &values)];
        let columns: Vec<ArrayRef> = vec![Arc::new(stamps), Arc::new(values)];
        let rows = NullBuffer::from(vec![true, true, true, false]);
        let batch = StructArray::new(fields.into(), columns, Some(rows));
        let (message, _) = read(&[], batch).unwrap();
        let null_rows = |name: &str| message.column(name).unwrap().null_rows.clone();
        assert_eq!(null_rows("timestamps_ns"), [0, 2, 3]);
        assert_eq!(null_rows("values"), [1, 3]);
        let values = message.column("values").unwrap().data.as_slice::<f32>();
        assert!(values[0] == 1.0 && values[1].is_nan());
        assert_eq!(message.column("timestamps_ns").unwrap().row(1).as_slice::<i64>(), [3]);
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
        assert!(message(read(&[], Float32Array::from(vec![Some(1.0), None]))).contains("1 nulls"));
        let text = ("timestamp_ns", Parameter::String("17".into()));
        assert!(message(read(&[text], floats())).contains("a NumPy integer becomes text"));
        let shape = ("shape", Parameter::ListInt(vec![3]));
        assert!(message(read(&[shape], floats())).contains("`shape` [3] is 3 values, the payload has 2"));
        let dtype = ("dtype", Parameter::String("float64".into()));
        assert!(message(read(&[dtype], floats())).contains("the payload is float32"));
    }
}
