//! Conversion of a recording's Arrow batches to messages, one message per row.
//!
//! The rows of a batch are checked once, when the batch is decoded. Later, a row can fail to be read only if its elements are
//! not in memory but still in the file.

use super::framing::Elements;
use super::schema::{FIELD, LISTS, METADATA, Part, dtype_of};
use super::text::{self, Change};
use super::{ARRIVAL, DATA, ReadError};
use crate::arrow::bytes;
use crate::{Cells, Message, MetadataValue, form, key};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, ListArray, RecordBatch};
use arrow_schema::{DataType, Schema};
use robocache_device::Dtype;
use robocache_yaml::listed;
use std::io;
use std::ops::Range;
use std::path::Path;

const ALLOWED: &str =
    "a List of a primitive type; in a struct's field also of a FixedSizeList or a List of one, or of Utf8";

/// Decoded Arrow batch of a recording. Each row is a message.
pub(super) struct Batch {
    pub rows: RecordBatch,
    /// Changes of each row's metadata from the metadata in the schema; empty if no row differs.
    pub differences: Vec<Vec<Change>>,
    /// Payload elements that are still in the file, and are read when a row needs them; `None` if the whole batch is in memory.
    pub left: Option<Elements>,
}

impl Batch {
    fn differences(&self, row: usize) -> &[Change] {
        self.differences.get(row).map_or(&[], Vec::as_slice)
    }
}

/// Map from a file's columns to the parts of a message, with the metadata that all rows share. Made from the file's schema.
pub(super) struct Plan {
    /// Indices, in the file, of the columns that are read, ascending; `None` if all are read. The plan's other indices count
    /// only the columns that are read.
    pub projection: Option<Vec<usize>>,
    timestamp: usize,
    /// Columns of the payload, each with its index among the columns that are read.
    parts: Vec<(Part, usize)>,
    /// Indices of the columns `shape`, `timestamps_ns` and `valid` ([`LISTS`]); `None` for a column that the file lacks.
    lists: [Option<usize>; LISTS.len()],
    arrival: Option<usize>,
    metadata: Option<usize>,
    fields: Vec<String>,
    frame_id: String,
    dim: i64,
    /// Metadata of the first message that have no key of their own in the schema, but are in the JSON object under the
    /// key `METADATA`.
    others: Vec<Change>,
    /// Names of columns that are ignored, because a recorded tensor does not have them; empty if the schema has no `dtype`, as
    /// in files of other writers.
    unknown: Vec<String>,
}

