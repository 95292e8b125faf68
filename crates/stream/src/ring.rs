//! Metadata keys of a payload that is in a ring.

crate::keys! {
    /// Kind of ring memory that holds the payload, `shared` or `cuda`; absent if the payload is in the message.
    residence: String,
    /// Name of the ring and of its socket. A message in which this key is not a String is refused.
    ring: String,
    /// Index of the slot in the ring.
    slot: i64,
    /// Generation of the slot when the payload was complete: the slot holds the payload until its generation changes.
    generation: i64,
    /// Number of bytes of the payload.
    nbytes: i64,
}
