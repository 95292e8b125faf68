//! Metadata keys of observations.

robocache_stream::keys! {
    /// First column of each modality of an observation, and last the number of columns: modality m has columns
    /// `offsets[m]..offsets[m + 1]`.
    offsets: Vec<i64>,
    /// Number of samples of all streams, so far, that arrived after their target was sent, or lie closer than `min_period_ms` to
    /// another sample.
    late_samples: i64,
    /// Trigger of an observation: `grid`, `stream`, `request` or `timer`.
    trigger: String,
    /// Distance from an observation's target to the newest sample of any stream that is waited for, when the target falls due, ns.
    /// The value supposes that all samples came in the order of their times.
    wait_ns: i64,
    /// 0 if the target of an observation depends on the time at which a request or a tick arrived; 1 if it follows from stamps
    /// alone.
    deterministic: i64,
    /// Reason why a request gets no observation, as text.
    error: String,
    /// Names of the outputs of the attached streams of an observation.
    attached: robocache_stream::Names,
    /// Index of each row's message among the distinct messages of each attached stream, `[T, A]` row-major; -1 if there is none.
    grid_index: Vec<i64>,
    /// Age of each row's message of each attached stream: the row's time minus the message's, ns, `[T, A]` row-major; -1 if there
    /// is none.
    grid_age_ns: Vec<i64>,
}
