//! Reader of a CSV table, row by row. `Reader::left_out` lists what was guessed, such as the unit of the timestamps. A row that
//! can't be parsed is an error, and the next call of `Reader::next_into` continues with the row after it.

use super::cells::{is_missing, number, separator};
use super::rows::{Place, RowError, Rows};
use super::{ARRIVAL, time};
use crate::{Error, file_name};
use robocache_device::Dtype;
use robocache_stream::{Cells, Message, TimeUnit};
use std::io;
use std::path::{Path, PathBuf};

/// Number of rows that are read in advance, to tell text columns from number columns and to find the unit of the timestamps.
const ROWS_AHEAD: usize = 1000;

/// Options for reading a CSV table: the timestamp column, its unit, and the division of columns into streams.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Name of the timestamp column. If `None`, a column with a usual name, such as `timestamp`, is found.
    pub time: Option<String>,
    /// Unit of timestamps that are numbers. If `None`, the unit follows from the column's name, such as `time_ms`, or from the
    /// number of digits of the first timestamp.
    pub unit: Option<TimeUnit>,
    /// True to make a stream from each group of columns with the same prefix: `arm.x` and `arm.y`, or `arm/x` and `arm/y`,
    /// become the stream `arm`. False to make one stream from all columns.
    pub by_prefix: bool,
}

/// Reader of a CSV table. Each row becomes one message of float64 values in each stream. The metadata key `fields` of the
/// message lists the names of the stream's columns.
///
/// The first line has the names of the columns. Empty lines and lines that begin with `#` are skipped. If the table begins with
/// `#` lines and then numbers, the last `#` line has the names. Missing values are NaN. Timestamps are parsed digit by digit,
/// so that none is rounded.
pub struct Reader {
    path: PathBuf,
    rows: Rows,
    names: Vec<String>,
    time: usize,
    /// Unit of the timestamps in the table; `None` if they are ISO 8601 strings.
    unit: Option<TimeUnit>,
    /// True if the unit was guessed from the number of digits of the first timestamp.
    is_by_size: bool,
    arrival: Option<usize>,
    streams: Vec<StreamColumns>,
    /// Parsed values of the current row, and the index of the stream that gets its next message.
    row: Row,
    /// Lines for the user about guesses and columns that are left out.
    notes: Vec<String>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    rows: u64,
    /// Number of rows that could not be parsed so far.
    refused: u64,
    /// Number of integers so far that were rounded because float64 can't hold them.
    rounded: u64,
    /// Number of timestamps so far without a time zone, which count as UTC.
    zoneless: u64,
}

#[derive(Default)]
struct StreamColumns {
    name: String,
    fields: Vec<String>,
    columns: Vec<usize>,
}

#[derive(Default)]
struct Row {
    stamp_ns: i64,
    arrival_ns: Option<i64>,
    values: Vec<f64>,
    /// Index of the stream that gets the next message from this row. If it is past the last stream, the next row is read first.
    next: usize,
}

