//! Streams on common timestamps.
//!
//! An [`Aligner`] takes samples, says which observations are due, and makes their windows on the CPU or on a device: of all
//! modalities side by side ([`fuse`](crate::ops::fuse)), or of each by itself. Under it lies the [`Timeline`]: the history of
//! each stream, and the rule that says when an observation is due. Values are read from the histories, by [`cpu`] or to the
//! same bits by [`cuda`].
//!
//! **Settled and past.** A sample of a stream is settled once its newest is `reorder_ms` past it: a sample may come late by so
//! much and still be sorted in before it is used. A stream is past a target once nothing that may still come in time changes
//! its value there. For `previous`, that is when its newest time, less `reorder_ms`, has reached the target; for modes that
//! look at the sample after a target, when a settled sample has. The newest time that a stream is past is its watermark.
//!
//! **Due.** Targets are whole multiples of the grid's period. One is due once every open stream that is waited for is past
//! it, or once the newest sample of any of them is `max_wait_ms` past it.
//!
//! **Clock jumps.** A stamp that goes back by more than `reset_ms`, or ahead by more than `jump_ms`, clears its stream and
//! starts the grid anew on what the histories hold. A time is sent again only if time itself went back: if the newest
//! stamp of all streams that are waited for lies before the last target sent.
//!
//! **Nothing silences it.** With `max_wait_ms`, a stream that goes on makes observations due, whatever the clocks of the
//! others do. Where the grid would start more than a second behind what is due, it starts there instead; a stream that was
//! ahead and has stopped is left behind. [`Aligner::take_notices`] says so.

mod aligner;
mod config;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "no_cuda.rs"]
pub(crate) mod cuda;
mod samples;
mod spec;
#[cfg(test)]
mod tests;
mod timeline;
mod window;

pub use aligner::{Aligner, DeviceFailure, PushError};
pub use config::{AlignConfig, GroupConfig, LATER, ModalityConfig};
pub use samples::{Samples, SamplesError};
pub use spec::Spec;
pub use timeline::{Masks, Notice, Pushed, SampleError, StreamState, Target, Timeline};
pub use window::{Output, Wanted, Window};
