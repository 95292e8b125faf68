//! The encodings of messages.

use super::protobuf::{self, Layout};
use super::tally::Tally;
use super::types::Type;
use super::{cdr, json};
use crate::arrow::array::StructArray;
use crate::arrow::datatypes::Fields;
use std::sync::Arc;

/// How messages of a type are encoded.
pub(super) enum Decoder {
    Cdr,
    Protobuf(Arc<Layout>),
    Json,
}

impl Decoder {
    /// Reads a message into a struct of one row. `fields` are those that the type becomes. What the type has no place for is
    /// told to the tally.
    pub fn read(&self, of: &Type, fields: &Fields, data: &[u8], tally: &mut Tally) -> Result<StructArray, String> {
        match self {
            Self::Cdr => cdr::read(of, fields, data),
            Self::Protobuf(layout) => protobuf::read(layout, of, fields, data),
            Self::Json => {
                let (payload, unknown) = json::read(of, fields, &json::Value::parse(data)?)?;
                if let Some(key) = unknown {
                    tally.unknown.add(format!("`{key}`"));
                }
                Ok(payload)
            }
        }
    }
}
