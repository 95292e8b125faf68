//! Copies between a device and the host: by the device itself where the memory is page-locked, else through memory that
//! is.
//!
//! The driver does the latter, too, on one core; there it takes several times as long as the copy by the device. Here several
//! cores share it.

use super::copy::{self, CHUNK};
use crate::device::cuda::{CudaError, DeviceBuf, Gpu, PinnedBuf, is_page_locked};

/// Page-locked memory on the way to a device or from it.
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

    /// Begins to send `bytes` bytes at most. What was sent before must have arrived.
    pub(crate) fn begin(&mut self, bytes: usize) {
        (self.used, self.room) = (0, bytes);
    }

    /// Puts the copy of host memory to byte `at` of a buffer into the stream.
    ///
    /// # Panics
    /// If it is more than [`Self::begin`] was told.
    ///
    /// # Safety
    /// The memory, which may be page-locked, is left alone until the stream is synchronized.
    pub(crate) unsafe fn upload(&mut self, to: &DeviceBuf, at: usize, from: &[u8]) -> Result<(), CudaError> {
        if from.len() <= CHUNK || is_page_locked(from) {
            // SAFETY: as this function.
            return unsafe { to.upload(at, from) };
        }
        if self.used == 0 {
            self.memory.resize(self.room)?;
        }
        let memory = &mut self.memory.bytes_mut()[self.used..][..from.len()];
        self.used += from.len();
        copy::copy(from, memory);
        // SAFETY: the memory is left alone until what was sent has arrived.
        unsafe { to.upload(at, memory) }
    }

    /// All of the page-locked memory, for the caller to fill and to send. What was sent before must have arrived.
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
        if bytes <= CHUNK || pieces.iter().all(|(.., to)| is_page_locked(to)) {
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
            copy::copy(own, to);
        }
        Ok(())
    }
}
