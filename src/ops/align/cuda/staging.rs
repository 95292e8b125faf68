//! What a launch needs of the host, as one upload.

use crate::device::cuda::{Budget, CudaError, DeviceBuf, Gpu, PinnedBuf};
use bytemuck::Pod;

/// What every part of a block begins at a multiple of.
const ALIGNMENT: usize = 16;

/// A block of page-locked memory and its copy on the device.
pub(super) struct Staging {
    host: PinnedBuf,
    device: DeviceBuf,
    used: usize,
}

/// The bytes that `len` elements take in a block.
pub(super) fn room<T>(len: usize) -> usize {
    (len * size_of::<T>()).next_multiple_of(ALIGNMENT)
}

impl Staging {
    pub fn new(gpu: &Gpu, budget: &Budget) -> Self {
        Self {
            host: PinnedBuf::new(gpu),
            device: DeviceBuf::new(gpu, budget),
            used: 0,
        }
    }

    /// Begins a block of at most so many bytes. The device must be done with the one before.
    pub fn begin(&mut self, bytes: usize) -> Result<(), CudaError> {
        self.used = 0;
        self.host.resize(bytes)?;
        self.device.reserve(bytes)
    }

    /// Puts elements into the block, and gives the address that they will have on the device.
    pub fn put<T: Pod>(&mut self, elements: &[T]) -> u64 {
        let (at, bytes) = (self.used, bytemuck::cast_slice(elements));
        self.host.bytes_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        self.used += room::<T>(elements.len());
        self.device.address() + at as u64
    }

    /// As [`put`](Self::put), for elements of which there are `len`.
    pub fn put_each<T: Pod>(&mut self, len: usize, elements: impl Iterator<Item = T>) -> u64 {
        let at = self.used;
        let places = &mut self.host.bytes_mut()[at..at + len * size_of::<T>()];
        for (place, element) in places.chunks_exact_mut(size_of::<T>()).zip(elements) {
            place.copy_from_slice(bytemuck::bytes_of(&element));
        }
        self.used += room::<T>(len);
        self.device.address() + at as u64
    }

    /// Puts the copy of the block to the device into its stream.
    ///
    /// # Safety
    /// The next block is begun once the stream has been synchronized.
    pub unsafe fn upload(&self) -> Result<(), CudaError> {
        // SAFETY: the block stays as it is until `begin`, which is the caller's promise.
        unsafe { self.device.upload(0, &self.host.bytes()[..self.used]) }
    }
}
