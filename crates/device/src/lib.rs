//! Devices (the CPU and GPUs), the memory in which data lie, and the types of elements.
//!
//! The type of a buffer says where its data lie: memory that the CPU can read is a [`HostBuf`] or a slice; memory of a GPU is a
//! [`gpu::DeviceBuf`]. Passing host memory to a GPU operation, or GPU memory to a CPU operation, is a compile error. Every copy
//! between host and GPU is an explicit call.
//!
//! [`Placement`] holds the devices to use. [`Backend`] chooses whether the CPU or the GPU does a piece of work, and [`Resident`]
//! where the state of an operation lives. The drivers are the features `cuda` and `hip`, on by default. Without them no device can
//! be opened: `auto` means the CPU, and asking for a device by name is an error.

#![warn(unreachable_pub)]

mod backend;
mod dtype;
mod float;
pub mod gpu;
mod host;
mod placement;
mod resident;
pub mod ring;

pub use backend::{Backend, FIRST_RETRY, LONGEST_RETRY, Work};
pub use dtype::{Dtype, Element, Primitive, Values};
pub use float::{Float, convert, zip_map};
pub use host::{HostBuf, HostMemory};
pub use placement::{DeviceError, Placement};
pub use resident::{Outcome, Resident, State};
pub use robocache_geometry::Real;

use gpu::Kind;
use serde::{Deserialize, Deserializer, de};
use std::fmt;

/// Value of the key `device` of a configuration: the device that an operation is to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The CPU or a GPU, whichever is quicker for the work at hand; the CPU if there is no GPU.
    #[default]
    Auto,
    /// The CPU, even if there is a GPU.
    Cpu,
    /// The GPU of this kind and ordinal; `None` means ordinal 0, unless `devices:` lists ordinals.
    Gpu(Kind, Option<usize>),
}

/// Device that does work or holds data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The CPU, whose data lie in host memory.
    Cpu,
    /// A GPU: its kind, and its ordinal among the GPUs of that kind, from 0.
    Gpu(Kind, usize),
}

impl DeviceChoice {
    /// Lists the allowed values of `device:`, for an error text.
    fn allowed() -> String {
        let kinds = Kind::ALL.map(|kind| format!(", {kind}, {kind}:N"));
        format!("auto, cpu{}", kinds.concat())
    }

    /// Parses a choice, such as `cuda:0`; `None` if the text is not a choice.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            "cpu" => Some(Self::Cpu),
            _ => Kind::ALL.into_iter().find_map(|kind| {
                let rest = text.strip_prefix(kind.name())?;
                if rest.is_empty() {
                    return Some(Self::Gpu(kind, None));
                }
                let ordinal = rest.strip_prefix(':')?.parse().ok()?;
                Some(Self::Gpu(kind, Some(ordinal)))
            }),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Gpu(kind, None) => write!(f, "{kind}"),
            Self::Gpu(kind, Some(ordinal)) => write!(f, "{kind}:{ordinal}"),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Gpu(kind, ordinal) => write!(f, "{kind}:{ordinal}"),
        }
    }
}

impl<'de> Deserialize<'de> for DeviceChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| de::Error::custom(format!("`{text}` is not a device (allowed: {})", Self::allowed())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_parsed_or_refused_by_name() {
        let parse = |text| serde_yaml::from_str::<DeviceChoice>(text);
        assert_eq!(parse("auto").unwrap(), DeviceChoice::Auto);
        assert_eq!(parse("cuda:3").unwrap(), DeviceChoice::Gpu(Kind::Cuda, Some(3)));
        assert_eq!(parse("hip").unwrap(), DeviceChoice::Gpu(Kind::Hip, None));
        assert!(
            parse("gpu")
                .unwrap_err()
                .to_string()
                .contains("(allowed: auto, cpu, cuda, cuda:N, hip, hip:N)")
        );
        assert!(parse("cuda:x").is_err());
    }
}
