//! Metadata keys of a payload that is in a ring.

crate::keys! {
    /// Place of the payload, if not in the message: `shared` or `cuda`, memory of a ring.
    residence: String,
    /// The name of the ring, which is the name of its socket, too. A message in which it is none is refused.
    ring: String,
    /// The slot of the ring.
    slot: i64,
    /// The generation of the slot: it holds this payload as long as it has that.
    generation: i64,
    /// Bytes of the payload.
    nbytes: i64,
}
