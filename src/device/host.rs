use bytemuck::{Pod, Zeroable};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Host memory for elements of any type, aligned to a cache line, that keeps its capacity when it is reused.
#[derive(Default)]
pub struct HostBuf {
    lines: Vec<Line>,
    bytes: usize,
}

impl HostBuf {
    /// An empty buffer with room for `bytes`.
    pub fn with_capacity(bytes: usize) -> Self {
        Self {
            lines: Vec::with_capacity(bytes.div_ceil(size_of::<Line>())),
            bytes: 0,
        }
    }

    /// Sets the length in bytes. Bytes that were not there before are zero or left over from an earlier use.
    pub fn resize(&mut self, bytes: usize) {
        let lines = bytes.div_ceil(size_of::<Line>());
        if lines > self.lines.len() {
            self.lines.resize(lines, Line::zeroed());
        }
        self.bytes = bytes;
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
        self.lines.capacity() * size_of::<Line>()
    }

    /// The contents as bytes.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.lines)[..self.bytes]
    }

    /// The contents as bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.bytes]
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
