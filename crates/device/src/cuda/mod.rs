//! CUDA devices: finding them, their memory, and kernels on them.
//!
//! The driver is loaded at run time, so a program with this module builds and runs on machines without one.
//! [`device_count`] says whether there is a device, and never panics. A [`Gpu`] is a device with a stream: copies and
//! kernels are enqueued and run in order, and [`Gpu::synchronize`] waits for them.
//!
//! Residence is in the type: what a device can read is a [`DeviceBuf`] or a [`DeviceSlice`] of one, what the CPU can read
//! is a slice or a [`PinnedBuf`], and every copy between them is written out.
//!
//! What a process shares is what the driver shares, too: the driver itself, loaded and asked for its devices once, and a
//! context for each device with its loaded kernels, for as long as a [`Gpu`] uses it. Everything else belongs to a value.

mod error;
mod foreign;
mod gpu;
mod helpers;
mod memory;
mod probe;
pub mod share;
mod shared;
mod slice;
pub mod staging;
mod transfer;

pub use error::{CudaError, Unavailable};
pub use gpu::{CudaGraph, Event, Gpu, Params};
pub use memory::{Budget, DeviceBuf, PinnedBuf};
pub use probe::{device_count, driver_version};
pub use robocache_kernels::{self as images, Image, Kernel};
pub use shared::PageLocked;
pub use slice::{DeviceSlice, SliceError};
