//! Reading of recordings: the messages of all streams, merged in the order of time.
//!
//! One batch of each stream is in memory at a time. A part of a file that can't be read is reported once. Reading then
//! continues after that part if the file has a footer.

use super::batch::{Batch, Plan};
use super::framing::{self, Frame, Messages, Stop};
use super::schema::METADATA;
use super::{Indexed, ReadError, files, text};
use crate::Message;
use crate::file;
use arrow_ipc::convert::fb_to_schema;
use arrow_ipc::reader::read_record_batch;
use arrow_schema::SchemaRef;
use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The order in which a [`Reader`] returns the messages of all streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Order of ascending capture times, `timestamp_ns`.
    #[default]
    Stamp,
    /// Order of ascending arrival times at the recorder, `arrival_ns`.
    Arrival,
}

/// Reader of the messages of all streams of a recording, in the order of their `timestamp_ns` or their `arrival_ns`.
///
/// Messages of the same time come in the order of the names of their streams. The messages of one stream keep the order in
/// which they were recorded, even if their times go back. One batch of each stream is in memory at a time.
///
/// A stream has several files if its recorder was restarted. They are read one after the other. In each file, a row stores only
/// the metadata that differ from the file's first message.
///
/// A file without a valid footer, which a process leaves if it dies during a write, is read up to its last whole batch, and
/// then reported as [`ReadError::Unfinished`]. Every whole batch of a damaged file is read, but batches behind the damage only
/// if the file has a footer.
pub struct Reader {
    streams: Vec<StreamFiles>,
    order: Order,
}

/// The files of a stream, one of which is open.
pub(super) struct StreamFiles {
    name: String,
    /// Paths in the order in which the files were written.
    files: Vec<PathBuf>,
    /// Index in `files` of the file that is read.
    pub at_file: usize,
    path: PathBuf,
    /// True if `messages` reads the file at `path`; false if that file could not be opened.
    is_open: bool,
    /// True if the elements of long batches stay in the file until a row needs them.
    leaves_elements: bool,
    /// True if every file with messages has the column `arrival_ns`.
    has_arrivals: bool,
    /// True if every file ends with the final footer that a recorder writes when it finishes.
    is_finished: bool,
    messages: Messages,
    schema: Option<(SchemaRef, Plan)>,
    /// Batch that holds the next message at index `row`; `None` if the files have no further message.
    batch: Option<Batch>,
    row: usize,
    /// Offset of `batch` in the open file, bytes.
    pub batch_at: u64,
    /// Number of rows of the open file before `batch`; rows of damaged batches can't be counted.
    rows_before: u64,
    /// Number of batches of the open file that were read or reported as damaged.
    batches: usize,
    /// True if the open file has no further batch to read.
    ended: bool,
    /// Error of reading the next batch; `None` once the reader has returned the error.
    pub failed: Option<ReadError>,
}

