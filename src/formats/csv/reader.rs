use super::cells::{number, separator, split};
use super::{ARRIVAL, time};
use crate::device::Dtype;
use crate::formats::file_name;
use crate::stream::{Cells, Message, TimeUnit};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// A line has no more bytes: a file without line breaks is no table.
const MOST_LINE: u64 = 64 << 20;

/// How a table is to be read.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The name of the column of times. `None`: it is found by its name.
    pub time: Option<String>,
    /// The unit of the times. `None`: the name of the column or the size of the first time tells it.
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
        /// The line, from 1.
        line: u64,
        /// What came, and what is allowed.
        problem: String,
    },
}

/// Reads a table: a row is a message of float64 values, with the names of their columns as `fields`.
///
/// The first line has the names. Lines that begin with `#` behind it, and empty ones, are no rows. An empty cell is NaN. Times
/// are read digit by digit, so that none is rounded.
pub struct Reader {
    path: PathBuf,
    lines: Lines,
    separator: char,
    width: usize,
    time: usize,
    unit: TimeUnit,
    arrival: Option<usize>,
    streams: Vec<Stream>,
    /// The row whose streams are being given, and the next of these.
    row: Option<Row>,
    /// What is to be said.
    notes: Vec<String>,
    /// Whole numbers that float64 does not hold.
    rounded: u64,
}

struct Stream {
    name: String,
    fields: Vec<String>,
    columns: Vec<usize>,
}

struct Row {
    stamp_ns: i64,
    arrival_ns: Option<i64>,
    values: Vec<f64>,
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
        let mut lines = Lines::open(&path).map_err(io)?;
        let head = lines.next().map_err(io)?;
        let head = head.ok_or_else(|| refused("an empty file (allowed: a line of names)".into()))?;
        let head = head.trim_start_matches('\u{feff}').to_owned();
        let by = separator(&head);
        let names: Vec<String> = split(&head, by).into_iter().map(|name| name.into_owned()).collect();
        if names.iter().all(|name| name.parse::<f64>().is_ok()) {
            return Err(refused(
                "numbers in the first line (allowed: the names of the columns)".into(),
            ));
        }
        let at = match &options.time {
            Some(wanted) => names.iter().position(|name| name == wanted),
            None => time::column(&names),
        };
        let at = at.ok_or_else(|| {
            let wanted = options.time.as_deref().unwrap_or("timestamp, time, stamp, t, ...");
            refused(format!(
                "no column of times among {} (looked for: {wanted})",
                names.join(", ")
            ))
        })?;
        // The first row tells what is a number, and the size of times.
        let first = lines.next_row().map_err(io)?.map(str::to_owned);
        lines.again();
        let cells = first.as_deref().map(|line| split(line, by)).unwrap_or_default();
        let (unit, how) = match (options.unit, time::unit_of_name(&names[at])) {
            (Some(unit), _) => (unit, "as was said"),
            (None, Some(unit)) => (unit, "as its name says"),
            (None, None) => match cells.get(at).and_then(|cell| time::unit_of_size(cell)) {
                Some(unit) => (unit, "by the size of the first"),
                None => {
                    let came = cells.get(at).map_or("", |cell| cell);
                    let problem = format!(
                        "the unit of column `{}` is not known, its first time being `{came}`",
                        names[at]
                    );
                    return Err(refused(format!("{problem} (needed: the unit: s, ms, us or ns)")));
                }
            },
        };
        let mut notes = vec![format!(
            "{}: column `{}` is the time, in {} ({how})",
            path.display(),
            names[at],
            time::word(unit)
        )];
        let arrival = names
            .iter()
            .position(|name| name == ARRIVAL)
            .filter(|&arrival| arrival != at);
        let is_number = |column: &usize| cells.get(*column).is_none_or(|cell| number(cell).is_some());
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
        Ok(Self {
            streams: streams(&stem, &names, &values, options.by_prefix),
            lines,
            separator: by,
            width: names.len(),
            time: at,
            unit,
            arrival,
            row: None,
            notes,
            rounded: 0,
            path: path.clone(),
        })
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
        loop {
            if let Some(row) = &mut self.row
                && let Some(stream) = self.streams.get(row.next)
            {
                let at = row.next;
                row.next += 1;
                message.clear();
                message.header.timestamp_ns.set(row.stamp_ns);
                message.header.fields.set(&stream.fields);
                message.arrival_ns = row.arrival_ns;
                message.rows = stream.columns.len();
                let column = message.add_column("", Dtype::Float64, Cells::One);
                column.data.resize(stream.columns.len() * size_of::<f64>());
                let out: &mut [f64] = column.data.as_mut_slice();
                out.iter_mut()
                    .zip(&stream.columns)
                    .for_each(|(to, &from)| *to = row.values[from]);
                return Ok(Some(at));
            }
            self.row = None;
            if !self.next_row()? {
                return Ok(None);
            }
        }
    }

    /// What was guessed, and what was left out so far, a line for each.
    pub fn left_out(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        if self.rounded > 0 {
            let problem = "whole numbers have more digits than float64 holds, and were rounded";
            notes.push(format!("{}: {} {problem}", self.path.display(), self.rounded));
        }
        notes
    }

    fn next_row(&mut self) -> Result<bool, ReadError> {
        match self.lines.next_row() {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(false),
            Err(source) => {
                let path = self.path.clone();
                let line = self.lines.line;
                return Err(match source.kind() {
                    io::ErrorKind::InvalidData => ReadError::Row {
                        path,
                        line,
                        problem: source.to_string(),
                    },
                    _ => ReadError::Io { path, source },
                });
            }
        }
        let cells = split(&self.lines.last, self.separator);
        let refused = |problem: String| ReadError::Row {
            path: self.path.clone(),
            line: self.lines.line,
            problem,
        };
        if cells.len() != self.width {
            return Err(refused(format!(
                "{} cells (allowed: {}, as in the first line)",
                cells.len(),
                self.width
            )));
        }
        let time = |column: usize, unit| {
            let text = &cells[column];
            time::parse(text, unit).ok_or_else(|| refused(format!("`{text}` is no time in {}", time::word(unit))))
        };
        let stamp_ns = time(self.time, self.unit)?;
        let arrival_ns = self
            .arrival
            .map(|column| time(column, TimeUnit::Nanosecond))
            .transpose()?;
        let mut values = vec![f64::NAN; self.width];
        let mut rounded = 0;
        for &column in self.streams.iter().flat_map(|stream| &stream.columns) {
            let cell = &cells[column];
            let value =
                number(cell).ok_or_else(|| refused(format!("`{cell}` in column {} is no number", column + 1)))?;
            let is_kept = |whole: i64| i128::from(whole) == value as i128;
            rounded += u64::from(value.abs() > 9e15 && cell.parse().is_ok_and(|whole| !is_kept(whole)));
            values[column] = value;
        }
        self.rounded += rounded;
        self.row = Some(Row {
            stamp_ns,
            arrival_ns,
            values,
            next: 0,
        });
        Ok(true)
    }
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

