//! Metadata keys that describe the payloads of observations, voxel grids and attached messages: names, ages, row offsets and
//! grid geometry.

crate::keys! {
    /// Names of an observation's modalities, in the order of their columns in the payload.
    modalities: crate::Names,
    /// Age of each modality in each row of an observation, row-major, ns: the row's target time minus the time of the newest
    /// sample at or before it. -1 without such a sample.
    age_ns: Vec<i64>,
    /// Row offsets of the messages that `attach` ties to an observation and that are stored one after the other. Message u has
    /// the rows `grid_offsets[u]..grid_offsets[u + 1]` of the attached output.
    grid_offsets: Vec<i64>,
    /// Names of a voxel grid's channels. Channels are the grid's first axis or, in the layout `coo`, the features of
    /// each voxel.
    channels: crate::Names,
    /// Minimum corner x, y, z of a voxel grid, m. If the corner moved among attached messages, three numbers for each message.
    origin_m: Vec<f64>,
    /// Edge lengths of a voxel along x, y and z, m.
    voxel_size_m: Vec<f64>,
    /// Number of cells of a voxel grid along each of x, y and z.
    grid_shape: Vec<i64>,
}
