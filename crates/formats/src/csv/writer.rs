use super::{ARRIVAL, TIMESTAMP, WriteError};
use robocache_device::{Dtype, Values};
use robocache_stream::{Cells, Message};
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes streams as tables into a new folder, `<stream>.csv` each.
///
/// A row is a sample, or of a StructArray a row of it. The first column is `timestamp_ns`, the second one `arrival_ns` where
/// the first message has it; the others have the names of `fields`, else of the columns, else `0`, `1` and so on. A row that
/// `valid` says is no sample has empty cells. Floats have the digits that give the same bits back.
pub struct Writer {
    /// The folder of the tables, or the file of the only one.
    path: PathBuf,
    is_file: bool,
    streams: Vec<Stream>,
    line: String,
}

struct Stream {
    name: String,
    path: PathBuf,
    file: BufWriter<File>,
    has_arrivals: bool,
    /// The columns of a struct, or none of a flat array.
    columns: Vec<(String, Dtype, usize)>,
    /// Values of a row.
    width: usize,
}

impl Writer {
    /// Tables in `folder`, which is made.
    ///
    /// # Errors
    /// If it can't be made.
    pub fn create(folder: impl AsRef<Path>) -> Result<Self, WriteError> {
        let folder = folder.as_ref().to_owned();
        match fs::create_dir_all(&folder) {
            Ok(()) => Ok(Self {
                path: folder,
                is_file: false,
                streams: Vec::new(),
                line: String::new(),
            }),
            Err(source) => Err(WriteError::Io { path: folder, source }),
        }
    }

    /// The table of one stream, `file`, which is made with its first message.
    pub fn of_file(file: impl AsRef<Path>) -> Self {
        Self {
            path: file.as_ref().to_owned(),
            is_file: true,
            streams: Vec::new(),
            line: String::new(),
        }
    }

    /// Adds a message of `stream`.
    ///
    /// # Errors
    /// A message that is no row of the table that the first one began: it is not written, and others may follow. If a file
    /// is there already, or can't be written.
    pub fn append(&mut self, stream: &str, message: &Message) -> Result<(), WriteError> {
        let refused = |problem: String| WriteError::Message {
            stream: stream.to_owned(),
            problem,
        };
        let (columns, width) = form(message).map_err(refused)?;
        let at = match self.streams.iter().position(|known| known.name == stream) {
            Some(at) => at,
            None => {
                let path = match self.is_file {
                    true => self.path.clone(),
                    false => self.path.join(file_name(stream)?),
                };
                let new = Stream::create(path, stream, message, columns.clone(), width)?;
                self.streams.push(new);
                self.streams.len() - 1
            }
        };
        let known = &mut self.streams[at];
        if (&known.columns, known.width) != (&columns, width) {
            let (came, first) = (words(&columns, width), words(&known.columns, known.width));
            return Err(refused(format!(
                "a row of {came}, and the first has {first} (allowed: the same)"
            )));
        }
        let arrival_ns = match (known.has_arrivals, message.arrival_ns) {
            (true, None) => return Err(refused("no `arrival_ns` (allowed: one, as the first has)".into())),
            (has_arrivals, arrival_ns) => arrival_ns.filter(|_| has_arrivals),
        };
        let header = &message.header;
        let rows = rows(message, width);
        self.line.clear();
        for row in 0..rows {
            let stamp_ns = match header.timestamps_ns.as_slice() {
                stamps if columns.is_empty() && stamps.len() == rows => stamps[row],
                _ => message.timestamp_ns(),
            };
            let _ = write!(self.line, "{stamp_ns}");
            if let Some(arrival_ns) = arrival_ns {
                let _ = write!(self.line, ",{arrival_ns}");
            }
            let is_valid = header.valid.len() != rows || !columns.is_empty() || header.valid[row] != 0;
            for column in message.columns() {
                let each = column.values().len() / rows;
                for i in row * each..(row + 1) * each {
                    self.line.push(',');
                    if is_valid {
                        push(&mut self.line, column.values(), i);
                    }
                }
            }
            self.line.push('\n');
        }
        known
            .file
            .write_all(self.line.as_bytes())
            .map_err(|source| WriteError::Io {
                path: known.path.clone(),
                source,
            })
    }

    /// Writes what waits.
    ///
    /// # Errors
    /// If a file can't be written.
    pub fn finish(&mut self) -> Result<(), WriteError> {
        for stream in &mut self.streams {
            stream.file.flush().map_err(|source| WriteError::Io {
                path: stream.path.clone(),
                source,
            })?;
        }
        Ok(())
    }
}

