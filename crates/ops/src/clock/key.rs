//! Metadata keys of a message whose stamp is on the clock of the host.

robocache_stream::keys! {
    /// Stamp that the message had by the clock of its device, ns.
    device_timestamp_ns: i64,
    /// Host time minus the time of the device, ns.
    clock_offset_ns: i64,
    /// Skew of a device's clock: seconds of the host in a second of the device, less 1, millionths.
    clock_skew_ppm: f64,
    /// Uncertainty of the estimate of a device's clock, ns, as a root mean square.
    clock_sigma_ns: i64,
    /// 1 if the stamp follows an estimate of the clock, 0 if it is the time of publication less the latency.
    clock_locked: i64,
}
