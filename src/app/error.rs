use std::path::PathBuf;

/// Why an app can't be built, or can't go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppError {
    /// The configuration can't be used.
    #[error("{file}: {section}: {problem}", file = .file.display())]
    Config {
        /// The file it came from; `the program` for what comes from code.
        file: PathBuf,
        /// The section, such as `fuse`; `configuration` for the file as a whole.
        section: String,
        /// The key, what came and what is allowed.
        problem: String,
    },
    /// An operation can't go on.
    #[error("{operation}: {error}")]
    Operation {
        /// The operation.
        operation: String,
        /// Why.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl AppError {
    /// Whether it is the configuration that is wrong, and not what happened later: exit code 2.
    pub fn is_config(&self) -> bool {
        matches!(self, Self::Config { .. })
    }
}
