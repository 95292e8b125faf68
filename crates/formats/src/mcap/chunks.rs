//! Writer of an MCAP file: messages in uncompressed chunks, and an index of the chunks at the end. A file that was not finished
//! can be read up to its last complete chunk.

use super::record::MOST_BYTES;
use mcap::records::MessageHeader;
use mcap::write::NoSeek;
use mcap::{McapError, WriteOptions};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter};

/// Writer of schemas, channels and messages of ROS 2 in CDR to an MCAP file.
pub(super) struct Chunks {
    /// The writer of the crate `mcap`; `None` after the file is finished.
    writer: Option<mcap::Writer<NoSeek<BufWriter<File>>>>,
    /// Sequence number of the next message of each channel, by the channel's id.
    sequences: BTreeMap<u16, u32>,
}

impl Chunks {
    pub(super) fn new(file: File, library: &str) -> io::Result<Self> {
        let options = WriteOptions::new()
            .compression(None)
            .profile("ros2")
            .library(library)
            // Chunks are written as a whole, so that those of a file without an end are whole.
            .disable_seeking(true)
            // Each chunk has a CRC of its own.
            .calculate_data_section_crc(false);
        let file = NoSeek::new(BufWriter::with_capacity(1 << 18, file));
        Ok(Self {
            writer: Some(options.create(file).map_err(io_error)?),
            sequences: BTreeMap::new(),
        })
    }

    fn writer(&mut self) -> io::Result<&mut mcap::Writer<NoSeek<BufWriter<File>>>> {
        let finished = || io::Error::other("the file is finished (allowed: messages before that)");
        self.writer.as_mut().ok_or_else(finished)
    }

    /// Adds a channel and its schema, if they are new. Returns the id of the channel.
    pub(super) fn channel(
        &mut self,
        kind: &str,
        schema: &str,
        topic: &str,
        metadata: [(&str, &str); 2],
    ) -> io::Result<u16> {
        let writer = self.writer()?;
        let metadata = metadata.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let schema = writer.add_schema(kind, "ros2msg", schema.as_bytes());
        let channel = schema.and_then(|schema| writer.add_channel(schema, topic, "cdr", &metadata.into()));
        channel.map_err(io_error)
    }

    /// Adds a message to a channel. Times are ns.
    pub(super) fn message(&mut self, channel_id: u16, log_time: u64, publish_time: u64, data: &[u8]) -> io::Result<()> {
        let next = self.sequences.entry(channel_id).or_default();
        let sequence = *next;
        *next = next.wrapping_add(1);
        let header = MessageHeader {
            channel_id,
            sequence,
            log_time,
            publish_time,
        };
        let writer = self.writer()?;
        // A reader refuses chunks of more than `MOST_BYTES`: a large message begins a new chunk.
        if data.len() as u64 > MOST_BYTES / 2 {
            writer.flush().map_err(io_error)?;
        }
        writer.write_to_known_channel(&header, data).map_err(io_error)
    }

    /// Ends the file, and waits until the system has put the file on the disk. A second call does nothing.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let Some(mut writer) = self.writer.take() else {
            return Ok(());
        };
        let finished = writer.finish().map_err(io_error);
        let file = writer.into_inner().into_inner().into_inner();
        finished.and_then(|_| file?.sync_all())
    }
}

impl Drop for Chunks {
    /// Drops the writer of an unfinished file, without the summary and the footer that the crate `mcap` would write.
    fn drop(&mut self) {
        drop(self.writer.take().map(mcap::Writer::into_inner));
    }
}

fn io_error(error: McapError) -> io::Error {
    match error {
        McapError::Io(error) => error,
        other => io::Error::other(other),
    }
}
