//! Metadata keys for the form of a payload: those that a reader of observations, grids and attached messages needs.

crate::keys! {
    /// Names of an observation's modalities, in the order of the columns.
    modalities: crate::Names,
    /// Age of each row and modality, row-major, ns: the target minus the time of the newest sample at or before the target; -1
    /// without such a sample.
    age_ns: Vec<i64>,
    /// Row offsets of messages that are attached one behind the other: message u has the rows
    /// `grid_offsets[u]..grid_offsets[u + 1]` of the attached output.
    grid_offsets: Vec<i64>,
    /// Names of a voxel grid's channels, in the order of its first axis or of its features.
    channels: crate::Names,
    /// Corner of a voxel grid with the least coordinates, m.
    origin_m: Vec<f64>,
    /// Edge lengths of a voxel along x, y and z, m.
    voxel_size_m: Vec<f64>,
    /// Number of cells of a voxel grid along each of x, y and z.
    grid_shape: Vec<i64>,
}
