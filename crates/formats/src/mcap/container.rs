//! A file of a bag: MCAP, or SQLite; each may be compressed as a whole with zstd.

use super::ReadError;
use super::records::{Record, Records};
#[cfg(feature = "rosbag2")]
use super::sqlite::Database;
use robocache_stream::file;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// What SQLite's files begin with.
pub(super) const SQLITE: [u8; 16] = *b"SQLite format 3\0";
/// What zstd's frames begin with. No message in CDR begins so.
pub(super) const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// What is compressed unpacks to no more than so many times its size, and a gigabyte: recordings are not that alike.
const MOST_TIMES: u64 = 1000;
const MORE: u64 = 1 << 30;

pub(super) enum Container {
    Mcap(Box<Records>),
    #[cfg(feature = "rosbag2")]
    Sqlite(Box<Database>),
}

impl Container {
    /// Opens a file, and returns with it what can't be read of it as a whole.
    pub fn open(path: &Path) -> Result<(Self, Option<ReadError>), ReadError> {
        let io = |source| ReadError::Io {
            path: path.to_owned(),
            source,
        };
        let mut file = file::open(path).map_err(io)?;
        if !begin(&mut file).map_err(io)?.starts_with(&ZSTD) {
            let (opened, problem) = Self::open_plain(path, path, file)?;
            return Ok((opened, problem));
        }
        let (unpacked, broken) = Unpacked::new(path, file)?;
        let file = File::open(&unpacked.0).map_err(io)?;
        match Self::open_plain(path, &unpacked.0, file) {
            Ok((opened, problem)) => Ok((opened, broken.or(problem))),
            Err(error) => Err(broken.unwrap_or(error)),
        }
    }

    /// `path` is what the file is called, `at` where it lies.
    fn open_plain(path: &Path, at: &Path, mut file: File) -> Result<(Self, Option<ReadError>), ReadError> {
        let begin = begin(&mut file).map_err(|source| ReadError::Io {
            path: path.to_owned(),
            source,
        })?;
        if begin != SQLITE {
            return Ok((Self::Mcap(Box::new(Records::open(path, file)?)), None));
        }
        #[cfg(feature = "rosbag2")]
        {
            let (database, problem) = Database::open(path, at)?;
            Ok((Self::Sqlite(Box::new(database)), problem))
        }
        #[cfg(not(feature = "rosbag2"))]
        {
            let _ = at;
            let problem = "a bag in SQLite, which robocache was built without (feature `rosbag2`)";
            Err(ReadError::not_a_bag(path, problem))
        }
    }

    /// Hands over the schemas and channels that are known before the first message.
    pub fn describe(&self, mut take: impl FnMut(Record<'_>)) {
        match self {
            Self::Mcap(records) => records.summary().for_each(take),
            #[cfg(feature = "rosbag2")]
            Self::Sqlite(database) => database.describe(&mut take),
        }
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// A part of the file that can't be read. The next call goes on behind it.
    pub fn next(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        match self {
            Self::Mcap(records) => records.next(),
            #[cfg(feature = "rosbag2")]
            Self::Sqlite(database) => database.next(),
        }
    }

    /// What stands beside the messages that were read, in words.
    pub fn left_out(&self) -> Option<String> {
        match self {
            Self::Mcap(records) => records.left_out(),
            #[cfg(feature = "rosbag2")]
            Self::Sqlite(_) => None,
        }
    }
}

/// The first bytes of a file, as many as there are.
fn begin(file: &mut File) -> io::Result<Vec<u8>> {
    let mut begin = Vec::new();
    file.take(SQLITE.len() as u64).read_to_end(&mut begin)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(begin)
}

/// Unpacks frames of zstd, of which `compressed` has no more than one in memory at a time, until `limit` bytes are there.
pub(super) fn unpack_zstd(mut compressed: impl io::BufRead, limit: u64, out: &mut impl Write) -> Result<u64, String> {
    let mut unpacked = 0;
    let is_empty = |compressed: &mut dyn io::BufRead| compressed.fill_buf().map(<[u8]>::is_empty);
    while unpacked < limit && !is_empty(&mut compressed).map_err(|error| error.to_string())? {
        let decoder = ruzstd::decoding::StreamingDecoder::new(&mut compressed).map_err(|error| error.to_string())?;
        let copied = io::copy(&mut decoder.take(limit - unpacked), out);
        unpacked += copied.map_err(|error| error.to_string())?;
    }
    Ok(unpacked)
}

/// A file that is unpacked, in the folder of temporary files. It has no name any more once this is dropped.
struct Unpacked(PathBuf);

impl Unpacked {
    /// Unpacks a file, and returns with it why it is not whole.
    fn new(path: &Path, compressed: File) -> Result<(Self, Option<ReadError>), ReadError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("robocache-{}-{number}", std::process::id());
        let to = Self(std::env::temp_dir().join(name));
        let io = |source| ReadError::Io {
            path: to.0.clone(),
            source,
        };
        let mut out = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&to.0)
            .map_err(io)?;
        let length = compressed.metadata().map_err(io)?.len();
        let limit = MORE.saturating_add(MOST_TIMES.saturating_mul(length));
        let failed = |problem: String| ReadError::not_a_bag(path, problem);
        let mut kept = Kept {
            file: &mut out,
            refused: None,
        };
        let unpacked = unpack_zstd(io::BufReader::new(compressed), limit, &mut kept);
        if let Some(refused) = kept.refused {
            let folder = std::env::temp_dir();
            return Err(failed(format!(
                "{} can't hold what it unpacks to: {refused} (needed: a `TMPDIR` with room for it)",
                folder.display()
            )));
        }
        match unpacked {
            Ok(unpacked) if unpacked >= limit => Err(failed(format!(
                "{length} bytes that unpack to more than {limit} (allowed: {MOST_TIMES} times as many, and 1 GiB)"
            ))),
            Ok(_) => Ok((to, None)),
            Err(problem) => {
                let there = out.metadata().map_err(io)?.len();
                let problem = format!("zstd can't unpack it behind byte {there} of what is in it: {problem}");
                Ok((to, Some(failed(problem))))
            }
        }
    }
}

/// A file that is written, and why it can't be any more.
struct Kept<'a> {
    file: &'a mut File,
    refused: Option<String>,
}

impl Write for Kept<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes);
        if let Err(error) = &written
            && error.kind() != io::ErrorKind::Interrupted
        {
            self.refused = Some(error.to_string());
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
