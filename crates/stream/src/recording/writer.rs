//! Writing of recordings: the messages of each stream are collected, and appended to the stream's file in batches.
//!
//! A file can be read up to its last whole batch whenever the process dies: a write overwrites nothing but an old footer, which is
//! cut off first.

use super::framing::{BLOCK, MOST_METADATA, START, block, push_footer};
use super::pending::Pending;
use super::schema::Common;
use super::{WriteError, files};
use crate::Message;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_ipc::{Block, MetadataVersion};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tracing::error;

/// Longest time that the oldest message of a batch waits before the batch is written.
const FLUSH_AFTER: Duration = Duration::from_millis(500);
/// Size of the waiting messages of a stream, bytes, at which they are written as a batch, whatever their age.
const FLUSH_BYTES: usize = 8 << 20;
/// Number of recorded bytes that pay for one byte of footers, beyond [`FOOTER_CREDIT`]. A footer lists all batches of the file,
/// so a footer after every batch would write quadratically many bytes.
const FOOTER_SHARE: u64 = 4;
/// Number of footer bytes that a file may write before [`FOOTER_SHARE`] limits them. A recording of minutes therefore has a
/// footer after every batch.
const FOOTER_CREDIT: u64 = 1 << 20;

/// Recorder of streams into a folder, one file for each stream.
///
/// Messages are collected and written as a batch half a second after the first of them at the latest, if
/// [`tick`](Self::tick) is called when [`due`](Self::due) says. A process that dies leaves files that
/// [`Reader`](super::Reader) reads up to their last whole batch, and any Arrow reader reads as a stream, from byte 8 on.
///
/// [`finish`](Self::finish) puts a footer behind the last batch, so that any Arrow reader opens the file. In the first minutes a
/// footer follows every batch: this footer marks the file as unfinished, and the next batch overwrites it. Later a footer follows
/// only some batches, so that the bytes written stay in proportion to the recording.
///
/// Data that was written survives the process. Data survives a loss of power once the system has put it on the disk, which
/// [`finish`](Self::finish) waits for.
///
/// Memory grows with the recording by 24 bytes a batch, and by nothing else.
pub struct Writer {
    folder: PathBuf,
    streams: Vec<StreamFile>,
    arrivals: Arrivals,
    /// True if this writer continues the streams that an earlier process of the same run has recorded.
    goes_on: bool,
    max_batch_bytes: Option<usize>,
}

/// Source of the arrival times in the column `arrival_ns`.
enum Arrivals {
    Omitted,
    AtAppend(Clock),
    OfMessages,
}

/// Clock of arrival times: the host's real-time clock at the start, continued by its monotonic clock.
struct Clock {
    start: Instant,
    start_ns: i64,
    last_ns: i64,
}

impl Clock {
    /// Converts `now` to ns since 1970. The result is at least 1 ns after that of the last call.
    fn next(&mut self, now: Instant) -> i64 {
        let since = now.saturating_duration_since(self.start).as_nanos();
        let now_ns = self.start_ns.saturating_add(i64::try_from(since).unwrap_or(i64::MAX));
        self.last_ns = now_ns.max(self.last_ns.saturating_add(1));
        self.last_ns
    }
}

struct StreamFile {
    name: String,
    path: PathBuf,
    file: File,
    pending: Pending,
    first_pending: Option<Instant>,
    encoder: StreamWriter<Vec<u8>>,
    blocks: Vec<Block>,
    /// Offset of the next batch in the file: the end of the last batch.
    end: u64,
    /// Number of bytes of footers that may still be written (`FOOTER_SHARE`).
    credit: u64,
    /// Size of the last footer without its list of batches, bytes; 0 before the first footer.
    footer: u64,
    /// Content of the file after offset `end`: nothing, a footer, or remains of a failed write.
    tail: Tail,
    /// Greatest size of a batch of several messages, bytes; `None` if only `FLUSH_BYTES` limits it.
    max_batch_bytes: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tail {
    Nothing,
    /// Footer that marks the file as unfinished.
    Footer,
    /// Final footer, which marks the file as finished.
    End,
    /// Incomplete bytes of a write that failed.
    Remains,
}

impl Writer {
    /// Begins a recording in `folder`, which is created if it does not exist.
    ///
    /// # Errors
    /// If the folder can't be created.
    pub fn create(folder: impl Into<PathBuf>) -> Result<Self, WriteError> {
        let folder = folder.into();
        fs::create_dir_all(&folder).map_err(WriteError::io(&folder))?;
        Ok(Self {
            folder,
            streams: Vec::new(),
            arrivals: Arrivals::Omitted,
            goes_on: false,
            max_batch_bytes: None,
        })
    }

