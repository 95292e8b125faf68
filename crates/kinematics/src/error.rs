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
    /// A file as a whole is not what it has to be, or lacks something that is asked for.
    #[error("{file}: {problem}")]
    File {
        /// The file.
        file: String,
        /// The problem: what came, and what is allowed.
        problem: String,
    },
    /// An element is not what it has to be.
    #[error("{file}:{line}: {problem}")]
    Element {
        /// The file.
        file: String,
        /// The line of the element, from 1.
        line: u32,
        /// The problem: what came, and what is allowed.
        problem: String,
    },
    /// A joint is not what it has to be.
    #[error("{file}:{line}: joint `{joint}`: {problem}")]
    Joint {
        /// The file.
        file: String,
        /// The line of the joint's element, from 1.
        line: u32,
        /// The name of the joint.
        joint: String,
        /// The problem: what came, and what is allowed.
        problem: String,
    },
}
