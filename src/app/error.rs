use super::Fault;
use std::path::PathBuf;

/// Reason why an app can't be built, or has to end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppError {
    /// The configuration can't be used.
    #[error("{file}: {section}: {problem}", file = .file.display())]
    Config {
        /// The configuration file; `the program` if the configuration comes from code.
        file: PathBuf,
        /// The section, such as `fuse`; `configuration` for the file as a whole.
        section: String,
        /// Text that names the key, its value and the allowed values.
        problem: String,
    },
    /// An operation has failed for good: the app ends.
    #[error("{operation}: {error}")]
    Operation {
        /// Name of the operation.
        operation: String,
        /// Error that the operation returned, or gave to [`Outbox::end`](super::Outbox::end).
        error: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl AppError {
    /// Converts the error of an operation that can't go on, and adds the operation's name.
    pub(super) fn of(operation: &str, error: impl Into<Fault>) -> Self {
        Self::Operation {
            operation: operation.to_owned(),
            error: error.into().into_inner(),
        }
    }

    /// True if the configuration is wrong: exit code 2. False for later errors.
    pub fn is_config(&self) -> bool {
        matches!(self, Self::Config { .. })
    }
}
