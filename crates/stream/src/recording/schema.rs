//! Schema of a stream's file: the columns and metadata that the stream's messages have in common.
//!
//! The first message of a stream fixes the columns: a later message with other columns is refused. Metadata may change, and
//! each row stores its differences from the first message.

use super::text::{list_of, push_differences, push_entry};
use super::{ARRIVAL, DATA, WriteError};
use crate::{Cells, Column, Message, Metadata, MetadataRef, MetadataValue as Value, arrow, key};
use arrow_schema::{DataType, Field, Schema};
use robocache_device::Dtype;
use std::collections::HashMap;

/// Key, in the schema's metadata, of a JSON object: metadata of the first message that no other key or column holds. The column
/// of the same name has each row's differences from the first message; null if there are none. Earlier versions had a list of
/// these differences under this key in the custom metadata of a batch.
pub(super) const METADATA: &str = "metadata";
/// Metadata key of a column for the name of the struct's field, if the column has another name in the file.
pub(super) const FIELD: &str = "field";

/// Names of the columns that store metadata keys whose values are lists of integers. A file may lack these columns.
pub(super) const LISTS: [&str; 3] = [key::shape, key::timestamps_ns, key::valid];

/// One column of the payload: its name, which is empty for a flat array, and its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub name: String,
    pub dtype: Dtype,
    /// Number of elements in each row of the column. The total of a ragged or text column is always 0 here.
    pub cells: Cells,
}

impl From<&Column> for Part {
    fn from(column: &Column) -> Self {
        Self {
            name: column.name.clone(),
            dtype: column.dtype,
            cells: column.cells.form(),
        }
    }
}

impl Part {
    pub(super) fn in_words(&self) -> String {
        match self.cells {
            Cells::One => self.dtype.to_string(),
            Cells::Fixed(n) => format!("FixedSizeList<{}, {n}>", self.dtype),
            Cells::Ragged(_) => format!("List<{}>", self.dtype),
            Cells::Text(_) => "text".to_owned(),
        }
    }

    /// The name of the column in the file. A struct's field gets the prefix `data.` if its name is reserved for another column,
    /// or begins with `data.`.
    pub(super) fn column(&self) -> String {
        let own = [
            key::timestamp_ns,
            key::timestamps_ns,
            key::shape,
            ARRIVAL,
            METADATA,
            DATA,
            "",
        ];
        match own.contains(&self.name.as_str()) || self.name.starts_with("data.") {
            true => format!("data.{}", self.name),
            false => self.name.clone(),
        }
    }
}

/// Columns and metadata that the first message of a stream fixes for all its messages.
pub(super) struct Common {
    pub parts: Vec<Part>,
    /// Metadata of the first message that no column holds; later messages may differ from them.
    metadata: Metadata,
    /// True, for each of the columns `shape`, `timestamps_ns` and `valid` (`LISTS`), if the file has it.
    pub has: [bool; 3],
    pub has_arrival: bool,
}

impl Common {
    pub(super) fn of(stream: &str, message: &Message, has_arrival: bool) -> Result<Self, WriteError> {
        let parts: Vec<Part> = message.columns().iter().map(Part::from).collect();
        if parts.is_empty() {
            return Err(WriteError::Form {
                stream: stream.to_owned(),
                problem: "no payload (allowed: a primitive array or a StructArray with fields)".to_owned(),
            });
        }
        let is_flat = message.flat().is_some();
        let [shape, timestamps, valid] = lists_of(message).map(|list| !list.is_empty());
        let mut common = Self {
            has: [is_flat || shape, timestamps, is_flat && valid],
            has_arrival,
            parts,
            metadata: Metadata::default(),
        };
        let mut metadata = Metadata::default();
        common.metadata_of(message, &mut metadata);
        common.metadata = metadata;
        Ok(common)
    }

    /// True if the payload is a primitive array and not a struct.
    pub(super) fn is_flat(&self) -> bool {
        matches!(self.parts.as_slice(), [only] if only.name.is_empty())
    }

    /// Checks that `message` has the columns of the stream's first message. Allocates only for the error.
    pub(super) fn check(&self, stream: &str, message: &Message) -> Result<(), WriteError> {
        let misfit = |what, came: String, recorded: String| {
            Err(WriteError::Misfit {
                stream: stream.to_owned(),
                what,
                came,
                recorded,
            })
        };
        let columns = message.columns();
        let names = |names: Vec<&str>| format!("[{}]", names.join(", "));
        if !columns.iter().map(|c| &c.name).eq(self.parts.iter().map(|p| &p.name)) {
            let came = names(columns.iter().map(|c| c.name.as_str()).collect());
            let recorded = names(self.parts.iter().map(|p| p.name.as_str()).collect());
            return misfit("the payload has the columns", came, recorded);
        }
        for (column, part) in columns.iter().zip(&self.parts) {
            if column.dtype != part.dtype || column.cells.form() != part.cells {
                let name = if part.name.is_empty() { DATA } else { &part.name };
                let came = format!("`{name}` {}", Part::from(column).in_words());
                return misfit("a column is", came, part.in_words());
            }
        }
        Ok(())
    }

