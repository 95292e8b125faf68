//! Stands in for [`cuda`](self) in a build without the feature `cuda`.

use super::{CloudError, ConfigError, VoxelCounters, VoxelizeConfig};
use robocache_device::Element;
use robocache_device::cuda::{Budget, CudaError, DeviceBuf, Gpu};
use robocache_stream::{Layout, Message};

/// A grid that could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VoxelizeError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

/// There is no device to make grids on.
pub enum CudaVoxelizer {}

impl CudaVoxelizer {
    pub fn new(_: &VoxelizeConfig, gpu: &Gpu, _: Option<usize>) -> Result<Self, VoxelizeError> {
        match *gpu {}
    }

    pub fn gpu(&self) -> &Gpu {
        match *self {}
    }

    pub fn used_bytes(&self) -> usize {
        match *self {}
    }

    pub fn budget(&self) -> &Budget {
        match *self {}
    }

    pub fn gather<'a>(
        &mut self,
        _: impl IntoIterator<Item = (usize, &'a Message)>,
        _: impl FnMut(usize, CloudError),
    ) -> Result<VoxelCounters, CudaError> {
        match *self {}
    }

    pub fn unusable(&self) -> Result<&[u64], CudaError> {
        match *self {}
    }

    pub fn saturated(&self) -> u64 {
        match *self {}
    }

    pub fn layout(&self) -> &Layout {
        match *self {}
    }

    pub fn write_coo(&self, _: &mut [i32], _: &mut [f32]) -> Result<(), CudaError> {
        match *self {}
    }

    pub fn write_bits(&self, _: &mut [u8]) -> Result<(), CudaError> {
        match *self {}
    }

    pub fn write_dense<E: Element>(&self, _: &mut [E]) -> Result<(), CudaError> {
        match *self {}
    }

    pub fn write_on_device(&mut self, _: &mut DeviceBuf) -> Result<(), CudaError> {
        match *self {}
    }
}
