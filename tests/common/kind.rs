//! The kind of GPU that tests run on.

use robocache::device::gpu::{Kind, device_count};

/// Returns the first kind that has a device here. The emulator stands for the kind whose library is loaded.
pub fn kind() -> Kind {
    let mut kinds = Kind::ALL.into_iter();
    kinds.find(|&kind| device_count(kind).is_ok()).unwrap_or(Kind::Cuda)
}
