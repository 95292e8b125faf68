//! Device memory for many sets of inputs and outputs, in one allocation.

use robocache::device::Dtype;
use robocache::device::gpu::{Budget, DeviceBuf, DeviceFault, DeviceSlice, Gpu, SliceError};

const ALIGNMENT: usize = 256;

/// One device allocation that is divided into sets. Each set has the same buffers, called parts, such as times and values.
pub struct Slab {
    memory: DeviceBuf,
    places: Vec<usize>,
    stride: usize,
}

impl Slab {
    /// Allocates `sets` sets. `parts` are the sizes of a set's buffers, bytes. The memory is zeroed.
    pub fn new(gpu: &Gpu, sets: usize, parts: &[usize]) -> Result<Self, DeviceFault> {
        let mut stride = 0;
        let places = parts.iter().map(|part| {
            let place = stride;
            stride += part.next_multiple_of(ALIGNMENT);
            place
        });
        let places = places.collect();
        let mut memory = DeviceBuf::new(gpu, &Budget::new(None));
        memory.reserve(sets * stride)?;
        memory.clear(0, sets * stride)?;
        Ok(Self { memory, places, stride })
    }

    /// Views the first `len` elements of buffer `part` of a set as `dtype`.
    pub fn slice(&self, set: usize, part: usize, dtype: Dtype, len: usize) -> Result<DeviceSlice<'_>, SliceError> {
        self.memory.slice(self.place(set, part), dtype, len)
    }

    /// Copies `bytes` to the start of buffer `part` of a set, and waits for the copy.
    pub fn upload(&self, set: usize, part: usize, bytes: &[u8]) -> Result<(), DeviceFault> {
        // SAFETY: the bytes are borrowed until the stream is synchronized.
        unsafe { self.memory.upload(self.place(set, part), bytes) }?;
        self.memory.gpu().synchronize()
    }

    /// Waits for all work in the stream, and copies the start of buffer `part` of a set to `bytes`.
    pub fn download(&self, set: usize, part: usize, bytes: &mut [u8]) -> Result<(), DeviceFault> {
        // SAFETY: the bytes are borrowed until the stream is synchronized.
        unsafe { self.memory.download(self.place(set, part), bytes) }?;
        self.memory.gpu().synchronize()
    }

    fn place(&self, set: usize, part: usize) -> usize {
        set * self.stride + self.places[part]
    }
}
