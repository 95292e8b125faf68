//! Makes a grid of each of many clouds at once. The result does not depend on how many clouds fit the device's memory
//! at once.

use super::super::spec::{GridClouds, Spec};
use super::super::{Channel, VoxelCounters, VoxelGrid, VoxelLayout, VoxelizeConfig};
use super::builder::GridBuilder;
use super::memory::Product;
use super::params::Fields;
use super::points::{CloudsOnDevice, cloud_params};
use super::readback::Head;
use super::source::{CloudForm, Destination, DeviceClouds, MAX_CLOUDS, describe};
use super::{VoxelizeError, scatter, spec_for_device};
use half::{bf16, f16};
use robocache_device::gpu::{Budget, DeviceBuf, DeviceFault, Gpu, PinnedBuf};
use robocache_device::{Dtype, HostBuf};
use robocache_stream::HostCloud;

/// Grids on the host, in the order of their clouds.
#[derive(Default)]
pub struct VoxelBatch {
    /// Counts of the points of each cloud.
    pub counters: Vec<VoxelCounters>,
    /// Number of values that channels leave out, for each cloud and each field beside x, y and z that channels are computed
    /// from. The fields are in the order in which the channels first name them.
    pub unusable: Vec<u64>,
    /// Number of values of each cloud's dense output that its type can't hold.
    pub saturated: Vec<u64>,
    /// Index of each grid's first row, followed by the total number of rows. Only in layout `coo`.
    pub rows: Vec<usize>,
    /// Cell indices x, y, z of each row. Empty unless the layout is `coo`.
    pub coords: Vec<i32>,
    /// One value for each channel of each row, row by row. Empty unless the layout is `coo`.
    pub features: Vec<f32>,
    /// The tensors `[C, X, Y, Z]` of layout `dense`, or the bitmaps of layout `bits`, each of ceil(X * Y * Z / 8)
    /// bytes. The grids lie one after the other.
    pub cells: HostBuf,
}

/// Borrowed buffers of a [`VoxelBatch`] that a chunk of clouds fills. Rows, coordinates and features are appended.
struct Slots<'a> {
    counters: &'a mut [VoxelCounters],
    unusable: &'a mut [u64],
    saturated: &'a mut [u64],
    rows: &'a mut Vec<usize>,
    coords: &'a mut Vec<i32>,
    features: &'a mut Vec<f32>,
    cells: &'a mut [u8],
}

impl VoxelBatch {
    /// Clears the batch, and makes room for the results of `clouds` clouds.
    fn begin(&mut self, clouds: usize, fields: usize, bytes_per_grid: usize) {
        self.counters.clear();
        self.counters.resize(clouds, VoxelCounters::default());
        self.unusable.clear();
        self.unusable.resize(clouds * fields, 0);
        self.saturated.clear();
        self.saturated.resize(clouds, 0);
        self.rows.clear();
        self.rows.push(0);
        self.coords.clear();
        self.features.clear();
        self.cells.resize(clouds * bytes_per_grid);
    }
}

/// Makes grids of many clouds on a CUDA device, with the same bits as [`CpuVoxelizer`](super::super::CpuVoxelizer).
///
/// If the grids do not fit the allowed device memory, they are made in several parts, with the same result.
pub struct VoxelizeBatch {
    spec: Spec,
    cloud_facts: GridClouds,
    builder: GridBuilder,
    dtype: Dtype,
    /// Greatest number of clouds of which grids are made at once.
    chunk: usize,
    points: DeviceBuf,
    starts: Vec<u32>,
    /// Number of clouds of the device batch that was launched last, and number of points of each cloud.
    launched: [usize; 2],
    /// Page-locked host copy of the occupied cells and their features, from which dense grids are written.
    rows: PinnedBuf,
}

impl VoxelizeBatch {
    /// Creates a batch voxelizer on a device, of whose memory it holds at most `max_bytes`; `None`: no limit. All
    /// clouds have the extrinsic of the configuration's first input.
    ///
    /// # Errors
    /// The errors of [`VoxelizeConfig::validate`]; more channels or fields than the kernels take; the driver's error.
    pub fn new(config: &VoxelizeConfig, gpu: &Gpu, max_bytes: Option<usize>) -> Result<Self, VoxelizeError> {
        let spec = spec_for_device(config)?;
        let budget = Budget::new(max_bytes);
        Ok(Self {
            builder: GridBuilder::new(&spec, gpu, &budget, Product::Rows { coords: true })?,
            cloud_facts: GridClouds::default(),
            dtype: config.dtype,
            chunk: MAX_CLOUDS,
            points: DeviceBuf::new(gpu, &budget),
            starts: Vec::new(),
            launched: [0; 2],
            rows: PinnedBuf::new(gpu),
            spec,
        })
    }

