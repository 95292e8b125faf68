//! The cases that both backends are held to run on the device here.

use crate::support::gpu;
use crate::support::kind;
use robocache::device::{DeviceChoice, Placement};

/// Placement of the cases: without a device on the CPU, and a line says that they were skipped.
pub fn placement() -> Placement {
    match gpu() {
        Some(_) => Placement::resolve(DeviceChoice::Gpu(kind(), None), None).unwrap(),
        None => Placement::cpu("there is no device"),
    }
}
