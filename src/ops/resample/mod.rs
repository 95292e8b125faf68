//! Batches of trajectories at their targets.
//!
//! Each row of a batch is one trajectory: S samples of D values at ascending times, and T targets. The answer is the
//! value of that trajectory at every target, by the rules of [`time::pick`](crate::time::pick):
//!
//! - of samples with the same time the later one wins;
//! - a sample with a NaN or an infinity in it is dropped and counted, and its neighbours are used instead;
//! - a sample exactly at a target, `previous` and `nearest` give that sample's bits;
//! - `linear` is `a + w * (b - a)` with `w` from int64 ns in float64: for float32, float16 and bfloat16 it is computed
//!   in float32 with `w` rounded to it, and the result rounded to the type; for float64 in float64;
//! - where there is no valid value, or the type can't hold it, the row of D holds `fill_value` and its `valid` is 0;
//! - a trajectory that makes no sense (its times go back, its lists don't go together) has no valid value.
//!
//! S and T may differ from row to row and may be 0. Targets may come in any order; ascending ones are found fastest.
//!
//! ```
//! use robocache::device::Dtype;
//! use robocache::ops::resample::{ResampleConfig, CpuResampler, Trajectories};
//! use robocache::stream::{Cells, Message};
//!
//! let mut message = Message::default();
//! message.rows = 1;
//! message.header.dim.set(2);
//! for (name, dtype, bytes, len) in [
//!     ("timestamps_ns", Dtype::Int64, bytemuck::cast_slice(&[0i64, 100]), 2),
//!     ("values", Dtype::Float32, bytemuck::cast_slice(&[0.0f32, 10.0, 1.0, 20.0]), 4),
//!     ("targets_ns", Dtype::Int64, bytemuck::cast_slice(&[25i64, 100, 101]), 3),
//! ] {
//!     let column = message.add_column(name, dtype, Cells::Ragged(len));
//!     column.data.copy_from(bytes);
//!     column.offsets.extend([0, len as i32]);
//! }
//!
//! let mut resampler = CpuResampler::new(&ResampleConfig::default())?;
//! let batch = Trajectories::from_message(&message)?;
//! let (mut values, mut valid) = ([0.0f32; 6], [0; 3]);
//! let counters = resampler.run(&batch, bytemuck::cast_slice_mut(&mut values), &mut valid);
//! assert_eq!(values, [0.25, 12.5, 1.0, 20.0, 0.0, 0.0]);
//! assert_eq!(valid, [1, 1, 0]);
//! assert_eq!(counters.invalid, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod config;
mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "no_cuda.rs"]
pub(crate) mod cuda;
mod trajectories;

pub use config::ResampleConfig;
pub use cpu::{Counters, CpuResampler};
pub use trajectories::{RefusedRow, RowError, Trajectories, TrajectoriesError};
