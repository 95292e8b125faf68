use std::io;
use std::path::PathBuf;

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
    #[error("{}: no MCAP file (allowed: one that starts with `\\x89MCAP0\\r\\n`)", path.display())]
    NotMcap {
        /// The file.
        path: PathBuf,
    },
    /// A folder is no bag of MCAP files.
    #[error("{}: {problem}", path.display())]
    NotABag {
        /// The folder, or its `metadata.yaml`.
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
}
