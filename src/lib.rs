//! robocache is the perception front-end of a robot policy: sensor streams in, observation tensors out.
//!
//! Camera features, proprioception, force and lidar arrive at their own rates, by clocks of their own. The library puts them on
//! common timestamps, and fuses them into one tensor with a mask that says what can be trusted. It makes voxel grids of point
//! clouds, too, on the CPU or on a GPU, with the same bits.
//!
//! # Streams on common timestamps
//!
//! An [`Aligner`](ops::align::Aligner) takes samples and says which observations are due. Times are int64 nanoseconds.
//!
//! ```
//! use robocache::prelude::*;
//!
//! const MS: i64 = 1_000_000;
//! let stream = |input: &str, interpolation| ModalityConfig {
//!     input: input.into(),
//!     dim: 1,
//!     interpolation: Some(interpolation),
//!     ..ModalityConfig::default()
//! };
//! let config = FuseConfig {
//!     rate_hz: 100.0,
//!     modalities: vec![stream("gripper", Interpolation::Previous), stream("force", Interpolation::Linear)],
//!     ..FuseConfig::default()
//! };
//! let mut aligner = Aligner::fused(&config, &Placement::resolve(DeviceChoice::Auto, None)?)?;
//!
//! let mut observations = Vec::new();
//! for (modality, stamp_ns, value) in [(0, 0, 5.0), (1, 4 * MS, 1.0), (0, 12 * MS, 6.0), (1, 14 * MS, 2.0)] {
//!     aligner.push(modality, stamp_ns, Values::from_f32(&[value]))?;
//!     while let Some(target) = aligner.due() {
//!         let mut values = [0f32; 2];
//!         let mut window = aligner.window(target);
//!         window.write(0, &mut values);
//!         observations.push((target.time_ns, values, window.masks().valid.clone()));
//!     }
//! }
//! // At 10 ms: the gripper of 0 ms, and the force 0.6 of the way from 4 to 14 ms. Both are valid.
//! assert_eq!(observations, [(10 * MS, [5.0, 1.6], vec![1, 1])]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Beside it an [`Attached`](ops::align::Attached) ties messages of other streams, such as voxel grids, to the rows of each
//! observation. Each row gets the newest message that is not newer than the row.
//!
//! # Point clouds to voxel grids
//!
//! A [`Voxelizer`](ops::voxelize::Voxelizer) takes clouds, here `[N, 3]` of float32, metres.
//!
//! ```
//! use robocache::prelude::*;
//!
//! let config = VoxelizeConfig {
//!     origin_m: [0.0; 3],
//!     voxel_size_m: [0.5; 3],
//!     shape: [8, 8, 8],
//!     channels: vec![Channel::Count, Channel::Mean("z".into())],
//!     layout: VoxelLayout::Coo,
//!     inputs: vec![VoxelInput { input: "lidar".into(), ..VoxelInput::default() }],
//!     ..VoxelizeConfig::default()
//! };
//! let mut voxelizer = Voxelizer::new(&config, &Placement::cpu("an example"))?;
//!
//! let mut cloud = Message::default();
//! cloud.write(&Layout::flat(Dtype::Float32, 3 * 3), |payload, header| {
//!     payload.column(0).copy_from_slice(&[0.1f32, 0.1, 0.1, 0.2, 0.2, 0.3, 3.9, 0.1, 0.1]);
//!     header.shape.set([3, 3]);
//!     header.timestamp_ns.set(1_000_000);
//! });
//! let mut voxels = Message::default();
//! if let Some(mut grid) = voxelizer.push(0, &cloud)?.grid {
//!     voxels.write(&grid.layout().clone(), |payload, _| grid.write(payload));
//! }
//! let column = |name| &voxels.column(name).unwrap().data;
//! assert_eq!(column("coords").as_slice::<i32>(), [0, 0, 0, 7, 0, 0]);
//! assert_eq!(column("features").as_slice::<f32>(), [2.0, 0.2, 1.0, 0.1]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Trajectories at their targets
//!
//! A [`Resampler`](ops::resample::Resampler) takes batches of trajectories, for training data. The page of its module,
//! [`ops::resample`], has a program.
//!
//! # Recordings
//!
//! A [`Writer`](stream::recording::Writer) records messages as Arrow files, and a [`Reader`](stream::recording::Reader) gives
//! them back in order. The page of their module, [`stream::recording`], has a program.
//!
//! # Chains of operations
//!
//! Each operation is also a plugin. A [`Graph`](app::Graph) runs several of them, one after the other, and hands messages on
//! in memory; its page has a program. [`app::Operation`] shows how to write a plugin of your own, and
//! [`Message::samples`](stream::Message::samples) how to walk the samples that come to it.
//!
//! # Nodes of a dataflow
//!
//! A node is an [`App`](app::App) of some plugins that dora runs:
//!
//! ```no_run
//! # #[cfg(feature = "dora")]
//! fn main() -> std::process::ExitCode {
//!     use robocache::prelude::*;
//!
//!     robocache::dora::main(|| Ok(robocache::dora::run(App::new().add_plugin(FusePlugin::default()))?))
//! }
//! # #[cfg(not(feature = "dora"))]
//! # fn main() {}
//! ```
//!
//! # Further pages
//!
//! | page | says |
//! |---|---|
//! | [`semantics`] | what every operation computes, and when |
//! | `docs/embedding.md` of the repository | programs without dora: grids, batches, graphs, recordings |
//! | `docs/offline.md` | observations from recordings, for training |
//! | `docs/plugins.md` | an operation of your own: what it gets, and what it owes |
//! | `docs/messages.md` | payloads and metadata |
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `dora` | yes | the module `dora`: event loop, queue, transport, command line. Without it dora is not built |
//! | `cuda` | yes | the CUDA implementations. The driver is loaded at run time: neither building nor running needs one. Without it neither cudarc nor a kernel is built in |
//! | `csv`, `lerobot`, `mcap` | no | the module `formats`: files of other software, read and written |
//!
//! Rust 1.95 or later, on Linux.
//!
//! # Layers
//!
//! Each layer is a package that depends only on those below it, and a module here:
//!
//! | layer | what it holds |
//! |---|---|
//! | `dora` | the event loop, queue, transport and wire format of a node |
//! | [`app`] | [`Plugin`](app::Plugin), [`App`](app::App), [`Graph`](app::Graph): operations wired to each other |
//! | `formats` | files of other software |
//! | [`ops`] | the operations: align, clock, fuse, group, resample, voxelize. Each picks its backend and falls back |
//! | [`stream`], [`time`] | messages, histories and recordings; the time grid and interpolation |
//! | [`geometry`] | rotations and rigid transforms |
//! | [`device`] | element types, memory, rings and devices |

