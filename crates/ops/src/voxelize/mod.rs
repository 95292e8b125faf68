//! Point clouds to voxel grids.
//!
//! [`VoxelizeConfig`] says which grid, which channels and which layout. [`Voxelizer`] makes grids of the clouds of its
//! inputs, on the CPU or on a device. [`CpuVoxelizer`] makes them on the CPU alone, and [`Collector`] only says when the
//! clouds of several inputs make a grid.
//!
//! `docs/semantics.md` defines the cell of a point, the value of each channel and how sums are made, to
//! the bit: neither the order of the points nor the backend changes one.

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
pub use voxelizer::{Pushed, Unused, Voxelizer};

use super::ConfigError;
use robocache_stream::Header;
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// The points of a grid by what became of them: `points_in` is the sum of the others.
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

impl VoxelCounters {
    /// Writes them to the metadata of a grid, or of diagnostics.
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
