//! Poses of moving frames over time, interpolated between the samples of a stream.
//!
//! ```
//! use robocache_ops::pose::{PoseConfig, PoseTrack};
//!
//! let config = PoseConfig { input: "odometry".into(), ..PoseConfig::default() };
//! let mut base = PoseTrack::new(&config)?;
//! // Half a metre along x in 20 ms, without a rotation.
//! base.push(0, [1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]);
//! base.push(20_000_000, [1.5, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]);
//!
//! let at = base.at(5_000_000, [0.0; 3])?;
//! assert_eq!(at.pose.translation, [1.125, 0.0, 0.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod config;
mod message;
mod track;

pub use config::PoseConfig;
pub use message::{PoseError, for_each_pose};
pub use track::{NoPose, PoseAt, PoseTrack, PushedPose};
