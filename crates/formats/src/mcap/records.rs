//! Reader of an MCAP file's records in the order of the file, including those inside chunks. At most one chunk is in memory.
//! After damage, reading ends only if no further record can be found. A *part* is a schema, channel or message record.

use super::record::{Fields, HEAD, MOST_BYTES, Record, Schema, head};
use super::summary::{FOOTER, Summary};
use crate::Error;
use mcap::MAGIC;
use mcap::records::op;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Largest number of attachments and metadata records that `left_out` names. Further ones are only counted.
const MOST_BESIDE: usize = 20;
/// Largest number of bytes that are read for the name of an attachment or a metadata record.
const MOST_NAME: u64 = 4096;
/// Name of the metadata record that rosbag2 writes about its own files. It is not reported as left out.
const OF_ROSBAG2: &str = "rosbag2";
const NOT_MCAP: &str = "not a file of a bag (allowed: a file that starts with `\\x89MCAP0\\r\\n` or `SQLite format 3`, or either compressed with zstd)";
/// First opcode that is reserved for records of applications, which are skipped.
const PRIVATE: u8 = 0x80;

/// Part of an MCAP file from which the next record is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    File,
    Chunk,
    /// Magic bytes at the end of the file, after the footer.
    Tail,
    End,
}

/// A record in memory: its opcode, the range of its body in a buffer, and the part of the file from which it was read.
pub(super) struct RecordRange {
    op: u8,
    body: Range<usize>,
    of: Source,
}

/// Reader of an MCAP file, record by record.
pub(super) struct Records {
    path: PathBuf,
    file: BufReader<File>,
    length: u64,
    /// Position of the next record in the file, bytes.
    at: u64,
    place: Source,
    /// Body of the record that was read last outside of chunks.
    body: Vec<u8>,
    /// Unpacked records of the last chunk.
    chunk: Vec<u8>,
    /// Offset of the next record in `chunk`, bytes.
    chunk_read: usize,
    /// Position in the file of the last chunk, bytes.
    chunk_at: u64,
    /// Earliest log time, ns, of each message in the chunk and all messages after it, in the order of the messages.
    earliest: Vec<u64>,
    /// Number of messages read from the chunk so far.
    chunk_messages: usize,
    summary: Summary,
    /// Number of messages that were read so far.
    messages: u64,
    /// Number of messages according to the file's statistics record. `None` if it was not read yet, or is absent.
    stated_messages: Option<u64>,
    /// Number of chunks that were found so far.
    chunks_read: u64,
    /// Number of index records of chunks found so far, at the end of the file.
    stated_chunks: u64,
    /// True after the data section, in the summary, which repeats schemas and channels.
    is_summary: bool,
    /// Names of attachments and metadata records, as text for the user, up to `MOST_BESIDE`.
    beside: Vec<String>,
    /// Number of attachments and metadata records that are not in `beside`.
    more_beside: u64,
    /// True if some part of the file could not be read so far.
    is_damaged: bool,
}

impl Records {
    /// Opens an MCAP file from its open handle `file`. Errors name the file `path`.
    pub(super) fn open(path: &Path, file: File) -> Result<Self, Error> {
        let io = |source| Error::io(path, source);
        let length = file.metadata().map_err(io)?.len();
        let mut file = BufReader::with_capacity(1 << 17, file);
        let mut magic = [0; MAGIC.len()];
        if length < MAGIC.len() as u64 || file.read_exact(&mut magic).is_err() || magic != *MAGIC {
            return Err(Error::file(path, NOT_MCAP));
        }
        let at = MAGIC.len() as u64;
        // A summary that can't be read is not needed, as long as nothing else is broken.
        let summary = Summary::read(&mut file, at, length).unwrap_or_default();
        file.seek(SeekFrom::Start(at)).map_err(io)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            length,
            at,
            place: Source::File,
            body: Vec::new(),
            chunk: Vec::new(),
            chunk_read: 0,
            chunk_at: 0,
            earliest: Vec::new(),
            chunk_messages: 0,
            summary,
            messages: 0,
            stated_messages: None,
            chunks_read: 0,
            stated_chunks: 0,
            is_summary: false,
            beside: Vec::new(),
            more_beside: 0,
            is_damaged: false,
        })
    }
}

