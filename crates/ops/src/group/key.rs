//! Metadata keys that the operation `group` adds to the messages of a set.

robocache_stream::keys! {
    /// Index of the set that the message belongs to, counted from 0.
    group: i64,
    /// Time of the newest message of the set, ns.
    group_timestamp_ns: i64,
    /// Time from the oldest to the newest message of the set, ns.
    group_span_ns: i64,
}
