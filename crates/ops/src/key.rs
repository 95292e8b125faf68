//! Metadata keys of the results of several operations.

robocache_stream::keys! {
    /// Number of clock jumps so far: of the streams of an observation or of a message set, or of a device's clock.
    epoch: i64,
    /// Name of the device on which the result was computed, such as `cpu`.
    device: String,
    /// Time that the computation of the result took, us.
    compute_us: f64,
    /// Size of the device memory that the operation uses, bytes.
    device_bytes: i64,
    /// Number of points or samples that were dropped because a value is NaN, infinite or null.
    dropped_nonfinite: i64,
    /// Number of points that were dropped because the grid has more than `max_voxels` cells with points, or of results that the
    /// element type can't hold.
    dropped_overflow: i64,
}
