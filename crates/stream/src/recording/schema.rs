//! What every message of a stream has in common, as the schema of its file.

use super::text::{list_of, push_differences, push_entry};
use super::{ARRIVAL, DATA, WriteError};
use crate::{Cells, Message, Metadata, MetadataRef, MetadataValue as Value, key};
use arrow_schema::{DataType, Field, Schema};
use robocache_device::Dtype;
use std::collections::HashMap;

/// Key of the schema's metadata for what else the first message says, and the column of what a row says instead, null where
/// that is nothing. Earlier versions had a list of the latter under this key in the custom metadata of a batch.
pub(super) const METADATA: &str = "metadata";
/// In a column's metadata: the struct's field, where the column can't have its name.
pub(super) const FIELD: &str = "field";

/// How many elements a row of a payload column has, without how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Row {
    One,
    Fixed(usize),
    Ragged,
    Text,
}

impl From<Cells> for Row {
    fn from(cells: Cells) -> Self {
        match cells {
            Cells::One => Self::One,
            Cells::Fixed(n) => Self::Fixed(n),
            Cells::Ragged(_) => Self::Ragged,
            Cells::Text(_) => Self::Text,
        }
    }
}

/// One column of the payload; a flat array has one without a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub name: String,
    pub dtype: Dtype,
    pub row: Row,
}

impl Part {
    pub fn in_words(&self) -> String {
        match self.row {
            Row::One => self.dtype.to_string(),
            Row::Fixed(n) => format!("FixedSizeList<{}, {n}>", self.dtype),
            Row::Ragged => format!("List<{}>", self.dtype),
            Row::Text => "text".to_owned(),
        }
    }

    /// The name of its column. A struct's field that is called like one of a recording's own gets `data.` before it.
    pub fn column(&self) -> String {
        let own = [
            key::timestamp_ns,
            key::timestamps_ns,
            key::shape,
            ARRIVAL,
            METADATA,
            DATA,
            "",
        ]
        .contains(&self.name.as_str());
        if own || self.name.starts_with("data.") {
            format!("data.{}", self.name)
        } else {
            self.name.clone()
        }
    }

    /// The type of one row of the payload.
    fn row_type(&self) -> DataType {
        let item = || Field::new_list_field(self.dtype.arrow_type(), true).into();
        match self.row {
            Row::One => self.dtype.arrow_type(),
            Row::Fixed(n) => DataType::FixedSizeList(item(), n as i32),
            Row::Ragged => DataType::List(item()),
            Row::Text => DataType::Utf8,
        }
    }
}

/// What the first message of a stream fixes for all of them.
pub(super) struct Common {
    pub parts: Vec<Part>,
    /// The metadata that no column holds. Later messages may differ.
    metadata: Metadata,
    pub has_shape: bool,
    pub has_timestamps: bool,
    pub has_valid: bool,
    pub has_arrival: bool,
}

impl Common {
    pub fn of(stream: &str, message: &Message, has_arrival: bool) -> Result<Self, WriteError> {
        let parts: Vec<Part> = message
            .columns()
            .iter()
            .map(|column| Part {
                name: column.name.clone(),
                dtype: column.dtype,
                row: column.cells.into(),
            })
            .collect();
        if parts.is_empty() {
            return Err(WriteError::Form {
                stream: stream.to_owned(),
                problem: "no payload (allowed: a primitive array or a StructArray with fields)".to_owned(),
            });
        }
        let mut common = Self {
            has_shape: message.flat().is_some() || !message.header.shape.is_empty(),
            has_timestamps: !message.header.timestamps_ns.is_empty(),
            has_valid: message.flat().is_some() && !message.header.valid.is_empty(),
            has_arrival,
            parts,
            metadata: Metadata::default(),
        };
        let mut metadata = Metadata::default();
        common.metadata_of(message, &mut metadata);
        common.metadata = metadata;
        Ok(common)
    }

    /// Whether the payload is a primitive array and not a struct.
    pub fn is_flat(&self) -> bool {
        matches!(self.parts.as_slice(), [only] if only.name.is_empty())
    }

