//! Every kernel at the sizes of the comparison with others, a few launches of each: what a profiler is to look at.

use crate::rows::Rows;
use crate::voxelize_device::OnDevice;
use crate::{batch, clouds, fuse, fuse_batch, resample, timing};
use robocache::device::Dtype;
use robocache::device::cuda::{Budget, CudaError, DeviceBuf, Gpu};
use robocache::ops::resample::cuda::CudaResampler;
use robocache::ops::resample::{ResampleConfig, Trajectories};
use robocache::ops::voxelize::VoxelLayout;
use robocache::ops::voxelize::cuda::{CudaVoxelizer, DeviceClouds, DeviceField, VoxelizeBatch};
use std::error::Error;

/// Of the grids of a call: a profiler that launches a kernel again saves all its memory before.
const MOST_CELLS: usize = 1 << 26;

/// Values of a sample that are not read by 16 bytes at once, or are of a type that the comparison does not have.
const OTHER_SAMPLES: [(Dtype, usize); 12] = [
    (Dtype::Float32, 6),
    (Dtype::Float32, 7),
    (Dtype::Float64, 16),
    (Dtype::Float64, 7),
    (Dtype::Float16, 32),
    (Dtype::Float16, 12),
    (Dtype::Float16, 6),
    (Dtype::Float16, 7),
    (Dtype::BFloat16, 32),
    (Dtype::BFloat16, 12),
    (Dtype::BFloat16, 6),
    (Dtype::BFloat16, 7),
];

/// Bytes of a point with its neighbours: what is read at once, and what is read value by value.
const OTHER_POINTS: [usize; 2] = [16, 20];

/// Launches them.
pub fn launch(_: &mut Rows, gpu: Option<&Gpu>) -> Result<(), Box<dyn Error>> {
    let Some(gpu) = gpu else { return Ok(()) };
    timing::be_quick();
    let [short, long] = [0, 1].map(|at| {
        resample::shapes()
            .nth(at)
            .unwrap_or_else(|| unreachable!("there are more"))
    });
    let others = OTHER_SAMPLES
        .into_iter()
        .flat_map(|(dtype, dim)| [short, long].map(|shape| batch::Shape { dtype, dim, ..shape }));
    for shape in resample::shapes().chain(others) {
        resample(gpu, &shape)?;
    }
    for dtype in [Dtype::Float32, Dtype::Float64, Dtype::Float16, Dtype::BFloat16] {
        resample_from_host(gpu, &batch::Shape { dtype, ..long })?;
    }
    let [room, ..] = clouds::SHAPES;
    let is_profiled = |shape: &clouds::Shape| !shape.is_uniform && shape.clouds * shape.cells() <= MOST_CELLS;
    for shape in clouds::SHAPES.into_iter().filter(is_profiled) {
        voxelize(gpu, &shape)?;
    }
    for stride in OTHER_POINTS {
        voxelize_strided(gpu, &room, stride)?;
    }
    voxelize_other_channels(gpu, &room)?;
    fuse_batch::launch(gpu)?;
    fuse::launch(gpu)
}

fn resample(gpu: &Gpu, shape: &batch::Shape) -> Result<(), Box<dyn Error>> {
    let sets = resample::sets(shape);
    let resampler = CudaResampler::new(&ResampleConfig::default(), gpu, None)?;
    let on_device = resample::OnDevice::new(gpu, shape, &sets)?;
    for set in 0..sets.len() {
        // SAFETY: the memory outlives the launches, and was made for batches of this shape with ascending times.
        unsafe { resampler.launch(&on_device.batch(set)) }?;
    }
    Ok(gpu.synchronize()?)
}

/// Where dropped samples are counted.
fn resample_from_host(gpu: &Gpu, shape: &batch::Shape) -> Result<(), Box<dyn Error>> {
    let mut resampler = CudaResampler::new(&ResampleConfig::default(), gpu, None)?;
    for set in &mut resample::sets(shape) {
        let batch = Trajectories::from_message(&set.message)?;
        resampler.run(&batch, set.values.bytes_mut(), set.valid.bytes_mut())?;
    }
    Ok(())
}

const LAYOUTS: [VoxelLayout; 3] = [VoxelLayout::Dense, VoxelLayout::Bits, VoxelLayout::Coo];

fn voxelize(gpu: &Gpu, shape: &clouds::Shape) -> Result<(), Box<dyn Error>> {
    let sweeps = clouds::sweeps(shape);
    for layout in LAYOUTS {
        let mut on_device = OnDevice::new(gpu, shape, layout, &sweeps)?;
        for call in 0..on_device.calls() {
            // SAFETY: the memory outlives the launches.
            unsafe { on_device.launch(call) }?;
        }
        gpu.synchronize()?;
    }
    Ok(())
}

/// Points that don't lie side by side.
fn voxelize_strided(gpu: &Gpu, shape: &clouds::Shape, stride: usize) -> Result<(), Box<dyn Error>> {
    let sweeps = clouds::sweeps(shape);
    let buffers = sweeps.iter().take(2).map(|sweep| {
        let mut points = vec![0; shape.points() * stride];
        for (to, from) in points
            .chunks_exact_mut(stride)
            .zip(sweep.columns()[0].data.bytes().chunks_exact(12))
        {
            to[..12].copy_from_slice(from);
        }
        let mut buffer = DeviceBuf::new(gpu, &Budget::new(None));
        buffer.reserve(points.len())?;
        // SAFETY: the points are there until the stream is synchronized.
        unsafe { buffer.upload(0, &points) }?;
        gpu.synchronize()?;
        Ok::<_, CudaError>(buffer)
    });
    let buffers = buffers.collect::<Result<Vec<_>, _>>()?;
    let fields = [("x", 0), ("y", 4), ("z", 8)].map(|(name, at)| DeviceField {
        name,
        dtype: Dtype::Float32,
        at,
        stride,
    });
    for layout in LAYOUTS {
        let mut batch = VoxelizeBatch::new(&shape.voxelize(layout)?, gpu, None)?;
        for buffer in &buffers {
            batch.run_device(&DeviceClouds::new(buffer, 1, shape.points(), &fields)?)?;
        }
    }
    Ok(())
}

/// Channels that the kernels of occupancy, count and mean don't know.
fn voxelize_other_channels(gpu: &Gpu, shape: &clouds::Shape) -> Result<(), Box<dyn Error>> {
    let config = shape.voxelize_to(VoxelLayout::Dense, "count, mean_x, min_z, max_z")?;
    let mut voxelizer = CudaVoxelizer::new(&config, gpu, None)?;
    let mut out = DeviceBuf::new(gpu, &Budget::new(None));
    for message in clouds::sweeps(shape).iter().take(2) {
        voxelizer.gather([(0, message)], |_, _| {})?;
        voxelizer.write_on_device(&mut out)?;
    }
    Ok(())
}