/// The lines of a file.
struct Lines {
    file: BufReader<File>,
    /// The number of the last line, from 1.
    line: u64,
    text: Vec<u8>,
    /// That line in letters.
    last: String,
    /// Whether it is to come once more.
    is_again: bool,
}

impl Lines {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: BufReader::with_capacity(1 << 16, File::open(path)?),
            line: 0,
            text: Vec::new(),
            last: String::new(),
            is_again: false,
        })
    }

    /// # Errors
    /// `InvalidData`: a line that is too long. The next call goes on behind it.
    fn next(&mut self) -> io::Result<Option<&str>> {
        if std::mem::take(&mut self.is_again) {
            return Ok(Some(&self.last));
        }
        self.text.clear();
        if (&mut self.file).take(MOST_LINE).read_until(b'\n', &mut self.text)? == 0 {
            return Ok(None);
        }
        self.line += 1;
        if self.text.len() as u64 == MOST_LINE && !self.text.ends_with(b"\n") {
            self.text = Vec::new();
            self.file.skip_until(b'\n')?;
            let problem = format!("a line of more than {MOST_LINE} bytes (allowed: {MOST_LINE})");
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        self.last.clear();
        self.last
            .push_str(String::from_utf8_lossy(&self.text).trim_end_matches(['\r', '\n']));
        Ok(Some(&self.last))
    }

    /// The next line that is a row.
    fn next_row(&mut self) -> io::Result<Option<&str>> {
        loop {
            match self.next()? {
                None => return Ok(None),
                Some(line) if line.is_empty() || line.starts_with('#') => {}
                Some(_) => return Ok(Some(&self.last)),
            }
        }
    }

    /// Gives the last line once more, if there was one.
    fn again(&mut self) {
        self.is_again = !self.last.is_empty() && self.line > 1;
    }
}
