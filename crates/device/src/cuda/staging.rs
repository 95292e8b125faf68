//! What a launch reads from the host, gathered in one block.

use crate::cuda::{Budget, CudaError, DeviceBuf, Gpu, PinnedBuf};
use bytemuck::Pod;

/// Every part of a block begins at a multiple of this.
const ALIGNMENT: usize = 16;

/// Blocks and results up to this size stay in page-locked host memory, which the device accesses over the bus (zero
/// copy): even the smallest copy takes longer.
pub const DIRECT_BYTES: usize = 64 << 10;

/// A block of page-locked memory. A large one is copied to the device before it is read.
pub struct Staging {
    host: PinnedBuf,
    device: DeviceBuf,
    used: usize,
    is_copied: bool,
}

/// The address at which devices write page-locked memory: the same as the host's (unified addressing).
pub fn address(memory: &mut PinnedBuf) -> u64 {
    memory.bytes_mut().as_mut_ptr() as u64
}

/// The bytes that `len` elements take in a block.
pub fn room<T>(len: usize) -> usize {
    (len * size_of::<T>()).next_multiple_of(ALIGNMENT)
}

impl Staging {
    /// An empty block, whose memory is taken when it is first needed.
    pub fn new(gpu: &Gpu, budget: &Budget) -> Self {
        Self {
            host: PinnedBuf::new(gpu),
            device: DeviceBuf::new(gpu, budget),
            used: 0,
            is_copied: false,
        }
    }

    /// Begins a block of at most `bytes` bytes. The device must be done with the one before.
    pub fn begin(&mut self, bytes: usize) -> Result<(), CudaError> {
        self.begin_in(bytes, bytes > DIRECT_BYTES)
    }

    /// As [`begin`](Self::begin), for a block that is read again and again: it is copied to the device, however small.
    pub fn begin_copied(&mut self, bytes: usize) -> Result<(), CudaError> {
        self.begin_in(bytes, true)
    }

    fn begin_in(&mut self, bytes: usize, is_copied: bool) -> Result<(), CudaError> {
        self.used = 0;
        self.is_copied = is_copied;
        self.host.resize(bytes)?;
        if is_copied {
            self.device.reserve(bytes)?;
        }
        Ok(())
    }

    fn address(&self) -> u64 {
        if self.is_copied {
            self.device.address()
        } else {
            self.host.bytes().as_ptr() as u64
        }
    }

    /// Appends elements, and gives the address at which the device reads them.
    pub fn put<T: Pod>(&mut self, elements: &[T]) -> u64 {
        let (at, bytes) = (self.used, bytemuck::cast_slice(elements));
        self.host.bytes_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        self.used += room::<T>(elements.len());
        self.address() + at as u64
    }

    /// As [`put`](Self::put), for an iterator of `len` elements.
    pub fn put_each<T: Pod>(&mut self, len: usize, elements: impl Iterator<Item = T>) -> u64 {
        let at = self.used;
        let block = &mut self.host.bytes_mut()[at..at + len * size_of::<T>()];
        for (to, element) in block.chunks_exact_mut(size_of::<T>()).zip(elements) {
            to.copy_from_slice(bytemuck::bytes_of(&element));
        }
        self.used += room::<T>(len);
        self.address() + at as u64
    }

    /// Enqueues the copy of the block to the device, where it needs one.
    ///
    /// # Safety
    /// The next block is begun once the stream has been synchronized.
    pub unsafe fn upload(&self) -> Result<(), CudaError> {
        if !self.is_copied {
            return Ok(());
        }
        // SAFETY: the block stays as it is until `begin`, which is the caller's promise.
        unsafe { self.device.upload(0, &self.host.bytes()[..self.used]) }
    }
}
