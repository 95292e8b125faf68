//! Measures an operation at growing sizes on the CPU and on a device, to find the size from which a device is faster. Also
//! measures the gain by several devices. Times are from the input message to the output in host memory.

use crate::batch::Shape;
use crate::memory;
use crate::resample;
use crate::rows::{Rows, Scope};
use crate::{ceilings, clouds, voxelize};
use robocache::device::Dtype;
use robocache::device::gpu::{Gpu, Kind, device_count};
use robocache::ops::resample::gpu::{GpuResampler, ShardedResampler};
use robocache::ops::resample::{CpuResampler, ResampleConfig};
use robocache::ops::voxelize::VoxelLayout;
use std::error::Error;

/// Numbers of trajectories in the measured batches; 1 is a single robot.
const TRAJECTORIES: [usize; 7] = [1, 4, 16, 64, 256, 1024, 4096];

/// Sizes of the batch that several devices share.
const SHARED: Shape = Shape {
    rows: 1024,
    samples: 512,
    targets: 512,
    dim: 128,
    dtype: Dtype::BFloat16,
};

fn trajectories(rows: usize) -> Shape {
    Shape {
        rows,
        samples: 50,
        targets: 16,
        dim: 32,
        dtype: Dtype::Float32,
    }
}

/// Measures batches of 1 to 4096 trajectories, on the CPU, and on the device if there is one.
pub fn resample(rows: &mut Rows, gpu: Option<&Gpu>) -> Result<(), Box<dyn Error>> {
    let config = ResampleConfig::default();
    let mut cpu = CpuResampler::new(&config)?;
    let mut cuda = gpu.map(|gpu| GpuResampler::new(&config, gpu, None)).transpose()?;
    for shape in TRAJECTORIES.map(trajectories) {
        let (mut sets, bytes) = resample::sets(&shape, &memory(gpu));
        let times = resample::host(&mut sets, |batch, values, valid| Ok(cpu.run(batch, values, valid)))?;
        rows.add("resample", &shape.config(), "cpu", Scope::Host, times, bytes);
        if let Some(cuda) = &mut cuda {
            let times = resample::host(&mut sets, |batch, values, valid| cuda.run(batch, values, valid))?;
            rows.add("resample", &shape.config(), "cuda", Scope::Host, times, bytes);
        }
    }
    Ok(())
}

/// Beams and columns of the measured clouds, smallest first.
const CLOUDS: [(usize, usize); 5] = [(16, 64), (32, 128), (64, 256), (64, 1024), (128, 4096)];

/// Measures sparse voxels of the clouds in [`CLOUDS`], on the CPU, and on the device if there is one.
pub fn voxelize(rows: &mut Rows, gpu: Option<&Gpu>) -> Result<(), Box<dyn Error>> {
    for (beams, columns) in CLOUDS {
        let shape = clouds::Shape {
            clouds: 1,
            beams,
            columns,
            side: 256,
            is_uniform: false,
        };
        let sweeps = clouds::sweeps(&shape, &memory(gpu));
        voxelize::hosts(rows, gpu, &shape, VoxelLayout::Coo, &sweeps)?;
    }
    Ok(())
}

/// Measures a batch that is divided among 1, 2 and 4 devices, as far as they exist. Does nothing with fewer than two devices.
pub fn sharded(rows: &mut Rows) -> Result<(), Box<dyn Error>> {
    let devices = device_count(Kind::Cuda).unwrap_or(0);
    if devices < 2 {
        eprintln!("devices: fewer than two were found");
        return Ok(());
    }
    let gpus = (0..devices)
        .map(|i| Gpu::open(Kind::Cuda, i))
        .collect::<Result<Vec<_>, _>>()?;
    let config = ResampleConfig::default();
    let (mut sets, bytes) = resample::sets(&SHARED, &memory(gpus.first()));
    for count in [1, 2, 4].into_iter().filter(|&count| count <= devices) {
        let (gpus, backend) = (&gpus[..count], format!("cuda x{count}"));
        ceilings::shared(rows, gpus, &backend)?;
        let mut sharded = ShardedResampler::new(&config, gpus, None)?;
        let times = resample::host(&mut sets, |batch, values, valid| sharded.run(batch, values, valid))?;
        rows.add("resample", &SHARED.config(), &backend, Scope::Host, times, bytes);
    }
    Ok(())
}
