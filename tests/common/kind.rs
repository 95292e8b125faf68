//! The kind of GPU that tests run on.

use robocache::device::gpu::{Kind, device_count};

/// The first kind that has a device here. The emulator is one or the other by the library that is found.
pub fn kind() -> Kind {
    let mut kinds = Kind::ALL.into_iter();
    kinds.find(|&kind| device_count(kind).is_ok()).unwrap_or(Kind::Cuda)
}
