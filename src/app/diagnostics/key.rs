//! Metadata keys of the messages of the output `diagnostics`.

robocache_stream::keys! {
    /// Node that the diagnostics describe.
    node: String,
    /// Level of the worst input: 0 ok, 1 warn, 2 error, 3 stale.
    level: i64,
    /// The reason for the level.
    message: String,
    /// Observations, sets and grids that the node has published so far.
    observations: i64,
    /// Observations, sets and grids per second, over the last seconds.
    observation_rate_hz: f64,
    /// Median time from the target of an observation to the newest stamp seen when it was published, ns.
    wait_p50_ns: i64,
    /// 99th percentile of the time from an observation's target to the newest stamp, ns.
    wait_p99_ns: i64,
    /// Median time that the operations took for a result, us.
    compute_p50_us: f64,
    /// 99th percentile of the time that the operations took for a result, us.
    compute_p99_us: f64,
    /// The most messages of one input that waited at once in the last second.
    queue_depth: i64,
}
