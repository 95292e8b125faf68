//! A file as memory.

use arrow_buffer::Buffer;
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// A file that is mapped to be read: its pages are loaded when they are looked at, and may be dropped again.
pub(super) struct Map {
    address: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is the value's own until it is dropped, and nobody can write it.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the first `bytes` bytes of a file.
    pub fn new(file: &File, bytes: u64) -> io::Result<Self> {
        // There is no mapping of nothing.
        let bytes = usize::try_from(bytes.max(1)).map_err(|_| io::ErrorKind::FileTooLarge)?;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::PRIVATE, file, 0) }?;
        let address = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { address, bytes })
    }

    /// Bytes of it, which keep the mapping.
    pub fn buffer(self: &Arc<Self>, at: u64, bytes: u64) -> Buffer {
        let (at, bytes) = (at as usize, bytes as usize);
        assert!(
            at.checked_add(bytes).is_some_and(|end| end <= self.bytes),
            "{bytes} bytes at {at} of a file of {}",
            self.bytes
        );
        // SAFETY: the range is within the mapping, which lives as long as the buffer.
        unsafe { Buffer::from_custom_allocation(self.address.add(at), bytes, self.clone()) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is the value's own, and every buffer of it is gone.
        let _ = unsafe { rustix::mm::munmap(self.address.as_ptr().cast(), self.bytes) };
    }
}
