//! Clouds of `sensor_msgs/PointCloud2` and `foxglove.PointCloud`, whose points are bytes.
//!
//! The sizes and offsets that a message gives are checked against its bytes before a point is read.

use super::times::{Number, Times};
use super::{T_NS, check, columns};
use crate::selector::names::NewNames;
use crate::selector::path::{Path, integer, is_bytes, is_text, item_of, size, text};
use crate::selector::{CloudFields, SelectError};
use crate::{Cells, Message};
use arrow_array::cast::AsArray;
use arrow_array::{Array, StructArray};
use arrow_schema::{DataType, FieldRef, Fields};
use robocache_device::Dtype;
use std::ops::Range;

/// Reader of `sensor_msgs/PointCloud2` or `foxglove.PointCloud` messages, whose points are packed into an array of bytes.
#[derive(Debug)]
pub(in crate::selector) struct PointCloud2 {
    dialect: &'static Dialect,
    /// Paths of the cloud's height, width and row size; `None` for a Foxglove cloud, whose points are one row.
    grid: Option<Grid>,
    point_step: Path,
    data: Path,
    fields: Path,
    /// Indices of the members `Dialect::parts` in the struct that describes a field, such as a ROS `PointField`.
    parts: Vec<usize>,
    wanted: CloudFields,
    /// Descriptions of the fields in the last message.
    last: Vec<PointField>,
    /// Columns that are made from the fields in `last`.
    columns: Vec<PointColumn>,
    pub times: Option<Times>,
    /// Descriptions of fields that do not become a column, because they have several values or an unknown type: at most 64,
    /// from all messages so far.
    pub left_out: Vec<String>,
    /// Names of the columns of the first message.
    first: Vec<String>,
    /// Number of messages whose columns differ from the first message's, and the names of new columns.
    others: NewNames,
}

/// Paths of the fields that describe the rows of points in a `sensor_msgs/PointCloud2`.
#[derive(Debug)]
struct Grid {
    height: Path,
    width: Path,
    row_step: Path,
    is_bigendian: Path,
}

/// Member names and type numbers that differ between ROS and Foxglove clouds.
#[derive(Debug)]
struct Dialect {
    point_step: &'static str,
    /// Names of the members of a field's description: its name, offset and type and, in ROS, its number of values.
    parts: &'static [&'static str],
    /// Element types by type number. The type number of index 0 is 1.
    datatypes: [Dtype; 8],
}

const ROS: Dialect = Dialect {
    point_step: "point_step",
    parts: &["name", "offset", "datatype", "count"],
    datatypes: DATATYPES,
};
const FOXGLOVE: Dialect = Dialect {
    point_step: "point_stride",
    parts: &["name", "offset", "type"],
    datatypes: [
        Dtype::UInt8,
        Dtype::Int8,
        Dtype::UInt16,
        Dtype::Int16,
        Dtype::UInt32,
        Dtype::Int32,
        Dtype::Float32,
        Dtype::Float64,
    ],
};

/// Description of a field of the points, as received.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PointField {
    name: String,
    offset: usize,
    datatype: usize,
    count: usize,
    dtype: Option<Dtype>,
}

/// Field of the points that becomes a column.
#[derive(Debug)]
struct PointColumn {
    name: String,
    offset: usize,
    dtype: Dtype,
    is_time: bool,
}

/// Element types by the `datatype` of a `sensor_msgs/PointField`. The `datatype` of index 0 is 1.
pub const DATATYPES: [Dtype; 8] = [
    Dtype::Int8,
    Dtype::UInt8,
    Dtype::Int16,
    Dtype::UInt16,
    Dtype::Int32,
    Dtype::UInt32,
    Dtype::Float32,
    Dtype::Float64,
];

impl PointCloud2 {
    /// Creates the reader of a ROS cloud in a struct with these `fields`. `of` is the path of the cloud in this struct: empty,
    /// or ending with a dot.
    pub(crate) fn ros(of: &str, fields: &Fields, wanted: &CloudFields) -> Result<Self, SelectError> {
        Self::find(&ROS, of, fields, wanted)
    }

    /// Creates the reader of a Foxglove cloud in a struct with these `fields`.
    pub(crate) fn foxglove(fields: &Fields, wanted: &CloudFields) -> Result<Self, SelectError> {
        Self::find(&FOXGLOVE, "", fields, wanted)
    }

