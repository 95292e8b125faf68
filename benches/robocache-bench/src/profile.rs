//! Every kernel at the sizes of the comparison with others, a few launches of each: what a profiler is to look at.

use crate::rows::Rows;
use crate::voxelize_device::OnDevice;
use crate::{clouds, fuse, fuse_batch, resample, timing};
use robocache::device::cuda::{Budget, DeviceBuf, Gpu};
use robocache::ops::resample::cuda::CudaResampler;
use robocache::ops::resample::{ResampleConfig, Trajectories};
use robocache::ops::voxelize::VoxelLayout;
use robocache::ops::voxelize::cuda::CudaVoxelizer;
use std::error::Error;

/// Of the grids of a call: a profiler that launches a kernel again saves all its memory before.
const MOST_CELLS: usize = 1 << 26;

/// Launches them.
pub fn launch(_: &mut Rows, gpu: Option<&Gpu>) -> Result<(), Box<dyn Error>> {
    let Some(gpu) = gpu else { return Ok(()) };
    timing::be_quick();
    for shape in resample::shapes() {
        let sets = resample::sets(&shape);
        let resampler = CudaResampler::new(&ResampleConfig::default(), gpu, None)?;
        let on_device = resample::OnDevice::new(gpu, &shape, &sets)?;
        for set in 0..sets.len() {
            // SAFETY: the memory outlives the launches, and was made for batches of this shape with ascending times.
            unsafe { resampler.launch(&on_device.batch(set)) }?;
        }
        gpu.synchronize()?;
    }
    // From the host, where dropped samples are counted.
    if let Some(shape) = resample::shapes().next() {
        let mut resampler = CudaResampler::new(&ResampleConfig::default(), gpu, None)?;
        for set in &mut resample::sets(&shape) {
            let batch = Trajectories::from_message(&set.message)?;
            resampler.run(&batch, set.values.bytes_mut(), set.valid.bytes_mut())?;
        }
    }
    let [room, ..] = clouds::SHAPES;
    let is_profiled = |shape: &clouds::Shape| !shape.is_uniform && shape.clouds * shape.cells() <= MOST_CELLS;
    for shape in clouds::SHAPES.into_iter().filter(is_profiled) {
        let sweeps = clouds::sweeps(&shape);
        for layout in [VoxelLayout::Dense, VoxelLayout::Bits, VoxelLayout::Coo] {
            let mut on_device = OnDevice::new(gpu, &shape, layout, &sweeps)?;
            for call in 0..on_device.calls() {
                // SAFETY: the memory outlives the launches.
                unsafe { on_device.launch(call) }?;
            }
            gpu.synchronize()?;
        }
    }
    // Channels that the kernels of occupancy, count and mean don't know.
    let config = room.voxelize_to(VoxelLayout::Dense, "count, mean_x, min_z, max_z")?;
    let mut voxelizer = CudaVoxelizer::new(&config, gpu, None)?;
    let mut out = DeviceBuf::new(gpu, &Budget::new(None));
    for message in clouds::sweeps(&room).iter().take(2) {
        voxelizer.gather([(0, message)], |_, _| {})?;
        voxelizer.write_on_device(&mut out)?;
    }
    fuse_batch::launch(gpu)?;
    fuse::launch(gpu)
}
