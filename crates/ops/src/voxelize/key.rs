//! Metadata keys of voxel grids.

robocache_stream::keys! {
    /// Number of points of all clouds, kept or dropped.
    points_in: i64,
    /// Number of points inside the grid that are in the output.
    points_kept: i64,
    /// Number of points that were dropped because they are outside the grid.
    dropped_outside: i64,
    /// Number of unusable values of each field, which channels leave out: values that are not finite, or beyond the
    /// bound of the field's type.
    unusable: Vec<i64>,
    /// Number of values of a dense grid beyond the range of its element type, which are written as the type's greatest
    /// or least value.
    saturated: i64,
    /// Ids of the inputs of a voxel grid, in the order of `inputs_valid` and `inputs_age_ns`.
    inputs: robocache_stream::Names,
    /// Validity of each input: 1 if a cloud of it is in the grid, else 0.
    inputs_valid: Vec<i64>,
    /// Age of each input's cloud, ns: `timestamp_ns` minus the stamp of the cloud; -1 if the grid has no cloud
    /// of the input.
    inputs_age_ns: Vec<i64>,
}
