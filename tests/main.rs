//! The integration tests of the library in one binary, since each binary links the whole engine. Tests that need a process of
//! their own are apart: `alloc` for its allocator, `rings` and `shortage` for what they do to all of a process. So are `gpu` and
//! `contract`, which are also run by themselves.

#![allow(clippy::unwrap_used)]

mod align_properties;
mod attach;
mod clock;
mod common;
#[cfg(feature = "csv")]
mod csv;
#[cfg(feature = "cuda")]
mod cuda_fallback;
mod diagnostics;
mod documented_defaults;
mod documented_messages;
mod documented_semantics;
mod graph;
mod group;
#[cfg(all(feature = "cuda", feature = "hip"))]
mod hip_fallback;
mod map;
#[cfg(feature = "mcap")]
mod mcap;
mod messages;
mod metadata_keys;
mod modes;
mod outbox;
mod plugins;
mod recording;
mod recording_arrival;
mod recording_killed;
mod recording_long;
mod requests;
mod resample;
mod voxelize;
