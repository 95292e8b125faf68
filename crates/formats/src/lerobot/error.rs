use std::io;
use std::path::{Path, PathBuf};

/// A dataset can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LerobotError {
    /// A folder or a file can't be made, read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file is not what a dataset has there.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What came, and what is allowed.
        problem: String,
    },
    /// A feature can't be what is said of it, or was given what it is not.
    #[error("feature `{feature}`: {problem}")]
    Feature {
        /// Its name.
        feature: String,
        /// What came, and what is allowed.
        problem: String,
    },
}

impl LerobotError {
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        |source| Self::Io {
            path: path.to_owned(),
            source,
        }
    }

    pub(super) fn file(path: &Path, problem: impl ToString) -> Self {
        Self::File {
            path: path.to_owned(),
            problem: problem.to_string(),
        }
    }

    pub(super) fn feature(feature: &str, problem: impl ToString) -> Self {
        Self::Feature {
            feature: feature.to_owned(),
            problem: problem.to_string(),
        }
    }
}
