use super::{Values, check, columns};
use crate::selector::names::Others;
use crate::selector::path::{List, Path, bytes, integer, is_bytes, is_text, text};
use crate::selector::{SelectError, Wanted};
use crate::{Cells, Message};
use arrow_array::cast::AsArray;
use arrow_array::{Array, StructArray};
use arrow_schema::{DataType, FieldRef, Fields};
use robocache_device::Dtype;
use std::ops::Range;

/// A `sensor_msgs/PointCloud2`, or a `foxglove.PointCloud`: points of any fields, one after the other in bytes.
#[derive(Debug)]
pub(in crate::selector) struct PointCloud2 {
    words: &'static Words,
    /// `None`: the bytes are one row of points.
    grid: Option<Grid>,
    point_step: Path,
    data: Path,
    fields: Path,
    list: List,
    /// Where its `parts` stand in an element of `fields`.
    parts: Vec<usize>,
    wanted: Wanted,
    /// The fields of the last message, and what is taken of them.
    last: Vec<PointField>,
    taken: Vec<Taken>,
    /// The fields of all messages that are in no column, in words.
    left_out: Vec<String>,
    /// The columns of the first message, and the messages of others.
    first: Vec<String>,
    others: Others,
}

/// The rows of points of a `sensor_msgs/PointCloud2`.
#[derive(Debug)]
struct Grid {
    height: Path,
    width: Path,
    row_step: Path,
    is_bigendian: Path,
}

/// What a kind of cloud calls its parts.
#[derive(Debug)]
struct Words {
    point_step: &'static str,
    /// The name, offset and type of a field and, in ROS, how many values it has.
    parts: &'static [&'static str],
    /// The types of fields, from 1 on.
    datatypes: [Dtype; 8],
}

const ROS: Words = Words {
    point_step: "point_step",
    parts: &["name", "offset", "datatype", "count"],
    datatypes: DATATYPES,
};
const FOXGLOVE: Words = Words {
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

/// A field of a point.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PointField {
    name: String,
    offset: usize,
    datatype: usize,
    count: usize,
    dtype: Option<Dtype>,
}

/// A field that becomes a column.
#[derive(Debug)]
struct Taken {
    name: String,
    offset: usize,
    dtype: Dtype,
    values: Values,
}

