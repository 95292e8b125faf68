//! Volumes that are kept over time: surfaces, free space and distances.
//!
//! [`Tsdf`] fuses depth images into signed distances to surfaces. [`DistanceTransform`] computes the distance from each cell to
//! the nearest obstacle. [`Occupancy`] keeps free and occupied cells by rays.

mod camera;
mod config;
mod distance;
mod frame;
pub mod gpu;
pub mod key;
mod mapper;
mod occupancy;
mod sequence;
mod spec;
mod tsdf;
mod volume;

pub use camera::Pinhole;
pub use config::{
    CameraSection, Decay, EsdfSection, MapConfig, MapInput, MapProduct, Obstacles, OccupancySection, TsdfSection,
};
pub use distance::{DistanceTransform, limit_of, metres};
pub use frame::{DepthFrame, DepthImage, DepthRange, DistanceAlong};
pub use mapper::{DroppedFrame, DroppedFrames, Map, MapCounters, MapStep};
pub use occupancy::{Occupancy, OccupancyConfig, RayBundle, RayCounters};
pub use tsdf::{FrameWeight, Tsdf, TsdfConfig};
pub use volume::{Bits, Shape, Window};
