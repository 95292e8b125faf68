//! Kinematics of many rows on a device: equal to [`robocache_kinematics`] bit for bit.
//!
//! A [`GpuModel`] computes poses, Jacobians and what is made of them, a [`GpuSolver`] finds joints for poses. Rows and results are
//! in the memory of the device. A message of the operation is one row, which the CPU has done before a launch has begun.

mod forward;
mod inverse;
mod params;

pub use forward::{GpuLinks, GpuModel};
pub use inverse::{DeviceAnswers, DeviceStarts, GpuSolver};
