//! Metadata keys of a payload's form: those of observations, grids and attached messages that whoever reads one needs.

crate::keys! {
    /// Streams of an observation, in the order of the last axis.
    modalities: crate::Names,
    /// For each row and modality, target minus the newest sample at or before it, ns; -1 if there is none.
    age_ns: Vec<i64>,
    /// Rows of attached messages, one after the other: those of message u are `grid_offsets[u]..grid_offsets[u + 1]`.
    grid_offsets: Vec<i64>,
    /// Names of the channels of a voxel grid.
    channels: crate::Names,
    /// Min corner of a voxel grid, m.
    origin_m: Vec<f64>,
    /// Edges of a voxel, m.
    voxel_size_m: Vec<f64>,
    /// Cells of a voxel grid along x, y, z.
    grid_shape: Vec<i64>,
}
