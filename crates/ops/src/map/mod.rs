//! Operation `map`: fuses depth images and clouds over time into maps of surfaces, free space and
//! distances to obstacles.
//!
//! [`Map`] runs the whole operation. [`Tsdf`] fuses depth images into signed distances to surfaces. [`Occupancy`] keeps
//! the probability that each cell is occupied, from rays of clouds and from depth images. [`DistanceTransform`]
//! computes the distance from each cell to the nearest obstacle.

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
pub use mapper::{DroppedFrame, DroppedFrames, Map, MapCounters, MapStep, Unseen};
pub use occupancy::{Occupancy, OccupancyConfig, RayBundle, RayCounters};
pub use tsdf::{FrameWeight, Tsdf, TsdfConfig};
pub use volume::{Bits, Shape, Window};
