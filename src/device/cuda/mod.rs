//! CUDA devices: finding them, their memory, and kernels on them.
//!
//! The driver is loaded at run time, so a program with this module builds and runs on machines without one.
//! [`device_count`] says whether there is a device, and never panics. A [`Gpu`] is a device with a stream: copies and
//! kernels are put into it and done in order, and [`Gpu::synchronize`] waits for them.
//!
//! Residence is in the type: what a device can read is a [`DeviceBuf`], what the CPU can read is a slice or a
//! [`PinnedBuf`], and every copy between them is written out.

mod copy;
mod error;
mod gpu;
pub mod images;
mod memory;
mod probe;
mod slice;
pub(crate) mod staging;
mod transfer;

pub use error::{CudaError, Unavailable};
pub use gpu::{Event, Gpu, Graph, Image, Kernel, Params};
pub use memory::{Budget, DeviceBuf, PinnedBuf, is_page_locked};
pub use probe::device_count;
pub use slice::{DeviceSlice, SliceError};
pub(crate) use transfer::Transfer;
