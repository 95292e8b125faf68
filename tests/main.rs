//! All integration tests of the library in one binary, since each binary links the whole engine. Some tests have binaries of
//! their own: `alloc` for its allocator, `rings` and `shortage` since they affect their whole process. So have `gpu` and
//! `contract`, which are also run alone.

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
