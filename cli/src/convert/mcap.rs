//! Source and sink of MCAP files; the source reads folders of rosbag2, too. A message that can't be read is reported, and the
//! reading goes on.

use super::{Problems, Refused, Remarks, Sink, Source};
use robocache::formats::mcap::{Reader, Writer};
use robocache::stream::{Message, Selection, TimeUnit};
use std::path::Path;

/// Source of the messages of a bag, in the order of its files.
pub struct McapSource {
    reader: Reader,
    problems: Problems,
}

impl McapSource {
    /// Opens a bag. `unit` is the unit of stamps that are plain numbers. `selections` are the columns that a configuration reads of
    /// its inputs.
    pub fn open(path: &Path, unit: Option<TimeUnit>, selections: &[(String, Selection)]) -> eyre::Result<Self> {
        let mut reader = Reader::open(path)?;
        if let Some(unit) = unit {
            reader = reader.with_unit(unit);
        }
        for (input, selection) in selections {
            reader = reader.with_selection(input, selection.clone());
        }
        Ok(Self {
            reader,
            problems: Problems::default(),
        })
    }
}

impl Source for McapSource {
    fn next_into(&mut self, message: &mut Message) -> eyre::Result<Option<&str>> {
        loop {
            match self.reader.next_into(message) {
                Ok(stream) => return Ok(stream.map(|stream| self.reader.stream(stream))),
                Err(error) => self.problems.push(error),
            }
        }
    }

    fn remarks(&mut self) -> Remarks {
        self.reader
            .broken()
            .into_iter()
            .for_each(|line| self.problems.push(line));
        Remarks {
            problems: self.problems.take(),
            notes: self.reader.left_out(),
        }
    }
}

impl Sink for Writer {
    fn append(&mut self, stream: &str, message: &Message) -> Result<(), Refused> {
        Ok(self.append(stream, message)?)
    }

    fn finish(&mut self) -> eyre::Result<Remarks> {
        self.finish()?;
        Ok(Remarks::default())
    }
}