    fn find(dialect: &'static Dialect, of: &str, fields: &Fields, wanted: &CloudFields) -> Result<Self, SelectError> {
        let find = |name: &str, fits: &dyn Fn(&DataType) -> bool, allowed: &str| {
            Path::typed(&format!("{of}{name}"), fields, fits, allowed)
        };
        let whole = |name: &str| Ok(find(name, &DataType::is_integer, "an integer")?.0);
        let parts = |data_type: &DataType| item_of(data_type).and_then(|item| parts(item, dialect.parts));
        let numbers: Vec<String> = dialect.parts[1..].iter().map(|part| format!("`{part}`")).collect();
        let allowed = format!("a list of structs of a text `name` and integers {}", numbers.join(", "));
        let (path, field) = find("fields", &|it| parts(it).is_some(), &allowed)?;
        let grid = match dialect.parts.len() {
            4 => Some(Grid {
                height: whole("height")?,
                width: whole("width")?,
                row_step: whole("row_step")?,
                is_bigendian: find("is_bigendian", &|it| it == &DataType::Boolean, "a boolean")?.0,
            }),
            _ => None,
        };
        Ok(Self {
            dialect,
            grid,
            point_step: whole(dialect.point_step)?,
            data: find("data", &is_bytes, "a list of uint8, or binary")?.0,
            fields: path,
            parts: parts(field.data_type()).unwrap_or_default(),
            wanted: wanted.clone(),
            last: Vec::new(),
            columns: Vec::new(),
            times: None,
            left_out: Vec::new(),
            first: Vec::new(),
            others: NewNames::default(),
        })
    }

    /// Writes the points of `payload` to `message`, as a struct with a column for each field. The points' times become ns since
    /// the cloud's stamp, `stamp_ns`, whether they were sent relative to it or as absolute times.
    pub(crate) fn read(
        &mut self,
        payload: &StructArray,
        stamp_ns: i64,
        message: &mut Message,
    ) -> Result<(), SelectError> {
        self.look(payload)?;
        let data = self.data.bytes(payload)?;
        let point_step = self.point_step.size(payload)?;
        let broken = |allowed| SelectError::broken(self.data.text(), format!("{} bytes", data.len()), allowed);
        let (height, width, row_step) = match &self.grid {
            Some(grid) => {
                grid.check_order(payload)?;
                let (height, width) = (grid.height.size(payload)?, grid.width.size(payload)?);
                let row_step = grid.row_step.size(payload)?;
                if height > 1 && width > 0 && row_step < width * point_step {
                    let allowed = format!("at least {}, {width} points of {point_step} bytes", width * point_step);
                    return Err(SelectError::broken(grid.row_step.text(), row_step, allowed));
                }
                // With one row, `row_step` is not needed.
                let row_step = if height > 1 { row_step } else { width * point_step };
                (height, width, row_step)
            }
            None if data.is_empty() => (1, 0, 0),
            None if point_step == 0 || data.len() % point_step != 0 => {
                let step = self.dialect.point_step;
                return Err(broken(format!("a multiple of `{step}`, which is {point_step}")));
            }
            None => (1, data.len() / point_step, data.len()),
        };
        let points = height * width;
        if points > 0 {
            self.check_step(point_step)?;
        }
        let needed = match height {
            0 => 0,
            height => (height - 1).saturating_mul(row_step).saturating_add(width * point_step),
        };
        if data.len() < needed {
            let rows = format!("{needed}, {height} rows of {width} points of {point_step} bytes");
            return Err(broken(rows));
        }
        let rows = Rows {
            data: &data[..needed],
            row_step: row_step.max(1),
            row_len: width * point_step,
            point_step: point_step.max(1),
        };
        self.look_at_times(&rows, points, stamp_ns)?;
        self.note_others();
        message.header.forget_form();
        message.rows = points;
        for source in &self.columns {
            if let Some(times) = self.times.as_mut().filter(|_| source.is_time && source.name == T_NS) {
                let numbers = rows.numbers(source.offset, source.dtype);
                times.add_to(message, numbers, points, stamp_ns);
                continue;
            }
            let size = source.dtype.size();
            let column = message.add_column(&source.name, source.dtype, Cells::One);
            column.data.resize(points * size);
            if points == 0 {
                continue;
            }
            let (at, out) = (source.offset, column.data.bytes_mut());
            match size {
                1 => rows.copy::<1>(at, out),
                2 => rows.copy::<2>(at, out),
                4 => rows.copy::<4>(at, out),
                _ => rows.copy::<8>(at, out),
            }
        }
        Ok(())
    }

