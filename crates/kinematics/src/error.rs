use std::io;

/// The reason why a URDF gives no chain.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// A file can't be read.
    #[error("{file}: {source}")]
    Io {
        /// The file.
        file: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A file as a whole can't be used, or lacks a link or a joint that was asked for.
    #[error("{file}: {problem}")]
    File {
        /// The file.
        file: String,
        /// The problem: the value found, and the values allowed.
        problem: String,
    },
    /// An element of the file can't be used.
    #[error("{file}:{line}: {problem}")]
    Element {
        /// The file.
        file: String,
        /// The line of the element, from 1.
        line: u32,
        /// The problem: the value found, and the values allowed.
        problem: String,
    },
    /// A joint of the file can't be used.
    #[error("{file}:{line}: joint `{joint}`: {problem}")]
    Joint {
        /// The file.
        file: String,
        /// The line of the joint's element, from 1.
        line: u32,
        /// The name of the joint.
        joint: String,
        /// The problem: the value found, and the values allowed.
        problem: String,
    },
}
