//! Metadata keys for the form of a payload: those that a reader of observations, grids and attached messages needs.

crate::keys! {
    /// Names of the modalities of an observation, in the order of the last axis.
    modalities: crate::Names,
    /// Age of each row and modality, ns: the target minus the newest sample at or before the target; -1 without such a sample.
    age_ns: Vec<i64>,
    /// Offsets of attached messages in the rows: message u has the rows `grid_offsets[u]..grid_offsets[u + 1]`.
    grid_offsets: Vec<i64>,
    /// Names of the channels of a voxel grid.
    channels: crate::Names,
    /// Corner of a voxel grid with the least coordinates, m.
    origin_m: Vec<f64>,
    /// Edge lengths of a voxel along x, y, z, m.
    voxel_size_m: Vec<f64>,
    /// Numbers of cells of a voxel grid along x, y, z.
    grid_shape: Vec<i64>,
}
