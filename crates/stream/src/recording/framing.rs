//! The framing of an Arrow IPC file: `ARROW1`, a stream of Arrow messages, an end marker, and a footer with the offset of
//! each batch.
//!
//! The Arrow crate encodes and decodes the messages. This module adds what that crate lacks: a footer in a file that still
//! grows, and reading of a file without a footer.
//!
//! A length in a file is compared with the size of the file before memory is allocated for it. Damaged bytes result in
//! a `Stop`.

use super::sparse::Sparse;
use arrow_buffer::Buffer;
use arrow_ipc::convert::{IpcSchemaEncoder, fb_to_schema};
use arrow_ipc::{
    self, Block, Endianness, Footer, FooterBuilder, KeyValueBuilder, Message, MessageHeader, MetadataVersion,
    RecordBatch, Type, root_as_footer, root_as_message,
};
use arrow_schema::{ArrowError, DataType, Fields, Schema, SchemaRef};
use flatbuffers::FlatBufferBuilder;
use robocache_device::HostBuf;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// First bytes of a file: the magic `ARROW1`, padded to 8 bytes because Arrow messages are aligned to 8.
pub(super) const START: [u8; 8] = *b"ARROW1\0\0";
const MAGIC: &[u8] = b"ARROW1";
const CONTINUATION: [u8; 4] = [0xff; 4];
/// End marker of the Arrow stream: a continuation marker and a length of 0.
const END_OF_STREAM: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
/// Number of bytes after the footer: 4 for the length of the footer, then the magic.
const TAIL: usize = 4 + MAGIC.len();
/// Size of a batch's entry in a footer, bytes.
pub(super) const BLOCK: usize = size_of::<Block>();
/// Longest footer that is read without a check for the end marker before it, bytes. The check keeps a wrong length in a damaged
/// file from causing a large allocation.
const SHORT_FOOTER: u64 = 1 << 20;
/// Longest accepted header of an Arrow message, bytes. Earlier versions stored the metadata of all rows in the header of a
/// batch, each of at most [`MOST_METADATA`].
const LONGEST_HEADER: u64 = 64 << 20;
/// Greatest size of one recorded message's metadata as text, bytes.
pub(super) const MOST_METADATA: usize = 16 << 20;
/// Alignment of the buffers in the body of an Arrow message, bytes.
const ALIGNMENT: i64 = 8;
/// Greatest accepted padding in a body, bytes: the bytes behind its last buffer.
const PADDING: u64 = 4096;
/// Longest body that is read at once even if `Messages::leaves_elements` is set, bytes. A body this short is not worth one read
/// per buffer.
const SHORT_BODY: u64 = 1 << 16;

/// Metadata key in a footer that marks the file as unfinished. The final footer of a file lacks this key.
const OPEN: &str = "robocache.open";

/// Appends the end marker of the Arrow stream, and a footer that lists `blocks`. If `goes_on`, the footer marks the file as
/// unfinished.
pub(super) fn push_footer(out: &mut Vec<u8>, schema: &Schema, blocks: &[Block], goes_on: bool) {
    let mut builder = FlatBufferBuilder::new();
    let dictionaries = builder.create_vector::<Block>(&[]);
    let batches = builder.create_vector(blocks);
    let schema = IpcSchemaEncoder::new().schema_to_fb_offset(&mut builder, schema);
    let open = goes_on.then(|| {
        let (key, value) = (builder.create_string(OPEN), builder.create_string("true"));
        let mut entry = KeyValueBuilder::new(&mut builder);
        entry.add_key(key);
        entry.add_value(value);
        let entry = entry.finish();
        builder.create_vector(&[entry])
    });
    let mut footer = FooterBuilder::new(&mut builder);
    footer.add_version(MetadataVersion::V5);
    footer.add_schema(schema);
    footer.add_dictionaries(dictionaries);
    footer.add_recordBatches(batches);
    if let Some(open) = open {
        footer.add_custom_metadata(open);
    }
    let footer = footer.finish();
    builder.finish(footer, None);
    let footer = builder.finished_data();
    out.extend_from_slice(&END_OF_STREAM);
    out.extend_from_slice(footer);
    out.extend_from_slice(&(footer.len() as i32).to_le_bytes());
    out.extend_from_slice(MAGIC);
}

