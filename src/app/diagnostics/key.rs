//! Metadata keys of the messages of the output `diagnostics`.

robocache_stream::keys! {
    /// The node that diagnostics are of.
    node: String,
    /// Level of diagnostics: 0 ok, 1 warn, 2 error, 3 stale, that of the worst input.
    level: i64,
    /// The reason why diagnostics have their level.
    message: String,
    /// Observations, sets and grids that the node has published so far.
    observations: i64,
    /// The same in a second, of the last seconds.
    observation_rate_hz: f64,
    /// From the target of an observation to the newest stamp that was seen when it was published, ns: the median.
    wait_p50_ns: i64,
    /// The same: one in a hundred is above.
    wait_p99_ns: i64,
    /// Time that the operations took for a result, us: the median.
    compute_p50_us: f64,
    /// The same: one in a hundred is above.
    compute_p99_us: f64,
    /// The most messages of one input that waited at once in the last second.
    queue_depth: i64,
}
