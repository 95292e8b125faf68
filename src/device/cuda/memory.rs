use super::error::CudaError;
use super::gpu::Gpu;
use bytemuck::Pod;
use cudarc::driver::{result, sys};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The device memory that an operation holds, and how much it may hold. Clones are the same budget.
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

/// What a size is rounded up to, so that sizes that vary a little are one allocation.
const GRANULE: usize = 512;

/// How often [`DeviceBuf::fetch`] asks for a copy.
const FETCH_TRIES: usize = 4;

/// Memory of a device that keeps its capacity when it is reused: once it has grown to its working size, nothing is
/// allocated. It is aligned to 256 bytes, and can be handed to another process.
pub struct DeviceBuf {
    gpu: Gpu,
    budget: Budget,
    address: sys::CUdeviceptr,
    capacity: usize,
}

impl DeviceBuf {
    /// An empty buffer.
    pub fn new(gpu: &Gpu, budget: &Budget) -> Self {
        Self {
            gpu: gpu.clone(),
            budget: budget.clone(),
            address: 0,
            capacity: 0,
        }
    }

    /// Makes room for so many bytes. What is in the buffer is lost where it has to grow, which waits for the stream.
    ///
    /// # Errors
    /// [`CudaError::OutOfBudget`], [`CudaError::OutOfMemory`]; the buffer is then empty.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), CudaError> {
        if bytes <= self.capacity {
            return Ok(());
        }
        // Half as much again as it has, so that sizes that creep up do not allocate each time, if that can be had.
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
        if self.gpu.bound().is_ok() {
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

    /// Copies the bytes from `at` on to host memory, and waits for it. What writes them has been waited for.
    ///
    /// A driver without memory for the copy is asked again a few times: there is no other way off the device.
    ///
    /// # Errors
    /// What the driver says. The host memory is the caller's again all the same.
    ///
    /// # Panics
    /// If there are not so many bytes.
    pub fn fetch(&self, at: usize, to: &mut [u8]) -> Result<(), CudaError> {
        let mut tries = 1;
        loop {
            // SAFETY: the memory is borrowed until the stream is synchronized, also where the copy failed.
            let copied = unsafe { self.download(at, to) };
            match copied.and(self.gpu.synchronize()) {
                Err(error) if error.is_memory() && tries < FETCH_TRIES => tries += 1,
                result => return result,
            }
        }
    }

    /// Puts a copy of host memory to byte `at` of the buffer into the stream.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// If it does not fit.
    ///
    /// # Safety
    /// Page-locked memory stays as it is until the stream is synchronized. Other memory has been read on return.
    pub unsafe fn upload(&self, at: usize, from: &[u8]) -> Result<(), CudaError> {
        let to = self.place(at, from.len());
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

    /// Puts a copy of the bytes from `at` on to host memory into the stream.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// If there are not so many bytes.
    ///
    /// # Safety
    /// The host memory is neither read nor freed until the stream is synchronized.
    pub unsafe fn download(&self, at: usize, to: &mut [u8]) -> Result<(), CudaError> {
        let from = self.place(at, to.len());
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

    /// Puts zeroing of `bytes` bytes from `at` on into the stream.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// If there are not so many bytes.
    pub fn clear(&self, at: usize, bytes: usize) -> Result<(), CudaError> {
        let place = self.place(at, bytes);
        if bytes == 0 {
            return Ok(());
        }
        let stream = self.gpu.bound()?;
        // SAFETY: the range is within the buffer, which is freed after the work in the stream only.
        unsafe { result::memset_d8_async(place, 0, bytes, stream) }
            .map_err(|error| self.gpu.failed("cuMemsetD8Async", error, format_args!("{bytes} bytes")))
    }

    /// Puts a copy of `bytes` bytes of another buffer, which may be on another device, into the stream. Work in the
    /// stream of the other buffer must have been synchronized.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// If a range is not within its buffer.
    pub fn copy_from(&self, at: usize, other: &Self, from: usize, bytes: usize) -> Result<(), CudaError> {
        let (to, from) = (self.place(at, bytes), other.place(from, bytes));
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

    fn place(&self, at: usize, bytes: usize) -> sys::CUdeviceptr {
        assert!(
            at.checked_add(bytes).is_some_and(|end| end <= self.capacity),
            "{bytes} bytes at {at} of a device buffer of {}",
            self.capacity
        );
        self.address + at as u64
    }
}

impl Drop for DeviceBuf {
    fn drop(&mut self) {
        self.release();
    }
}

/// The page-locked memory of this process, by where it begins and ends.
static PAGE_LOCKED: RwLock<BTreeMap<usize, usize>> = RwLock::new(BTreeMap::new());

/// Whether all of it is page-locked, being in a [`PinnedBuf`]: a device then copies it by itself.
pub fn is_page_locked(memory: &[u8]) -> bool {
    let begin = memory.as_ptr() as usize;
    let locked = PAGE_LOCKED.read().unwrap_or_else(PoisonError::into_inner);
    let below = locked.range(..=begin).next_back();
    below.is_some_and(|(_, &end)| begin + memory.len() <= end)
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

    /// Sets the length in bytes. The contents stay as far as they fit; what is new is zero or left over from earlier.
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
        let begin = memory as usize;
        let mut locked = PAGE_LOCKED.write().unwrap_or_else(PoisonError::into_inner);
        locked.insert(begin, begin + bytes);
        drop(locked);
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
        let mut locked = PAGE_LOCKED.write().unwrap_or_else(PoisonError::into_inner);
        locked.remove(&(memory.as_ptr() as usize));
        drop(locked);
        if self.gpu.bound().is_ok() {
            // SAFETY: it is this buffer's own. The device is done with it, as users synchronize before they let go.
            let _ = unsafe { result::free_host(memory.as_ptr().cast()) };
        }
    }
}
