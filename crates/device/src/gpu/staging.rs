//! Gathers the host data of a kernel launch in one block of page-locked memory, so that at most one copy brings them to the device.
//! A block is not written again before the device is done with it.

use crate::gpu::{Budget, DeviceBuf, DeviceFault, DevicePtr, Gpu, PinnedBuf};
use bytemuck::NoUninit;
use std::cell::Cell;

/// Alignment of each array in a block, bytes.
const ALIGNMENT: usize = 16;

/// Largest size, bytes, of blocks and results that stay in page-locked host memory. The device accesses them over the bus (zero
/// copy), since even the smallest copy takes longer.
pub const DIRECT_BYTES: usize = 64 << 10;

/// A type whose elements can be put into a block.
///
/// # Safety
/// It has no padding: every byte of a value is set.
pub unsafe trait Staged: Copy {}

// SAFETY: every byte of a `NoUninit` value is set.
unsafe impl<T: NoUninit> Staged for T {}

/// Block of page-locked memory that is filled array by array. A large block is copied to the device before kernels read it.
///
/// The addresses of the arrays borrow the `Staging`, so that [`begin`](Self::begin) can't be called while an address is in use.
pub struct Staging {
    host: PinnedBuf,
    device: DeviceBuf,
    used: Cell<usize>,
    is_copied: bool,
}

/// Bytes that `len` elements take in a block, with the padding behind them.
pub fn room<T>(len: usize) -> usize {
    (len * size_of::<T>()).next_multiple_of(ALIGNMENT)
}

impl Staging {
    /// Makes an empty block, whose memory is allocated when it is first needed.
    pub fn new(gpu: &Gpu, budget: &Budget) -> Self {
        Self {
            host: PinnedBuf::new(gpu),
            device: DeviceBuf::new(gpu, budget),
            used: Cell::new(0),
            is_copied: false,
        }
    }

    /// Begins a block of at most `bytes` bytes. The device must be done with the block before.
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

    /// Reserves room for `len` elements. Returns the host's pointer to the room, and the device's address of it.
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

    /// Appends elements to the block, and returns the address at which the device reads them.
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

    /// Enqueues the copy of the block to the device, unless the device reads the block in host memory.
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
