//! Volumes in the memory of a device, equal to those of [`map`](super) bit for bit.

mod params;
mod tsdf;

pub use tsdf::GpuTsdf;
