//! Memory for the body of a batch of which only parts are read.

use arrow_buffer::Buffer;
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// Zero-filled memory from `mmap`. Pages that are never written take no physical memory.
pub(super) struct Sparse {
    address: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is the value's own until it is dropped.
unsafe impl Send for Sparse {}
// SAFETY: as above, and only `&mut self` writes it.
unsafe impl Sync for Sparse {}

impl Sparse {
    pub(super) fn new(bytes: usize) -> io::Result<Self> {
        // A mapping of 0 bytes is not allowed.
        let bytes = bytes.max(1);
        let (protection, flags) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        );
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) }?;
        let address = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { address, bytes })
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is of that length, and borrowed as the value is.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.bytes) }
    }

    /// Converts the memory to a read-only Arrow buffer, which frees it when dropped.
    pub(super) fn into_buffer(self) -> Buffer {
        let (address, bytes) = (self.address, self.bytes);
        // SAFETY: the mapping is of that length, and lives as long as the buffer.
        unsafe { Buffer::from_custom_allocation(address, bytes, Arc::new(self)) }
    }
}

impl Drop for Sparse {
    fn drop(&mut self) {
        // SAFETY: the mapping is the value's own, and every buffer of it is gone.
        let _ = unsafe { rustix::mm::munmap(self.address.as_ptr().cast(), self.bytes) };
    }
}
