//! What is the same in every message of a stream, and how the schema of its file says it.

use super::{DATA, SHAPE, TIMESTAMP, TIMESTAMPS, VALID, WriteError};
use crate::device::Dtype;
use crate::stream::{Cells, Message};
use arrow::datatypes::{DataType, Field, Schema};
use std::collections::HashMap;

pub(super) const FIELDS: &str = "fields";
pub(super) const DTYPE: &str = "dtype";
pub(super) const FRAME_ID: &str = "frame_id";
pub(super) const DIM: &str = "dim";

/// How many elements a row of a payload column has, without how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Row {
    One,
    Fixed(usize),
    Ragged,
}

impl From<Cells> for Row {
    fn from(cells: Cells) -> Self {
        match cells {
            Cells::One => Self::One,
            Cells::Fixed(n) => Self::Fixed(n),
            Cells::Ragged(_) => Self::Ragged,
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
        }
    }

    /// The type of one row of the payload.
    fn row_type(&self) -> DataType {
        let item = || Field::new_list_field(self.dtype.arrow_type(), true).into();
        match self.row {
            Row::One => self.dtype.arrow_type(),
            Row::Fixed(n) => DataType::FixedSizeList(item(), n as i32),
            Row::Ragged => DataType::List(item()),
        }
    }
}

/// What every message of a stream has in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Common {
    pub parts: Vec<Part>,
    pub fields: Vec<String>,
    pub frame_id: String,
    pub dim: usize,
    pub has_shape: bool,
    pub has_timestamps: bool,
    pub has_valid: bool,
}

impl Common {
    /// What the first message of a stream says for all of them.
    pub fn of(stream: &str, message: &Message) -> Result<Self, WriteError> {
        let form = |problem: String| WriteError::Form {
            stream: stream.to_owned(),
            problem,
        };
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
            return Err(form(
                "no payload (allowed: a primitive array or a StructArray with fields)".to_owned(),
            ));
        }
        let common = Self {
            has_shape: message.flat().is_some() || !message.shape.is_empty(),
            has_timestamps: !message.timestamps_ns.is_empty(),
            has_valid: message.flat().is_some() && !message.valid.is_empty(),
            parts,
            fields: message.fields.clone(),
            frame_id: message.frame_id.clone(),
            dim: message.dim,
        };
        if !common.is_flat() {
            for part in &common.parts {
                if [TIMESTAMP, TIMESTAMPS, SHAPE, DATA, ""].contains(&part.name.as_str()) {
                    return Err(form(format!(
                        "a struct with a field `{}` (allowed: any name but timestamp_ns, timestamps_ns, shape, data, \
                         which a recording uses itself)",
                        part.name
                    )));
                }
            }
        }
        Ok(common)
    }

    /// Whether the payload is a primitive array and not a struct.
    pub fn is_flat(&self) -> bool {
        matches!(self.parts.as_slice(), [only] if only.name.is_empty())
    }

    /// Whether `message` has in common what these have. Allocates only to say what differs.
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
        if message.fields != self.fields {
            let came = names(&mut message.fields.iter().map(String::as_str));
            return misfit("`fields` are", came, names(&mut self.fields.iter().map(String::as_str)));
        }
        if message.frame_id != self.frame_id {
            return misfit(
                "`frame_id` is",
                format!("`{}`", message.frame_id),
                format!("`{}`", self.frame_id),
            );
        }
        if message.dim != self.dim {
            return misfit("`dim` is", message.dim.to_string(), self.dim.to_string());
        }
        let lists = [
            ("`shape` has the length", message.shape.len(), self.has_shape),
            (
                "`timestamps_ns` has the length",
                message.timestamps_ns.len(),
                self.has_timestamps,
            ),
            (
                "`valid` has the length",
                message.valid.len(),
                self.has_valid || !self.is_flat(),
            ),
        ];
        for (what, len, recorded) in lists {
            if len > 0 && !recorded {
                return misfit(what, len.to_string(), "none".to_owned());
            }
        }
        Ok(())
    }

    /// The schema of the stream's file.
    pub fn schema(&self) -> Schema {
        let list = |name: &str, row: DataType| {
            let item = Field::new_list_field(row, true);
            Field::new(name, DataType::List(item.into()), false)
        };
        let mut columns = vec![Field::new(TIMESTAMP, DataType::Int64, false)];
        for part in &self.parts {
            let name = if part.name.is_empty() { DATA } else { &part.name };
            let mut column = list(name, part.row_type());
            if !self.is_flat() && part.dtype == Dtype::BFloat16 {
                column.set_metadata(HashMap::from([(DTYPE.to_owned(), part.dtype.name().to_owned())]));
            }
            columns.push(column);
        }
        let optional = [
            (SHAPE, self.has_shape),
            (TIMESTAMPS, self.has_timestamps),
            (VALID, self.has_valid),
        ];
        columns.extend(
            optional
                .into_iter()
                .filter(|(_, there)| *there)
                .map(|(name, _)| list(name, DataType::Int64)),
        );

        let mut metadata = HashMap::new();
        if self.is_flat() {
            metadata.insert(DTYPE.to_owned(), self.parts[0].dtype.name().to_owned());
        }
        if !self.fields.is_empty() {
            metadata.insert(FIELDS.to_owned(), json_list(&self.fields));
        }
        if !self.frame_id.is_empty() {
            metadata.insert(FRAME_ID.to_owned(), self.frame_id.clone());
        }
        if self.dim != 0 {
            metadata.insert(DIM.to_owned(), self.dim.to_string());
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

fn json_list(names: &[String]) -> String {
    let mut text = String::from("[");
    for (i, name) in names.iter().enumerate() {
        text.push_str(if i == 0 { "\"" } else { ", \"" });
        for c in name.chars() {
            match c {
                '"' => text.push_str("\\\""),
                '\\' => text.push_str("\\\\"),
                c if c.is_control() => text.push_str(&format!("\\u{:04x}", c as u32)),
                c => text.push(c),
            }
        }
        text.push('"');
    }
    text.push(']');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_names_is_json_whatever_is_in_it() {
        let names = ["x", "a \"b\"", "c\\d", "tab\tand\u{1}", "mü"].map(str::to_owned);
        let text = json_list(&names);
        assert_eq!(text, r#"["x", "a \"b\"", "c\\d", "tab\u0009and\u0001", "mü"]"#);
        assert_eq!(serde_yaml::from_str::<Vec<String>>(&text).unwrap(), names);
        assert_eq!(json_list(&[]), "[]");
    }

    #[test]
    fn every_type_is_found_again() {
        for dtype in Dtype::ALL {
            assert_eq!(dtype_of(&dtype.arrow_type(), Some(dtype)), Some(dtype));
        }
        assert_eq!(dtype_of(&DataType::UInt16, None), Some(Dtype::UInt16));
        assert_eq!(dtype_of(&DataType::Float32, Some(Dtype::BFloat16)), None);
        assert_eq!(dtype_of(&DataType::Utf8, None), None);
    }
}
