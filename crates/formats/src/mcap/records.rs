//! The records of an MCAP file, in their order, out of its chunks: <https://mcap.dev/spec>.

use super::ReadError;
use super::container::unpack_zstd;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What a file begins and ends with.
pub(super) const MAGIC: [u8; 8] = *b"\x89MCAP0\r\n";
/// An opcode, and a length of 64 bits.
const HEAD: usize = 9;
/// A footer with its head, and the magic behind it.
const TAIL: u64 = HEAD as u64 + FOOTER + MAGIC.len() as u64;
/// The bytes of a footer: where the summary begins, where its offsets do, and its CRC.
const FOOTER: u64 = 20;
const BEFORE_CRC: usize = HEAD + 16;
/// So many attachments and records of metadata are named, whose names begin in so many bytes.
const MOST_BESIDE: usize = 20;
const MOST_NAME: u64 = 4096;
/// What rosbag2 says of its own files.
const OF_ROSBAG2: &str = "rosbag2";
/// A chunk and a record have no more than this, compressed or not: as much as dora sends in a message. A kilobyte of zstd may
/// unpack to a gigabyte.
pub(super) const MOST_BYTES: u64 = 256 << 20;

pub(super) mod op {
    pub const HEADER: u8 = 0x01;
    pub const FOOTER: u8 = 0x02;
    pub const SCHEMA: u8 = 0x03;
    pub const CHANNEL: u8 = 0x04;
    pub const MESSAGE: u8 = 0x05;
    pub const CHUNK: u8 = 0x06;
    pub const MESSAGE_INDEX: u8 = 0x07;
    pub const CHUNK_INDEX: u8 = 0x08;
    pub const ATTACHMENT: u8 = 0x09;
    pub const STATISTICS: u8 = 0x0b;
    pub const METADATA: u8 = 0x0c;
    pub const SUMMARY_OFFSET: u8 = 0x0e;
    pub const DATA_END: u8 = 0x0f;
    /// From here on they are those of applications.
    pub const LAST: u8 = 0x0f;
    pub const PRIVATE: u8 = 0x80;
}

/// A record that says something of messages, or is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    Schema(Schema<'a>),
    Channel(Channel<'a>),
    Message(Raw<'a>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Schema<'a> {
    pub id: u16,
    pub name: &'a str,
    pub encoding: &'a str,
    pub data: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Channel<'a> {
    pub id: u16,
    /// 0: none.
    pub schema: u16,
    pub topic: &'a str,
    pub encoding: &'a str,
    /// Names and values, as they stand in the record.
    metadata: &'a [u8],
}

impl<'a> Channel<'a> {
    pub fn new(id: u16, schema: u16, topic: &'a str, encoding: &'a str) -> Self {
        Self {
            id,
            schema,
            topic,
            encoding,
            metadata: &[],
        }
    }

    /// What else is said of it.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        let (mut fields, mut found) = (Fields(self.metadata), BTreeMap::new());
        while let (Some(name), Some(value)) = (fields.text(), fields.text()) {
            found.insert(name.to_owned(), value.to_owned());
        }
        found
    }
}

/// A message as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Raw<'a> {
    pub channel: u16,
    /// When it was recorded, ns.
    pub log_time: u64,
    /// When it was sent, ns.
    pub publish_time: u64,
    pub data: &'a [u8],
}

/// The parts of a record.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, n: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(n).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn blob(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.bytes(length.into())
    }

    fn text(&mut self) -> Option<&'a str> {
        str::from_utf8(self.blob()?).ok()
    }

    fn schema(mut self) -> Option<Schema<'a>> {
        Some(Schema {
            id: self.u16()?,
            name: self.text()?,
            encoding: self.text()?,
            data: self.blob()?,
        })
    }

    fn channel(mut self) -> Option<Channel<'a>> {
        Some(Channel {
            id: self.u16()?,
            schema: self.u16()?,
            topic: self.text()?,
            encoding: self.text()?,
            metadata: self.blob()?,
        })
    }

    fn message(mut self) -> Option<Raw<'a>> {
        let channel = self.u16()?;
        self.u32()?; // the number of the message in its channel
        Some(Raw {
            channel,
            log_time: self.u64()?,
            publish_time: self.u64()?,
            data: self.0,
        })
    }

    /// What an attachment is, in words, of which the beginning is there.
    fn attachment(mut self) -> Option<String> {
        self.u64()?; // when it was logged, and when it was made
        self.u64()?;
        let (name, kind) = (self.text()?, self.text()?);
        let bytes = self.u64()?;
        Some(format!("attachment `{name}` ({kind}, {bytes} bytes)"))
    }

    /// The name of a record of metadata.
    fn metadata(mut self) -> Option<&'a str> {
        self.text()
    }

    fn chunk(mut self) -> Option<Chunk<'a>> {
        self.u64()?; // the times of its first and last message
        self.u64()?;
        Some(Chunk {
            size: self.u64()?,
            crc: self.u32()?,
            compression: self.text()?,
            compressed_size: self.u64()?,
            compressed: self.0,
        })
    }
}

