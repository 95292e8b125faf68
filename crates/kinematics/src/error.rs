use std::io;

/// The reason why a URDF gives no chain.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// A URDF file can't be read.
    #[error("{file}: {source}")]
    Io {
        /// Path of the file, or the name that the caller gave to its text.
        file: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file as a whole can't be used, or lacks a link or a joint that was asked for.
    #[error("{file}: {problem}")]
    File {
        /// Path of the file, or the name that the caller gave to its text.
        file: String,
        /// The value found, and the values allowed.
        problem: String,
    },
    /// An element of the file can't be used.
    #[error("{file}:{line}: {problem}")]
    Element {
        /// Path of the file, or the name that the caller gave to its text.
        file: String,
        /// Line of the element in the file, from 1.
        line: u32,
        /// The value found, and the values allowed.
        problem: String,
    },
    /// A joint of the file can't be used.
    #[error("{file}:{line}: joint `{joint}`: {problem}")]
    Joint {
        /// Path of the file, or the name that the caller gave to its text.
        file: String,
        /// Line of the joint's element in the file, from 1.
        line: u32,
        /// Name of the joint in the file.
        joint: String,
        /// The value found, and the values allowed.
        problem: String,
    },
}