/// Returns the footer's entry for an Arrow message at `offset` in a file; `bytes` is the message.
pub(super) fn block(offset: u64, bytes: &[u8]) -> Block {
    let header = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    let metadata = 8 + header as usize;
    Block::new(offset as i64, metadata as i32, (bytes.len() - metadata) as i64)
}

/// Reader of the Arrow messages of a file, from its start.
///
/// Each read gives the operating system an explicit offset, because a forked process shares the file's position.
pub(super) struct Messages {
    file: Arc<File>,
    /// Offset of the next Arrow message in the file, bytes.
    pub at: u64,
    len: u64,
    /// Contents of the footer; `None` if the file has no valid footer.
    footer: Option<FooterParts>,
    /// True if the elements of long batches are not loaded with the batch, but when a row needs them.
    leaves_elements: bool,
}

/// Contents of a footer that a reader needs.
struct FooterParts {
    /// Positions of the batches, in file order.
    batches: Vec<Span>,
    /// Schema, which repeats the schema at the start of the file; `None` if it can't be read.
    schema: Option<SchemaRef>,
    /// True if the footer marks the file as unfinished: its recorder still writes it, or died.
    is_open: bool,
}

/// Offset and size of a batch in a file, bytes.
#[derive(Clone, Copy)]
struct Span {
    at: u64,
    len: u64,
}

/// The reason why the next Arrow message can't be read.
#[derive(Debug)]
pub(super) enum Stop {
    /// The end marker of the Arrow stream follows, so the file has no further message.
    End,
    /// The bytes that follow are not a whole Arrow message; the text is the reason.
    Torn(String),
    /// The Arrow message is whole, but its contents are not valid; the text is the reason.
    Bad(String),
    /// The contents of the Arrow message are compressed, with the codec of this name.
    Compressed(&'static str),
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
        Self::Bad(error.to_string())
    }
}

/// A whole Arrow message of a file: its header, and its body or the offset of the body in the file.
pub(super) struct Frame {
    header: Vec<u8>,
    body: Body,
}

enum Body {
    Read(Buffer),
    /// Body that was not loaded: `bytes` bytes of the file, from offset `at` on.
    Left {
        file: Arc<File>,
        at: u64,
        bytes: usize,
    },
}

impl Frame {
    /// Parses the header of the Arrow message, which describes its body.
    pub(super) fn header(&self) -> Result<Message<'_>, Stop> {
        root_as_message(&self.header).map_err(|error| Stop::Bad(error.to_string()))
    }

    /// Returns the body of a batch. If the body was not loaded, its buffers are read now, except the ranges `elements`, which
    /// are zeros in the returned body. The second value reads these elements later; `None` if the body is complete.
    pub(super) fn body(
        &self,
        batch: &RecordBatch<'_>,
        elements: &[BufferRange],
    ) -> Result<(Buffer, Option<Elements>), Stop> {
        let (file, at, bytes) = match &self.body {
            Body::Read(body) => return Ok((body.clone(), None)),
            &Body::Left { ref file, at, bytes } => (file, at, bytes),
        };
        let mut body = Sparse::new(bytes)?;
        for part in batch
            .buffers()
            .into_iter()
            .flatten()
            .filter(|part| !elements.contains(part))
        {
            let (from, len) = (part.offset() as usize, part.length() as usize);
            file.read_exact_at(&mut body.bytes_mut()[from..from + len], at + from as u64)?;
        }
        let (body, file) = (body.into_buffer(), file.clone());
        Ok((body.clone(), Some(Elements { file, at, body })))
    }
}

/// Elements of a batch that were not loaded with it, to be read from the file later.
pub(super) struct Elements {
    file: Arc<File>,
    /// Offset of the batch's body in the file, bytes.
    at: u64,
    body: Buffer,
}

impl Elements {
    /// Reads elements from the file into `into`. `place` is the slice of zeros that stands for them in the body that
    /// `Frame::body` returned.
    pub(super) fn read(&self, place: &[u8], into: &mut HostBuf) -> io::Result<()> {
        into.resize(place.len());
        if place.is_empty() {
            return Ok(());
        }
        let from = (place.as_ptr() as usize).checked_sub(self.body.as_ptr() as usize);
        let from = from.filter(|from| from + place.len() <= self.body.len());
        let from = from.ok_or_else(|| io::Error::other("an array that is not of its batch"))?;
        self.file.read_exact_at(into.bytes_mut(), self.at + from as u64)
    }
}

