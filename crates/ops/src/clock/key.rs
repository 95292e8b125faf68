//! Metadata keys of a message whose stamp is on the clock of the host.

robocache_stream::keys! {
    /// The stamp that a message had by the clock of its device, ns.
    device_timestamp_ns: i64,
    /// Host time minus the time of the device, ns.
    clock_offset_ns: i64,
    /// Excess over a second that passes on the host in a second of the device, millionths.
    clock_skew_ppm: f64,
    /// Uncertainty of the estimate of a device's clock, ns.
    clock_sigma_ns: i64,
    /// 0/1: whether a stamp is of an estimate, and not the time of publication.
    clock_locked: i64,
}
