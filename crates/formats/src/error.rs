use std::io;
use std::path::{Path, PathBuf};

/// The reason why a file, or a part of it, can't be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A folder or a file can't be made, read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A folder or a file has contents that are not allowed.
    #[error("{}: {problem}", path.display())]
    File {
        /// The folder or file.
        path: PathBuf,
        /// The problem: the value found, and the values allowed.
        problem: String,
    },
    /// A part of a file can't be read.
    #[error("{}: damaged at byte {at}: {problem}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Position of the first byte that can't be read.
        at: u64,
        /// The problem with it.
        problem: String,
    },
    /// A row of a table is left out.
    #[error("{}:{line}: {problem}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The line in which the row begins, from 1.
        line: u64,
        /// The column, the value found, and the values allowed.
        problem: String,
    },
    /// A feature of a dataset has a description that is not allowed, or got a value that does not fit it.
    #[error("feature `{feature}`: {problem}")]
    Feature {
        /// The name of the feature.
        feature: String,
        /// The problem: the value found, and the values allowed.
        problem: String,
    },
    /// A message can't be written to a file of this format.
    #[error("stream `{stream}`: {problem}")]
    Message {
        /// The name of the stream.
        stream: String,
        /// The problem: the value found, and the values allowed.
        problem: String,
    },
}

impl Error {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn file(path: &Path, problem: impl ToString) -> Self {
        Self::File {
            path: path.to_owned(),
            problem: problem.to_string(),
        }
    }

    #[cfg(feature = "lerobot")]
    pub(crate) fn feature(feature: &str, problem: impl ToString) -> Self {
        Self::Feature {
            feature: feature.to_owned(),
            problem: problem.to_string(),
        }
    }

    #[cfg(any(feature = "csv", feature = "mcap"))]
    pub(crate) fn message(stream: &str, problem: impl ToString) -> Self {
        Self::Message {
            stream: stream.to_owned(),
            problem: problem.to_string(),
        }
    }
}