/// Opens a file to read its Arrow messages; `None` if the file is not an Arrow IPC file. A file that ends within its first 8
/// bytes has no messages.
pub(super) fn open(file: File) -> io::Result<Option<Messages>> {
    let len = file.metadata()?.len();
    let footer = footer(&file, len)?;
    let mut start = [0; START.len()];
    let there = start.len().min(len as usize);
    file.read_exact_at(&mut start[..there], 0)?;
    let magic = there.min(MAGIC.len());
    if start[..magic] != MAGIC[..magic] {
        return Ok(None);
    }
    Ok(Some(Messages {
        file: Arc::new(file),
        at: there as u64,
        len,
        footer,
        leaves_elements: false,
    }))
}

/// Reads the footer of a file; `None` if it is not valid.
fn footer(file: &File, len: u64) -> io::Result<Option<FooterParts>> {
    let Some(tail_at) = len.checked_sub(TAIL as u64).filter(|&at| at >= START.len() as u64) else {
        return Ok(None);
    };
    let mut tail = [0; TAIL];
    file.read_exact_at(&mut tail, tail_at)?;
    let [a, b, c, d, magic @ ..] = tail;
    let footer_len = u64::from(u32::from_le_bytes([a, b, c, d]));
    let footer_at = tail_at.checked_sub(footer_len).filter(|&at| at >= START.len() as u64);
    let (true, Some(footer_at)) = (magic == MAGIC, footer_at) else {
        return Ok(None);
    };
    // Don't allocate a wrong length: a long footer must follow an end of stream.
    if footer_len > SHORT_FOOTER {
        let mut end = [0; END_OF_STREAM.len()];
        file.read_exact_at(&mut end, footer_at - END_OF_STREAM.len() as u64)?;
        if end != END_OF_STREAM {
            return Ok(None);
        }
    }
    let mut footer = vec![0; footer_len as usize];
    file.read_exact_at(&mut footer, footer_at)?;
    let Ok(footer) = root_as_footer(&footer) else {
        return Ok(None);
    };
    let mut entries = footer.custom_metadata().into_iter().flatten();
    let is_open = entries.any(|entry| entry.key() == Some(OPEN));
    // The Arrow crate panics on some schemas of damaged footers.
    let read = |schema| catch_unwind(AssertUnwindSafe(|| Arc::new(fb_to_schema(schema)))).ok();
    let schema = footer.schema().filter(is_readable).and_then(read);
    Ok(spans(&footer, footer_at).map(|batches| FooterParts {
        batches,
        schema,
        is_open,
    }))
}

/// The positions of the batches in a footer, in file order; `None` if the footer contradicts the file.
fn spans(footer: &Footer<'_>, footer_at: u64) -> Option<Vec<Span>> {
    let mut spans = Vec::new();
    for block in footer.recordBatches().into_iter().flatten() {
        let at = u64::try_from(block.offset()).ok()?;
        let len = u64::try_from(i64::from(block.metaDataLength()).checked_add(block.bodyLength())?).ok()?;
        let fits = at >= START.len() as u64 && block.bodyLength() >= 0 && at.checked_add(len)? <= footer_at;
        fits.then(|| spans.push(Span { at, len }))?;
    }
    spans.sort_unstable_by_key(|span| span.at);
    Some(spans)
}

impl Messages {
    /// Changes later calls of `next`: the elements of long batches are not loaded with the batch, but when a row needs them.
    pub(super) fn leave_elements(&mut self) {
        self.leaves_elements = true;
    }

    /// The schema in the footer, a copy of the schema at the start of the file; `None` without a valid footer.
    pub(super) fn schema_of_footer(&self) -> Option<SchemaRef> {
        self.footer.as_ref()?.schema.clone()
    }

    /// True if the file has a valid footer that marks the file as unfinished.
    pub(super) fn is_open(&self) -> bool {
        self.footer.as_ref().is_some_and(|footer| footer.is_open)
    }

    /// The number of bytes from the next Arrow message to the end of the file.
    pub(super) fn left(&self) -> u64 {
        self.len.saturating_sub(self.at)
    }

