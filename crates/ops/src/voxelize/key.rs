//! Metadata keys of voxel grids.

robocache_stream::keys! {
    /// Points that came: those kept and all dropped ones.
    points_in: i64,
    /// Points that are in the grid.
    points_kept: i64,
    /// Points outside the grid.
    dropped_outside: i64,
    /// For each field of the channels, its values that they leave out.
    unusable: Vec<i64>,
    /// Values of a dense grid that its element type can't hold.
    saturated: i64,
    /// Names of the inputs of a voxel grid.
    inputs: robocache_stream::Names,
    /// 0/1 for each input: whether a cloud of it is in the grid.
    inputs_valid: Vec<i64>,
    /// For each input, `timestamp_ns` minus the stamp of its cloud, ns; -1 if there is none.
    inputs_age_ns: Vec<i64>,
}
