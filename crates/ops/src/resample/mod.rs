//! Operation `resample`: resamples batches of trajectories, on the CPU or on GPUs, with [`Resampler`].
//!
//! Each row of a batch is one trajectory: S samples of D values at ascending times, and T target times. The result is the value
//! of the trajectory at each target, as `docs/semantics.md` defines it. S and T may differ from row to row, and may be 0.
//! Targets may be in any order; ascending ones are found fastest.
//!
//! ```
//! use robocache_device::{DeviceChoice, Dtype, Placement};
//! use robocache_ops::resample::{ResampleConfig, Resampler};
//! use robocache_stream::{Cells, ColumnLayout, Layout, Message, Payload};
//!
//! // One trajectory: two samples of two values, three targets.
//! let column = |name: &'static str, dtype, len| ColumnLayout { name: name.into(), dtype, cells: Cells::Ragged(len) };
//! let layout = Layout {
//!     rows: 1,
//!     columns: vec![
//!         column("timestamps_ns", Dtype::Int64, 2),
//!         column("values", Dtype::Float32, 4),
//!         column("targets_ns", Dtype::Int64, 3),
//!     ],
//! };
//! let mut message = Message::default();
//! message.write(&layout, |payload, header| {
//!     payload.column(0).copy_from_slice(&[0i64, 100]);
//!     payload.offsets(0).copy_from_slice(&[0, 2]);
//!     payload.column(1).copy_from_slice(&[0.0f32, 10.0, 1.0, 20.0]);
//!     payload.offsets(1).copy_from_slice(&[0, 4]);
//!     payload.column(2).copy_from_slice(&[25i64, 100, 101]);
//!     payload.offsets(2).copy_from_slice(&[0, 3]);
//!     header.dim.set(2);
//! });
//!
//! let placement = Placement::resolve(DeviceChoice::Auto, None)?;
//! let mut resampler = Resampler::new(&ResampleConfig::default(), &placement)?;
//! let batch = resampler.read(&message)?;
//! let (mut answer, mut layout) = (Message::default(), Layout::default());
//! batch.layout_into(&mut layout);
//! let resampled = resampler.run(&batch, &mut Payload::in_message(&mut answer, &layout));
//! let column = |name| &answer.column(name).unwrap().data;
//! assert_eq!(column("values").as_slice::<f32>(), [0.25, 12.5, 1.0, 20.0, 0.0, 0.0]);
//! assert_eq!(column("valid").as_slice::<u8>(), [1, 1, 0]);
//! assert_eq!(resampled.counters.invalid, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod config;
mod cpu;
pub mod gpu;
pub mod key;
mod resampler;
mod spec;
mod trajectories;

pub use config::{ChannelGroupConfig, ResampleConfig};
pub use cpu::{CpuResampler, ResampleCounters};
pub use resampler::{BatchError, Resampled, Resampler};
pub use trajectories::{RefusedRow, RowError, Trajectories, TrajectoriesError};
