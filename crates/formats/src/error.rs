//! The errors of all formats. Each names its file, stream or feature, the value found, and the values allowed.

use std::io;
use std::path::{Path, PathBuf};

/// Reason why a file, or a part of it, can't be read or written, in any format.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A folder or a file can't be made, read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the folder or file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A folder or a file has contents that are not allowed.
    #[error("{}: {problem}", path.display())]
    File {
        /// Path of the folder or file.
        path: PathBuf,
        /// Error text with the value found and the values allowed.
        problem: String,
    },
    /// A part of a file can't be read, and is skipped.
    #[error("{}: damaged at byte {at}: {problem}", path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Position in the file of the first byte that can't be read.
        at: u64,
        /// Problem at this position, and the data that are skipped.
        problem: String,
    },
    /// A row of a table can't be read, and is skipped.
    #[error("{}:{line}: {problem}", path.display())]
    Row {
        /// Path of the file.
        path: PathBuf,
        /// Line of the file in which the row begins, from 1.
        line: u64,
        /// Error text with the column of the table, the value found and the values allowed.
        problem: String,
    },
    /// A feature of a LeRobot dataset has a description that is not allowed, or was given a value of another type or size.
    #[error("feature `{feature}`: {problem}")]
    Feature {
        /// Name of the feature in the dataset.
        feature: String,
        /// Error text with the value found and the values allowed.
        problem: String,
    },
    /// A message can't be written to a file of this format.
    #[error("stream `{stream}`: {problem}")]
    Message {
        /// Name of the message's stream.
        stream: String,
        /// Error text with the value found and the values allowed.
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
