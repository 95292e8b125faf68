//! Point clouds to voxel grids.
//!
//! [`VoxelizeConfig`] says which grid, which channels and which layout. [`Voxelizer`] makes grids of the clouds of its
//! inputs, on the CPU or on a device. [`CpuVoxelizer`] makes them on the CPU alone, and [`Collector`] only says when the
//! clouds of several inputs make a grid.
//!
//! # What is computed
//!
//! Everything here is exact or rounded in one stated way, so that the order of the points and of the clouds changes no
//! bit, and another backend can give the same bits. "Nearest" is ties to even; nothing is contracted to a fused
//! multiply-add.
//!
//! 1. Coordinates of any type become the nearest float32.
//! 2. With an extrinsic, `((r0*x + r1*y) + r2*z) + t` for each axis in float32. The matrix is made in float64 of the
//!    normalized quaternion (components divided by `sqrt(x*x + y*y + z*z + w*w)`, summed from the left) and rounded
//!    to float32. Without an extrinsic there is no arithmetic.
//! 3. A point of which a coordinate is now NaN or infinite is dropped: `dropped_nonfinite`.
//! 4. `i = floor((p - origin) * inverse)` for each axis in float32, `inverse` being `1 / voxel_size` in float32. A
//!    point whose index is not in `0..shape` on every axis is dropped: `dropped_outside`. The cell is
//!    `(x*Y + y)*Z + z`.
//! 5. A value of a field that a channel is computed from is unusable if it is NaN or infinite in float32, or, where its
//!    mean is asked for, beyond the bound below. Its point stays where it is, and the channels of the field leave it out:
//!    `unusable` counts it. A null has come as NaN.
//! 6. With `max_voxels`, the cells after the first so many in cell order are dropped: `dropped_overflow` counts their
//!    points.
//!
//! [`Channel`] says what the value of each channel is. `x`, `y` and `z` are the coordinates of step 2, for `max_z` as for
//! `mean_z`. A cell without points has 0 in every channel. float16 and bfloat16 outputs are the nearest to the float32
//! value, and the greatest or least of their type where that is beyond it.
//!
//! A sum is one of integers q, the nearest to `value * 2^s`, which is exact in float64 before it is rounded:
//!
//! | summed | s | bound of the value | bound of q |
//! |---|---|---|---|
//! | a coordinate | `38 - ceil(log2(A))`, A = the greater magnitude of the two corners of the grid on that axis | A, being in the grid | 2^38 |
//! | a float, an 8- or 16-bit integer | 22 | 2^40 | 2^62 |
//! | a 32- or 64-bit integer | 0 | 2^62 | 2^62 |
//!
//! A grid takes 2^22 points at most. So an int64 holds the sum of as many q up to 2^40; of a greater one it takes the low
//! 40 bits, and the others are summed apart. What both are together is rounded once, to float64. A 64-bit integer is
//! compared with its bound, and summed, as the nearest float64. In a grid of 100 m a coordinate is kept to 2^-31 m.

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
pub use config::{Extrinsic, LATER, VoxelInput, VoxelizeConfig};
pub use cpu::CpuVoxelizer;
pub use grid::{Transform, VoxelGrid};
pub use layout::VoxelLayout;
pub use voxelizer::{GatheredGrid, Pushed, Unused, Voxelizer};

use super::ConfigError;

/// What became of the points of a grid: `points_in` is the sum of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