/// Records that were compressed together.
struct Chunk<'a> {
    size: u64,
    /// 0: none.
    crc: u32,
    compression: &'a str,
    compressed_size: u64,
    /// What there is of it.
    compressed: &'a [u8],
}

impl Chunk<'_> {
    /// Makes `out` its records. What can be had of a chunk that is `cut` is taken.
    fn unpack(&self, is_cut: bool, out: &mut Vec<u8>) -> Result<(), String> {
        out.clear();
        if self.size > MOST_BYTES {
            return Err(format!("a chunk of {} bytes (allowed: {MOST_BYTES})", self.size));
        }
        let there = self.compressed.len() as u64;
        if there < self.compressed_size && !is_cut {
            let came = self.compressed_size;
            return Err(format!("a chunk of {came} compressed bytes in a record of {there}"));
        }
        let compressed = &self.compressed[..there.min(self.compressed_size) as usize];
        // One byte more than is said tells that there are more.
        let limit = self.size + 1;
        let unpacked = match self.compression {
            "" => {
                out.extend_from_slice(compressed);
                Ok(())
            }
            "lz4" => lz4_flex::frame::FrameDecoder::new(compressed)
                .take(limit)
                .read_to_end(out)
                .map(|_| ())
                .map_err(|error| error.to_string()),
            "zstd" => unpack_zstd(compressed, limit, out).map(|_| ()),
            other => {
                return Err(format!(
                    "a chunk compressed with `{other}` (allowed: lz4, zstd, or none)"
                ));
            }
        };
        if is_cut {
            return Ok(());
        }
        unpacked.map_err(|error| format!("a chunk that {} can't unpack: {error}", self.compression))?;
        if out.len() as u64 != self.size {
            return Err(format!("a chunk of {} bytes that says {}", out.len(), self.size));
        }
        let crc = crc32fast::hash(out);
        if self.crc != 0 && crc != self.crc {
            return Err(format!(
                "a chunk whose bytes have the CRC {crc:08x}, and it says {:08x}",
                self.crc
            ));
        }
        Ok(())
    }
}

/// Where the next record comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    File,
    Chunk,
    /// Behind the footer.
    Tail,
    End,
}

/// A part of a file: its record, in memory.
struct Part {
    op: u8,
    body: Range<usize>,
    of: Place,
}

/// Reads a file record by record. One chunk is in memory at a time.
pub(super) struct Records {
    path: PathBuf,
    file: BufReader<File>,
    length: u64,
    /// Where the next record of the file begins.
    at: u64,
    place: Place,
    /// The last record of the file.
    body: Vec<u8>,
    /// The records of the last chunk, those that are read, and where the chunk begins.
    chunk: Vec<u8>,
    chunk_read: usize,
    chunk_at: u64,
    /// What the end of the file says: schemas, channels, and where chunks begin.
    summary: Vec<u8>,
    chunks: Vec<u64>,
    /// How many messages and chunks were read, and how many the file says that it has.
    messages: u64,
    says_messages: Option<u64>,
    chunks_read: u64,
    says_chunks: u64,
    /// Whether the records are those of the end, which repeats schemas and channels.
    is_summary: bool,
    /// What stands beside the messages, in words, and how much more there is of it.
    beside: Vec<String>,
    more_beside: u64,
    /// Whether a part of the file could not be read.
    is_damaged: bool,
}