/// The types of a `sensor_msgs/PointField`, from 1 on.
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
    /// The one of ROS whose fields are at the places `of`, which is empty or ends with a dot.
    pub fn ros(of: &str, fields: &Fields, wanted: &Wanted) -> Result<Self, SelectError> {
        Self::find(&ROS, of, fields, wanted)
    }

    /// The one of Foxglove.
    pub fn foxglove(fields: &Fields, wanted: &Wanted) -> Result<Self, SelectError> {
        Self::find(&FOXGLOVE, "", fields, wanted)
    }

    fn find(words: &'static Words, of: &str, fields: &Fields, wanted: &Wanted) -> Result<Self, SelectError> {
        let find = |name: &str, fits: &dyn Fn(&DataType) -> bool, allowed: &str| {
            let (path, field) = Path::find(&format!("{of}{name}"), fields)?;
            match fits(field.data_type()) {
                true => Ok((path, field)),
                false => Err(SelectError::value(path.text(), field.data_type(), allowed)),
            }
        };
        let whole = |name: &str| Ok(find(name, &DataType::is_integer, "an integer")?.0);
        let parts = |item: &FieldRef| parts(item, words.parts);
        let is_list = |data_type: &DataType| List::of(data_type).is_some_and(|(_, item)| parts(item).is_some());
        let allowed = format!(
            "a list of structs of a text `name` and integers {}",
            words.parts[1..]
                .iter()
                .map(|part| format!("`{part}`"))
                .collect::<Vec<_>>()
                .join(", ")
        );
        let (path, field) = find("fields", &is_list, &allowed)?;
        let Some((list, Some(parts))) = List::of(field.data_type()).map(|(list, item)| (list, parts(item))) else {
            unreachable!("it was looked at");
        };
        let grid = match words.parts.len() {
            4 => Some(Grid {
                height: whole("height")?,
                width: whole("width")?,
                row_step: whole("row_step")?,
                is_bigendian: find("is_bigendian", &|it| it == &DataType::Boolean, "a boolean")?.0,
            }),
            _ => None,
        };
        Ok(Self {
            words,
            grid,
            point_step: whole(words.point_step)?,
            data: find("data", &is_bytes, "a list of uint8, or binary")?.0,
            fields: path,
            list,
            parts,
            wanted: wanted.clone(),
            last: Vec::new(),
            taken: Vec::new(),
            left_out: Vec::new(),
            first: Vec::new(),
            others: Others::default(),
        })
    }

    /// Makes the payload of `message` a struct of a column for each field. `stamp_ns` is the stamp that the points' own
    /// absolute times belong to.
    pub fn read(&mut self, payload: &StructArray, stamp_ns: i64, message: &mut Message) -> Result<(), SelectError> {
        self.look(payload)?;
        let size = |path: &Path| -> Result<usize, SelectError> {
            let value = integer(path.follow(payload)?, 0).ok_or_else(|| path.is_null())?;
            let no_size = |_| SelectError::value(path.text(), value, "0 or more");
            Ok(u32::try_from(value).map_err(no_size)? as usize)
        };
        let data = bytes(self.data.follow(payload)?).ok_or_else(|| self.data.is_null())?;
        let point_step = size(&self.point_step)?;
        let (height, width, row_step) = match &self.grid {
            Some(grid) => {
                grid.check_order(payload)?;
                let (height, width) = (size(&grid.height)?, size(&grid.width)?);
                let row_step = size(&grid.row_step)?;
                if height > 1 && width > 0 && row_step < width * point_step {
                    let allowed = format!("at least {}, {width} points of {point_step} bytes", width * point_step);
                    return Err(SelectError::broken(grid.row_step.text(), row_step, allowed));
                }
                // Where there is one row, nobody needs to know where the next one is.
                let row_step = if height > 1 { row_step } else { width * point_step };
                (height, width, row_step)
            }
            None if data.is_empty() => (1, 0, 0),
            None if point_step == 0 || data.len() % point_step != 0 => {
                let allowed = format!("a multiple of `{}`, which is {point_step}", self.words.point_step);
                return Err(SelectError::broken(
                    self.data.text(),
                    format!("{} bytes", data.len()),
                    allowed,
                ));
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
            let allowed = format!("{needed}, {height} rows of {width} points of {point_step} bytes");
            return Err(SelectError::broken(
                self.data.text(),
                format!("{} bytes", data.len()),
                allowed,
            ));
        }
        self.note_others();
        message.header.forget_form();
        message.rows = points;
        let rows = Rows {
            data: &data[..needed],
            row_step,
            row_len: width * point_step,
            point_step,
        };
        for taken in &self.taken {
            let computed = taken.values != Values::AsTheyCome;
            let dtype = if computed { Dtype::Float64 } else { taken.dtype };
            let column = message.add_column(&taken.name, dtype, Cells::One);
            column.data.resize(points * dtype.size());
            if points == 0 {
                continue;
            }
            let out = column.data.bytes_mut();
            let at = taken.offset;
            match (taken.values, taken.dtype.size()) {
                (Values::AsTheyCome, 1) => rows.copy::<1>(at, out),
                (Values::AsTheyCome, 2) => rows.copy::<2>(at, out),
                (Values::AsTheyCome, 4) => rows.copy::<4>(at, out),
                (Values::AsTheyCome, _) => rows.copy::<8>(at, out),
                (Values::Seconds, _) => {
                    rows.convert::<4>(at, out, |time| Values::ns_after(f32::from_le_bytes(time).into(), 0))
                }
                (Values::Absolute, _) => {
                    rows.convert::<8>(at, out, |time| Values::ns_after(f64::from_le_bytes(time), stamp_ns))
                }
            }
        }
        Ok(())
    }

    fn check_step(&self, point_step: usize) -> Result<(), SelectError> {
        for taken in &self.taken {
            let end = taken.offset + taken.dtype.size();
            if end > point_step {
                let allowed = format!("at least {end}, where field `{}` ends", taken.name);
                return Err(SelectError::broken(self.point_step.text(), point_step, allowed));
            }
        }
        Ok(())
    }

    /// The fields of messages so far that are in no column, as they have several values or no type that is known.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    fn note_left_out(&mut self) {
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

    /// How many messages have other columns than the first, in words.
    pub fn others(&self) -> Option<String> {
        let first = self.first.join(", ");
        self.others
            .line(&format!("have other columns than the first ({first})"))
    }

    fn note_others(&mut self) {
        let names = || self.taken.iter().map(|taken| taken.name.as_str());
        if self.first.is_empty() {
            self.first = names().map(str::to_owned).collect();
        } else if !names().eq(self.first.iter().map(String::as_str)) {
            let first = &self.first;
            let is_new = |name: &&str| !first.iter().any(|first| first == name);
            self.others.add(names().filter(is_new));
        }
    }

    /// Finds out what the fields of a message are, and what is taken of them.
    fn look(&mut self, payload: &StructArray) -> Result<(), SelectError> {
        let array = self.fields.follow(payload)?;
        let (fields, range) = self.list.first_row(array).ok_or_else(|| self.fields.is_null())?;
        let fields = fields.as_struct();
        let mut is_last = range.len() == self.last.len();
        for (last, i) in self.last.iter().zip(range.clone()) {
            is_last &= self
                .field(fields, i, &range)
                .is_ok_and(|(name, numbers)| name == last.name && numbers == [last.offset, last.datatype, last.count]);
        }
        if is_last && !self.taken.is_empty() {
            return Ok(());
        }
        self.last.clear();
        self.taken.clear();
        for i in range.clone() {
            let (name, [offset, datatype, count]) = self.field(fields, i, &range)?;
            let name = name.to_owned();
            self.last.push(PointField {
                name,
                offset,
                datatype,
                count,
                dtype: datatype
                    .checked_sub(1)
                    .and_then(|at| self.words.datatypes.get(at))
                    .copied(),
            });
        }
        self.note_left_out();
        let taken = self.take();
        taken.inspect_err(|_| self.taken.clear())
    }

    /// The name of a field, its offset, type and count.
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
        let numbers = self.parts[1..].iter().zip(&self.words.parts[1..]);
        for (found, (&part, name)) in found.iter_mut().zip(numbers) {
            let value = integer(fields.column(part), i).ok_or_else(|| null(name))?;
            let no_size = |_| SelectError::value(place(name), value, "0 or more");
            *found = u32::try_from(value).map_err(no_size)? as usize;
        }
        Ok((name, found))
    }

    /// Says what is taken of the fields.
    fn take(&mut self) -> Result<(), SelectError> {
        // A field of several values, or of no type, is in the way only of whoever wants it.
        for (i, field) in self.last.iter().enumerate().filter(|(_, field)| !field.fits()) {
            if self.wanted.names().any(|name| name == field.name) {
                let place = |part: &str| format!("{}[{i}].{part}", self.fields.text());
                return Err(match field.dtype {
                    None => SelectError::value(
                        place(self.words.parts[2]),
                        field.datatype,
                        format!("1 to 8, as `{}` is needed", field.name),
                    ),
                    Some(_) => {
                        SelectError::value(place("count"), field.count, format!("1, as `{}` is needed", field.name))
                    }
                });
            }
        }
        let fields: Vec<&PointField> = self.last.iter().filter(|field| field.fits()).collect();
        let typed: Vec<(&str, Dtype)> = fields
            .iter()
            .filter_map(|field| Some((field.name.as_str(), field.dtype?)))
            .collect();
        for (i, name, values) in columns(&typed, &self.wanted) {
            self.taken.push(Taken {
                name,
                offset: fields[i].offset,
                dtype: typed[i].1,
                values,
            });
        }
        let taken: Vec<&str> = self.taken.iter().map(|taken| taken.name.as_str()).collect();
        check(
            self.fields.text(),
            self.last.iter().map(|field| field.name.as_str()),
            &taken,
            &self.wanted,
        )
    }
}

