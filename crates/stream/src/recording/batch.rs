//! The columns of a file, and the rows of a batch as messages.

use super::schema::{FIELD, METADATA, Row, dtype_of};
use super::text::{self, Change};
use super::{ARRIVAL, DATA, ReadError};
use crate::{Cells, Message, MetadataValue, key};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, Int64Array, ListArray, RecordBatch};
use arrow_schema::{DataType, Schema};
use robocache_device::Dtype;
use std::path::Path;

const LISTS: &str =
    "a List of a primitive type; in a struct's field also of a FixedSizeList or a List of one, or of Utf8";

/// A column of the payload.
struct Part {
    name: String,
    column: usize,
    dtype: Dtype,
    row: Row,
}

/// Rows of a file, and for each row the metadata that differs from the schema's; a row without an entry has none.
pub(super) struct Batch {
    pub rows: RecordBatch,
    pub differences: Vec<Vec<Change>>,
}

impl Batch {
    fn differences(&self, row: usize) -> &[Change] {
        self.differences.get(row).map_or(&[], Vec::as_slice)
    }
}

/// How to read the rows of a file, by its schema.
pub(super) struct Plan {
    /// The columns to read, unless that is all of them. The indices below count among these.
    pub projection: Option<Vec<usize>>,
    timestamp: usize,
    parts: Vec<Part>,
    shape: Option<usize>,
    timestamps: Option<usize>,
    valid: Option<usize>,
    arrival: Option<usize>,
    metadata: Option<usize>,
    fields: Vec<String>,
    frame_id: String,
    dim: i64,
    others: Vec<Change>,
    /// Columns that a tensor of a recording has not, which are not read.
    unknown: Vec<String>,
}

impl Plan {
    /// Reads the schema of the file `path`.
    pub fn new(path: &Path, schema: &Schema) -> Result<Self, ReadError> {
        let names = || {
            schema
                .fields()
                .iter()
                .map(|field| format!("`{}`", field.name()))
                .collect::<Vec<_>>()
        };
        let missing = |column, allowed| {
            let names = names();
            Err(ReadError::MissingColumn {
                path: path.to_owned(),
                column,
                came: if names.is_empty() {
                    "none".to_owned()
                } else {
                    names.join(", ")
                },
                allowed,
            })
        };
        let find = |name: &str| schema.fields().iter().position(|field| field.name() == name);
        let typed = |column: usize, fits: bool, allowed| {
            let field = schema.field(column);
            if fits {
                return Ok(column);
            }
            Err(ReadError::ColumnType {
                path: path.to_owned(),
                column: field.name().clone(),
                came: field.data_type().to_string(),
                allowed,
            })
        };
        let metadata = |name: &'static str, allowed, fits: fn(&str) -> bool| match schema.metadata().get(name) {
            Some(value) if !fits(value) => Err(ReadError::Metadata {
                path: path.to_owned(),
                key: name,
                came: value.clone(),
                allowed,
            }),
            value => Ok(value.map(String::as_str)),
        };

        let Some(timestamp) = find(key::timestamp_ns) else {
            return missing(key::timestamp_ns, "Int64, the capture time of each message in ns");
        };
        typed(
            timestamp,
            *schema.field(timestamp).data_type() == DataType::Int64,
            "Int64",
        )?;
        let is_flat = find(DATA).is_some();
        let int64_list = |name: &str| match find(name) {
            None => Ok(None),
            Some(column) => {
                let fits = list_item(schema.field(column).data_type()) == Some(&DataType::Int64);
                typed(column, fits, "List<Int64>").map(Some)
            }
        };
        let shape = int64_list(key::shape)?;
        let timestamps = int64_list(key::timestamps_ns)?;
        // A struct may have a field of that name.
        let valid = if is_flat { int64_list(key::valid)? } else { None };

        let is_int64 = |&column: &usize| *schema.field(column).data_type() == DataType::Int64;
        let is_text = |&column: &usize| *schema.field(column).data_type() == DataType::Utf8;
        // A struct of another writer, or of an earlier version, may have fields of these names.
        let arrival = find(ARRIVAL).filter(is_int64);
        let differences = find(METADATA).filter(is_text);

