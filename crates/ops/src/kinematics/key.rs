//! Metadata keys of the products of kinematics.

robocache_stream::keys! {
    /// Number of rows with a joint, or a coordinate of a pose, outside the range that kinematics is computed for.
    dropped_range: i64,
    /// Number of rows with a joint that is more than a full turn beyond its limits: it may be in degrees.
    implausible: i64,
    /// Number of poses for which no joints were found.
    dropped_unreachable: i64,
    /// Number of jumps of the joints so far: targets whose joints could not be reached from the previous joints.
    branch: i64,
    /// Distance of the tool, at each row's best joints, from the target, m; NaN if the row is not a target.
    position_error_m: Vec<f64>,
    /// Rotation of the tool, at each row's best joints, from the target as a chord, rad; NaN if the row is not a
    /// target.
    rotation_error_rad: Vec<f64>,
}
