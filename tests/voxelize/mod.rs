//! The voxelizer, compared first with grids that a reader can check by hand, then with a simple oracle.
//!
//! `tests/gpu/voxelize` runs the same cases on a device, with a `backend` of its own.
mod backend {
    use robocache::device::Placement;

    /// Returns the placement of all voxelizers in the shared cases: the CPU.
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