impl Reader {
    /// Opens the recording in `folder`.
    ///
    /// # Errors
    /// If the folder can't be read or has no stream, or a file is not one of a recording. Columns that a tensor does not have are
    /// only logged.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, ReadError> {
        let (reader, refused) = Self::open_readable(folder)?;
        for error in refused {
            match error {
                // The stream is complete without these columns.
                ReadError::UnknownColumns { .. } => tracing::warn!("{error}"),
                error => return Err(error),
            }
        }
        Ok(reader)
    }

    /// Opens the streams of the recording in `folder` that can be opened. Also returns an error for each file that can't be
    /// opened, or that has columns that are not read.
    ///
    /// # Errors
    /// If the folder can't be read or has no stream.
    pub fn open_readable(folder: impl AsRef<Path>) -> Result<(Self, Vec<ReadError>), ReadError> {
        let folder = folder.as_ref();
        let files = files::streams(folder).map_err(ReadError::io(folder))?;
        if files.is_empty() {
            let path = folder.to_owned();
            return Err(ReadError::NoStreams { path });
        }
        let (mut streams, mut refused) = (Vec::new(), Vec::new());
        for (name, files) in files {
            let (stream, problems) = StreamFiles::open(&name, files, false);
            streams.extend(stream);
            refused.extend(problems);
        }
        let order = Order::Stamp;
        Ok((Self { streams, order }, refused))
    }

    /// Returns [`Order::Arrival`] if the arrival times [define an order](super::are_in_order), else [`Order::Stamp`]. Reads the
    /// times of all messages.
    pub fn own_order(&self) -> Order {
        // A file that can't be read is reported when its messages are read.
        let indexed = self
            .streams
            .iter()
            .map(|stream| Indexed::open_readable(&stream.files[0]));
        let indexed: Vec<Indexed> = indexed.filter_map(|opened| Some(opened.ok()?.0)).collect();
        match super::are_in_order(indexed.iter().map(Indexed::arrivals_ns)) {
            true => Order::Arrival,
            false => Order::Stamp,
        }
    }

    /// Sets the order in which [`next_into`](Self::next_into) returns the messages.
    ///
    /// # Errors
    /// If the order is [`Order::Arrival`], and the file of a stream lacks arrival times.
    pub fn in_order(mut self, order: Order) -> Result<Self, ReadError> {
        if order == Order::Arrival
            && let Some(stream) = self.streams.iter().find(|stream| !stream.has_arrivals)
        {
            let path = stream.path.clone();
            return Err(ReadError::NoArrivals { path });
        }
        self.order = order;
        Ok(self)
    }

    /// The names of the streams, sorted. [`next_into`](Self::next_into) returns indices in this order, which may differ from the
    /// order of the inputs in a configuration.
    pub fn streams(&self) -> impl ExactSizeIterator<Item = &str> {
        self.streams.iter().map(|stream| stream.name.as_str())
    }

    /// True if every file of a stream ends with a valid final footer, which its writer adds when it finishes. `stream` is an
    /// index in [`streams`](Self::streams).
    pub fn is_finished(&self, stream: usize) -> bool {
        self.streams[stream].is_finished
    }

    /// The files of the stream of this index in [`streams`](Self::streams), in the order in which they were written.
    pub fn files(&self, stream: usize) -> &[PathBuf] {
        &self.streams[stream].files
    }

    /// Keeps the streams for whose name `keep` returns true, and drops all others. Stream indices then count the kept
    /// streams only.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.streams.retain(|stream| keep(&stream.name));
    }

    /// The time of the next message in the chosen order, ns, and the index of its stream in [`streams`](Self::streams). `None`
    /// after the last message.
    pub fn next_stamp(&self) -> Option<(i64, usize)> {
        let times = self.streams.iter().map(|stream| stream.time_ns(self.order));
        times.enumerate().filter_map(|(i, time)| Some((time?, i))).min()
    }

    /// Reads the next message into `message`. Returns the index of its stream in [`streams`](Self::streams); `None` after the
    /// last message.
    ///
    /// # Errors
    /// If a part of a file can't be read, with the file, the offset and the problem. All messages before the part have been
    /// returned, and the next call continues after it.
    pub fn next_into(&mut self, message: &mut Message) -> Result<Option<usize>, ReadError> {
        for stream in &mut self.streams {
            if let Some(error) = stream.failed.take() {
                stream.failed = stream.next_batch().err();
                return Err(error);
            }
        }
        let Some((_, i)) = self.next_stamp() else {
            return Ok(None);
        };
        self.streams[i].read(message)?;
        Ok(Some(i))
    }
}

impl StreamFiles {
    /// Opens the `files` of a stream; the stream is `None` if no file can be opened. Also returns an error for each file that
    /// can't be opened, or that has columns that are not read. If `leaves_elements`, the elements of long batches stay in the
    /// file until a row needs them.
    pub(super) fn open(name: &str, files: Vec<PathBuf>, leaves_elements: bool) -> (Option<Self>, Vec<ReadError>) {
        let (mut stream, mut refused): (Option<Self>, _) = (None, Vec::new());
        for path in files {
            match Self::open_file(name, path, leaves_elements) {
                Ok(file) => {
                    let plan = file.schema.as_ref().map(|(_, plan)| plan);
                    refused.extend(plan.and_then(|plan| plan.unknown(&file.path)));
                    match &mut stream {
                        Some(stream) => {
                            stream.has_arrivals &= file.has_arrivals;
                            stream.is_finished &= file.is_finished;
                            stream.files.push(file.path);
                        }
                        None => stream = Some(file),
                    }
                }
                Err(ReadError::Io { path, source }) if source.kind() == io::ErrorKind::NotFound => {
                    refused.push(ReadError::MissingFile { path });
                }
                Err(error) => refused.push(error),
            }
        }
        // The first file may be empty.
        if let Some(stream) = stream.as_mut().filter(|it| it.batch.is_none() && it.failed.is_none()) {
            stream.failed = stream.next_batch().err();
        }
        (stream, refused)
    }

