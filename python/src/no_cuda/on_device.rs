//! In place of `cuda/on_device.rs` where the package was built without CUDA.

use crate::array::Array;
use crate::batch::Form;
use crate::cloud::{CloudArrays, Made};
use crate::stream::Stream;
use crate::tensor::Tensor;
use pyo3::prelude::*;
use robocache::ops::resample::ResampleConfig;
use robocache::ops::voxelize::VoxelizeConfig;

pub fn resample(
    stream: &Stream,
    _: &ResampleConfig,
    _: &Form,
    _: &Array,
    _: &Array,
    _: &Array,
) -> PyResult<(Tensor, Tensor)> {
    match *stream {}
}

pub fn voxelize(stream: &Stream, _: &VoxelizeConfig, _: &CloudArrays) -> PyResult<Made> {
    match *stream {}
}
