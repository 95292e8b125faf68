//! Operation `voxelize`: turns point clouds into voxel grids.
//!
//! [`VoxelizeConfig`] gives the grid, the channels and the layout. [`Voxelizer`] computes grids from the clouds of its
//! inputs, on the CPU or on a device. [`CpuVoxelizer`] computes grids on the CPU alone. [`Collector`] decides when the
//! clouds of several inputs make a grid.
//!
//! `docs/semantics.md` defines the cell of a point, the value of each channel and the sums, to the bit. Neither the
//! order of the points nor the choice of CPU or device changes a bit.

mod backends;
mod cells;
mod channel;
mod collector;
mod config;
mod cpu;
mod gathered;
pub mod gpu;
mod grid;
mod kernels;
pub mod key;
mod layout;
mod plan;
mod quantum;
mod spec;
mod sums;
mod voxelizer;
mod write;

pub use channel::Channel;
pub use collector::{Arrival, Collector};
pub use config::{Extrinsic, VoxelInput, VoxelizeConfig};
pub use cpu::CpuVoxelizer;
pub use gathered::GatheredGrid;
pub use grid::VoxelGrid;
pub use layout::VoxelLayout;
pub use spec::CloudError;
pub use voxelizer::{DroppedCloud, PushOutcome, Voxelizer};

use super::ConfigError;
use robocache_stream::Header;
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// Counts of a grid's points: points kept, and points dropped for each reason. `points_in` is the sum of the other counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoxelCounters {
    /// Number of points of all clouds of the grid.
    pub points_in: u64,
    /// Number of points that are in the output.
    pub points_kept: u64,
    /// Number of dropped points with a coordinate that is not finite.
    pub dropped_nonfinite: u64,
    /// Number of dropped points outside the grid.
    pub dropped_outside: u64,
    /// Number of dropped points in cells past `max_voxels`.
    pub dropped_overflow: u64,
}

impl VoxelCounters {
    /// Writes the counts to the metadata of a grid's message or of a diagnostics message.
    pub fn describe(&self, header: &mut Header) {
        key::points_in.set(header, self.points_in as i64);
        key::points_kept.set(header, self.points_kept as i64);
        super::key::dropped_nonfinite.set(header, self.dropped_nonfinite as i64);
        key::dropped_outside.set(header, self.dropped_outside as i64);
        super::key::dropped_overflow.set(header, self.dropped_overflow as i64);
    }
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
