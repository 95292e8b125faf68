//! A GPU with a stream: opening it, launching kernels, and waiting for them. A launch whose parameters do not have the size of the
//! kernel's is refused, if the driver can tell the size.

use super::context::Context;
use super::driver::{Driver, Kind};
use super::error::DeviceFault;
use super::event::Event;
use super::pinned::{PageLocked, PinnedBuf};
use super::stream::Stream;
use super::transfer::{SMALL_BYTES, Transfer};
use crate::Device;
use robocache_kernels::Kernel;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// Parameters of a kernel: a struct with the layout of the kernel's own.
///
/// # Safety
/// The type is `#[repr(C)]` and has the fields of the struct of the kernel that it is handed to.
pub unsafe trait Params: Copy {}

/// A GPU with a stream of its own. Clones share the stream; [`Gpu::open`] makes a new one.
///
/// All `Gpu` values of one device share its context and its loaded kernels. A `Gpu` can be used from any thread.
#[derive(Clone)]
pub struct Gpu {
    pub(super) stream: Arc<Stream>,
    transfer: Arc<OnceLock<Transfer>>,
}

impl Gpu {
    /// Opens the GPU of a kind with this ordinal, and makes a stream on it.
    ///
    /// # Errors
    /// [`DeviceFault::Unavailable`] if there is no such device; the driver's error.
    pub fn open(kind: Kind, ordinal: usize) -> Result<Self, DeviceFault> {
        Self::open_on(kind.driver()?, ordinal)
    }

    /// Opens the GPU of a driver with this ordinal, and makes a stream on it.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn open_on(driver: &'static dyn Driver, ordinal: usize) -> Result<Self, DeviceFault> {
        Self::of(Context::open(driver, ordinal)?)
    }

    /// Makes another stream on the same device.
    ///
    /// # Errors
    /// The driver's error.
    pub fn another(&self) -> Result<Self, DeviceFault> {
        Self::of(self.stream.context.clone())
    }

    fn of(context: Arc<Context>) -> Result<Self, DeviceFault> {
        Ok(Self {
            stream: Stream::new(context)?,
            transfer: Arc::default(),
        })
    }

    /// Kind and ordinal of the device.
    pub fn device(&self) -> Device {
        self.stream.context.device()
    }

    /// The device's ordinal among those of its kind, N of `cuda:N`.
    pub fn ordinal(&self) -> usize {
        self.stream.context.ordinal
    }

    /// The device's name, such as `NVIDIA H200`.
    pub fn name(&self) -> &str {
        &self.stream.context.name
    }

    /// Number of multiprocessors of the device.
    pub fn multiprocessors(&self) -> u32 {
        self.stream.context.multiprocessors
    }

    /// Sets whether a kernel may start while the kernel before it in the stream ends. By default it may, on devices that can do so
    /// (docs/performance.md). Results are the same; benchmarks switch it off to show what it saves. Clones share the setting, as
    /// they share the stream, and a graph keeps the setting that it was captured with.
    pub fn set_early_start(&self, starts_early: bool) {
        self.stream.starts_early.store(starts_early, Ordering::Relaxed);
    }

    /// Enqueues a launch of `kernel` with a grid of blocks of `block` threads. A grid without blocks does nothing.
    ///
    /// # Errors
    /// [`DeviceFault::Parameters`] if `P` does not have the size of the kernel's parameters; the driver's error, which may
    /// be an error of earlier work.
    ///
    /// # Safety
    /// `params` is the struct of this kernel. Every address in it is memory of this device that is large enough for the kernel, and
    /// lives until the stream is synchronized.
    pub unsafe fn launch<P: Params>(
        &self,
        kernel: Kernel,
        grid: [u32; 3],
        block: u32,
        params: &P,
    ) -> Result<(), DeviceFault> {
        if grid.contains(&0) {
            return Ok(());
        }
        let loaded = self.stream.context.function(kernel, size_of::<P>())?;
        let starts_early = loaded.can_start_early && self.stream.starts_early.load(Ordering::Relaxed);
        let (driver, stream) = self.stream.bound()?;
        let parameters = (&raw const *params).cast();
        // SAFETY: the struct is the kernel's; what the addresses in it point to is the caller's promise.
        let launched = unsafe { driver.launch(loaded.function, grid, block, parameters, starts_early, stream) };
        launched.map_err(|fault| {
            let [x, y, z] = grid;
            let detail = format_args!("{} with {x} x {y} x {z} blocks of {block}", kernel.name);
            self.stream.failed(fault, detail)
        })
    }

    /// Waits until the stream is idle.
    ///
    /// # Errors
    /// The first error of the work in the stream.
    pub fn synchronize(&self) -> Result<(), DeviceFault> {
        self.stream.synchronize()
    }

    /// Makes an event of this `Gpu`'s stream that can measure times.
    ///
    /// # Errors
    /// The driver's error.
    pub fn event(&self) -> Result<Event, DeviceFault> {
        Event::new(&self.stream, true)
    }

    /// Checks that `other` is on the same device.
    ///
    /// # Errors
    /// [`DeviceFault::WrongDevice`].
    pub fn check(&self, other: &Self) -> Result<(), DeviceFault> {
        match (self.device(), other.device()) {
            (expected, came) if expected == came => Ok(()),
            (expected, came) => Err(DeviceFault::WrongDevice { expected, came }),
        }
    }

    /// Returns the page-locked staging buffer through which pageable host memory is copied. The buffer is allocated at the first
    /// call.
    ///
    /// # Errors
    /// No page-locked memory is left; the driver's error otherwise.
    pub(super) fn transfer(&self) -> Result<&Transfer, DeviceFault> {
        if let Some(transfer) = self.transfer.get() {
            return Ok(transfer);
        }
        let made = Transfer::new(&self.stream)?;
        Ok(self.transfer.get_or_init(|| made))
    }

    /// True if this `Gpu` and `other` enqueue work in the same stream.
    pub(super) fn shares_stream(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.stream, &other.stream)
    }

    /// True if copies of host `memory` go through the page-locked staging buffer: `memory` is large and not page-locked itself.
    pub(super) fn goes_through_chunks(&self, memory: &[u8]) -> bool {
        memory.len() > SMALL_BYTES && !self.is_page_locked(memory)
    }

    /// True if host memory is page-locked, whoever locked it. A device copies page-locked memory by itself.
    ///
    /// Asks the driver, which takes well under a microsecond. Returns false if the driver can't tell.
    pub fn is_page_locked(&self, memory: &[u8]) -> bool {
        let Some(last) = memory.len().checked_sub(1) else {
            return true;
        };
        // Memory that was locked by another library may end before the slice does.
        let ends = [memory.as_ptr(), memory[last..].as_ptr()];
        self.stream
            .bound()
            .is_ok_and(|(driver, _)| ends.into_iter().all(|end| driver.is_page_locked(end)))
    }
}

impl PinnedBuf {
    /// Makes an empty page-locked buffer, for copies in the stream of `gpu`.
    pub fn new(gpu: &Gpu) -> Self {
        Self::of(&gpu.stream)
    }
}

impl PageLocked {
    /// Page-locks memory of the host until the returned value is dropped.
    ///
    /// # Errors
    /// The driver's error, most often because the process may lock too little memory.
    ///
    /// # Safety
    /// The memory is mapped, and stays mapped until the value is dropped.
    pub unsafe fn new(gpu: &Gpu, memory: *mut [u8]) -> Result<Self, DeviceFault> {
        // SAFETY: as this function.
        unsafe { Self::of(&gpu.stream, memory) }
    }
}
