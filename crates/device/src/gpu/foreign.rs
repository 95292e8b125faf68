//! Work with memory and streams of other libraries in the process. Whether these exist can't be checked here: callers of the
//! `unsafe` functions promise it.

use super::device::Gpu;
use super::driver::Stream;
use super::error::DeviceFault;
use super::memory::DeviceBuf;
use super::slice::DeviceSlice;

impl Gpu {
    /// The driver's handle of the stream, for a library that is to make the stream wait.
    pub fn stream_handle(&self) -> u64 {
        self.stream.handle.0
    }

    /// Waits for all work of the process on the device, including the work of other libraries.
    ///
    /// # Errors
    /// The first error of that work.
    pub fn synchronize_all(&self) -> Result<(), DeviceFault> {
        let (driver, _) = self.stream.bound()?;
        // SAFETY: the context is current.
        unsafe { driver.synchronize_all() }.map_err(|fault| self.stream.failed(fault, "all streams"))
    }

    /// Makes later work in this `Gpu`'s stream wait for the work that has been enqueued in the stream `handle` so far.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// `handle` is a stream of this device, or 1 for its legacy default stream, or 2 for the default stream of the calling thread.
    pub unsafe fn wait_for_stream(&self, handle: u64) -> Result<(), DeviceFault> {
        let (driver, stream) = self.stream.bound()?;
        let failed = |fault| self.stream.failed(fault, "another library's stream");
        // SAFETY: the context is current.
        let event = unsafe { driver.create_event(false) }.map_err(failed)?;
        // SAFETY: the caller promises that `handle` is a stream. The driver keeps a destroyed event until it is reached.
        let waits = unsafe {
            let recorded = driver.record(event, Stream(handle));
            recorded.and_then(|()| driver.wait_event(stream, event))
        };
        // SAFETY: it is not used any more.
        let destroyed = unsafe { driver.destroy_event(event) };
        waits.and(destroyed).map_err(failed)
    }

    /// Copies elements of a device to host memory, and waits for the copy.
    ///
    /// # Errors
    /// The driver's error. Even then the device no longer uses the host memory.
    ///
    /// # Panics
    /// If the host memory and the elements differ in size.
    ///
    /// # Safety
    /// The elements are allocated. No work writes them during the copy, except work that this `Gpu`'s stream waits for.
    pub unsafe fn fetch(&self, from: DeviceSlice<'_>, to: &mut [u8]) -> Result<(), DeviceFault> {
        assert_eq!(to.len(), from.bytes(), "bytes of a slice");
        if to.is_empty() {
            return Ok(());
        }
        // SAFETY: the elements are there; the memory is borrowed until the stream is synchronized.
        let copied = unsafe { self.stream.download(from.pointer().address(), to) };
        copied.and(self.synchronize())
    }

    /// Copies host memory to elements of a device, and waits for the copy.
    ///
    /// # Errors
    /// The driver's error. Even then the device no longer uses the host memory.
    ///
    /// # Panics
    /// If the host memory and the elements differ in size.
    ///
    /// # Safety
    /// The elements are allocated. No work reads or writes them during the copy, except work that this `Gpu`'s stream waits for.
    pub unsafe fn put(&self, to: DeviceSlice<'_>, from: &[u8]) -> Result<(), DeviceFault> {
        assert_eq!(from.len(), to.bytes(), "bytes of a slice");
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: the elements are there; the memory is borrowed until the stream is synchronized.
        let copied = unsafe { self.stream.upload(to.pointer().address(), from) };
        copied.and(self.synchronize())
    }
}

impl DeviceBuf {
    /// Enqueues a copy of the elements `from` to the buffer, from byte `offset` of the buffer on.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Panics
    /// If the elements do not fit the buffer.
    ///
    /// # Safety
    /// The elements stay allocated until the stream is synchronized.
    pub unsafe fn copy_from_slice(&self, offset: usize, from: DeviceSlice<'_>) -> Result<(), DeviceFault> {
        let (to, bytes) = (self.range(offset, from.bytes()), from.bytes());
        // SAFETY: the range is within the buffer; that the source is there is the caller's promise.
        unsafe { self.gpu().stream.copy(to, from.pointer().address(), bytes) }
    }
}
