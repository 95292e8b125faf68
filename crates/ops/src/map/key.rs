//! Metadata keys of maps. Counts are those since the message before.

robocache_stream::keys! {
    /// Number of depth images and clouds that were fused into the map.
    frames_fused: i64,
    /// Number of frames that were dropped because the map is past their time.
    late_frames: i64,
    /// Number of fused frames whose pose is that of an older sample.
    frames_extrapolated: i64,
    /// Number of frames that were dropped because a pose is missing at their time.
    dropped_unposed: i64,
    /// First cell of the map along x, y and z, counted from the map's anchor.
    corner_cell: Vec<i64>,
    /// Number of cells that the map forgot because it moved.
    cells_scrolled: i64,
    /// Number of rays that were walked through the map.
    rays: i64,
    /// Number of rays that left the map, or began or ended outside of it.
    rays_clipped: i64,
}