impl Records {
    /// Calls `take` with the schemas and channels that the summary at the end of the file repeats.
    pub(super) fn describe(&self, take: &mut dyn FnMut(Record<'_>)) {
        self.summary.records().for_each(take);
    }

    /// Advances to the next record that is a schema, a channel or a message; `None` at the end of the file.
    ///
    /// # Errors
    /// If a part of the file can't be read. The next call continues after the damage.
    pub(super) fn next_part(&mut self) -> Result<Option<RecordRange>, Error> {
        let part = self.advance();
        self.is_damaged |= part.is_err();
        if let Ok(Some(RecordRange {
            op: op::MESSAGE, of, ..
        })) = &part
        {
            self.messages += 1;
            self.chunk_messages += usize::from(*of == Source::Chunk);
        }
        part
    }

    /// Parses the record that [`next_part`](Self::next_part) found last.
    ///
    /// # Errors
    /// If the record is shorter than its fields, or is a schema with the id 0.
    pub(super) fn record(&self, RecordRange { op, body, of }: &RecordRange) -> Result<Record<'_>, Error> {
        let (bytes, at) = match of {
            Source::Chunk => (&self.chunk, self.chunk_at),
            _ => (&self.body, self.at - (HEAD + self.body.len()) as u64),
        };
        let fields = Fields(&bytes[body.clone()]);
        let (record, what) = match *op {
            op::SCHEMA => (fields.schema().map(Record::Schema), "schema"),
            op::CHANNEL => (fields.channel().map(Record::Channel), "channel"),
            _ => (fields.message().map(Record::Message), "message"),
        };
        match record {
            Some(Record::Schema(Schema { id: 0, .. })) => {
                Err(self.damaged(at, "a schema of the number 0, which stands for none"))
            }
            Some(record) => Ok(record),
            None => Err(self.damaged(at, format!("a {what} that is shorter than its fields"))),
        }
    }

    /// True if the end of the file has an index of its chunks, with the log times of their messages.
    pub(super) fn is_indexed(&self) -> bool {
        self.summary.has_chunks()
    }

    /// Returns the earliest log time of the messages that were not read yet, ns; 0 if the file has no index of its chunks.
    pub(super) fn least_ahead(&self) -> u64 {
        let in_chunk = self
            .earliest
            .get(self.chunk_messages)
            .filter(|_| self.place == Source::Chunk);
        let in_others = match self.summary.has_chunks() {
            true => self.summary.earliest_from(self.at),
            false => 0,
        };
        in_chunk.map_or(in_others, |&time| time.min(in_others))
    }

    /// False if the index of the chunks says that the log times of all messages are 0.
    pub(super) fn has_log_times(&self) -> bool {
        self.summary.has_log_times()
    }

    /// Returns a line for the user that lists attachments and metadata records, which are not read; `None` if the file
    /// has none.
    pub(super) fn left_out(&self) -> Option<String> {
        let more = (self.more_beside > 0).then(|| format!("and {} more", self.more_beside));
        let all: Vec<String> = self.beside.iter().cloned().chain(more).collect();
        (!all.is_empty()).then(|| format!("{}: left out: {}", self.path.display(), all.join(", ")))
    }

    /// Computes the field `earliest` from the log times of the messages in the chunk, which was just unpacked.
    fn compute_earliest(&mut self) {
        self.earliest.clear();
        self.chunk_messages = 0;
        let mut rest = &self.chunk[..];
        while let Some((op, length)) = head(rest) {
            let Some((body, behind)) = usize::try_from(length)
                .ok()
                .and_then(|n| rest[HEAD..].split_at_checked(n))
            else {
                break;
            };
            if op == op::MESSAGE {
                // A message that is too short is reported when it is read.
                self.earliest
                    .push(Fields(body).message().map_or(u64::MAX, |message| message.log_time));
            }
            rest = behind;
        }
        let mut least = u64::MAX;
        for time in self.earliest.iter_mut().rev() {
            least = least.min(*time);
            *time = least;
        }
    }

    /// Advances to the next schema, channel or message, inside a chunk or outside; `None` at the end of the file.
    fn advance(&mut self) -> Result<Option<RecordRange>, Error> {
        loop {
            match self.place {
                Source::End => return Ok(None),
                Source::Chunk => {
                    if let Some(part) = self.next_in_chunk()? {
                        return Ok(Some(part));
                    }
                }
                Source::File => {
                    if let Some(part) = self.next_in_file()? {
                        return Ok(Some(part));
                    }
                }
                Source::Tail => {
                    self.place = Source::End;
                    self.check_tail()?;
                }
            }
        }
    }

