//! A CUDA or HIP stream of a device, and the copies that the driver does in the stream. Every call first makes the stream's context
//! current in the calling thread.

use super::context::Context;
use super::driver::{self, Address, Driver, Fault};
use super::error::DeviceFault;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub(super) struct Stream {
    pub context: Arc<Context>,
    pub handle: driver::Stream,
    /// True if a kernel in the stream may start before the kernel ahead of it has ended.
    pub starts_early: AtomicBool,
}

impl Stream {
    pub(super) fn new(context: Arc<Context>) -> Result<Arc<Self>, DeviceFault> {
        context.bind()?;
        // SAFETY: the context is current.
        let handle = unsafe { context.driver.create_stream() }.map_err(|fault| context.failed(fault, "a stream"))?;
        Ok(Arc::new(Self {
            context,
            handle,
            starts_early: AtomicBool::new(true),
        }))
    }

    /// Makes the context current in the calling thread, and returns the driver and its stream.
    pub(super) fn bound(&self) -> Result<(&'static dyn Driver, driver::Stream), DeviceFault> {
        self.context.bind()?;
        Ok((self.context.driver, self.handle))
    }

    pub(super) fn failed(&self, fault: Fault, detail: impl ToString) -> DeviceFault {
        self.context.failed(fault, detail)
    }

    /// Waits until the stream is idle.
    pub(super) fn synchronize(&self) -> Result<(), DeviceFault> {
        let (driver, stream) = self.bound()?;
        // SAFETY: the stream lives as long as `self`.
        unsafe { driver.synchronize(stream) }.map_err(|fault| self.failed(fault, "the work so far"))
    }

    /// Enqueues a copy of host memory to the device, which the driver does by itself, without the staging buffer of `transfer.rs`.
    ///
    /// # Safety
    /// At `to` the device has as many bytes as `from`, and both memories stay until the stream is done with them.
    pub(super) unsafe fn upload(&self, to: Address, from: &[u8]) -> Result<(), DeviceFault> {
        if from.is_empty() {
            return Ok(());
        }
        let (driver, stream) = self.bound()?;
        // SAFETY: the caller's promise.
        unsafe { driver.upload(to, from.as_ptr(), from.len(), stream) }
            .map_err(|fault| self.failed(fault, format_args!("{} bytes", from.len())))
    }

    /// Enqueues a copy of the device's memory to the host, which the driver does by itself, without the staging buffer of
    /// `transfer.rs`.
    ///
    /// # Safety
    /// At `from` the device has as many bytes as `to`, and both memories stay until the stream is done with them.
    pub(super) unsafe fn download(&self, from: Address, to: &mut [u8]) -> Result<(), DeviceFault> {
        if to.is_empty() {
            return Ok(());
        }
        let (driver, stream) = self.bound()?;
        // SAFETY: the caller's promise.
        unsafe { driver.download(to.as_mut_ptr(), from, to.len(), stream) }
            .map_err(|fault| self.failed(fault, format_args!("{} bytes", to.len())))
    }

    /// Enqueues a copy of `bytes` bytes within the device.
    ///
    /// # Safety
    /// Both addresses have `bytes` bytes of the device's memory, which stay allocated until the stream is done with them.
    pub(super) unsafe fn copy(&self, to: Address, from: Address, bytes: usize) -> Result<(), DeviceFault> {
        if bytes == 0 {
            return Ok(());
        }
        let (driver, stream) = self.bound()?;
        // SAFETY: the caller's promise.
        unsafe { driver.copy(to, from, bytes, stream) }
            .map_err(|fault| self.failed(fault, format_args!("{bytes} bytes")))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Ok((driver, stream)) = self.bound() {
            // SAFETY: it is this value's own, and is not used again.
            unsafe { driver.destroy_stream(stream) };
        }
    }
}