impl Plan {
    /// Makes the plan for the file `path` from its schema. Refuses a schema that is not one of a recording.
    pub(super) fn new(path: &Path, schema: &Schema) -> Result<Self, ReadError> {
        let form = |problem| ReadError::Form {
            path: path.to_owned(),
            problem,
        };
        let missing = |column, allowed| {
            let names: Vec<String> = schema
                .fields()
                .iter()
                .map(|field| format!("`{}`", field.name()))
                .collect();
            let came = listed(&names);
            Err(form(format!(
                "no column `{column}`, the file has {came} (allowed: {allowed})"
            )))
        };
        let find = |name: &str| schema.fields().iter().position(|field| field.name() == name);
        let typed = |column: usize, fits: bool, allowed| {
            let (name, came) = (schema.field(column).name(), schema.field(column).data_type());
            let problem = || form(format!("column `{name}` is {came} (allowed: {allowed})"));
            fits.then_some(column).ok_or_else(problem)
        };
        let Some(timestamp) = find(key::timestamp_ns) else {
            return missing(key::timestamp_ns, "Int64, the capture time of each message in ns");
        };
        let is_int64 = |&column: &usize| *schema.field(column).data_type() == DataType::Int64;
        typed(timestamp, is_int64(&timestamp), "Int64")?;
        let is_flat = find(DATA).is_some();
        let mut lists = [None; LISTS.len()];
        for (list, name) in lists.iter_mut().zip(LISTS) {
            // A struct may have a field `valid` of its own.
            if let Some(column) = find(name).filter(|_| is_flat || name != key::valid) {
                let fits = list_item(schema.field(column).data_type()) == Some(&DataType::Int64);
                *list = Some(typed(column, fits, "List<Int64>")?);
            }
        }
        let is_text = |&column: &usize| *schema.field(column).data_type() == DataType::Utf8;
        // A struct of another writer, or of an earlier version, may have fields of these names.
        let arrival = find(ARRIVAL).filter(is_int64);
        let differences = find(METADATA).filter(is_text);

        let dtypes = "float32, float64, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64";
        let dtype = said(schema, key::dtype, dtypes, Dtype::from_name).map_err(form)?;
        let names = |text: &str| robocache_yaml::from_str::<Vec<String>>(text).ok();
        let fields = said(schema, key::fields, "a JSON list of strings", names).map_err(form)?;
        let whole = |text: &str| text.parse().ok().filter(|&dim: &i64| dim >= 0);
        let dim = said(schema, key::dim, "a whole number", whole).map_err(form)?;
        let frame_id = schema.metadata().get(key::frame_id).cloned();
        let object = |text: &str| text::object(text).ok();
        let others = "a JSON object, as robocache-record writes it";
        let others = said(schema, METADATA, others, object).map_err(form)?;

        let [shape, timestamps, valid] = lists;
        let own = [Some(timestamp), shape, timestamps, valid, arrival, differences];
        let (mut parts, mut unknown) = (Vec::new(), Vec::new());
        for (column, field) in schema.fields().iter().enumerate() {
            if own.contains(&Some(column)) {
                continue;
            }
            if is_flat && field.name() != DATA {
                // Files of other writers, which need not say the `dtype`, may have further columns.
                unknown.extend(dtype.map(|_| format!("`{}`", field.name())));
                continue;
            }
            let said = field.metadata().get(key::dtype).and_then(|name| Dtype::from_name(name));
            let named = if is_flat { said.or(dtype) } else { said };
            let found = list_item(field.data_type()).and_then(|item| match item {
                DataType::Utf8 if !is_flat => Some((Dtype::UInt8, Cells::Text(0))),
                DataType::List(item) if !is_flat => Some((dtype_of(item.data_type(), named)?, Cells::Ragged(0))),
                DataType::FixedSizeList(item, n) if !is_flat => {
                    let cells = Cells::Fixed(usize::try_from(*n).ok()?);
                    Some((dtype_of(item.data_type(), named)?, cells))
                }
                item => Some((dtype_of(item, named)?, Cells::One)),
            });
            typed(column, found.is_some(), ALLOWED)?;
            let name = field.metadata().get(FIELD).unwrap_or(field.name());
            let name = if is_flat { String::new() } else { name.clone() };
            parts.extend(found.map(|(dtype, cells)| (Part { name, dtype, cells }, column)));
        }
        if parts.is_empty() {
            return missing(DATA, "List<T>, or a List column for each field of a struct");
        }
        let mut read: Vec<usize> = own.into_iter().flatten().collect();
        read.extend(parts.iter().map(|(_, column)| column));
        read.sort_unstable();
        let index = |column: usize| read.binary_search(&column).unwrap_or(column);
        for (_, column) in &mut parts {
            *column = index(*column);
        }
        Ok(Self {
            timestamp: index(timestamp),
            parts,
            lists: lists.map(|list| list.map(index)),
            arrival: arrival.map(index),
            metadata: differences.map(index),
            fields: fields.unwrap_or_default(),
            frame_id: frame_id.unwrap_or_default(),
            dim: dim.unwrap_or(0),
            others: others.unwrap_or_default(),
            unknown,
            projection: (read.len() < schema.fields().len()).then_some(read),
        })
    }

    /// Returns an error that names the ignored columns of the file; `None` if all columns are read.
    pub(super) fn unknown(&self, path: &Path) -> Option<ReadError> {
        (!self.unknown.is_empty()).then(|| ReadError::UnknownColumns {
            path: path.to_owned(),
            columns: self.unknown.join(", "),
        })
    }

    /// True if the column of this index in the file holds elements of a payload.
    pub(super) fn has_elements(&self, column: usize) -> bool {
        let of_file = |read: usize| self.projection.as_ref().map_or(read, |columns| columns[read]);
        self.parts.iter().any(|&(_, read)| of_file(read) == column)
    }

