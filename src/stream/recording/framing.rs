//! The frame of an Arrow IPC file: `ARROW1`, a stream of messages, an end marker, and a footer that says where they are.
//!
//! The contents of messages are Arrow's own code's; this is what it has no door to: a file that has a footer while it
//! still grows, and one that is read although it has none.

use arrow::datatypes::Schema;
use arrow::error::ArrowError;
use arrow::ipc::convert::IpcSchemaEncoder;
use arrow::ipc::{Block, FooterBuilder, MetadataVersion, root_as_footer, root_as_message};
use flatbuffers::FlatBufferBuilder;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

/// What a file starts with, padded to the eight bytes that messages are aligned to.
pub(super) const START: [u8; 8] = *b"ARROW1\0\0";
const MAGIC: &[u8] = b"ARROW1";
const CONTINUATION: [u8; 4] = [0xff; 4];
/// A continuation and a message without length.
const END_OF_STREAM: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
/// The length of a footer, and the magic.
const TAIL: usize = 4 + MAGIC.len();

/// Appends what comes after the last batch: the end of the stream and the footer.
pub(super) fn push_footer(out: &mut Vec<u8>, schema: &Schema, blocks: &[Block]) {
    let mut builder = FlatBufferBuilder::new();
    let dictionaries = builder.create_vector::<Block>(&[]);
    let batches = builder.create_vector(blocks);
    let schema = IpcSchemaEncoder::new().schema_to_fb_offset(&mut builder, schema);
    let mut footer = FooterBuilder::new(&mut builder);
    footer.add_version(MetadataVersion::V5);
    footer.add_schema(schema);
    footer.add_dictionaries(dictionaries);
    footer.add_recordBatches(batches);
    let footer = footer.finish();
    builder.finish(footer, None);
    let footer = builder.finished_data();
    out.extend_from_slice(&END_OF_STREAM);
    out.extend_from_slice(footer);
    out.extend_from_slice(&(footer.len() as i32).to_le_bytes());
    out.extend_from_slice(MAGIC);
}

/// The block of a message of `bytes` that starts at `offset` of a file.
pub(super) fn block(offset: u64, bytes: &[u8]) -> Block {
    let header = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    let metadata = 8 + header as usize;
    Block::new(offset as i64, metadata as i32, (bytes.len() - metadata) as i64)
}

/// The messages of a file, from its start.
pub(super) struct Messages {
    file: BufReader<File>,
    at: u64,
    len: u64,
}

/// Why there is no further message.
#[derive(Debug)]
pub(super) enum Stop {
    /// The stream ends here.
    End,
    /// What follows is no whole message.
    Torn(String),
    Io(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Torn("the file ends within a message".to_owned()),
            _ => Self::Io(error),
        }
    }
}

impl From<ArrowError> for Stop {
    fn from(error: ArrowError) -> Self {
        Self::Torn(error.to_string())
    }
}

/// A file, and what its footer says.
pub(super) struct Opened {
    pub messages: Messages,
    /// How many batches the footer counts; `None` without a valid footer.
    pub batches: Option<usize>,
}

/// Opens a file; `None` if it is no Arrow IPC file. One that breaks off within its first bytes is one without messages.
pub(super) fn open(mut file: File) -> io::Result<Option<Opened>> {
    let len = file.seek(SeekFrom::End(0))?;
    let batches = footer_batches(&mut file, len)?;
    file.seek(SeekFrom::Start(0))?;
    let mut file = BufReader::new(file);
    let mut start = [0; START.len()];
    let there = start.len().min(len as usize);
    file.read_exact(&mut start[..there])?;
    let magic = there.min(MAGIC.len());
    if start[..magic] != MAGIC[..magic] {
        return Ok(None);
    }
    let messages = Messages {
        file,
        at: there as u64,
        len,
    };
    Ok(Some(Opened { messages, batches }))
}

fn footer_batches(file: &mut File, len: u64) -> io::Result<Option<usize>> {
    let Some(tail_at) = len.checked_sub(TAIL as u64).filter(|&at| at >= START.len() as u64) else {
        return Ok(None);
    };
    let mut tail = [0; TAIL];
    file.seek(SeekFrom::Start(tail_at))?;
    file.read_exact(&mut tail)?;
    let [a, b, c, d, magic @ ..] = tail;
    let footer_len = u64::from(u32::from_le_bytes([a, b, c, d]));
    let footer_at = tail_at.checked_sub(footer_len).filter(|&at| at >= START.len() as u64);
    let (true, Some(footer_at)) = (magic == MAGIC, footer_at) else {
        return Ok(None);
    };
    let mut footer = vec![0; footer_len as usize];
    file.seek(SeekFrom::Start(footer_at))?;
    file.read_exact(&mut footer)?;
    let count = |footer: arrow::ipc::Footer<'_>| footer.recordBatches().map_or(0, |blocks| blocks.len());
    Ok(root_as_footer(&footer).ok().map(count))
}

impl Messages {
    /// Where the next message starts.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The bytes of the next message, whole and well formed.
    pub fn next(&mut self) -> Result<Vec<u8>, Stop> {
        let mut prefix = [0; 8];
        if self.at == self.len {
            return Err(Stop::Torn("the stream has no end".to_owned()));
        }
        self.file.read_exact(&mut prefix)?;
        // Some writers pad the magic to a cache line, with zeros that no message starts with.
        while prefix == [0; 8] && self.at < 64 {
            self.at += 8;
            self.file.read_exact(&mut prefix)?;
        }
        if prefix == END_OF_STREAM {
            return Err(Stop::End);
        }
        let [a, b, c, d, size @ ..] = prefix;
        if [a, b, c, d] != CONTINUATION {
            return Err(Stop::Torn("no message starts here".to_owned()));
        }
        let rest = self.len - self.at - 8;
        let size = u64::from(u32::from_le_bytes(size));
        if size > rest {
            return Err(Stop::Torn(format!(
                "a header of {size} bytes, {rest} bytes before the file's end"
            )));
        }
        let mut bytes = prefix.to_vec();
        bytes.resize(8 + size as usize, 0);
        self.file.read_exact(&mut bytes[8..])?;
        let header = root_as_message(&bytes[8..]).map_err(|error| Stop::Torn(error.to_string()))?;
        let body = u64::try_from(header.bodyLength())
            .ok()
            .filter(|&body| body <= rest - size);
        let Some(body) = body else {
            return Err(Stop::Torn("the file ends within a message".to_owned()));
        };
        let header = bytes.len();
        bytes.resize(header + body as usize, 0);
        self.file.read_exact(&mut bytes[header..])?;
        self.at += bytes.len() as u64;
        Ok(bytes)
    }
}
