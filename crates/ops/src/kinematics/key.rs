//! Metadata keys of what kinematics makes.

robocache_stream::keys! {
    /// Rows with a joint, or a coordinate of a pose, past what is computed with.
    dropped_range: i64,
    /// Rows with a joint that is more than a full turn beyond its limits: it may be in degrees.
    implausible: i64,
    /// Poses for which no joints were found.
    dropped_unreachable: i64,
    /// Targets so far for which the joints could not follow from those before.
    branch: i64,
    /// For each row, the distance of the best joints from the target, m; NaN if the row is not a target.
    position_error_m: Vec<f64>,
    /// For each row, the rotation of the best joints from the target as a chord, rad; NaN if the row is not a target.
    rotation_error_rad: Vec<f64>,
}
