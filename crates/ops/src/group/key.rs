//! Metadata keys of the messages of a set.

robocache_stream::keys! {
    /// Number of sets before the one that the message belongs to.
    group: i64,
    /// The newest time in the message's set, ns.
    group_timestamp_ns: i64,
    /// The newest time in the message's set minus the oldest, ns.
    group_span_ns: i64,
}
