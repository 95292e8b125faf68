//! Inverse kinematics: joints for poses. An answer is valid only if its joints are within the limits and its errors within the
//! tolerances.

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
