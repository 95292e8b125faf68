//! Payloads that stay where they are computed: `robocache.ring/1`, from one process to others of the same host and user.
//!
//! A [`RingWriter`] owns a ring of equal slots, in shared memory or on a device, and a control page beside them. Shared memory is
//! sealed before another process gets it, so that the writer alone can write it. The writer writes a payload to a slot and tells
//! its consumers the name of the ring, the slot and its *generation*; a message of a dataflow carries the three. A [`RingReader`]
//! maps the ring once and takes payloads from it without a copy.
//!
//! The writer never waits for a reader, unless it is told to be [lossless](Lossless), and no reader can corrupt it:
//!
//! - A slot's generation is odd while it is written, and even and new when it is complete. Overwriting is allowed, and
//!   always detected: a reader compares the generation before and after it reads.
//! - A reader has a *lease* of a slot while it uses the slot. The writer takes the oldest slot that nobody leases. If all
//!   but the newest are leased, the writer overwrites the oldest, and counts that.
//! - Ring and control page are anonymous files or memory of the driver. Their descriptors go over an abstract Unix socket,
//!   to processes of the same user only. The end of the connection tells either side that the other side died: the writer
//!   drops the leases, the reader keeps its mapping.
//!
//! ```
//! use robocache_device::ring::{RingConfig, RingReader, RingWriter, RingPayload};
//!
//! let mut writer = RingWriter::shared("fused", None, RingConfig::default());
//! let ticket = writer.publish("float32", 8, |slot| slot.write(0, &[1u8; 8]))?;
//!
//! // In another process, with what the message says:
//! let reader = RingReader::open(&ticket.ring, None)?;
//! let slot: RingPayload = reader.take(&ticket)?;
//! let mut values = [0; 8];
//! slot.copy_to(0, &mut values)?;
//! assert_eq!((&*slot.descriptor()?, values), ("float32", [1; 8]));
//! # Ok::<(), robocache_device::ring::RingError>(())
//! ```

mod control;
mod descriptor;
mod error;
mod memory;
mod reader;
mod readers;
mod server;
mod slots;
#[cfg(test)]
mod tests;
mod writer;

pub use descriptor::Descriptor;
pub use error::RingError;
pub use reader::{ReadCounters, RingPayload, RingReader, SlotMemory};
pub use readers::{Opened, Opening, Readers};
pub use writer::{Lossless, RingConfig, RingWriter, SlotMut, WriteCounters};

use std::borrow::Cow;

/// Reference to a payload in a ring, as a message carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket<'a> {
    /// Name of the ring, and of its abstract Unix socket.
    pub ring: Cow<'a, str>,
    /// Index of the slot, from 0.
    pub slot: usize,
    /// Generation of the slot while it holds the payload: even, from 2.
    pub generation: u64,
    /// Size of the payload, bytes.
    pub nbytes: usize,
}

impl Ticket<'_> {
    /// Copies the ring's name, so that the ticket borrows nothing.
    pub fn into_owned(self) -> Ticket<'static> {
        Ticket {
            ring: Cow::Owned(self.ring.into_owned()),
            ..self
        }
    }
}

/// Largest number of consumers that can lease slots of a ring. Further consumers can read, but a slot may be overwritten while they
/// read it.
pub const MAX_CONSUMERS: usize = 4;

/// Largest number of slots of a ring.
pub const MAX_SLOTS: usize = 60;

/// Largest size of the text that describes a payload, bytes.
pub const MAX_DESCRIPTOR: usize = 1020;
