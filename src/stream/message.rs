use crate::arrow::datatypes::FieldRef;
use crate::device::cuda::{Budget, CudaError, DeviceBuf, Gpu};
use crate::device::{Dtype, HostBuf, HostMemory, Values};
use crate::stream::Metadata;
use std::borrow::Cow;

/// How many elements a row of a column has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cells {
    /// One.
    One,
    /// The same number in each row (Arrow: FixedSizeList).
    Fixed(usize),
    /// Any number; this many over all rows (Arrow: List with 32-bit offsets).
    Ragged(usize),
}

/// The name, type and size of one column of a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnLayout {
    /// The field's name; empty for the only column of a flat array.
    pub name: Cow<'static, str>,
    /// The type of its elements.
    pub dtype: Dtype,
    /// How many elements a row has.
    pub cells: Cells,
}

/// The form of a payload: a flat primitive array, or a struct of columns with as many rows each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Rows of the Arrow array; for a flat array its length.
    pub rows: usize,
    /// The columns. One without a name is a flat array; otherwise the payload is a StructArray.
    pub columns: Vec<ColumnLayout>,
}

impl Layout {
    /// A flat array of `len` elements.
    pub fn flat(dtype: Dtype, len: usize) -> Self {
        Self {
            rows: len,
            columns: vec![ColumnLayout {
                name: Cow::Borrowed(""),
                dtype,
                cells: Cells::One,
            }],
        }
    }

    /// Whether it is a flat array and not a struct.
    pub fn is_flat(&self) -> bool {
        matches!(self.columns.as_slice(), [only] if only.name.is_empty())
    }
}

impl ColumnLayout {
    /// Elements over all of `rows`.
    pub fn len(&self, rows: usize) -> usize {
        match self.cells {
            Cells::One => rows,
            Cells::Fixed(n) => rows * n,
            Cells::Ragged(total) => total,
        }
    }
}

/// One column of a received message.
pub struct Column {
    /// The field's name; empty for the only column of a flat array.
    pub name: String,
    /// The type of its elements.
    pub dtype: Dtype,
    /// How many elements a row has.
    pub cells: Cells,
    /// The elements of all rows.
    pub data: HostBuf,
    /// The integer type that the values came in, where nulls were among them: they are float64, with NaN for a null.
    pub integers: Option<Dtype>,
    /// With [`Cells::Ragged`]: row i is elements `offsets[i]..offsets[i + 1]`, from 0. Otherwise empty.
    pub offsets: Vec<i32>,
    /// With [`Cells::Ragged`]: the rows that are null, or of integers some of which are, ascending. What those rows hold is
    /// of no meaning. A float that is null is NaN.
    pub null_rows: Vec<usize>,
}

impl Column {
    /// The elements of all rows.
    pub fn values(&self) -> Values<'_> {
        Values::new(self.dtype, self.data.bytes())
    }

    /// The elements of one row of a ragged column.
    pub fn row(&self, row: usize) -> Values<'_> {
        self.values()
            .slice(self.offsets[row] as usize, self.offsets[row + 1] as usize)
    }
}

impl Default for Column {
    fn default() -> Self {
        Self {
            name: String::new(),
            dtype: Dtype::Float32,
            cells: Cells::One,
            data: HostBuf::default(),
            integers: None,
            offsets: Vec::new(),
            null_rows: Vec::new(),
        }
    }
}

/// A column of a received message that was not copied: it is in the way only of an operation that asks for it.
#[derive(Clone, Debug)]
pub struct Skipped {
    /// Its name and Arrow type.
    pub field: FieldRef,
    /// Why it was not.
    pub reason: &'static str,
}

/// A flat tensor in the memory of a device. What wrote it has been waited for.
pub struct DeviceTensor {
    /// Where its elements begin.
    pub memory: DeviceBuf,
    /// Their type.
    pub dtype: Dtype,
    /// How many there are.
    pub len: usize,
}

/// A message copied out of the transport: payload and what its metadata says, in memory that is reused.
#[derive(Default)]
pub struct Message {
    /// Capture time of the newest sample, ns.
    pub timestamp_ns: i64,
    /// Capture time of each row, where the message carries several samples; otherwise empty.
    pub timestamps_ns: Vec<i64>,
    /// Dimensions, row-major; empty where the message does not say.
    pub shape: Vec<usize>,
    /// Names of the last axis; empty where the message does not say.
    pub fields: Vec<String>,
    /// Coordinate frame; may be empty.
    pub frame_id: String,
    /// `dim` of a batch of trajectories; 0 where the message does not say.
    pub dim: usize,
    /// 0/1 for each sample or part of one, as a fused tensor carries it; empty where the message does not say.
    pub valid: Vec<i64>,
    /// `epoch` of an observation: how often its clock has jumped; 0 where the message does not say.
    pub epoch: i64,
    /// Whatever else its metadata says.
    pub metadata: Metadata,
    /// Rows of the Arrow array.
    pub rows: usize,
    /// Where the columns get their memory from.
    memory: HostMemory,
    modalities: Vec<String>,
    used_modalities: usize,
    columns: Vec<Column>,
    used: usize,
    skipped: Vec<Skipped>,
    /// The tensor in place of the columns, or memory of an earlier use.
    device: Option<DeviceTensor>,
    is_on_device: bool,
}

