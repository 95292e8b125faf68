use super::batch::{Batch, Plan};
use super::framing::{self, Frame, Messages, Stop};
use super::schema::METADATA;
use super::{EXTENSION, ReadError, text};
use crate::arrow::datatypes::SchemaRef;
use crate::arrow::ipc::convert::fb_to_schema;
use crate::arrow::ipc::reader::read_record_batch;
use crate::stream::Message;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::warn;

/// The order in which a [`Reader`] gives the messages of all streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// That of their `timestamp_ns`.
    #[default]
    Stamp,
    /// That of their `arrival_ns`: as they came to the recorder.
    Arrival,
}

/// Reads a recording: the messages of all its streams, in the order of their `timestamp_ns` or their `arrival_ns`.
///
/// Of messages with the same time those of the stream whose name sorts first come first. The messages of one stream keep
/// the order in which they were recorded, also where their times go back. One batch of each stream is in memory at a time.
///
/// A file without a valid footer, as a process leaves it that dies during a write, is read up to its last whole batch,
/// with a warning in the log. Of a damaged file every whole batch is read; those behind the damage only with a footer.
pub struct Reader {
    streams: Vec<Stream>,
    order: Order,
}

/// One file of a recording.
pub(super) struct Stream {
    name: String,
    path: PathBuf,
    messages: Messages,
    schema: Option<(SchemaRef, Plan)>,
    /// The batch with the next message, which is its row `row`.
    batch: Option<Batch>,
    row: usize,
    /// Where that batch starts.
    batch_at: u64,
    /// Rows before this batch, of those that could be counted.
    rows_before: u64,
    /// Batches that were read, or told of as damaged.
    batches: usize,
    /// Whether the file has no further batch.
    ended: bool,
    /// Why there is no next batch, until it is returned.
    failed: Option<ReadError>,
}

impl Reader {
    /// Opens the recording in `folder`.
    ///
    /// # Errors
    /// If there is no such folder or no stream in it, or a file is none of a recording.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, ReadError> {
        let (reader, refused) = Self::open_readable(folder)?;
        refused.into_iter().next().map_or(Ok(reader), Err)
    }

    /// Opens those streams of the recording in `folder` that can be opened, and says of each other file why it can't.
    ///
    /// # Errors
    /// If there is no such folder or no stream in it.
    pub fn open_readable(folder: impl AsRef<Path>) -> Result<(Self, Vec<ReadError>), ReadError> {
        let folder = folder.as_ref();
        let io = |source| ReadError::Io {
            path: folder.to_owned(),
            source,
        };
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder).map_err(io)? {
            let path = entry.map_err(io)?.path();
            if path.extension().is_some_and(|extension| extension == EXTENSION) {
                paths.push(path);
            }
        }
        if paths.is_empty() {
            return Err(ReadError::NoStreams {
                path: folder.to_owned(),
            });
        }
        paths.sort();
        let (mut streams, mut refused) = (Vec::new(), Vec::new());
        for path in paths {
            match Stream::open(path) {
                Ok(stream) => streams.push(stream),
                Err(error) => refused.push(error),
            }
        }
        streams.sort_by(|a, b| a.name.cmp(&b.name));
        let order = Order::Stamp;
        Ok((Self { streams, order }, refused))
    }

    /// Whether every stream says when its messages came, as [`Order::Arrival`] needs it.
    pub fn has_arrivals(&self) -> bool {
        self.streams.iter().all(Stream::has_arrivals)
    }

    /// Gives the messages in another order.
    ///
    /// # Errors
    /// A stream whose file does not say when its messages came.
    pub fn in_order(mut self, order: Order) -> Result<Self, ReadError> {
        if order == Order::Arrival
            && let Some(stream) = self.streams.iter().find(|stream| !stream.has_arrivals())
        {
            return Err(ReadError::NoArrivals {
                path: stream.path.clone(),
            });
        }
        self.order = order;
        Ok(self)
    }

    /// The names of the streams, sorted. [`next_into`](Self::next_into) gives their indices in this order, which is not that
    /// of a graph's inputs.
    pub fn streams(&self) -> impl ExactSizeIterator<Item = &str> {
        self.streams.iter().map(|stream| stream.name.as_str())
    }

    /// Whether the file of a stream, by its index in [`streams`](Self::streams), has a valid footer: its writer ended in
    /// order.
    pub fn is_finished(&self, stream: usize) -> bool {
        self.streams[stream].messages.expected().is_some()
    }

    /// Keeps the streams for which `keep` returns true; the others are not read any further.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.streams.retain(|stream| keep(&stream.name));
    }

    /// The time of the next message, ns, by which they are in order; `None` at the end.
    pub fn next_timestamp_ns(&self) -> Option<i64> {
        self.next_stamp().map(|(time, _)| time)
    }

    /// The time of the next message, ns, by which they are in order, and the index of its stream in [`streams`](Self::streams); `None` at the end.
    pub fn next_stamp(&self) -> Option<(i64, usize)> {
        let times = self.streams.iter().enumerate();
        times
            .filter_map(|(i, stream)| Some((stream.time_ns(self.order)?, i)))
            .min()
    }

    /// Makes `message` the next one. Returns the index of its stream in [`streams`](Self::streams), `None` at the end.
    ///
    /// # Errors
    /// A part of a file can't be read: the file, the offset, and what is wrong. All messages before it have been returned.
    /// The next call goes on behind it.
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
        self.streams[i].read(message);
        Ok(Some(i))
    }
}