    fn open_file(name: &str, path: PathBuf, leaves_elements: bool) -> Result<Self, ReadError> {
        let messages = messages_of(&path, leaves_elements)?;
        let mut stream = Self {
            name: name.to_owned(),
            files: vec![path.clone()],
            at_file: 0,
            leaves_elements,
            has_arrivals: true,
            is_finished: messages.expected().is_some() && !messages.is_open(),
            path,
            is_open: true,
            messages,
            schema: None,
            batch: None,
            row: 0,
            batch_at: 0,
            rows_before: 0,
            batches: 0,
            ended: false,
            failed: None,
        };
        match stream.next_batch() {
            // Other batches may be whole.
            Err(
                error @ (ReadError::Damaged { .. }
                | ReadError::Io { .. }
                | ReadError::Row { .. }
                | ReadError::Unfinished { .. }
                | ReadError::NotEnded { .. }),
            ) => stream.failed = Some(error),
            result => result?,
        }
        let is_empty = stream.batch.is_none() && stream.failed.is_none();
        stream.has_arrivals = is_empty || stream.schema.as_ref().is_none_or(|(_, plan)| plan.has_arrivals());
        Ok(stream)
    }

    /// Opens again the file of index `at_file` in `files`, and starts at its first message.
    fn begin(&mut self, at_file: usize) -> Result<(), ReadError> {
        self.at_file = at_file;
        self.path.clone_from(&self.files[at_file]);
        (self.is_open, self.ended) = (false, true);
        self.messages = messages_of(&self.path, self.leaves_elements)?;
        (self.is_open, self.ended) = (true, false);
        (self.schema, self.batch) = (None, None);
        (self.rows_before, self.batches) = (0, 0);
        Ok(())
    }

    /// Returns the plan of the open file, and the batch that holds the next message; `None` after the last message.
    pub(super) fn current_batch(&self) -> Option<(&Plan, &Batch)> {
        self.schema.as_ref().map(|(_, plan)| plan).zip(self.batch.as_ref())
    }

    /// Reads the batch at offset `at`, bytes, of the file of index `file` in `files`.
    pub(super) fn go_to(&mut self, file: usize, at: u64) -> Result<(), ReadError> {
        self.failed = None;
        if file != self.at_file || !self.is_open {
            self.begin(file)?;
            // Reads the schema, which comes before all batches. An error of the first batch was reported before.
            let _ = self.next_batch();
        }
        self.messages.at = at;
        self.ended = false;
        self.next_batch()?;
        match (self.at_file, self.batch_at) == (file, at) {
            true => Ok(()),
            false => Err(self.changed("written over")),
        }
    }

