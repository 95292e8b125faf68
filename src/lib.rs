//! robocache is the perception front-end of a robot policy: sensor streams in, observation tensors out.
//!
//! The library is built in layers, each of which knows only those below it:
//!
//! | layer | what it holds |
//! |---|---|
//! | `dora` | dora's event loop, queue, transport and wire format (feature `dora`, on by default) |
//! | [`app`] | [`Plugin`](app::Plugin), [`App`](app::App), [`Graph`](app::Graph): operations wired to each other |
//! | [`ops`] | the operations: align, fuse, resample, voxelize; they know no dora |
//! | [`stream`], [`time`], [`device`] | messages and histories; the grid and interpolation; element types and memory |
//!
//! Without default features the crate has all of it but dora, for use from another runtime.

// Without CUDA no value of a device's types exists. Code that takes one still compiles, and is never reached.
#![cfg_attr(
    not(feature = "cuda"),
    allow(dead_code, unreachable_code, unused_assignments, unused_mut, unused_variables)
)]

pub mod app;
pub mod device;
#[cfg(feature = "dora")]
pub mod dora;
pub mod ops;
pub mod stream;
pub mod time;
mod yaml;

/// The programs of the documentation compile and run.
#[cfg(doctest)]
mod documentation {
    #[doc = include_str!("../docs/embedding.md")]
    struct Embedding;
    #[doc = include_str!("../docs/offline.md")]
    struct Offline;
    #[cfg(feature = "dora")]
    #[doc = include_str!("../docs/plugins.md")]
    struct Plugins;
}
