//! GPUs: finding them, their memory, and kernels on them.
//!
//! A vendor's [`Driver`](driver::Driver) is loaded at run time, so a program with it builds and runs on machines without one.
//! [`device_count`] tells if there is a device, and never panics. A [`Gpu`] is a device with a stream: copies and kernels are
//! enqueued and run in order, and [`Gpu::synchronize`] waits for them.
//!
//! The type says where memory lies: a device reads a [`DeviceBuf`] or a [`DeviceSlice`] of one, the CPU reads a slice or a
//! [`PinnedBuf`]. Every copy between them is an explicit call.
//!
//! A process shares two things. The driver is loaded and asked for its devices once. Each device has a context with its loaded
//! kernels, for as long as a [`Gpu`] uses it. Everything else belongs to a value.

pub mod arithmetic;
mod context;
mod device;
pub mod driver;
mod error;
mod event;
mod foreign;
mod graph;
mod helpers;
mod mapping;
mod memory;
mod pinned;
mod pointer;
mod slice;
pub mod staging;
mod stream;
mod transfer;

pub use device::{Gpu, Params};
pub use driver::{Kind, Unavailable};
pub use error::{DeviceFault, SliceError};
pub use event::Event;
pub use graph::GpuGraph;
pub use memory::{Budget, DeviceBuf};
pub use pinned::{PageLocked, PinnedBuf};
pub use pointer::DevicePtr;
pub use robocache_kernels::{self as images, Image, Kernel};
pub use slice::DeviceSlice;

/// Number of devices of a kind, at least one. The driver is asked once in the life of the process. Never panics.
///
/// # Errors
/// The reason why no device can be used.
pub fn device_count(kind: Kind) -> Result<usize, Unavailable> {
    kind.driver().map(driver::Driver::device_count)
}

/// The version of a driver, as its vendor numbers it: for CUDA 12.8 it is 12,080, for HIP 6.4 60,400,000 or a little more.
///
/// # Errors
/// The errors of [`device_count`].
pub fn driver_version(kind: Kind) -> Result<i32, Unavailable> {
    kind.driver().map(driver::Driver::version)
}
