//! dora's messages into [`Message`]s: payload and metadata copied out into memory that is reused.

use super::columns;
use crate::arrow::array::{Array, ArrayRef};
use crate::device::Dtype;
use crate::stream::{Message, MetadataValue};
use dora_node_api::{MetadataParameters, Parameter};

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
    columns::read(array, bfloat16, message).map_err(|why| MessageError::ArrowType {
        came: array.data_type().to_string(),
        why,
    })?;
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

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
