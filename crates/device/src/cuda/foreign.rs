//! Memory and streams of other libraries in the process.

use super::error::CudaError;
use super::gpu::Gpu;
use super::memory::DeviceBuf;
use super::slice::DeviceSlice;
use cudarc::driver::{result, sys};

impl Gpu {
    /// Its stream as CUDA numbers it, for a library that is to let it wait.
    pub fn stream_handle(&self) -> u64 {
        self.cu_stream() as u64
    }

    /// Waits for everything in the process that uses the device, other libraries' work too.
    ///
    /// # Errors
    /// The first error of that work.
    pub fn synchronize_all(&self) -> Result<(), CudaError> {
        self.bound()?;
        result::ctx::synchronize().map_err(|error| self.failed("cuCtxSynchronize", error, "all streams"))
    }

    /// Lets what is enqueued from now on wait for what is in another stream so far.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Safety
    /// `handle` is a stream of this device, or 1 for its legacy default stream, or 2 for the thread's.
    pub unsafe fn wait_for_stream(&self, handle: u64) -> Result<(), CudaError> {
        let stream = self.bound()?;
        let failed = |error| self.failed("cuStreamWaitEvent", error, "another library's stream");
        let event = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).map_err(failed)?;
        // SAFETY: that the other stream is one is the caller's promise. The driver keeps a destroyed event until it is
        // reached.
        let waits = unsafe {
            result::event::record(event, handle as sys::CUstream).and_then(|()| {
                let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
                result::stream::wait_event(stream, event, flags)
            })
        };
        // SAFETY: it is not used any more.
        let destroyed = unsafe { result::event::destroy(event) };
        waits.and(destroyed).map_err(failed)
    }

    /// Copies elements of a device to host memory, and waits for it.
    ///
    /// # Errors
    /// What the driver says. The host memory is the caller's again all the same.
    ///
    /// # Panics
    /// If there are more or fewer bytes than elements.
    ///
    /// # Safety
    /// The elements are there, and nothing writes them meanwhile but what the stream waits for.
    pub unsafe fn fetch(&self, from: DeviceSlice, to: &mut [u8]) -> Result<(), CudaError> {
        assert_eq!(to.len(), from.bytes(), "bytes of a slice");
        if to.is_empty() {
            return Ok(());
        }
        let (stream, bytes) = (self.bound()?, to.len());
        // SAFETY: the elements are there; the memory is borrowed until the stream is synchronized.
        let copied = unsafe { result::memcpy_dtoh_async(to, from.address(), stream) };
        let copied = copied.map_err(|error| self.failed("cuMemcpyDtoHAsync", error, format_args!("{bytes} bytes")));
        copied.and(self.synchronize())
    }
}

impl Gpu {
    /// Copies host memory to elements of a device, and waits for it.
    ///
    /// # Errors
    /// What the driver says. The host memory is the caller's again all the same.
    ///
    /// # Panics
    /// If there are more or fewer bytes than elements.
    ///
    /// # Safety
    /// The elements are there, and nothing reads or writes them meanwhile but what the stream waits for.
    pub unsafe fn put(&self, to: DeviceSlice, from: &[u8]) -> Result<(), CudaError> {
        assert_eq!(from.len(), to.bytes(), "bytes of a slice");
        if from.is_empty() {
            return Ok(());
        }
        let (stream, bytes) = (self.bound()?, from.len());
        // SAFETY: the elements are there; the memory is borrowed until the stream is synchronized.
        let copied = unsafe { result::memcpy_htod_async(to.address(), from, stream) };
        let copied = copied.map_err(|error| self.failed("cuMemcpyHtoDAsync", error, format_args!("{bytes} bytes")));
        copied.and(self.synchronize())
    }
}

impl DeviceBuf {
    /// Enqueues a copy of elements of the device to the buffer from byte `offset` on.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Panics
    /// If they do not fit.
    ///
    /// # Safety
    /// The elements are there until the stream is synchronized.
    pub unsafe fn copy_from_slice(&self, offset: usize, from: DeviceSlice) -> Result<(), CudaError> {
        let (to, bytes) = (self.range(offset, from.bytes()), from.bytes());
        if bytes == 0 {
            return Ok(());
        }
        let stream = self.gpu().bound()?;
        // SAFETY: the range is within the buffer; that the source is there is the caller's promise.
        unsafe { result::memcpy_dtod_async(to, from.address(), bytes, stream) }.map_err(|error| {
            self.gpu()
                .failed("cuMemcpyDtoDAsync", error, format_args!("{bytes} bytes"))
        })
    }
}
