//! Metadata keys of the messages of a set.

robocache_stream::keys! {
    /// Number of sets before the set of the message: 0 for the first set.
    group: i64,
    /// Time of the newest message of the set, ns.
    group_timestamp_ns: i64,
    /// Distance from the oldest to the newest message of the set, ns.
    group_span_ns: i64,
}
