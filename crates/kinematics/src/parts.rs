//! Constants of a [`Model`](crate::Model) and of a [`Solver`](crate::Solver), for implementations on a device. They are read
//! from the host's model and solver, so that a device computes with the same rounded constants.

pub use crate::inverse::{Bound, Posture, Spec};
pub use crate::model::{Link, Segment};