    /// Checks that `message` has the same columns. Allocates only for the error.
    pub fn check(&self, stream: &str, message: &Message) -> Result<(), WriteError> {
        let misfit = |what, came: String, recorded: String| {
            Err(WriteError::Misfit {
                stream: stream.to_owned(),
                what,
                came,
                recorded,
            })
        };
        let columns = message.columns();
        let names = |names: &mut dyn Iterator<Item = &str>| format!("[{}]", names.collect::<Vec<_>>().join(", "));
        if !columns.iter().map(|c| &c.name).eq(self.parts.iter().map(|p| &p.name)) {
            let came = names(&mut columns.iter().map(|c| c.name.as_str()));
            let recorded = names(&mut self.parts.iter().map(|p| p.name.as_str()));
            return misfit("the payload has the columns", came, recorded);
        }
        for (column, part) in columns.iter().zip(&self.parts) {
            if column.dtype != part.dtype || Row::from(column.cells) != part.row {
                let came = Part {
                    name: column.name.clone(),
                    dtype: column.dtype,
                    row: column.cells.into(),
                };
                let name = if part.name.is_empty() { DATA } else { &part.name };
                return misfit("a column is", format!("`{name}` {}", came.in_words()), part.in_words());
            }
        }
        Ok(())
    }

    /// The metadata of a message that are recorded and that no column holds, in the order of the keys.
    fn metadata_of(&self, message: &Message, out: &mut Metadata) {
        out.clear();
        let is_flat_bfloat16 = message.flat().is_some_and(|values| values.dtype() == Dtype::BFloat16);
        for (name, value) in message.header.iter() {
            // An empty row of a column is a key that is not there.
            let is_row = matches!(value, MetadataRef::ListInt([_, ..]));
            let is_left_out = match name {
                key::timestamp_ns => matches!(value, MetadataRef::Integer(_)),
                key::shape => self.has_shape && is_row,
                key::timestamps_ns => self.has_timestamps && is_row,
                key::valid => self.has_valid && is_row,
                // Of the process that published it, which a recording outlives.
                key::sender => matches!(value, MetadataRef::Integer(_)),
                // The column's own type says it.
                key::dtype => is_flat_bfloat16 && value == MetadataRef::String(Dtype::BFloat16.name()),
                _ => false,
            };
            if !is_left_out {
                out.set(name).assign(value);
            }
        }
        out.sort();
    }

    /// Appends where the metadata of a message differs from that of the first one, as entries of an object.
    pub fn push_differences(&self, message: &Message, scratch: &mut Metadata, out: &mut String) {
        self.metadata_of(message, scratch);
        push_differences(&self.metadata, scratch, out);
    }

    /// The schema of the stream's file.
    pub fn schema(&self) -> Schema {
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
            let mut column = list(&name, part.row_type());
            column.set_metadata(metadata);
            columns.push(column);
        }
        let optional = [
            (key::shape, self.has_shape),
            (key::timestamps_ns, self.has_timestamps),
            (key::valid, self.has_valid),
        ];
        columns.extend(
            optional
                .into_iter()
                .filter(|(_, there)| *there)
                .map(|(name, _)| list(name, DataType::Int64)),
        );
        if self.has_arrival {
            columns.push(Field::new(ARRIVAL, DataType::Int64, false));
        }
        columns.push(Field::new(METADATA, DataType::Utf8, true));

        let mut metadata = HashMap::new();
        if self.is_flat() {
            metadata.insert(key::dtype.to_owned(), self.parts[0].dtype.name().to_owned());
        }
        let mut others = String::from("{");
        // A reader takes it from the type of a column; a struct may have none of its own.
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

/// The element type of that Arrow type, `bfloat16` told from `uint16` by `named`.
pub(super) fn dtype_of(arrow: &DataType, named: Option<Dtype>) -> Option<Dtype> {
    let plain = Dtype::ALL
        .into_iter()
        .find(|&dtype| dtype != Dtype::BFloat16 && dtype.arrow_type() == *arrow)?;
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