    /// Advances to the next schema, channel or message of the chunk; `None` at the end of the chunk.
    fn next_in_chunk(&mut self) -> Result<Option<RecordRange>, Error> {
        loop {
            let rest = &self.chunk[self.chunk_read..];
            let there = rest.len();
            let within = head(rest).filter(|&(_, length)| length <= (there - HEAD) as u64);
            let Some((op, length)) = within else {
                self.place = Source::File;
                if there == 0 {
                    return Ok(None);
                }
                let problem = format!(
                    "a record that is cut off by the end of its chunk; the last {there} bytes of the chunk are left out"
                );
                return Err(self.damaged(self.chunk_at, problem));
            };
            let from = self.chunk_read + HEAD;
            self.chunk_read = from + length as usize;
            match op {
                op::SCHEMA | op::CHANNEL | op::MESSAGE => {
                    let (body, of) = (from..self.chunk_read, Source::Chunk);
                    return Ok(Some(RecordRange { op, body, of }));
                }
                PRIVATE.. => {}
                _ => {
                    let allowed = "allowed: schemas, channels and messages, of kinds 0x03 to 0x05";
                    let problem = format!("a record of kind {op:#04x} within a chunk ({allowed}); it is left out");
                    return Err(self.damaged(self.chunk_at, problem));
                }
            }
        }
    }

    /// Advances past the next record outside of chunks. Returns the record if it is a schema, a channel or a message,
    /// else `None`.
    fn next_in_file(&mut self) -> Result<Option<RecordRange>, Error> {
        let (at, rest) = (self.at, self.length - self.at);
        if rest == 0 {
            self.place = Source::End;
            let problem = "the file ends without a footer: its writer did not finish it; what came before is read";
            return Err(self.damaged(at, problem));
        }
        let mut head_bytes = [0; HEAD];
        let head_length = rest.min(HEAD as u64) as usize;
        self.read(at, &mut head_bytes[..head_length])?;
        let found = head(&head_bytes[..head_length]);
        let is_known = |op: u8| op == op::HEADER || (op::SCHEMA..=op::DATA_END).contains(&op) || op >= PRIVATE;
        let (op, length) = match found {
            Some((op, _)) if op != op::CHUNK && self.summary.has_chunk(at) => {
                let problem = format!("a record of kind {op:#04x}, where the index at the end of the file has a chunk");
                return Err(self.resume(at, &problem));
            }
            Some((op::FOOTER, FOOTER)) if rest >= HEAD as u64 + FOOTER => {
                self.skip(FOOTER)?;
                self.at += HEAD as u64 + FOOTER;
                self.place = Source::Tail;
                return self.check_counts(at).map(|()| None);
            }
            Some((op, length)) if is_known(op) => (op, length),
            Some((op, _)) => return Err(self.resume(at, &format!("a record of unknown kind {op:#04x}"))),
            None => {
                self.place = Source::End;
                return Err(self.damaged(at, format!("{rest} bytes, less than a record has")));
            }
        };
        let there = rest - HEAD as u64;
        let is_cut = length > there;
        // If a chunk is cut off, its first messages can still be read. Any other record that is cut off has a wrong length.
        if is_cut && op != op::CHUNK {
            let problem = format!("a record of {length} bytes, of which {there} are there");
            return Err(self.resume(at, &problem));
        }
        let is_read = match op {
            op::SCHEMA | op::CHANNEL => !self.is_summary,
            op => matches!(op, op::MESSAGE | op::CHUNK),
        };
        self.is_summary |= op == op::DATA_END;
        self.chunks_read += u64::from(op == op::CHUNK);
        self.stated_chunks += u64::from(op == op::CHUNK_INDEX);
        let taken = length.min(there);
        self.at = at + HEAD as u64 + taken;
        if matches!(op, op::ATTACHMENT | op::METADATA) {
            self.note_beside(op, taken)?;
            return Ok(None);
        }
        if op == op::STATISTICS && taken >= 8 {
            let mut count = [0; 8];
            self.read(at, &mut count)?;
            self.stated_messages = Some(u64::from_le_bytes(count));
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
            let of = self.summary.topics_at(at);
            let problem = format!("a {what} of {length} bytes (allowed: {MOST_BYTES}); it is left out{of}");
            return Err(self.damaged(at, problem));
        }
        let read = self.read_body(taken)?;
        if read != taken {
            self.place = Source::End;
            return Err(self.damaged(at, format!("a record of {length} bytes, of which {read} are there")));
        }
        if op != op::CHUNK {
            let (body, of) = (0..self.body.len(), Source::File);
            return Ok(Some(RecordRange { op, body, of }));
        }
        self.chunk_read = 0;
        self.chunk_at = at;
        let unpacked = Fields(&self.body).unpack_chunk(is_cut, &mut self.chunk);
        self.compute_earliest();
        match unpacked {
            Ok(()) if !is_cut => {
                self.place = Source::Chunk;
                Ok(None)
            }
            Ok(()) => {
                let there = self.chunk.len();
                let problem = format!("a chunk of {length} bytes that is cut, of which {there} can be unpacked");
                let error = self.resume(at, &problem);
                self.place = Source::Chunk;
                Err(error)
            }
            Err(problem) if is_cut => Err(self.resume(at, &problem)),
            Err(problem) => {
                let of = self.summary.topics_at(at);
                Err(self.damaged(at, format!("{problem}; it is left out{of}")))
            }
        }
    }

