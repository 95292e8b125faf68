//! Devices without memory: on the emulator, every allocation, copy and launch in turn is refused, and what is published
//! is what the CPU publishes. Nothing is lost, and nothing ends.

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod emulator;
mod graphs;
mod operations;
mod works;
