//! Volumes that are kept over time: surfaces, free space and distances.
//!
//! [`Tsdf`] fuses depth images into signed distances to surfaces. [`DistanceTransform`] computes the distance from each cell to
//! the nearest obstacle. [`Occupancy`] keeps free and occupied cells by rays.

mod camera;
mod distance;
mod frame;
pub mod gpu;
mod occupancy;
mod tsdf;
mod volume;

pub use camera::Pinhole;
pub use distance::{DistanceTransform, limit_of, metres};
pub use frame::{DepthFrame, DepthImage, DepthRange, DistanceAlong};
pub use occupancy::{ImageConfig, Occupancy, OccupancyConfig, RayBundle, RayCounters};
pub use tsdf::{FrameWeight, Tsdf, TsdfConfig};
pub use volume::{Bits, Shape, Window};
