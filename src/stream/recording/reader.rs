use super::batch::Plan;
use super::framing::{self, Messages, Stop};
use super::{EXTENSION, ReadError};
use crate::stream::Message;
use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::ipc::reader::StreamDecoder;
use std::fs::{self, File};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use tracing::warn;

/// Reads a recording: the messages of all its streams, in the order of their `timestamp_ns`.
///
/// Of messages with the same time those of the stream whose name sorts first come first. The messages of one stream keep
/// the order in which they were recorded, also where their times go back. One batch of each stream is in memory at a time.
///
/// A file without a valid footer, as a process leaves it that dies in the middle of a write, is read up to its last
/// whole batch, with a warning in the log.
pub struct Reader {
    streams: Vec<Stream>,
}

struct Stream {
    name: String,
    path: PathBuf,
    messages: Messages,
    decoder: StreamDecoder,
    plan: Option<Plan>,
    /// The batch with the next message, which is its row `row`.
    batch: Option<RecordBatch>,
    row: usize,
    /// Rows before this batch.
    rows_before: u64,
    batches: usize,
    /// How many batches there are, by the footer; without one the file may break off.
    expected: Option<usize>,
    /// Why there is no next batch, until it is said.
    failed: Option<ReadError>,
}

impl Reader {
    /// Opens the recording in `folder`.
    ///
    /// # Errors
    /// If there is no such folder or no stream in it, or a file's first batch can't be read.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, ReadError> {
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
        let mut streams = paths.into_iter().map(Stream::open).collect::<Result<Vec<_>, _>>()?;
        streams.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { streams })
    }

    /// The names of the streams, sorted.
    pub fn streams(&self) -> impl ExactSizeIterator<Item = &str> {
        self.streams.iter().map(|stream| stream.name.as_str())
    }

    /// Keeps the streams for which `keep` says so; the others are not read any further.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.streams.retain(|stream| keep(&stream.name));
    }

    /// The time of the next message, ns; `None` at the end.
    pub fn next_timestamp_ns(&self) -> Option<i64> {
        self.streams.iter().filter_map(Stream::timestamp_ns).min()
    }

    /// Makes `message` the next one. Returns the index of its stream in [`streams`](Self::streams), `None` at the end.
    ///
    /// # Errors
    /// If a file can't be read any further: the file, the place, and what is wrong. The messages before it have been
    /// given; the call may be repeated, and goes on with the other streams.
    pub fn next_into(&mut self, message: &mut Message) -> Result<Option<usize>, ReadError> {
        if let Some(error) = self.streams.iter_mut().find_map(|stream| stream.failed.take()) {
            return Err(error);
        }
        let times = self.streams.iter().enumerate();
        let next = times.filter_map(|(i, stream)| Some((stream.timestamp_ns()?, i))).min();
        let Some((_, i)) = next else {
            return Ok(None);
        };
        self.streams[i].read(message);
        Ok(Some(i))
    }
}

impl Stream {
    fn open(path: PathBuf) -> Result<Self, ReadError> {
        let io = |source: io::Error| ReadError::Io {
            path: path.clone(),
            source,
        };
        let opened = File::open(&path).and_then(framing::open).map_err(io)?;
        let Some(opened) = opened else {
            return Err(ReadError::NotArrow { path });
        };
        if opened.batches.is_none() {
            warn!(
                "{}: no valid footer, reading up to the last whole batch",
                path.display()
            );
        }
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned());
        let mut stream = Self {
            name: name.unwrap_or_default(),
            path,
            messages: opened.messages,
            decoder: StreamDecoder::new(),
            plan: None,
            batch: None,
            row: 0,
            rows_before: 0,
            batches: 0,
            expected: opened.batches,
            failed: None,
        };
        stream.next_batch()?;
        Ok(stream)
    }

    fn timestamp_ns(&self) -> Option<i64> {
        let (plan, batch) = self.plan.as_ref().zip(self.batch.as_ref())?;
        Some(plan.timestamps(batch).value(self.row))
    }

    /// Reads the next message, which there is, and goes on to the one after it.
    fn read(&mut self, message: &mut Message) {
        let Some((plan, batch)) = self.plan.as_ref().zip(self.batch.as_ref()) else {
            return;
        };
        plan.read(batch, self.row, message);
        self.row += 1;
        if self.row == batch.num_rows() {
            self.rows_before += self.row as u64;
            self.failed = self.next_batch().err();
        }
    }

    /// Goes on to the next batch with a row in it; `batch` is none when there is no further one.
    fn next_batch(&mut self) -> Result<(), ReadError> {
        self.batch = None;
        self.row = 0;
        loop {
            let at = self.messages.at();
            match self.decode() {
                Ok(batch) => {
                    self.plan()?;
                    let Some(batch) = batch else {
                        continue;
                    };
                    self.batches += 1;
                    if batch.num_rows() == 0 {
                        continue;
                    }
                    if let Some(Err((row, problem))) = self.plan.as_ref().map(|plan| plan.check(&batch)) {
                        return Err(ReadError::Row {
                            path: self.path.clone(),
                            row: self.rows_before + row as u64,
                            problem,
                        });
                    }
                    self.batch = Some(batch);
                    return Ok(());
                }
                Err(Stop::Io(source)) => {
                    return Err(ReadError::Io {
                        path: self.path.clone(),
                        source,
                    });
                }
                Err(stop) => return self.end(at, stop),
            }
        }
    }

    /// The batch of the file's next message; none if it is the schema.
    fn decode(&mut self) -> Result<Option<RecordBatch>, Stop> {
        let mut bytes = Buffer::from_vec(self.messages.next()?);
        let decoder = &mut self.decoder;
        // Arrow takes it for granted that the parts of a batch are as long as they say, and panics where damaged bytes
        // say otherwise. The decoder is not used again then.
        let decoded = catch_unwind(AssertUnwindSafe(|| decoder.decode(&mut bytes)));
        Ok(decoded.map_err(|_| Stop::Torn("a batch whose parts do not fit each other".to_owned()))??)
    }

    /// Reads the schema once it is there.
    fn plan(&mut self) -> Result<(), ReadError> {
        if let (None, Some(schema)) = (&self.plan, self.decoder.schema()) {
            self.plan = Some(Plan::new(&self.path, &schema)?);
        }
        Ok(())
    }

    fn end(&self, at: u64, stop: Stop) -> Result<(), ReadError> {
        let damaged = |problem| {
            Err(ReadError::Damaged {
                path: self.path.clone(),
                at,
                problem,
            })
        };
        match (self.expected, stop) {
            (None, _) => Ok(()),
            (Some(_), Stop::Torn(problem)) => damaged(problem),
            (Some(expected), _) if expected != self.batches => damaged(format!(
                "the stream ends after {} batches, the footer has {expected}",
                self.batches
            )),
            _ => Ok(()),
        }
    }
}
