//! Decoder of a bag's messages in CDR, JSON or Protocol Buffers. A message that does not fit its type is an error.

use super::protobuf::{self, Layout};
use super::tally::Tally;
use super::types::Type;
use super::{cdr, columns, json};
use arrow_array::StructArray;
use arrow_schema::Fields;
use std::sync::Arc;

/// Decoder of the messages of one type, in one encoding.
pub(super) struct Decoder {
    of: Arc<Type>,
    /// Fields of the Arrow struct array that a message becomes.
    pub fields: Fields,
    pub encoding: Encoding,
}

pub(super) enum Encoding {
    /// CDR, the serialization of ROS 2. If `is_exact`, bytes after the last field are refused, as the message may have another
    /// version of the type.
    Cdr {
        is_exact: bool,
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

    /// Decodes a message to an Arrow struct array of one row. `tally` counts keys that are unknown or repeated, and numbers
    /// that are rounded.
    pub(super) fn read(&self, data: &[u8], tally: &mut Tally) -> Result<StructArray, String> {
        let mut columns = columns::of(&self.of);
        match &self.encoding {
            Encoding::Cdr { is_exact } => cdr::read(&self.of, data, *is_exact, &mut columns)?,
            Encoding::Protobuf(layout) => protobuf::read(layout, &self.of, data, &mut columns)?,
            Encoding::Json => json::read(&self.of, data, &mut columns, tally)?,
        }
        columns::finish(columns, &self.fields, 1)
    }
}
