//! From which size on a device is worth it, message to output, and what several devices are worth.

use crate::batch::Shape;
use crate::memory;
use crate::resample::{self, OnDevice};
use crate::rows::{Rows, Scope};
use crate::{ceilings, clouds, timing, voxelize, voxelize_device};
use robocache::device::cuda::{Gpu, device_count};
use robocache::device::{Dtype, HostBuf};
use robocache::ops::resample::cuda::{CudaResampler, ShardedResampler};
use robocache::ops::resample::{CpuResampler, ResampleConfig};
use robocache::ops::voxelize::cuda::{VoxelBatch, VoxelizeShards};
use robocache::ops::voxelize::{Cloud, VoxelLayout};
use std::error::Error;

/// Trajectories of a batch: one robot's, and more.
const TRAJECTORIES: [usize; 7] = [1, 4, 16, 64, 256, 1024, 4096];

/// What is shared among devices.
const SHARED: Shape = shared(1024);
/// What is large for several of them, too: with a quarter of [`SHARED`] each is hardly busy.
const SHARED_LARGE: Shape = shared(8192);

const fn shared(rows: usize) -> Shape {
    Shape {
        rows,
        samples: 512,
        targets: 512,
        dim: 128,
        dtype: Dtype::BFloat16,
    }
}

const SHARED_CLOUDS: clouds::Shape = clouds::SHAPES[3];

fn trajectories(rows: usize) -> Shape {
    Shape {
        rows,
        samples: 50,
        targets: 16,
        dim: 32,
        dtype: Dtype::Float32,
    }
}

/// Batches of ever more trajectories, on the CPU and on the device.
pub fn resample(rows: &mut Rows, gpu: Option<&Gpu>) -> Result<(), Box<dyn Error>> {
    let config = ResampleConfig::default();
    let mut cpu = CpuResampler::new(&config)?;
    let mut cuda = gpu.map(|gpu| CudaResampler::new(&config, gpu, None)).transpose()?;
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

/// Clouds of ever more points, in one grid.
const CLOUDS: [(usize, usize); 5] = [(16, 64), (32, 128), (64, 256), (64, 1024), (128, 4096)];

/// Sparse voxels of ever larger clouds, on the CPU and on the device.
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

/// Batches shared among 1, 2 and 4 devices, as many as there are.
pub fn sharded(rows: &mut Rows) -> Result<(), Box<dyn Error>> {
    let devices = device_count().unwrap_or(0);
    if devices < 2 {
        eprintln!("devices: there are not several");
        return Ok(());
    }
    let gpus = (0..devices).map(Gpu::open).collect::<Result<Vec<_>, _>>()?;
    for count in [1, 2, 4].into_iter().filter(|&count| count <= devices) {
        let (gpus, backend) = (&gpus[..count], format!("cuda x{count}"));
        ceilings::shared(rows, gpus, &backend)?;
        sharded_resample(rows, gpus, &backend)?;
        for shape in [SHARED, SHARED_LARGE] {
            resample_on_devices(rows, gpus, &shape, &backend)?;
        }
        sharded_voxelize(rows, gpus, &backend)?;
    }
    Ok(())
}

fn sharded_resample(rows: &mut Rows, gpus: &[Gpu], backend: &str) -> Result<(), Box<dyn Error>> {
    let config = ResampleConfig::default();
    let (mut sets, bytes) = resample::sets(&SHARED, &memory(gpus.first()));
    let mut sharded = ShardedResampler::new(&config, gpus, None)?;
    let times = resample::host(&mut sets, |batch, values, valid| sharded.run(batch, values, valid))?;
    rows.add("resample", &SHARED.config(), backend, Scope::Host, times, bytes);
    Ok(())
}

fn resample_on_devices(rows: &mut Rows, gpus: &[Gpu], shape: &Shape, backend: &str) -> Result<(), Box<dyn Error>> {
    let config = ResampleConfig::default();
    let share = Shape {
        rows: shape.rows / gpus.len(),
        ..*shape
    };
    let (sets, bytes) = resample::sets(&share, &memory(gpus.first()));
    let bytes = gpus.len() * bytes;
    let on_devices = gpus
        .iter()
        .map(|gpu| {
            Ok((
                CudaResampler::new(&config, gpu, None)?,
                OnDevice::new(gpu, &share, &sets)?,
            ))
        })
        .collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    let times = timing::devices(gpus, sets.len(), |device, set| {
        let (resampler, batches) = &on_devices[device];
        // SAFETY: the memory outlives the launches, and was made for batches of this shape with ascending times.
        unsafe { resampler.launch(&batches.batch(set)) }
    })?;
    rows.add("resample", &shape.config(), backend, Scope::Device, times, bytes);
    Ok(())
}

fn sharded_voxelize(rows: &mut Rows, gpus: &[Gpu], backend: &str) -> Result<(), Box<dyn Error>> {
    let (shape, layout) = (SHARED_CLOUDS, VoxelLayout::Bits);
    let name = shape.config(layout);
    let memory = memory(gpus.first());
    let sweeps = clouds::sweeps(&shape, &memory);
    let bytes = clouds::touched_bytes(&shape, layout, &sweeps)?;
    let mut sharded = VoxelizeShards::new(&shape.voxelize(layout)?, gpus, None)?;
    let mut out = VoxelBatch {
        cells: HostBuf::new(&memory),
        ..VoxelBatch::default()
    };
    let times = voxelize::host(|set| {
        let clouds = (0..shape.clouds).map(|cloud| Cloud::from_message(&sweeps[clouds::sweep_of(set, cloud)]));
        Ok(sharded.run(&clouds.collect::<Result<Vec<_>, _>>()?, &mut out)?)
    })?;
    rows.add("voxelize", &name, backend, Scope::Host, times, bytes);

    let share = clouds::Shape {
        clouds: shape.clouds / gpus.len(),
        ..shape
    };
    let grids = timing::sets_for(bytes / gpus.len());
    let mut on_devices = gpus
        .iter()
        .map(|gpu| voxelize_device::OnDevice::new(gpu, &share, layout, &sweeps, grids))
        .collect::<Result<Vec<_>, _>>()?;
    let calls = on_devices[0].calls();
    let times = timing::devices(gpus, calls, |device, call| {
        // SAFETY: the memory outlives the launches.
        unsafe { on_devices[device].launch(call) }.map_err(voxelize_device::cuda_error)
    })?;
    rows.add("voxelize", &name, backend, Scope::Device, times, bytes);
    Ok(())
}
