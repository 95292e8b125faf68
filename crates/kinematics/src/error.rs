use std::io;

/// Reason why a chain can't be read from a URDF.
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
    /// The file can't be used as a whole, or lacks a link or a joint that the configuration names.
    #[error("{file}: {problem}")]
    File {
        /// Path of the file, or the name that the caller gave to its text.
        file: String,
        /// Error text with the value found and the values allowed.
        problem: String,
    },
    /// An XML element of the file can't be used.
    #[error("{file}:{line}: {problem}")]
    Element {
        /// Path of the file, or the name that the caller gave to its text.
        file: String,
        /// Line of the element in the file, from 1.
        line: u32,
        /// Error text with the value found and the values allowed.
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
        /// Error text with the value found and the values allowed.
        problem: String,
    },
}