    /// Reads row `row` of the current batch as a message.
    pub(super) fn read_row(&self, row: usize, message: &mut Message) -> Result<(), ReadError> {
        let (plan, batch) = match self.current_batch() {
            Some((plan, batch)) if row < batch.rows.num_rows() => (plan, batch),
            _ => return Err(self.changed("written over")),
        };
        plan.read(batch, row, message).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => self.changed("cut off"),
            _ => ReadError::io(&self.path)(source),
        })
    }

    /// Returns the error of a batch that has changed since the file was opened; `how` completes the text `the file was`.
    pub(super) fn changed(&self, how: &str) -> ReadError {
        ReadError::Damaged {
            path: self.path.clone(),
            at: self.batch_at,
            problem: format!("the file was {how} while it was read"),
        }
    }

    fn time_ns(&self, order: Order) -> Option<i64> {
        let (plan, batch) = self.current_batch()?;
        let times = match order {
            Order::Stamp => plan.timestamps(batch),
            Order::Arrival => plan.arrivals(batch)?,
        };
        Some(times.value(self.row))
    }

    /// Reads the next message, which must exist, and moves to the message after it.
    fn read(&mut self, message: &mut Message) -> Result<(), ReadError> {
        self.read_row(self.row, message)?;
        let rows = self.batch.as_ref().map_or(0, |batch| batch.rows.num_rows());
        self.row += 1;
        if self.row == rows {
            self.failed = self.next_batch().err();
        }
        Ok(())
    }

    /// Moves to the next batch that has a row, in this file or a later one; `batch` is `None` after the last batch. After an
    /// error, the next call continues after the part that can't be read.
    pub(super) fn next_batch(&mut self) -> Result<(), ReadError> {
        if let Some(batch) = self.batch.take() {
            self.rows_before += batch.rows.num_rows() as u64;
        }
        self.row = 0;
        loop {
            if self.ended {
                if self.at_file + 1 == self.files.len() {
                    return Ok(());
                }
                self.begin(self.at_file + 1)?;
            }
            if self.schema.is_none() {
                self.read_schema()?;
                continue;
            }
            let at = self.messages.at;
            match self.messages.next().and_then(|frame| self.decode(&frame)) {
                Ok(Decoded::Schema(_)) => {
                    self.handle_stop(at, Stop::Bad("a second schema".to_owned()))?;
                }
                Ok(Decoded::Other) => {}
                Ok(Decoded::Batch(Err((row, problem)), rows)) => {
                    self.batches += 1;
                    let (path, row) = (self.path.clone(), self.rows_before + row as u64);
                    self.rows_before += rows as u64;
                    return Err(ReadError::Row { path, row, problem });
                }
                Ok(Decoded::Batch(Ok(batch), rows)) => {
                    self.batches += 1;
                    if rows > 0 {
                        self.batch = Some(batch);
                        self.batch_at = at;
                        return Ok(());
                    }
                }
                Err(stop) => self.handle_stop(at, stop)?,
            }
        }
    }

    /// Reads the schema at the start of a file. If this schema is damaged, the schema in the footer is used; without a footer,
    /// nothing of the file can be read.
    fn read_schema(&mut self) -> Result<(), ReadError> {
        let at = self.messages.at;
        let stop = match self.messages.next().and_then(|frame| self.decode(&frame)) {
            Ok(Decoded::Schema(schema)) => match self.messages.schema_of_footer() {
                Some(of_footer) if of_footer != schema => {
                    Stop::Bad("a schema that differs from the schema in the footer".to_owned())
                }
                _ => return self.take(schema),
            },
            Ok(_) => Stop::Bad("no schema".to_owned()),
            Err(stop) => stop,
        };
        let problem = match &stop {
            Stop::End => "the stream ends",
            Stop::Torn(problem) | Stop::Bad(problem) => problem,
            Stop::Compressed(_) | Stop::Io(_) => return self.handle_stop(at, stop),
        };
        if let Some(schema) = self.messages.schema_of_footer() {
            let problem = format!("{problem} (expected: the schema; that of the footer is used)");
            self.take(schema)?;
            self.messages.at = 0;
            self.ended = !self.messages.skip();
            let path = self.path.clone();
            return Err(ReadError::Damaged { path, at, problem });
        }
        let handle_stop = self.handle_stop(at, stop);
        self.ended = true;
        handle_stop
    }

    fn take(&mut self, schema: SchemaRef) -> Result<(), ReadError> {
        let plan = Plan::new(&self.path, &schema)?;
        self.schema = Some((schema, plan));
        Ok(())
    }

    fn decode(&self, frame: &Frame) -> Result<Decoded, Stop> {
        // The Arrow crate panics if damaged bytes make the parts of a batch contradict each other.
        let decoded = catch_unwind(AssertUnwindSafe(|| self.decode_whole(frame)));
        decoded.unwrap_or_else(|_| Err(Stop::Bad("parts that contradict each other".to_owned())))
    }

    fn decode_whole(&self, frame: &Frame) -> Result<Decoded, Stop> {
        let bad = |problem: &str| Stop::Bad(problem.to_owned());
        let header = frame.header()?;
        if let Some(schema) = header.header_as_schema() {
            if !framing::is_readable(&schema) {
                return Err(bad("a schema with an invalid column, or with big-endian values"));
            }
            return Ok(Decoded::Schema(Arc::new(fb_to_schema(schema))));
        }
        let Some(batch) = header.header_as_record_batch() else {
            return Ok(Decoded::Other);
        };
        let Some((schema, plan)) = &self.schema else {
            return Err(bad("a batch before the schema"));
        };
        let mut elements = Vec::new();
        if framing::lengths_fit(&batch, schema.fields(), &mut elements) == Some(false) {
            return Err(bad("a column whose number of rows contradicts its buffers"));
        }
        elements.retain(|&(column, _)| plan.has_elements(column));
        let elements: Vec<framing::BufferRange> = elements.into_iter().map(|(_, part)| part).collect();
        let (body, left) = frame.body(&batch, &elements)?;
        let projection = plan.projection.as_deref();
        let (none, version) = (HashMap::new(), header.version());
        let rows = read_record_batch(&body, batch, schema.clone(), &none, projection, &version)?;
        let count = rows.num_rows();
        let mut differences = match plan.differences(&rows) {
            Ok(differences) => differences,
            Err(problem) => return Ok(Decoded::Batch(Err(problem), count)),
        };
        // Earlier versions had no column for the differences.
        for entry in header.custom_metadata().into_iter().flatten() {
            if entry.key() == Some(METADATA) {
                differences = text::objects(entry.value().unwrap_or_default()).map_err(Stop::Bad)?;
                if differences.len() != count {
                    return Err(bad("metadata for another number of rows"));
                }
            }
        }
        let batch = Batch {
            rows,
            differences,
            left,
        };
        Ok(Decoded::Batch(plan.check(&batch).map(|()| batch), count))
    }

    /// Converts a `stop` at offset `at` of a file to an error, and moves to the next batch that may be readable. The normal end
    /// of a file is not an error.
    fn handle_stop(&mut self, at: u64, stop: Stop) -> Result<(), ReadError> {
        let (path, expected, left) = (self.path.clone(), self.messages.expected(), self.messages.left());
        let unfinished = |path, problem| ReadError::Unfinished {
            path,
            at,
            left,
            problem,
        };
        let error = match stop {
            // Other batches may be on sectors that can be read.
            Stop::Io(source) => Some(ReadError::Io { path, source }),
            Stop::Compressed(codec) => {
                self.ended = true;
                return Err(ReadError::Compressed { path, codec });
            }
            // The next message follows as if this message were good.
            Stop::Bad(problem) => {
                self.batches += 1;
                return Err(ReadError::Damaged { path, at, problem });
            }
            Stop::Torn(problem) if expected.is_some() => Some(ReadError::Damaged { path, at, problem }),
            Stop::Torn(problem) => Some(unfinished(path, problem)),
            Stop::End => match expected {
                Some(expected) if expected > self.batches => {
                    let problem = format!(
                        "the stream ends after {} batches, the footer has {expected}",
                        self.batches
                    );
                    Some(ReadError::Damaged { path, at, problem })
                }
                Some(_) => self.messages.is_open().then_some(ReadError::NotEnded { path }),
                None => Some(unfinished(
                    path,
                    "the stream ends, and no valid footer follows".to_owned(),
                )),
            },
        };
        self.ended = true;
        self.ended = !self.messages.skip();
        // Skipped batches have been reported.
        self.batches = expected.map_or(self.batches, |expected| expected.min(self.batches + 1));
        error.map_or(Ok(()), Err)
    }
}

/// Opens a file, and returns a reader of its Arrow messages from the first one on. If `leaves_elements`, the elements of long
/// batches stay in the file until a row needs them.
fn messages_of(path: &Path, leaves_elements: bool) -> Result<Messages, ReadError> {
    let opened = file::open(path).and_then(framing::open).map_err(ReadError::io(path))?;
    let mut messages = opened.ok_or_else(|| ReadError::NotArrow { path: path.to_owned() })?;
    if leaves_elements {
        messages.leave_elements();
    }
    Ok(messages)
}

/// Decoded contents of one Arrow message of a file.
enum Decoded {
    Schema(SchemaRef),
    /// Arrow batch with its number of rows. For an invalid batch, the index of a row that is not a message, and the problem.
    Batch(Result<Batch, (usize, String)>, usize),
    /// Another Arrow message, such as a dictionary, which recordings do not need.
    Other,
}
