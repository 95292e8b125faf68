//! Metadata keys of messages whose stamps the operation `clock` converted to host time.

robocache_stream::keys! {
    /// Stamp of the message before the conversion, by the clock of its device, ns.
    device_timestamp_ns: i64,
    /// Offset between the clocks: host time minus device time, ns.
    clock_offset_ns: i64,
    /// Skew of the device's clock, millionths: host seconds per device second, minus 1.
    clock_skew_ppm: f64,
    /// Uncertainty of the estimate of a device's clock, ns, as a root mean square.
    clock_sigma_ns: i64,
    /// 1 if the stamp in host time was computed from the device's stamp; 0 if it is the time of publication, less the latency.
    clock_locked: i64,
}