    /// Begins or continues the recording of a run, such as the run of a dataflow, in `folder`, which is created if it does not
    /// exist. A later process of the same run continues each stream in a new file, numbered after the existing files.
    ///
    /// # Errors
    /// If the folder can't be created, or already has a recording of another run, or a recording that names no run.
    pub fn create_or_resume(folder: impl Into<PathBuf>, run: &str) -> Result<Self, WriteError> {
        let mut new = Self::create(folder)?;
        let io = || WriteError::io(&new.folder);
        let file = new.folder.join(files::RUN);
        let recorded_run = || fs::read_to_string(&file).ok().map(|text| text.trim().to_owned());
        if recorded_run().as_deref() != Some(run) {
            let there = files::streams(&new.folder).map_err(io())?;
            if let Some(path) = there.into_values().flatten().next() {
                return Err(WriteError::OtherRun {
                    path,
                    of: recorded_run(),
                });
            }
            // The file is written under another name and renamed, so that no process reads half of it.
            let half = new.folder.join(format!("{}-{}", files::RUN, std::process::id()));
            fs::write(&half, format!("{run}\n")).map_err(io())?;
            fs::rename(&half, &file).map_err(io())?;
            if recorded_run().as_deref() != Some(run) {
                let of = recorded_run();
                return Err(WriteError::OtherRun { path: file, of });
            }
        }
        new.goes_on = true;
        Ok(new)
    }

    /// Records the time of each [`append`](Self::append) in a column `arrival_ns`: ns since 1970, ascending over all streams. A
    /// reader with [`Order::Arrival`](super::Order::Arrival) returns the messages in this order.
    pub fn with_arrivals(mut self) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.arrivals = Arrivals::AtAppend(Clock {
            start: Instant::now(),
            start_ns: i64::try_from(since.as_nanos()).unwrap_or(0),
            last_ns: i64::MIN,
        });
        self
    }

    /// Records the `arrival_ns` that messages already have, in streams whose first message has one. A converted recording thus
    /// keeps its arrival times.
    pub fn with_arrivals_of_messages(mut self) -> Self {
        self.arrivals = Arrivals::OfMessages;
        self
    }

    /// Bounds a batch of several messages to `bytes` bytes, so that a file that is cut off within its last batch loses few
    /// messages.
    pub fn with_batches_of(mut self, bytes: usize) -> Self {
        self.max_batch_bytes = Some(bytes);
        self
    }

    /// Checks that a stream of that name can be recorded.
    ///
    /// # Errors
    /// If the name can't be a file name, or the folder already has a recording of the stream. In a continued run an existing
    /// recording is allowed, unless another process still writes it.
    pub fn can_record(&self, stream: &str) -> Result<(), WriteError> {
        let path = next_file(&self.folder, stream, self.goes_on)?;
        if path.exists() {
            return Err(WriteError::Exists { path });
        }
        Ok(())
    }

    /// Adds a message of `stream`. `now` is the time of its arrival: the batch's waiting time counts from it, and
    /// [`with_arrivals`](Self::with_arrivals) records it. The first message fixes the columns of the file; metadata may change
    /// from message to message.
    ///
    /// # Errors
    /// If the message does not fit the stream's first message or has a form that can't be recorded: it is left out, and the
    /// recording can go on. If the file exists or can't be written.
    pub fn append(&mut self, stream: &str, message: &Message, now: Instant) -> Result<(), WriteError> {
        let arrival_ns = match &mut self.arrivals {
            Arrivals::Omitted => None,
            Arrivals::AtAppend(clock) => Some(clock.next(now)),
            Arrivals::OfMessages => message.arrival_ns,
        };
        let at = match self.streams.iter().position(|s| s.name == stream) {
            Some(at) => at,
            None => {
                let has_arrival = arrival_ns.is_some();
                let path = next_file(&self.folder, stream, self.goes_on)?;
                let mut new = StreamFile::create(path, stream, message, has_arrival)?;
                new.max_batch_bytes = self.max_batch_bytes;
                self.streams.push(new);
                self.streams.len() - 1
            }
        };
        self.streams[at].append(message, arrival_ns, now)
    }

