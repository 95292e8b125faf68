//! Page-locked memory of the host, which a device reads and writes by itself (DMA). Users wait for the device before they drop such
//! memory.

use super::driver::Optional;
use super::error::DeviceFault;
use super::pointer::DevicePtr;
use super::stream::Stream;
use bytemuck::Pod;
use std::ptr::NonNull;
use std::sync::Arc;

/// Capacities are rounded up to a multiple of this number of bytes, so that sizes which vary a little need no new allocation.
pub(super) const GRANULE: usize = 512;

/// Page-locked host memory, which a device reads and writes by itself, that keeps its capacity when it is reused.
///
/// The memory is cached, so that the CPU reads and writes it as fast as any other. It is aligned to a page and zero at first.
pub struct PinnedBuf {
    stream: Arc<Stream>,
    memory: Option<NonNull<u8>>,
    capacity: usize,
    bytes: usize,
}

// SAFETY: it is plain host memory that it owns.
unsafe impl Send for PinnedBuf {}
// SAFETY: it is plain host memory, written through `&mut` only.
unsafe impl Sync for PinnedBuf {}

impl PinnedBuf {
    /// Makes an empty buffer, for copies in `stream`.
    pub(super) fn of(stream: &Arc<Stream>) -> Self {
        Self {
            stream: stream.clone(),
            memory: None,
            capacity: 0,
            bytes: 0,
        }
    }

    /// Sets the length in bytes. The contents stay as far as they fit; new bytes are zero or left over from earlier.
    ///
    /// # Errors
    /// [`DeviceFault::OutOfMemory`]; the buffer is then as it was.
    pub fn resize(&mut self, bytes: usize) -> Result<(), DeviceFault> {
        if bytes > self.capacity {
            let mut grown = Self::of(&self.stream);
            grown.allocate(bytes.max(self.capacity + self.capacity / 2).next_multiple_of(GRANULE))?;
            grown.bytes_mut()[..self.bytes].copy_from_slice(self.bytes());
            *self = grown;
        }
        self.bytes = bytes;
        Ok(())
    }

    fn allocate(&mut self, bytes: usize) -> Result<(), DeviceFault> {
        let (driver, _) = self.stream.bound()?;
        // SAFETY: the context is current; the memory is freed in `drop` only.
        let memory = unsafe { driver.allocate_host(bytes) }
            .map_err(|fault| DeviceFault::allocation(self.stream.context.device(), "page-locked", fault, bytes))?;
        // SAFETY: the memory has `bytes` bytes.
        unsafe { memory.write_bytes(0, bytes) };
        self.memory = NonNull::new(memory);
        self.capacity = bytes;
        self.bytes = bytes;
        Ok(())
    }

    /// The contents: as many bytes as were set by `resize`.
    pub fn bytes(&self) -> &[u8] {
        match self.memory {
            // SAFETY: `bytes` are within the memory, all of which was written.
            Some(memory) => unsafe { std::slice::from_raw_parts(memory.as_ptr(), self.bytes) },
            // An empty slice, aligned for any type of element.
            None => bytemuck::cast_slice::<u64, u8>(&[]),
        }
    }

    /// The contents, to be written in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self.memory {
            // SAFETY: as in `bytes`, and the borrow is exclusive.
            Some(memory) => unsafe { std::slice::from_raw_parts_mut(memory.as_ptr(), self.bytes) },
            None => bytemuck::cast_slice_mut::<u64, u8>(&mut []),
        }
    }

    /// Address of the first byte for every device, which is the host's address (unified addressing); 0 if the buffer is empty.
    pub fn pointer(&self) -> DevicePtr<'_> {
        DevicePtr::new(self.as_ptr() as u64)
    }

    /// Pointer to the first byte; null if the buffer is empty. The caller may write through the pointer if nobody else uses the
    /// memory.
    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.memory.map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    /// The contents as elements of `T`. Panics unless the length is a multiple of the element's size.
    pub fn as_slice<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice(self.bytes())
    }

    /// The contents as elements of `T`, to be written in place. Panics unless the length is a multiple of the element's size.
    pub fn as_mut_slice<T: Pod>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.bytes_mut())
    }

    /// Number of bytes that the buffer can hold without allocating.
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

impl Drop for PinnedBuf {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        if let Ok((driver, _)) = self.stream.bound() {
            // SAFETY: it is this buffer's own. The device is done with it, as users synchronize before they let go.
            unsafe { driver.free_host(memory.as_ptr()) };
        }
    }
}

/// Guard that keeps host memory page-locked as long as it lives. Drop it before the memory.
pub struct PageLocked {
    stream: Arc<Stream>,
    address: *mut u8,
}

// SAFETY: the address is handed to the driver only.
unsafe impl Send for PageLocked {}
// SAFETY: as above.
unsafe impl Sync for PageLocked {}

impl PageLocked {
    /// Page-locks memory of the host until the returned value is dropped.
    ///
    /// # Errors
    /// The driver's error, most often because the process may lock too little memory.
    ///
    /// # Safety
    /// The memory is mapped, and stays mapped until the value is dropped.
    pub(super) unsafe fn of(stream: &Arc<Stream>, memory: *mut [u8]) -> Result<Self, DeviceFault> {
        let (address, bytes) = (memory.cast::<u8>(), memory.len());
        stream.context.check_has(Optional::HostLocking)?;
        let (driver, _) = stream.bound()?;
        // SAFETY: the memory is there, by the caller's promise.
        unsafe { driver.lock_host(address, bytes) }
            .map_err(|fault| stream.failed(fault, format_args!("{bytes} bytes")))?;
        Ok(Self {
            stream: stream.clone(),
            address,
        })
    }
}

impl Drop for PageLocked {
    fn drop(&mut self) {
        if let Ok((driver, _)) = self.stream.bound() {
            // SAFETY: it is this value's own. Whoever enqueued copies has waited for them.
            unsafe { driver.unlock_host(self.address) };
        }
    }
}
