//! Errors of rings. Every error names its ring, and a refused value comes with the allowed values.

use super::MAX_CONSUMERS;
use crate::gpu::DeviceFault;
use std::io;

/// The reason why a payload can't be published in a ring, or taken from one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// A call of the operating system failed.
    #[error("ring `{ring}`: {what}: {error}")]
    Os {
        /// Name of the ring.
        ring: String,
        /// Problem in words, such as `its socket can't be bound`.
        what: &'static str,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The ring is on a device, and the device failed.
    #[error("ring `{ring}`: {what}: {error}")]
    Device {
        /// Name of the ring.
        ring: String,
        /// Problem in words, such as `its memory can't be mapped`.
        what: &'static str,
        /// The device's error.
        error: DeviceFault,
    },
    /// The process that published the payload is gone, or has replaced the ring.
    #[error(
        "ring `{ring}`: its producer is gone or has replaced the ring, and the message is lost \
         (needed: a producer that runs on this host; between containers `--network=host`)"
    )]
    ProducerGone {
        /// Name of the ring.
        ring: String,
    },
    /// The payload can't be held in its slot, since [`MAX_CONSUMERS`] other consumers can hold slots already. A copy of the payload
    /// is possible.
    #[error(
        "ring `{ring}`: {MAX_CONSUMERS} other consumers can hold its slots, and this one can't (allowed: a copy, by `copy=True`)"
    )]
    NoLease {
        /// Name of the ring.
        ring: String,
    },
    /// The producer belongs to another user.
    #[error("ring `{ring}`: its producer is of user {came} (allowed: user {expected}, that of this process)")]
    OtherUser {
        /// Name of the ring.
        ring: String,
        /// User id of the producer's process.
        came: u32,
        /// User id of this process.
        expected: u32,
    },
    /// The producer refuses the connection of this process.
    #[error("ring `{ring}`: its producer refuses this process: {why}")]
    Refused {
        /// Name of the ring.
        ring: String,
        /// Reason that the producer gave, in words.
        why: &'static str,
    },
    /// The process has too few file descriptors left to open the ring.
    #[error("ring `{ring}`: too few file descriptors are left: opening the ring needs up to four (raise `ulimit -n`)")]
    NoDescriptors {
        /// Name of the ring.
        ring: String,
    },
    /// The producer's message is not valid for this version of the ring.
    #[error("ring `{ring}`: {what} (allowed: robocache.ring/1; both ends need the same version of robocache)")]
    Protocol {
        /// Name of the ring.
        ring: String,
        /// Description of the producer's message that is not valid.
        what: String,
    },
    /// The ring is on a device that this process does not see.
    #[error(
        "ring `{ring}`: it is on the device {uuid}, which this process does not see \
         (allowed: one of its own; see CUDA_VISIBLE_DEVICES, or have the producer publish on the host)"
    )]
    OtherDevice {
        /// Name of the ring.
        ring: String,
        /// UUID of the device that holds the ring, as `nvidia-smi -L` prints it.
        uuid: String,
    },
    /// The payload was overwritten before it was taken: the slot's generation is not the ticket's.
    #[error(
        "ring `{ring}`: slot {slot} holds generation {came}, not {expected}: the payload was overwritten before it was taken, \
         and its message is lost (needed: more `slots` in the `residence` of its output, or `queue_size: 1` at a slow consumer)"
    )]
    Stale {
        /// Name of the ring.
        ring: String,
        /// Index of the slot.
        slot: usize,
        /// Generation that the ticket names.
        expected: u64,
        /// Generation that the slot holds.
        came: u64,
    },
    /// The payload was overwritten while it was read.
    #[error(
        "ring `{ring}`: slot {slot} was overwritten while it was read, and its message is lost \
         (needed: more `slots` in the `residence` of its output, or consumers that hold fewer of them)"
    )]
    Torn {
        /// Name of the ring.
        ring: String,
        /// Index of the slot.
        slot: usize,
    },
    /// The ticket names a slot, a generation or a size that the ring can't have.
    #[error("ring `{ring}`: {what}")]
    NoSuchSlot {
        /// Name of the ring.
        ring: String,
        /// Values of the ticket, and the values that the ring allows.
        what: String,
    },
}

impl RingError {
    pub(super) fn protocol(ring: &str, what: impl Into<String>) -> Self {
        Self::Protocol {
            ring: ring.to_owned(),
            what: what.into(),
        }
    }

    pub(super) fn no_descriptors(ring: &str) -> Self {
        Self::NoDescriptors { ring: ring.to_owned() }
    }

    pub(super) fn producer_gone(ring: &str) -> Self {
        Self::ProducerGone { ring: ring.to_owned() }
    }

    /// Returns a function that wraps a device's error. `what` is the problem in words.
    pub(super) fn device(ring: &str, what: &'static str) -> impl Fn(DeviceFault) -> Self {
        move |error| Self::Device {
            ring: ring.to_owned(),
            what,
            error,
        }
    }

    pub(super) fn os(ring: &str, what: &'static str, error: impl Into<io::Error>) -> Self {
        Self::Os {
            ring: ring.to_owned(),
            what,
            error: error.into(),
        }
    }
}
