//! Measures voxel grids on a device, from points that are in device memory already. The grids must equal the CPU's, bit for
//! bit, before and after the timed calls.

use crate::clouds::{Output, Shape, sweep_of};
use crate::timing::{self, Times};
use robocache::device::Dtype;
use robocache::device::gpu::{Budget, DeviceBuf, DeviceFault, Gpu};
use robocache::ops::voxelize::VoxelLayout;
use robocache::ops::voxelize::gpu::{DeviceClouds, DeviceField, DeviceGrids, VoxelizeBatch, VoxelizeError};
use robocache::stream::Message;
use std::error::Error;

/// Point clouds and voxel grids in device memory, which calls use in turn. Each call writes other points into a grid, so that
/// it has to clear the cells of the points before.
pub struct OnDevice {
    points: Vec<DeviceBuf>,
    grids: Vec<VoxelizeBatch>,
    fields: [DeviceField<'static>; 3],
    shape: Shape,
}

impl OnDevice {
    /// Copies the sweeps to the device, and makes `grids` voxelize operations, each with grids of its own.
    pub fn new(
        gpu: &Gpu,
        shape: &Shape,
        layout: VoxelLayout,
        sweeps: &[Message],
        grids: usize,
    ) -> Result<Self, Box<dyn Error>> {
        // With one more set of points than grids, a grid gets other points in each call.
        Self::of(gpu, shape, layout, sweeps, grids, grids + 1)
    }

    /// Copies more points to the device than a cache holds, and makes one voxelize operation. Every call overwrites the grids
    /// of that operation.
    fn with_same_grids(
        gpu: &Gpu,
        shape: &Shape,
        layout: VoxelLayout,
        sweeps: &[Message],
    ) -> Result<Self, Box<dyn Error>> {
        let points = timing::sets_for(shape.clouds * sweeps[0].bytes());
        Self::of(gpu, shape, layout, sweeps, 1, points)
    }

    fn of(
        gpu: &Gpu,
        shape: &Shape,
        layout: VoxelLayout,
        sweeps: &[Message],
        grids: usize,
        points: usize,
    ) -> Result<Self, Box<dyn Error>> {
        let cloud_bytes = sweeps[0].bytes();
        let points = (0..points).map(|set| {
            let mut buffer = DeviceBuf::new(gpu, &Budget::new(None));
            buffer.reserve(shape.clouds * cloud_bytes)?;
            for cloud in 0..shape.clouds {
                let points = sweeps[sweep_of(set, cloud)].columns()[0].data.bytes();
                // SAFETY: the sweeps are borrowed until the stream is synchronized.
                unsafe { buffer.upload(cloud * cloud_bytes, points) }?;
            }
            gpu.synchronize()?;
            Ok::<_, DeviceFault>(buffer)
        });
        let field = |name, at| DeviceField {
            name,
            dtype: Dtype::Float32,
            at,
            stride: cloud_bytes / shape.points(),
        };
        let config = shape.voxelize(layout)?;
        let grids = (0..grids).map(|_| VoxelizeBatch::new(&config, gpu, None));
        Ok(Self {
            points: points.collect::<Result<_, _>>()?,
            grids: grids.collect::<Result<_, _>>()?,
            fields: [field("x", 0), field("y", 4), field("z", 8)],
            shape: *shape,
        })
    }

    /// Number of calls in a CUDA graph: each grid is made an even number of times, and all point clouds are used.
    pub fn calls(&self) -> usize {
        (2 * self.grids.len()).max(self.points.len().next_multiple_of(2))
    }

    /// Enqueues call number `call`. The number selects the point clouds and the grids, which are used in turn.
    ///
    /// # Safety
    /// `self` must live until the stream is synchronized.
    pub unsafe fn launch(&mut self, call: usize) -> Result<(), VoxelizeError> {
        let grid = call % self.grids.len();
        let points = &self.points[call % self.points.len()];
        let clouds = match DeviceClouds::new(points, self.shape.clouds, self.shape.points(), &self.fields) {
            Ok(clouds) => clouds,
            Err(error) => unreachable!("the buffers were made for these clouds: {error}"),
        };
        // SAFETY: as the caller promises.
        unsafe { self.grids[grid].launch(&clouds) }
    }

    /// Makes the grids of the first call's clouds once more, over earlier grids, and compares them with `expected`.
    fn check(&mut self, gpu: &Gpu, layout: VoxelLayout, expected: &Output) -> Result<(), Box<dyn Error>> {
        let clouds = DeviceClouds::new(&self.points[0], self.shape.clouds, self.shape.points(), &self.fields)?;
        let made = self.grids[0].run_device(&clouds)?;
        if is_as_expected(gpu, layout, &made, expected)? {
            return Ok(());
        }
        Err("the device's grids are not the CPU's".into())
    }
}

/// Returns the device fault in an error. A refused cloud panics, since the same clouds were accepted before.
pub fn device_fault(error: VoxelizeError) -> DeviceFault {
    match error {
        VoxelizeError::Gpu(error) => error,
        error => unreachable!("all clouds are alike, and the first was taken: {error}"),
    }
}

/// Result of a measurement: the suffix of its row's name, and its times.
pub type Named = (&'static str, Times);

/// Times calls on the device: with several grids in turn, and with the grids of one operation. Before and after the timed
/// calls, the grids of the first clouds must equal `expected`.
pub fn measure(
    gpu: &Gpu,
    shape: &Shape,
    layout: VoxelLayout,
    sweeps: &[Message],
    expected: &Output,
    grids: usize,
) -> Result<[Named; 2], Box<dyn Error>> {
    let time = |mut on_device: OnDevice| {
        on_device.check(gpu, layout, expected)?;
        let calls = on_device.calls();
        // SAFETY: `on_device` outlives the launches.
        let launch = |call| unsafe { on_device.launch(call) }.map_err(device_fault);
        let mut times = timing::device(gpu, calls, launch)?;
        on_device.check(gpu, layout, expected)?;
        times.sets = Some(on_device.grids.len());
        Ok::<_, Box<dyn Error>>(times)
    };
    let rotated = time(OnDevice::new(gpu, shape, layout, sweeps, grids)?)?;
    let same = time(OnDevice::with_same_grids(gpu, shape, layout, sweeps)?)?;
    Ok([("", rotated), (", same grids", same)])
}

fn is_as_expected(
    gpu: &Gpu,
    layout: VoxelLayout,
    made: &DeviceGrids<'_>,
    expected: &Output,
) -> Result<bool, DeviceFault> {
    let came = |buffer: &DeviceBuf, at: usize, expected: &[u8]| {
        let mut came = vec![0; expected.len()];
        // SAFETY: the vector lives until the stream is synchronized.
        unsafe { buffer.download(at, &mut came) }?;
        gpu.synchronize()?;
        Ok::<_, DeviceFault>(came == expected)
    };
    match layout {
        VoxelLayout::Dense => came(made.dense(), 0, expected.dense()),
        VoxelLayout::Bits => {
            let grids = made.len();
            let each = expected.bits().chunks_exact(expected.bits().len() / grids).enumerate();
            each.into_iter().try_fold(true, |equal, (grid, bits)| {
                let (bitmap, at) = made.bitmap(grid);
                Ok(equal && came(bitmap, at, bits)?)
            })
        }
        VoxelLayout::Coo => {
            let (coords, features) = expected.coo();
            let voxels = made.first_row(1) == expected.voxels;
            Ok(voxels && came(made.coords(), 0, coords)? && came(made.features(), 0, features)?)
        }
    }
}
