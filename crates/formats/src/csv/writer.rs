//! Writer of streams as CSV tables, a file for each stream. Floats are written with enough digits to read the same bits back.

use super::{ARRIVAL, TIMESTAMP};
use crate::Error;
use crate::parts::{ColumnSpec, list_columns, parts_of};
use robocache_stream::{Cells, Message};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writer of streams as CSV tables into a folder: a file `<stream>.csv` for each stream.
///
/// A row of a table is one sample, or one row of a StructArray. The first column is `timestamp_ns`. The second is `arrival_ns`,
/// if the stream's first message has an arrival time. The other columns are named by the metadata key `fields`, else by the
/// message's columns, else `0`, `1` and so on.
///
/// A row for which the mask `valid` is 0 has empty cells. Floats have enough digits to read the same bits back.
pub struct Writer {
    /// Path of the folder of tables; path of the table itself if `is_file`.
    path: PathBuf,
    is_file: bool,
    tables: Vec<Table>,
    line: String,
}

struct Table {
    name: String,
    path: PathBuf,
    file: BufWriter<File>,
    has_arrivals: bool,
    /// Columns of the payload of the stream's messages; empty for a flat array.
    columns: Vec<ColumnSpec>,
    /// Number of values in a row of the table.
    width: usize,
}

impl Writer {
    /// Makes a writer of tables into `folder`, which is created if it does not exist.
    ///
    /// # Errors
    /// If the folder can't be created.
    pub fn create(folder: impl AsRef<Path>) -> Result<Self, Error> {
        let folder = folder.as_ref().to_owned();
        fs::create_dir_all(&folder).map_err(|source| Error::io(&folder, source))?;
        Ok(Self {
            is_file: false,
            ..Self::of_file(folder)
        })
    }

    /// Makes a writer of one stream to the table at the path `file`. The file is created with the first message.
    pub fn of_file(file: impl AsRef<Path>) -> Self {
        Self {
            path: file.as_ref().to_owned(),
            is_file: true,
            tables: Vec::new(),
            line: String::new(),
        }
    }

    /// Adds the rows of a message to the table of `stream`.
    ///
    /// # Errors
    /// If the message has other columns than the stream's first message, or lacks an arrival time that the first one has: it is
    /// not written, and the writer remains usable. If a file exists already, or can't be written.
    pub fn append(&mut self, stream: &str, message: &Message) -> Result<(), Error> {
        let refused = |problem: String| Error::message(stream, problem);
        let (columns, width) = form(message).map_err(refused)?;
        let at = match self.tables.iter().position(|known| known.name == stream) {
            Some(at) => at,
            None => {
                let path = match self.is_file {
                    true => self.path.clone(),
                    false => self.path.join(file_name(stream)?),
                };
                let new = Table::create(path, stream, message, columns.clone(), width)?;
                self.tables.push(new);
                self.tables.len() - 1
            }
        };
        let known = &mut self.tables[at];
        if (&known.columns, known.width) != (&columns, width) {
            let words = |columns: &[ColumnSpec], width: usize| match columns.is_empty() {
                true => format!("{width} values"),
                false => list_columns(columns),
            };
            let (came, first) = (words(&columns, width), words(&known.columns, known.width));
            return Err(refused(format!(
                "a row of {came}, and the first has {first} (allowed: the same)"
            )));
        }
        let arrival_ns = match (known.has_arrivals, message.arrival_ns) {
            (true, None) => {
                return Err(refused(
                    "no `arrival_ns` (needed: one in every message, as in the first)".into(),
                ));
            }
            (has_arrivals, arrival_ns) => arrival_ns.filter(|_| has_arrivals),
        };
        let header = &message.header;
        let rows = rows(message, width);
        self.line.clear();
        for row in 0..rows {
            let stamp_ns = match header.timestamps_ns.get() {
                Some(stamps) if columns.is_empty() && stamps.len() == rows => stamps[row],
                _ => message.timestamp_ns(),
            };
            let _ = write!(self.line, "{stamp_ns}");
            if let Some(arrival_ns) = arrival_ns {
                let _ = write!(self.line, ",{arrival_ns}");
            }
            let masks = header.valid.get().filter(|masks| masks.len() == rows);
            let is_valid = !columns.is_empty() || masks.is_none_or(|masks| masks[row] != 0);
            for column in message.columns() {
                let each = column.values().len() / rows;
                for i in row * each..(row + 1) * each {
                    self.line.push(',');
                    if is_valid {
                        let _ = column.values().write(i, &mut self.line);
                    }
                }
            }
            self.line.push('\n');
        }
        let written = known.file.write_all(self.line.as_bytes());
        written.map_err(|source| Error::io(&known.path, source))
    }

