//! Metadata keys that results of several operations have.

robocache_stream::keys! {
    /// Number of clock jumps so far: of an observation's grid, of a set's streams, of a device.
    epoch: i64,
    /// Device on which the result was computed.
    device: String,
    /// Time that the operation took, us.
    compute_us: f64,
    /// Device memory that the operation holds, bytes.
    device_bytes: i64,
    /// Points or samples with a value that is NaN, infinite or null.
    dropped_nonfinite: i64,
    /// Points past `max_voxels`, or results that the element type can't hold.
    dropped_overflow: i64,
}
