//! Streams on common timestamps.
//!
//! An [`Aligner`] takes samples, says which observations are due, and makes their windows on the CPU or on a device: of all
//! modalities side by side ([`fuse`](crate::fuse)), or of each by itself. Under it lies the [`Timeline`]: the history of
//! each stream, and the rule that says when an observation is due. Values are read from the histories, by [`cpu`] or, to
//! the same bits, on a device.
//!
//! `docs/semantics.md` defines what is due and when, the first target, clock jumps, and
//! why nothing silences an aligner that has `max_wait_ms`. [`Timeline::take_notices`] says what the clocks do.
//!
//! A sample is *settled* once nothing that is still in time can come before it: once the newest sample of its stream is
//! `reorder_ms` past it. The newest time up to which nothing can change a stream's values is its *watermark*.

mod aligner;
mod attached;
mod config;
pub mod cpu;
pub mod gpu;
pub mod key;
mod output;
mod samples;
mod spec;
#[cfg(test)]
mod tests;
mod timeline;
mod trigger;
mod window;

pub use aligner::{Aligner, PushError};
pub use attached::{Arrival, AttachError, Attached};
pub use config::{AlignConfig, AttachConfig, ChannelGroupConfig, ModalityConfig};
pub use output::{Destination, Output};
pub use robocache_stream::SamplesError;
pub use samples::Samples;
pub use spec::{AttachedSpec, FUSED, OBSERVATION};
pub use timeline::{Masks, Notice, Pushed, Refusal, Row, SampleError, StreamState, Target, Timeline};
pub use trigger::{Rows, TriggerConfig, TriggerKind};
pub use window::Window;

use robocache_stream::Header;

/// True if it is a request of dora's service pattern, and not the answer to one, which says what made it.
pub fn is_request(header: &Header) -> bool {
    header.other.get("request_id").is_some() && key::trigger.get(header).is_none()
}
