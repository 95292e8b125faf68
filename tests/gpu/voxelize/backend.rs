//! The cases that both backends are held to run on the device here.

use crate::support::gpu;
use robocache::device::{DeviceChoice, Placement};

/// Where the cases run: without a device on the CPU, and a line says that they were skipped.
pub fn placement() -> Placement {
    match gpu() {
        Some(_) => Placement::resolve(DeviceChoice::Cuda(None), None).unwrap(),
        None => Placement::cpu("there is no device"),
    }
}