    /// Determines the unit and origin of the points' times from a cloud, and names their column: `t_ns`, or the field's
    /// own name.
    fn look_at_times(&mut self, rows: &Rows<'_>, points: usize, stamp_ns: i64) -> Result<(), SelectError> {
        let column = self.columns.iter_mut().find(|column| column.is_time);
        let (Some(times), Some(column)) = (&mut self.times, column) else {
            return Ok(());
        };
        let numbers = rows.numbers(column.offset, column.dtype);
        let is_t_ns = times.look(numbers, points, stamp_ns, &self.wanted)?;
        let name = if is_t_ns { T_NS } else { times.name() };
        if column.name != name {
            name.clone_into(&mut column.name);
        }
        Ok(())
    }

    fn check_step(&self, point_step: usize) -> Result<(), SelectError> {
        for source in &self.columns {
            let end = source.offset + source.dtype.size();
            if end > point_step {
                let allowed = format!("at least {end}, where field `{}` ends", source.name);
                return Err(SelectError::broken(self.point_step.text(), point_step, allowed));
            }
        }
        Ok(())
    }

    fn note_left_out(&mut self) {
        // Limits the list, so that a sender can't fill the memory.
        const MOST: usize = 64;
        for field in self.last.iter().filter(|field| !field.fits()) {
            let words = match field.dtype {
                Some(dtype) => format!("`{}` ({} {dtype})", field.name, field.count),
                None => format!("`{}` (type {})", field.name, field.datatype),
            };
            if self.left_out.len() < MOST && !self.left_out.contains(&words) {
                self.left_out.push(words);
            }
        }
    }

    /// Describes how many messages have other columns than the first message; `None` if all have the same columns.
    pub(crate) fn others(&self) -> Option<String> {
        let first = self.first.join(", ");
        self.others
            .line(&format!("have other columns than the first ({first})"))
    }

    fn note_others(&mut self) {
        let names = || self.columns.iter().map(|column| column.name.as_str());
        if self.first.is_empty() {
            self.first = names().map(str::to_owned).collect();
        } else if !names().eq(self.first.iter().map(String::as_str)) {
            let first = &self.first;
            let is_new = |name: &&str| !first.iter().any(|first| first == name);
            self.others.add(names().filter(is_new));
        }
    }

    /// Reads the descriptions of the fields of a message, and selects the columns if the fields have changed.
    fn look(&mut self, payload: &StructArray) -> Result<(), SelectError> {
        let (fields, range) = self.fields.list(payload)?;
        let fields = fields.as_struct();
        let mut is_last = range.len() == self.last.len();
        for (last, i) in self.last.iter().zip(range.clone()) {
            is_last &= self
                .field(fields, i, &range)
                .is_ok_and(|(name, numbers)| name == last.name && numbers == [last.offset, last.datatype, last.count]);
        }
        if is_last && !self.columns.is_empty() {
            return Ok(());
        }
        self.last.clear();
        self.columns.clear();
        for i in range.clone() {
            let (name, [offset, datatype, count]) = self.field(fields, i, &range)?;
            let dtype = datatype.checked_sub(1).and_then(|at| self.dialect.datatypes.get(at));
            self.last.push(PointField {
                name: name.to_owned(),
                offset,
                datatype,
                count,
                dtype: dtype.copied(),
            });
        }
        self.note_left_out();
        let selected = self.select();
        selected.inspect_err(|_| self.columns.clear())
    }

