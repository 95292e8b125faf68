//! A deterministic robot to demonstrate and test on, without a download.
//!
//! A 7-joint arm with a gripper, a wrist force/torque sensor, camera features, a spinning lidar in a
//! room where things move, and a depth camera that circles around a table. Three parts, each usable by itself:
//!
//! - [`signals`], [`lidar`] and [`table`]: what the sensors measure, as closed forms of true time, so that a test knows
//!   the truth at any instant;
//! - [`config`]: the sensors, and the errors of their clocks and networks;
//! - [`schedule`]: the capture time, the stamp and the publication time of each sample.
//!
//! Time is int64 nanoseconds throughout. Nothing here calls the platform's math library (see [`turns`]), and
//! every random number comes from a seeded ChaCha8 stream: the same config gives the same bytes on every
//! machine.
//!
//! ```
//! use robocache_sim::{config::SimConfig, schedule::{Schedule, Sensor}, signals};
//!
//! let config = SimConfig { duration_s: Some(0.1), ..SimConfig::default() };
//! let forces: Vec<_> = Schedule::new(&config)?
//!     .filter(|event| event.sensor == Sensor::Force)
//!     .map(|event| (event.stamp_ns, signals::wrench(event.true_ns)))
//!     .collect();
//! assert_eq!(forces.len(), 100);
//! # Ok::<(), robocache_sim::config::ConfigError>(())
//! ```

pub mod clock;
pub mod config;
pub mod lidar;
pub mod plugin;
pub mod scene;
pub mod schedule;
pub mod signals;
pub mod table;
pub mod turns;