    /// The capture times of a batch's messages, ns, one for each row.
    pub(super) fn timestamps<'a>(&self, batch: &'a Batch) -> &'a Int64Array {
        self.times(&batch.rows)
    }

    /// The number of samples in all messages of a batch, masked samples included.
    pub(super) fn samples(&self, batch: &Batch) -> usize {
        let [_, timestamps, _] = self.lists;
        let of_row = |row| int64_row(&batch.rows, timestamps, row).len().max(1);
        (0..batch.rows.num_rows()).map(of_row).sum()
    }

    /// The arrival times of a batch's messages, ns, one for each row; `None` if the recorder did not keep them.
    pub(super) fn arrivals<'a>(&self, batch: &'a Batch) -> Option<&'a Int64Array> {
        self.arrival
            .map(|column| batch.rows.column(column).as_primitive::<Int64Type>())
    }

    /// True if the file has the arrival times of its messages.
    pub(super) fn has_arrivals(&self) -> bool {
        self.arrival.is_some()
    }

    /// Parses the changes of each row's metadata from the schema's; empty if no row differs. The error has the index of the
    /// first row whose text can't be parsed, and the problem.
    pub(super) fn differences(&self, rows: &RecordBatch) -> Result<Vec<Vec<Change>>, (usize, String)> {
        let texts = self.metadata.map(|column| rows.column(column).as_string::<i32>());
        let Some(texts) = texts.filter(|texts| texts.null_count() < texts.len()) else {
            return Ok(Vec::new());
        };
        let of_row = |(row, text): (usize, Option<&str>)| {
            let changes = text.map_or(Ok(Vec::new()), text::object);
            changes.map_err(|problem| (row, format!("`{METADATA}`: {problem}")))
        };
        texts.iter().enumerate().map(of_row).collect()
    }

    fn times<'a>(&self, batch: &'a RecordBatch) -> &'a Int64Array {
        batch.column(self.timestamp).as_primitive::<Int64Type>()
    }

    /// Checks that each row of a batch is a message. The error has the index of a row that is not a message, and the problem.
    pub(super) fn check(&self, batch: &Batch) -> Result<(), (usize, String)> {
        let changed_shape = |row: usize| {
            let shape = batch.differences(row).iter().find(|(name, _)| name == key::shape);
            shape.and_then(|(_, value)| match value {
                Some(MetadataValue::ListInt(shape)) => Some(shape.as_slice()),
                _ => None,
            })
        };
        let is_grid = |row: usize| {
            let mut said = self.others.iter().chain(batch.differences(row));
            said.any(|(name, value)| name == form::grid_shape.name && value.is_some())
        };
        let batch = &batch.rows;
        self.check_nulls(batch)?;
        for row in 0..batch.num_rows() {
            let mut lens = self
                .parts
                .iter()
                .map(|(part, column)| (&part.name, list(batch, *column).value_length(row)));
            let Some((a, rows)) = lens.next() else { continue };
            if let Some((b, len)) = lens.find(|(_, len)| *len != rows) {
                let problem =
                    format!("`{a}` has {rows} values and `{b}` {len} (allowed: the same number in each field)");
                return Err((row, problem));
            }
            let shape = changed_shape(row).unwrap_or_else(|| int64_row(batch, self.lists[0], row));
            if shape.iter().any(|&n| n < 0) {
                return Err((row, format!("`shape` is {shape:?} (allowed: no negative dimensions)")));
            }
            let elements = shape.iter().try_fold(1, |n: i64, &d| n.checked_mul(d));
            // A voxel grid of layout `bits` packs eight cells into a byte.
            let is_bits = || is_grid(row) && elements.is_some_and(|cells| (cells as u64).div_ceil(8) == rows as u64);
            let fits_elements = elements == Some(rows as i64) || is_bits();
            if !shape.is_empty() && self.is_flat() && !fits_elements {
                let problem =
                    format!("`shape` is {shape:?} for {rows} elements (allowed: a shape with this number of elements)");
                return Err((row, problem));
            }
        }
        Ok(())
    }

    fn check_nulls(&self, batch: &RecordBatch) -> Result<(), (usize, String)> {
        let null_at = |array: &dyn Array| match array.null_count() {
            0 => None,
            _ => (0..array.len()).find(|&i| array.is_null(i)),
        };
        let problem = |column: &str| format!("`{column}` has a null (allowed: none)");
        if let Some(row) = null_at(self.times(batch)) {
            return Err((row, problem(key::timestamp_ns)));
        }
        if let Some(row) = self.arrival.and_then(|column| null_at(batch.column(column))) {
            return Err((row, problem(ARRIVAL)));
        }
        for (name, column) in LISTS.iter().zip(self.lists) {
            let rows = column
                .map(|column| list(batch, column))
                .filter(|rows| rows.values().null_count() > 0);
            let has_null = |rows: &ListArray, row: usize| rows.is_valid(row) && rows.value(row).null_count() > 0;
            if let Some(row) = rows.and_then(|rows| (0..rows.len()).find(|&row| has_null(rows, row))) {
                return Err((row, problem(name)));
            }
        }
        for (part, column) in &self.parts {
            let name = if self.is_flat() { DATA } else { &part.name };
            let rows = list(batch, *column);
            if let Some(row) = null_at(rows) {
                return Err((row, problem(name)));
            }
            // The row that holds element `at` is the first row that ends behind `at`.
            let row_of = |at: usize| rows.value_offsets()[1..].partition_point(|&end| end as usize <= at);
            // A sliced array of lists has values beyond its own rows.
            let elements = |lists: &ListArray| {
                let elements = range(lists.value_offsets());
                (elements.start, lists.values().slice(elements.start, elements.len()))
            };
            let (from, cells) = elements(rows);
            if let Some(at) = null_at(&cells) {
                return Err((row_of(from + at), problem(name)));
            }
            let elements = match part.cells {
                Cells::One | Cells::Text(_) => continue,
                Cells::Fixed(_) => cells.as_fixed_size_list().values().clone(),
                Cells::Ragged(_) => elements(cells.as_list()).1,
            };
            if elements.null_count() > 0 {
                return Err((0, format!("or a later one of its batch: {}", problem(name))));
            }
        }
        Ok(())
    }

    fn is_flat(&self) -> bool {
        self.parts[0].0.name.is_empty()
    }

    /// Reads a row of a checked batch into `message`. Fails only if elements that are still in the file can't be read.
    pub(super) fn read(&self, batch: &Batch, row: usize, message: &mut Message) -> io::Result<()> {
        message.clear();
        message.arrival_ns = self.arrivals(batch).map(|times| times.value(row));
        let (left, differences) = (&batch.left, batch.differences(row));
        let batch = &batch.rows;
        let header = &mut message.header;
        header.timestamp_ns.set(self.times(batch).value(row));
        // A list that is empty in the file is absent from the message.
        if !self.fields.is_empty() {
            header.fields.set(&self.fields);
        }
        if !self.frame_id.is_empty() {
            header.frame_id.set(&self.frame_id);
        }
        if self.dim != 0 {
            header.dim.set(self.dim);
        }
        if self.parts.iter().any(|(part, _)| part.dtype == Dtype::BFloat16) {
            header.dtype.set(Dtype::BFloat16);
        }
        let lists = [&mut header.shape, &mut header.timestamps_ns, &mut header.valid];
        for (entry, column) in lists.into_iter().zip(self.lists) {
            let values = int64_row(batch, column, row);
            if !values.is_empty() {
                entry.set(values);
            }
        }
        for (name, value) in self.others.iter().chain(differences) {
            header.remove(name);
            if let Some(value) = value {
                header.set(name, value.as_ref());
            }
        }
        for (part, column) in &self.parts {
            let rows = list(batch, *column);
            let (values, rows) = (rows.values(), range(&rows.value_offsets()[row..=row + 1]));
            message.rows = rows.len();
            let mut offsets: &[i32] = &[];
            let (cells, bytes) = match part.cells {
                Cells::One => (Cells::One, elements(values, part.dtype, rows)),
                Cells::Fixed(n) => {
                    let values = values.as_fixed_size_list().values();
                    (part.cells, elements(values, part.dtype, rows.start * n..rows.end * n))
                }
                Cells::Ragged(_) => {
                    let lists = values.as_list::<i32>();
                    offsets = &lists.value_offsets()[rows.start..=rows.end];
                    let of = range(offsets);
                    (Cells::Ragged(of.len()), elements(lists.values(), part.dtype, of))
                }
                Cells::Text(_) => {
                    let texts = values.as_string::<i32>();
                    offsets = &texts.value_offsets()[rows.start..=rows.end];
                    let of = range(offsets);
                    (Cells::Text(of.len()), &texts.value_data()[of])
                }
            };
            let column = message.add_column(&part.name, part.dtype, cells);
            column.offsets.extend(offsets.iter().map(|offset| offset - offsets[0]));
            match left {
                Some(left) if !matches!(cells, Cells::Text(_)) => left.read(bytes, &mut column.data)?,
                _ => column.data.copy_from(bytes),
            }
        }
        Ok(())
    }
}

