//! The CUDA voxelizer in the place of the CPU's, for the cases that both are held to.

use crate::support::gpu;
use robocache::device::Element;
use robocache::ops::ConfigError;
use robocache::ops::voxelize::cuda::{CudaVoxelizer, VoxelizeError};
use robocache::ops::voxelize::{
    Channel, Cloud, CloudError, CpuVoxelizer, VoxelCounters, VoxelGrid, VoxelLayout, VoxelizeConfig,
};
use robocache::stream::Layout;
use std::cell::Cell;

/// Without a device the cases run on the CPU, and a line says that they were skipped.
pub enum Voxelizer {
    Cuda(Box<CudaVoxelizer>, VoxelLayout, Cell<usize>),
    Cpu(Box<CpuVoxelizer>),
}

use Voxelizer::{Cpu, Cuda};

impl Voxelizer {
    pub fn new(config: &VoxelizeConfig) -> Result<Self, ConfigError> {
        let Some(gpu) = gpu() else {
            return Ok(Cpu(Box::new(CpuVoxelizer::new(config)?)));
        };
        match CudaVoxelizer::new(config, &gpu, None) {
            Ok(voxelizer) => Ok(Cuda(Box::new(voxelizer), config.layout, Cell::new(0))),
            Err(VoxelizeError::Config(error)) => Err(error),
            Err(error) => panic!("{error}"),
        }
    }

    pub fn grid(&self) -> &VoxelGrid {
        match self {
            Cuda(voxelizer, ..) => voxelizer.grid(),
            Cpu(voxelizer) => voxelizer.grid(),
        }
    }

    pub fn channels(&self) -> &[Channel] {
        match self {
            Cuda(voxelizer, ..) => voxelizer.channels(),
            Cpu(voxelizer) => voxelizer.channels(),
        }
    }

    pub fn begin(&mut self) {
        match self {
            Cuda(voxelizer, ..) => voxelizer.begin().unwrap(),
            Cpu(voxelizer) => voxelizer.begin(),
        }
    }

    pub fn check(&self, cloud: &Cloud<'_>) -> Result<(), CloudError> {
        match self {
            Cuda(voxelizer, ..) => voxelizer.check(cloud),
            Cpu(voxelizer) => voxelizer.check(cloud),
        }
    }

    pub fn add(&mut self, input: usize, cloud: &Cloud<'_>) -> Result<(), CloudError> {
        match self {
            // SAFETY: the cases keep their messages.
            Cuda(voxelizer, ..) => match unsafe { voxelizer.add(input, cloud) } {
                Err(VoxelizeError::Cloud(error)) => Err(error),
                other => {
                    other.unwrap();
                    Ok(())
                }
            },
            Cpu(voxelizer) => voxelizer.add(input, cloud),
        }
    }

    pub fn finish(&mut self) -> VoxelCounters {
        match self {
            Cuda(voxelizer, ..) => voxelizer.finish().unwrap(),
            Cpu(voxelizer) => voxelizer.finish(),
        }
    }

    pub fn unusable(&self) -> &[u64] {
        match self {
            Cuda(voxelizer, ..) => voxelizer.unusable().unwrap(),
            Cpu(voxelizer) => voxelizer.unusable(),
        }
    }

    pub fn voxels(&self) -> usize {
        match self {
            Cuda(_, VoxelLayout::Bits, occupied) => occupied.get(),
            Cuda(voxelizer, ..) => voxelizer.voxels(),
            Cpu(voxelizer) => voxelizer.voxels(),
        }
    }

    pub fn layout(&self) -> &Layout {
        match self {
            Cuda(voxelizer, ..) => voxelizer.layout(),
            Cpu(voxelizer) => voxelizer.layout(),
        }
    }

    pub fn write_coo(&self, coords: &mut [i32], features: &mut [f32]) {
        match self {
            Cuda(voxelizer, ..) => voxelizer.write_coo(coords, features).unwrap(),
            Cpu(voxelizer) => voxelizer.write_coo(coords, features),
        }
    }

    pub fn write_bits(&self, out: &mut [u8]) {
        match self {
            Cuda(voxelizer, _, occupied) => {
                voxelizer.write_bits(out).unwrap();
                occupied.set(out.iter().map(|byte| byte.count_ones() as usize).sum());
            }
            Cpu(voxelizer) => voxelizer.write_bits(out),
        }
    }

    pub fn saturated(&self) -> u64 {
        match self {
            Cuda(voxelizer, ..) => voxelizer.saturated(),
            Cpu(voxelizer) => voxelizer.saturated(),
        }
    }

    pub fn write_dense<E: Element>(&self, out: &mut [E]) {
        match self {
            Cuda(voxelizer, ..) => voxelizer.write_dense(out).unwrap(),
            Cpu(voxelizer) => voxelizer.write_dense(out),
        }
    }
}
