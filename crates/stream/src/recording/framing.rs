//! The framing of an Arrow IPC file: `ARROW1`, a stream of messages, an end marker, and a footer with the offset of each.
//!
//! The Arrow crate encodes and decodes the messages. Two things that it lacks are here: a footer in a file that still grows,
//! and reading a file without one.

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

/// The start of a file: the magic, padded to 8 bytes, to which messages are aligned.
pub(super) const START: [u8; 8] = *b"ARROW1\0\0";
const MAGIC: &[u8] = b"ARROW1";
const CONTINUATION: [u8; 4] = [0xff; 4];
/// A continuation marker and a length of 0.
const END_OF_STREAM: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
/// Length of the part behind the footer: the footer's length, and the magic.
const TAIL: usize = 4 + MAGIC.len();
/// Bytes of a footer for each batch.
pub(super) const BLOCK: usize = size_of::<Block>();
/// Footers up to this length are read whatever precedes them.
const SHORT_FOOTER: u64 = 1 << 20;
/// The longest header of a message. Earlier versions put the metadata of its rows into that of a batch, of which a message
/// has at most [`MOST_METADATA`].
const LONGEST_HEADER: u64 = 64 << 20;
/// The most bytes that the metadata of one message may take as text.
pub(super) const MOST_METADATA: usize = 16 << 20;
/// Alignment of the parts of a body.
const ALIGNMENT: i64 = 8;
/// The most bytes of a body that belong to no part of it.
const PADDING: u64 = 4096;
/// Bodies up to this length are read whole, in any case.
const SHORT_BODY: u64 = 1 << 16;

/// Key in the metadata of the footer of a file whose recorder goes on. Its last footer lacks the entry.
const OPEN: &str = "robocache.open";

/// Appends what follows the last batch so far: the end of the stream and the footer, which says if its recorder goes on.
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

/// The block of a message of `bytes` that starts at `offset` of a file.
pub(super) fn block(offset: u64, bytes: &[u8]) -> Block {
    let header = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    let metadata = 8 + header as usize;
    Block::new(offset as i64, metadata as i32, (bytes.len() - metadata) as i64)
}

/// The messages of a file, from its start.
///
/// They are read by position: a process that was forked shares the file's own.
pub(super) struct Messages {
    file: Arc<File>,
    /// Start of the next message.
    pub at: u64,
    len: u64,
    /// `None` without a valid one.
    footer: Option<FooterParts>,
    /// True if elements stay in the file until they are asked for.
    leaves_elements: bool,
}

/// The parts of a footer that a reader needs.
struct FooterParts {
    /// The batches, in file order.
    batches: Vec<Span>,
    /// The same as at the start; `None` if it can't be read.
    schema: Option<SchemaRef>,
    /// True if the recorder goes on: it has not ended the file in order, or is still at it.
    is_open: bool,
}

#[derive(Clone, Copy)]
struct Span {
    at: u64,
    len: u64,
}

/// The reason why the next message can't be had.
#[derive(Debug)]
pub(super) enum Stop {
    /// The stream ended.
    End,
    /// The bytes that follow are not a whole message.
    Torn(String),
    /// The message is whole, but its contents make no sense.
    Bad(String),
    /// The contents are compressed, with this codec.
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

/// A message of a file, whole and well formed.
pub(super) struct Frame {
    header: Vec<u8>,
    body: Body,
}

enum Body {
    Read(Buffer),
    /// Bytes that stay in the file, from this position on.
    Left {
        file: Arc<File>,
        at: u64,
        bytes: usize,
    },
}

impl Frame {
    /// Header of the message, which describes its body.
    pub(super) fn header(&self) -> Result<Message<'_>, Stop> {
        root_as_message(&self.header).map_err(|error| Stop::Bad(error.to_string()))
    }

    /// The body of a batch. If it was left in the file, its parts are read, but for `elements`, which are zeros here.
    pub(super) fn body(&self, batch: &RecordBatch<'_>, elements: &[Part]) -> Result<(Buffer, Option<Elements>), Stop> {
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

/// Elements of a batch that were left in the file.
pub(super) struct Elements {
    file: Arc<File>,
    /// Position of the body in the file.
    at: u64,
    body: Buffer,
}

impl Elements {
    /// Reads elements. `place` is where an array has them, in zeros.
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

/// Opens a file; `None` if it is not an Arrow IPC file. A file that breaks off within its first bytes has no messages.
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

/// The footer of a file, if it is valid.
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
    // The Arrow crate panics on some of what a damaged footer may say.
    let read = |schema| catch_unwind(AssertUnwindSafe(|| Arc::new(fb_to_schema(schema)))).ok();
    let schema = footer.schema().filter(is_readable).and_then(read);
    Ok(spans(&footer, footer_at).map(|batches| FooterParts {
        batches,
        schema,
        is_open,
    }))
}

/// The batches of a footer; `None` if it contradicts the file.
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
    /// Leaves elements of long batches in the file until they are asked for.
    pub(super) fn leave_elements(&mut self) {
        self.leaves_elements = true;
    }

    /// The schema by the footer, which is that of the start.
    pub(super) fn schema_of_footer(&self) -> Option<SchemaRef> {
        self.footer.as_ref()?.schema.clone()
    }

    /// True if the footer says that the recorder goes on.
    pub(super) fn is_open(&self) -> bool {
        self.footer.as_ref().is_some_and(|footer| footer.is_open)
    }

    /// The bytes of the file that are still to be read.
    pub(super) fn left(&self) -> u64 {
        self.len.saturating_sub(self.at)
    }

    /// Number of batches by the footer; `None` without a valid one.
    pub(super) fn expected(&self) -> Option<usize> {
        self.footer.as_ref().map(|footer| footer.batches.len())
    }

    /// Skips to the next batch by the footer, and says whether there is one.
    pub(super) fn skip(&mut self) -> bool {
        let mut batches = self.footer.iter().flat_map(|footer| &footer.batches);
        let next = batches.find(|span| span.at > self.at).map(|span| span.at);
        self.at = next.unwrap_or(self.at);
        next.is_some()
    }

    /// The next message.
    pub(super) fn next(&mut self) -> Result<Frame, Stop> {
        let mut prefix = [0; 8];
        if self.at == self.len {
            return Err(Stop::Torn("the stream has no end".to_owned()));
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
                "a header of {size} bytes (allowed: the {rest} to the file's end, and {LONGEST_HEADER})"
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

    /// The `bytes` bytes that start at `at`.
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

/// The length of a message's body, checked against its parts, as a wrong length must not be allocated.
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
        let there = there.ok_or_else(|| torn("a part of a batch is outside of it"))?;
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

/// True if the Arrow crate can read a schema: it panics on others.
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

/// A part of a body.
pub(super) type Part = arrow_ipc::Buffer;

/// True if the columns of a batch have no more rows than an offset can count, and, if they have nulls, as many bits
/// that mark them: Arrow's code relies on it. `None` if a column is of a type that no recording has.
///
/// `elements` gets, with the index of its column, the part of each column that has primitive elements.
pub(super) fn lengths_fit(batch: &RecordBatch<'_>, fields: &Fields, elements: &mut Vec<(usize, Part)>) -> Option<bool> {
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
