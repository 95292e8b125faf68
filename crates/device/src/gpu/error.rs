use super::driver::{Fault, Unavailable};
use crate::{Device, Dtype};

/// A call that failed, with the device and the sizes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceFault {
    /// The device does not exist, or no device can be used.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The device or the host has no memory left.
    #[error("{device}: out of {kind} memory: {bytes} bytes were asked for")]
    OutOfMemory {
        /// The device.
        device: Device,
        /// `device` or `page-locked`.
        kind: &'static str,
        /// Bytes that were asked for.
        bytes: usize,
    },
    /// The operation would hold more memory than it may.
    #[error("{device}: {asked} bytes beside the {used} in use are over the limit of {limit}")]
    OutOfBudget {
        /// The device.
        device: Device,
        /// Bytes asked for.
        asked: usize,
        /// Bytes the operation holds.
        used: usize,
        /// Bytes it may hold.
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
        /// The device.
        device: Device,
        /// The kernel.
        kernel: &'static str,
        /// Bytes that the kernel takes.
        expected: usize,
        /// Bytes that the launch gives.
        came: usize,
    },
    /// The device's memory can't be mapped by other processes.
    #[error(
        "{device}: its memory can't be shared with other processes (allowed: a device with virtual memory management and handles that are file descriptors)"
    )]
    NotShareable {
        /// The device.
        device: Device,
    },
    /// A call of the driver failed.
    #[error("{device}: {} of {detail} failed: {} ({})", fault.call, fault.name, fault.code)]
    Driver {
        /// The device.
        device: Device,
        /// Arguments of the call: sizes, a kernel.
        detail: String,
        /// The call, and how it failed.
        fault: Box<Fault>,
    },
}

/// A slice that can't be made, or is not the one that an operation expects.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SliceError {
    /// The range reaches past the end of the memory.
    #[error("{len} {dtype} elements at byte {offset} do not fit {available} bytes of device memory")]
    OutOfRange {
        /// The type of the elements.
        dtype: Dtype,
        /// Number of elements that were asked for.
        len: usize,
        /// The byte that they were to begin at.
        offset: usize,
        /// Bytes that are available.
        available: usize,
    },
    /// The elements are not aligned to their size, so that the device can't read them.
    #[error("{dtype} elements can't begin at byte {offset} (allowed: multiples of {})", dtype.size())]
    Misaligned {
        /// The type of the elements.
        dtype: Dtype,
        /// The byte, or for foreign memory the address.
        offset: u64,
    },
    /// The elements are of another type.
    #[error("`{tensor}` is {came}, not {expected}")]
    Dtype {
        /// Name of the tensor that the slice was handed over as.
        tensor: &'static str,
        /// The type that it should have.
        expected: Dtype,
        /// The type that it has.
        came: Dtype,
    },
    /// The number of elements is wrong.
    #[error("`{tensor}` has {came} elements, not {expected}")]
    Len {
        /// Name of the tensor that the slice was handed over as.
        tensor: &'static str,
        /// Number of elements that are needed.
        expected: usize,
        /// Number of elements that came.
        came: usize,
    },
    /// The memory is on another device.
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
    /// True if only memory was lacking, and the device can go on.
    pub fn is_memory(&self) -> bool {
        match self {
            Self::OutOfMemory { .. } | Self::OutOfBudget { .. } => true,
            Self::Driver { fault, .. } => fault.is_memory,
            _ => false,
        }
    }

    /// A failure of a call on `device`.
    pub(super) fn driver(device: Device, fault: Fault, detail: impl ToString) -> Self {
        Self::Driver {
            device,
            detail: detail.to_string(),
            fault: Box::new(fault),
        }
    }

    /// A failure to get `bytes` of memory of a kind.
    pub(super) fn allocation(device: Device, kind: &'static str, fault: Fault, bytes: usize) -> Self {
        match fault.is_memory {
            true => Self::OutOfMemory { device, kind, bytes },
            false => Self::driver(device, fault, format_args!("{bytes} bytes of {kind} memory")),
        }
    }
}
