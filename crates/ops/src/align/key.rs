//! Keys in the metadata of an observation.

robocache_stream::keys! {
    /// First column of each modality in the window, and last the number of columns: modality m has columns
    /// `offsets[m]..offsets[m + 1]`.
    offsets: Vec<i64>,
    /// Number of late samples so far, of all streams: at or before the newest observation sent, or closer than `min_period_ms`
    /// to another sample.
    late_samples: i64,
    /// Source of the observation's time: `grid` (whole multiples of the period), `stream`, `request` or `timer`.
    trigger: String,
    /// Time for which the observation waited for slower streams, by the stamps, ns: from its own time to the newest sample when
    /// it became due. Computed as if all samples arrived in the order of their times.
    wait_ns: i64,
    /// 1 if the observation's time follows from stamps alone; 0 if it depends on the arrival of a request or a timer tick.
    deterministic: i64,
    /// Reason why a request gets no observation, as text.
    error: String,
    /// Names of the outputs of the attached streams, in the order of `grid_index` and `grid_age_ns`.
    attached: robocache_stream::Names,
    /// Message in each of T rows from each of A attached streams, `[T, A]` row-major: its index among the distinct messages of
    /// that stream, or -1 without a message.
    grid_index: Vec<i64>,
    /// Age of each message in `grid_index`, `[T, A]` row-major, ns: time of the row minus time of the message, or -1
    /// without a message.
    grid_age_ns: Vec<i64>,
}
