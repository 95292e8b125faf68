//! Operation `align`: puts sensor streams on common timestamps.
//!
//! An [`Aligner`] takes samples, returns the observations that are due, and computes their windows on the CPU or on a device. A
//! window has one output of all modalities side by side ([`fuse`](crate::fuse)), or one output for each modality.
//!
//! An aligner contains a [`Timeline`]: the history of each stream, and the rule that decides when an observation is due. The
//! values of a window are computed from the histories, by [`cpu`] or, to the same bits, on a device.
//!
//! `docs/semantics.md` defines when an observation is due, the first target time and clock jumps. It shows why no stream stops
//! an aligner that has `max_wait_ms`. [`Timeline::take_notices`] reports streams that are set aside because they are too far
//! ahead, streams that are left behind, and moves of the grid's clock.
//!
//! A sample is *settled* once no sample that is still in time can come before it: once the newest sample of its stream is
//! `reorder_ms` past it. The *watermark* of a stream is the newest time up to which no sample that is still in time can change
//! its values.

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
pub use timeline::{Masks, Notice, PushOutcome, Refusal, Row, SampleError, StreamState, Target, Timeline};
pub use trigger::{Rows, TriggerConfig, TriggerKind};
pub use window::Window;

use robocache_stream::Header;

/// True if a message with this header is a request for an observation: it has a `request_id`, as in dora's service pattern, and
/// no `trigger`. An answer has both.
pub fn is_request(header: &Header) -> bool {
    header.other.get("request_id").is_some() && key::trigger.get(header).is_none()
}
