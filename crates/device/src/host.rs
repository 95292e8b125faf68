//! Host memory of messages and results: pageable or page-locked, aligned to a cache line, and used again. Growing keeps the
//! contents, and a lack of page-locked memory is never an error.

use super::gpu::{Gpu, PinnedBuf};
use bytemuck::{Pod, Zeroable};
use std::alloc::Layout;
use std::collections::TryReserveError;

/// Kind of memory that host buffers allocate: pageable, which is the default, or page-locked for a GPU.
#[derive(Clone, Default)]
pub struct HostMemory {
    page_locked_by: Option<Gpu>,
}

impl HostMemory {
    /// Ordinary pageable memory, from Rust's allocator.
    pub fn pageable() -> Self {
        Self::default()
    }

    /// Memory that the device of `gpu` reads and writes by itself (DMA), several times as fast as the driver copies pageable
    /// memory. Buffers below 64 KiB stay pageable, since locking pages takes the driver 100 us and more. If the driver has no
    /// page-locked memory left, buffers are pageable, which only makes copies slower.
    pub fn page_locked(gpu: &Gpu) -> Self {
        Self {
            page_locked_by: Some(gpu.clone()),
        }
    }
}

/// Threshold, bytes: smaller buffers stay pageable, even if their [`HostMemory`] is page-locked.
const PAGE_LOCKED_BYTES: usize = 1 << 16;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Allocates `lines` cache lines of zeros. For large sizes the system gives pages that are zero already; `vec!` would write them.
fn zeroed(lines: usize) -> Vec<Line> {
    if lines == 0 {
        return Vec::new();
    }
    let Ok(block) = Layout::array::<Line>(lines) else {
        panic!("{lines} lines of memory");
    };
    // SAFETY: the block is not empty, is of the layout that `Vec` frees, and zeros are lines.
    unsafe {
        let memory = std::alloc::alloc_zeroed(block);
        if memory.is_null() {
            std::alloc::handle_alloc_error(block);
        }
        Vec::from_raw_parts(memory.cast(), lines, lines)
    }
}

/// Host memory for elements of any type, aligned to a cache line, that keeps its capacity when it is reused.
#[derive(Default)]
pub struct HostBuf {
    source: HostMemory,
    memory: Memory,
    bytes: usize,
}

enum Memory {
    Pageable(Vec<Line>),
    PageLocked(PinnedBuf),
}

impl Default for Memory {
    fn default() -> Self {
        Self::Pageable(Vec::new())
    }
}

impl HostBuf {
    /// Makes an empty buffer that gets its memory from `source`.
    pub fn new(source: &HostMemory) -> Self {
        Self {
            source: source.clone(),
            ..Self::default()
        }
    }

    /// Sets the length in bytes. New bytes are zero or left over from an earlier use.
    pub fn resize(&mut self, bytes: usize) {
        if bytes > self.all().len() {
            self.grow(bytes);
        }
        self.bytes = bytes;
    }

    /// Reserves pageable memory for `bytes` bytes in all, so that growing to this size allocates nothing. The pages stay untouched
    /// until the buffer grows. A buffer that is page-locked already reserves nothing.
    ///
    /// # Errors
    /// The allocator's error if there is too little pageable memory. The buffer is then unchanged.
    pub fn try_reserve(&mut self, bytes: usize) -> Result<(), TryReserveError> {
        match &mut self.memory {
            Memory::Pageable(lines) => {
                let more = bytes.div_ceil(size_of::<Line>()).saturating_sub(lines.len());
                lines.try_reserve_exact(more)
            }
            Memory::PageLocked(_) => Ok(()),
        }
    }

    fn grow(&mut self, bytes: usize) {
        if let Some(gpu) = self
            .source
            .page_locked_by
            .as_ref()
            .filter(|_| bytes >= PAGE_LOCKED_BYTES)
        {
            let is_locked = match &mut self.memory {
                Memory::PageLocked(locked) => locked.resize(bytes).is_ok(),
                Memory::Pageable(_) => {
                    let mut locked = PinnedBuf::new(gpu);
                    let is_locked = locked.resize(bytes).is_ok();
                    if is_locked {
                        locked.bytes_mut()[..self.bytes].copy_from_slice(self.bytes());
                        self.memory = Memory::PageLocked(locked);
                    }
                    is_locked
                }
            };
            if is_locked {
                return;
            }
        }
        // Without a GPU, for few bytes, and if page-locking fails, the memory is pageable.
        let lines = bytes.div_ceil(size_of::<Line>());
        match &mut self.memory {
            // New pages are zero already.
            Memory::Pageable(memory) if memory.capacity() == 0 => *memory = zeroed(lines),
            Memory::Pageable(memory) => memory.resize(lines, Line::zeroed()),
            Memory::PageLocked(locked) => {
                let mut memory = zeroed(lines);
                bytemuck::cast_slice_mut(&mut memory)[..locked.bytes().len()].copy_from_slice(locked.bytes());
                self.memory = Memory::Pageable(memory);
            }
        }
    }

    fn all(&self) -> &[u8] {
        match &self.memory {
            Memory::Pageable(lines) => bytemuck::cast_slice(lines),
            Memory::PageLocked(locked) => locked.bytes(),
        }
    }

    fn all_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Pageable(lines) => bytemuck::cast_slice_mut(lines),
            Memory::PageLocked(locked) => locked.bytes_mut(),
        }
    }

    /// Replaces the contents with a copy of `source`; the length becomes that of `source`.
    pub fn copy_from(&mut self, source: &[u8]) {
        self.resize(source.len());
        self.bytes_mut().copy_from_slice(source);
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// True if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Number of bytes that the buffer can hold without allocating.
    pub fn capacity(&self) -> usize {
        match &self.memory {
            Memory::Pageable(lines) => lines.capacity() * size_of::<Line>(),
            Memory::PageLocked(locked) => locked.capacity(),
        }
    }

    /// The contents: `len` bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.all()[..self.bytes]
    }

    /// The contents, `len` bytes, to be written in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.bytes;
        &mut self.all_mut()[..bytes]
    }

    /// The contents as elements of `T`. Panics unless the length is a multiple of the element's size.
    pub fn as_slice<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice(self.bytes())
    }

    /// The contents as elements of `T`, to be written in place. Panics unless the length is a multiple of the element's size.
    pub fn as_mut_slice<T: Pod>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.bytes_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_in_what_was_reserved() {
        let mut buf = HostBuf::default();
        buf.try_reserve(1 << 20).unwrap();
        buf.resize(64);
        let before = buf.bytes().as_ptr();
        buf.resize(1 << 20);
        assert_eq!(buf.bytes().as_ptr(), before);
        assert!(buf.bytes().iter().all(|&byte| byte == 0));
    }

    #[test]
    fn it_is_aligned_and_keeps_its_memory() {
        let mut buf = HostBuf::new(&HostMemory::pageable());
        buf.copy_from(bytemuck::cast_slice(&[1.0f64, 2.0, 3.0]));
        assert_eq!(buf.as_slice::<f64>(), [1.0, 2.0, 3.0]);
        assert_eq!(buf.bytes().as_ptr() as usize % 64, 0);
        let before = buf.bytes().as_ptr();
        buf.resize(1);
        buf.resize(64);
        assert_eq!(buf.bytes().as_ptr(), before);
        assert_eq!(buf.len(), 64);
    }
}
