//! The operations. Each has a configuration that is checked once, and a CPU implementation that is its specification.
//!
//! An operation writes into buffers that its caller owns and allocates nothing per message in steady state.

pub mod align;
pub mod fuse;
pub mod resample;
pub mod voxelize;

/// A configuration that asks for something impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct ConfigError {
    /// The key, from the operation's section on, such as `modalities[2].dim`.
    pub key: String,
    /// What came, and what is allowed.
    pub problem: String,
}

impl ConfigError {
    /// The value at `key` is not allowed, for the reason in `problem`.
    pub fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            problem: problem.into(),
        }
    }
}