    /// Adds the name of an attachment or a metadata record to `beside`, and skips the record, which has `bytes` bytes.
    fn note_beside(&mut self, op: u8, bytes: u64) -> Result<(), Error> {
        let read = self.read_body(bytes.min(MOST_NAME))?;
        let fields = Fields(&self.body);
        let words = match op {
            op::ATTACHMENT => match fields.attachment() {
                Some(words) => words,
                None => "an attachment without a name".to_owned(),
            },
            _ => match fields.metadata() {
                Some(OF_ROSBAG2) => return self.skip(bytes - read),
                Some(name) => format!("metadata `{name}`"),
                None => "metadata without a name".to_owned(),
            },
        };
        if self.beside.len() < MOST_BESIDE {
            self.beside.push(words);
        } else {
            self.more_beside += 1;
        }
        self.skip(bytes - read)
    }

    /// Compares the number of messages read with the file's statistics. Without statistics, compares the number of chunks with
    /// the index. Checks nothing if a part of the file is damaged. The footer is at byte `at`.
    fn check_counts(&self, at: u64) -> Result<(), Error> {
        let (read, says, what) = match self.stated_messages {
            Some(says) => (self.messages, says, "messages"),
            // Some writers write no index of the chunks.
            None if self.stated_chunks == 0 => return Ok(()),
            None => (self.chunks_read, self.stated_chunks, "chunks"),
        };
        if read == says || self.is_damaged {
            return Ok(());
        }
        let problem = format!("{read} {what} were read, and the file says that it has {says}");
        Err(self.damaged(at, problem))
    }

    /// Checks that only the closing magic bytes follow the footer.
    fn check_tail(&mut self) -> Result<(), Error> {
        let (at, rest) = (self.at, self.length - self.at);
        let mut tail = [0; MAGIC.len()];
        let there = tail.len().min(rest as usize);
        self.read(at, &mut tail[..there])?;
        if tail != *MAGIC {
            let problem = "the closing bytes are missing behind the footer";
            return Err(self.damaged(at, problem));
        }
        match rest - there as u64 {
            0 => Ok(()),
            more => {
                let problem = format!("{more} bytes behind the end, as of another file: they are left out");
                Err(self.damaged(at + there as u64, problem))
            }
        }
    }

    /// Seeks past the damage at byte `at`: to the next chunk that the file's index lists, or to the end of the file. Returns an
    /// error for the caller to report, which says where reading continues.
    fn resume(&mut self, at: u64, problem: &str) -> Error {
        let next = self.summary.next_chunk(at).filter(|&chunk| chunk < self.length);
        let next = next.filter(|&next| self.file.seek(SeekFrom::Start(next)).is_ok());
        let behind = match next {
            Some(next) => {
                (self.at, self.place) = (next, Source::File);
                format!("going on at byte {next}")
            }
            None => {
                (self.at, self.place) = (self.length, Source::End);
                "what follows it is left out".to_owned()
            }
        };
        self.damaged(at, format!("{problem}; {behind}"))
    }

    /// Reads the next `bytes` bytes of the file into `body`, fewer at the end of the file. Returns the number of bytes read.
    fn read_body(&mut self, bytes: u64) -> Result<u64, Error> {
        self.body.clear();
        let read = (&mut self.file).take(bytes).read_to_end(&mut self.body);
        read.map(|read| read as u64).map_err(|source| self.io(source))
    }

    fn read(&mut self, at: u64, out: &mut [u8]) -> Result<(), Error> {
        match self.file.read_exact(out) {
            Ok(()) => Ok(()),
            Err(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
                self.place = Source::End;
                Err(self.damaged(
                    at,
                    "the file has become shorter while it was read (allowed: a file that nobody writes)",
                ))
            }
            Err(source) => Err(self.io(source)),
        }
    }

    fn skip(&mut self, bytes: u64) -> Result<(), Error> {
        let skipped = i64::try_from(bytes).map_or_else(|_| Ok(()), |bytes| self.file.seek_relative(bytes));
        skipped.map_err(|source| self.io(source))
    }

    fn io(&mut self, source: io::Error) -> Error {
        self.place = Source::End;
        Error::io(&self.path, source)
    }

    fn damaged(&self, at: u64, problem: impl Into<String>) -> Error {
        Error::Damaged {
            path: self.path.clone(),
            at,
            problem: problem.into(),
        }
    }
}
