//! Metadata keys of resampled batches.

robocache_stream::keys! {
    /// Targets of a batch.
    targets: i64,
    /// Targets of a batch that have no value.
    invalid: i64,
    /// Rows of a batch that make no sense.
    refused_rows: i64,
}
