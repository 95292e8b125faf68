//! The CUDA backends, held to the CPU's cases and to the CPU's bytes, on whatever `libcuda.so.1` there is: a GPU's, or
//! the emulator's. Without one the tests say that they skip.
//!
//! `ROBOCACHE_GPU_CASES` is how many random cases each of them runs.

#![allow(clippy::unwrap_used)]

mod counting_driver;
mod device;
mod driver;
mod fuse;
mod kinematics;
mod resample;
mod support;
mod voxelize;