    /// The number of batches that the footer lists; `None` without a valid footer.
    pub(super) fn expected(&self) -> Option<usize> {
        self.footer.as_ref().map(|footer| footer.batches.len())
    }

    /// Moves to the next batch that the footer lists. Returns false, and does not move, if the footer lists no further batch.
    pub(super) fn skip(&mut self) -> bool {
        let mut batches = self.footer.iter().flat_map(|footer| &footer.batches);
        let next = batches.find(|span| span.at > self.at).map(|span| span.at);
        self.at = next.unwrap_or(self.at);
        next.is_some()
    }

    /// Reads the next Arrow message, and moves behind it. After an error the position is unchanged.
    pub(super) fn next(&mut self) -> Result<Frame, Stop> {
        let mut prefix = [0; 8];
        if self.at == self.len {
            return Err(Stop::Torn("the stream lacks its end marker".to_owned()));
        }
        self.file.read_exact_at(&mut prefix, self.at)?;
        // Some writers pad the magic to a cache line, with zeros that no message starts with.
        while prefix == [0; 8] && self.at < 64 {
            self.at += 8;
            self.file.read_exact_at(&mut prefix, self.at)?;
        }
        if prefix == END_OF_STREAM {
            return Err(Stop::End);
        }
        let [a, b, c, d, size @ ..] = prefix;
        if [a, b, c, d] != CONTINUATION {
            return Err(Stop::Torn("no message starts here".to_owned()));
        }
        let rest = self.left().saturating_sub(8);
        let size = u64::from(u32::from_le_bytes(size));
        if size > rest.min(LONGEST_HEADER) {
            return Err(Stop::Torn(format!(
                "a header of {size} bytes (allowed: at most the {rest} up to the end of the file, and at most {LONGEST_HEADER})"
            )));
        }
        let mut header = vec![0; size as usize];
        self.file.read_exact_at(&mut header, self.at + 8)?;
        let message = root_as_message(&header).map_err(|error| Stop::Torn(error.to_string()))?;
        let body = body_length(&message)?;
        if body > rest - size {
            return Err(Stop::Torn("the file ends within a message".to_owned()));
        }
        let len = 8 + size + body;
        let known = self.footer.as_ref().and_then(|footer| {
            let at = footer.batches.binary_search_by_key(&self.at, |span| span.at);
            at.ok().map(|at| footer.batches[at].len)
        });
        if let Some(known) = known.filter(|&known| known != len) {
            return Err(Stop::Torn(format!("a message of {len} bytes, the footer has {known}")));
        }
        let body = self.body(self.at + 8 + size, body)?;
        self.at += len;
        Ok(Frame { header, body })
    }

    /// Reads the body of an Arrow message, `bytes` bytes at offset `at`. A long body is not read if `leaves_elements` is set.
    fn body(&self, at: u64, bytes: u64) -> io::Result<Body> {
        if self.leaves_elements && bytes > SHORT_BODY {
            let (file, bytes) = (self.file.clone(), bytes as usize);
            return Ok(Body::Left { file, at, bytes });
        }
        let mut copy = vec![0; bytes as usize];
        self.file.read_exact_at(&mut copy, at)?;
        Ok(Body::Read(Buffer::from_vec(copy)))
    }
}

/// Returns the length of an Arrow message's body, bytes. Checks the length against the buffers of the body, so that a damaged
/// file can't cause a large allocation.
fn body_length(message: &Message<'_>) -> Result<u64, Stop> {
    let batch = match message.header_type() {
        MessageHeader::DictionaryBatch => message.header_as_dictionary_batch().and_then(|batch| batch.data()),
        _ => message.header_as_record_batch(),
    };
    let torn = |problem: &str| Stop::Torn(problem.to_owned());
    let body = u64::try_from(message.bodyLength()).map_err(|_| torn("a body of negative length"))?;
    if let Some(compression) = batch.and_then(|batch| batch.compression()) {
        let codec = compression.codec();
        return Err(Stop::Compressed(codec.variant_name().unwrap_or("an unknown codec")));
    }
    let mut end = 0;
    for buffer in batch.and_then(|batch| batch.buffers()).into_iter().flatten() {
        let (at, length) = (buffer.offset(), buffer.length());
        let there = u64::try_from(at).ok().zip(u64::try_from(length).ok());
        let there = there
            .and_then(|(at, length)| at.checked_add(length))
            .filter(|&end| end <= body);
        let there = there.ok_or_else(|| torn("a part of a batch lies outside the batch"))?;
        if length > 0 && (at % ALIGNMENT != 0 || (at as u64) < end) {
            return Err(Stop::Torn(format!(
                "a part of a batch at byte {at} of its body (allowed: a multiple of {ALIGNMENT}, behind the part before it, \
                 which ends at {end})"
            )));
        }
        end = there.max(end);
    }
    for node in batch.and_then(|batch| batch.nodes()).into_iter().flatten() {
        if !(0..=node.length()).contains(&node.null_count()) {
            return Err(torn("a column has more nulls than rows"));
        }
    }
    if body - end > PADDING {
        return Err(Stop::Torn(format!("a body of {body} bytes whose parts take {end}")));
    }
    Ok(body)
}