        let dtypes = "float32, float64, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64";
        let dtype = metadata(key::dtype, dtypes, |name| Dtype::from_name(name).is_some())?.and_then(Dtype::from_name);
        let is_list_of_names = |text: &str| robocache_yaml::from_str::<Vec<String>>(text).is_ok();
        let fields = metadata(key::fields, "a JSON list of strings", is_list_of_names)?;
        let dim = metadata(key::dim, "a whole number", |text| {
            text.parse::<i64>().is_ok_and(|dim| dim >= 0)
        })?;
        let frame_id = metadata(key::frame_id, "a string", |_| true)?;
        let is_object = |text: &str| text::object(text).is_ok();
        let others = metadata(METADATA, "a JSON object, as robocache-record writes it", is_object)?;

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
                DataType::Utf8 if !is_flat => Some((Dtype::UInt8, Row::Text)),
                DataType::List(item) if !is_flat => Some((dtype_of(item.data_type(), named)?, Row::Ragged)),
                DataType::FixedSizeList(item, n) if !is_flat => Some((
                    dtype_of(item.data_type(), named)?,
                    Row::Fixed(usize::try_from(*n).ok()?),
                )),
                item => Some((dtype_of(item, named)?, Row::One)),
            });
            typed(column, found.is_some(), LISTS)?;
            let name = field.metadata().get(FIELD).unwrap_or(field.name());
            parts.extend(found.map(|(dtype, row)| Part {
                name: if is_flat { String::new() } else { name.clone() },
                column,
                dtype,
                row,
            }));
        }
        if parts.is_empty() {
            return missing(DATA, "List<T>, or a List column for each field of a struct");
        }
        let mut read: Vec<usize> = own.into_iter().flatten().collect();
        read.extend(parts.iter().map(|part| part.column));
        read.sort_unstable();
        let index = |column: usize| read.binary_search(&column).unwrap_or(column);
        for part in &mut parts {
            part.column = index(part.column);
        }
        Ok(Self {
            timestamp: index(timestamp),
            parts,
            shape: shape.map(index),
            timestamps: timestamps.map(index),
            valid: valid.map(index),
            arrival: arrival.map(index),
            metadata: differences.map(index),
            fields: fields
                .and_then(|text| robocache_yaml::from_str(text).ok())
                .unwrap_or_default(),
            frame_id: frame_id.unwrap_or_default().to_owned(),
            dim: dim.and_then(|text| text.parse().ok()).unwrap_or(0),
            others: others.and_then(|text| text::object(text).ok()).unwrap_or_default(),
            unknown,
            projection: (read.len() < schema.fields().len()).then_some(read),
        })
    }

    /// What is to be said of the columns that are not read.
    pub fn unknown(&self, path: &Path) -> Option<ReadError> {
        (!self.unknown.is_empty()).then(|| ReadError::UnknownColumns {
            path: path.to_owned(),
            columns: self.unknown.join(", "),
        })
    }

    /// The capture times of a batch.
    pub fn timestamps<'a>(&self, batch: &'a Batch) -> &'a Int64Array {
        self.times(&batch.rows)
    }

    /// How many samples the messages of a batch have.
    pub fn samples(&self, batch: &Batch) -> usize {
        let rows = 0..batch.rows.num_rows();
        rows.map(|row| self.int64_row(&batch.rows, self.timestamps, row).len().max(1))
            .sum()
    }

    /// When the messages of a batch came, where the recorder kept it.
    pub fn arrivals<'a>(&self, batch: &'a Batch) -> Option<&'a Int64Array> {
        self.arrival
            .map(|column| batch.rows.column(column).as_primitive::<Int64Type>())
    }

    /// Whether the file says when its messages came.
    pub fn has_arrivals(&self) -> bool {
        self.arrival.is_some()
    }

    /// Parses the metadata of each row that differs from the schema's; empty where no row has any. An error is the first row
    /// whose text can't be read, and what is wrong with it.
    pub fn differences(&self, rows: &RecordBatch) -> Result<Vec<Vec<Change>>, (usize, String)> {
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

    /// Finds the first row of a batch that is not a message, and what is wrong with it.
    pub fn check(&self, batch: &Batch) -> Result<(), (usize, String)> {
        let changed_shape = |row: usize| {
            let shape = batch.differences(row).iter().find(|(name, _)| name == key::shape);
            shape.and_then(|(_, value)| match value {
                Some(MetadataValue::ListInt(shape)) => Some(shape.as_slice()),
                _ => None,
            })
        };
        let is_grid = |row: usize| {
            let mut said = self.others.iter().chain(batch.differences(row));
            said.any(|(name, value)| name == key::grid_shape && value.is_some())
        };
        let batch = &batch.rows;
        self.no_nulls(batch)?;
        for row in 0..batch.num_rows() {
            let len = |part: &Part| list(batch, part.column).value_length(row) as usize;
            let rows = len(&self.parts[0]);
            if let Some(part) = self.parts.iter().find(|part| len(part) != rows) {
                let (a, b) = (&self.parts[0].name, &part.name);
                let problem = format!(
                    "`{a}` has {rows} values and `{b}` {} (allowed: as many in each field)",
                    len(part)
                );
                return Err((row, problem));
            }
            let shape = changed_shape(row).unwrap_or_else(|| self.int64_row(batch, self.shape, row));
            if shape.iter().any(|&n| n < 0) {
                return Err((row, format!("`shape` is {shape:?} (allowed: no negative dimensions)")));
            }
            let elements = shape.iter().try_fold(1, |n: i64, &d| n.checked_mul(d));
            // The bits of a voxel grid are eight cells to a byte.
            let is_bits = || is_grid(row) && elements.is_some_and(|cells| (cells as u64).div_ceil(8) == rows as u64);
            let is_fine = elements == Some(rows as i64) || is_bits();
            if !shape.is_empty() && self.is_flat() && !is_fine {
                let problem = format!("`shape` is {shape:?} for {rows} elements (allowed: a shape of as many)");
                return Err((row, problem));
            }
        }
        Ok(())
    }

    fn no_nulls(&self, batch: &RecordBatch) -> Result<(), (usize, String)> {
        let null_at = |array: &dyn Array| {
            array
                .nulls()
                .and_then(|nulls| (0..array.len()).find(|&i| nulls.is_null(i)))
        };
        let problem = |column: &str| format!("`{column}` has a null (allowed: none)");
        if let Some(row) = null_at(self.times(batch)) {
            return Err((row, problem(key::timestamp_ns)));
        }
        if let Some(row) = self.arrival.and_then(|column| null_at(batch.column(column))) {
            return Err((row, problem(ARRIVAL)));
        }
        for part in &self.parts {
            let name = if self.is_flat() { DATA } else { &part.name };
            let rows = list(batch, part.column);
            if let Some(row) = null_at(rows) {
                return Err((row, problem(name)));
            }
            // The row that holds an element is the first that ends past it.
            let row_of = |at: usize| rows.value_offsets()[1..].partition_point(|&end| end as usize <= at);
            let (from, to) = ends(rows);
            let cells = rows.values().slice(from, to - from);
            if let Some(at) = null_at(&cells) {
                return Err((row_of(from + at), problem(name)));
            }
            let elements = match part.row {
                Row::One | Row::Text => continue,
                Row::Fixed(_) => fixed(&cells).values().clone(),
                Row::Ragged => {
                    let cells = ragged(&cells);
                    let (from, to) = ends(cells);
                    cells.values().slice(from, to - from)
                }
            };
            if elements.null_count() > 0 {
                return Err((0, format!("or a later one of its batch: {}", problem(name))));
            }
        }
        Ok(())
    }

    fn is_flat(&self) -> bool {
        self.parts[0].name.is_empty()
    }

    fn int64_row<'a>(&self, batch: &'a RecordBatch, column: Option<usize>, row: usize) -> &'a [i64] {
        let Some(column) = column else {
            return &[];
        };
        let rows = list(batch, column);
        if rows.is_null(row) {
            return &[];
        }
        let (from, to) = (
            rows.value_offsets()[row] as usize,
            rows.value_offsets()[row + 1] as usize,
        );
        &rows.values().as_primitive::<Int64Type>().values()[from..to]
    }

    /// Reads a row of a checked batch into `message`.
    pub fn read(&self, batch: &Batch, row: usize, message: &mut Message) {
        message.clear();
        message.arrival_ns = self.arrivals(batch).map(|times| times.value(row));
        let (batch, differences) = (&batch.rows, batch.differences(row));
        let header = &mut message.header;
        header.timestamp_ns.set(self.times(batch).value(row));
        // What is empty in the file is absent from the message.
        if !self.fields.is_empty() {
            header.fields.set(&self.fields);
        }
        if !self.frame_id.is_empty() {
            header.frame_id.set(&self.frame_id);
        }
        if self.dim != 0 {
            header.dim.set(self.dim);
        }
        if self.parts.iter().any(|part| part.dtype == Dtype::BFloat16) {
            header.dtype.set(Dtype::BFloat16);
        }
        for (entry, column) in [
            (&mut header.shape, self.shape),
            (&mut header.timestamps_ns, self.timestamps),
            (&mut header.valid, self.valid),
        ] {
            let values = self.int64_row(batch, column, row);
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
        for part in &self.parts {
            let rows = list(batch, part.column);
            let (from, to) = (
                rows.value_offsets()[row] as usize,
                rows.value_offsets()[row + 1] as usize,
            );
            message.rows = to - from;
            match part.row {
                Row::One => {
                    let column = message.add_column(&part.name, part.dtype, Cells::One);
                    column.data.copy_from(elements(rows.values(), part.dtype, from, to));
                }
                Row::Fixed(n) => {
                    let cells = fixed(rows.values());
                    let column = message.add_column(&part.name, part.dtype, Cells::Fixed(n));
                    column
                        .data
                        .copy_from(elements(cells.values(), part.dtype, from * n, to * n));
                }
                Row::Ragged => {
                    let cells = ragged(rows.values());
                    let offsets = &cells.value_offsets()[from..=to];
                    let (first, last) = (offsets[0], offsets[to - from]);
                    let total = Cells::Ragged((last - first) as usize);
                    let column = message.add_column(&part.name, part.dtype, total);
                    column.offsets.extend(offsets.iter().map(|offset| offset - first));
                    column
                        .data
                        .copy_from(elements(cells.values(), part.dtype, first as usize, last as usize));
                }
                Row::Text => {
                    let texts = rows.values().as_string::<i32>();
                    let offsets = &texts.value_offsets()[from..=to];
                    let (first, last) = (offsets[0], offsets[to - from]);
                    let total = Cells::Text((last - first) as usize);
                    let column = message.add_column(&part.name, part.dtype, total);
                    column.offsets.extend(offsets.iter().map(|offset| offset - first));
                    column
                        .data
                        .copy_from(&texts.value_data()[first as usize..last as usize]);
                }
            }
        }
    }
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

fn ragged(array: &ArrayRef) -> &ListArray {
    array.as_list::<i32>()
}

fn fixed(array: &ArrayRef) -> &FixedSizeListArray {
    array.as_fixed_size_list()
}

/// Where the elements of a list begin and end: it may be a slice.
fn ends(list: &ListArray) -> (usize, usize) {
    let offsets = list.value_offsets();
    (offsets[0] as usize, offsets[list.len()] as usize)
}

/// The bytes of elements `from..to` of a primitive array.
fn elements(array: &ArrayRef, dtype: Dtype, from: usize, to: usize) -> &[u8] {
    macro_rules! bytes {
        ($Type:ident) => {{
            let values = array.as_primitive::<arrow_array::types::$Type>().values();
            bytemuck::cast_slice(&values[from..to])
        }};
    }
    match dtype {
        Dtype::Float32 => bytes!(Float32Type),
        Dtype::Float64 => bytes!(Float64Type),
        Dtype::Float16 => bytes!(Float16Type),
        Dtype::BFloat16 | Dtype::UInt16 => bytes!(UInt16Type),
        Dtype::Int8 => bytes!(Int8Type),
        Dtype::Int16 => bytes!(Int16Type),
        Dtype::Int32 => bytes!(Int32Type),
        Dtype::Int64 => bytes!(Int64Type),
        Dtype::UInt8 => bytes!(UInt8Type),
        Dtype::UInt32 => bytes!(UInt32Type),
        Dtype::UInt64 => bytes!(UInt64Type),
    }
}
