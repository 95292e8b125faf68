//! Buffers in the memory of a device, and the budget that limits them. All memory that a buffer holds is counted in its budget, and
//! every copy is checked against its capacity.

use super::device::Gpu;
use super::driver::Address;
use super::error::DeviceFault;
use super::mapping::Mapping;
use super::pinned::GRANULE;
use super::pointer::DevicePtr;
use super::transfer::Piece;
use crate::Device;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Count of the device memory that an operation holds, with a limit. Clones share the count.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Account>);

#[derive(Debug)]
struct Account {
    limit: Option<usize>,
    used: AtomicUsize,
}

impl Budget {
    /// Makes a budget of `limit_bytes` bytes; `None` means no limit.
    pub fn new(limit_bytes: Option<usize>) -> Self {
        Self(Arc::new(Account {
            limit: limit_bytes,
            used: AtomicUsize::new(0),
        }))
    }

    /// Bytes of device memory that are held at present.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Largest number of bytes that may be held; `None` without a limit.
    pub fn limit(&self) -> Option<usize> {
        self.0.limit
    }

    fn take(&self, device: Device, bytes: usize) -> Result<(), DeviceFault> {
        let used = self.used();
        match self.0.limit {
            Some(limit) if used + bytes > limit => Err(DeviceFault::OutOfBudget {
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

/// Number of times that [`DeviceBuf::fetch`] tries a copy for which the driver lacks memory.
const FETCH_TRIES: usize = 4;

/// Buffer in the memory of a device, which grows and never shrinks: at its working size nothing is allocated any more.
///
/// The memory is aligned to 256 bytes.
pub struct DeviceBuf {
    gpu: Gpu,
    budget: Budget,
    address: Address,
    capacity: usize,
    /// Mapping of memory that processes share; `None` for memory of this process alone.
    mapping: Option<Box<Mapping>>,
}

impl DeviceBuf {
    /// Makes an empty buffer on the device of `gpu`. Its memory will count in `budget`.
    pub fn new(gpu: &Gpu, budget: &Budget) -> Self {
        Self {
            gpu: gpu.clone(),
            budget: budget.clone(),
            address: Address(0),
            capacity: 0,
            mapping: None,
        }
    }

    /// Makes a buffer of at least `bytes` bytes that other processes can map. Also returns the file descriptor by which they map
    /// it. If the buffer has to grow, its new memory is not shared.
    ///
    /// # Errors
    /// [`DeviceFault::OutOfMemory`], [`DeviceFault::OutOfBudget`], [`DeviceFault::NotShareable`]; the driver's error.
    pub fn shareable(gpu: &Gpu, budget: &Budget, bytes: usize) -> Result<(Self, OwnedFd), DeviceFault> {
        let (mapping, descriptor) = Mapping::create(gpu, bytes)?;
        Ok((Self::of_mapping(gpu, budget, mapping)?, descriptor))
    }

    /// Maps the buffer of another process, of at least `bytes` bytes, by its file descriptor.
    ///
    /// # Errors
    /// The driver's error.
    pub fn of_process(gpu: &Gpu, descriptor: BorrowedFd<'_>, bytes: usize) -> Result<Self, DeviceFault> {
        Self::of_mapping(gpu, &Budget::new(None), Mapping::import(gpu, descriptor, bytes)?)
    }

    /// Makes a buffer that owns `mapping`, and counts the memory in `budget`.
    fn of_mapping(gpu: &Gpu, budget: &Budget, mapping: Mapping) -> Result<Self, DeviceFault> {
        budget.take(gpu.device(), mapping.bytes())?;
        let mut buf = Self::new(gpu, budget);
        (buf.address, buf.capacity) = (mapping.address(), mapping.bytes());
        buf.mapping = Some(Box::new(mapping));
        Ok(buf)
    }

    /// Makes room for `bytes` bytes. A buffer that has to grow loses its contents, and waits for the stream.
    ///
    /// # Errors
    /// [`DeviceFault::OutOfBudget`], [`DeviceFault::OutOfMemory`]; the buffer is then empty.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), DeviceFault> {
        if bytes <= self.capacity {
            return Ok(());
        }
        // Geometric growth, if there is memory for it, so that sizes which creep up do not allocate each time.
        let ample = bytes.max(self.capacity + self.capacity / 2).next_multiple_of(GRANULE);
        let exact = bytes.next_multiple_of(GRANULE);
        self.release();
        match self.allocate(ample) {
            Err(error) if error.is_memory() && exact < ample => self.allocate(exact),
            result => result,
        }
    }

    fn allocate(&mut self, bytes: usize) -> Result<(), DeviceFault> {
        let device = self.gpu.device();
        let (driver, _) = self.gpu.stream.bound()?;
        self.budget.take(device, bytes)?;
        // SAFETY: the context is current; the memory is given back in `release` only.
        match unsafe { driver.allocate(bytes) } {
            Ok(address) => {
                (self.address, self.capacity) = (address, bytes);
                Ok(())
            }
            Err(fault) => {
                self.budget.give_back(bytes);
                Err(DeviceFault::allocation(device, "device", fault, bytes))
            }
        }
    }

    /// Frees the memory once the device is done with it. The buffer is then empty.
    pub fn release(&mut self) {
        if self.capacity == 0 {
            return;
        }
        if self.mapping.take().is_none()
            && let Ok((driver, _)) = self.gpu.stream.bound()
        {
            // SAFETY: the address is this buffer's own, and freeing waits for the work that uses it.
            unsafe { driver.free(self.address) };
        }
        self.budget.give_back(self.capacity);
        (self.address, self.capacity) = (Address(0), 0);
    }

    /// Address of the first byte; 0 if the buffer is empty.
    pub fn pointer(&self) -> DevicePtr<'_> {
        DevicePtr::new(self.address.0)
    }

    /// Bytes that the buffer has room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The device that the buffer is on.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// True if the buffer is on the device of `gpu`, and counts in `budget`.
    pub fn is_of(&self, gpu: &Gpu, budget: &Budget) -> bool {
        self.gpu.device() == gpu.device() && Arc::ptr_eq(&self.budget.0, &budget.0)
    }

    /// Copies bytes of the buffer, from byte `offset` on, to host memory, and waits for the copy. Work of other streams that writes
    /// these bytes must be done.
    ///
    /// Tries a few times if the driver has no memory for the copy, since there is no other way off the device.
    ///
    /// # Errors
    /// The driver's error. Even then the device no longer uses the host memory.
    ///
    /// # Panics
    /// If the range reaches past the end of the buffer.
    pub fn fetch(&self, offset: usize, to: &mut [u8]) -> Result<(), DeviceFault> {
        let mut tries = 1;
        loop {
            match Self::fetch_each([(self, offset, &mut *to)]) {
                Err(error) if error.is_memory() && tries < FETCH_TRIES => tries += 1,
                result => return result,
            }
        }
    }

    /// Copies bytes of several buffers, which share a stream, to host memory, after the work in that stream, and waits for the
    /// copies. A piece is a buffer, the offset of its first byte, and the host memory.
    ///
    /// # Errors
    /// The driver's error. Even then the device no longer uses the host memory.
    ///
    /// # Panics
    /// If a range reaches past the end of its buffer; if the buffers are of several streams.
    pub fn fetch_each<const N: usize>(pieces: [(&Self, usize, &mut [u8]); N]) -> Result<(), DeviceFault> {
        let Some(gpu) = pieces.first().map(|(from, ..)| from.gpu.clone()) else {
            return Ok(());
        };
        let mut copied = Ok(());
        let chunked = pieces.map(|(from, offset, to)| {
            assert!(gpu.shares_stream(&from.gpu), "buffers of one stream");
            let mut piece = Piece {
                from: from.range(offset, to.len()),
                to: to.as_mut_ptr(),
                bytes: 0,
            };
            if gpu.goes_through_chunks(to) && gpu.transfer().is_ok() {
                piece.bytes = to.len();
            } else if copied.is_ok() {
                // SAFETY: it is borrowed until the stream is synchronized, below.
                copied = unsafe { gpu.stream.download(piece.from, to) };
            }
            piece
        });
        if copied.is_ok() && chunked.iter().any(|piece| piece.bytes > 0) {
            // SAFETY: the pieces are borrowed slices.
            copied = gpu
                .transfer()
                .and_then(|transfer| unsafe { transfer.download(&chunked) });
        }
        copied.and(gpu.synchronize())
    }

    /// Enqueues a copy of host memory to the buffer from byte `offset` on.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Panics
    /// If the bytes do not fit the buffer.
    ///
    /// # Safety
    /// Page-locked memory is not written until the stream is synchronized. Other memory has been read on return. In a
    /// [capture](Gpu::capture) the memory is page-locked, and stays as long as the graph, which reads it at each launch.
    pub unsafe fn upload(&self, offset: usize, from: &[u8]) -> Result<(), DeviceFault> {
        let to = self.range(offset, from.len());
        if self.gpu.goes_through_chunks(from)
            && let Ok(transfer) = self.gpu.transfer()
        {
            let copy = |first: usize, to: &mut [u8]| to.copy_from_slice(&from[first..][..to.len()]);
            return transfer.upload(to, (from.len(), 1), &copy);
        }
        // SAFETY: the range is within the buffer; that the source stays is the caller's promise.
        unsafe { self.gpu.stream.upload(to, from) }
    }

    /// Enqueues an upload of `bytes` bytes, which `make` computes, to the buffer from byte `offset` on. The function `make` gets
    /// the offset of a first byte in the upload, and the memory for whole rows of `row` bytes from there on. Several threads may
    /// call `make`; every call of it has ended on return.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Panics
    /// If the bytes do not fit the buffer; if a row is more than 128 KiB.
    pub fn upload_made(
        &self,
        offset: usize,
        (bytes, row): (usize, usize),
        make: &(dyn Fn(usize, &mut [u8]) + Sync),
    ) -> Result<(), DeviceFault> {
        let to = self.range(offset, bytes);
        self.gpu.transfer()?.upload(to, (bytes, row), make)
    }

    /// Enqueues a copy of bytes of the buffer, from byte `offset` on, to host memory. If that host memory is large and not
    /// page-locked, the call waits for the stream.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Panics
    /// If the range reaches past the end of the buffer.
    ///
    /// # Safety
    /// The host memory is neither read nor freed until the stream is synchronized.
    pub unsafe fn download(&self, offset: usize, to: &mut [u8]) -> Result<(), DeviceFault> {
        if self.gpu.goes_through_chunks(to) {
            return Self::fetch_each([(self, offset, to)]);
        }
        let from = self.range(offset, to.len());
        // SAFETY: the range is within the buffer; that the target stays is the caller's promise.
        unsafe { self.gpu.stream.download(from, to) }
    }

    /// Enqueues zeroing of `bytes` bytes from `offset` on.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Panics
    /// If the range reaches past the end of the buffer.
    pub fn clear(&self, offset: usize, bytes: usize) -> Result<(), DeviceFault> {
        let to = self.range(offset, bytes);
        if bytes == 0 {
            return Ok(());
        }
        let (driver, stream) = self.gpu.stream.bound()?;
        // SAFETY: the range is within the buffer, which is freed after the work in the stream only.
        unsafe { driver.clear(to, bytes, stream) }
            .map_err(|fault| self.gpu.stream.failed(fault, format_args!("{bytes} bytes")))
    }

    /// Enqueues a copy of `bytes` bytes of another buffer, from its byte `from` on, to byte `offset` of this buffer. The other
    /// buffer may be on another device of the same kind; its stream must be idle.
    ///
    /// # Errors
    /// [`DeviceFault::WrongDevice`] if the other buffer is on another kind of device; the driver's error.
    ///
    /// # Panics
    /// If a range is not within its buffer.
    pub fn copy_from(&self, offset: usize, other: &Self, from: usize, bytes: usize) -> Result<(), DeviceFault> {
        let (to, from) = (self.range(offset, bytes), other.range(from, bytes));
        if bytes == 0 {
            return Ok(());
        }
        let [kind, other_kind] = [&self.gpu, &other.gpu].map(|gpu| gpu.stream.context.driver.kind());
        if kind != other_kind {
            return Err(DeviceFault::WrongDevice {
                expected: self.gpu.device(),
                came: other.gpu.device(),
            });
        }
        let (driver, stream) = self.gpu.stream.bound()?;
        let copied = if self.gpu.device() == other.gpu.device() {
            // SAFETY: both ranges are within their buffers.
            unsafe { driver.copy(to, from, bytes, stream) }
        } else {
            let [to_context, from_context] = [&self.gpu, &other.gpu].map(|gpu| gpu.stream.context.handle);
            // SAFETY: both ranges are within their buffers, each in its context.
            unsafe { driver.copy_peer((to_context, to), (from_context, from), bytes, stream) }
        };
        copied.map_err(|fault| {
            let detail = format_args!("{bytes} bytes of {}", other.gpu.device());
            self.gpu.stream.failed(fault, detail)
        })
    }

    /// Returns the address of `bytes` bytes at byte `offset`. Panics unless they are within the buffer.
    pub(super) fn range(&self, offset: usize, bytes: usize) -> Address {
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= self.capacity),
            "{bytes} bytes at {offset} of a device buffer of {}",
            self.capacity
        );
        self.address.offset(offset)
    }
}

impl Drop for DeviceBuf {
    fn drop(&mut self) {
        self.release();
    }
}