    /// Writes to `out`, sorted by key, the metadata of a message that are recorded but not in a column of their own.
    fn metadata_of(&self, message: &Message, out: &mut Metadata) {
        out.clear();
        let is_flat_bfloat16 = message.flat().is_some_and(|values| values.dtype() == Dtype::BFloat16);
        for (name, value) in message.header.iter() {
            // An empty row of a column stands for an absent key, so an empty list stays in the metadata.
            let is_row = matches!(value, MetadataRef::ListInt([_, ..]));
            let is_in_column = LISTS.into_iter().zip(self.has).any(|(list, has)| has && list == name);
            let is_left_out = match name {
                // The stamp has a column, and a recording outlives the process that `sender` names.
                key::timestamp_ns | key::sender => matches!(value, MetadataRef::Integer(_)),
                // A reader sets `dtype` from the type of the column.
                key::dtype => is_flat_bfloat16 && value == MetadataRef::String(Dtype::BFloat16.name()),
                _ => is_row && is_in_column,
            };
            if !is_left_out {
                out.set(name).assign(value);
            }
        }
        out.sort();
    }

    /// Appends to `out` the keys in which the metadata of a message differ from the first message's, as entries of a JSON object.
    pub(super) fn push_differences(&self, message: &Message, scratch: &mut Metadata, out: &mut String) {
        self.metadata_of(message, scratch);
        push_differences(&self.metadata, scratch, out);
    }

    /// The schema of the stream's file.
    pub(super) fn schema(&self) -> Schema {
        let list = |name: &str, row: DataType| {
            let item = Field::new_list_field(row, true);
            Field::new(name, DataType::List(item.into()), false)
        };
        let mut columns = vec![Field::new(key::timestamp_ns, DataType::Int64, false)];
        for part in &self.parts {
            let name = if self.is_flat() { DATA.to_owned() } else { part.column() };
            let mut metadata = HashMap::new();
            if !self.is_flat() && part.dtype == Dtype::BFloat16 {
                metadata.insert(key::dtype.to_owned(), part.dtype.name().to_owned());
            }
            if !self.is_flat() && name != part.name {
                metadata.insert(FIELD.to_owned(), part.name.clone());
            }
            let mut column = list(&name, part.cells.arrow_type(part.dtype, true));
            column.set_metadata(metadata);
            columns.push(column);
        }
        let lists = LISTS.into_iter().zip(self.has).filter(|(_, has)| *has);
        columns.extend(lists.map(|(name, _)| list(name, DataType::Int64)));
        if self.has_arrival {
            columns.push(Field::new(ARRIVAL, DataType::Int64, false));
        }
        columns.push(Field::new(METADATA, DataType::Utf8, true));

        let mut metadata = HashMap::new();
        if self.is_flat() {
            metadata.insert(key::dtype.to_owned(), self.parts[0].dtype.name().to_owned());
        }
        let mut others = String::from("{");
        // A reader sets `dtype` from a column of bfloat16; a `null` undoes this for messages without `dtype`.
        let is_bfloat16 = !self.is_flat() && self.parts.iter().any(|part| part.dtype == Dtype::BFloat16);
        if is_bfloat16 && self.metadata.get(key::dtype).is_none() {
            push_entry(&mut others, key::dtype, None);
        }
        for (name, value) in self.metadata.iter() {
            match (name, value) {
                (key::dtype, Value::String(dtype)) if is_bfloat16 && dtype == Dtype::BFloat16.name() => {}
                (key::fields, Value::ListString(names)) if !names.is_empty() => {
                    metadata.insert(name.to_owned(), list_of(names));
                }
                (key::frame_id, Value::String(frame)) if !frame.is_empty() => {
                    metadata.insert(name.to_owned(), frame.clone());
                }
                (key::dim, Value::Integer(dim)) if *dim > 0 => {
                    metadata.insert(name.to_owned(), dim.to_string());
                }
                _ => push_entry(&mut others, name, Some(value.as_ref())),
            }
        }
        if others.len() > 1 {
            others.push('}');
            metadata.insert(METADATA.to_owned(), others);
        }
        Schema::new_with_metadata(columns, metadata)
    }
}

/// Returns the metadata `shape`, `timestamps_ns` and `valid` of a message, which the columns `LISTS` store; an absent key is an
/// empty list.
pub(super) fn lists_of(message: &Message) -> [&[i64]; 3] {
    let header = &message.header;
    [&header.shape, &header.timestamps_ns, &header.valid].map(|list| list.get().unwrap_or_default())
}

/// The element type that an Arrow type of a file stands for. `named`, the type that the metadata name, tells `bfloat16` from
/// `uint16`; `None` if it contradicts the Arrow type.
pub(super) fn dtype_of(of: &DataType, named: Option<Dtype>) -> Option<Dtype> {
    let plain = arrow::dtype_of(of)?;
    match named {
        Some(Dtype::BFloat16) if plain == Dtype::UInt16 => Some(Dtype::BFloat16),
        Some(named) if named != plain => None,
        _ => Some(plain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_found_again() {
        for dtype in Dtype::ALL {
            assert_eq!(dtype_of(&dtype.arrow_type(), Some(dtype)), Some(dtype));
        }
        assert_eq!(dtype_of(&DataType::UInt16, None), Some(Dtype::UInt16));
        assert_eq!(dtype_of(&DataType::Float32, Some(Dtype::BFloat16)), None);
        assert_eq!(dtype_of(&DataType::Utf8, None), None, "a text is a row of its own kind");
    }
}
