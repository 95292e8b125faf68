//! Buffer of the messages that wait to be written as one batch.
//!
//! The memory of a batch is reused for the next batch. A message that is refused leaves the buffer unchanged.

use super::schema::{Common, LISTS, lists_of};
use crate::{Column, Message, Metadata};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, make_array};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, SchemaRef};
use robocache_device::Dtype;
use std::sync::Arc;

/// One list column of the next batch. Each message adds a list of items: payload rows, or integers of a metadata list.
#[derive(Default)]
struct List {
    /// Index of the first item of each message's list, and at the end the number of all items.
    ends: Vec<i32>,
    /// Index of the first element of each item, and at the end the number of all elements; only used if the items are ragged
    /// or text.
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

    /// The number of items in the lists of all messages.
    fn rows(&self) -> usize {
        self.ends.last().copied().unwrap_or(0) as usize
    }

    fn push_rows(&mut self, rows: usize) {
        self.ends.push((self.rows() + rows) as i32);
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

    /// Copies the lists into an Arrow array of type `data_type`. Their memory stays allocated for the next batch.
    fn array(&self, data_type: &DataType, dtype: Dtype) -> Result<ArrayRef, ArrowError> {
        let DataType::List(row) = data_type else {
            return Err(ArrowError::SchemaError(format!("{data_type} is not a List")));
        };
        let array = |data_type: &DataType, len, buffers, children| {
            let array = ArrayData::builder(data_type.clone()).len(len).buffers(buffers);
            array.child_data(children).build()
        };
        let bytes = || Buffer::from(self.bytes.as_slice());
        let cells = || Buffer::from_slice_ref(&self.cells);
        let elements = self.bytes.len() / dtype.size();
        let values = |data_type: &DataType| array(data_type, elements, vec![bytes()], Vec::new());
        let (row, rows) = (row.data_type(), self.rows());
        let payload = match row {
            DataType::FixedSizeList(item, _) => array(row, rows, Vec::new(), vec![values(item.data_type())?])?,
            DataType::List(item) => array(row, rows, vec![cells()], vec![values(item.data_type())?])?,
            DataType::Utf8 => array(row, rows, vec![cells(), bytes()], Vec::new())?,
            plain => values(plain)?,
        };
        let ends = Buffer::from_slice_ref(&self.ends);
        array(data_type, self.ends.len() - 1, vec![ends], vec![payload]).map(make_array)
    }
}

/// Messages that wait to be written, stored as the columns of the next batch.
pub(super) struct Pending {
    pub common: Common,
    pub schema: SchemaRef,
    timestamps: Vec<i64>,
    arrivals: Vec<i64>,
    payload: Vec<List>,
    /// Contents of the columns `shape`, `timestamps_ns` and `valid` ([`LISTS`]).
    lists: [List; LISTS.len()],
    /// Metadata in which each row differs from the first message: JSON objects, one after the other. A row without differences
    /// adds no text.
    metadata: String,
    /// Offset in `metadata` at which each row's text ends, bytes, after a leading 0.
    metadata_ends: Vec<i32>,
    /// True for each row whose metadata differ from the first message's.
    differs: Vec<bool>,
    scratch: Metadata,
}

impl Pending {
    pub(super) fn new(common: Common) -> Self {
        let mut pending = Self {
            schema: Arc::new(common.schema()),
            timestamps: Vec::new(),
            arrivals: Vec::new(),
            payload: common.parts.iter().map(|_| List::default()).collect(),
            lists: Default::default(),
            metadata: String::new(),
            metadata_ends: Vec::new(),
            differs: Vec::new(),
            scratch: Metadata::default(),
            common,
        };
        // Puts the leading 0 into the lists of offsets.
        pending.clear();
        pending
    }

    pub(super) fn rows(&self) -> usize {
        self.timestamps.len()
    }

    /// The size of the waiting payloads and metadata, bytes. A list counts at least one byte per payload row, as these may
    /// be empty.
    pub(super) fn bytes(&self) -> usize {
        let bytes = |list: &List| (list.bytes.len() + size_of::<i32>() * list.cells.len()).max(list.rows());
        let lists = self.payload.iter().chain(&self.lists);
        lists.map(bytes).sum::<usize>() + self.metadata.len()
    }

    pub(super) fn clear(&mut self) {
        self.timestamps.clear();
        self.arrivals.clear();
        self.metadata.clear();
        self.metadata_ends.clear();
        self.metadata_ends.push(0);
        self.differs.clear();
        self.payload.iter_mut().chain(&mut self.lists).for_each(List::clear);
    }

    /// Adds a message that has passed [`Common::check`] and arrived at `arrival_ns`. Refuses a message whose differences in
    /// metadata take more than `most` bytes as text. The error is the number of these bytes.
    pub(super) fn push(&mut self, message: &Message, arrival_ns: i64, most: usize) -> Result<(), usize> {
        let before = self.metadata.len();
        self.metadata.push('{');
        let empty = self.metadata.len();
        self.common
            .push_differences(message, &mut self.scratch, &mut self.metadata);
        let length = self.metadata.len() - empty;
        match length {
            0 => self.metadata.truncate(before),
            _ if length <= most => self.metadata.push('}'),
            _ => {
                self.metadata.truncate(before);
                return Err(length);
            }
        }
        self.metadata_ends.push(self.metadata.len() as i32);
        self.differs.push(length > 0);

        self.timestamps.push(message.timestamp_ns());
        self.arrivals.push(arrival_ns);
        for (list, column) in self.payload.iter_mut().zip(message.columns()) {
            list.push_column(column, message.rows);
        }
        for (list, values) in self.lists.iter_mut().zip(lists_of(message)) {
            list.push_int64(values);
        }
        Ok(())
    }

    /// Copies all waiting messages into an Arrow batch. The messages stay in the buffer until `clear`.
    pub(super) fn batch(&self) -> Result<RecordBatch, ArrowError> {
        let common = &self.common;
        let payload = self.payload.iter().zip(common.parts.iter().map(|part| part.dtype));
        let optional = self.lists.iter().zip(common.has).filter(|(_, has)| *has);
        let lists = payload.chain(optional.map(|(list, _)| (list, Dtype::Int64)));
        let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(self.timestamps.clone()))];
        for ((list, dtype), field) in lists.zip(&self.schema.fields()[1..]) {
            columns.push(list.array(field.data_type(), dtype)?);
        }
        if common.has_arrival {
            columns.push(Arc::new(Int64Array::from(self.arrivals.clone())));
        }
        let ends = OffsetBuffer::new(self.metadata_ends.clone().into());
        let nulls = NullBuffer::from(self.differs.as_slice());
        let metadata = StringArray::try_new(ends, self.metadata.as_bytes().into(), Some(nulls))?;
        columns.push(Arc::new(metadata));
        RecordBatch::try_new(self.schema.clone(), columns)
    }
}