    /// Writes every batch that is due at `now`.
    ///
    /// # Errors
    /// If a file can't be written. The other streams are written nevertheless.
    pub fn tick(&mut self, now: Instant) -> Result<(), WriteError> {
        self.each(|stream| stream.tick(now))
    }

    /// Writes every batch that is due at `now`, and calls `failed` for each stream that can't be written.
    pub fn tick_each(&mut self, now: Instant, mut failed: impl FnMut(&str, WriteError)) {
        for stream in &mut self.streams {
            if let Err(error) = stream.tick(now) {
                failed(&stream.name, error);
            }
        }
    }

    /// Returns the time at which [`tick`](Self::tick) must be called next, because a batch is due; `None` while no
    /// message waits.
    pub fn due(&self) -> Option<Instant> {
        self.streams.iter().filter_map(StreamFile::due).min()
    }

    /// Writes all waiting messages and the final footers, and blocks until the data are on the disk. Messages may still be
    /// appended afterwards.
    ///
    /// # Errors
    /// If a file can't be written. The other streams are written nevertheless.
    pub fn finish(&mut self) -> Result<(), WriteError> {
        self.each(|stream| {
            stream.close()?;
            stream.file.sync_all().map_err(WriteError::io(&stream.path))
        })
    }

    /// Calls `act` for all streams, also after an error. Returns the first error, and logs the others.
    fn each(&mut self, mut act: impl FnMut(&mut StreamFile) -> Result<(), WriteError>) -> Result<(), WriteError> {
        let mut result = Ok(());
        for error in self.streams.iter_mut().filter_map(|stream| act(stream).err()) {
            match result {
                Ok(()) => result = Err(error),
                Err(_) => error!("{error}"),
            }
        }
        result
    }
}

