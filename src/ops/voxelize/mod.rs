//! Point clouds to voxel grids.
//!
//! [`VoxelizeConfig`] says which grid, which channels and which form; [`CpuVoxelizer`] makes grids of [`Cloud`]s;
//! [`Collector`] says when the clouds of several inputs make a grid.
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
//! | channel | value of a cell with points |
//! |---|---|
//! | `occupancy` | 1 |
//! | `count` | the number of points, exact |
//! | `mean_F` | `(sum as f64 / n as f64 * 2^-s)` in float64, rounded to float32, n being the usable values; 0 where n is 0 |
//! | `max_F`, `min_F` | the greatest or least of the usable values as float32, -0 being less than +0; 0 where there is none |
//!
//! `x`, `y` and `z` are the coordinates of step 2, for `max_z` as for `mean_z`. A cell without points has 0 in every
//! channel. float16 and bfloat16 outputs are the nearest to the float32 value, and the greatest or least of their type
//! where that is beyond it.
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
//!
//! # Example
//! ```
//! use robocache::device::Dtype;
//! use robocache::ops::voxelize::{Cloud, VoxelizeConfig, CpuVoxelizer};
//! use robocache::stream::{Cells, Message};
//!
//! let config: VoxelizeConfig = serde_yaml::from_str(
//!     "{ origin_m: [0, 0, 0], voxel_size_m: [1, 1, 1], shape: [4, 4, 4], channels: [count, mean_x], layout: coo,
//!        inputs: [{ input: lidar }] }",
//! )?;
//! let mut message = Message::default();
//! message.rows = 6;
//! message.header.fields.set(["x", "y", "z"]);
//! let points: [f32; 6] = [0.25, 0.5, 0.5, 0.75, 0.5, 0.5];
//! message.add_column("", Dtype::Float32, Cells::One).data.copy_from(bytemuck::cast_slice(&points));
//!
//! let mut voxelizer = CpuVoxelizer::new(&config)?;
//! voxelizer.begin();
//! voxelizer.add(0, &Cloud::from_message(&message)?)?;
//! assert_eq!(voxelizer.finish().points_kept, 2);
//! let (mut coords, mut features) = ([0; 3], [0.0; 2]);
//! voxelizer.write_coo(&mut coords, &mut features);
//! assert_eq!((coords, features), ([0, 0, 0], [2.0, 0.5]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
mod plan;
mod quantum;
mod spec;
mod write;

pub use channel::{Channel, VoxelLayout};
pub use cloud::{Cloud, CloudError, Field};
pub use collector::{Arrival, Collector};
pub use config::{Extrinsic, VoxelInput, VoxelizeConfig};
pub use cpu::CpuVoxelizer;
pub use grid::{Grid, Transform};

use super::ConfigError;

/// What became of the points of a grid: `points_in` is the sum of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
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
