//! Messages: metadata and a payload of columns, in memory that is reused.
//!
//! Clearing a message keeps its allocated memory and leaves no trace of its content. The columns of a payload are all in host
//! memory, or all on one device.

use crate::arrow::Text;
use crate::{Header, MessageError, MetadataRef, Payload};
use arrow_array::{Array, ArrayRef};
use arrow_schema::FieldRef;
use robocache_device::gpu::{Budget, DeviceBuf, DeviceFault, Gpu};
use robocache_device::{Dtype, HostBuf, HostMemory, Values};
use std::borrow::Cow;

/// Number of elements in each row of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cells {
    /// One element in each row (Arrow: a primitive array).
    One,
    /// The same number of elements in each row (Arrow: FixedSizeList).
    Fixed(usize),
    /// Any number of elements in each row; the value is the total of all rows (Arrow: List with 32-bit offsets).
    Ragged(usize),
    /// A text in each row, as uint8 in UTF-8; the value is the number of bytes of all rows (Arrow: Utf8).
    Text(usize),
}

impl Cells {
    /// True if rows may differ in their number of elements, so that the column has offsets.
    pub fn has_offsets(self) -> bool {
        matches!(self, Self::Ragged(_) | Self::Text(_))
    }
}

/// The name, type and size of one column of a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnLayout {
    /// The field's name; empty for the only column of a flat array.
    pub name: Cow<'static, str>,
    /// Type of the column's elements.
    pub dtype: Dtype,
    /// Number of elements in each row of the column.
    pub cells: Cells,
}

/// The form of a payload: a flat primitive array, or a struct of columns with the same number of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Number of rows of the Arrow array; for a flat array its length.
    pub rows: usize,
    /// The columns. A single column without a name is a flat array; otherwise the payload is a StructArray.
    pub columns: Vec<ColumnLayout>,
}

impl Layout {
    /// Creates the layout of a flat array of `len` elements.
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

    /// True if the payload is a flat array and not a struct.
    pub fn is_flat(&self) -> bool {
        matches!(self.columns.as_slice(), [only] if only.name.is_empty())
    }
}

impl ColumnLayout {
    /// The number of elements that the column has in a payload of `rows` rows.
    pub fn len(&self, rows: usize) -> usize {
        match self.cells {
            Cells::One => rows,
            Cells::Fixed(n) => rows * n,
            Cells::Ragged(total) | Cells::Text(total) => total,
        }
    }
}

/// One column of a message's payload, in host memory.
pub struct Column {
    /// The field's name; empty for the only column of a flat array.
    pub name: String,
    /// Type of the column's elements.
    pub dtype: Dtype,
    /// Number of elements in each row of the column.
    pub cells: Cells,
    /// Elements of all rows, one row after the other.
    pub data: HostBuf,
    /// Integer type in which the values were sent, if they became float64 because of nulls, with NaN for a null; else `None`.
    pub integers: Option<Dtype>,
    /// Index of each row's first element, and at the end the number of all elements, for [`Cells::Ragged`] and [`Cells::Text`];
    /// else empty. Row i is elements `offsets[i]..offsets[i + 1]`.
    pub offsets: Vec<i32>,
    /// Indices of null rows and of rows of integers that hold a null, ascending; only with [`Cells::Ragged`] and [`Cells::Text`].
    /// Integers in these rows have no meaning; a null float is NaN, and a null text is empty.
    pub null_rows: Vec<usize>,
}

