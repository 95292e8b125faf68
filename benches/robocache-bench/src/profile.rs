//! Launches every kernel a few times for a profiler, at the sizes at which robocache is compared with other libraries. Nothing
//! is timed or checked.

use crate::rows::Rows;
use crate::voxelize_device::OnDevice;
use crate::{batch, clouds, fuse, fuse_batch, resample, timing};
use robocache::device::gpu::{Budget, DeviceBuf, Gpu};
use robocache::device::{Dtype, HostMemory};
use robocache::ops::resample::gpu::GpuResampler;
use robocache::ops::resample::{ResampleConfig, Trajectories};
use robocache::ops::voxelize::VoxelLayout;
use robocache::ops::voxelize::gpu::GpuVoxelizer;
use robocache::stream::Message;
use std::error::Error;

/// Maximum number of cells in the grids of a call. A profiler saves all memory of a kernel before it launches the kernel again.
const MOST_CELLS: usize = 1 << 26;

/// Element types and numbers of values of further samples to resample, beside those that are compared with other libraries.
/// Samples of 7 values, for example, can't be read 16 bytes at a time.
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

/// Number of grids that are made of each shape. Each grid is made twice.
const GRIDS: usize = 2;

const LAYOUTS: [VoxelLayout; 3] = [VoxelLayout::Dense, VoxelLayout::Bits, VoxelLayout::Coo];

/// Launches all kernels. Does nothing without a device.
pub fn launch(_: &mut Rows, gpu: Option<&Gpu>) -> Result<(), Box<dyn Error>> {
    let Some(gpu) = gpu else { return Ok(()) };
    timing::be_quick();
    let two: Vec<_> = resample::shapes().take(2).collect();
    let others = OTHER_SAMPLES
        .into_iter()
        .flat_map(|(dtype, dim)| two.iter().map(move |&shape| batch::Shape { dtype, dim, ..shape }));
    for shape in resample::shapes().chain(others) {
        resample(gpu, &shape)?;
    }
    for dtype in [Dtype::Float32, Dtype::Float64, Dtype::Float16, Dtype::BFloat16] {
        for &shape in &two {
            resample_from_host(gpu, &batch::Shape { dtype, ..shape })?;
        }
    }
    let [room, ..] = clouds::SHAPES;
    let is_profiled = |shape: &clouds::Shape| !shape.is_uniform && shape.clouds * shape.cells() <= MOST_CELLS;
    for shape in clouds::SHAPES.into_iter().filter(is_profiled) {
        voxelize(gpu, &shape, &clouds::sweeps(&shape, &HostMemory::page_locked(gpu)))?;
    }
    // Kernels read a point of 4 columns at once, and a point of 5 columns value by value.
    let sweeps = clouds::sweeps(&room, &HostMemory::page_locked(gpu));
    voxelize(gpu, &room, &sweeps.iter().map(widen::<4>).collect::<Vec<_>>())?;
    voxelize(gpu, &room, &sweeps.iter().map(widen::<5>).collect::<Vec<_>>())?;
    voxelize_other_channels(gpu, &room)?;
    fuse_batch::launch(gpu)?;
    fuse::launch(gpu)
}

fn resample(gpu: &Gpu, shape: &batch::Shape) -> Result<(), Box<dyn Error>> {
    let (sets, _) = resample::sets(shape, &HostMemory::page_locked(gpu));
    let resampler = GpuResampler::new(&ResampleConfig::default(), gpu, None)?;
    let on_device = resample::OnDevice::new(gpu, &sets)?;
    for batch in on_device.batches(shape)? {
        // SAFETY: the memory outlives the launches, and was made for batches of this shape with ascending times.
        unsafe { resampler.launch(&batch) }?;
    }
    Ok(gpu.synchronize()?)
}

/// Resamples batches in host memory. This uses the kernels that drop and count samples that are not finite.
fn resample_from_host(gpu: &Gpu, shape: &batch::Shape) -> Result<(), Box<dyn Error>> {
    let mut resampler = GpuResampler::new(&ResampleConfig::default(), gpu, None)?;
    for set in &mut resample::sets(shape, &HostMemory::page_locked(gpu)).0 {
        let batch = Trajectories::from_message(&set.message)?;
        resampler.run(&batch, set.values.bytes_mut(), set.valid.bytes_mut())?;
    }
    Ok(())
}

fn voxelize(gpu: &Gpu, shape: &clouds::Shape, sweeps: &[Message]) -> Result<(), Box<dyn Error>> {
    for layout in LAYOUTS {
        let mut on_device = OnDevice::new(gpu, shape, layout, sweeps, GRIDS)?;
        for call in 0..on_device.calls() {
            // SAFETY: the memory outlives the launches.
            unsafe { on_device.launch(call) }?;
        }
        gpu.synchronize()?;
    }
    Ok(())
}

/// Copies a cloud of x, y and z into one with `COLUMNS` columns. The added columns are 0.
fn widen<const COLUMNS: usize>(sweep: &Message) -> Message {
    let coordinates = sweep.columns()[0].values().as_slice::<f32>();
    let widened = coordinates.chunks_exact(3).map(|xyz| {
        let mut point = [0.0; COLUMNS];
        point[..3].copy_from_slice(xyz);
        point
    });
    clouds::tensor(&widened.collect::<Vec<_>>(), &HostMemory::pageable())
}

/// Makes grids with the channels min and max, which the kernels for occupancy, count and mean do not compute.
fn voxelize_other_channels(gpu: &Gpu, shape: &clouds::Shape) -> Result<(), Box<dyn Error>> {
    let config = shape.voxelize_to(VoxelLayout::Dense, "count, mean_x, min_z, max_z")?;
    let mut voxelizer = GpuVoxelizer::new(&config, gpu, None)?;
    let mut out = DeviceBuf::new(gpu, &Budget::new(None));
    for message in clouds::sweeps(shape, &HostMemory::page_locked(gpu)).iter().take(2) {
        voxelizer.gather([(0, message)], |_, _| {})?;
        voxelizer.write_on_device(&mut out)?;
    }
    Ok(())
}
