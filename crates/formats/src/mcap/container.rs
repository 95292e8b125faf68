//! Opening of a bag's file: MCAP or SQLite, optionally compressed as a whole with zstd. A compressed file is unpacked to a
//! temporary file of bounded size, which is unlinked as soon as it is open.

use super::ordered::Ordered;
use super::record::Container;
use super::records::Records;
#[cfg(feature = "rosbag2")]
use super::sqlite::Database;
use super::zstd;
use crate::Error;
use robocache_stream::file;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// First bytes of an SQLite file.
const SQLITE: [u8; 16] = *b"SQLite format 3\0";
/// Largest allowed ratio of unpacked to compressed size: no recording compresses better.
const MAX_RATIO: u64 = 1000;
/// Number of bytes that an unpacked file may have beyond `MAX_RATIO` times its compressed size.
const SPARE_BYTES: u64 = 1 << 30;

/// Open file of a bag, and an error if a part of the file can't be read.
pub(super) type Opened = (Box<dyn Container>, Option<Error>);

/// Opens a file of a bag, and unpacks it if needed.
pub(super) fn open(path: &Path) -> Result<Opened, Error> {
    let io = |source| Error::io(path, source);
    let mut file = file::open(path).map_err(io)?;
    if !begin(&mut file).map_err(io)?.starts_with(&zstd::MAGIC) {
        return open_plain(path, path, file);
    }
    let (unpacked, broken) = Unpacked::new(path, file)?;
    let file = File::open(&unpacked.0).map_err(io)?;
    match open_plain(path, &unpacked.0, file) {
        Ok((opened, problem)) => Ok((opened, broken.or(problem))),
        Err(error) => Err(broken.unwrap_or(error)),
    }
}

/// Opens an uncompressed file of a bag, or the unpacked copy of a compressed file. `at` is the path to open; error texts name
/// `path` instead.
#[cfg_attr(not(feature = "rosbag2"), expect(unused_variables))]
fn open_plain(path: &Path, at: &Path, mut file: File) -> Result<Opened, Error> {
    if begin(&mut file).map_err(|source| Error::io(path, source))? != SQLITE {
        return Ok((Box::new(Ordered::new(Records::open(path, file)?)), None));
    }
    #[cfg(feature = "rosbag2")]
    {
        let (database, problem) = Database::open(path, at)?;
        Ok((Box::new(database), problem))
    }
    #[cfg(not(feature = "rosbag2"))]
    {
        let problem = "a bag in SQLite, which robocache was built without (needed: a build with the feature `rosbag2`)";
        Err(Error::file(path, problem))
    }
}

/// Reads the first 16 bytes of a file, or all bytes of a shorter file, and seeks back to its start.
fn begin(file: &mut File) -> io::Result<Vec<u8>> {
    let mut begin = Vec::new();
    file.take(SQLITE.len() as u64).read_to_end(&mut begin)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(begin)
}

/// Path of an unpacked copy in the folder of temporary files. Dropping the value unlinks the copy; a handle that is open
/// stays readable.
struct Unpacked(PathBuf);

impl Unpacked {
    /// Unpacks a compressed file into a new temporary file. Also returns an error if only a part could be unpacked.
    fn new(path: &Path, compressed: File) -> Result<(Self, Option<Error>), Error> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("robocache-{}-{number}", std::process::id());
        let to = Self(std::env::temp_dir().join(name));
        let io = |source| Error::io(&to.0, source);
        let mut out = File::create_new(&to.0).map_err(io)?;
        let length = compressed.metadata().map_err(io)?.len();
        let limit = SPARE_BYTES.saturating_add(MAX_RATIO.saturating_mul(length));
        let failed = |problem: String| Error::file(path, problem);
        let mut kept = CheckedFile {
            file: &mut out,
            refused: None,
        };
        let unpacked = zstd::unpack(io::BufReader::new(compressed), limit, &mut kept);
        if let Some(refused) = kept.refused {
            let folder = std::env::temp_dir();
            return Err(failed(format!(
                "the unpacked file can't be written to {}: {refused} (needed: a `TMPDIR` with room for it)",
                folder.display()
            )));
        }
        match unpacked {
            Ok(unpacked) if unpacked >= limit => Err(failed(format!(
                "its {length} bytes unpack to more than {limit} (allowed: {MAX_RATIO} times its size, plus 1 GiB)"
            ))),
            Ok(_) => Ok((to, None)),
            Err(problem) => {
                let there = out.metadata().map_err(io)?.len();
                let problem = format!("zstd can't unpack it behind byte {there} of the unpacked data: {problem}");
                Ok((to, Some(failed(problem))))
            }
        }
    }
}

/// Writer to a file that keeps the error text of a failed write, to tell this error from errors of the decoder.
struct CheckedFile<'a> {
    file: &'a mut File,
    refused: Option<String>,
}

impl Write for CheckedFile<'_> {
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
