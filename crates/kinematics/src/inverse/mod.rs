//! Inverse kinematics: finding joints for poses. Joints are a solution if they are within the limits, and the errors of their
//! pose are within the tolerances.

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
