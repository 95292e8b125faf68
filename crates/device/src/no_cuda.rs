//! Stands in for [`cuda`](self) in a build without the feature `cuda`, so that code which picks a backend is written once.
//!
//! There is no [`Gpu`] here, and so no memory of one: the types are uninhabited, and their methods have no body. Only
//! [`CudaError`] has a value, which is what opening a device gives.

/// No device.
#[derive(Clone)]
pub enum Gpu {}

impl Gpu {
    /// There is none.
    pub fn open(_: usize) -> Result<Self, CudaError> {
        Err(CudaError)
    }

    pub fn ordinal(&self) -> usize {
        match *self {}
    }

    pub fn name(&self) -> &str {
        match *self {}
    }

    pub fn synchronize(&self) -> Result<(), CudaError> {
        match *self {}
    }

    pub fn uuid(&self) -> Result<[u8; 16], CudaError> {
        match *self {}
    }
}

/// Why there is no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this program was built without CUDA (its feature `cuda`)")]
pub struct CudaError;

impl CudaError {
    /// More memory would not help.
    pub fn is_memory(&self) -> bool {
        false
    }
}

/// There is no device.
pub fn device_count() -> Result<usize, CudaError> {
    Err(CudaError)
}

/// Nothing is held.
#[derive(Clone, Debug)]
pub struct Budget;

impl Budget {
    pub fn new(_: Option<usize>) -> Self {
        Self
    }

    pub fn used(&self) -> usize {
        0
    }
}

/// No memory of a device.
pub enum DeviceBuf {}

impl DeviceBuf {
    pub fn shareable(gpu: &Gpu, _: &Budget, _: usize) -> Result<(Self, std::os::fd::OwnedFd), CudaError> {
        match *gpu {}
    }

    pub fn of_process(gpu: &Gpu, _: std::os::fd::BorrowedFd<'_>, _: usize) -> Result<Self, CudaError> {
        match *gpu {}
    }

    pub fn address(&self) -> u64 {
        match *self {}
    }

    /// # Safety
    /// There is nothing to be unsafe with.
    pub unsafe fn upload(&self, _: usize, _: &[u8]) -> Result<(), CudaError> {
        match *self {}
    }

    pub fn new(gpu: &Gpu, _: &Budget) -> Self {
        match *gpu {}
    }

    pub fn reserve(&mut self, _: usize) -> Result<(), CudaError> {
        match *self {}
    }

    pub fn capacity(&self) -> usize {
        match *self {}
    }

    pub fn gpu(&self) -> &Gpu {
        match *self {}
    }

    pub fn is_of(&self, gpu: &Gpu, _: &Budget) -> bool {
        match *gpu {}
    }

    pub fn fetch(&self, _: usize, _: &mut [u8]) -> Result<(), CudaError> {
        match *self {}
    }

    pub fn copy_from(&self, _: usize, _: &Self, _: usize, _: usize) -> Result<(), CudaError> {
        match *self {}
    }
}

/// No memory that was made page-locked.
pub enum PageLocked {}

impl PageLocked {
    /// # Safety
    /// There is nothing to be unsafe with.
    pub unsafe fn new(gpu: &Gpu, _: *mut u8, _: usize) -> Result<Self, CudaError> {
        match *gpu {}
    }
}

/// No page-locked memory.
pub enum PinnedBuf {}

impl PinnedBuf {
    pub fn new(gpu: &Gpu) -> Self {
        match *gpu {}
    }

    pub fn resize(&mut self, _: usize) -> Result<(), CudaError> {
        match *self {}
    }

    pub fn bytes(&self) -> &[u8] {
        match *self {}
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match *self {}
    }

    pub fn capacity(&self) -> usize {
        match *self {}
    }
}
