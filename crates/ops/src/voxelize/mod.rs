//! Point clouds to voxel grids.
//!
//! [`VoxelizeConfig`] says which grid, which channels and which layout. [`Voxelizer`] makes grids of the clouds of its
//! inputs, on the CPU or on a device. [`CpuVoxelizer`] makes them on the CPU alone, and [`Collector`] only says when the
//! clouds of several inputs make a grid.
//!
//! `docs/semantics.md` defines the cell of a point, the value of each channel and how sums are made, to
//! the bit: neither the order of the points nor the backend changes one.

mod cells;
mod channel;
mod cloud;
mod collector;
mod config;
mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "no_cuda.rs"]
pub(crate) mod cuda;
mod grid;
mod kernels;
mod layout;
mod plan;
mod quantum;
mod spec;
mod voxelizer;
mod write;

pub use channel::Channel;
pub use cloud::{Cloud, CloudError, Field};
pub use collector::{Arrival, Collector};
pub use config::{Extrinsic, VoxelInput, VoxelizeConfig};
pub use cpu::CpuVoxelizer;
pub use grid::VoxelGrid;
pub use layout::VoxelLayout;
pub use voxelizer::{GatheredGrid, Pushed, Unused, Voxelizer};

use super::ConfigError;
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// What became of the points of a grid: `points_in` is the sum of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoxelCounters {
    /// Points of all clouds.
    pub points_in: u64,
    /// Points that are in the output.
    pub points_kept: u64,
    /// Points with a coordinate that is not finite.
    pub dropped_nonfinite: u64,
    /// Points outside the grid.
    pub dropped_outside: u64,
    /// Points in cells past `max_voxels`.
    pub dropped_overflow: u64,
}

impl AddAssign for VoxelCounters {
    fn add_assign(&mut self, other: Self) {
        self.points_in += other.points_in;
        self.points_kept += other.points_kept;
        self.dropped_nonfinite += other.dropped_nonfinite;
        self.dropped_outside += other.dropped_outside;
        self.dropped_overflow += other.dropped_overflow;
    }
}