impl Message {
    /// An empty message, whose payload gets its memory from `memory`.
    pub fn new(memory: &HostMemory) -> Self {
        Self {
            memory: memory.clone(),
            ..Self::default()
        }
    }

    /// Makes it empty, keeping its memory.
    pub fn clear(&mut self) {
        self.timestamp_ns = 0;
        self.timestamps_ns.clear();
        self.shape.clear();
        self.frame_id.clear();
        self.dim = 0;
        self.valid.clear();
        self.epoch = 0;
        self.metadata.clear();
        self.rows = 0;
        self.used_modalities = 0;
        self.used = 0;
        self.skipped.clear();
        self.is_on_device = false;
    }

    /// Makes it a copy of another message, keeping its memory.
    pub fn copy_from(&mut self, other: &Self) {
        self.clear();
        self.timestamp_ns = other.timestamp_ns;
        self.timestamps_ns.extend_from_slice(&other.timestamps_ns);
        self.shape.extend_from_slice(&other.shape);
        self.set_fields(&other.fields);
        self.frame_id.push_str(&other.frame_id);
        self.dim = other.dim;
        self.valid.extend_from_slice(&other.valid);
        self.epoch = other.epoch;
        self.metadata.copy_from(&other.metadata);
        self.set_modalities(other.modalities());
        self.rows = other.rows;
        for column in other.columns() {
            let copy = self.add_column(&column.name, column.dtype, column.cells);
            copy.data.copy_from(column.data.bytes());
            copy.integers = column.integers;
            copy.offsets.extend_from_slice(&column.offsets);
            copy.null_rows.extend_from_slice(&column.null_rows);
        }
        self.skipped.clone_from(&other.skipped);
    }

    /// The columns of the payload.
    pub fn columns(&self) -> &[Column] {
        &self.columns[..self.used]
    }

    /// The columns of the payload, to write.
    pub fn columns_mut(&mut self) -> &mut [Column] {
        &mut self.columns[..self.used]
    }

    /// The columns that came and were not copied, such as text.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Notes a column that is not copied.
    pub fn skip(&mut self, field: &FieldRef, reason: &'static str) {
        let field = field.clone();
        self.skipped.push(Skipped { field, reason });
    }

