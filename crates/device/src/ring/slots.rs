use super::memory::SharedMemory;
use crate::gpu::{DeviceBuf, Gpu};

/// Memory of all slots of a ring.
pub(super) enum Slots {
    Shared(SharedMemory),
    Device(DeviceBuf),
}

impl Slots {
    /// The device that the slots are on; `None` for shared memory.
    pub(super) fn gpu(&self) -> Option<&Gpu> {
        match self {
            Self::Shared(_) => None,
            Self::Device(memory) => Some(memory.gpu()),
        }
    }

    /// Size of all slots together, bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Shared(memory) => memory.len(),
            Self::Device(memory) => memory.capacity(),
        }
    }
}