impl Column {
    /// The elements of all rows, one row after the other.
    pub fn values(&self) -> Values<'_> {
        Values::new(self.dtype, self.data.bytes())
    }

    /// The elements of the row of index `row`, in a column with [`Cells::Ragged`] or [`Cells::Text`].
    pub fn row(&self, row: usize) -> Values<'_> {
        self.values()
            .slice(self.offsets[row] as usize, self.offsets[row + 1] as usize)
    }

    /// The name of the type in which the elements were sent; `text` for a column of text.
    pub fn type_name(&self) -> &'static str {
        match self.cells {
            Cells::Text(_) => "text",
            _ => self.integers.unwrap_or(self.dtype).name(),
        }
    }

    /// The texts of all rows; `None` if the column is not text.
    pub fn texts(&self) -> Option<impl ExactSizeIterator<Item = &str>> {
        let Cells::Text(_) = self.cells else { return None };
        let rows = 0..self.offsets.len().saturating_sub(1);
        Some(rows.map(|row| std::str::from_utf8(self.row(row).bytes()).unwrap_or_default()))
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

/// A column of a received message that was not copied. Only an operation that needs the column refuses the message.
#[derive(Clone, Debug)]
pub struct Skipped {
    /// Name and Arrow type of the column.
    pub field: FieldRef,
    /// The reason why the column was not copied.
    pub reason: &'static str,
}

/// One column of a message in the memory of a device. All writes of the device to the column are complete.
pub struct DeviceColumn {
    /// The field's name; empty for the only column of a flat array.
    pub name: String,
    /// Type of the column's elements.
    pub dtype: Dtype,
    /// Number of elements in each row of the column: [`Cells::One`] or [`Cells::Fixed`].
    pub cells: Cells,
    /// Number of elements in all rows of the column.
    pub len: usize,
    /// Device memory that starts with the column's elements, and may be larger than needed.
    pub memory: DeviceBuf,
}

impl DeviceColumn {
    /// The size of the column's elements, bytes.
    pub fn bytes(&self) -> usize {
        self.len * self.dtype.size()
    }
}

/// The columns of a payload, in host memory or on a device.
#[derive(Clone, Copy)]
pub enum Data<'a> {
    /// Columns in host memory.
    Host(&'a [Column]),
    /// Columns in memory of a device.
    Device(&'a [DeviceColumn]),
}

impl<'a> Data<'a> {
    /// The number of elements if the payload is a flat array; `None` for a struct.
    pub fn flat_len(self) -> Option<usize> {
        match self {
            Self::Host([only]) if only.name.is_empty() => Some(only.values().len()),
            Self::Device([only]) if only.name.is_empty() => Some(only.len),
            _ => None,
        }
    }

    /// The device that holds the payload; `None` if the payload is in host memory.
    pub fn gpu(self) -> Option<&'a Gpu> {
        match self {
            Self::Host(_) => None,
            Self::Device(columns) => columns.first().map(|column| column.memory.gpu()),
        }
    }
}

/// Memory that holds the payload, host or device, with the payload's number of columns. The message keeps further columns only
/// to reuse their memory.
#[derive(Clone, Copy)]
enum Used {
    Host(usize),
    Device(usize),
}

impl Default for Used {
    fn default() -> Self {
        Self::Host(0)
    }
}

/// A message: metadata and payload, in memory that is reused.
#[derive(Default)]
pub struct Message {
    /// The metadata, boxed because messages move from queue to queue, which then copies only a pointer to the metadata.
    pub header: Box<Header>,
    /// Time of arrival at this host, ns since 1970 by this host's real-time clock: when dora's event was received, or as recorded.
    /// `None` if not known. The arrival is not part of the metadata, and so is not sent with the message. A message that an
    /// operation publishes within its process has the arrival of the message that it was made from.
    pub arrival_ns: Option<i64>,
    /// Time of publication, ns since 1970: dora's own stamp, by the clock of the sender. `None` if not known. Like `arrival_ns`,
    /// this time is not part of the metadata, but is passed on within the process.
    pub published_ns: Option<i64>,
    /// True if the payload or the metadata of the received message can't be read. Such a message has no payload.
    pub is_unread: bool,
    /// Number of rows of the payload; for a flat array its length.
    pub rows: usize,
    /// Allocator of the columns' memory.
    memory: HostMemory,
    columns: Vec<Column>,
    device_columns: Vec<DeviceColumn>,
    used: Used,
    skipped: Vec<Skipped>,
}

impl Message {
    /// Creates an empty message that allocates its payload from `memory`.
    pub fn new(memory: &HostMemory) -> Self {
        Self {
            memory: memory.clone(),
            ..Self::default()
        }
    }

    /// Creates an empty message that allocates its payload from the same memory as this message.
    pub fn new_like(&self) -> Self {
        Self::new(&self.memory)
    }

    /// Capture time of the newest sample, ns; 0 if the header has none.
    pub fn timestamp_ns(&self) -> i64 {
        self.header.timestamp_ns.get().unwrap_or(0)
    }

    /// Removes the metadata and the payload; keeps the allocated memory.
    pub fn clear(&mut self) {
        self.header.clear();
        self.clear_payload();
    }

    /// Marks the message as unreadable: clears the payload, and keeps the part of the header that could be read.
    pub fn make_unread(&mut self) {
        self.clear_payload();
        self.is_unread = true;
    }

    pub(super) fn clear_payload(&mut self) {
        self.arrival_ns = None;
        self.published_ns = None;
        self.is_unread = false;
        self.rows = 0;
        self.used = Used::default();
        self.skipped.clear();
    }

    /// Replaces this message by a copy of another, in the memory that is allocated already. Columns on a device are not copied;
    /// [`fetch`](Self::fetch) copies them, too.
    pub fn copy_from(&mut self, other: &Self) {
        self.clear_payload();
        self.header.copy_from(&other.header);
        self.arrival_ns = other.arrival_ns;
        self.published_ns = other.published_ns;
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

    /// Reads a message: copies `metadata` and an Arrow array into the memory of this message.
    ///
    /// A null becomes NaN, and a time becomes int64 nanoseconds. A struct column that can't be read is
    /// [skipped](Self::skipped). If the metadata locate the payload in a ring, memory that sender and receivers share, the
    /// array is not read. [`take_resident`](Self::take_resident) then copies the payload.
    ///
    /// # Errors
    /// If no operation can read the type of the array, or if the metadata have a wrong type or contradict the array. After an
    /// error the payload of the message is undefined.
    pub fn read<'a>(
        &mut self,
        metadata: impl IntoIterator<Item = (&'a str, MetadataRef<'a>)>,
        array: &ArrayRef,
    ) -> Result<(), MessageError> {
        self.read_with(metadata, |message| message.copy(array, Text::Read))
    }

    /// Reads a message as [`read`](Self::read) does, but calls `payload` to copy the payload once the header is read.
    pub(super) fn read_with<'a>(
        &mut self,
        metadata: impl IntoIterator<Item = (&'a str, MetadataRef<'a>)>,
        payload: impl FnOnce(&mut Self) -> Result<(), MessageError>,
    ) -> Result<(), MessageError> {
        self.clear_payload();
        let header = self.header.read(metadata);
        if self.header.is_resident() {
            return header;
        }
        payload(self)?;
        header?;
        self.check()
    }

    /// Copies an Arrow array as the payload. The header must have been read before, because its `dtype` tells bfloat16 from uint16.
    pub(super) fn copy(&mut self, array: &ArrayRef, text: Text) -> Result<(), MessageError> {
        let is_bfloat16 = self.header.dtype.get() == Some(Dtype::BFloat16.name());
        self.rows = array.len();
        super::arrow::read(array, is_bfloat16, text, self).map_err(|why| MessageError::ArrowType {
            came: array.data_type().to_string(),
            why,
        })
    }

    /// Checks the header against the payload: element type, shape and lengths. If `dtype` is bfloat16, which travels as
    /// uint16, a payload of uint16 becomes bfloat16.
    ///
    /// [`read`](Self::read) includes this check.
    ///
    /// # Errors
    /// Names the first key that contradicts the payload.
    pub fn check(&mut self) -> Result<(), MessageError> {
        if self.header.dtype.get() == Some(Dtype::BFloat16.name()) {
            let is_flat = self.flat().is_some();
            for column in self.columns_mut() {
                if (is_flat || column.name == "values") && column.dtype == Dtype::UInt16 {
                    column.dtype = Dtype::BFloat16;
                }
            }
        }
        self.check_unchanged()
    }

    /// Checks the header as [`check`](Self::check) does, but changes nothing: a payload of bfloat16 must already have that type.
    pub fn check_unchanged(&self) -> Result<(), MessageError> {
        self.check_dtype()?;
        self.header.check(self.data().flat_len())
    }

    fn check_dtype(&self) -> Result<(), MessageError> {
        let Some(name) = self.header.dtype.get() else {
            return Ok(());
        };
        let refused = |came, allowed| {
            let key = super::key::dtype;
            Err(MessageError::Metadata { key, came, allowed })
        };
        let Some(dtype) = Dtype::from_name(name) else {
            let allowed = "float32, float64, float16, bfloat16, int8 to int64, uint8 to uint64";
            return refused(format!("`{name}`"), allowed);
        };
        let is_flat = self.flat().is_some();
        for column in self
            .columns()
            .iter()
            .filter(|column| is_flat || column.name == "values")
        {
            let came = column.integers.unwrap_or(column.dtype);
            if dtype == Dtype::BFloat16 && column.dtype == Dtype::UInt16 {
                let allowed = "a payload of bfloat16, which `Message::check` makes of uint16";
                return refused(format!("`{name}`, the payload is {came}"), allowed);
            }
            if dtype != came {
                let allowed = "the payload's type, or bfloat16 with a payload of UInt16";
                return refused(format!("`{name}`, the payload is {came}"), allowed);
            }
        }
        Ok(())
    }

    /// The columns of the payload, in host memory or on a device.
    pub fn data(&self) -> Data<'_> {
        match self.used {
            Used::Host(used) => Data::Host(&self.columns[..used]),
            Used::Device(used) => Data::Device(&self.device_columns[..used]),
        }
    }

    /// The columns of the payload in host memory; empty if the payload is on a device.
    pub fn columns(&self) -> &[Column] {
        match self.data() {
            Data::Host(columns) => columns,
            Data::Device(_) => &[],
        }
    }

    /// The columns of the payload in host memory, to be written; empty if the payload is on a device.
    pub fn columns_mut(&mut self) -> &mut [Column] {
        match self.used {
            Used::Host(used) => &mut self.columns[..used],
            Used::Device(_) => &mut [],
        }
    }

    /// The received columns that were not copied, such as booleans.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Adds the column `field` to the columns that were not copied, with the reason.
    pub fn skip(&mut self, field: &FieldRef, reason: &'static str) {
        let field = field.clone();
        self.skipped.push(Skipped { field, reason });
    }

    /// The first column of that name in host memory; `None` if the payload lacks the column or is on a device.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns().iter().find(|column| column.name == name)
    }

    /// The elements of the payload, if it is a flat array in host memory; else `None`.
    pub fn flat(&self) -> Option<Values<'_>> {
        match self.columns() {
            [only] if only.name.is_empty() => Some(only.values()),
            _ => None,
        }
    }

    /// Appends a column in host memory, and returns the column to be filled. Memory of earlier columns is reused, and their bytes
    /// stay until they are overwritten. A payload on a device is dropped.
    pub fn add_column(&mut self, name: &str, dtype: Dtype, cells: Cells) -> &mut Column {
        let used = match self.used {
            Used::Host(used) => used,
            Used::Device(_) => 0,
        };
        if used == self.columns.len() {
            self.columns.push(Column {
                data: HostBuf::new(&self.memory),
                ..Column::default()
            });
        }
        let column = &mut self.columns[used];
        self.used = Used::Host(used + 1);
        column.name.clear();
        column.name.push_str(name);
        column.dtype = dtype;
        column.cells = cells;
        column.integers = None;
        column.offsets.clear();
        column.null_rows.clear();
        column
    }

    /// The size of the payload, bytes, if it is in host memory; else 0.
    pub fn bytes(&self) -> usize {
        self.columns().iter().map(|column| column.data.len()).sum()
    }

    /// The number of bytes that the message has allocated on the host and on a device, used or not.
    pub fn capacity(&self) -> usize {
        let on_device: usize = self.device_columns.iter().map(|column| column.memory.capacity()).sum();
        let on_host: usize = self.columns.iter().map(|column| column.data.capacity()).sum();
        on_device + on_host
    }

    /// Replaces this message by a copy of another in host memory, columns on a device included. Allocated memory is reused.
    ///
    /// # Errors
    /// The error of the GPU driver. After an error the payload lacks columns.
    pub fn fetch(&mut self, other: &Self) -> Result<(), DeviceFault> {
        self.copy_from(other);
        if let Data::Device(columns) = other.data() {
            for from in columns {
                let column = self.add_column(&from.name, from.dtype, from.cells);
                column.data.resize(from.bytes());
                from.memory.fetch(0, column.data.bytes_mut())?;
            }
        }
        Ok(())
    }

    /// Frees the message's memory on a device, and drops a payload in this memory.
    pub fn release_device(&mut self) {
        self.device_columns.clear();
        if let Used::Device(_) = self.used {
            self.used = Used::default();
        }
    }

    /// Lays out a payload in device memory that counts against `budget`, and clears the header. Returns the columns and the
    /// header, to be filled.
    ///
    /// # Errors
    /// If the device or `budget` lacks memory, or the GPU driver fails.
    ///
    /// # Panics
    /// If a column has offsets, which only the host supports.
    pub fn lay_out_on_device(
        &mut self,
        layout: &Layout,
        gpu: &Gpu,
        budget: &Budget,
    ) -> Result<(&mut [DeviceColumn], &mut Header), DeviceFault> {
        self.clear();
        self.rows = layout.rows;
        if self
            .device_columns
            .iter()
            .any(|column| !column.memory.is_of(gpu, budget))
        {
            self.device_columns.clear();
        }
        for (i, spec) in layout.columns.iter().enumerate() {
            assert!(!spec.cells.has_offsets(), "column {:?} has offsets", spec.name);
            if i == self.device_columns.len() {
                self.device_columns.push(DeviceColumn {
                    name: String::new(),
                    dtype: spec.dtype,
                    cells: spec.cells,
                    len: 0,
                    memory: DeviceBuf::new(gpu, budget),
                });
            }
            let column = &mut self.device_columns[i];
            column.name.clear();
            column.name.push_str(&spec.name);
            (column.dtype, column.cells, column.len) = (spec.dtype, spec.cells, spec.len(layout.rows));
            column.memory.reserve(column.bytes())?;
        }
        let columns = layout.columns.len();
        self.used = Used::Device(columns);
        Ok((&mut self.device_columns[..columns], &mut self.header))
    }

    /// Replaces the payload and the header: lays out a payload in host memory, clears the header, and calls `fill` to write both.
    pub fn write(&mut self, layout: &Layout, fill: impl FnOnce(&mut Payload<'_>, &mut Header)) {
        self.header.clear();
        self.lay_out(layout);
        let columns = &mut self.columns[..layout.columns.len()];
        fill(&mut Payload::in_columns(columns), &mut self.header);
    }

    /// Writes the layout of the payload to `layout`; names that have not changed keep their memory.
    pub fn layout_into(&self, layout: &mut Layout) {
        layout.rows = self.rows;
        layout.columns.truncate(self.columns().len());
        for (i, column) in self.columns().iter().enumerate() {
            match layout.columns.get_mut(i) {
                Some(there) => {
                    if there.name != column.name {
                        there.name = column.name.clone().into();
                    }
                    (there.dtype, there.cells) = (column.dtype, column.cells);
                }
                None => layout.columns.push(ColumnLayout {
                    name: column.name.clone().into(),
                    dtype: column.dtype,
                    cells: column.cells,
                }),
            }
        }
    }

    /// Gives the message a payload of this layout in host memory, and returns the columns to be filled. The header stays.
    pub fn lay_out(&mut self, layout: &Layout) -> &mut [Column] {
        self.clear_payload();
        self.rows = layout.rows;
        for spec in &layout.columns {
            let column = self.add_column(&spec.name, spec.dtype, spec.cells);
            column.data.resize(spec.len(layout.rows) * spec.dtype.size());
            if spec.cells.has_offsets() {
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
        crate::form::modalities.set(&mut message.header, ["camera", "force"]);
        message.header.dim.set(3);
        assert_eq!(message.bytes(), 24);
        let mut copy = Message::default();
        copy.copy_from(&message);
        assert_eq!(copy.header, message.header);
        message.clear();
        assert_eq!(*message.header, Header::default());
        message
            .add_column("", Dtype::UInt8, Cells::One)
            .data
            .copy_from(&[1, 2, 3]);
        assert_eq!(message.columns().len(), 1);
        assert_eq!(message.flat().unwrap().bytes(), [1, 2, 3]);
        assert!(message.column("y").is_none());
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
