//! Metadata keys that results of several operations have.

robocache_stream::keys! {
    /// Number of clock jumps so far: of the streams of an observation or of a set, or of the clock of a device.
    epoch: i64,
    /// Name of the device on which the result was computed.
    device: String,
    /// Time that the computation of the result took, us.
    compute_us: f64,
    /// Device memory that the operation holds, bytes.
    device_bytes: i64,
    /// Number of points or samples that were dropped because a value is NaN, infinite or null.
    dropped_nonfinite: i64,
    /// Number of points that were dropped past `max_voxels`, or of results that the element type can't hold.
    dropped_overflow: i64,
}
