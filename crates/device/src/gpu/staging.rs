//! Host data of a launch, gathered in one block.

use crate::gpu::{Budget, DeviceBuf, DeviceFault, DevicePtr, Gpu, PinnedBuf};
use bytemuck::NoUninit;
use std::cell::Cell;

/// Every part of a block begins at a multiple of this.
const ALIGNMENT: usize = 16;

/// Blocks and results up to this size stay in page-locked host memory, which the device accesses over the bus (zero
/// copy): even the smallest copy takes longer.
pub const DIRECT_BYTES: usize = 64 << 10;

/// A type whose elements can be put into a block.
///
/// # Safety
/// It has no padding: every byte of a value is set.
pub unsafe trait Staged: Copy {}

// SAFETY: every byte of a `NoUninit` value is set.
unsafe impl<T: NoUninit> Staged for T {}

/// A block of page-locked memory, filled part by part. A large one is copied to the device before it is read.
///
/// The addresses of its parts borrow it, so that no block is begun while they are in use.
pub struct Staging {
    host: PinnedBuf,
    device: DeviceBuf,
    used: Cell<usize>,
    is_copied: bool,
}

/// The bytes that `len` elements take in a block.
pub fn room<T>(len: usize) -> usize {
    (len * size_of::<T>()).next_multiple_of(ALIGNMENT)
}

impl Staging {
    /// An empty block, whose memory is allocated when it is first needed.
    pub fn new(gpu: &Gpu, budget: &Budget) -> Self {
        Self {
            host: PinnedBuf::new(gpu),
            device: DeviceBuf::new(gpu, budget),
            used: Cell::new(0),
            is_copied: false,
        }
    }

    /// Begins a block of at most `bytes` bytes. The device must be done with the one before.
    pub fn begin(&mut self, bytes: usize) -> Result<(), DeviceFault> {
        self.begin_in(bytes, bytes > DIRECT_BYTES)
    }

    /// Does what [`begin`](Self::begin) does, for a block that is read again and again: even a small one is copied to the device.
    pub fn begin_copied(&mut self, bytes: usize) -> Result<(), DeviceFault> {
        self.begin_in(bytes, true)
    }

    fn begin_in(&mut self, bytes: usize, is_copied: bool) -> Result<(), DeviceFault> {
        self.used.set(0);
        self.is_copied = is_copied;
        self.host.resize(bytes)?;
        if is_copied {
            self.device.reserve(bytes)?;
        }
        Ok(())
    }

    /// Reserves room for `len` elements, which nobody else has.
    fn take<T>(&self, len: usize) -> (*mut T, DevicePtr<'_>) {
        let at = self.used.get();
        let end = at + room::<T>(len);
        assert!(
            at + len * size_of::<T>() <= self.host.bytes().len(),
            "{len} elements at byte {at} of a block"
        );
        self.used.set(end);
        let block = match self.is_copied {
            true => self.device.pointer(),
            false => self.host.pointer(),
        };
        // SAFETY: it is within the block.
        let room = unsafe { self.host.as_ptr().add(at) };
        (room.cast(), block.offset(at))
    }

    /// Appends elements, and returns the address at which the device reads them.
    pub fn put<T: Staged>(&self, elements: &[T]) -> DevicePtr<'_> {
        let (to, pointer) = self.take::<T>(elements.len());
        // SAFETY: there is room for all elements, aligned for their type, which nobody else has.
        unsafe { std::ptr::copy_nonoverlapping(elements.as_ptr(), to, elements.len()) };
        pointer
    }

    /// Does what [`put`](Self::put) does, for an iterator of `len` elements. The iterator may itself put other elements.
    pub fn put_each<T: Staged>(&self, len: usize, elements: impl Iterator<Item = T>) -> DevicePtr<'_> {
        let (to, pointer) = self.take::<T>(len);
        for (i, element) in elements.take(len).enumerate() {
            // SAFETY: as in `put`.
            unsafe { to.add(i).write(element) };
        }
        pointer
    }

    /// Enqueues the copy of the block to the device, if it needs one.
    ///
    /// # Safety
    /// The next block is begun only after the stream has been synchronized.
    pub unsafe fn upload(&self) -> Result<(), DeviceFault> {
        if !self.is_copied {
            return Ok(());
        }
        // SAFETY: the block stays as it is until `begin`, which is the caller's promise.
        unsafe { self.device.upload(0, &self.host.bytes()[..self.used.get()]) }
    }
}
