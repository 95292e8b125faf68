//! Reader of a CSV file's rows, with the line number at which each begins. The size of a row is bounded. A quote that is never
//! closed costs one row, not the rest of the file; this holds for the first [`MAX_REWINDS`] malformed rows.

use super::cells::trim;
use csv_core::{ReadRecordResult, Reader, ReaderBuilder};
use robocache_stream::file;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// Largest size of a row, bytes. A larger row is refused: a file without line breaks is not a table.
const MOST_BYTES: usize = 64 << 20;
/// Largest number of cells in a row; a row with more is refused.
const MOST_CELLS: usize = 1 << 20;
/// Number of times that the reader seeks back to the second line of a malformed row. It is bounded because each seek may cost
/// reading `MOST_BYTES` again.
const MAX_REWINDS: u32 = 1000;
const BOM: &[u8] = b"\xef\xbb\xbf";

/// Position in a file: the byte offset, and the line number from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub byte: u64,
    pub line: u64,
}

/// Reason why a row can't be read: an error of the file, or a malformed row.
pub(super) enum RowError {
    Io(io::Error),
    /// Reason why a row is malformed. The row is skipped.
    Row(String),
}

impl From<io::Error> for RowError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reader of a CSV file's rows. It skips empty lines and lines that begin with `#`.
pub(super) struct Rows {
    file: BufReader<File>,
    core: Reader,
    separator: u8,
    /// Position of the next byte to be read.
    at: Place,
    /// Position at which the current row begins.
    pub begins: Place,
    rewinds: u32,
    text: Vec<u8>,
    ends: Vec<usize>,
    cells: usize,
}

