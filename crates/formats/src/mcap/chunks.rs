//! The records of a new MCAP file: messages in chunks that are not compressed, and at the end where they are.

use super::records::{MAGIC, MOST_BYTES, op};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};

/// A chunk is written when it has this many bytes.
const CHUNK: usize = 1 << 20;

/// Writes a file record by record.
pub(super) struct Chunks {
    file: BufWriter<File>,
    /// Where the next record of the file begins.
    at: u64,
    chunk: Chunk,
    /// The records that the end repeats.
    schemas: Vec<u8>,
    channels: Vec<u8>,
    indices: Vec<u8>,
    counts: BTreeMap<u16, u64>,
    schema_count: u16,
    chunk_count: u32,
    times: Option<(u64, u64)>,
}

/// Messages that are not written yet.
#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    times: Option<(u64, u64)>,
    /// For each channel, the times of its messages and where they begin.
    messages: BTreeMap<u16, Vec<(u64, u64)>>,
}

impl Chunks {
    pub fn new(file: File, library: &str) -> io::Result<Self> {
        let mut new = Self {
            file: BufWriter::with_capacity(1 << 18, file),
            at: 0,
            chunk: Chunk::default(),
            schemas: Vec::new(),
            channels: Vec::new(),
            indices: Vec::new(),
            counts: BTreeMap::new(),
            schema_count: 0,
            chunk_count: 0,
            times: None,
        };
        new.put(&MAGIC)?;
        let mut body = Vec::new();
        text(&mut body, "ros2");
        text(&mut body, library);
        new.put(&record(op::HEADER, &body))?;
        Ok(new)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Adds a schema, and returns its number.
    pub fn schema(&mut self, name: &str, data: &str) -> u16 {
        self.schema_count += 1;
        let mut body = self.schema_count.to_le_bytes().to_vec();
        text(&mut body, name);
        text(&mut body, "ros2msg");
        text(&mut body, data);
        let schema = record(op::SCHEMA, &body);
        self.schemas.extend_from_slice(&schema);
        self.chunk.bytes.extend_from_slice(&schema);
        self.schema_count
    }

    /// Adds a channel, and returns its number.
    pub fn channel(&mut self, schema: u16, topic: &str, metadata: &[(&str, &str)]) -> u16 {
        let id = self.counts.len() as u16;
        self.counts.insert(id, 0);
        let mut body = id.to_le_bytes().to_vec();
        body.extend(schema.to_le_bytes());
        text(&mut body, topic);
        text(&mut body, "cdr");
        let mut entries = Vec::new();
        for (name, value) in metadata {
            text(&mut entries, name);
            text(&mut entries, value);
        }
        body.extend((entries.len() as u32).to_le_bytes());
        body.extend(entries);
        let channel = record(op::CHANNEL, &body);
        self.channels.extend_from_slice(&channel);
        self.chunk.bytes.extend_from_slice(&channel);
        id
    }

    /// Adds a message.
    pub fn message(&mut self, channel: u16, log_time: u64, publish_time: u64, data: &[u8]) -> io::Result<()> {
        // A reader takes no larger chunk.
        if (self.chunk.bytes.len() + data.len()) as u64 > MOST_BYTES - 4096 {
            self.end_chunk()?;
        }
        let sequence = self.counts.entry(channel).or_default();
        *sequence += 1;
        let sequence = *sequence as u32 - 1;
        let span = |times: Option<(u64, u64)>| {
            let (first, last) = times.unwrap_or((log_time, log_time));
            Some((first.min(log_time), last.max(log_time)))
        };
        self.times = span(self.times);
        let chunk = &mut self.chunk;
        chunk.times = span(chunk.times);
        let at = chunk.bytes.len() as u64;
        chunk.messages.entry(channel).or_default().push((log_time, at));
        chunk.bytes.push(op::MESSAGE);
        chunk.bytes.extend((22 + data.len() as u64).to_le_bytes());
        chunk.bytes.extend(channel.to_le_bytes());
        chunk.bytes.extend(sequence.to_le_bytes());
        chunk.bytes.extend(log_time.to_le_bytes());
        chunk.bytes.extend(publish_time.to_le_bytes());
        chunk.bytes.extend_from_slice(data);
        if chunk.bytes.len() >= CHUNK {
            self.end_chunk()
        } else {
            Ok(())
        }
    }

    fn end_chunk(&mut self) -> io::Result<()> {
        let mut chunk = std::mem::take(&mut self.chunk);
        if chunk.bytes.is_empty() {
            return Ok(());
        }
        let (start, end) = chunk.times.unwrap_or((0, 0));
        let size = chunk.bytes.len() as u64;
        let began = self.at;
        let mut head = Vec::new();
        for number in [start, end, size] {
            head.extend(number.to_le_bytes());
        }
        head.extend(crc32fast::hash(&chunk.bytes).to_le_bytes());
        text(&mut head, "");
        head.extend(size.to_le_bytes());
        let length = head.len() as u64 + size;
        self.put(&[op::CHUNK])?;
        self.put(&length.to_le_bytes())?;
        self.put(&head)?;
        self.put(&chunk.bytes)?;
        let ended = self.at;

        let mut places = Vec::new();
        for (channel, messages) in &chunk.messages {
            places.extend(channel.to_le_bytes());
            places.extend(self.at.to_le_bytes());
            let mut body = channel.to_le_bytes().to_vec();
            body.extend((16 * messages.len() as u32).to_le_bytes());
            for (time, at) in messages {
                body.extend(time.to_le_bytes());
                body.extend(at.to_le_bytes());
            }
            self.put(&record(op::MESSAGE_INDEX, &body))?;
        }
        let mut body = Vec::new();
        for number in [start, end, began, ended - began] {
            body.extend(number.to_le_bytes());
        }
        body.extend((places.len() as u32).to_le_bytes());
        body.extend(places);
        body.extend((self.at - ended).to_le_bytes());
        text(&mut body, "");
        body.extend(size.to_le_bytes());
        body.extend(size.to_le_bytes());
        self.indices.extend(record(op::CHUNK_INDEX, &body));
        self.chunk_count += 1;
        chunk.bytes.clear();
        self.chunk.bytes = chunk.bytes;
        Ok(())
    }

    /// Ends the file, and waits until the system has put it on the disk.
    pub fn finish(&mut self) -> io::Result<()> {
        self.end_chunk()?;
        self.put(&record(op::DATA_END, &0u32.to_le_bytes()))?;
        let start = self.at;
        let mut summary = Vec::new();
        let mut offsets = Vec::new();
        for (kind, group) in [
            (op::SCHEMA, std::mem::take(&mut self.schemas)),
            (op::CHANNEL, std::mem::take(&mut self.channels)),
            (op::CHUNK_INDEX, std::mem::take(&mut self.indices)),
            (op::STATISTICS, self.statistics()),
        ] {
            if !group.is_empty() {
                let mut body = vec![kind];
                body.extend((start + summary.len() as u64).to_le_bytes());
                body.extend((group.len() as u64).to_le_bytes());
                offsets.extend(record(op::SUMMARY_OFFSET, &body));
                summary.extend(group);
            }
        }
        let offsets_start = start + summary.len() as u64;
        summary.extend(offsets);
        summary.push(op::FOOTER);
        summary.extend(20u64.to_le_bytes());
        summary.extend(start.to_le_bytes());
        summary.extend(offsets_start.to_le_bytes());
        summary.extend(crc32fast::hash(&summary).to_le_bytes());
        summary.extend(MAGIC);
        self.put(&summary)?;
        self.file.flush()?;
        self.file.get_ref().sync_all()
    }

    fn statistics(&self) -> Vec<u8> {
        let (first, last) = self.times.unwrap_or((0, 0));
        let mut body = self.counts.values().sum::<u64>().to_le_bytes().to_vec();
        body.extend(self.schema_count.to_le_bytes());
        // Channels, attachments, metadata, chunks.
        for number in [self.counts.len() as u32, 0, 0, self.chunk_count] {
            body.extend(number.to_le_bytes());
        }
        body.extend(first.to_le_bytes());
        body.extend(last.to_le_bytes());
        body.extend((10 * self.counts.len() as u32).to_le_bytes());
        for (channel, count) in &self.counts {
            body.extend(channel.to_le_bytes());
            body.extend(count.to_le_bytes());
        }
        record(op::STATISTICS, &body)
    }
}

fn record(op: u8, body: &[u8]) -> Vec<u8> {
    let mut record = vec![op];
    record.extend((body.len() as u64).to_le_bytes());
    record.extend_from_slice(body);
    record
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u32).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}