    /// The geometry of the grids: origin, cell size and shape.
    pub fn grid(&self) -> &VoxelGrid {
        &self.spec.grid
    }

    /// The channels, in the order of the output.
    pub fn channels(&self) -> &[Channel] {
        &self.spec.channels
    }

    /// Bytes of device memory that the batch voxelizer holds.
    pub fn used_bytes(&self) -> usize {
        self.builder.budget().used()
    }

    /// Greatest number of clouds of which grids are made at once. It is halved whenever device memory runs out.
    pub fn chunk(&self) -> usize {
        self.chunk
    }

    /// Bytes of [`VoxelBatch::cells`] for each grid.
    fn bytes_per_grid(&self) -> usize {
        let cells = self.spec.grid.cells();
        match self.spec.layout {
            VoxelLayout::Bits => cells.div_ceil(8),
            VoxelLayout::Dense => cells * self.spec.channels.len() * self.dtype.size(),
            VoxelLayout::Coo => 0,
        }
    }

    /// Number of fields beside x, y and z that channels are computed from.
    fn fields(&self) -> usize {
        self.spec.plan.fields.len()
    }

    /// Makes a grid of each cloud, and writes the grids to `out` in the order of the clouds.
    ///
    /// # Errors
    /// The problem with the first cloud that can't be used, before any grid is made; too little device memory even for
    /// one cloud; the driver's error.
    pub fn run(&mut self, clouds: &[HostCloud<'_>], out: &mut VoxelBatch) -> Result<(), VoxelizeError> {
        let (bytes, fields) = (self.bytes_per_grid(), self.fields());
        out.begin(clouds.len(), fields, bytes);
        for cloud in clouds {
            self.spec.check(&(*cloud).into())?;
        }
        let mut at = 0;
        while at < clouds.len() {
            let form = CloudForm::of(&self.spec.plan, &clouds[at])?;
            let mut count = 0;
            let mut points = 0;
            for cloud in clouds[at..].iter().take(self.chunk) {
                points += cloud.len();
                if points > i32::MAX as usize || CloudForm::of(&self.spec.plan, cloud)? != form {
                    break;
                }
                count += 1;
            }
            let part = Slots {
                counters: &mut out.counters[at..at + count],
                unusable: &mut out.unusable[at * fields..(at + count) * fields],
                saturated: &mut out.saturated[at..at + count],
                rows: &mut out.rows,
                coords: &mut out.coords,
                features: &mut out.features,
                cells: &mut out.cells.bytes_mut()[at * bytes..(at + count) * bytes],
            };
            let made = self.run_chunk(&clouds[at..at + count], &form, part);
            if made.is_err() {
                // The device may still read the clouds. The first error is the one to report.
                let _ = self.builder.gpu().synchronize();
            }
            match made {
                Ok(()) => at += count,
                Err(error) if error.is_memory() && count > 1 => {
                    self.chunk = count.div_ceil(2);
                    self.builder.release();
                    self.points.release();
                    tracing::warn!("voxelize: {error}: {} clouds at once instead of {count}", self.chunk);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn run_chunk(&mut self, clouds: &[HostCloud<'_>], form: &CloudForm, out: Slots<'_>) -> Result<(), VoxelizeError> {
        let total: usize = clouds.iter().map(HostCloud::len).sum();
        let longest = clouds.iter().map(HostCloud::len).max().unwrap_or(0);
        self.points.reserve(form.bytes(total))?;
        self.starts.clear();
        self.starts.push(0);
        let mut first = 0;
        for cloud in clouds {
            let to = Destination {
                buffer: &self.points,
                first,
                points: total,
            };
            // SAFETY: the clouds are borrowed, and the stream is synchronized before this returns.
            unsafe { form.upload(&self.spec.plan, cloud, to) }?;
            first += cloud.len();
            self.starts.push(first as u32);
        }
        self.cloud_facts.clear(&self.spec.plan);
        self.cloud_facts.add(&self.spec, &clouds[0].into())?;
        let is_even = clouds.iter().all(|cloud| cloud.len() == longest);
        let product = match self.spec.layout {
            VoxelLayout::Bits => Product::Bits,
            VoxelLayout::Coo => Product::Rows { coords: true },
            VoxelLayout::Dense => Product::Rows { coords: false },
        };
        self.builder.memory.prepare(&self.spec, product, clouds.len());
        self.builder.begin(clouds.len(), (!is_even).then_some(&self.starts))?;
        let mut params = cloud_params(&self.spec, 0);
        let mut fields = Fields::default();
        form.describe(self.points.pointer(), total, &mut params, &mut fields);
        let on_device = CloudsOnDevice {
            cloud: params,
            fields,
            longest,
            total,
        };
        // SAFETY: the points are this batch's own, and the stream is synchronized below.
        unsafe {
            self.builder.add(&self.spec, on_device)?;
            self.builder.finish(&self.spec, &self.cloud_facts, total, Head::Read)?;
        }
        self.builder.readback.wait()?;
        for (i, (counters, cloud)) in out.counters.iter_mut().zip(clouds).enumerate() {
            *counters = self.builder.readback.counters(i, cloud.len());
        }
        match self.spec.layout {
            VoxelLayout::Bits => self.download_bits(clouds.len(), out.cells)?,
            VoxelLayout::Coo => self.download_rows(clouds.len(), out.rows, out.coords, out.features)?,
            VoxelLayout::Dense => self.download_dense(out.saturated, out.cells)?,
        }
        for (i, unusable) in out.unusable.chunks_mut(self.fields().max(1)).enumerate() {
            unusable.copy_from_slice(self.builder.readback.unusable(i));
        }
        Ok(())
    }

    fn download_bits(&mut self, grids: usize, out: &mut [u8]) -> Result<(), DeviceFault> {
        let bytes = self.bytes_per_grid();
        if bytes == self.builder.memory.bitmap_stride() {
            let (bitmaps, at) = self.builder.memory.bitmap(0);
            return DeviceBuf::fetch_each([(bitmaps, at, out)]);
        }
        for (grid, out) in out.chunks_mut(bytes).take(grids).enumerate() {
            let (bitmap, at) = self.builder.memory.bitmap(grid);
            // SAFETY: `out` is borrowed until the stream is synchronized.
            unsafe { bitmap.download(at, out) }?;
        }
        self.builder.gpu().synchronize()
    }

    fn download_rows(
        &mut self,
        grids: usize,
        rows: &mut Vec<usize>,
        coords: &mut Vec<i32>,
        features: &mut Vec<f32>,
    ) -> Result<(), DeviceFault> {
        let before = rows.last().copied().unwrap_or(0);
        let count = self.builder.readback.first_row(grids);
        let columns = self.spec.channels.len();
        coords.resize((before + count) * 3, 0);
        features.resize((before + count) * columns, 0.0);
        DeviceBuf::fetch_each([
            (
                self.builder.rows.coords(),
                0,
                bytemuck::cast_slice_mut(&mut coords[before * 3..]),
            ),
            (
                self.builder.rows.features(),
                0,
                bytemuck::cast_slice_mut(&mut features[before * columns..]),
            ),
        ])?;
        // The rows come last, so that a chunk that failed can be done again.
        rows.extend((1..=grids).map(|grid| before + self.builder.readback.first_row(grid)));
        Ok(())
    }

    /// Downloads the occupied cells, which are far fewer bytes than the tensors, and writes the tensors from them.
    /// Writes the number of values beyond the range of the element type to `saturated`, for each grid.
    fn download_dense(&mut self, saturated: &mut [u64], out: &mut [u8]) -> Result<(), DeviceFault> {
        let grids = saturated.len();
        let columns = self.spec.channels.len();
        let rows = self.builder.readback.first_row(grids);
        let [order, features] = self.builder.fetch_rows(rows, columns, &mut self.rows)?;
        let bytes = out.len() / grids;
        for ((grid, out), saturated) in out.chunks_exact_mut(bytes).enumerate().zip(saturated) {
            let [from, until] = [grid, grid + 1].map(|grid| self.builder.readback.first_row(grid));
            let order = &order[from * 4..until * 4];
            let features = &features[from * columns * 4..until * columns * 4];
            *saturated = match self.dtype {
                Dtype::Float16 => scatter::<f16>(order, features, columns, bytemuck::cast_slice_mut(out)),
                Dtype::BFloat16 => scatter::<bf16>(order, features, columns, bytemuck::cast_slice_mut(out)),
                _ => scatter::<f32>(order, features, columns, bytemuck::cast_slice_mut(out)),
            };
        }
        Ok(())
    }

    /// Makes a grid of each cloud of points on the device, and leaves the grids there: see [`grids`](Self::grids).
    ///
    /// # Errors
    /// The clouds can't be used or are on another device; too little device memory; the driver's error.
    pub fn run_device(&mut self, clouds: &DeviceClouds<'_>) -> Result<DeviceGrids<'_>, VoxelizeError> {
        // SAFETY: the clouds are borrowed until the stream is synchronized.
        unsafe { self.launch(clouds) }?;
        self.builder.read_head(&self.spec)?;
        self.builder.gpu().synchronize()?;
        Ok(self.grids())
    }

    /// Enqueues the work that makes the grids, and does not wait. Launches use two memory states alternately, so a CUDA
    /// graph must hold an even number of launches. A launch of the same size must have run before the capture of the
    /// graph.
    ///
    /// # Errors
    /// The errors of [`run_device`](Self::run_device).
    ///
    /// # Safety
    /// The points and this batch are neither changed nor freed until the stream is synchronized.
    pub unsafe fn launch(&mut self, clouds: &DeviceClouds<'_>) -> Result<(), VoxelizeError> {
        self.builder.gpu().check(clouds.all.buffer().gpu())?;
        let first = clouds.all.first(clouds.points).into();
        self.spec.check(&first)?;
        let product = match self.spec.layout {
            VoxelLayout::Bits => Product::Bits,
            VoxelLayout::Coo => Product::Rows { coords: true },
            VoxelLayout::Dense => Product::Dense(self.dtype),
        };
        self.cloud_facts.clear(&self.spec.plan);
        self.cloud_facts.add(&self.spec, &first)?;
        let total = clouds.all.len();
        self.launched = [clouds.clouds, clouds.points];
        let mut params = cloud_params(&self.spec, 0);
        let mut fields = Fields::default();
        describe(&self.spec.plan, &clouds.all, &mut params, &mut fields)?;
        let grids = clouds.clouds.max(1);
        self.builder.memory.prepare(&self.spec, product, grids);
        self.builder.begin(grids, None)?;
        let on_device = CloudsOnDevice {
            cloud: params,
            fields,
            longest: clouds.points,
            total,
        };
        // SAFETY: the fields are within their buffer, and the caller promises not to change it.
        unsafe {
            self.builder.add(&self.spec, on_device)?;
            self.builder.finish(&self.spec, &self.cloud_facts, total, Head::Stays)?;
        }
        Ok(())
    }

    /// The grids that were launched last, on the device.
    pub fn grids(&self) -> DeviceGrids<'_> {
        DeviceGrids { batch: self }
    }
}

/// Grids in the memory of the device that made them. They are valid until the batch makes other grids.
#[derive(Clone, Copy)]
pub struct DeviceGrids<'a> {
    batch: &'a VoxelizeBatch,
}

impl<'a> DeviceGrids<'a> {
    /// The number of grids that were launched last, one for each cloud.
    pub fn len(&self) -> usize {
        self.batch.launched[0]
    }

    /// True if there are no grids.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts of a cloud's points, kept and dropped. Known after [`VoxelizeBatch::run_device`], not after
    /// [`VoxelizeBatch::launch`] alone.
    pub fn counters(&self, grid: usize) -> VoxelCounters {
        self.batch.builder.readback.counters(grid, self.batch.launched[1])
    }

    /// Number of values of a cloud that channels leave out, for each field beside x, y and z that channels are computed
    /// from. Known when the [`counters`](Self::counters) are.
    pub fn unusable(&self, grid: usize) -> &'a [u64] {
        self.batch.builder.readback.unusable(grid)
    }

    /// Number of values of a grid's dense output that its type can't hold. Known when the [`counters`](Self::counters)
    /// are.
    pub fn saturated(&self, grid: usize) -> u64 {
        self.batch.builder.readback.saturated(grid)
    }

    /// Index of a grid's first row; for the index after the last grid, the total number of rows. Only in layout `coo`.
    /// Known when the [`counters`](Self::counters) are.
    pub fn first_row(&self, grid: usize) -> usize {
        self.batch.builder.readback.first_row(grid)
    }

    /// Index of each grid's first row, followed by the total number of rows, uint32. Only in layout `coo`.
    pub fn rows(&self) -> &'a DeviceBuf {
        &self.batch.builder.memory.state().rows
    }

    /// Cell indices x, y, z of each row, int32. Only in layout `coo`.
    pub fn coords(&self) -> &'a DeviceBuf {
        self.batch.builder.rows.coords()
    }

    /// A value for each channel of each row, float32. Only in layout `coo`.
    pub fn features(&self) -> &'a DeviceBuf {
        self.batch.builder.rows.features()
    }

    /// The tensors `[C, X, Y, Z]`, one after the other. Only in layout `dense`.
    pub fn dense(&self) -> &'a DeviceBuf {
        self.batch.builder.dense()
    }

    /// The bitmap of a grid: a buffer, and the byte in it at which the bitmap begins. Only in layout `bits`.
    pub fn bitmap(&self, grid: usize) -> (&'a DeviceBuf, usize) {
        self.batch.builder.memory.bitmap(grid)
    }
}
