//! The encodings of messages.

use super::protobuf::{self, Layout};
use super::tally::Tally;
use super::types::Type;
use super::{cdr, json};
use arrow_array::StructArray;
use arrow_schema::Fields;
use std::sync::Arc;

/// How messages of a type are encoded.
pub(super) enum Decoder {
    /// `ends`: a message ends where its type does, as its type may be another version than the message is of.
    Cdr {
        ends: bool,
    },
    Protobuf(Arc<Layout>),
    Json,
}

impl Decoder {
    /// Reads a message into a struct of one row. `fields` are those that the type becomes. What the type has no place for is
    /// told to the tally.
    pub fn read(&self, of: &Type, fields: &Fields, data: &[u8], tally: &mut Tally) -> Result<StructArray, String> {
        match self {
            Self::Cdr { ends } => cdr::read(of, fields, data, *ends),
            Self::Protobuf(layout) => protobuf::read(layout, of, fields, data),
            Self::Json => {
                let message = json::Message::parse(data)?;
                let (payload, losses) = json::read(of, fields, &message)?;
                if let Some(key) = losses.unknown {
                    tally.unknown.add(1, format!("`{key}`"));
                }
                if let Some(key) = message.twice {
                    tally.twice.add(1, format!("`{key}`"));
                }
                if losses.rounded > 0 {
                    tally.rounded.add(losses.rounded, format!("`{}`", losses.rounded_at));
                }
                Ok(payload)
            }
        }
    }
}
