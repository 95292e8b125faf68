use super::cells::{is_missing, number, separator};
use super::rows::{Place, RowError, Rows};
use super::{ARRIVAL, time};
use crate::file_name;
use robocache_device::Dtype;
use robocache_stream::{Cells, Message, TimeUnit};
use std::io;
use std::path::{Path, PathBuf};

/// So many rows are looked at to find out which columns hold text, and what the times are.
const LOOKED_AT: usize = 1000;

/// How a table is to be read.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The name of the column of times. `None`: it is found by its name.
    pub time: Option<String>,
    /// The unit of times that are numbers. `None`: the name of the column or the size of the first time tells it.
    pub unit: Option<TimeUnit>,
    /// Columns whose names have the same beginning, up to the last `.` or `/`, are a stream.
    pub by_prefix: bool,
}

/// A table can't be read, or a row of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file can't be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is no table with a time.
    #[error("{}: {problem}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// What came, and what is allowed.
        problem: String,
    },
    /// A row is left out.
    #[error("{}:{line}: {problem}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The line in which the row begins, from 1.
        line: u64,
        /// The column, what came, and what is allowed.
        problem: String,
    },
}

/// Reads a table: a row is a message of float64 values, with the names of their columns as `fields`.
///
/// The first line has the names. Lines that begin with `#`, and empty ones, are no rows; where numbers follow such lines at
/// once, the last of them has the names. What is missing is NaN. Times are read digit by digit, so that none is rounded.
pub struct Reader {
    path: PathBuf,
    rows: Rows,
    names: Vec<String>,
    time: usize,
    times: Times,
    arrival: Option<usize>,
    streams: Vec<Stream>,
    /// The row whose streams are being given, and the next of these.
    row: Row,
    /// What is to be said.
    notes: Vec<String>,
    counts: Counts,
}

/// How times are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    Number(TimeUnit),
    /// As ISO 8601 has it.
    Iso,
}

#[derive(Default)]
struct Counts {
    rows: u64,
    /// Rows that can't be read.
    refused: u64,
    /// Whole numbers that float64 does not hold.
    rounded: u64,
    /// Times without a zone.
    zoneless: u64,
}

struct Stream {
    name: String,
    fields: Vec<String>,
    columns: Vec<usize>,
}

#[derive(Default)]
struct Row {
    stamp_ns: i64,
    arrival_ns: Option<i64>,
    values: Vec<f64>,
    /// The stream that is given next; past the last one there is no row.
    next: usize,
}

