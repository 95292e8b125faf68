//! Metadata keys of the messages of the output `diagnostics`.

robocache_stream::keys! {
    /// Id of the node that the diagnostics describe.
    node: String,
    /// Level of the worst input: 0 ok, 1 warn, 2 error, 3 stale.
    level: i64,
    /// Reason for the level, as text that names the input; empty if nothing is wrong.
    message: String,
    /// Number of observations, message sets and voxel grids that the node has published since its start.
    observations: i64,
    /// Observations, message sets and voxel grids per second, over the last 5 to 10 seconds.
    observation_rate_hz: f64,
    /// Median time from an observation's target to the newest stamp that had been received when it was published, ns.
    wait_p50_ns: i64,
    /// 99th percentile of the time from an observation's target to the newest stamp that had been received when it was
    /// published, ns.
    wait_p99_ns: i64,
    /// Median compute time of a result, over all operations, us.
    compute_p50_us: f64,
    /// 99th percentile of the compute time of a result, over all operations, us.
    compute_p99_us: f64,
    /// Largest number of messages of one input that waited in its queue at the same time, since the last report.
    queue_depth: i64,
}