#![warn(unreachable_pub)]

#[cfg(not(target_os = "linux"))]
compile_error!("robocache is for Linux: its rings are anonymous files and abstract sockets, which other systems lack");

pub mod app;
#[cfg(feature = "dora")]
pub mod dora;

pub use robocache_device as device;
#[cfg(any(feature = "csv", feature = "lerobot", feature = "mcap"))]
pub use robocache_formats as formats;
pub use robocache_geometry as geometry;
pub use robocache_kinematics as kinematics;
pub use robocache_ops as ops;
pub use robocache_stream as stream;
pub use robocache_time as time;

/// Items that most programs need, for `use robocache::prelude::*`.
pub mod prelude {
    pub use crate::app::plugins::{
        self, AlignPlugin, ClockPlugin, FusePlugin, GroupPlugin, RecordPlugin, ReplayPlugin, ResamplePlugin,
        VoxelizePlugin,
    };
    pub use crate::app::{
        App, AppError, BuildContext, Change, Config, Fault, Graph, Operation, Outbox, Plugin, Registration, Sink,
        Source, Wake,
    };
    pub use robocache_device::{Device, DeviceChoice, Dtype, Placement, Values};
    pub use robocache_ops::ConfigError;
    pub use robocache_ops::align::{
        AlignConfig, Aligner, AttachConfig, Attached, ChannelGroupConfig, Masks, ModalityConfig,
    };
    pub use robocache_ops::fuse::FuseConfig;
    pub use robocache_ops::group::{Grouper, GroupingConfig, GroupingInput, GroupingPolicy};
    pub use robocache_ops::resample::{ResampleConfig, Resampler};
    pub use robocache_ops::voxelize::{Channel, Extrinsic, VoxelInput, VoxelLayout, VoxelizeConfig, Voxelizer};
    pub use robocache_stream::{
        Cells, ColumnLayout, Header, Layout, Message, MetadataRef, Payload, SampleRow, recording,
    };
    pub use robocache_time::Interpolation;
}

/// The page `docs/semantics.md`, which the documentation of the operations refers to.
#[cfg(doc)]
#[doc = include_str!("../docs/semantics.md")]
pub mod semantics {}

/// Programs of the documentation, which compile and run as tests.
#[cfg(doctest)]
mod documentation {
    #[doc = include_str!("../docs/embedding.md")]
    struct Embedding;
    #[doc = include_str!("../docs/offline.md")]
    struct Offline;
    #[doc = include_str!("../docs/plugins.md")]
    struct Plugins;
}
