//! Where data lives and what its elements are.
//!
//! Residence is in the type: what the CPU can read is a [`HostBuf`] or a slice; memory of a GPU is a `cuda::DeviceBuf`.
//! Handing one to an operation of the other is a compile error, and every copy between them is written out.
//!
//! [`Placement`] says which devices there are to use, [`Backend`] which of two implementations does a piece of work.
//! CUDA is the feature `cuda`, on by default. Without it nothing of CUDA is compiled, `auto` means the CPU, and asking for
//! a device by name is an error.

// Without CUDA no value of a device's types exists. Code that takes one still compiles, and is never reached.
#![cfg_attr(
    not(feature = "cuda"),
    allow(
        dead_code,
        missing_docs,
        unreachable_code,
        unused_assignments,
        unused_mut,
        unused_variables
    )
)]

mod backend;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "no_cuda.rs"]
pub mod cuda;
mod dtype;
mod float;
mod host;
mod placement;
pub mod ring;

pub use backend::{Backend, FIRST_RETRY, LONGEST_RETRY};
pub use dtype::{Dtype, Element, Primitive, Values};
pub use float::{Float, Real};
pub use float::{convert, zip_map};
pub use host::{HostBuf, HostMemory};
pub use placement::{DeviceError, Placement};

use serde::{Deserialize, Deserializer, de};
use std::fmt;

/// What the key `device` of a configuration asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// Whichever is quicker for the work at hand; the CPU where there is no other device.
    #[default]
    Auto,
    /// The CPU backend.
    Cpu,
    /// The CUDA backend: the device of this ordinal, or the first one.
    Cuda(Option<usize>),
}

/// A device that something was computed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The CPU.
    Cpu,
    /// The CUDA device of this ordinal.
    Cuda(usize),
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(None) => f.write_str("cuda"),
            Self::Cuda(Some(ordinal)) => write!(f, "cuda:{ordinal}"),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

impl<'de> Deserialize<'de> for DeviceChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_str() {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(None)),
            _ => text
                .strip_prefix("cuda:")
                .and_then(|ordinal| ordinal.parse().ok())
                .map(|ordinal| Self::Cuda(Some(ordinal)))
                .ok_or_else(|| de::Error::custom(format!("`{text}` is no device (allowed: auto, cpu, cuda, cuda:N)"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_parsed_or_refused_by_name() {
        let parse = |text| serde_yaml::from_str::<DeviceChoice>(text);
        assert_eq!(parse("auto").unwrap(), DeviceChoice::Auto);
        assert_eq!(parse("cuda:3").unwrap(), DeviceChoice::Cuda(Some(3)));
        assert!(
            parse("gpu")
                .unwrap_err()
                .to_string()
                .contains("allowed: auto, cpu, cuda, cuda:N")
        );
        assert!(parse("cuda:x").is_err());
    }
}
