//! Messages that wait to be written as one batch.

use super::schema::{Common, Part, Row};
use crate::{Column, Message, Metadata};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, make_array};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow_data::ArrayData;
use arrow_schema::ArrowError;
use arrow_schema::{DataType, SchemaRef};
use robocache_device::Dtype;
use std::sync::Arc;

/// Rows of a list column.
#[derive(Default)]
struct List {
    /// Ends of the rows of the batch in rows of the payload, from 0.
    ends: Vec<i32>,
    /// Ends of the rows of the payload in elements, where they are ragged or text, from 0.
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

    fn push_int64(&mut self, values: &[i64]) {
        self.push_rows(values.len());
        self.bytes.extend_from_slice(bytemuck::cast_slice(values));
    }

    fn push_column(&mut self, column: &Column, rows: usize) {
        self.push_rows(rows);
        self.bytes.extend_from_slice(column.data.bytes());
        if !column.offsets.is_empty() {
            let end = self.cells.last().copied().unwrap_or(0);
            self.cells.extend(column.offsets[1..].iter().map(|offset| end + offset));
        }
    }

    /// Copies it into an array of `data_type`, and keeps its memory for the next batch.
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
            DataType::Utf8 => ArrayData::builder(DataType::Utf8)
                .len(rows)
                .add_buffer(Buffer::from_slice_ref(&self.cells))
                .add_buffer(Buffer::from(self.bytes.as_slice()))
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
    arrivals: Vec<i64>,
    payload: Vec<List>,
    shape: List,
    timestamps_ns: List,
    valid: List,
    /// Texts of the metadata of each row that differs from the first message's, where each ends, from 0, and whether the row has
    /// one.
    metadata: String,
    metadata_ends: Vec<i32>,
    differs: Vec<bool>,
    scratch: Metadata,
}

impl Pending {
    pub fn new(common: Common) -> Self {
        let mut pending = Self {
            schema: Arc::new(common.schema()),
            timestamps: Vec::new(),
            arrivals: Vec::new(),
            payload: common.parts.iter().map(|_| List::default()).collect(),
            shape: List::default(),
            timestamps_ns: List::default(),
            valid: List::default(),
            metadata: String::new(),
            metadata_ends: Vec::new(),
            differs: Vec::new(),
            scratch: Metadata::default(),
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

    /// Bytes of payloads and metadata; or the number of rows if that is higher, as with empty lists.
    pub fn bytes(&self) -> usize {
        let lists = self
            .payload
            .iter()
            .chain([&self.shape, &self.timestamps_ns, &self.valid]);
        let rows = |list: &List| list.ends.last().copied().unwrap_or(0) as usize;
        let bytes = |list: &List| (list.bytes.len() + size_of::<i32>() * list.cells.len()).max(rows(list));
        lists.map(bytes).sum::<usize>() + self.metadata.len()
    }

    pub fn clear(&mut self) {
        self.timestamps.clear();
        self.arrivals.clear();
        self.metadata.clear();
        self.metadata_ends.clear();
        self.metadata_ends.push(0);
        self.differs.clear();
        let lists = self.payload.iter_mut();
        for list in lists.chain([&mut self.shape, &mut self.timestamps_ns, &mut self.valid]) {
            list.clear();
        }
    }

    /// Adds a message that fits [`Common`] and came at `arrival_ns`. Refuses one whose metadata takes more than `most` bytes as text, and returns
    /// how many.
    pub fn push(&mut self, message: &Message, arrival_ns: i64, most: usize) -> Result<(), usize> {
        let before = self.metadata.len();
        self.metadata.push('{');
        let empty = self.metadata.len();
        self.common
            .push_differences(message, &mut self.scratch, &mut self.metadata);
        let length = self.metadata.len() - empty;
        if length == 0 || length > most {
            self.metadata.truncate(before);
        } else {
            self.metadata.push('}');
        }
        if length > most {
            return Err(length);
        }
        self.metadata_ends.push(self.metadata.len() as i32);
        self.differs.push(length > 0);

        self.timestamps.push(message.timestamp_ns());
        self.arrivals.push(arrival_ns);
        for (list, column) in self.payload.iter_mut().zip(message.columns()) {
            list.push_column(column, message.rows);
        }
        let header = &message.header;
        self.shape.push_int64(&header.shape);
        self.timestamps_ns.push_int64(&header.timestamps_ns);
        self.valid.push_int64(&header.valid);
        Ok(())
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
        if common.has_arrival {
            columns.push(Arc::new(Int64Array::from(self.arrivals.clone())));
        }
        let ends = OffsetBuffer::new(self.metadata_ends.clone().into());
        let nulls = NullBuffer::from(self.differs.as_slice());
        columns.push(Arc::new(StringArray::try_new(
            ends,
            self.metadata.as_bytes().into(),
            Some(nulls),
        )?));
        RecordBatch::try_new(self.schema.clone(), columns)
    }
}
