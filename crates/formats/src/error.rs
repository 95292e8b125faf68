use std::io;
use std::path::{Path, PathBuf};

/// A file can't be read or written, or a part of it.
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
    /// A folder or a file is not what it has to be.
    #[error("{}: {problem}", path.display())]
    File {
        /// The folder or file.
        path: PathBuf,
        /// The problem: what came, and what is allowed.
        problem: String,
    },
    /// A part of a file can't be read.
    #[error("{}: damaged at byte {at}: {problem}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Start of the part that can't be read.
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
        /// The column, what came, and what is allowed.
        problem: String,
    },
    /// A feature of a dataset can't be what is said of it, or was given what it is not.
    #[error("feature `{feature}`: {problem}")]
    Feature {
        /// Its name.
        feature: String,
        /// The problem: what came, and what is allowed.
        problem: String,
    },
    /// A message has no form that the files can hold.
    #[error("stream `{stream}`: {problem}")]
    Message {
        /// The stream.
        stream: String,
        /// The problem: what came, and what is allowed.
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
