//! The devices that a configuration asks for, as they are on this machine. A device that was asked for by name is used or refused;
//! only `auto` takes the CPU instead.

use super::gpu::{DeviceFault, Gpu, Kind, Unavailable};
use super::{Device, DeviceChoice, HostMemory};
use std::fmt;

/// Open devices of an operation: `device:`, `devices:` and `max_device_mb:` of a configuration, resolved on this machine.
#[derive(Clone)]
pub struct Placement {
    gpus: Vec<Gpu>,
    max_bytes: Option<usize>,
    is_auto: bool,
    reason: String,
}

/// The reason why the devices that were asked for can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// A device that was asked for by name can't be used.
    #[error("`{asked}` can't be used: {error}{} (allowed on any machine: auto, cpu)", hint_at_other(*other))]
    Gpu {
        /// Text of the configuration that asked for the device, such as `cuda:1`.
        asked: String,
        /// Fault of opening the device.
        error: DeviceFault,
        /// Device of another kind that could be used instead, if the kind that was asked for has no usable device.
        other: Option<Device>,
    },
    /// `devices:` was given beside `device: cpu`, or beside a `device:` with an ordinal.
    #[error("{asked:?} does not go with `device: {choice}` (allowed for `device` beside it: auto{})", Kind::ALL.map(|kind| format!(", {kind}")).concat())]
    Conflict {
        /// The value of `devices:`.
        asked: Vec<usize>,
        /// The value of `device:`.
        choice: DeviceChoice,
    },
    /// `devices:` is empty, or has a device twice.
    #[error("{0:?} is not allowed (allowed: ordinals of GPUs, at least one, each once)")]
    Devices(Vec<usize>),
}

impl Placement {
    /// Places all work on the CPU, for a `reason` that the log states.
    pub fn cpu(reason: impl Into<String>) -> Self {
        Self {
            gpus: Vec::new(),
            max_bytes: None,
            is_auto: false,
            reason: reason.into(),
        }
    }

    /// Places work on GPUs that are open already. If `is_auto`, work for which the CPU is quicker goes to the CPU.
    pub fn on(gpus: Vec<Gpu>, is_auto: bool) -> Self {
        let is_verified = gpus.iter().all(|gpu| match gpu.device() {
            Device::Cpu => true,
            Device::Gpu(kind, _) => kind.is_verified(),
        });
        let reason = match (is_auto, is_verified) {
            (true, _) => "auto: work that is large enough to be quicker there",
            (false, true) => "asked for",
            (false, false) => "asked for; not verified on a device, see docs/gpu.md",
        };
        Self {
            gpus,
            max_bytes: None,
            is_auto,
            reason: reason.into(),
        }
    }

