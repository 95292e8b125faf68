//! Metadata keys of the outputs of the operation `kinematics`.

robocache_stream::keys! {
    /// Number of rows dropped because of a joint value or a pose coordinate that is too large to compute with.
    dropped_range: i64,
    /// Number of rows with a joint more than a full turn beyond its limits, which suggests that it is in degrees.
    implausible: i64,
    /// Number of poses for which no joints were found.
    dropped_unreachable: i64,
    /// Number of jumps of the joints so far: targets that could only be reached by a step above `max_joint_step` from the
    /// previous joints.
    branch: i64,
    /// Distance of the tool from the target at the best joints found, for each row, m; NaN if the row is not a target.
    position_error_m: Vec<f64>,
    /// Rotation of the tool from the target at the best joints found, for each row, as the chord 2 sin(angle / 2), rad. NaN if
    /// the row is not a target.
    rotation_error_rad: Vec<f64>,
}