impl StreamFile {
    fn create(path: PathBuf, name: &str, first: &Message, has_arrival: bool) -> Result<Self, WriteError> {
        let pending = Pending::new(Common::of(name, first, has_arrival)?);
        let io = |source: io::Error| match source.kind() {
            io::ErrorKind::AlreadyExists => WriteError::Exists { path: path.clone() },
            _ => WriteError::io(&path)(source),
        };
        let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5);
        let encoder = options
            .and_then(|options| StreamWriter::try_new_with_options(START.to_vec(), &pending.schema, options))
            .map_err(|error| io(io::Error::other(error)))?;
        let file = File::create_new(&path).map_err(&io)?;
        // A failure does no harm: on a file system without locks no process finds a lock.
        let _ = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        let mut stream = Self {
            name: name.to_owned(),
            path: path.clone(),
            file,
            pending,
            first_pending: None,
            encoder,
            blocks: Vec::new(),
            end: 0,
            credit: FOOTER_CREDIT,
            footer: 0,
            tail: Tail::Nothing,
            max_batch_bytes: None,
        };
        stream.write_encoded(true).map_err(io)?;
        Ok(stream)
    }

    fn append(&mut self, message: &Message, arrival_ns: Option<i64>, now: Instant) -> Result<(), WriteError> {
        self.pending.common.check(&self.name, message)?;
        let fits = |most| self.pending.bytes() + message.bytes() <= most;
        if !self.max_batch_bytes.is_none_or(fits) {
            self.flush()?;
        }
        let form = |problem| WriteError::Form {
            stream: self.name.clone(),
            problem,
        };
        // Offsets of a List column have 32 bits. An element takes at least a byte, unless the rows are empty.
        let size = message.bytes().max(message.rows);
        if size > i32::MAX as usize - FLUSH_BYTES {
            let problem = format!("a message of {size} bytes or rows (allowed: 2 GiB less 8 MiB)");
            return Err(form(problem));
        }
        if arrival_ns.is_none() && self.pending.common.has_arrival {
            let problem = "a message without `arrival_ns` (needed: one in every message, as in the first)";
            return Err(form(problem.into()));
        }
        let pushed = self.pending.push(message, arrival_ns.unwrap_or(0), MOST_METADATA);
        let too_long = |size| format!("metadata that takes {size} bytes as text (allowed: {MOST_METADATA})");
        pushed.map_err(|size| form(too_long(size)))?;
        self.first_pending.get_or_insert(now);
        if self.pending.bytes() >= self.max_batch_bytes.unwrap_or(FLUSH_BYTES)
            || self.due().is_some_and(|due| due <= now)
        {
            self.flush()?;
        }
        Ok(())
    }

    fn due(&self) -> Option<Instant> {
        self.first_pending.map(|first| first + FLUSH_AFTER)
    }

    fn tick(&mut self, now: Instant) -> Result<(), WriteError> {
        match self.due() {
            Some(due) if due <= now => self.flush(),
            _ => Ok(()),
        }
    }

    /// Writes the waiting messages as a batch. They are dropped even if writing fails, so that a full disk does not
    /// fill memory.
    fn flush(&mut self) -> Result<(), WriteError> {
        self.first_pending = None;
        let rows = self.pending.rows();
        if rows == 0 {
            return Ok(());
        }
        let written = self.write_pending();
        self.pending.clear();
        written.map_err(|source| WriteError::Lost {
            path: self.path.clone(),
            lost: rows,
            source,
        })
    }

    /// Writes the waiting messages, and the final footer.
    fn close(&mut self) -> Result<(), WriteError> {
        self.flush()?;
        if self.tail == Tail::End {
            return Ok(());
        }
        self.credit = u64::MAX;
        let written = self.write_encoded(false);
        self.credit = 0;
        written.map_err(WriteError::io(&self.path))
    }

    fn write_pending(&mut self) -> io::Result<()> {
        let encoded = self.pending.batch().and_then(|batch| self.encoder.write(&batch));
        if let Err(error) = encoded {
            self.encoder.get_mut().clear();
            return Err(io::Error::other(error));
        }
        self.blocks.push(block(self.end, self.encoder.get_ref()));
        let written = self.write_encoded(true);
        if written.is_err() {
            self.blocks.pop();
        }
        written
    }

    /// Writes the encoder's bytes over the old footer in one write. A new footer follows if `credit` covers its size. If `goes_on`,
    /// the footer marks the file as unfinished.
    fn write_encoded(&mut self, goes_on: bool) -> io::Result<()> {
        let bytes = self.encoder.get_mut();
        let added = bytes.len() as u64;
        self.credit = self.credit.saturating_add(added / FOOTER_SHARE);
        let has_footer = self.credit >= self.footer + (BLOCK * self.blocks.len()) as u64;
        if has_footer {
            push_footer(bytes, &self.pending.schema, &self.blocks, goes_on);
            let footer = bytes.len() as u64 - added;
            self.credit = self.credit.saturating_sub(footer);
            self.footer = footer.saturating_sub((BLOCK * self.blocks.len()) as u64);
        }
        // Cut the old footer off first: an interrupted write must not look like a whole file.
        let cleared = match self.tail {
            Tail::Nothing => Ok(()),
            Tail::Footer | Tail::End | Tail::Remains => self.file.set_len(self.end),
        };
        self.tail = Tail::Remains;
        let written = cleared
            .and_then(|()| self.file.seek(SeekFrom::Start(self.end)))
            .and_then(|_| self.file.write_all(bytes));
        bytes.clear();
        written?;
        self.tail = match (has_footer, goes_on) {
            (false, _) => Tail::Nothing,
            (true, true) => Tail::Footer,
            (true, false) => Tail::End,
        };
        self.end += added;
        Ok(())
    }
}

/// The path of the file in which a stream is recorded: the stream's first file or, if the recording `goes_on`, its next file.
fn next_file(folder: &Path, stream: &str, goes_on: bool) -> Result<PathBuf, WriteError> {
    if stream.is_empty() || stream.starts_with('.') || stream.contains(['/', '\\']) {
        let name = stream.to_owned();
        return Err(WriteError::Name { name });
    }
    if !goes_on {
        return Ok(files::part(folder, stream, 1));
    }
    let mut streams = files::streams(folder).map_err(WriteError::io(folder))?;
    let there = streams.remove(stream).unwrap_or_default();
    match there.iter().find(|path| is_locked(path)) {
        Some(path) => Err(WriteError::Busy { path: path.clone() }),
        None => Ok(files::part(folder, stream, files::number_after(&there))),
    }
}

/// True if a process holds the lock of a file, as the writer of the file does.
fn is_locked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| {
        let locked = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared);
        locked == Err(rustix::io::Errno::WOULDBLOCK)
    })
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Errors are lost here; `finish` returns them.
        let _ = self.each(StreamFile::close);
    }
}
