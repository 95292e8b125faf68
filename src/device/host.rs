use super::cuda::{Gpu, PinnedBuf};
use bytemuck::{Pod, Zeroable};
use std::sync::OnceLock;

/// Has large buffers of messages be page-locked from now on, so that the device of `gpu` reads and writes them by
/// itself: it is several times as quick as a copy of the driver's. The first call counts.
pub fn page_lock_messages(gpu: &Gpu) {
    PAGE_LOCK_FOR.get_or_init(|| gpu.clone());
}

static PAGE_LOCK_FOR: OnceLock<Gpu> = OnceLock::new();

/// Smaller buffers are not worth a page of their own, which takes the driver 100 us and more to lock.
const PAGE_LOCKED_BYTES: usize = 1 << 16;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Host memory for elements of any type, aligned to a cache line, that keeps its capacity when it is reused.
#[derive(Default)]
pub struct HostBuf {
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
    /// An empty buffer with room for `bytes`.
    pub fn with_capacity(bytes: usize) -> Self {
        Self {
            memory: Memory::Pageable(Vec::with_capacity(bytes.div_ceil(size_of::<Line>()))),
            bytes: 0,
        }
    }

    /// Sets the length in bytes. Bytes that were not there before are zero or left over from an earlier use.
    pub fn resize(&mut self, bytes: usize) {
        if bytes > self.all().len() {
            self.grow(bytes);
        }
        self.bytes = bytes;
    }

    fn grow(&mut self, bytes: usize) {
        if let Memory::Pageable(_) = self.memory
            && bytes >= PAGE_LOCKED_BYTES
            && let Some(gpu) = PAGE_LOCK_FOR.get()
        {
            let mut locked = PinnedBuf::new(gpu);
            // Without it the copies are slower, and nothing else is different.
            if locked.resize(bytes).is_ok() {
                locked.bytes_mut()[..self.bytes].copy_from_slice(self.bytes());
                self.memory = Memory::PageLocked(locked);
                return;
            }
        }
        if let Memory::PageLocked(locked) = &mut self.memory {
            if locked.resize(bytes).is_ok() {
                return;
            }
            let lines = vec![Line::zeroed(); bytes.div_ceil(size_of::<Line>())];
            let locked = std::mem::replace(&mut self.memory, Memory::Pageable(lines));
            if let Memory::PageLocked(locked) = locked {
                self.all_mut()[..locked.bytes().len()].copy_from_slice(locked.bytes());
            }
        } else if let Memory::Pageable(lines) = &mut self.memory {
            lines.resize(bytes.div_ceil(size_of::<Line>()), Line::zeroed());
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

    /// Makes the buffer a copy of `source`.
    pub fn copy_from(&mut self, source: &[u8]) {
        self.resize(source.len());
        self.bytes_mut().copy_from_slice(source);
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// How many bytes it can hold without allocating.
    pub fn capacity(&self) -> usize {
        match &self.memory {
            Memory::Pageable(lines) => lines.capacity() * size_of::<Line>(),
            Memory::PageLocked(locked) => locked.capacity(),
        }
    }

    /// The contents as bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.all()[..self.bytes]
    }

    /// The contents as bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.bytes;
        &mut self.all_mut()[..bytes]
    }

    /// The contents as elements of `T`. The length must be a whole number of them.
    pub fn as_slice<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice(self.bytes())
    }

    /// The contents as elements of `T`, to write. The length must be a whole number of them.
    pub fn as_mut_slice<T: Pod>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.bytes_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_aligned_and_keeps_its_memory() {
        let mut buf = HostBuf::with_capacity(100);
        buf.copy_from(bytemuck::cast_slice(&[1.0f64, 2.0, 3.0]));
        assert_eq!(buf.as_slice::<f64>(), [1.0, 2.0, 3.0]);
        assert_eq!(buf.bytes().as_ptr() as usize % 64, 0);
        let before = buf.bytes().as_ptr();
        buf.resize(1);
        buf.resize(96);
        assert_eq!(buf.bytes().as_ptr(), before);
        assert_eq!(buf.len(), 96);
    }
}
