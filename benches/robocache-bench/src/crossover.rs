//! From which size on a device is worth it, message to output, and what several devices are worth.

use crate::batch::Shape;
use crate::resample::{self, OnDevice};
use crate::rows::{Rows, Scope};
use crate::timing;
use robocache::device::Dtype;
use robocache::device::cuda::{Gpu, device_count};
use robocache::ops::resample::cuda::{CudaResampler, ShardedResampler};
use robocache::ops::resample::{ResampleConfig, Resampler};
use std::error::Error;

/// Trajectories of a batch: one robot's, and more.
const TRAJECTORIES: [usize; 7] = [1, 4, 16, 64, 256, 1024, 4096];

/// What is shared among devices.
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

/// Batches of ever more trajectories, on the CPU and on the device.
pub fn resample(rows: &mut Rows, gpu: Option<&Gpu>) -> Result<(), Box<dyn Error>> {
    let config = ResampleConfig::default();
    let mut cpu = Resampler::new(&config)?;
    let mut cuda = gpu.map(|gpu| CudaResampler::new(&config, gpu, None)).transpose()?;
    for shape in TRAJECTORIES.map(trajectories) {
        let mut sets = resample::sets(&shape);
        let bytes = resample::bytes(&shape, &sets);
        let times = resample::host(&mut sets, |batch, values, valid| Ok(cpu.run(batch, values, valid)))?;
        rows.add("resample", &shape.config(), "cpu", Scope::Host, times, bytes);
        if let Some(cuda) = &mut cuda {
            let times = resample::host(&mut sets, |batch, values, valid| cuda.run(batch, values, valid))?;
            rows.add("resample", &shape.config(), "cuda", Scope::Host, times, bytes);
        }
    }
    Ok(())
}

/// A batch shared among 1, 2 and 4 devices, as many as there are.
pub fn sharded_resample(rows: &mut Rows) -> Result<(), Box<dyn Error>> {
    let Ok(devices) = device_count() else { return Ok(()) };
    let gpus = (0..devices).map(Gpu::open).collect::<Result<Vec<_>, _>>()?;
    let config = ResampleConfig::default();
    for count in [1, 2, 4] {
        if count > devices || devices == 1 {
            break;
        }
        let gpus = &gpus[..count];
        let backend = format!("cuda x{count}");
        let mut sets = resample::sets(&SHARED);
        let bytes = resample::bytes(&SHARED, &sets);
        let mut sharded = ShardedResampler::new(&config, gpus, None)?;
        let times = resample::host(&mut sets, |batch, values, valid| sharded.run(batch, values, valid))?;
        rows.add("resample", &SHARED.config(), &backend, Scope::Host, times, bytes);

        let share = Shape {
            rows: SHARED.rows / count,
            ..SHARED
        };
        let sets = resample::sets(&share);
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
        rows.add("resample", &SHARED.config(), &backend, Scope::Device, times, bytes);
    }
    Ok(())
}
