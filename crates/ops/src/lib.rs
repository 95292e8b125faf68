//! Operations on sensor streams (align, fuse, voxelize, resample, ...), and offline analyses of recordings: [`latency`],
//! [`offsets`]. Each operation has a configuration that is checked once, and a CPU implementation that is its specification.
//!
//! An operation writes into buffers that its caller owns and allocates nothing per message in steady state.

#![warn(unreachable_pub)]

#[macro_use]
mod simd;

pub mod align;
mod channel_groups;
pub mod clock;
pub mod fuse;
pub mod group;
pub mod key;
pub mod kinematics;
pub mod latency;
#[cfg(test)]
mod layout;
pub mod map;
pub mod offsets;
pub mod pose;
pub mod resample;
pub mod voxelize;

use robocache_device::Dtype;
use robocache_stream::{FromConfig, FromError};
use robocache_time::Interpolation;

/// Error in a configuration: a key whose value is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct ConfigError {
    /// Full name of the key within the section of the operation, such as `modalities[2].dim`.
    pub key: String,
    /// Description of the problem: the value of the key, and the allowed values.
    pub problem: String,
}

impl ConfigError {
    /// Creates the error that the value at `key` is not allowed; `problem` has the value and the allowed values.
    pub fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            problem: problem.into(),
        }
    }
}

/// Default of `dtype`, the element type of outputs.
fn float32() -> Dtype {
    Dtype::Float32
}

/// Default of `max_held_mb`, the memory limit of the attached messages that are kept, MiB.
fn quarter_gib() -> f64 {
    256.0
}

/// Returns the error that the value at `key` is not allowed; `problem` has the value and the allowed values.
fn refused<T>(key: impl Into<String>, problem: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError::new(key, problem))
}

/// Checks a duration of a configuration, 0 to 1e12 ms, and converts it to ns; an error names the key that `key` returns.
pub fn duration_ns(key: impl FnOnce() -> String, ms: f64) -> Result<i64, ConfigError> {
    match (0.0..=1e12).contains(&ms) {
        true => Ok(robocache_time::ms_to_ns(ms)),
        false => refused(key(), format!("{ms} is not a duration (allowed: 0 to 1e12 ms)")),
    }
}

/// Checks a memory limit of a configuration, above 0 and up to 1e6 MiB, and converts it to bytes; an error names the key
/// that `key` returns.
fn held_bytes(key: impl FnOnce() -> String, mb: f64) -> Result<usize, ConfigError> {
    match mb > 0.0 && mb <= 1e6 {
        true => Ok((mb * f64::from(1 << 20)) as usize),
        false => refused(
            key(),
            format!("{mb} is not allowed (allowed: a number of MiB above 0, up to 1e6)"),
        ),
    }
}

/// Checks the key `from` of an input. The key of the input itself, such as `modalities[2]`, is `at`, for errors. A sample has
/// `dim` values; `None` is for a point cloud.
pub fn check_from(at: &str, from: Option<&FromConfig>, dim: Option<usize>) -> Result<(), ConfigError> {
    let checked = from.map_or(Ok(()), |from| from.check(dim));
    checked.map_err(|FromError { key, problem }| ConfigError::new(format!("{at}.from.{key}"), problem))
}

/// Returns the error for a limit that the interpolation mode does not use. It is refused so that nobody relies on it.
pub fn unused_limit(key: impl Into<String>, interpolation: Option<Interpolation>) -> ConfigError {
    let (name, allowed) = match interpolation {
        Some(mode) => (mode.name(), mode.limits().join(", ")),
        None => ("its interpolation", "none".to_owned()),
    };
    ConfigError::new(
        key,
        format!("`{name}` does not use this key (allowed with it: {allowed})"),
    )
}
