//! The numbers of a [`Model`](crate::Model) and of a [`Solver`](crate::Solver), for implementations on a device.

pub use crate::inverse::{Bound, Posture, Spec};
pub use crate::model::{Link, Segment};
