//! Metadata keys of a payload that is in a ring.

crate::keys! {
    /// Kind of ring memory that holds the payload, `shared` or `cuda`; absent if the payload is in the message.
    residence: String,
    /// Name of the ring and of its socket. A message in which this key is not a String is refused.
    ring: String,
    /// Index, in the ring, of the slot that holds the payload.
    slot: i64,
    /// Generation of the slot when the payload was complete. The slot holds the payload until its generation changes.
    generation: i64,
    /// Size of the payload in the slot, bytes.
    nbytes: i64,
}
