//! Copies between the host and a device.
//!
//! A device copies page-locked memory by itself (DMA). Other memory goes through a page-locked bounce buffer. The driver
//! would do that, too, but on one core, which takes several times as long as the copy by the device; here several cores
//! fill or empty the buffer.

use super::host_copy::{self, CHUNK};
use crate::device::cuda::{CudaError, DeviceBuf, Gpu, PinnedBuf};

/// A bounce buffer: page-locked memory on the way to a device or from it.
pub(crate) struct Transfer {
    memory: PinnedBuf,
    used: usize,
    room: usize,
}

impl Transfer {
    pub(crate) fn new(gpu: &Gpu) -> Self {
        Self {
            memory: PinnedBuf::new(gpu),
            used: 0,
            room: 0,
        }
    }

    /// Begins uploads of at most `bytes` bytes in all. Earlier ones must be done.
    pub(crate) fn begin(&mut self, bytes: usize) {
        (self.used, self.room) = (0, bytes);
    }

    /// Enqueues a copy of host memory to byte `offset` of a buffer.
    ///
    /// # Panics
    /// If it is more than [`Self::begin`] was told.
    ///
    /// # Safety
    /// The memory, which may be page-locked, is left alone until the stream is synchronized.
    pub(crate) unsafe fn upload(&mut self, to: &DeviceBuf, offset: usize, from: &[u8]) -> Result<(), CudaError> {
        if from.len() <= CHUNK || to.gpu().is_page_locked(from) {
            // SAFETY: as this function.
            return unsafe { to.upload(offset, from) };
        }
        if self.used == 0 {
            self.memory.resize(self.room)?;
        }
        let memory = &mut self.memory.bytes_mut()[self.used..][..from.len()];
        self.used += from.len();
        host_copy::copy(from, memory);
        // SAFETY: the bounce buffer is left alone until `begin` or `take`, before which the upload is done.
        unsafe { to.upload(offset, memory) }
    }

    /// The bounce buffer itself, of `bytes` bytes, for the caller to fill and upload. Earlier uploads must be done.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<&mut [u8], CudaError> {
        self.used = bytes;
        self.memory.resize(bytes)?;
        Ok(self.memory.bytes_mut())
    }

    /// Copies from device buffers into page-locked memory, and waits for it.
    pub(crate) fn fetch(&mut self, [one, other]: [(&DeviceBuf, usize); 2]) -> Result<[&[u8]; 2], CudaError> {
        self.memory.resize(one.1 + other.1)?;
        let (to_one, to_other) = self.memory.bytes_mut().split_at_mut(one.1);
        // SAFETY: the memory is read after the stream is synchronized, which it is whatever became of the copies.
        let copied = unsafe { one.0.download(0, to_one).and_then(|()| other.0.download(0, to_other)) };
        copied.and(one.0.gpu().synchronize())?;
        let (one, other) = self.memory.bytes().split_at(one.1);
        Ok([one, other])
    }

    /// Copies from device buffers into host memory, and waits for it.
    pub(crate) fn download(&mut self, pieces: &mut [(&DeviceBuf, usize, &mut [u8])]) -> Result<(), CudaError> {
        let Some((first, ..)) = pieces.first() else {
            return Ok(());
        };
        let gpu = first.gpu().clone();
        let bytes: usize = pieces.iter().map(|(.., to)| to.len()).sum();
        if bytes <= CHUNK || pieces.iter().all(|(.., to)| gpu.is_page_locked(to)) {
            let mut pieces = pieces.iter_mut();
            // SAFETY: it is borrowed until the stream is synchronized, which it is whatever became of the copies.
            let copied = pieces.try_for_each(|(from, at, to)| unsafe { from.download(*at, to) });
            return copied.and(gpu.synchronize());
        }
        self.memory.resize(bytes)?;
        let mut memory = self.memory.bytes_mut();
        let copied = pieces.iter().try_for_each(|(from, at, to)| {
            let own;
            (own, memory) = std::mem::take(&mut memory).split_at_mut(to.len());
            // SAFETY: the memory is read after the stream is synchronized, which it is whatever became of the copies.
            unsafe { from.download(*at, own) }
        });
        copied.and(gpu.synchronize())?;
        let mut memory = self.memory.bytes();
        for (.., to) in pieces {
            let (own, rest) = memory.split_at(to.len());
            memory = rest;
            host_copy::copy(own, to);
        }
        Ok(())
    }
}
