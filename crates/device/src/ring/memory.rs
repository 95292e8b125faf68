//! Anonymous memory that several processes map. Its size can't change, and bytes that another process may write are never lent as a
//! plain reference.

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64};

/// An anonymous file (memfd), mapped. Its size is sealed, so that no process can truncate the file while another one uses it.
///
/// Several processes may read it while one writes. So readers get no plain reference to its bytes: they are copied in and out, and
/// atomics synchronize writer and readers.
pub(super) struct SharedMemory {
    file: OwnedFd,
    address: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is the value's own until it is dropped, and is accessed by copies and atomics only.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Creates shared memory of `bytes` bytes, all zero. Every process that gets the file can map and write the memory.
    pub(super) fn create(name: &str, bytes: usize) -> io::Result<Self> {
        let memory = Self::unsealed(name, bytes)?;
        rustix::fs::fcntl_add_seals(&memory.file, SealFlags::SEAL)?;
        Ok(memory)
    }

    /// Creates shared memory of `bytes` bytes, all zero, that this mapping alone can write. Any other process that gets the file
    /// can only read it, even if it opens the file again.
    pub(super) fn create_own(name: &str, bytes: usize) -> io::Result<Self> {
        let memory = Self::unsealed(name, bytes)?;
        // The seal does not affect the mapping that exists already.
        rustix::fs::fcntl_add_seals(&memory.file, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?;
        Ok(memory)
    }

    fn unsealed(name: &str, bytes: usize) -> io::Result<Self> {
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, bytes as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        Self::map(file, bytes, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Maps the file of another process, to read and, if it `is_written`, to write. Refuses a file that could be truncated.
    pub(super) fn open(file: OwnedFd, is_written: bool) -> io::Result<Self> {
        let seals = rustix::fs::fcntl_get_seals(&file)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a file came whose size is not sealed",
            ));
        }
        let bytes = rustix::fs::fstat(&file)?.st_size as usize;
        let write = if is_written {
            ProtFlags::WRITE
        } else {
            ProtFlags::empty()
        };
        Self::map(file, bytes, ProtFlags::READ | write)
    }

    fn map(file: OwnedFd, bytes: usize, protection: ProtFlags) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, &file, 0) }?;
        let address = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { file, address, bytes })
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// The whole mapping, which other processes may write at any time.
    pub(super) fn all(&self) -> *mut [u8] {
        std::ptr::slice_from_raw_parts_mut(self.address.as_ptr(), self.bytes)
    }

    /// The `len` bytes from byte `at` on, which other processes may write at any time.
    pub(super) fn bytes(&self, at: usize, len: usize) -> &[AtomicU8] {
        // SAFETY: the range is within the mapping, which lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.range(at, len).cast(), len) }
    }

    /// The `len` bytes from byte `at` on, to write.
    ///
    /// # Safety
    /// The memory is mapped to be written, no other process writes it, and nobody else in this process has these bytes.
    #[expect(clippy::mut_from_ref, reason = "parts of it are lent, as the caller promises")]
    pub(super) unsafe fn bytes_mut(&self, at: usize, len: usize) -> &mut [u8] {
        // SAFETY: the range is within the mapping; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.range(at, len), len) }
    }

    /// Copies bytes into the memory, from byte `at` on.
    pub(super) fn write(&self, at: usize, from: &[u8]) {
        // SAFETY: the range is within the mapping.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.range(at, from.len()), from.len()) }
    }

    /// Copies bytes out of the memory, from byte `at` on. The copy may mix several writes: the caller has to compare generations.
    pub(super) fn read(&self, at: usize, to: &mut [u8]) {
        // SAFETY: the range is within the mapping.
        unsafe { std::ptr::copy_nonoverlapping(self.range(at, to.len()), to.as_mut_ptr(), to.len()) }
    }

    /// The 64-bit integer at byte `at`, a multiple of 8. If the memory is mapped read-only, only `Relaxed` loads are allowed: other
    /// accesses may write.
    pub(super) fn atomic(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8), "an aligned word, not one at {at}");
        // SAFETY: it is within the mapping, which is aligned to a page, and lives as long as `self`.
        unsafe { AtomicU64::from_ptr(self.range(at, 8).cast()) }
    }

    fn range(&self, at: usize, bytes: usize) -> *mut u8 {
        assert!(
            at.checked_add(bytes).is_some_and(|end| end <= self.bytes),
            "{bytes} bytes at {at} of shared memory of {}",
            self.bytes
        );
        // SAFETY: it is within the mapping.
        unsafe { self.address.as_ptr().add(at) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is the value's own, and every borrow of it has ended.
        let _ = unsafe { rustix::mm::munmap(self.address.as_ptr().cast(), self.bytes) };
    }
}
