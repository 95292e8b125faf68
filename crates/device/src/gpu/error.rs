//! Faults of GPUs. A fault tells if only memory was lacking, after which the device can go on: [`DeviceFault::is_memory`].

use super::driver::{Fault, Unavailable};
use crate::{Device, Dtype};

/// Fault of a device, of its driver or of a tensor on it, with the sizes that explain it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceFault {
    /// The device does not exist, or no device can be used.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The device or the host has no memory left.
    #[error("{device}: out of {kind} memory: {bytes} bytes were asked for")]
    OutOfMemory {
        /// Device on which the fault occurred.
        device: Device,
        /// Kind of memory: `device` or `page-locked`.
        kind: &'static str,
        /// Size of the allocation that failed, bytes.
        bytes: usize,
    },
    /// The operation would hold more device memory than its limit.
    #[error("{device}: {asked} bytes beside the {used} in use are over the limit of {limit} (raise `max_device_mb`)")]
    OutOfBudget {
        /// Device on which the fault occurred.
        device: Device,
        /// Size of the allocation that was refused, bytes.
        asked: usize,
        /// Device memory that the operation holds already, bytes.
        used: usize,
        /// Largest device memory that the operation may hold, bytes.
        limit: usize,
    },
    /// A tensor is on another device than the operation.
    #[error("the tensor is on {came}, the operation on {expected}")]
    WrongDevice {
        /// The operation's device.
        expected: Device,
        /// The tensor's device.
        came: Device,
    },
    /// A tensor on a device does not fit the operation.
    #[error(transparent)]
    Slice(#[from] SliceError),
    /// A kernel is launched with parameters of another size than its own.
    #[error("{device}: {kernel} takes parameters of {expected} bytes, it is launched with {came}")]
    Parameters {
        /// Device on which the fault occurred.
        device: Device,
        /// Name of the kernel.
        kernel: &'static str,
        /// Size of the parameters that the kernel takes, bytes.
        expected: usize,
        /// Size of the parameters of the launch, bytes.
        came: usize,
    },
    /// The device's memory can't be mapped by other processes.
    #[error(
        "{device}: its memory can't be shared with other processes (allowed: a device with virtual memory management and \
         handles that are file descriptors; `residence: shared`, with any device)"
    )]
    NotShareable {
        /// Device on which the fault occurred.
        device: Device,
    },
    /// A call of the driver failed.
    #[error("{device}: {} of {detail} failed: {} ({})", fault.call, fault.name, fault.code)]
    Driver {
        /// Device on which the fault occurred.
        device: Device,
        /// Subject of the call in words, such as a size or the name of a kernel.
        detail: String,
        /// Name of the call, and the driver's error.
        fault: Box<Fault>,
    },
}

/// The reason why a slice of device memory can't be made, or is not the tensor that an operation expects.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SliceError {
    /// The range reaches past the end of the memory.
    #[error(
        "{len} {dtype} elements at byte {offset} reach past the end of {available} bytes of device memory \
         (allowed: up to {} from there)",
        available.saturating_sub(*offset) / dtype.size()
    )]
    OutOfRange {
        /// The type of the elements.
        dtype: Dtype,
        /// Number of elements that were asked for.
        len: usize,
        /// Offset of the first element, bytes.
        offset: usize,
        /// Size of the memory, bytes.
        available: usize,
    },
    /// The elements are not aligned to their size, so that the device can't read them.
    #[error("{dtype} elements can't begin at byte {offset} (allowed: multiples of {})", dtype.size())]
    Misaligned {
        /// The type of the elements.
        dtype: Dtype,
        /// Offset of the first element, bytes; in memory of another library its address.
        offset: u64,
    },
    /// The elements are of another type than the operation expects.
    #[error("`{tensor}` is {came}, not {expected}")]
    Dtype {
        /// Name of the tensor that the slice was handed over as.
        tensor: &'static str,
        /// Type of elements that the operation expects.
        expected: Dtype,
        /// Type of the slice's elements.
        came: Dtype,
    },
    /// The slice has another number of elements than the operation expects.
    #[error("`{tensor}` has {came} elements, not {expected}")]
    Len {
        /// Name of the tensor that the slice was handed over as.
        tensor: &'static str,
        /// Number of elements that the operation expects.
        expected: usize,
        /// Number of elements of the slice.
        came: usize,
    },
    /// The slice is on another device than the operation.
    #[error("`{tensor}` is on {came}, the operation on {expected}")]
    Device {
        /// Name of the tensor that the slice was handed over as.
        tensor: &'static str,
        /// The operation's device.
        expected: Device,
        /// The slice's device.
        came: Device,
    },
}

impl DeviceFault {
    /// True if the fault is a lack of memory, after which the device can go on.
    pub fn is_memory(&self) -> bool {
        match self {
            Self::OutOfMemory { .. } | Self::OutOfBudget { .. } => true,
            Self::Driver { fault, .. } => fault.is_memory,
            _ => false,
        }
    }

    /// Wraps the fault of a driver's call on `device`. `detail` is the subject of the call in words.
    pub(super) fn driver(device: Device, fault: Fault, detail: impl ToString) -> Self {
        Self::Driver {
            device,
            detail: detail.to_string(),
            fault: Box::new(fault),
        }
    }

    /// Wraps the fault of an allocation of `bytes` bytes: `OutOfMemory` if memory was lacking, else `Driver`.
    pub(super) fn allocation(device: Device, kind: &'static str, fault: Fault, bytes: usize) -> Self {
        match fault.is_memory {
            true => Self::OutOfMemory { device, kind, bytes },
            false => Self::driver(device, fault, format_args!("{bytes} bytes of {kind} memory")),
        }
    }
}