impl PointField {
    /// Whether it can be a column.
    fn fits(&self) -> bool {
        self.dtype.is_some() && self.count <= 1 && !self.name.is_empty()
    }
}

impl Grid {
    fn check_order(&self, payload: &StructArray) -> Result<(), SelectError> {
        let is_bigendian = self.is_bigendian.follow(payload)?;
        match is_bigendian.is_valid(0) && is_bigendian.as_boolean().value(0) {
            true => Err(SelectError::value(
                self.is_bigendian.text(),
                true,
                "false: little-endian numbers",
            )),
            false => Ok(()),
        }
    }
}

/// Where the parts of a field of a point stand in the elements of a list: a text, and integers.
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

/// Points in bytes, in rows that may have something after them. There is at least one point.
struct Rows<'a> {
    data: &'a [u8],
    row_step: usize,
    row_len: usize,
    point_step: usize,
}

impl Rows<'_> {
    /// The `N` bytes at `offset` of each point.
    fn values<const N: usize>(&self, offset: usize) -> impl Iterator<Item = [u8; N]> {
        let rows = self.data.chunks(self.row_step).map(|row| &row[..self.row_len]);
        let points = rows.flat_map(|row| row.chunks_exact(self.point_step));
        points.map(move |point| {
            let mut value = [0; N];
            value.copy_from_slice(&point[offset..offset + N]);
            value
        })
    }

    fn copy<const N: usize>(&self, offset: usize, out: &mut [u8]) {
        let (out, _) = out.as_chunks_mut::<N>();
        out.iter_mut()
            .zip(self.values::<N>(offset))
            .for_each(|(to, value)| *to = value);
    }

    fn convert<const N: usize>(&self, offset: usize, out: &mut [u8], ns: impl Fn([u8; N]) -> f64) {
        let out: &mut [f64] = bytemuck::cast_slice_mut(out);
        out.iter_mut()
            .zip(self.values(offset))
            .for_each(|(to, value)| *to = ns(value));
    }
}