impl Reader {
    /// Opens a table, reads the names of its columns, and finds the unit of its timestamps.
    ///
    /// # Errors
    /// If the file can't be read, or is not a table with a timestamp column whose unit is known.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        let io = |source| Error::io(&path, source);
        let refused = |problem: String| Error::file(&path, problem);
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
            let (names, wanted) = (names.join(", "), options.time.as_deref());
            let wanted = wanted.unwrap_or("timestamp, time, stamp, t, ...");
            refused(format!(
                "no column of times among {names} (looked for: {wanted}; another one as by `--time NAME`)"
            ))
        })?;
        let (first, times) = first_cells(&mut rows, names.len(), at).map_err(io)?;
        rows.go_to(begin).map_err(io)?;
        let (unit, how) = unit_of(&names[at], &times, options.unit).map_err(refused)?;
        let is_by_size = unit.is_some() && options.unit.or_else(|| time::unit_of_name(&names[at])).is_none();
        let mut notes = vec![format!("{}: column `{}` is the time, {how}", path.display(), names[at])];
        let arrival = names.iter().position(|name| name == ARRIVAL);
        let arrival = arrival.filter(|&arrival| arrival != at);
        let is_number = |column: &usize| first[*column].as_deref().is_none_or(|cell| number(cell).is_some());
        let all = (0..names.len()).filter(|&column| column != at && Some(column) != arrival);
        let (values, texts): (Vec<usize>, Vec<usize>) = all.partition(is_number);
        if !texts.is_empty() {
            let texts: Vec<String> = texts.iter().map(|&column| format!("`{}`", names[column])).collect();
            let (path, texts) = (path.display(), texts.join(", "));
            notes.push(format!("{path}: left out, as they hold text: {texts}"));
        }
        if values.is_empty() {
            let problem = "no column of numbers beside the time (allowed: one or more)";
            return Err(refused(problem.to_owned()));
        }
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
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
            unit,
            is_by_size,
            arrival,
            notes,
            counts: Counts::default(),
            path: path.clone(),
        })
    }

    /// Path of the table's file, as given to [`open`](Self::open).
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of the streams made from the table's columns, in the order of the indices that
    /// [`next_into`](Self::next_into) returns.
    pub fn streams(&self) -> impl Iterator<Item = &str> {
        self.streams.iter().map(|stream| stream.name.as_str())
    }

    /// Name of the stream with this index, which [`next_into`](Self::next_into) returns.
    pub fn stream(&self, index: usize) -> &str {
        &self.streams[index].name
    }

    /// Reads the next message into `message`. Returns the index of its [`stream`](Self::stream); `None` at the end of
    /// the table.
    ///
    /// # Errors
    /// If a row can't be parsed. The next call continues with the row after it.
    pub fn next_into(&mut self, message: &mut Message) -> Result<Option<usize>, Error> {
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
        for (to, &from) in out.iter_mut().zip(&stream.columns) {
            *to = self.row.values[from];
        }
        Ok(Some(at))
    }

    /// Lists guesses, columns that are not read, and the numbers of rounded values and of timestamps without a time zone so
    /// far. Each is a line for the user.
    pub fn left_out(&self) -> Vec<String> {
        let zoneless = "times without a zone, taken for UTC";
        let rounded = "whole numbers that have more digits than float64 holds, and were rounded";
        let counts = [(zoneless, self.counts.zoneless), (rounded, self.counts.rounded)].into_iter();
        let counts = counts.filter(|(_, count)| *count > 0);
        let counts = counts.map(|(what, count)| format!("{}: {what}: {count}", self.path.display()));
        self.notes.iter().cloned().chain(counts).collect()
    }

    /// Returns a line for the user with the number of rows that could not be parsed so far; `None` if there are none.
    pub fn broken(&self) -> Option<String> {
        let Counts { rows, refused, .. } = self.counts;
        let words = format!("{}: of {rows} rows {refused} can't be read", self.path.display());
        (refused > 0).then_some(words)
    }

    fn next_row(&mut self) -> Result<bool, Error> {
        let read = match self.rows.next(Some(self.names.len())) {
            Ok(false) => return Ok(false),
            Ok(true) => self.take_row(),
            Err(RowError::Row(problem)) => Err(problem),
            Err(RowError::Io(source)) => return Err(Error::io(&self.path, source)),
        };
        self.counts.rows += 1;
        self.counts.refused += u64::from(read.is_err());
        let refused = |problem| Error::Row {
            path: self.path.clone(),
            line: self.rows.begins.line,
            problem,
        };
        read.map(|()| true).map_err(refused)
    }

    /// Parses the cells of the current row into `self.row`: the timestamp, the arrival time and the values.
    fn take_row(&mut self) -> Result<(), String> {
        let (width, came) = (self.names.len(), self.rows.width());
        let is_more = (width..came).any(|at| !self.rows.cell(at).is_empty());
        if came < width || is_more {
            return Err(format!("{came} cells (allowed: {width}, as in the line of names)"));
        }
        let mut zoneless = 0;
        let mut time = |column: usize, unit: Option<TimeUnit>, is_by_size: bool| {
            let cell = self.rows.cell(column);
            if let Some((unit, ns)) = unit.and_then(|unit| Some((unit, time::parse(&cell, unit)?))) {
                return match time::unit_of_size(&cell).filter(|_| is_by_size) {
                    Some(own) if own != unit => Err(format!(
                        "column `{}`: by its size, `{cell}` is in {} (allowed: {}, as the first time)",
                        self.names[column],
                        own.name(),
                        unit.name()
                    )),
                    _ => Ok(ns),
                };
            }
            let Some((ns, has_zone)) = time::iso(&cell) else {
                let (name, allowed) = (&self.names[column], unit.map_or("ISO 8601", TimeUnit::name));
                return Err(format!("column `{name}`: `{cell}` is not a time in {allowed}"));
            };
            zoneless += u64::from(!has_zone);
            Ok(ns)
        };
        self.row.stamp_ns = time(self.time, self.unit, self.is_by_size)?;
        let arrival = self
            .arrival
            .map(|column| time(column, Some(TimeUnit::Nanosecond), false));
        self.row.arrival_ns = arrival.transpose()?;
        self.row.values.clear();
        self.row.values.resize(width, f64::NAN);
        let mut rounded = 0;
        for &column in self.streams.iter().flat_map(|stream| &stream.columns) {
            let cell = self.rows.cell(column);
            let refused = || format!("column `{}`: `{cell}` is not a number", self.names[column]);
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

/// Reads the names of the columns, and seeks to the first row of values.
fn head(rows: &mut Rows) -> Result<Vec<String>, RowError> {
    let refused = |problem: &str| Err(RowError::Row(problem.to_owned()));
    let in_utf8 = |names: &[String], is_utf8: bool| match is_utf8 {
        true => Ok(names.to_vec()),
        false => refused_names(names),
    };
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
    let (behind, is_utf8) = (rows.place(), rows.is_utf8());
    let is_value = |cell: &String| !is_missing(cell) && (number(cell).is_some() || time::iso(cell).is_some());
    if let Some(remark) = remark
        && (first.is_empty() || first.iter().any(is_value))
    {
        let named = names(rows, remark)?;
        let filled = first.iter().rposition(|cell| !cell.is_empty());
        let filled = filled.map_or(0, |last| last + 1);
        let fits = first.is_empty() || (filled..=first.len()).contains(&named.len());
        if fits && !named.iter().any(is_value) {
            let is_utf8 = rows.is_utf8();
            rows.go_to(begin)?;
            return in_utf8(&named, is_utf8);
        }
    }
    match first.iter().rposition(|name| !name.is_empty()) {
        None if first.is_empty() => refused("an empty file (allowed: a line of names)"),
        None => refused("no name in the first line (allowed: the names of the columns)"),
        Some(_) if first.iter().filter(|name| !name.is_empty()).all(is_value) => {
            refused("numbers in the first line (allowed: the names of the columns)")
        }
        // A separator at the end of each line begins no column.
        Some(last) => {
            rows.go_to(behind)?;
            in_utf8(&first[..=last], is_utf8)
        }
    }
}

/// Returns the error for column names that are not UTF-8. With replacement characters, two different names could become equal.
fn refused_names(names: &[String]) -> Result<Vec<String>, RowError> {
    let lost = |name: &&String| name.contains(char::REPLACEMENT_CHARACTER);
    let name = names.iter().find(lost).map_or("", String::as_str);
    Err(RowError::Row(format!(
        "the names of the columns are not UTF-8: `{name}` (allowed: UTF-8; for Latin-1: iconv -f latin1 -t utf8)"
    )))
}

/// Reads the column names from the line at position `at`, even if it begins with `#`. The most frequent separator of this line
/// is used for the rest of the table.
fn names(rows: &mut Rows, at: Place) -> Result<Vec<String>, RowError> {
    rows.go_to(at)?;
    let line = rows.line()?.unwrap_or_default();
    rows.separate_by(separator(&line));
    rows.go_to(at)?;
    rows.read_any()?;
    Ok(rows.cells().map(|cell| cell.into_owned()).collect())
}

/// Reads up to `ROWS_AHEAD` rows. Returns the first cell of each column that is not a missing value (`None` if all are
/// missing). Also returns all cells of the column with index `time` that are not missing.
fn first_cells(rows: &mut Rows, width: usize, time: usize) -> io::Result<(Vec<Option<String>>, Vec<String>)> {
    let (mut first, mut times) = (vec![None; width], Vec::new());
    for _ in 0..ROWS_AHEAD {
        match rows.next(Some(width)) {
            Ok(false) => break,
            Ok(true) if rows.width() < width => {}
            Ok(true) => {
                for (at, first) in first.iter_mut().enumerate().filter(|(_, first)| first.is_none()) {
                    let cell = rows.cell(at);
                    *first = (!is_missing(&cell)).then(|| cell.into_owned());
                }
                let cell = rows.cell(time);
                if !is_missing(&cell) {
                    times.push(cell.into_owned());
                }
            }
            Err(RowError::Row(_)) => {}
            Err(RowError::Io(error)) => return Err(error),
        }
    }
    Ok((first, times))
}

/// Chooses the unit of the timestamps in the column `name`: `unit` if given, else the unit in the column's name, else a guess
/// from the first timestamp. It is `None` for ISO 8601. Also returns a phrase for the user on how the unit was chosen.
fn unit_of(name: &str, times: &[String], unit: Option<TimeUnit>) -> Result<(Option<TimeUnit>, String), String> {
    let first = times.first().map_or("", String::as_str);
    if time::iso(first).is_some() {
        return Ok((None, "in ISO 8601".to_owned()));
    }
    let said = unit.map(|unit| (unit, "as given"));
    let said = said.or_else(|| Some((time::unit_of_name(name)?, "as its name says")));
    let known = |(unit, how): (TimeUnit, &str)| (Some(unit), format!("in {} ({how})", unit.name()));
    let unknown = |why: &str| {
        format!(
            "the unit of column `{name}` is not known: its first time is `{first}`{why} (needed: the unit, as by `--unit us`: s, ms, us or ns)"
        )
    };
    match (said, time::unit_of_size(first)) {
        (Some(said), _) => Ok(known(said)),
        (None, None) => Err(unknown("")),
        (None, Some(unit)) => match time::doubt(times, unit) {
            None => Ok(known((unit, "by the size of the first"))),
            Some(why) => Err(unknown(&format!(": {why}"))),
        },
    }
}

/// Groups the columns with the indices `values` into streams. If `by_prefix`, columns with the same name up to the last `.` or
/// `/` make a stream. All other columns make the stream `stem`.
fn streams(stem: &str, names: &[String], values: &[usize], by_prefix: bool) -> Vec<StreamColumns> {
    let mut streams: Vec<StreamColumns> = Vec::new();
    for &column in values {
        let (name, field) = match names[column].rsplit_once(['.', '/']).filter(|_| by_prefix) {
            Some((prefix, field)) if !prefix.is_empty() => (file_name(prefix), field),
            _ => (file_name(stem), names[column].as_str()),
        };
        let known = streams.iter().position(|stream| stream.name == name);
        let at = known.unwrap_or(streams.len());
        if known.is_none() {
            streams.push(StreamColumns {
                name,
                ..StreamColumns::default()
            });
        }
        streams[at].fields.push(field.to_owned());
        streams[at].columns.push(column);
    }
    streams
}