    /// Reads the description of field `i`: its name, its offset in a point (bytes), its type number, and its number of values.
    fn field<'a>(
        &self,
        fields: &'a StructArray,
        i: usize,
        of: &Range<usize>,
    ) -> Result<(&'a str, [usize; 3]), SelectError> {
        let place = |part: &str| format!("{}[{}].{part}", self.fields.text(), i - of.start);
        let null = |part: &str| SelectError::value(place(part), "null", "a value");
        let name = text(fields.column(self.parts[0]), i).ok_or_else(|| null("name"))?;
        let mut found = [0, 0, 1];
        let numbers = self.parts[1..].iter().zip(&self.dialect.parts[1..]);
        for (found, (&part, name)) in found.iter_mut().zip(numbers) {
            let value = integer(fields.column(part), i).ok_or_else(|| null(name))?;
            *found = size(value, || place(name))?;
        }
        Ok((name, found))
    }

    /// Selects the columns from the fields in `last`. Refuses a cloud that lacks a wanted field.
    fn select(&mut self) -> Result<(), SelectError> {
        // A field of several values or of an unknown type is refused only if it is wanted.
        for (i, field) in self.last.iter().enumerate().filter(|(_, field)| !field.fits()) {
            if self.wanted.names().any(|name| name == field.name) {
                let (part, came, allowed) = match field.dtype {
                    None => (self.dialect.parts[2], field.datatype, "1 to 8"),
                    Some(_) => ("count", field.count, "1"),
                };
                let place = format!("{}[{i}].{part}", self.fields.text());
                let allowed = format!("{allowed}, as `{}` is needed", field.name);
                return Err(SelectError::value(place, came, allowed));
            }
        }
        let fields: Vec<&PointField> = self.last.iter().filter(|field| field.fits()).collect();
        let typed = fields
            .iter()
            .filter_map(|field| Some((field.name.as_str(), field.dtype?)));
        let typed: Vec<(&str, Dtype)> = typed.collect();
        let (taken, times) = columns(&typed, &self.wanted);
        for taken in taken {
            self.columns.push(PointColumn {
                name: taken.name,
                offset: fields[taken.field].offset,
                dtype: typed[taken.field].1,
                is_time: taken.is_time,
            });
        }
        self.times = times;
        let taken: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        let there = self.last.iter().map(|field| field.name.as_str());
        check(self.fields.text(), there, &taken, &self.wanted)
    }
}

impl PointField {
    /// True if the field can become a column: one value of a known type, and a name.
    fn fits(&self) -> bool {
        self.dtype.is_some() && self.count <= 1 && !self.name.is_empty()
    }
}

impl Grid {
    fn check_order(&self, payload: &StructArray) -> Result<(), SelectError> {
        let is_bigendian = self.is_bigendian.follow(payload)?;
        match is_bigendian.is_valid(0) && is_bigendian.as_boolean().value(0) {
            true => {
                let allowed = "false: little-endian numbers";
                Err(SelectError::value(self.is_bigendian.text(), true, allowed))
            }
            false => Ok(()),
        }
    }
}

/// Finds the indices of the members `names` in a struct that describes a field. The first member must be a text, the others
/// integers; else `None`.
fn parts(item: &FieldRef, names: &[&str]) -> Option<Vec<usize>> {
    let DataType::Struct(fields) = item.data_type() else {
        return None;
    };
    let find = |(i, name): (usize, &&str)| {
        let (step, field) = fields.find(name)?;
        let fits = match i {
            0 => is_text(field.data_type()),
            _ => field.data_type().is_integer(),
        };
        fits.then_some(step)
    };
    names.iter().enumerate().map(find).collect()
}

/// Bytes of a cloud's points, in rows that may end with padding.
struct Rows<'a> {
    data: &'a [u8],
    row_step: usize,
    row_len: usize,
    point_step: usize,
}

impl<'a> Rows<'a> {
    fn points(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        let (row_len, point_step) = (self.row_len, self.point_step);
        let rows = self.data.chunks(self.row_step).map(move |row| &row[..row_len]);
        rows.flat_map(move |row| row.chunks_exact(point_step))
    }

    /// Copies the `N` bytes at `offset` of each point to `out`.
    fn copy<const N: usize>(&self, offset: usize, out: &mut [u8]) {
        let mut out = out.as_chunks_mut::<N>().0.iter_mut();
        self.points().for_each(|point| {
            if let Some(to) = out.next() {
                *to = bytes_of(point, offset);
            }
        });
    }

    /// Iterates over the times stored at byte `offset` of each point. `dtype` is float32, float64, int32 or uint32.
    fn numbers(&self, offset: usize, dtype: Dtype) -> impl Iterator<Item = Number> + Clone + use<'a> {
        self.points().map(move |point| match dtype {
            Dtype::Float32 => Number::Float(f32::from_le_bytes(bytes_of(point, offset)).into()),
            Dtype::Float64 => Number::Float(f64::from_le_bytes(bytes_of(point, offset))),
            Dtype::Int32 => Number::Whole(i32::from_le_bytes(bytes_of(point, offset)).into()),
            _ => Number::Whole(u32::from_le_bytes(bytes_of(point, offset)).into()),
        })
    }
}

fn bytes_of<const N: usize>(point: &[u8], offset: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&point[offset..offset + N]);
    value
}
