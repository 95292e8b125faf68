use std::io;
use std::path::PathBuf;

/// A message can't be written, or a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// A folder or a file can't be made or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A message has no form that the files can hold.
    #[error("stream `{stream}`: {problem}")]
    Message {
        /// The stream.
        stream: String,
        /// What came, and what is allowed.
        problem: String,
    },
}
