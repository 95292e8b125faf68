//! Metadata keys of observations.

robocache_stream::keys! {
    /// Columns of an observation: modality m is `offsets[m]..offsets[m + 1]`.
    offsets: Vec<i64>,
    /// Samples that came after their target was sent, so far.
    late_samples: i64,
    /// Trigger of an observation: `grid`, `stream`, `request` or `timer`.
    trigger: String,
    /// Time from an observation's target to the newest sample when the target falls due, if all samples came in the order of
    /// their times, ns.
    wait_ns: i64,
    /// 0 if an observation's target depends on when a request or a tick came.
    deterministic: i64,
    /// The reason why a request gets no observation.
    error: String,
    /// Names of the outputs of the attached streams of an observation.
    attached: robocache_stream::Names,
    /// Index of each row's message among the distinct messages of each attached stream; -1 if there is none.
    grid_index: Vec<i64>,
    /// Age of each row's message of each attached stream: target minus message time, ns; -1 if there is none.
    grid_age_ns: Vec<i64>,
}