impl Stream {
    fn open(path: PathBuf) -> Result<Self, ReadError> {
        Self::open_with(path, |_| Ok(()))
    }

    /// Opens a file whose elements are not read before they are looked at.
    #[cfg(target_os = "linux")]
    pub fn map(path: PathBuf) -> Result<Self, ReadError> {
        Self::open_with(path, Messages::map)
    }

    fn open_with(path: PathBuf, prepare: impl FnOnce(&mut Messages) -> io::Result<()>) -> Result<Self, ReadError> {
        let io = |source: io::Error| ReadError::Io {
            path: path.clone(),
            source,
        };
        let opened = File::open(&path).and_then(framing::open).map_err(io)?;
        let Some(mut messages) = opened else {
            return Err(ReadError::NotArrow { path });
        };
        prepare(&mut messages).map_err(io)?;
        if messages.expected().is_none() {
            warn!(
                "{}: no valid footer, reading up to the last whole batch",
                path.display()
            );
        }
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned());
        let mut stream = Self {
            name: name.unwrap_or_default(),
            path,
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
            Err(error @ (ReadError::Damaged { .. } | ReadError::Row { .. })) if stream.schema.is_some() => {
                stream.failed = Some(error);
            }
            result => result?,
        }
        Ok(stream)
    }

    /// The batch that was read; `None` at the end.
    ///
    /// # Errors
    /// Why it could not be read.
    #[cfg(target_os = "linux")]
    pub fn batch_at_hand(&mut self) -> Result<Option<AtHand<'_>>, ReadError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let at_hand = self.schema.as_ref().zip(self.batch.as_ref());
        Ok(at_hand.map(|((_, plan), batch)| AtHand {
            at: self.batch_at,
            timestamps_ns: plan.timestamps(batch).values(),
            samples: plan.samples(batch),
        }))
    }

    /// Reads the batch that starts at `at`.
    #[cfg(target_os = "linux")]
    pub fn go_to(&mut self, at: u64) -> Result<(), ReadError> {
        self.messages.seek(at).map_err(|source| ReadError::Io {
            path: self.path.clone(),
            source,
        })?;
        self.ended = false;
        self.next_batch()
    }

    /// Reads a message of the batch at hand.
    #[cfg(target_os = "linux")]
    pub fn read_row(&self, row: usize, message: &mut Message) -> Result<(), ReadError> {
        match self.schema.as_ref().zip(self.batch.as_ref()) {
            Some(((_, plan), batch)) if row < batch.rows.num_rows() => plan.read(batch, row, message),
            _ => {
                return Err(ReadError::Damaged {
                    path: self.path.clone(),
                    at: self.batch_at,
                    problem: "the file was written over while it was read".to_owned(),
                });
            }
        }
        Ok(())
    }

    fn has_arrivals(&self) -> bool {
        self.schema.as_ref().is_none_or(|(_, plan)| plan.has_arrivals())
    }

    fn time_ns(&self, order: Order) -> Option<i64> {
        let ((_, plan), batch) = self.schema.as_ref().zip(self.batch.as_ref())?;
        let times = match order {
            Order::Stamp => plan.timestamps(batch),
            Order::Arrival => plan.arrivals(batch)?,
        };
        Some(times.value(self.row))
    }

    /// Reads the next message, which there is, and goes on to the one after it.
    fn read(&mut self, message: &mut Message) {
        let Some(((_, plan), batch)) = self.schema.as_ref().zip(self.batch.as_ref()) else {
            return;
        };
        plan.read(batch, self.row, message);
        self.row += 1;
        if self.row == batch.rows.num_rows() {
            self.rows_before += self.row as u64;
            self.failed = self.next_batch().err();
        }
    }

    /// Goes on to the next batch that has a row; `batch` is `None` at the end. After an error, the next call goes on
    /// behind what can't be read.
    pub(super) fn next_batch(&mut self) -> Result<(), ReadError> {
        self.batch = None;
        self.row = 0;
        while !self.ended {
            let at = self.messages.at();
            let batch = match self.messages.next() {
                Ok(frame) => self.decode(&frame),
                Err(stop) => Err(stop),
            };
            match batch {
                Ok(Decoded::Schema(schema)) => {
                    let plan = Plan::new(&self.path, &schema)?;
                    self.schema = Some((schema, plan));
                }
                Ok(Decoded::Other) => {}
                Ok(Decoded::Batch(Err((row, problem)), rows)) => {
                    self.batches += 1;
                    let row = self.rows_before + row as u64;
                    self.rows_before += rows as u64;
                    return Err(ReadError::Row {
                        path: self.path.clone(),
                        row,
                        problem,
                    });
                }
                Ok(Decoded::Batch(Ok(batch), rows)) => {
                    self.batches += 1;
                    if rows > 0 {
                        self.batch = Some(batch);
                        self.batch_at = at;
                        return Ok(());
                    }
                }
                Err(stop) => self.stopped(at, stop)?,
            }
        }
        Ok(())
    }

    fn decode(&self, frame: &Frame) -> Result<Decoded, Stop> {
        // The Arrow crate panics if damaged bytes make the parts of a batch contradict each other.
        let decoded = catch_unwind(AssertUnwindSafe(|| self.decode_whole(frame)));
        decoded.unwrap_or_else(|_| Err(Stop::Bad("parts that do not fit each other".to_owned())))
    }

    fn decode_whole(&self, frame: &Frame) -> Result<Decoded, Stop> {
        let bad = |problem: &str| Stop::Bad(problem.to_owned());
        let header = frame.header()?;
        if let Some(schema) = header.header_as_schema() {
            if self.schema.is_some() {
                return Err(bad("a second schema"));
            }
            if !framing::is_readable(&schema) {
                return Err(bad("a schema with a column whose type can't be"));
            }
            return Ok(Decoded::Schema(Arc::new(fb_to_schema(schema))));
        }
        let Some(batch) = header.header_as_record_batch() else {
            return Ok(Decoded::Other);
        };
        let Some((schema, plan)) = &self.schema else {
            return Err(bad("a batch before the schema"));
        };
        if framing::lengths_fit(&batch, schema.fields()) == Some(false) {
            return Err(bad("a column with more rows than there can be"));
        }
        let projection = plan.projection.as_deref();
        let (none, version) = (HashMap::new(), header.version());
        let rows = read_record_batch(&frame.body, batch, schema.clone(), &none, projection, &version)?;
        let mut differences = Vec::new();
        for entry in header.custom_metadata().into_iter().flatten() {
            if entry.key() == Some(METADATA) {
                differences = text::objects(entry.value().unwrap_or_default()).map_err(Stop::Bad)?;
                if differences.len() != rows.num_rows() {
                    return Err(bad("metadata for another number of rows"));
                }
            }
        }
        let count = rows.num_rows();
        let batch = Batch { rows, differences };
        Ok(Decoded::Batch(plan.check(&batch).map(|()| batch), count))
    }

    /// Handles that there was no message at `at`.
    fn stopped(&mut self, at: u64, stop: Stop) -> Result<(), ReadError> {
        let path = || self.path.clone();
        let damaged = |problem| ReadError::Damaged {
            path: path(),
            at,
            problem,
        };
        let error = match stop {
            Stop::Io(source) => {
                self.ended = true;
                return Err(ReadError::Io { path: path(), source });
            }
            Stop::Compressed(codec) => {
                self.ended = true;
                return Err(ReadError::Compressed { path: path(), codec });
            }
            // The next message follows as if this one were good.
            Stop::Bad(problem) => {
                self.batches += 1;
                return Err(damaged(problem));
            }
            Stop::Torn(problem) => match self.messages.expected() {
                Some(_) => Some(damaged(problem)),
                None => {
                    if self.messages.left() > 0 {
                        let left = self.messages.left();
                        let file = self.path.display();
                        warn!("{file}: the last {left} bytes, from byte {at} on, are left out: {problem}");
                    }
                    None
                }
            },
            Stop::End => match self.messages.expected() {
                Some(expected) if expected > self.batches => Some(damaged(format!(
                    "the stream ends after {} batches, the footer has {expected}",
                    self.batches
                ))),
                _ => None,
            },
        };
        match self.messages.skip() {
            Ok(skipped) => self.ended = !skipped,
            Err(source) => {
                self.ended = true;
                return Err(ReadError::Io { path: path(), source });
            }
        }
        // Skipped batches have been reported.
        self.batches = self
            .messages
            .expected()
            .map_or(self.batches, |expected| expected.min(self.batches + 1));
        error.map_or(Ok(()), Err)
    }
}

/// A batch of messages.
#[cfg(target_os = "linux")]
pub(super) struct AtHand<'a> {
    /// Where it starts in the file.
    pub at: u64,
    pub timestamps_ns: &'a [i64],
    /// How many samples its messages have.
    pub samples: usize,
}

/// What a message of a file holds.
enum Decoded {
    Schema(SchemaRef),
    /// A batch, or the row that is no message, and how many rows there are.
    Batch(Result<Batch, (usize, String)>, usize),
    /// A dictionary, which no message needs.
    Other,
}
