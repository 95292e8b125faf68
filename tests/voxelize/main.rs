//! The voxelizer against clouds whose answer a reader can check by hand, then against an obviously right oracle.
//!
//! The same cases are held against the CUDA backend by `tests/gpu/voxelize`, which puts another `backend` in its place.
#![allow(clippy::unwrap_used)]

mod backend {
    pub use robocache::ops::voxelize::CpuVoxelizer as Voxelizer;
}
mod cases;
mod config;
mod messages;
mod oracle;
mod properties;
mod recordings;
mod support;
