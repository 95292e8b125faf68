//! Metadata keys of observations.

robocache_stream::keys! {
    /// Columns of an observation: modality m is `offsets[m]..offsets[m + 1]`.
    offsets: Vec<i64>,
    /// Samples that came after their target was sent, so far.
    late_samples: i64,
    /// Trigger of an observation: `grid`, `stream`, `request` or `timer`.
    trigger: String,
    /// Excess of the newest sample over an observation's target when it falls due, if all samples came in the order of
    /// their times, ns.
    wait_ns: i64,
    /// 0 if an observation's target depends on when a request or a tick came.
    deterministic: i64,
    /// The reason why a request gets no observation.
    error: String,
    /// Outputs of the attached streams of an observation.
    attached: robocache_stream::Names,
    /// For each row and attached stream, which of its distinct messages; -1 if there is none.
    grid_index: Vec<i64>,
    /// For each row and attached stream, target minus the time of its message, ns; -1 if there is none.
    grid_age_ns: Vec<i64>,
}
