//! The GPU backends, compared with the CPU's cases and bytes on the driver that is found (such as `libcuda.so.1`): a GPU's or
//! the emulator's. Without a driver the tests print that they skip.
//!
//! `ROBOCACHE_GPU_CASES` is the number of random cases of each test.

#![allow(clippy::unwrap_used)]

mod counting_driver;
mod device;
mod driver;
mod fuse;
mod kinematics;
mod map;
mod resample;
mod support;
mod voxelize;
