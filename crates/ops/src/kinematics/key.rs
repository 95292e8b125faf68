//! Metadata keys of the products of kinematics.

robocache_stream::keys! {
    /// Rows with a joint, or a coordinate of a pose, outside the range that is computed with.
    dropped_range: i64,
    /// Rows with a joint that is more than a full turn beyond its limits: it may be in degrees.
    implausible: i64,
    /// Poses for which no joints were found.
    dropped_unreachable: i64,
    /// Number of targets so far whose joints could not follow from the joints before.
    branch: i64,
    /// Distance of each row's best joints from the target, m; NaN if the row is not a target.
    position_error_m: Vec<f64>,
    /// Rotation of each row's best joints from the target as a chord, rad; NaN if the row is not a target.
    rotation_error_rad: Vec<f64>,
}
