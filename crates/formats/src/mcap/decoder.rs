//! The encodings of messages.

use super::protobuf::{self, Layout};
use super::tally::Tally;
use super::types::Type;
use super::{cdr, columns, json};
use arrow_array::StructArray;
use arrow_schema::Fields;
use std::sync::Arc;

/// Reads the messages of a type.
pub(super) struct Decoder {
    of: Arc<Type>,
    /// The fields of the Arrow struct that the type becomes.
    pub fields: Fields,
    pub encoding: Encoding,
}

pub(super) enum Encoding {
    /// `ends`: a message ends where its type does, as its type may be another version than the message is of.
    Cdr {
        ends: bool,
    },
    Protobuf(Arc<Layout>),
    Json,
}

impl Decoder {
    pub(super) fn new(of: Arc<Type>, encoding: Encoding) -> Self {
        Self {
            fields: of.arrow_fields(),
            of,
            encoding,
        }
    }

    /// Reads a message into a struct of one row. What the type has no place for is told to the tally.
    pub(super) fn read(&self, data: &[u8], tally: &mut Tally) -> Result<StructArray, String> {
        let mut columns = columns::of(&self.of);
        match &self.encoding {
            Encoding::Cdr { ends } => cdr::read(&self.of, data, *ends, &mut columns)?,
            Encoding::Protobuf(layout) => protobuf::read(layout, &self.of, data, &mut columns)?,
            Encoding::Json => json::read(&self.of, data, &mut columns, tally)?,
        }
        columns::finish(columns, &self.fields, 1)
    }
}
