//! Messages that wait to be written as one batch.

use super::schema::{Common, Part, Row};
use crate::device::Dtype;
use crate::stream::{Column, Message};
use arrow::array::{ArrayData, ArrayRef, Int64Array, RecordBatch, make_array};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use std::sync::Arc;

/// Rows of a list column.
#[derive(Default)]
struct List {
    /// Ends of the rows of the batch in rows of the payload, from 0.
    ends: Vec<i32>,
    /// Ends of the rows of the payload in elements, where they are ragged, from 0.
    cells: Vec<i32>,
    bytes: Vec<u8>,
}

impl List {
    fn clear(&mut self) {
        for ends in [&mut self.ends, &mut self.cells] {
            ends.clear();
            ends.push(0);
        }
        self.bytes.clear();
    }

    fn push_rows(&mut self, rows: usize) {
        let end = self.ends.last().copied().unwrap_or(0);
        self.ends.push(end + rows as i32);
    }

    fn push_int64(&mut self, values: impl ExactSizeIterator<Item = i64>) {
        self.push_rows(values.len());
        for value in values {
            self.bytes.extend_from_slice(&value.to_ne_bytes());
        }
    }

    fn push_column(&mut self, column: &Column, rows: usize) {
        self.push_rows(rows);
        self.bytes.extend_from_slice(column.data.bytes());
        if !column.offsets.is_empty() {
            let end = self.cells.last().copied().unwrap_or(0);
            self.cells.extend(column.offsets[1..].iter().map(|offset| end + offset));
        }
    }

    /// As an array of `data_type`, whose memory it copies: the list keeps its own for the next batch.
    fn array(&self, data_type: &DataType, part: &Part) -> Result<ArrayRef, ArrowError> {
        let DataType::List(row) = data_type else {
            return Err(ArrowError::SchemaError(format!("{data_type} is no List")));
        };
        let rows = self.ends.last().copied().unwrap_or(0) as usize;
        let elements = self.bytes.len() / part.dtype.size();
        let values = |data_type: &DataType| {
            ArrayData::builder(data_type.clone())
                .len(elements)
                .add_buffer(Buffer::from(self.bytes.as_slice()))
                .build()
        };
        let payload = match row.data_type() {
            DataType::FixedSizeList(item, _) => ArrayData::builder(row.data_type().clone())
                .len(rows)
                .add_child_data(values(item.data_type())?)
                .build()?,
            DataType::List(item) => ArrayData::builder(row.data_type().clone())
                .len(rows)
                .add_buffer(Buffer::from_slice_ref(&self.cells))
                .add_child_data(values(item.data_type())?)
                .build()?,
            plain => values(plain)?,
        };
        let list = ArrayData::builder(data_type.clone())
            .len(self.ends.len() - 1)
            .add_buffer(Buffer::from_slice_ref(&self.ends))
            .add_child_data(payload)
            .build()?;
        Ok(make_array(list))
    }
}

/// The rows of a batch to be, in memory that is reused.
pub(super) struct Pending {
    common: Common,
    schema: SchemaRef,
    timestamps: Vec<i64>,
    payload: Vec<List>,
    shape: List,
    timestamps_ns: List,
    valid: List,
}

impl Pending {
    pub fn new(common: Common) -> Self {
        let mut pending = Self {
            schema: Arc::new(common.schema()),
            timestamps: Vec::new(),
            payload: common.parts.iter().map(|_| List::default()).collect(),
            shape: List::default(),
            timestamps_ns: List::default(),
            valid: List::default(),
            common,
        };
        pending.clear();
        pending
    }

    pub fn common(&self) -> &Common {
        &self.common
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub fn rows(&self) -> usize {
        self.timestamps.len()
    }

    /// Bytes of the payloads.
    pub fn bytes(&self) -> usize {
        self.payload.iter().map(|list| list.bytes.len()).sum()
    }

    pub fn clear(&mut self) {
        self.timestamps.clear();
        let lists = self.payload.iter_mut();
        for list in lists.chain([&mut self.shape, &mut self.timestamps_ns, &mut self.valid]) {
            list.clear();
        }
    }

    /// Adds a message that fits [`Common`].
    pub fn push(&mut self, message: &Message) {
        self.timestamps.push(message.timestamp_ns);
        for (list, column) in self.payload.iter_mut().zip(message.columns()) {
            list.push_column(column, message.rows);
        }
        self.shape.push_int64(message.shape.iter().map(|&n| n as i64));
        self.timestamps_ns.push_int64(message.timestamps_ns.iter().copied());
        self.valid.push_int64(message.valid.iter().copied());
    }

    /// All rows as a batch.
    pub fn batch(&self) -> Result<RecordBatch, ArrowError> {
        let int64 = Part {
            name: String::new(),
            dtype: Dtype::Int64,
            row: Row::One,
        };
        let common = &self.common;
        let optional = [
            (&self.shape, common.has_shape),
            (&self.timestamps_ns, common.has_timestamps),
            (&self.valid, common.has_valid),
        ];
        let optional = optional
            .into_iter()
            .filter(|(_, there)| *there)
            .map(|(list, _)| (list, &int64));
        let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(self.timestamps.clone()))];
        let lists = self.payload.iter().zip(&common.parts).chain(optional);
        for ((list, part), field) in lists.zip(&self.schema.fields()[1..]) {
            columns.push(list.array(field.data_type(), part)?);
        }
        RecordBatch::try_new(self.schema.clone(), columns)
    }
}
