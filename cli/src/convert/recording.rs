//! Recordings, read and written.

use super::{Problems, Refused, Sink, Source, Told};
use robocache::stream::Message;
use robocache::stream::recording::{Order, Reader, WriteError, Writer};
use std::path::Path;
use std::time::Instant;

/// The messages of a recording, in the order in which they came where that is known, else in that of their stamps.
pub struct RecordingSource {
    reader: Reader,
    names: Vec<String>,
    problems: Problems,
}

impl RecordingSource {
    pub fn open(folder: &Path) -> eyre::Result<Self> {
        let (reader, refused) = Reader::open_readable(folder)?;
        let mut problems = Problems::default();
        refused.iter().for_each(|error| problems.push(error));
        let order = if reader.has_arrivals() {
            Order::Arrival
        } else {
            Order::Stamp
        };
        let reader = reader.in_order(order)?;
        Ok(Self {
            names: reader.streams().map(str::to_owned).collect(),
            reader,
            problems,
        })
    }
}

impl Source for RecordingSource {
    fn next_into(&mut self, message: &mut Message) -> eyre::Result<Option<&str>> {
        loop {
            match self.reader.next_into(message) {
                Ok(stream) => return Ok(stream.map(|stream| self.names[stream].as_str())),
                Err(error) => self.problems.push(error),
            }
        }
    }

    fn told(&mut self) -> Told {
        Told {
            problems: self.problems.take(),
            notes: Vec::new(),
        }
    }

    fn streams(&self) -> Option<Vec<String>> {
        Some(self.names.clone())
    }
}

/// A new recording.
pub struct RecordingSink {
    writer: Writer,
    /// Batches end by their size alone, so that the same messages make the same files.
    now: Instant,
}

impl RecordingSink {
    pub fn create(folder: &Path) -> eyre::Result<Self> {
        Ok(Self {
            writer: Writer::create(folder)?.with_arrivals_of_messages(),
            now: Instant::now(),
        })
    }
}

impl Sink for RecordingSink {
    fn append(&mut self, stream: &str, message: &Message) -> Result<(), Refused> {
        match self.writer.append(stream, message, self.now) {
            Ok(()) => Ok(()),
            Err(error @ (WriteError::Io { .. } | WriteError::Lost { .. } | WriteError::Exists { .. })) => {
                Err(Refused::All(error.into()))
            }
            Err(error) => Err(Refused::Message(error.to_string())),
        }
    }

    fn finish(&mut self) -> eyre::Result<Told> {
        self.writer.finish()?;
        Ok(Told::default())
    }
}
