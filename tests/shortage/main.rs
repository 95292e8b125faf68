//! Devices without memory: the emulator refuses every allocation, copy and launch in turn, and the published messages are those of
//! the CPU. No message is lost, and no node ends.

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod emulator;
mod graphs;
mod operations;
mod works;
