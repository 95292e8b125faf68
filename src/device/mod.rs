//! Where data lives and what its elements are.
//!
//! Residence is in the type: what the CPU can read is a [`HostBuf`] or a slice; memory of a GPU will be a type of its
//! own, so that handing one to an operation of the other is a compile error, and every copy between them is written out.

pub mod cuda;
mod dtype;
mod host;

pub use dtype::{Dtype, Element, Values};
pub use host::HostBuf;

use serde::{Deserialize, Deserializer, de};
use std::fmt;

/// What the key `device` of a configuration asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The fastest device for the work at hand.
    #[default]
    Auto,
    /// The CPU backend.
    Cpu,
    /// The CUDA backend: the device of this ordinal, or the first one.
    Cuda(Option<usize>),
}

/// A device an operation runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Device {
    /// The CPU.
    Cpu,
}

/// The device that was asked for cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("device: `{asked}` is not supported yet: this build has the CPU backend only (allowed: auto, cpu)")]
pub struct DeviceError {
    asked: DeviceChoice,
}

impl DeviceChoice {
    /// Resolves the choice to a device, with the reason in words for the log.
    pub fn resolve(self) -> Result<(Device, &'static str), DeviceError> {
        match self {
            Self::Auto => Ok((Device::Cpu, "auto: this build has the CPU backend only")),
            Self::Cpu => Ok((Device::Cpu, "asked for")),
            Self::Cuda(_) => Err(DeviceError { asked: self }),
        }
    }
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
    fn a_choice_is_parsed_and_resolved_or_refused_by_name() {
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
        assert_eq!(DeviceChoice::Auto.resolve().unwrap().0, Device::Cpu);
        let refused = DeviceChoice::Cuda(Some(1)).resolve().unwrap_err();
        assert!(refused.to_string().contains("`cuda:1` is not supported yet"));
    }
}