impl Records {
    /// Reads a file, which errors call `path`.
    pub fn open(path: &Path, file: File) -> Result<Self, ReadError> {
        let io = |source| ReadError::Io {
            path: path.to_owned(),
            source,
        };
        let length = file.metadata().map_err(io)?.len();
        let mut file = BufReader::with_capacity(1 << 17, file);
        let mut magic = [0; MAGIC.len()];
        if length < MAGIC.len() as u64 || file.read_exact(&mut magic).is_err() || magic != MAGIC {
            return Err(ReadError::NotMcap { path: path.to_owned() });
        }
        let mut records = Self {
            path: path.to_owned(),
            file,
            length,
            at: MAGIC.len() as u64,
            place: Place::File,
            body: Vec::new(),
            chunk: Vec::new(),
            chunk_read: 0,
            chunk_at: 0,
            summary: Vec::new(),
            chunks: Vec::new(),
            messages: 0,
            says_messages: None,
            chunks_read: 0,
            says_chunks: 0,
            is_summary: false,
            beside: Vec::new(),
            more_beside: 0,
            is_damaged: false,
        };
        // A summary that can't be read is not needed, as long as nothing else is broken.
        let _ = records.read_summary();
        records.file.seek(SeekFrom::Start(records.at)).map_err(io)?;
        Ok(records)
    }

