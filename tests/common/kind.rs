//! The kind of GPU, CUDA or HIP, that the tests run on.

use robocache::device::gpu::{Kind, device_count};

/// Returns the first kind, CUDA or HIP, that has a device on this machine. A loaded emulator counts as a device of its kind.
/// CUDA is the default.
pub fn kind() -> Kind {
    let mut kinds = Kind::ALL.into_iter();
    kinds.find(|&kind| device_count(kind).is_ok()).unwrap_or(Kind::Cuda)
}
