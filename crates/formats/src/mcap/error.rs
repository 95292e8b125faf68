use std::io;
use std::path::{Path, PathBuf};

/// A part of a bag can't be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A folder or a file can't be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file is no MCAP file.
    #[error("{}: no file of a bag (allowed: one that starts with `\\x89MCAP0\\r\\n` or `SQLite format 3`, or either compressed with zstd)", path.display())]
    NotMcap {
        /// The file.
        path: PathBuf,
    },
    /// A folder or a file is no bag that can be read.
    #[error("{}: {problem}", path.display())]
    NotABag {
        /// The folder, its `metadata.yaml`, or the file.
        path: PathBuf,
        /// What came, and what is allowed.
        problem: String,
    },
    /// A part of a file can't be read.
    #[error("{}: damaged at byte {at}: {problem}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the part starts that can't be read.
        at: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// A part of a file can't be read, of which no byte tells where it is.
    #[error("{}: {problem}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

impl ReadError {
    pub(super) fn not_a_bag(path: &Path, problem: impl Into<String>) -> Self {
        Self::NotABag {
            path: path.to_owned(),
            problem: problem.into(),
        }
    }
}
