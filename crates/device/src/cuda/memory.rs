use super::error::CudaError;
use super::gpu::Gpu;
use super::shared::Mapping;
use super::transfer::{Piece, SMALL_BYTES};
use bytemuck::Pod;
use cudarc::driver::{result, sys};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the device memory that an operation holds, and limits it. Clones share the count.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Account>);

#[derive(Debug)]
struct Account {
    limit: Option<usize>,
    used: AtomicUsize,
}

impl Budget {
    /// A budget of so many bytes, or without a limit.
    pub fn new(limit_bytes: Option<usize>) -> Self {
        Self(Arc::new(Account {
            limit: limit_bytes,
            used: AtomicUsize::new(0),
        }))
    }

    /// Bytes of device memory that are held.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Bytes that may be held.
    pub fn limit(&self) -> Option<usize> {
        self.0.limit
    }

    fn take(&self, device: usize, bytes: usize) -> Result<(), CudaError> {
        let used = self.used();
        match self.0.limit {
            Some(limit) if used + bytes > limit => Err(CudaError::OutOfBudget {
                device,
                asked: bytes,
                used,
                limit,
            }),
            _ => {
                self.0.used.fetch_add(bytes, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    fn give_back(&self, bytes: usize) {
        self.0.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Sizes are rounded up to a multiple of this, so that those which vary a little need no new allocation.
const GRANULE: usize = 512;

/// How often [`DeviceBuf::fetch`] tries a copy.
const FETCH_TRIES: usize = 4;

/// Memory of a device that grows and never shrinks: at its working size nothing is allocated any more.
///
/// It is aligned to 256 bytes.
pub struct DeviceBuf {
    gpu: Gpu,
    budget: Budget,
    address: sys::CUdeviceptr,
    capacity: usize,
    /// Where the memory is one that processes share.
    mapping: Option<Box<Mapping>>,
}

impl DeviceBuf {
    /// An empty buffer.
    pub fn new(gpu: &Gpu, budget: &Budget) -> Self {
        Self {
            gpu: gpu.clone(),
            budget: budget.clone(),
            address: 0,
            capacity: 0,
            mapping: None,
        }
    }

    /// A buffer with that memory.
    pub(super) fn of_mapping(gpu: &Gpu, budget: &Budget, mapping: Mapping) -> Result<Self, CudaError> {
        budget.take(gpu.ordinal(), mapping.bytes())?;
        let mut buf = Self::new(gpu, budget);
        (buf.address, buf.capacity) = (mapping.address(), mapping.bytes());
        buf.mapping = Some(Box::new(mapping));
        Ok(buf)
    }

    /// Makes room for `bytes` bytes. A buffer that has to grow loses its contents, and waits for the stream.
    ///
    /// # Errors
    /// [`CudaError::OutOfBudget`], [`CudaError::OutOfMemory`]; the buffer is then empty.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), CudaError> {
        if bytes <= self.capacity {
            return Ok(());
        }
        // Geometric growth, where there is memory for it, so that sizes which creep up do not allocate each time.
        let ample = bytes.max(self.capacity + self.capacity / 2).next_multiple_of(GRANULE);
        let exact = bytes.next_multiple_of(GRANULE);
        self.release();
        match self.allocate(ample) {
            Err(error) if error.is_memory() && exact < ample => self.allocate(exact),
            result => result,
        }
    }

    fn allocate(&mut self, bytes: usize) -> Result<(), CudaError> {
        let device = self.gpu.ordinal();
        self.gpu.bound()?;
        self.budget.take(device, bytes)?;
        // SAFETY: the context is current; the memory is given back in `release` only.
        match unsafe { result::malloc_sync(bytes) } {
            Ok(address) => {
                (self.address, self.capacity) = (address, bytes);
                Ok(())
            }
            Err(error) => {
                self.budget.give_back(bytes);
                Err(CudaError::allocation(device, "device", error, bytes))
            }
        }
    }

    /// Gives the memory back, once the device is done with it.
    pub fn release(&mut self) {
        if self.capacity == 0 {
            return;
        }
        if self.mapping.take().is_none() && self.gpu.bound().is_ok() {
            // SAFETY: the address is this buffer's own, and freeing waits for the work that uses it.
            let _ = unsafe { result::free_sync(self.address) };
        }
        self.budget.give_back(self.capacity);
        (self.address, self.capacity) = (0, 0);
    }

    /// Its address on the device; 0 where it is empty. It changes when the buffer grows.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes it has room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The device it is on.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Whether it is memory of this device, and counts in this budget.
    pub fn is_of(&self, gpu: &Gpu, budget: &Budget) -> bool {
        self.gpu.ordinal() == gpu.ordinal() && Arc::ptr_eq(&self.budget.0, &budget.0)
    }

    /// Copies the bytes from `offset` on to host memory, and waits for it. What writes them must be done.
    ///
    /// Tries a few times where the driver has no memory for the copy, since there is no other way off the device.
    ///
    /// # Errors
    /// What the driver says. The host memory is the caller's again all the same.
    ///
    /// # Panics
    /// If there are not so many bytes.
    pub fn fetch(&self, offset: usize, to: &mut [u8]) -> Result<(), CudaError> {
        let mut tries = 1;
        loop {
            match Self::fetch_each([(self, offset, &mut *to)]) {
                Err(error) if error.is_memory() && tries < FETCH_TRIES => tries += 1,
                result => return result,
            }
        }
    }

    /// Copies bytes of several buffers, each from an offset on, to host memory, behind what is in their stream, and waits
    /// for it.
    ///
    /// # Errors
    /// What the driver says. The host memory is the caller's again all the same.
    ///
    /// # Panics
    /// If a buffer has not so many bytes; if they are of several streams.
    pub fn fetch_each<const N: usize>(pieces: [(&Self, usize, &mut [u8]); N]) -> Result<(), CudaError> {
        let Some(gpu) = pieces.first().map(|(from, ..)| from.gpu.clone()) else {
            return Ok(());
        };
        let mut copied = Ok(());
        let through = pieces.map(|(from, offset, to)| {
            assert!(gpu.shares_stream(&from.gpu), "buffers of one stream");
            from.range(offset, to.len());
            let mut piece = Piece {
                from,
                offset,
                to: to.as_mut_ptr(),
                bytes: 0,
            };
            if gpu.goes_through(to) && gpu.transfer().is_ok() {
                piece.bytes = to.len();
            } else if copied.is_ok() {
                // SAFETY: it is borrowed until the stream is synchronized, below.
                copied = unsafe { from.enqueue_download(offset, to) };
            }
            piece
        });
        if copied.is_ok() && through.iter().any(|piece| piece.bytes > 0) {
            // SAFETY: the pieces are borrowed slices.
            copied = gpu
                .transfer()
                .and_then(|transfer| unsafe { transfer.download(&through) });
        }
        copied.and(gpu.synchronize())
    }

    /// Enqueues a copy of host memory to the buffer from byte `offset` on.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// If it does not fit.
    ///
    /// # Safety
    /// Page-locked memory is not written until the stream is synchronized. Other memory has been read on return. In a
    /// [capture](Gpu::capture) the memory is page-locked, and stays as long as the graph, which reads it at each launch.
    pub unsafe fn upload(&self, offset: usize, from: &[u8]) -> Result<(), CudaError> {
        self.range(offset, from.len());
        if self.gpu.goes_through(from)
            && let Ok(transfer) = self.gpu.transfer()
        {
            let copy = |first: usize, to: &mut [u8]| to.copy_from_slice(&from[first..][..to.len()]);
            return transfer.upload((self, offset), (from.len(), 1), &copy);
        }
        // SAFETY: as this function.
        unsafe { self.enqueue_upload(offset, from) }
    }

    /// Enqueues a copy of `bytes` bytes to the buffer from byte `offset` on, in rows of `row` bytes, which `make` writes: it
    /// is told the first byte and gets the memory for some rows, on any thread. They are made on return.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// If it does not fit; if a row is more than 128 KiB.
    pub fn upload_made(
        &self,
        offset: usize,
        (bytes, row): (usize, usize),
        make: &(dyn Fn(usize, &mut [u8]) + Sync),
    ) -> Result<(), CudaError> {
        self.range(offset, bytes);
        self.gpu.transfer()?.upload((self, offset), (bytes, row), make)
    }

    /// The driver's own copy to the buffer.
    ///
    /// # Safety
    /// As [`Self::upload`].
    pub(super) unsafe fn enqueue_upload(&self, offset: usize, from: &[u8]) -> Result<(), CudaError> {
        let to = self.range(offset, from.len());
        if from.is_empty() {
            return Ok(());
        }
        let stream = self.gpu.bound()?;
        // SAFETY: the range is within the buffer; that the source stays is the caller's promise.
        unsafe { result::memcpy_htod_async(to, from, stream) }.map_err(|error| {
            self.gpu
                .failed("cuMemcpyHtoDAsync", error, format_args!("{} bytes", from.len()))
        })
    }

    /// Enqueues a copy of the bytes from `offset` on to host memory. Where that is not page-locked, this waits for what is
    /// in the stream.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// If there are not so many bytes.
    ///
    /// # Safety
    /// The host memory is neither read nor freed until the stream is synchronized.
    pub unsafe fn download(&self, offset: usize, to: &mut [u8]) -> Result<(), CudaError> {
        if self.gpu.goes_through(to) {
            return Self::fetch_each([(self, offset, to)]);
        }
        // SAFETY: as this function.
        unsafe { self.enqueue_download(offset, to) }
    }

    /// The driver's own copy from the buffer.
    ///
    /// # Safety
    /// As [`Self::download`].
    pub(super) unsafe fn enqueue_download(&self, offset: usize, to: &mut [u8]) -> Result<(), CudaError> {
        let from = self.range(offset, to.len());
        if to.is_empty() {
            return Ok(());
        }
        let stream = self.gpu.bound()?;
        let bytes = to.len();
        // SAFETY: the range is within the buffer; that the target stays is the caller's promise.
        unsafe { result::memcpy_dtoh_async(to, from, stream) }.map_err(|error| {
            self.gpu
                .failed("cuMemcpyDtoHAsync", error, format_args!("{bytes} bytes"))
        })
    }

    /// Enqueues zeroing of `bytes` bytes from `offset` on.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// If there are not so many bytes.
    pub fn clear(&self, offset: usize, bytes: usize) -> Result<(), CudaError> {
        let to = self.range(offset, bytes);
        if bytes == 0 {
            return Ok(());
        }
        let stream = self.gpu.bound()?;
        // SAFETY: the range is within the buffer, which is freed after the work in the stream only.
        unsafe { result::memset_d8_async(to, 0, bytes, stream) }
            .map_err(|error| self.gpu.failed("cuMemsetD8Async", error, format_args!("{bytes} bytes")))
    }

    /// Enqueues a copy of `bytes` bytes of another buffer, from its byte `from` on, to byte `offset` of this one. The other
    /// may be on another device; its stream must be idle.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// If a range is not within its buffer.
    pub fn copy_from(&self, offset: usize, other: &Self, from: usize, bytes: usize) -> Result<(), CudaError> {
        let (to, from) = (self.range(offset, bytes), other.range(from, bytes));
        if bytes == 0 {
            return Ok(());
        }
        let stream = self.gpu.bound()?;
        let copied = if self.gpu.ordinal() == other.gpu.ordinal() {
            // SAFETY: both ranges are within their buffers.
            unsafe { result::memcpy_dtod_async(to, from, bytes, stream) }
        } else {
            let (to_context, from_context) = (self.gpu.cu_context(), other.gpu.cu_context());
            // SAFETY: both ranges are within their buffers, each in its context.
            unsafe { result::memcpy_peer_async(to_context, to, from_context, from, bytes, stream) }
        };
        copied.map_err(|error| {
            let detail = format_args!("{bytes} bytes of cuda:{}", other.gpu.ordinal());
            self.gpu.failed("cuMemcpyPeerAsync", error, detail)
        })
    }

    /// The address of a range, which lies within the buffer.
    pub(super) fn range(&self, offset: usize, bytes: usize) -> sys::CUdeviceptr {
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= self.capacity),
            "{bytes} bytes at {offset} of a device buffer of {}",
            self.capacity
        );
        self.address + offset as u64
    }
}

impl Drop for DeviceBuf {
    fn drop(&mut self) {
        self.release();
    }
}

impl Gpu {
    /// Whether copies of host memory go through page-locked chunks: it is large and not page-locked itself.
    fn goes_through(&self, memory: &[u8]) -> bool {
        memory.len() > SMALL_BYTES && !self.is_page_locked(memory)
    }

    /// Whether host memory is page-locked, whoever locked it: a device then copies it by itself.
    ///
    /// The driver knows. It takes well under a microsecond to say so, and says no where it can't tell.
    pub fn is_page_locked(&self, memory: &[u8]) -> bool {
        let Some(last) = memory.len().checked_sub(1) else {
            return true;
        };
        // Memory that was locked by another library may end before the slice does.
        let ends = [memory.as_ptr(), memory[last..].as_ptr()];
        self.bound().is_ok() && ends.into_iter().all(is_host_memory_of_driver)
    }
}

/// Whether the driver has an address in a range of host memory that it locked.
fn is_host_memory_of_driver(address: *const u8) -> bool {
    let mut kind = 0u32;
    let mut attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    let mut to = (&raw mut kind).cast::<c_void>();
    // The call for a single attribute would give an error for other memory, which tools that watch for errors report.
    // SAFETY: one attribute is asked for, and `kind` is a place for its value; the address is not read.
    let asked = unsafe { sys::cuPointerGetAttributes(1, &mut attribute, &mut to, address as sys::CUdeviceptr) };
    asked == sys::CUresult::CUDA_SUCCESS && kind == sys::CUmemorytype::CU_MEMORYTYPE_HOST as u32
}

/// Page-locked host memory, which a device reads and writes by itself, that keeps its capacity when it is reused.
///
/// It is cached memory, as quick to read and write as any. It is aligned to a page and zero at first.
pub struct PinnedBuf {
    gpu: Gpu,
    memory: Option<NonNull<u8>>,
    capacity: usize,
    bytes: usize,
}

// SAFETY: it is plain host memory that it owns.
unsafe impl Send for PinnedBuf {}
// SAFETY: it is plain host memory, written through `&mut` only.
unsafe impl Sync for PinnedBuf {}

impl PinnedBuf {
    /// An empty buffer.
    pub fn new(gpu: &Gpu) -> Self {
        Self {
            gpu: gpu.clone(),
            memory: None,
            capacity: 0,
            bytes: 0,
        }
    }

    /// Sets the length in bytes. The contents stay as far as they fit; new bytes are zero or left over from earlier.
    ///
    /// # Errors
    /// [`CudaError::OutOfMemory`]; the buffer is then as it was.
    pub fn resize(&mut self, bytes: usize) -> Result<(), CudaError> {
        if bytes > self.capacity {
            let mut grown = Self::new(&self.gpu);
            grown.allocate(bytes.max(self.capacity + self.capacity / 2).next_multiple_of(GRANULE))?;
            grown.bytes_mut()[..self.bytes].copy_from_slice(self.bytes());
            *self = grown;
        }
        self.bytes = bytes;
        Ok(())
    }

    fn allocate(&mut self, bytes: usize) -> Result<(), CudaError> {
        self.gpu.bound()?;
        // Every context may use it, whichever it was allocated in.
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: the context is current; the memory is freed in `drop` only.
        let memory = unsafe { result::malloc_host(bytes, flags) }
            .map_err(|error| CudaError::allocation(self.gpu.ordinal(), "page-locked", error, bytes))?;
        // SAFETY: it has so many bytes.
        unsafe { memory.cast::<u8>().write_bytes(0, bytes) };
        self.memory = NonNull::new(memory.cast());
        self.capacity = bytes;
        self.bytes = bytes;
        Ok(())
    }

    /// The contents as bytes.
    pub fn bytes(&self) -> &[u8] {
        match self.memory {
            // SAFETY: `bytes` are within the memory, all of which was written.
            Some(memory) => unsafe { std::slice::from_raw_parts(memory.as_ptr(), self.bytes) },
            // Nothing, but aligned for whatever it is seen as.
            None => bytemuck::cast_slice::<u64, u8>(&[]),
        }
    }

    /// The contents as bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self.memory {
            // SAFETY: as in `bytes`, and the borrow is exclusive.
            Some(memory) => unsafe { std::slice::from_raw_parts_mut(memory.as_ptr(), self.bytes) },
            None => bytemuck::cast_slice_mut::<u64, u8>(&mut []),
        }
    }

    /// The contents as elements of `T`. The length must be a whole number of them.
    pub fn as_slice<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice(self.bytes())
    }

    /// The contents as elements of `T`, to write. The length must be a whole number of them.
    pub fn as_mut_slice<T: Pod>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.bytes_mut())
    }

    /// How many bytes it can hold without allocating.
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

impl Drop for PinnedBuf {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        if self.gpu.bound().is_ok() {
            // SAFETY: it is this buffer's own. The device is done with it, as users synchronize before they let go.
            let _ = unsafe { result::free_host(memory.as_ptr().cast()) };
        }
    }
}