impl Reader {
    /// Opens a file.
    ///
    /// # Errors
    /// If it can't be read, or is no table with a column of times whose unit is known.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self, ReadError> {
        let path = path.as_ref().to_owned();
        let io = |source| ReadError::Io {
            path: path.clone(),
            source,
        };
        let refused = |problem: String| ReadError::Table {
            path: path.clone(),
            problem,
        };
        let mut rows = Rows::open(&path).map_err(io)?;
        let names = head(&mut rows).map_err(|error| match error {
            RowError::Io(source) => io(source),
            RowError::Row(problem) => refused(problem),
        })?;
        let begin = rows.place();
        let is_named = |name: &str, wanted: &str| name == wanted || time::plain(name) == wanted;
        let at = match &options.time {
            Some(wanted) => names.iter().position(|name| is_named(name, wanted)),
            None => time::column(&names),
        };
        let at = at.ok_or_else(|| {
            let wanted = options.time.as_deref().unwrap_or("timestamp, time, stamp, t, ...");
            refused(format!(
                "no column of times among {} (looked for: {wanted})",
                names.join(", ")
            ))
        })?;
        let first = first_values(&mut rows, names.len()).map_err(io)?;
        rows.go_to(begin).map_err(io)?;
        let first_time = first[at].as_deref().unwrap_or("");
        let (times, how) = times(&names[at], first_time, options.unit).map_err(refused)?;
        let mut notes = vec![format!("{}: column `{}` is the time, {how}", path.display(), names[at])];
        let arrival = names
            .iter()
            .position(|name| name == ARRIVAL)
            .filter(|&arrival| arrival != at);
        let is_number = |column: &usize| first[*column].as_deref().is_none_or(|cell| number(cell).is_some());
        let all = (0..names.len()).filter(|&column| column != at && Some(column) != arrival);
        let (values, texts): (Vec<usize>, Vec<usize>) = all.partition(is_number);
        if !texts.is_empty() {
            let texts: Vec<String> = texts.iter().map(|&column| format!("`{}`", names[column])).collect();
            notes.push(format!(
                "{}: left out, as they hold text: {}",
                path.display(),
                texts.join(", ")
            ));
        }
        if values.is_empty() {
            return Err(refused(
                "no column of numbers beside the time (allowed: one or more)".into(),
            ));
        }
        let stem = path
            .file_stem()
            .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        let streams = streams(&stem, &names, &values, options.by_prefix);
        Ok(Self {
            row: Row {
                next: streams.len(),
                ..Row::default()
            },
            streams,
            rows,
            names,
            time: at,
            times,
            arrival,
            notes,
            counts: Counts::default(),
            path: path.clone(),
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of the streams that its columns are.
    pub fn streams(&self) -> impl Iterator<Item = &str> {
        self.streams.iter().map(|stream| stream.name.as_str())
    }

    /// The name of a stream that a message came of.
    pub fn stream(&self, index: usize) -> &str {
        &self.streams[index].name
    }

    /// Makes `message` the next one. Returns the index of its [`stream`](Self::stream); `None` at the end.
    ///
    /// # Errors
    /// A row that can't be read. The next call goes on behind it.
    pub fn next_into(&mut self, message: &mut Message) -> Result<Option<usize>, ReadError> {
        if self.row.next >= self.streams.len() && !self.next_row()? {
            return Ok(None);
        }
        let at = self.row.next;
        self.row.next += 1;
        let stream = &self.streams[at];
        message.clear();
        message.header.timestamp_ns.set(self.row.stamp_ns);
        message.header.fields.set(&stream.fields);
        message.arrival_ns = self.row.arrival_ns;
        message.rows = stream.columns.len();
        let column = message.add_column("", Dtype::Float64, Cells::One);
        column.data.resize(stream.columns.len() * size_of::<f64>());
        let out: &mut [f64] = column.data.as_mut_slice();
        let values = &self.row.values;
        out.iter_mut()
            .zip(&stream.columns)
            .for_each(|(to, &from)| *to = values[from]);
        Ok(Some(at))
    }

    /// What was guessed, and what was left out so far, a line for each.
    pub fn left_out(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        let path = self.path.display();
        if self.counts.zoneless > 0 {
            let problem = "times that say no zone, and are taken for UTC";
            notes.push(format!("{path}: {problem}: {}", self.counts.zoneless));
        }
        if self.counts.rounded > 0 {
            let problem = "whole numbers that have more digits than float64 holds, and were rounded";
            notes.push(format!("{path}: {problem}: {}", self.counts.rounded));
        }
        notes
    }

    /// How many rows can't be read so far, in words. `None`: there are none.
    pub fn broken(&self) -> Option<String> {
        let Counts { rows, refused, .. } = self.counts;
        let words = format!("{}: of {rows} rows {refused} can't be read", self.path.display());
        (refused > 0).then_some(words)
    }

    fn next_row(&mut self) -> Result<bool, ReadError> {
        let read = match self.rows.next(Some(self.names.len())) {
            Ok(false) => return Ok(false),
            Ok(true) => self.take_row(),
            Err(RowError::Row(problem)) => Err(problem),
            Err(RowError::Io(source)) => {
                let path = self.path.clone();
                return Err(ReadError::Io { path, source });
            }
        };
        self.counts.rows += 1;
        self.counts.refused += u64::from(read.is_err());
        let refused = |problem| ReadError::Row {
            path: self.path.clone(),
            line: self.rows.begins.line,
            problem,
        };
        read.map(|()| true).map_err(refused)
    }

    /// Takes the values of the row that was read.
    fn take_row(&mut self) -> Result<(), String> {
        let (width, came) = (self.names.len(), self.rows.width());
        let is_more = (width..came).any(|at| !self.rows.cell(at).is_empty());
        if came < width || is_more {
            return Err(format!("{came} cells (allowed: {width}, as in the line of names)"));
        }
        let mut zoneless = 0;
        let mut time = |column: usize, times| {
            let cell = self.rows.cell(column);
            let iso = time::iso(&cell);
            let (ns, allowed) = match times {
                Times::Number(unit) => (time::parse(&cell, unit), time::word(unit)),
                Times::Iso => (None, "ISO 8601"),
            };
            zoneless += u64::from(ns.is_none() && iso.is_some_and(|(_, has_zone)| !has_zone));
            ns.or(iso.map(|(ns, _)| ns))
                .ok_or_else(|| format!("column `{}`: `{cell}` is no time in {allowed}", self.names[column]))
        };
        self.row.stamp_ns = time(self.time, self.times)?;
        let nanoseconds = Times::Number(TimeUnit::Nanosecond);
        self.row.arrival_ns = self.arrival.map(|column| time(column, nanoseconds)).transpose()?;
        self.row.values.clear();
        self.row.values.resize(width, f64::NAN);
        let mut rounded = 0;
        for &column in self.streams.iter().flat_map(|stream| &stream.columns) {
            let cell = self.rows.cell(column);
            let refused = || format!("column `{}`: `{cell}` is no number", self.names[column]);
            let value = number(&cell).ok_or_else(refused)?;
            let is_kept = |whole: i128| whole == value as i128;
            rounded += u64::from(value.abs() > 9e15 && cell.parse().is_ok_and(|whole| !is_kept(whole)));
            self.row.values[column] = value;
        }
        self.counts.rounded += rounded;
        self.counts.zoneless += zoneless;
        self.row.next = 0;
        Ok(())
    }
}

/// Reads the names of the columns, and goes to the first row.
fn head(rows: &mut Rows) -> Result<Vec<String>, RowError> {
    let refused = |problem: &str| Err(RowError::Row(problem.to_owned()));
    let mut remark: Option<Place> = None;
    loop {
        rows.skip_empty()?;
        if rows.peek()? != Some(b'#') {
            break;
        }
        remark = Some(rows.place());
        rows.line()?;
    }
    let begin = rows.place();
    let first = names(rows, begin)?;
    let behind = rows.place();
    let is_value = |cell: &String| !is_missing(cell) && (number(cell).is_some() || time::iso(cell).is_some());
    if let Some(remark) = remark
        && (first.is_empty() || first.iter().any(is_value))
    {
        let named = names(rows, remark)?;
        let filled = first
            .iter()
            .rposition(|cell| !cell.is_empty())
            .map_or(0, |last| last + 1);
        let fits = first.is_empty() || (filled..=first.len()).contains(&named.len());
        if fits && !named.iter().any(is_value) {
            rows.go_to(begin)?;
            return Ok(named);
        }
    }
    match first.iter().rposition(|name| !name.is_empty()) {
        None if first.is_empty() => refused("an empty file (allowed: a line of names)"),
        None => refused("no name in the first line (allowed: the names of the columns)"),
        Some(_) if first.iter().filter(|name| !name.is_empty()).all(is_value) => {
            refused("numbers in the first line (allowed: the names of the columns)")
        }
        // Where each line ends with a separator, there is no column behind it.
        Some(last) => {
            rows.go_to(behind)?;
            Ok(first[..=last].to_vec())
        }
    }
}

/// The cells of the row at a place, which may be a remark.
fn names(rows: &mut Rows, at: Place) -> Result<Vec<String>, RowError> {
    rows.go_to(at)?;
    let line = rows.line()?.unwrap_or_default();
    rows.separate_by(separator(&line));
    rows.go_to(at)?;
    rows.read_any()?;
    Ok(rows.cells().map(|cell| cell.into_owned()).collect())
}

/// Of each column the first cell in which something stands, of the first rows.
fn first_values(rows: &mut Rows, width: usize) -> io::Result<Vec<Option<String>>> {
    let mut found = vec![None; width];
    for _ in 0..LOOKED_AT {
        match rows.next(Some(width)) {
            Ok(false) => break,
            Ok(true) if rows.width() < width => {}
            Ok(true) => {
                for (at, found) in found.iter_mut().enumerate().filter(|(_, found)| found.is_none()) {
                    let cell = rows.cell(at);
                    if !is_missing(&cell) {
                        *found = Some(cell.into_owned());
                    }
                }
            }
            Err(RowError::Row(_)) => {}
            Err(RowError::Io(error)) => return Err(error),
        }
        if found.iter().all(Option::is_some) {
            break;
        }
    }
    Ok(found)
}

/// How times are written, and how that is known.
fn times(name: &str, first: &str, unit: Option<TimeUnit>) -> Result<(Times, String), String> {
    if time::iso(first).is_some() {
        return Ok((Times::Iso, "in ISO 8601".to_owned()));
    }
    let (unit, how) = match (unit, time::unit_of_name(name), time::unit_of_size(first)) {
        (Some(unit), ..) => (unit, "as was said"),
        (None, Some(unit), _) => (unit, "as its name says"),
        (None, None, Some(unit)) => (unit, "by the size of the first"),
        (None, None, None) => {
            return Err(format!(
                "the unit of column `{name}` is not known, its first time being `{first}` (needed: the unit: s, ms, us or ns)"
            ));
        }
    };
    Ok((Times::Number(unit), format!("in {} ({how})", time::word(unit))))
}

/// The streams of these columns.
fn streams(stem: &str, names: &[String], values: &[usize], by_prefix: bool) -> Vec<Stream> {
    let mut streams: Vec<Stream> = Vec::new();
    for &column in values {
        let (name, field) = match names[column].rsplit_once(['.', '/']).filter(|_| by_prefix) {
            Some((prefix, field)) if !prefix.is_empty() => (file_name(prefix), field),
            _ => (file_name(stem), names[column].as_str()),
        };
        let at = streams
            .iter()
            .position(|stream| stream.name == name)
            .unwrap_or_else(|| {
                streams.push(Stream {
                    name,
                    fields: Vec::new(),
                    columns: Vec::new(),
                });
                streams.len() - 1
            });
        streams[at].fields.push(field.to_owned());
        streams[at].columns.push(column);
    }
    streams
}
