use super::slice::SliceError;
use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;

/// Why no CUDA device can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The driver's library is not there.
    #[error("no CUDA driver is installed (libcuda.so.1 was not found)")]
    NoLibrary,
    /// The driver's library lacks a function.
    #[error("the CUDA driver has no function {0}: it is too old or damaged")]
    MissingSymbol(&'static str),
    /// The driver is older than any of the kernels.
    #[error("the CUDA driver supports CUDA {}.{}, too old (allowed: a driver of CUDA {}.{} or newer)",
        came / 1000, came % 1000 / 10, needed / 1000, needed % 1000 / 10)]
    DriverTooOld {
        /// What `cuDriverGetVersion` gives.
        came: i32,
        /// The least that will do.
        needed: i32,
    },
    /// The driver starts, but has no device.
    #[error("the CUDA driver has no device")]
    NoDevice,
    /// The driver does not start.
    #[error("the CUDA driver does not start: {name} ({code})")]
    Init {
        /// The name of the error.
        name: String,
        /// Its number.
        code: u32,
    },
    /// There are devices, but not this one.
    #[error("there is no device cuda:{ordinal} (allowed: cuda:0 to cuda:{})", count - 1)]
    NoSuchDevice {
        /// The ordinal that was asked for.
        ordinal: usize,
        /// How many devices there are.
        count: usize,
    },
}

/// A call that failed, with the device and the sizes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// There is no such device, or none at all.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The device or the host has no memory left.
    #[error("cuda:{device}: out of {kind} memory: {bytes} bytes were asked for")]
    OutOfMemory {
        /// The device.
        device: usize,
        /// `device` or `page-locked`.
        kind: &'static str,
        /// How much was asked for.
        bytes: usize,
    },
    /// The operation would hold more than it may.
    #[error("cuda:{device}: {asked} bytes beside the {used} in use are over the limit of {limit}")]
    OutOfBudget {
        /// The device.
        device: usize,
        /// Bytes asked for.
        asked: usize,
        /// Bytes the operation holds.
        used: usize,
        /// Bytes it may hold.
        limit: usize,
    },
    /// A tensor is on another device than the operation.
    #[error("the tensor is on cuda:{came}, the operation on cuda:{expected}")]
    WrongDevice {
        /// The operation's device.
        expected: usize,
        /// The tensor's.
        came: usize,
    },
    /// A tensor on a device is not the one that an operation takes.
    #[error(transparent)]
    Slice(#[from] SliceError),
    /// A kernel and its caller don't mean the same parameters.
    #[error("cuda:{device}: {kernel} takes parameters of {expected} bytes, it is launched with {came}")]
    Parameters {
        /// The device.
        device: usize,
        /// The kernel.
        kernel: &'static str,
        /// Bytes that the kernel takes.
        expected: usize,
        /// Bytes that it would be given.
        came: usize,
    },
    /// The device's memory can't be mapped by other processes.
    #[error(
        "cuda:{device}: its memory can't be shared with other processes (allowed: a device with virtual memory management and handles that are file descriptors)"
    )]
    NotShareable {
        /// The device.
        device: usize,
    },
    /// A call of the driver failed.
    #[error("cuda:{device}: {call} of {detail} failed: {name} ({code})")]
    Driver {
        /// The device.
        device: usize,
        /// The call.
        call: &'static str,
        /// What it was called with: sizes, a kernel.
        detail: String,
        /// The name of the error.
        name: String,
        /// Its number.
        code: u32,
    },
}

const OUT_OF_MEMORY: u32 = CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32;

/// The calls that wait for work, or ask whether it is done.
const WAITS: [&str; 3] = ["cuStreamSynchronize", "cuEventSynchronize", "cuEventQuery"];

impl CudaError {
    /// Whether less memory would have done, and the device can go on.
    pub fn is_memory(&self) -> bool {
        match self {
            Self::OutOfMemory { .. } | Self::OutOfBudget { .. } => true,
            // A launch or a copy that was refused has done nothing. What a wait finds is of work that was under way, and
            // nobody knows how much of it was done.
            Self::Driver { code, call, .. } => *code == OUT_OF_MEMORY && !WAITS.contains(call),
            _ => false,
        }
    }

    /// A failure of `call` on `device`.
    pub(super) fn driver(device: usize, call: &'static str, error: DriverError, detail: impl ToString) -> Self {
        Self::Driver {
            device,
            call,
            detail: detail.to_string(),
            name: format!("{:?}", error.0),
            code: error.0 as u32,
        }
    }

    /// A failure to get `bytes` of memory of a kind.
    pub(super) fn allocation(device: usize, kind: &'static str, error: DriverError, bytes: usize) -> Self {
        match error.0 {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Self::OutOfMemory { device, kind, bytes },
            _ => Self::driver(
                device,
                "allocation",
                error,
                format_args!("{bytes} bytes of {kind} memory"),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_refused_for_memory_leaves_the_device_as_it_was_but_not_a_wait_that_fails() {
        let failed = |call, error| CudaError::driver(0, call, DriverError(error), "a test").is_memory();
        let memory = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        for call in ["cuLaunchKernelEx", "cuMemcpyDtoHAsync", "cuModuleLoadData"] {
            assert!(failed(call, memory), "{call}");
            assert!(!failed(call, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS), "{call}");
        }
        for call in WAITS {
            assert!(!failed(call, memory), "{call}");
        }
    }
}