/// True if the Arrow crate can convert this schema without a panic.
pub(super) fn is_readable(schema: &arrow_ipc::Schema<'_>) -> bool {
    // The depth is bounded, as the message has been verified.
    fn fits(field: arrow_ipc::Field<'_>) -> bool {
        let children = field.children();
        let is_unit = |unit: arrow_ipc::TimeUnit| unit.variant_name().is_some();
        let is_int = |int: arrow_ipc::Int<'_>| matches!(int.bitWidth(), 8 | 16 | 32 | 64);
        let fits_itself = match field.type_type() {
            Type::NONE => false,
            Type::Int => field.type_as_int().is_some_and(is_int),
            Type::FloatingPoint => {
                let float = field.type_as_floating_point();
                float.is_some_and(|float| float.precision().variant_name().is_some())
            }
            Type::Timestamp => field.type_as_timestamp().is_some_and(|time| is_unit(time.unit())),
            Type::Duration => field.type_as_duration().is_some_and(|time| is_unit(time.unit())),
            Type::List | Type::LargeList | Type::FixedSizeList => children.is_some_and(|children| children.len() == 1),
            other => other.variant_name().is_some(),
        };
        let is_index = |dictionary: arrow_ipc::DictionaryEncoding<'_>| dictionary.indexType().is_some_and(is_int);
        field.name().is_some()
            && fits_itself
            && field.dictionary().is_none_or(is_index)
            && children.into_iter().flatten().all(fits)
    }
    schema.endianness() == Endianness::Little && schema.fields().is_some_and(|fields| fields.iter().all(fits))
}

/// Offset and length of a buffer in the body of an Arrow message, bytes.
pub(super) type BufferRange = arrow_ipc::Buffer;

/// True if every column of a batch has at most 2^31 - 1 rows and, if it has nulls, a null mask that covers all rows. Arrow's code
/// relies on this. Returns `None` if a column has a type that a recording does not use.
///
/// Appends to `elements` the index of each column that holds primitive elements, with the buffer of these elements.
pub(super) fn lengths_fit(
    batch: &RecordBatch<'_>,
    fields: &Fields,
    elements: &mut Vec<(usize, BufferRange)>,
) -> Option<bool> {
    let (nodes, buffers) = (batch.nodes()?, batch.buffers()?);
    let (mut nodes, mut buffers) = (nodes.iter(), buffers.iter());
    for (column, field) in fields.iter().enumerate() {
        let mut of = Some(field.data_type());
        while let Some(data_type) = of {
            let (node, nulls) = (nodes.next()?, buffers.next()?);
            let bits = if node.null_count() > 0 {
                nulls.length().saturating_mul(8)
            } else {
                i64::MAX
            };
            if node.length() > bits.min(i64::from(i32::MAX)) {
                return Some(false);
            }
            let has_offsets = matches!(data_type, DataType::List(_) | DataType::Utf8);
            if has_offsets && buffers.next()?.length() % size_of::<i32>() as i64 != 0 {
                return Some(false);
            }
            of = match data_type {
                DataType::List(item) | DataType::FixedSizeList(item, _) => Some(item.data_type()),
                DataType::Utf8 => {
                    buffers.next()?;
                    None
                }
                plain if plain.is_primitive() => {
                    elements.push((column, *buffers.next()?));
                    None
                }
                _ => return None,
            };
        }
    }
    Some(true)
}
