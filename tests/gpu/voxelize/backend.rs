//! The backend of the cases that CPU and device share: here the device.

use crate::support::gpu;
use crate::support::kind;
use robocache::device::{DeviceChoice, Placement};

/// Placement of the cases on the first device. Without a device it is the CPU, and a line says that the cases were skipped.
pub fn placement() -> Placement {
    match gpu() {
        Some(_) => Placement::resolve(DeviceChoice::Gpu(kind(), None), None).unwrap(),
        None => Placement::cpu("there is no device"),
    }
}
