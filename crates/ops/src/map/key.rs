//! Metadata keys of a map's messages. Counts are since the previous message of the map.

robocache_stream::keys! {
    /// Number of depth images and clouds that were fused into the map.
    frames_fused: i64,
    /// Number of late depth images and clouds, which were dropped because data of the same or a later time
    /// was already processed.
    late_frames: i64,
    /// Number of fused depth images and clouds whose pose was extrapolated from an older sample.
    frames_extrapolated: i64,
    /// Number of depth images and clouds that were dropped because the sensor's pose at their time is unknown.
    dropped_unposed: i64,
    /// Index of the map's first cell along x, y and z, counted from the map's anchor, a fixed point of the world.
    corner_cell: Vec<i64>,
    /// Number of cells that were cleared because the map moved.
    cells_scrolled: i64,
    /// Number of rays of clouds that were traced through the map.
    rays: i64,
    /// Number of traced rays that pass through cells outside the map, or begin or end there.
    rays_clipped: i64,
}
