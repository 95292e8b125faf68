//! Memory of a device that several processes map. A device that can't share memory is refused before any driver call that needs
//! sharing.

use super::device::Gpu;
use super::driver::{Address, Driver, Optional};
use super::error::DeviceFault;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Device memory, of this process or another one, mapped to addresses of a device until it is dropped.
pub(super) struct Mapping {
    gpu: Gpu,
    address: Address,
    bytes: usize,
}

impl Mapping {
    /// Allocates memory of `bytes` bytes or more. Also returns the file descriptor by which other processes map it.
    pub(super) fn create(gpu: &Gpu, bytes: usize) -> Result<(Self, OwnedFd), DeviceFault> {
        let (driver, bytes) = gpu.shareable(bytes)?;
        // SAFETY: the context is current.
        let (address, descriptor) = unsafe { driver.create_shareable(gpu.ordinal(), bytes) }
            .map_err(|fault| DeviceFault::allocation(gpu.device(), "device", fault, bytes))?;
        Ok((Self::new(gpu, address, bytes), descriptor))
    }

    /// Maps memory of another process, of `bytes` bytes or more, by its file descriptor.
    pub(super) fn import(gpu: &Gpu, descriptor: BorrowedFd<'_>, bytes: usize) -> Result<Self, DeviceFault> {
        let (driver, bytes) = gpu.shareable(bytes)?;
        // SAFETY: the context is current.
        let address = unsafe { driver.map_shareable(gpu.ordinal(), descriptor, bytes) }
            .map_err(|fault| gpu.stream.failed(fault, format_args!("{bytes} bytes")))?;
        Ok(Self::new(gpu, address, bytes))
    }

    fn new(gpu: &Gpu, address: Address, bytes: usize) -> Self {
        Self {
            gpu: gpu.clone(),
            address,
            bytes,
        }
    }

    pub(super) fn address(&self) -> Address {
        self.address
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Ok((driver, _)) = self.gpu.stream.bound() {
            // SAFETY: the context is current; the range is this mapping's own.
            unsafe { driver.unmap_shareable(self.address, self.bytes) };
        }
    }
}

impl Gpu {
    /// The device's UUID, which is the same in every process. The ordinal may differ between processes.
    ///
    /// # Errors
    /// The driver's error.
    pub fn uuid(&self) -> Result<[u8; 16], DeviceFault> {
        let uuid = self.check_can_share()?.uuid(self.ordinal());
        uuid.map_err(|fault| self.stream.failed(fault, "the device"))
    }

    /// Checks that memory of this device can be shared with other processes, and makes its context current.
    fn check_can_share(&self) -> Result<&'static dyn Driver, DeviceFault> {
        self.stream.context.check_has(Optional::Sharing)?;
        let (driver, _) = self.stream.bound()?;
        let can_share = driver.can_share(self.ordinal());
        match can_share.map_err(|fault| self.stream.failed(fault, "the device"))? {
            true => Ok(driver),
            false => Err(DeviceFault::NotShareable { device: self.device() }),
        }
    }

    /// Returns the driver, if it can share memory of the device, and `bytes` rounded up to a size that can be shared.
    fn shareable(&self, bytes: usize) -> Result<(&'static dyn Driver, usize), DeviceFault> {
        let driver = self.check_can_share()?;
        // SAFETY: the context is current.
        let bytes = unsafe { driver.shareable_bytes(self.ordinal(), bytes) };
        Ok((driver, bytes.map_err(|fault| self.stream.failed(fault, "the device"))?))
    }
}
