//! Source and sink of recordings. The same messages make the same files, whenever they are written.

use super::{Problems, Refused, Remarks, Sink, Source};
use robocache::formats::file_name;
use robocache::stream::recording::{Reader, WriteError, Writer};
use robocache::stream::{Message, Selection};
use std::path::Path;
use std::time::{Duration, Instant};

/// Source of the messages of a recording, in the order of their arrivals if these are known, else of their stamps.
pub struct RecordingSource {
    reader: Reader,
    /// Names of the streams, each with the selection of the columns and the stamp that a configuration reads.
    streams: Vec<(String, Selection)>,
    problems: Problems,
}

impl RecordingSource {
    pub fn open(folder: &Path, selections: &[(String, Selection)]) -> eyre::Result<Self> {
        let (reader, refused) = Reader::open_readable(folder)?;
        let mut problems = Problems::default();
        refused.iter().for_each(|error| problems.push(error));
        let order = reader.own_order();
        let reader = reader.in_order(order)?;
        let streams = reader.streams().map(|stream| {
            let selection = selections.iter().find(|(input, _)| file_name(input) == stream);
            (
                stream.to_owned(),
                selection.map(|(_, selection)| selection.clone()).unwrap_or_default(),
            )
        });
        Ok(Self {
            streams: streams.collect(),
            reader,
            problems,
        })
    }
}

impl Source for RecordingSource {
    fn next_into(&mut self, message: &mut Message) -> eyre::Result<Option<&str>> {
        loop {
            match self.reader.next_into(message) {
                Ok(Some(stream)) => {
                    let (name, selection) = &self.streams[stream];
                    match selection.restamp(&mut message.header) {
                        Ok(()) => return Ok(Some(&self.streams[stream].0)),
                        Err(error) => self
                            .problems
                            .push(format!("stream `{name}`: a message is left out: {error}")),
                    }
                }
                Ok(None) => return Ok(None),
                Err(error) => self.problems.push(error),
            }
        }
    }

    fn remarks(&mut self) -> Remarks {
        Remarks {
            problems: self.problems.take(),
            notes: Vec::new(),
        }
    }

    fn streams(&self) -> Option<Vec<String>> {
        Some(self.streams.iter().map(|(name, _)| name.clone()).collect())
    }
}

/// Maximum bytes of a batch with more than one message. A batch also spans less than a second. If a file is cut off, not more than
/// a batch is lost.
const BATCH_BYTES: usize = 1 << 20;

/// Sink that writes a new recording.
pub struct RecordingSink {
    writer: Writer,
    /// Instant of the first message, by the writer's clock. The clock follows the times of messages, so that the same messages make
    /// the same batches and files.
    start: Instant,
    first_ns: Option<i64>,
    now: Instant,
}

impl RecordingSink {
    pub fn create(folder: &Path) -> eyre::Result<Self> {
        let start = Instant::now();
        Ok(Self {
            writer: Writer::create(folder)?
                .with_arrivals_of_messages()
                .with_batches_of(BATCH_BYTES),
            start,
            first_ns: None,
            now: start,
        })
    }

    /// Returns the arrival time of a message, or its stamp if the arrival is not known, by the writer's clock. This clock never
    /// goes back.
    fn now(&mut self, message: &Message) -> Instant {
        let time_ns = message.arrival_ns.unwrap_or(message.timestamp_ns());
        let since_ns = time_ns.saturating_sub(*self.first_ns.get_or_insert(time_ns));
        let now = self.start.checked_add(Duration::from_nanos(since_ns.max(0) as u64));
        self.now = self.now.max(now.unwrap_or(self.now));
        self.now
    }
}

impl Sink for RecordingSink {
    fn append(&mut self, stream: &str, message: &Message) -> Result<(), Refused> {
        let now = self.now(message);
        match self
            .writer
            .tick(now)
            .and_then(|()| self.writer.append(stream, message, now))
        {
            Ok(()) => Ok(()),
            Err(error @ (WriteError::Io { .. } | WriteError::Lost { .. } | WriteError::Exists { .. })) => {
                Err(Refused::All(error.into()))
            }
            Err(error) => Err(Refused::Message(error.to_string())),
        }
    }

    fn finish(&mut self) -> eyre::Result<Remarks> {
        self.writer.finish()?;
        Ok(Remarks::default())
    }
}
