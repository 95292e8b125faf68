//! Inverse kinematics: joints for poses.

mod along;
mod batch;
mod config;
mod posture;
mod seeds;
mod solver;
mod step;
mod task;

pub use along::Track;
pub use config::{InverseConfig, InverseError, Select, Spec};
pub use posture::Posture;
pub use solver::{Answer, Solver};
pub use step::Bound;
pub use task::{MAX_DISTANCE, Task};
