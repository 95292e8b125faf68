//! Stands in for [`cuda`](self) in a build without the feature `cuda`.

use super::{ResampleConfig, ResampleCounters, Trajectories};
use crate::ConfigError;
use robocache_device::cuda::{CudaError, Gpu};

/// There is no device to share among.
pub enum ShardedResampler {}

impl ShardedResampler {
    pub fn new(_: &ResampleConfig, _: &[Gpu], _: Option<usize>) -> Result<Self, ConfigError> {
        Err(ConfigError::new("device", CudaError.to_string()))
    }

    pub fn bytes_in_use(&self) -> usize {
        match *self {}
    }

    pub fn run(&mut self, _: &Trajectories<'_>, _: &mut [u8], _: &mut [u8]) -> Result<ResampleCounters, CudaError> {
        match *self {}
    }
}
