//! The voxelizer against clouds whose answer a reader can check by hand, then against an obviously right oracle.
#![allow(clippy::unwrap_used)]

mod cases;
mod config;
mod messages;
mod oracle;
mod properties;
mod recordings;
mod support;
