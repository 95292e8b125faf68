//! Streams on common timestamps.
//!
//! An [`Timeline`] keeps the history of each stream and says when an observation is due. The values at the targets of a
//! window are then read from the histories, one modality at a time by [`cpu::align`], or all of them side by side by
//! [`fuse`](crate::ops::fuse).
//!
//! **Due.** Targets are whole multiples of the grid's period. A target is due once the watermark of every open stream
//! that is waited for is at or past it, or once the newest sample of any of them is `max_wait_ms` past it.
//!
//! **Watermark.** With `reorder_ms` a sample may come late by so much and still be sorted in before it is used. The
//! watermark of a stream is its newest sample's time less `reorder_ms`; where a mode looks at samples after the target,
//! it is the newest *sample* at or before that, since the sample after the target must be in its place, too.
//!
//! **Clock jumps.** A stamp that goes back by more than `reset_ms`, or ahead by more than `jump_ms`, clears its stream and
//! starts the grid anew on what the histories hold. A time is sent again only if time itself went back: if the newest
//! stamp of all streams that are waited for lies before the last target sent.
//!
//! **Nothing silences it.** With `max_wait_ms`, a stream that goes on makes observations due, whatever the clocks of the
//! others do. Where the grid would start more than a second behind what is due, it starts there instead; a stream that was
//! ahead and has stopped is left behind. [`Timeline::take_notices`] says so.

mod config;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "no_cuda.rs"]
pub(crate) mod cuda;
#[cfg(test)]
mod tests;
mod timeline;

pub use config::{AlignConfig, GroupConfig, ModalityConfig};
pub use timeline::{Masks, Notice, Pushed, SampleError, StreamState, Target, Timeline};