    /// The schemas and channels that the end of the file repeats.
    pub fn summary(&self) -> impl Iterator<Item = Record<'_>> {
        let mut rest = &self.summary[..];
        std::iter::from_fn(move || {
            loop {
                let (op, length) = head(rest)?;
                let (body, behind) = rest[HEAD..].split_at_checked(usize::try_from(length).ok()?)?;
                rest = behind;
                let record = match op {
                    // 0 stands for none.
                    op::SCHEMA => Fields(body)
                        .schema()
                        .filter(|schema| schema.id != 0)
                        .map(Record::Schema),
                    op::CHANNEL => Fields(body).channel().map(Record::Channel),
                    _ => None,
                };
                if record.is_some() {
                    return record;
                }
            }
        })
    }

    fn read_summary(&mut self) -> io::Result<()> {
        let Some(footer_at) = self.length.checked_sub(TAIL).filter(|&at| at >= self.at) else {
            return Ok(());
        };
        self.file.seek(SeekFrom::Start(footer_at))?;
        let mut tail = [0; TAIL as usize];
        self.file.read_exact(&mut tail)?;
        let start = Fields(&tail[HEAD..]).u64().unwrap_or(0);
        let is_footer = head(&tail) == Some((op::FOOTER, FOOTER)) && tail[HEAD + FOOTER as usize..] == MAGIC;
        if !is_footer || !(self.at..footer_at).contains(&start) {
            return Ok(());
        }
        if footer_at - start > MOST_BYTES {
            return Ok(());
        }
        self.file.seek(SeekFrom::Start(start))?;
        let mut summary = Vec::new();
        (&mut self.file).take(footer_at - start).read_to_end(&mut summary)?;
        // Where a part of the file is missing or stands in it twice, the summary is not where the footer says.
        let mut crc = crc32fast::Hasher::new();
        crc.update(&summary);
        crc.update(&tail[..BEFORE_CRC]);
        let says = Fields(&tail[BEFORE_CRC..]).u32().unwrap_or(0);
        if says != 0 && says != crc.finalize() {
            return Ok(());
        }
        let mut chunks = Vec::new();
        let mut rest = &summary[..];
        while let Some((op, length)) = head(rest) {
            let Some((body, behind)) = usize::try_from(length)
                .ok()
                .and_then(|length| rest[HEAD..].split_at_checked(length))
            else {
                break;
            };
            rest = behind;
            let mut fields = Fields(body);
            if op == op::CHUNK_INDEX
                && let (Some(_), Some(_), Some(at)) = (fields.u64(), fields.u64(), fields.u64())
            {
                chunks.push(at);
            }
        }
        if rest.is_empty() {
            chunks.sort_unstable();
            (self.chunks, self.summary) = (chunks, summary);
        }
        Ok(())
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// A part of the file that can't be read. The next call goes on behind it.
    pub fn next(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        loop {
            let part = self.advance();
            self.is_damaged |= part.is_err();
            let Some(Part { op, body, of }) = part? else {
                return Ok(None);
            };
            self.messages += u64::from(op == op::MESSAGE);
            if !matches!(op, op::SCHEMA | op::CHANNEL | op::MESSAGE) {
                if of == Place::Chunk && op < op::PRIVATE {
                    self.is_damaged = true;
                    let allowed = "allowed: schemas, channels and messages, of kinds 0x03 to 0x05";
                    let problem = format!("a record of kind {op:#04x} within a chunk ({allowed}); it is left out");
                    return Err(self.damaged(self.chunk_at, problem));
                }
                continue;
            }
            let (bytes, at) = match of {
                Place::Chunk => (&self.chunk, self.chunk_at),
                _ => (&self.body, self.at - (HEAD + self.body.len()) as u64),
            };
            let fields = Fields(&bytes[body]);
            let (record, what) = match op {
                op::SCHEMA => (fields.schema().map(Record::Schema), "schema"),
                op::CHANNEL => (fields.channel().map(Record::Channel), "channel"),
                _ => (fields.message().map(Record::Message), "message"),
            };
            if let Some(Record::Schema(Schema { id: 0, .. })) = record {
                return Err(ReadError::Damaged {
                    path: self.path.clone(),
                    at,
                    problem: "a schema of the number 0, which stands for none".to_owned(),
                });
            }
            return match record {
                Some(record) => Ok(Some(record)),
                None => Err(ReadError::Damaged {
                    path: self.path.clone(),
                    at,
                    problem: format!("a {what} that is shorter than its parts"),
                }),
            };
        }
    }

    /// Goes to the next record, into chunks and out of them.
    fn advance(&mut self) -> Result<Option<Part>, ReadError> {
        loop {
            match self.place {
                Place::End => return Ok(None),
                Place::Chunk => match self.next_in_chunk() {
                    Some(Ok(part)) => return Ok(Some(part)),
                    Some(Err(problem)) => {
                        self.place = Place::File;
                        return Err(self.damaged(self.chunk_at, problem));
                    }
                    None => self.place = Place::File,
                },
                Place::File => {
                    if let Some(part) = self.next_in_file()? {
                        return Ok(Some(part));
                    }
                }
                Place::Tail => {
                    self.place = Place::End;
                    self.check_tail()?;
                }
            }
        }
    }

    fn next_in_chunk(&mut self) -> Option<Result<Part, String>> {
        let rest = &self.chunk[self.chunk_read..];
        if rest.is_empty() {
            return None;
        }
        let within = head(rest).filter(|&(_, length)| length <= (rest.len() - HEAD) as u64);
        let Some((op, length)) = within else {
            let problem = format!(
                "a record that the chunk ends in; its last {} bytes are left out",
                rest.len()
            );
            return Some(Err(problem));
        };
        let from = self.chunk_read + HEAD;
        self.chunk_read = from + length as usize;
        Some(Ok(Part {
            op,
            body: from..self.chunk_read,
            of: Place::Chunk,
        }))
    }

    /// The next record of the file that is no chunk. `None`: the place has changed.
    fn next_in_file(&mut self) -> Result<Option<Part>, ReadError> {
        let (at, rest) = (self.at, self.length - self.at);
        if rest == 0 {
            self.place = Place::End;
            return Err(self.damaged(
                at,
                "the end, without a footer: what wrote the file did not end in order".into(),
            ));
        }
        let mut head_bytes = [0; HEAD];
        let head_length = rest.min(HEAD as u64) as usize;
        self.read(at, &mut head_bytes[..head_length])?;
        let found = head(&head_bytes[..head_length]);
        let is_known = |op: u8| op == op::HEADER || (op::SCHEMA..=op::LAST).contains(&op) || op >= op::PRIVATE;
        let (op, length) = match found {
            Some((op, _)) if op != op::CHUNK && self.chunks.binary_search(&at).is_ok() => {
                let behind = self.resume(at);
                let problem = format!("a record of kind {op:#04x}, where the end of the file has a chunk; {behind}");
                return Err(self.damaged(at, problem));
            }
            Some((op::FOOTER, FOOTER)) if rest >= HEAD as u64 + FOOTER => {
                self.skip(FOOTER)?;
                self.at += HEAD as u64 + FOOTER;
                self.place = Place::Tail;
                return self.check_counts(at).map(|()| None);
            }
            Some((op, length)) if is_known(op) => (op, length),
            Some((op, _)) => {
                let behind = self.resume(at);
                return Err(self.damaged(at, format!("a record of unknown kind {op:#04x}; {behind}")));
            }
            None => {
                self.place = Place::End;
                return Err(self.damaged(at, format!("{rest} bytes, less than a record has")));
            }
        };
        let there = rest - HEAD as u64;
        let is_cut = length > there;
        // Of what is cut only the messages of a chunk can be had, and those of a record whose length is wrong are none.
        if is_cut && op != op::CHUNK {
            let behind = self.resume(at);
            return Err(self.damaged(
                at,
                format!("a record of {length} bytes, of which {there} are there; {behind}"),
            ));
        }
        let is_read = match op {
            op::SCHEMA | op::CHANNEL => !self.is_summary,
            op => matches!(op, op::MESSAGE | op::CHUNK),
        };
        self.is_summary |= op == op::DATA_END;
        self.chunks_read += u64::from(op == op::CHUNK);
        self.says_chunks += u64::from(op == op::CHUNK_INDEX);
        let taken = length.min(there);
        self.at = at + HEAD as u64 + taken;
        if matches!(op, op::ATTACHMENT | op::METADATA) {
            self.note_beside(op, taken)?;
            return Ok(None);
        }
        if op == op::STATISTICS && taken >= 8 {
            let mut count = [0; 8];
            self.read(at, &mut count)?;
            self.says_messages = Some(u64::from_le_bytes(count));
            self.skip(taken - 8)?;
            return Ok(None);
        }
        if !is_read {
            self.skip(taken)?;
            return Ok(None);
        }
        if taken > MOST_BYTES {
            self.skip(taken)?;
            let what = if op == op::CHUNK { "chunk" } else { "record" };
            let (problem, of) = (
                format!("a {what} of {length} bytes (allowed: {MOST_BYTES})"),
                self.topics_at(at),
            );
            return Err(self.damaged(at, format!("{problem}; it is left out{of}")));
        }
        self.body.clear();
        let read = (&mut self.file).take(taken).read_to_end(&mut self.body);
        let read = read.map_err(|source| self.io(source))?;
        if read as u64 != taken {
            self.place = Place::End;
            return Err(self.damaged(at, format!("a record of {length} bytes, of which {read} are there")));
        }
        if op != op::CHUNK {
            return Ok(Some(Part {
                op,
                body: 0..self.body.len(),
                of: Place::File,
            }));
        }
        self.chunk_read = 0;
        self.chunk_at = at;
        let unpacked = match Fields(&self.body).chunk() {
            Some(chunk) => chunk.unpack(is_cut, &mut self.chunk),
            None => Err("a chunk that is shorter than its parts".to_owned()),
        };
        match unpacked {
            Ok(()) => self.place = Place::Chunk,
            Err(problem) => {
                let behind = if is_cut {
                    self.resume(at)
                } else {
                    format!("it is left out{}", self.topics_at(at))
                };
                return Err(self.damaged(at, format!("{problem}; {behind}")));
            }
        }
        if is_cut {
            let there = self.chunk.len();
            let behind = self.resume(at);
            self.place = Place::Chunk;
            let problem = format!("a chunk of {length} bytes that is cut, of which {there} can be unpacked; {behind}");
            return Err(self.damaged(at, problem));
        }
        Ok(None)
    }

    /// The topics of the messages in the chunk at `at`, in words, where the end of the file says them.
    fn topics_at(&self, at: u64) -> String {
        let mut rest = &self.summary[..];
        let (mut ids, mut topics) = (Vec::new(), BTreeMap::new());
        while let Some((op, length)) = head(rest) {
            let Some((body, behind)) = rest[HEAD..].split_at_checked(length as usize) else {
                break;
            };
            rest = behind;
            let mut fields = Fields(body);
            match op {
                op::CHANNEL => {
                    topics.extend(fields.channel().map(|channel| (channel.id, channel.topic)));
                }
                // Two times, where the chunk begins, how long it is, and where each channel has its index.
                op::CHUNK_INDEX if fields.bytes(16).and_then(|_| fields.u64()) == Some(at) => {
                    let mut places = Fields(fields.bytes(8).and_then(|_| fields.blob()).unwrap_or_default());
                    while let (Some(id), Some(_)) = (places.u16(), places.u64()) {
                        ids.push(id);
                    }
                }
                _ => {}
            }
        }
        let of: Vec<&str> = ids.iter().filter_map(|id| topics.get(id).copied()).collect();
        match of.is_empty() {
            true => String::new(),
            false => format!(", with messages of {}", of.join(", ")),
        }
    }

    /// Takes the name of what stands beside the messages.
    fn note_beside(&mut self, op: u8, bytes: u64) -> Result<(), ReadError> {
        self.body.clear();
        let read = (&mut self.file).take(bytes.min(MOST_NAME)).read_to_end(&mut self.body);
        let read = read.map_err(|source| self.io(source))?;
        let fields = Fields(&self.body);
        let words = match op {
            op::ATTACHMENT => fields
                .attachment()
                .unwrap_or_else(|| "an attachment without a name".to_owned()),
            _ => match fields.metadata() {
                Some(OF_ROSBAG2) => return self.skip(bytes - read as u64),
                Some(name) => format!("metadata `{name}`"),
                None => "metadata without a name".to_owned(),
            },
        };
        if self.beside.len() < MOST_BESIDE {
            self.beside.push(words);
        } else {
            self.more_beside += 1;
        }
        self.skip(bytes - read as u64)
    }

    /// What stands beside the messages that were read, in words. `None`: nothing does.
    pub fn left_out(&self) -> Option<String> {
        let more = (self.more_beside > 0).then(|| format!("and {} more", self.more_beside));
        let all: Vec<String> = self.beside.iter().cloned().chain(more).collect();
        (!all.is_empty()).then(|| format!("{}: left out: {}", self.path.display(), all.join(", ")))
    }

    /// Compares how much was read with what the end of the file says, where nothing else is wrong with it. `at` is where its
    /// footer begins.
    fn check_counts(&self, at: u64) -> Result<(), ReadError> {
        let (read, says, what) = match self.says_messages {
            Some(says) => (self.messages, says, "messages"),
            // Not every writer has an index.
            None if self.says_chunks == 0 => return Ok(()),
            None => (self.chunks_read, self.says_chunks, "chunks"),
        };
        if read == says || self.is_damaged {
            return Ok(());
        }
        let problem = format!("{read} {what} were read, and the file says that it has {says}");
        Err(self.damaged(at, problem))
    }

    /// Looks whether the file ends behind its footer as it has to.
    fn check_tail(&mut self) -> Result<(), ReadError> {
        let (at, rest) = (self.at, self.length - self.at);
        let mut tail = [0; MAGIC.len()];
        let there = tail.len().min(rest as usize);
        self.read(at, &mut tail[..there])?;
        if tail != MAGIC {
            return Err(self.damaged(
                at,
                "the end, without the bytes that close a file behind its footer".to_owned(),
            ));
        }
        match rest - there as u64 {
            0 => Ok(()),
            more => {
                let problem = format!("{more} bytes behind the end, as of another file: they are left out");
                Err(self.damaged(at + there as u64, problem))
            }
        }
    }

    /// Goes to the first chunk behind `at` that the end of the file names, and says so.
    fn resume(&mut self, at: u64) -> String {
        let next = self
            .chunks
            .iter()
            .copied()
            .find(|&chunk| chunk > at && chunk < self.length);
        match next.map(|next| (next, self.file.seek(SeekFrom::Start(next)))) {
            Some((next, Ok(_))) => {
                (self.at, self.place) = (next, Place::File);
                format!("going on at byte {next}")
            }
            _ => {
                (self.at, self.place) = (self.length, Place::End);
                "what follows it is left out".to_owned()
            }
        }
    }

    fn read(&mut self, at: u64, out: &mut [u8]) -> Result<(), ReadError> {
        match self.file.read_exact(out) {
            Ok(()) => Ok(()),
            Err(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
                self.place = Place::End;
                Err(self.damaged(at, "the end: the file has become shorter".to_owned()))
            }
            Err(source) => Err(self.io(source)),
        }
    }

    fn skip(&mut self, bytes: u64) -> Result<(), ReadError> {
        let skipped = i64::try_from(bytes).map_or_else(|_| Ok(()), |bytes| self.file.seek_relative(bytes));
        skipped.map_err(|source| self.io(source))
    }

    fn io(&mut self, source: io::Error) -> ReadError {
        self.place = Place::End;
        ReadError::Io {
            path: self.path.clone(),
            source,
        }
    }

    fn damaged(&self, at: u64, problem: String) -> ReadError {
        ReadError::Damaged {
            path: self.path.clone(),
            at,
            problem,
        }
    }
}

fn head(bytes: &[u8]) -> Option<(u8, u64)> {
    let mut fields = Fields(bytes);
    let [op] = fields.array()?;
    Some((op, fields.u64()?))
}