impl Rows {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let start = Place { byte: 0, line: 1 };
        let mut rows = Self {
            file: BufReader::with_capacity(1 << 16, file::open(path)?),
            core: Reader::new(),
            separator: b',',
            at: start,
            begins: start,
            rewinds: 0,
            text: vec![0; 1 << 10],
            ends: vec![0; 1 << 6],
            cells: 0,
        };
        if rows.file.fill_buf()?.starts_with(BOM) {
            rows.consume(BOM.len());
        }
        Ok(rows)
    }

    /// Sets the byte that separates the cells of all further rows.
    pub(super) fn separate_by(&mut self, separator: u8) {
        self.separator = separator;
        self.core = ReaderBuilder::new().delimiter(separator).build();
    }

    /// Seeks to a position: the next byte to be read is the one at `place`.
    pub(super) fn go_to(&mut self, place: Place) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(place.byte))?;
        self.at = place;
        Ok(())
    }

    /// Position of the next byte to be read: the start of the next row, or of lines to skip before that row.
    pub(super) fn place(&self) -> Place {
        self.at
    }

    /// Number of cells in the current row.
    pub(super) fn width(&self) -> usize {
        self.cells
    }

    /// Returns the cell with index `at` of the current row, without the spaces around it; an empty string if the row ends
    /// before this cell.
    pub(super) fn cell(&self, at: usize) -> Cow<'_, str> {
        if at >= self.cells {
            return "".into();
        }
        let from = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        match String::from_utf8_lossy(&self.text[from..self.ends[at]]) {
            Cow::Borrowed(cell) => trim(cell).into(),
            Cow::Owned(cell) => trim(&cell).to_owned().into(),
        }
    }

    /// True if the current row is UTF-8.
    pub(super) fn is_utf8(&self) -> bool {
        let end = self.cells.checked_sub(1).map_or(0, |last| self.ends[last]);
        str::from_utf8(&self.text[..end]).is_ok()
    }

    /// Cells of the current row, without the spaces around each.
    pub(super) fn cells(&self) -> impl Iterator<Item = Cow<'_, str>> {
        (0..self.cells).map(|at| self.cell(at))
    }

    /// Reads the next line without its line break, and cuts it off after `MOST_BYTES`. Returns `None` at the end of the file.
    pub(super) fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let mut is_there = false;
        loop {
            let buffer = self.file.fill_buf()?;
            if buffer.is_empty() {
                return Ok(is_there.then_some(line));
            }
            is_there = true;
            let end = buffer.iter().position(|&byte| byte == b'\n');
            let taken = &buffer[..end.unwrap_or(buffer.len())];
            let room = MOST_BYTES.saturating_sub(line.len());
            line.extend_from_slice(&taken[..taken.len().min(room)]);
            let length = taken.len() + usize::from(end.is_some());
            self.consume(length);
            if end.is_some() {
                line.truncate(line.trim_ascii_end().len());
                return Ok(Some(line));
            }
        }
    }

    /// Reads the next row; returns false at the end of the file. `width` is the number of column names, `None` if not known. A
    /// row of several lines with fewer cells is refused, as one of its quotes is not closed. The next call then begins at the
    /// second line of the refused row.
    pub(super) fn next(&mut self, width: Option<usize>) -> Result<bool, RowError> {
        loop {
            self.skip_empty()?;
            match self.file.fill_buf()?.first() {
                None => {
                    self.cells = 0;
                    return Ok(false);
                }
                Some(b'#') => drop(self.line()?),
                Some(_) => {
                    self.begins = self.at;
                    let is_whole = self.read()?;
                    let problem = match width {
                        _ if !is_whole => self.too_long(),
                        Some(width) if self.cells < width && self.is_broken() => {
                            format!(
                                "{} cells in several lines (allowed: {width}); is a quote not closed?",
                                self.cells
                            )
                        }
                        _ if (self.is_broken() || self.peek()?.is_none()) && !self.is_well_quoted()? => {
                            "a quote is not closed (needed: `\"` at the end of the cell)".to_owned()
                        }
                        // A line of spaces.
                        _ if self.cells == 1 && self.cell(0).is_empty() => continue,
                        _ => return Ok(true),
                    };
                    if self.rewinds < MAX_REWINDS {
                        self.rewinds += 1;
                        self.go_to(self.begins)?;
                        self.line()?;
                    }
                    return Err(RowError::Row(problem));
                }
            }
        }
    }

    /// Reads the line at the current position as a row, even if the line is empty or begins with `#`.
    pub(super) fn read_any(&mut self) -> Result<(), RowError> {
        self.begins = self.at;
        match self.read()? {
            true => Ok(()),
            false => Err(RowError::Row(self.too_long())),
        }
    }

    fn too_long(&self) -> String {
        match self.ends.len() {
            ..MOST_CELLS => format!("a line of more than {MOST_BYTES} bytes (allowed: {MOST_BYTES})"),
            _ => format!("a line of more than {MOST_CELLS} cells (allowed: {MOST_CELLS})"),
        }
    }

    /// True if a cell of the current row contains a line break, so that the row has several lines.
    fn is_broken(&self) -> bool {
        let end = self.cells.checked_sub(1).map_or(0, |last| self.ends[last]);
        self.text[..end].iter().any(|byte| matches!(byte, b'\n' | b'\r'))
    }

    /// True if every quoted cell of the current row is closed: a separator or the end of the row follows its last quote. Reads
    /// the bytes of the row a second time.
    fn is_well_quoted(&mut self) -> io::Result<bool> {
        let end = self.at;
        let mut raw = vec![0; (end.byte - self.begins.byte) as usize];
        self.go_to(self.begins)?;
        self.file.read_exact(&mut raw)?;
        self.go_to(end)?;
        #[derive(PartialEq)]
        enum Cell {
            Begins,
            Plain,
            Quoted,
            /// State after a quote within a quoted cell. Either the cell ends here, or a second quote follows and the two mean
            /// one quote.
            Closed,
        }
        let mut cell = Cell::Begins;
        for byte in raw {
            let is_end = byte == self.separator || matches!(byte, b'\n' | b'\r');
            cell = match cell {
                Cell::Quoted if byte == b'"' => Cell::Closed,
                Cell::Quoted => Cell::Quoted,
                Cell::Begins | Cell::Closed if byte == b'"' => Cell::Quoted,
                _ if is_end => Cell::Begins,
                Cell::Closed => return Ok(false),
                Cell::Begins | Cell::Plain => Cell::Plain,
            };
        }
        Ok(cell != Cell::Quoted)
    }

    /// Reads a row: the bytes of its cells into `text`, and the offsets at which the cells end into `ends`. Returns false if
    /// the row has too many bytes or cells.
    fn read(&mut self) -> io::Result<bool> {
        self.core.reset();
        let (mut length, mut cells) = (0, 0);
        loop {
            let buffer = self.file.fill_buf()?;
            let (result, read, wrote, ended) =
                self.core
                    .read_record(buffer, &mut self.text[length..], &mut self.ends[cells..]);
            self.consume(read);
            length += wrote;
            cells += ended;
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull if length < MOST_BYTES => self.text.resize(2 * self.text.len(), 0),
                ReadRecordResult::OutputEndsFull if cells < MOST_CELLS => self.ends.resize(2 * self.ends.len(), 0),
                ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => {
                    self.cells = 0;
                    return Ok(false);
                }
                ReadRecordResult::Record | ReadRecordResult::End => {
                    self.cells = cells;
                    return Ok(true);
                }
            }
        }
    }

    /// Skips empty lines: advances to the next byte that is not a line break.
    pub(super) fn skip_empty(&mut self) -> io::Result<()> {
        while let Some(b'\n' | b'\r') = self.file.fill_buf()?.first() {
            self.consume(1);
        }
        Ok(())
    }

    /// Returns the next byte without consuming it; `None` at the end of the file.
    pub(super) fn peek(&mut self) -> io::Result<Option<u8>> {
        Ok(self.file.fill_buf()?.first().copied())
    }

    fn consume(&mut self, bytes: usize) {
        let read = &self.file.buffer()[..bytes];
        self.at.line += read.iter().filter(|&&byte| byte == b'\n').count() as u64;
        self.at.byte += bytes as u64;
        self.file.consume(bytes);
    }
}