/// Parses the value of a key in the schema's metadata; `None` if the key is absent. The error names the allowed values.
fn said<T>(schema: &Schema, key: &str, allowed: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, String> {
    let Some(text) = schema.metadata().get(key) else {
        return Ok(None);
    };
    let problem = || format!("metadata `{key}` is `{text}` (allowed: {allowed})");
    parse(text).map(Some).ok_or_else(problem)
}

fn list_item(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::List(item) => Some(item.data_type()),
        _ => None,
    }
}

fn list(batch: &RecordBatch, column: usize) -> &ListArray {
    batch.column(column).as_list::<i32>()
}

/// The integers of a row of a list column; empty if the file lacks the column or the row is null.
fn int64_row(batch: &RecordBatch, column: Option<usize>, row: usize) -> &[i64] {
    let rows = column
        .map(|column| list(batch, column))
        .filter(|rows| rows.is_valid(row));
    rows.map_or(&[], |rows| {
        let values = rows.values().as_primitive::<Int64Type>().values();
        &values[range(&rows.value_offsets()[row..=row + 1])]
    })
}

/// The bytes of a range of elements of a primitive array.
fn elements(array: &ArrayRef, dtype: Dtype, of: Range<usize>) -> &[u8] {
    &bytes(array)[of.start * dtype.size()..of.end * dtype.size()]
}

/// The range from the first to the last of these offsets.
fn range(offsets: &[i32]) -> Range<usize> {
    let ends = [offsets.first(), offsets.last()].map(|end| end.map_or(0, |&end| end as usize));
    ends[0]..ends[1]
}
