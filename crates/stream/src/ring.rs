//! Metadata keys that locate a payload outside its message: in a slot of a ring, memory that sender and receivers share.

crate::keys! {
    /// Kind of memory that the ring has, `shared` (host) or `cuda` (GPU); absent if the payload is in the message.
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
