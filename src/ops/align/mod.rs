//! Streams on common timestamps.
//!
//! An [`Aligner`] keeps the history of each stream and says when an observation is due: targets are whole multiples of
//! the grid's period, and target t is due once the watermark of every open stream is at or past it, or `max_wait_ms`
//! has run out. The values at the targets of a window are then read from the histories, one modality at a time by
//! [`cpu::align`], or all of them side by side by [`fuse`](crate::ops::fuse).
//!
//! **Watermark.** With `reorder_ms` a sample may come late by so much and still be sorted in before it is used. The
//! watermark of a stream is its newest sample's time less `reorder_ms`; where a mode looks at samples after the target,
//! it is the newest *sample* at or before that, since the sample after the target must be in its place, too.

mod config;
pub mod cpu;
pub mod cuda;
mod engine;
#[cfg(test)]
mod tests;

pub use config::{AlignConfig, GroupConfig, ModalityConfig};
pub use engine::{Aligner, Masks, Notice, Pushed, SampleError, StreamState, Target};
