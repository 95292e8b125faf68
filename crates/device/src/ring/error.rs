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
        /// The ring.
        ring: String,
        /// Action that failed.
        what: &'static str,
        /// The cause.
        error: io::Error,
    },
    /// The ring is on a device, and the device failed.
    #[error("ring `{ring}`: {error}")]
    Device {
        /// The ring.
        ring: String,
        /// The device's error.
        error: DeviceFault,
    },
    /// The process that published the payload is gone, or has replaced the ring.
    #[error("ring `{ring}`: its producer is gone")]
    ProducerGone {
        /// The ring.
        ring: String,
    },
    /// The payload can't be held in its slot: as many other consumers as a ring allows can hold slots already.
    #[error("ring `{ring}`: {MAX_CONSUMERS} other consumers can hold its slots, and this one can't (allowed: a copy)")]
    NoLease {
        /// The ring.
        ring: String,
    },
    /// The producer belongs to another user.
    #[error("ring `{ring}`: its producer is of user {came} (allowed: user {expected}, that of this process)")]
    OtherUser {
        /// The ring.
        ring: String,
        /// The user of the producer.
        came: u32,
        /// The user of this process.
        expected: u32,
    },
    /// The producer does not let this process in.
    #[error("ring `{ring}`: its producer refuses this process: {why}")]
    Refused {
        /// The ring.
        ring: String,
        /// Answer of the producer.
        why: &'static str,
    },
    /// The process has too few file descriptors left to open the ring.
    #[error("ring `{ring}`: too few file descriptors are left: opening the ring needs up to four (see `ulimit -n`)")]
    NoDescriptors {
        /// The ring.
        ring: String,
    },
    /// The producer's message is not valid for this version of the ring.
    #[error("ring `{ring}`: {what} (allowed: robocache.ring/1)")]
    Protocol {
        /// The ring.
        ring: String,
        /// The message that came.
        what: String,
    },
    /// The ring is on a device that this process does not see.
    #[error(
        "ring `{ring}`: it is on the device {uuid}, which this process does not see \
         (allowed: one of its own; see CUDA_VISIBLE_DEVICES, or have the producer publish on the host)"
    )]
    OtherDevice {
        /// The ring.
        ring: String,
        /// The UUID of the device.
        uuid: String,
    },
    /// The slot holds another payload by now: the consumer came too late.
    #[error(
        "ring `{ring}`: slot {slot} holds generation {came}, not {expected}: the payload was overwritten before it was taken"
    )]
    Stale {
        /// The ring.
        ring: String,
        /// The slot.
        slot: usize,
        /// The generation of the message.
        expected: u64,
        /// The generation of the slot.
        came: u64,
    },
    /// The payload was overwritten while it was read.
    #[error("ring `{ring}`: slot {slot} was overwritten while it was read")]
    Torn {
        /// The ring.
        ring: String,
        /// The slot.
        slot: usize,
    },
    /// The ticket can't be one of the ring.
    #[error("ring `{ring}`: {what}")]
    NoSuchSlot {
        /// The ring.
        ring: String,
        /// The problem: what came, and what is allowed.
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

    /// Returns a function that wraps a device's error.
    pub(super) fn device(ring: &str) -> impl Fn(DeviceFault) -> Self {
        move |error| Self::Device {
            ring: ring.to_owned(),
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
