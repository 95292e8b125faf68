use super::cuda::{CudaError, Gpu};
use super::{DeviceChoice, HostMemory};
use std::fmt;

/// The devices of an operation: what `device:`, `devices:` and `max_device_mb:` of a configuration mean on this machine.
#[derive(Clone)]
pub struct Placement {
    gpus: Vec<Gpu>,
    max_bytes: Option<usize>,
    is_auto: bool,
    reason: String,
}

/// The devices that were asked for can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// A device that was asked for by name can't be used.
    #[error("`{asked}` can't be used: {error} (allowed on any machine: auto, cpu)")]
    Cuda {
        /// What was asked for.
        asked: String,
        /// Why.
        error: CudaError,
    },
    /// `devices:` beside a `device:` that names another one.
    #[error("{asked:?} does not go with `device: {choice}` (allowed with it: auto, cuda)")]
    Conflict {
        /// `devices:`.
        asked: Vec<usize>,
        /// `device:`.
        choice: DeviceChoice,
    },
    /// `devices:` with none, or with one twice.
    #[error("{0:?} is not allowed (ordinals of CUDA devices, at least one, each once)")]
    Devices(Vec<usize>),
}

impl Placement {
    /// The CPU alone.
    pub fn cpu(reason: impl Into<String>) -> Self {
        Self {
            gpus: Vec::new(),
            max_bytes: None,
            is_auto: false,
            reason: reason.into(),
        }
    }

    /// Opens the devices. With `devices`, batches are shared among those, and the first one does everything else.
    ///
    /// # Errors
    /// If a device was asked for by name and can't be used, as none can where the feature `cuda` is off. `auto` takes the
    /// CPU then.
    pub fn resolve(choice: DeviceChoice, devices: Option<&[usize]>) -> Result<Self, DeviceError> {
        let named = match (choice, devices) {
            (DeviceChoice::Auto | DeviceChoice::Cuda(None), Some(devices)) => {
                let repeats = (1..devices.len()).any(|i| devices[..i].contains(&devices[i]));
                if devices.is_empty() || repeats {
                    return Err(DeviceError::Devices(devices.to_vec()));
                }
                devices.to_vec()
            }
            (choice, Some(devices)) => {
                return Err(DeviceError::Conflict {
                    asked: devices.to_vec(),
                    choice,
                });
            }
            (DeviceChoice::Cpu, None) => return Ok(Self::cpu("asked for")),
            (DeviceChoice::Cuda(Some(ordinal)), None) => vec![ordinal],
            (DeviceChoice::Auto | DeviceChoice::Cuda(None), None) => vec![0],
        };
        let is_auto = choice == DeviceChoice::Auto;
        let asked = match devices {
            Some(devices) => format!("devices: {devices:?}"),
            None => choice.to_string(),
        };
        match named.iter().map(|&ordinal| Gpu::open(ordinal)).collect() {
            Ok(gpus) => Ok(Self {
                gpus,
                max_bytes: None,
                is_auto,
                reason: if is_auto {
                    "auto: what is large enough to be quicker there".into()
                } else {
                    "asked for".into()
                },
            }),
            // Devices that are named are wanted, whatever `device:` says.
            Err(error) if is_auto && devices.is_none() => Ok(Self::cpu(format!("auto: {error}"))),
            Err(error) => Err(DeviceError::Cuda { asked, error }),
        }
    }

    /// The same, with a limit to the device memory that each operation holds.
    #[must_use]
    pub fn with_max_bytes(mut self, max_bytes: Option<usize>) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// The CPU alone, for an operation whose configuration asks for what is not on CUDA. A line of the log says so where there
    /// would be a device.
    pub fn without_cuda(&self, operation: &str, reason: &str) -> Self {
        if self.gpu().is_some() {
            tracing::warn!("{operation}: on the CPU: {reason}");
        }
        Self::cpu(reason)
    }

    /// The device of work that is not shared among several; `None`: the CPU.
    pub fn gpu(&self) -> Option<&Gpu> {
        self.gpus.first()
    }

    /// The devices that batches are shared among.
    pub fn gpus(&self) -> &[Gpu] {
        &self.gpus
    }

    /// Where messages get their memory from: page-locked where a device is to read and write them.
    pub fn host_memory(&self) -> HostMemory {
        self.gpu().map_or_else(HostMemory::pageable, HostMemory::page_locked)
    }

    /// Bytes of a device's memory that an operation may hold.
    pub fn max_bytes(&self) -> Option<usize> {
        self.max_bytes
    }

    /// Whether each piece of work goes to what is quicker, and the CPU takes over where the device fails.
    pub fn is_auto(&self) -> bool {
        self.is_auto
    }
}

impl fmt::Debug for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Placement({self})")
    }
}

/// The devices, and why it is those, for the log.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.gpus.is_empty() {
            f.write_str("cpu")?;
        }
        for (i, gpu) in self.gpus.iter().enumerate() {
            let separator = if i > 0 { ", " } else { "" };
            write!(f, "{separator}cuda:{} {}", gpu.ordinal(), gpu.name())?;
        }
        write!(f, " ({})", self.reason)
    }
}

#[cfg(all(test, not(feature = "cuda")))]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_cuda_says_so() {
        let auto = Placement::resolve(DeviceChoice::Auto, None).unwrap();
        assert!(auto.gpu().is_none());
        assert_eq!(
            auto.to_string(),
            "cpu (auto: this program was built without CUDA (its feature `cuda`))"
        );
        let error = Placement::resolve(DeviceChoice::Cuda(Some(1)), None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`cuda:1` can't be used: this program was built without CUDA (its feature `cuda`) (allowed on any machine: \
             auto, cpu)"
        );
        assert!(Placement::resolve(DeviceChoice::Auto, Some(&[0])).is_err());
    }
}
