//! Metadata keys of resampled batches.

robocache_stream::keys! {
    /// Number of targets of a batch, over all rows.
    targets: i64,
    /// Number of targets of a batch without a valid value.
    invalid: i64,
    /// Number of rows of a batch that were refused because of a mistake, such as times that go back.
    refused_rows: i64,
}
