//! Conversion of dora's metadata to headers, and back.
//!
//! A header never has the keys that dora's transport adds, and times keep their nanoseconds.

use arrow_array::ArrayRef;
use dora_node_api::metadata::{FRAMING, FRAMING_ARROW_IPC};
use dora_node_api::{MetadataParameters, Parameter};
use robocache_stream::{Header, Message, MessageError, MetadataRef, Selector};
use std::time::{Duration, UNIX_EPOCH};

/// Metadata key that dora adds for its own use, the only such key that does not begin with `_`.
const OPEN_TELEMETRY: &str = "open_telemetry_context";

/// Copies a message out of dora's memory: its metadata without dora's own keys, and the fields of the payload that `selector`
/// selects. A payload in a ring is not read.
///
/// # Errors
/// A payload or metadata that can't be read. The contents of `message` are then undefined.
pub fn read_message(
    parameters: &MetadataParameters,
    array: &ArrayRef,
    selector: &mut Selector,
    message: &mut Message,
) -> Result<(), MessageError> {
    let is_ours = |key: &str| !key.starts_with('_') && key != OPEN_TELEMETRY;
    let entries = parameters.iter().filter(|(key, _)| is_ours(key));
    let entries = entries.map(|(key, value)| (key.as_str(), borrowed(value)));
    selector.read(entries, array, message)
}

/// Converts a header to the metadata of a message in Arrow's IPC format.
pub(super) fn parameters(header: &Header) -> MetadataParameters {
    let entries = header.iter().map(|(key, value)| (key.to_owned(), owned(value)));
    let mut parameters: MetadataParameters = entries.collect();
    parameters.insert(FRAMING.to_owned(), Parameter::String(FRAMING_ARROW_IPC.to_owned()));
    parameters
}

fn borrowed(value: &Parameter) -> MetadataRef<'_> {
    match value {
        Parameter::Bool(value) => MetadataRef::Bool(*value),
        Parameter::Integer(value) => MetadataRef::Integer(*value),
        Parameter::Float(value) => MetadataRef::Float(*value),
        Parameter::String(value) => MetadataRef::String(value),
        Parameter::ListInt(value) => MetadataRef::ListInt(value),
        Parameter::ListFloat(value) => MetadataRef::ListFloat(value),
        Parameter::ListString(value) => MetadataRef::ListString(value),
        // A message can't have a time that 64 bits of ns can't hold.
        Parameter::Timestamp(value) => MetadataRef::Timestamp(value.timestamp_nanos_opt().unwrap_or(0)),
    }
}

fn owned(value: MetadataRef<'_>) -> Parameter {
    match value {
        MetadataRef::Bool(value) => Parameter::Bool(value),
        MetadataRef::Integer(value) => Parameter::Integer(value),
        MetadataRef::Float(value) => Parameter::Float(value),
        MetadataRef::String(value) => Parameter::String(value.to_owned()),
        MetadataRef::ListInt(value) => Parameter::ListInt(value.to_vec()),
        MetadataRef::ListFloat(value) => Parameter::ListFloat(value.to_vec()),
        MetadataRef::ListString(value) => Parameter::ListString(value.to_vec()),
        MetadataRef::Timestamp(ns) => {
            let distance = Duration::from_nanos(ns.unsigned_abs());
            let time = match ns < 0 {
                true => UNIX_EPOCH - distance,
                false => UNIX_EPOCH + distance,
            };
            Parameter::Timestamp(time.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Float32Array;
    use robocache_stream::{Selection, form};
    use std::sync::Arc;

    #[test]
    fn what_a_sender_says_is_what_a_consumer_reads() {
        let mut sent = Header::default();
        sent.timestamp_ns.set(7);
        form::modalities.set(&mut sent, ["camera", "force"]);
        sent.valid.set([1, 0]);
        *sent.other.set("encoding") = robocache_stream::MetadataValue::String("rgb8".into());
        let mut parameters = parameters(&sent);
        assert_eq!(parameters[FRAMING], Parameter::String(FRAMING_ARROW_IPC.into()));
        parameters.insert(OPEN_TELEMETRY.into(), Parameter::String("trace".into()));
        let array: ArrayRef = Arc::new(Float32Array::from(vec![1.0]));
        let mut message = Message::default();
        let mut selector = Selector::new(Selection::default());
        read_message(&parameters, &array, &mut selector, &mut message).unwrap();
        assert_eq!(*message.header, sent);
    }

    #[test]
    fn a_time_is_the_one_that_was_sent() {
        for ns in [0, 1_700_000_000_123_456_789, -1_000_000_001, i64::MAX, i64::MIN] {
            let parameter = owned(MetadataRef::Timestamp(ns));
            assert_eq!(borrowed(&parameter), MetadataRef::Timestamp(ns));
        }
    }
}