    /// Writes all rows that are still buffered to the files.
    ///
    /// # Errors
    /// If a file can't be written.
    pub fn finish(&mut self) -> Result<(), Error> {
        for table in &mut self.tables {
            table.file.flush().map_err(|source| Error::io(&table.path, source))?;
        }
        Ok(())
    }
}

impl Table {
    fn create(
        path: PathBuf,
        name: &str,
        message: &Message,
        columns: Vec<ColumnSpec>,
        width: usize,
    ) -> Result<Self, Error> {
        let io = |source| Error::io(&path, source);
        let mut file = BufWriter::with_capacity(1 << 16, File::create_new(&path).map_err(io)?);
        let mut names = vec![TIMESTAMP.to_owned()];
        if message.arrival_ns.is_some() {
            names.push(ARRIVAL.to_owned());
        }
        let fields = message.header.fields.get().unwrap_or_default();
        match columns.is_empty() {
            true if fields.len() == width => names.extend_from_slice(fields),
            true => names.extend((0..width).map(|i| i.to_string())),
            false => {}
        }
        for (name, _, cells) in &columns {
            match *cells {
                Cells::Fixed(n) if n != 1 => names.extend((0..n).map(|i| format!("{name}[{i}]"))),
                _ => names.push(name.clone()),
            }
        }
        let quoted = names
            .iter()
            .map(|name| match name.contains([',', '"', '\n', '\r', ';', '\t']) {
                true => format!("\"{}\"", name.replace('"', "\"\"").replace(['\n', '\r'], " ")),
                false => name.clone(),
            });
        let head = quoted.collect::<Vec<_>>().join(",") + "\n";
        file.write_all(head.as_bytes()).map_err(io)?;
        Ok(Self {
            name: name.to_owned(),
            path,
            file,
            has_arrivals: message.arrival_ns.is_some(),
            columns,
            width,
        })
    }
}

/// Returns the file name of a stream's table; an error if the stream's name is not a valid file name.
fn file_name(stream: &str) -> Result<String, Error> {
    match stream.is_empty() || stream.starts_with('.') || stream.contains(['/', '\\']) {
        true => Err(Error::message(
            stream,
            "its name can't be that of a file (allowed: a name without `/` and `\\` that does not start with `.`)",
        )),
        false => Ok(format!("{stream}.csv")),
    }
}

/// Returns the columns of a message's payload, empty for a flat array, and the number of values in each row of its table.
fn form(message: &Message) -> Result<(Vec<ColumnSpec>, usize), String> {
    let header = &message.header;
    if let Some(values) = message.flat() {
        let fields = header.fields.get().map_or(0, <[String]>::len);
        let rows = match message.stamps().len() {
            // A cloud of rows, or one sample.
            1 => match header.shape.get() {
                Some(&[rows, width]) if fields > 0 && width as usize == fields => rows.max(0) as usize,
                _ => 1,
            },
            rows => rows,
        };
        return match values.len().checked_div(rows) {
            Some(width) if width * rows == values.len() => Ok((Vec::new(), width)),
            // A message without rows.
            None => Ok((Vec::new(), fields)),
            _ => Err(format!(
                "{} values in {rows} rows (allowed: the same number in each)",
                values.len()
            )),
        };
    }
    let mut width = 0;
    for column in message.columns() {
        width += match column.cells {
            Cells::One => 1,
            Cells::Fixed(n) => n,
            Cells::Ragged(_) => {
                let name = &column.name;
                return Err(format!(
                    "column `{name}` of lists (allowed: the same number of values in each row)"
                ));
            }
            Cells::Text(_) => return Err(format!("column `{}` of text (allowed: numbers)", column.name)),
        };
    }
    match message.columns() {
        [] => Err("no payload (allowed: a primitive array or a StructArray with fields)".to_owned()),
        _ => Ok((parts_of(message), width)),
    }
}

fn rows(message: &Message, width: usize) -> usize {
    match message.flat() {
        Some(values) => values.len().checked_div(width).unwrap_or(0),
        None => message.rows,
    }
}