    /// Opens the device that `choice` names, or the GPUs whose ordinals `devices` lists. Batches are shared among several devices;
    /// the first device does all other work.
    ///
    /// # Errors
    /// If a device that was asked for by name can't be used, as in every build without its feature, `cuda` or `hip`; `auto` takes
    /// the CPU instead. Also if `devices` is empty, has an ordinal twice, or contradicts `choice`.
    pub fn resolve(choice: DeviceChoice, devices: Option<&[usize]>) -> Result<Self, DeviceError> {
        let named = match (choice, devices) {
            (DeviceChoice::Auto | DeviceChoice::Gpu(_, None), Some(devices)) => {
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
            (DeviceChoice::Gpu(_, Some(ordinal)), None) => vec![ordinal],
            (DeviceChoice::Auto | DeviceChoice::Gpu(_, None), None) => vec![0],
        };
        let kind = match choice {
            DeviceChoice::Gpu(kind, _) => kind,
            _ => kind_for_auto(),
        };
        let is_auto = choice == DeviceChoice::Auto;
        let asked = match devices {
            Some(devices) => format!("devices: {devices:?}"),
            None => choice.to_string(),
        };
        match named.iter().map(|&ordinal| Gpu::open(kind, ordinal)).collect() {
            Ok(gpus) => Ok(Self::on(gpus, is_auto)),
            // Devices that `devices:` lists were asked for by name, even with `device: auto`.
            Err(error) if is_auto && devices.is_none() => {
                let named =
                    device_of_other_kind(kind, &error).map(|device| format!("; {device} is there, and must be named"));
                Ok(Self::cpu(format!("auto: {error}{}", named.unwrap_or_default())))
            }
            Err(error) => Err(DeviceError::Gpu {
                asked,
                other: device_of_other_kind(kind, &error),
                error,
            }),
        }
    }

    /// Limits the device memory that each operation may hold, bytes; `None` means no limit.
    #[must_use]
    pub fn with_max_bytes(mut self, max_bytes: Option<usize>) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// Places all work on the CPU, for an operation whose configuration GPUs can't do. Logs a warning with the reason if there is a
    /// GPU.
    pub fn without_gpu(&self, operation: &str, reason: &str) -> Self {
        if self.gpu().is_some() {
            tracing::warn!("{operation}: on the CPU: {reason}");
        }
        Self::cpu(reason)
    }

    /// The GPU for work that is not shared among several devices; `None` for the CPU alone.
    pub fn gpu(&self) -> Option<&Gpu> {
        self.gpus.first()
    }

    /// The GPUs that batches are shared among; empty for the CPU alone.
    pub fn gpus(&self) -> &[Gpu] {
        &self.gpus
    }

    /// Kind of host memory for messages: page-locked if a GPU is to read and write them, else pageable.
    pub fn host_memory(&self) -> HostMemory {
        self.gpu().map_or_else(HostMemory::pageable, HostMemory::page_locked)
    }

    /// Largest device memory that an operation may hold, bytes; `None` without a limit.
    pub fn max_bytes(&self) -> Option<usize> {
        self.max_bytes
    }

    /// True if each piece of work goes to the quicker backend, and the CPU takes over if the device fails.
    pub fn is_auto(&self) -> bool {
        self.is_auto
    }
}

/// Chooses the kind that `auto` takes: the first verified kind whose driver can be used, else the first verified kind that the
/// program was built with. Opening the driver of the latter gives an error that says what is missing.
fn kind_for_auto() -> Kind {
    let verified = || Kind::ALL.into_iter().filter(|kind| kind.is_verified());
    let is_built = |kind: &Kind| !matches!(kind.driver(), Err(Unavailable::NotBuilt(_)));
    let found = verified().find(|kind| kind.driver().is_ok());
    let [first, ..] = Kind::ALL;
    found.or_else(|| verified().find(is_built)).unwrap_or(first)
}

/// Returns device 0 of another kind whose driver can be used, if `error` says that no device of `kind` can be used.
fn device_of_other_kind(kind: Kind, error: &DeviceFault) -> Option<Device> {
    let is_missing = |error: &DeviceFault| matches!(error, DeviceFault::Unavailable(reason) if !matches!(reason, Unavailable::NoSuchDevice { .. }));
    let mut others = Kind::ALL
        .into_iter()
        .filter(|&other| other != kind && is_missing(error));
    let other = others.find(|other| other.driver().is_ok())?;
    Some(Device::Gpu(other, 0))
}

/// Formats the end of an error text that names the device of another kind; empty for `None`.
fn hint_at_other(other: Option<Device>) -> String {
    other.map_or_else(String::new, |device| format!("; there is {device}"))
}

impl fmt::Debug for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Placement({self})")
    }
}

/// Writes the devices, and the reason for choosing them, for the log.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.gpus.is_empty() {
            f.write_str("cpu")?;
        }
        for (i, gpu) in self.gpus.iter().enumerate() {
            let separator = if i > 0 { ", " } else { "" };
            write!(f, "{separator}{} {}", gpu.device(), gpu.name())?;
        }
        write!(f, " ({})", self.reason)
    }
}

#[cfg(all(test, not(any(feature = "cuda", feature = "hip"))))]
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
        let error = Placement::resolve(DeviceChoice::Gpu(Kind::Cuda, Some(1)), None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`cuda:1` can't be used: this program was built without CUDA (its feature `cuda`) (allowed on any machine: \
             auto, cpu)"
        );
        assert!(Placement::resolve(DeviceChoice::Auto, Some(&[0])).is_err());
    }
}