impl Stream {
    fn create(
        path: PathBuf,
        name: &str,
        message: &Message,
        columns: Vec<(String, Dtype, usize)>,
        width: usize,
    ) -> Result<Self, WriteError> {
        let io = |source| WriteError::Io {
            path: path.clone(),
            source,
        };
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(io)?;
        let mut file = BufWriter::with_capacity(1 << 16, file);
        let mut names = vec![TIMESTAMP.to_owned()];
        if message.arrival_ns.is_some() {
            names.push(ARRIVAL.to_owned());
        }
        let fields = &message.header.fields[..];
        if columns.is_empty() {
            names.extend((0..width).map(|i| {
                if fields.len() == width {
                    fields[i].clone()
                } else {
                    i.to_string()
                }
            }));
        }
        for (name, _, n) in &columns {
            match n {
                1 => names.push(name.clone()),
                n => names.extend((0..*n).map(|i| format!("{name}[{i}]"))),
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
            path: path.clone(),
            file,
            has_arrivals: message.arrival_ns.is_some(),
            columns,
            width,
        })
    }
}

/// The file of a stream.
fn file_name(stream: &str) -> Result<String, WriteError> {
    match stream.is_empty() || stream.starts_with('.') || stream.contains(['/', '\\']) {
        true => Err(WriteError::Message {
            stream: stream.to_owned(),
            problem: "its name can't be that of a file".to_owned(),
        }),
        false => Ok(format!("{stream}.csv")),
    }
}

/// The columns of a struct, each with its elements a row, and the values of a row.
type Form = (Vec<(String, Dtype, usize)>, usize);

fn form(message: &Message) -> Result<Form, String> {
    let header = &message.header;
    if let Some(values) = message.flat() {
        let rows = match header.timestamps_ns.len() {
            // A cloud of rows, or one sample.
            0 | 1 => match header.shape[..] {
                [rows, width] if !header.fields.is_empty() && width as usize == header.fields.len() => {
                    rows.max(0) as usize
                }
                _ => 1,
            },
            rows => rows,
        };
        return match values.len().checked_div(rows) {
            Some(width) if width * rows == values.len() => Ok((Vec::new(), width)),
            // No rows.
            None => Ok((Vec::new(), header.fields.len())),
            _ => Err(format!(
                "{} values in {rows} rows (allowed: as many in each)",
                values.len()
            )),
        };
    }
    let columns = message.columns().iter().map(|column| match column.cells {
        Cells::One => Ok((column.name.clone(), column.dtype, 1)),
        Cells::Fixed(n) => Ok((column.name.clone(), column.dtype, n)),
        Cells::Ragged(_) => Err(format!(
            "column `{}` of lists (allowed: as many values in each row)",
            column.name
        )),
        Cells::Text(_) => Err(format!("column `{}` of text (allowed: numbers)", column.name)),
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    if columns.is_empty() {
        return Err("no payload (allowed: a primitive array or a StructArray with fields)".to_owned());
    }
    let width = columns.iter().map(|(_, _, n)| n).sum();
    Ok((columns, width))
}

/// A form in words.
fn words(columns: &[(String, Dtype, usize)], width: usize) -> String {
    let column = |(name, dtype, n): &(String, Dtype, usize)| match n {
        1 => format!("`{name}` {dtype}"),
        n => format!("`{name}` {dtype}[{n}]"),
    };
    match columns.is_empty() {
        true => format!("{width} values"),
        false => columns.iter().map(column).collect::<Vec<_>>().join(", "),
    }
}

fn rows(message: &Message, width: usize) -> usize {
    match message.flat() {
        Some(values) => values.len().checked_div(width).unwrap_or(0),
        None => message.rows,
    }
}

/// Appends a value, in the fewest digits that give it back.
fn push(line: &mut String, values: Values<'_>, i: usize) {
    macro_rules! plain {
        ($T:ty) => {{
            let _ = write!(line, "{}", values.as_slice::<$T>()[i]);
        }};
    }
    match values.dtype() {
        Dtype::Float32 => plain!(f32),
        Dtype::Float64 => plain!(f64),
        Dtype::Float16 => plain!(half::f16),
        Dtype::BFloat16 => plain!(half::bf16),
        Dtype::Int8 => plain!(i8),
        Dtype::Int16 => plain!(i16),
        Dtype::Int32 => plain!(i32),
        Dtype::Int64 => plain!(i64),
        Dtype::UInt8 => plain!(u8),
        Dtype::UInt16 => plain!(u16),
        Dtype::UInt32 => plain!(u32),
        Dtype::UInt64 => plain!(u64),
    }
}
