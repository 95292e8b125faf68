//! The voxelizer against clouds whose answer a reader can check by hand, then against an obviously right oracle.
//!
//! The same cases are held against the CUDA backend by `tests/gpu/voxelize`, which has a `backend` of its own.
mod backend {
    use robocache::device::Placement;

    /// Placement of the cases.
    pub fn placement() -> Placement {
        Placement::cpu("a test")
    }
}
mod cases;
mod config;
mod grids;
mod messages;
mod oracle;
mod properties;
mod recordings;
mod support;
