//! What is on which device.

use super::support::config;
use crate::support::{gpu, ran};
use robocache::device::Dtype;
use robocache::device::cuda::{Budget, CudaError, DeviceBuf, Gpu, device_count};
use robocache::ops::voxelize::{DeviceClouds, DeviceField, VoxelizeBatch, VoxelizeError};

#[test]
fn points_of_another_device_are_refused() {
    let Some(gpu) = gpu() else { return };
    if device_count().unwrap() < 2 {
        return;
    }
    let other = Gpu::open(1).unwrap();
    let mut buffer = DeviceBuf::new(&other, &Budget::new(None));
    buffer.reserve(1200).unwrap();
    let fields = ["x", "y", "z"].map(|name| DeviceField {
        name,
        dtype: Dtype::Float32,
        at: 0,
        stride: 12,
    });
    let clouds = DeviceClouds::new(&buffer, 1, 100, &fields).unwrap();
    let mut batch = VoxelizeBatch::new(&config(0.0, 1.0, [4, 4, 4], &["count"]), &gpu, None).unwrap();
    let Err(error) = batch.run_device(&clouds) else {
        panic!("it was taken")
    };
    assert_eq!(
        error,
        VoxelizeError::Cuda(CudaError::WrongDevice { expected: 0, came: 1 })
    );
    ran(&gpu, "voxelize: another device", 1);
}