    /// The column of that name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns().iter().find(|column| column.name == name)
    }

    /// The elements, where the payload is a flat array.
    pub fn flat(&self) -> Option<Values<'_>> {
        match self.columns() {
            [only] if only.name.is_empty() => Some(only.values()),
            _ => None,
        }
    }

    /// The elements, where the payload is a flat array that is on a device. Such a message has no columns.
    pub fn on_device(&self) -> Option<&DeviceTensor> {
        self.device.as_ref().filter(|_| self.is_on_device)
    }

    /// Appends a column and returns it, to be filled. Its memory is that of an earlier use.
    pub fn add_column(&mut self, name: &str, dtype: Dtype, cells: Cells) -> &mut Column {
        if self.used == self.columns.len() {
            self.columns.push(Column {
                data: HostBuf::new(&self.memory),
                ..Column::default()
            });
        }
        let column = &mut self.columns[self.used];
        self.used += 1;
        column.name.clear();
        column.name.push_str(name);
        column.dtype = dtype;
        column.cells = cells;
        column.integers = None;
        column.offsets.clear();
        column.null_rows.clear();
        column
    }

    /// The streams of an observation, in the order of the last axis; empty where the message is none.
    pub fn modalities(&self) -> &[String] {
        &self.modalities[..self.used_modalities]
    }

    /// Makes it an observation of these streams, keeping the memory of earlier names.
    pub fn set_modalities<S: AsRef<str>>(&mut self, names: &[S]) {
        self.used_modalities = names.len();
        for (i, name) in names.iter().enumerate() {
            match self.modalities.get_mut(i) {
                Some(modality) => {
                    modality.clear();
                    modality.push_str(name.as_ref());
                }
                None => self.modalities.push(name.as_ref().to_owned()),
            }
        }
    }

    /// Sets the names of the last axis, keeping their memory.
    pub fn set_fields<S: AsRef<str>>(&mut self, names: &[S]) {
        self.fields.truncate(names.len());
        for (i, name) in names.iter().enumerate() {
            match self.fields.get_mut(i) {
                Some(field) => {
                    field.clear();
                    field.push_str(name.as_ref());
                }
                None => self.fields.push(name.as_ref().to_owned()),
            }
        }
    }

    /// Bytes of the payload.
    pub fn bytes(&self) -> usize {
        self.columns().iter().map(|column| column.data.len()).sum()
    }

    /// Bytes that it holds, whether they are used or not, on the host and on a device.
    pub fn capacity(&self) -> usize {
        let on_device = self.device.as_ref().map_or(0, |tensor| tensor.memory.capacity());
        let on_host: usize = self.columns.iter().map(|column| column.data.capacity()).sum();
        on_device + on_host
    }

    /// Makes it a copy on the host of a message that is on a device, keeping its memory.
    ///
    /// # Errors
    /// What the driver says.
    pub fn fetch(&mut self, other: &Self) -> Result<(), CudaError> {
        self.copy_from(other);
        if let Some(tensor) = other.on_device() {
            let column = self.add_column("", tensor.dtype, Cells::One);
            column.data.resize(tensor.len * tensor.dtype.size());
            tensor.memory.fetch(0, column.data.bytes_mut())?;
        }
        Ok(())
    }

    /// Gives the memory on a device back.
    pub fn release_device(&mut self) {
        self.device = None;
        self.is_on_device = false;
    }

    /// Makes it a message with a tensor of `len` elements on a device, in memory that counts in `budget`, and returns
    /// the memory to be filled.
    ///
    /// # Errors
    /// No memory; what the driver says.
    pub fn lay_out_on_device(
        &mut self,
        dtype: Dtype,
        len: usize,
        gpu: &Gpu,
        budget: &Budget,
    ) -> Result<&mut DeviceBuf, CudaError> {
        self.clear();
        self.rows = len;
        let memory = match self.device.take() {
            Some(tensor) if tensor.memory.is_of(gpu, budget) => tensor.memory,
            _ => DeviceBuf::new(gpu, budget),
        };
        let tensor = self.device.insert(DeviceTensor { memory, dtype, len });
        tensor.memory.reserve(len * dtype.size())?;
        self.is_on_device = true;
        Ok(&mut tensor.memory)
    }

    /// Makes it a message without rows that has the memory for `layout`, and returns its columns to be filled.
    pub fn lay_out(&mut self, layout: &Layout) -> &mut [Column] {
        self.clear();
        self.rows = layout.rows;
        for spec in &layout.columns {
            let column = self.add_column(&spec.name, spec.dtype, spec.cells);
            column.data.resize(spec.len(layout.rows) * spec.dtype.size());
            if matches!(spec.cells, Cells::Ragged(_)) {
                column.offsets.resize(layout.rows + 1, 0);
            }
        }
        self.columns_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_reused_without_traces_of_its_last_content() {
        let mut message = Message::default();
        message
            .add_column("x", Dtype::Float32, Cells::One)
            .data
            .copy_from(&[0; 8]);
        message
            .add_column("y", Dtype::Float64, Cells::One)
            .data
            .copy_from(&[0; 16]);
        message.set_fields(&["a", "b"]);
        message.set_modalities(&["camera", "force"]);
        message.epoch = 3;
        *message.metadata.add("width") = crate::stream::MetadataValue::Integer(640);
        assert_eq!(message.bytes(), 24);
        let mut copy = Message::default();
        copy.copy_from(&message);
        assert_eq!((copy.modalities(), copy.epoch), (message.modalities(), 3));
        assert_eq!(copy.metadata.get("width"), message.metadata.get("width"));
        message.clear();
        assert!(message.modalities().is_empty() && message.metadata.is_empty());
        assert_eq!(message.epoch, 0);
        message.set_fields::<&str>(&[]);
        message
            .add_column("", Dtype::UInt8, Cells::One)
            .data
            .copy_from(&[1, 2, 3]);
        assert_eq!(message.columns().len(), 1);
        assert_eq!(message.flat().unwrap().bytes(), [1, 2, 3]);
        assert!(message.column("y").is_none());
        assert!(message.fields.is_empty());
    }

    #[test]
    fn ragged_rows_are_slices_of_their_column() {
        let mut message = Message::default();
        let column = message.add_column("values", Dtype::Float32, Cells::Ragged(3));
        column.data.copy_from(bytemuck::cast_slice(&[1.0f32, 2.0, 3.0]));
        column.offsets.extend([0, 0, 2, 3]);
        assert_eq!(column.row(0).len(), 0);
        assert_eq!(column.row(1).as_slice::<f32>(), [1.0, 2.0]);
        assert_eq!(column.row(2).as_slice::<f32>(), [3.0]);
    }
}
