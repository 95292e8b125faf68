//! The voxelizer on a device: every case of the CPU's suite, and random clouds compared with the CPU.

mod backend;
mod batches;
#[path = "../../voxelize/cases.rs"]
mod cases;
#[path = "../../voxelize/messages.rs"]
mod messages;
#[path = "../../voxelize/oracle.rs"]
mod oracle;
#[path = "../../voxelize/properties.rs"]
mod properties;
mod random;
#[path = "../../voxelize/recordings.rs"]
mod recordings;
mod resident;
#[path = "../../voxelize/support.rs"]
mod support;
