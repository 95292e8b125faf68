//! Metadata keys of voxel grids.

robocache_stream::keys! {
    /// Points of all clouds: the kept points and all dropped ones.
    points_in: i64,
    /// Points that are in the grid.
    points_kept: i64,
    /// Points outside the grid.
    dropped_outside: i64,
    /// Number of values of each field that the channels leave out.
    unusable: Vec<i64>,
    /// Values of a dense grid that its element type can't hold.
    saturated: i64,
    /// Names of the inputs of a voxel grid.
    inputs: robocache_stream::Names,
    /// Validity of each input: 1 if a cloud of it is in the grid, else 0.
    inputs_valid: Vec<i64>,
    /// Age of each input's cloud: `timestamp_ns` minus the stamp of the cloud, ns; -1 if the grid has no cloud of the
    /// input.
    inputs_age_ns: Vec<i64>,
}
