//! Kinematics of many rows on a device: equal to [`robocache_kinematics`] bit for bit.
//!
//! A [`GpuModel`] computes poses, Jacobians, twists and manipulability. A [`GpuSolver`] finds joints for poses. Rows and
//! results are in the memory of the device. The operation itself stays on the CPU, which is done with a message of one row
//! before a launch would begin.

mod forward;
mod inverse;
mod params;

pub use forward::{GpuLinks, GpuModel};
pub use inverse::{DeviceAnswers, DeviceStarts, GpuSolver};
