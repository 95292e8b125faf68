//! Many clouds at once, a grid for each.

use super::super::spec::{Spec, Taken};
use super::super::{Channel, Cloud, VoxelCounters, VoxelGrid, VoxelLayout, VoxelizeConfig};
use super::builder::{CloudsOnDevice, GridBuilder, Head, Product};
use super::params::Fields;
use super::source::{CloudForm, Destination, DeviceClouds, MAX_CLOUDS};
use super::{VoxelizeError, scatter, spec_for_device};
use half::{bf16, f16};
use robocache_device::cuda::{Budget, CudaError, DeviceBuf, Gpu, PinnedBuf};
use robocache_device::{Dtype, HostBuf};

/// Grids on the host, in the order of their clouds.
#[derive(Default)]
pub struct VoxelBatch {
    /// For each cloud.
    pub counters: Vec<VoxelCounters>,
    /// For each cloud, and each field beside x, y and z that channels are computed from, in the order in which the
    /// channels first name them: how many values its channels leave out.
    pub unusable: Vec<u64>,
    /// For each cloud: how many values of a dense output its type can't hold.
    pub saturated: Vec<u64>,
    /// Of layout `coo`: the first row of each grid, and the number of rows after the last.
    pub rows: Vec<usize>,
    /// Of layout `coo`: x y z of each row.
    pub coords: Vec<i32>,
    /// Of layout `coo`: one value for each channel of each row.
    pub features: Vec<f32>,
    /// Of layout `dense` the tensors `[C, X, Y, Z]`, of layout `bits` the bitmaps of ceil(X * Y * Z / 8) bytes, behind
    /// one another.
    pub cells: HostBuf,
}

/// The part of a [`VoxelBatch`] whose size is known before the grids are made, and the one that grows.
pub(super) struct Slots<'a> {
    pub(super) counters: &'a mut [VoxelCounters],
    pub(super) unusable: &'a mut [u64],
    pub(super) saturated: &'a mut [u64],
    pub(super) cells: &'a mut [u8],
    pub(super) rows: &'a mut RowsOut,
}

#[derive(Default)]
pub(super) struct RowsOut {
    pub(super) rows: Vec<usize>,
    pub(super) coords: Vec<i32>,
    pub(super) features: Vec<f32>,
}

impl VoxelBatch {
    /// Makes room for what is counted of so many clouds.
    pub(super) fn begin(&mut self, clouds: usize, fields: usize) {
        self.counters.clear();
        self.counters.resize(clouds, VoxelCounters::default());
        self.unusable.clear();
        self.unusable.resize(clouds * fields, 0);
        self.saturated.clear();
        self.saturated.resize(clouds, 0);
    }
}

impl RowsOut {
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.rows.push(0);
        self.coords.clear();
        self.features.clear();
    }
}

/// Makes grids of many clouds on a CUDA device, with the bits of [`CpuVoxelizer`](super::super::CpuVoxelizer).
///
/// What does not fit its share of the device's memory is made in several parts, with the same result.
pub struct VoxelizeBatch {
    spec: Spec,
    taken: Taken,
    builder: GridBuilder,
    dtype: Dtype,
    /// Clouds that are made at once.
    chunk: usize,
    points: DeviceBuf,
    starts: Vec<u32>,
    /// The points of each cloud of the device batch that was launched last.
    launched: [usize; 2],
    /// The rows that dense grids are made of.
    rows: PinnedBuf,
}

impl VoxelizeBatch {
    /// For a configuration, of which the first input's extrinsic is that of all clouds, on a device, of whose memory
    /// it holds `max_bytes` at most.
    ///
    /// # Errors
    /// As [`VoxelizeConfig::validate`]; if the channels are computed from more fields than the kernels take; what
    /// the driver says.
    pub fn new(config: &VoxelizeConfig, gpu: &Gpu, max_bytes: Option<usize>) -> Result<Self, VoxelizeError> {
        let spec = spec_for_device(config)?;
        let budget = Budget::new(max_bytes);
        Ok(Self {
            builder: GridBuilder::new(&spec, gpu, &budget, Product::Rows { coords: true })?,
            taken: Taken::default(),
            dtype: config.dtype,
            chunk: MAX_CLOUDS,
            points: DeviceBuf::new(gpu, &budget),
            starts: Vec::new(),
            launched: [0; 2],
            rows: PinnedBuf::new(gpu),
            spec,
        })
    }

    /// The grid.
    pub fn grid(&self) -> &VoxelGrid {
        &self.spec.grid
    }

    /// The channels, in the order of the output.
    pub fn channels(&self) -> &[Channel] {
        &self.spec.channels
    }

    /// Bytes of device memory that are held.
    pub fn used_bytes(&self) -> usize {
        self.builder.budget.used()
    }

    /// Clouds that are made at once: fewer after memory ran out.
    pub fn chunk(&self) -> usize {
        self.chunk
    }

    /// Bytes of `cells` for each grid.
    pub(super) fn bytes_per_grid(&self) -> usize {
        let cells = self.spec.grid.cells();
        match self.spec.layout {
            VoxelLayout::Bits => cells.div_ceil(8),
            VoxelLayout::Dense => cells * self.spec.channels.len() * self.dtype.size(),
            VoxelLayout::Coo => 0,
        }
    }

    /// Fields beside x, y and z that channels are computed from.
    pub(super) fn fields(&self) -> usize {
        self.spec.plan.fields.len()
    }

    /// Makes a grid of each cloud.
    ///
    /// # Errors
    /// The first cloud that can't be taken, before anything is made; no memory even for one cloud; what the driver
    /// says.
    pub fn run(&mut self, clouds: &[Cloud<'_>], out: &mut VoxelBatch) -> Result<(), VoxelizeError> {
        let mut rows = RowsOut {
            rows: std::mem::take(&mut out.rows),
            coords: std::mem::take(&mut out.coords),
            features: std::mem::take(&mut out.features),
        };
        rows.clear();
        out.begin(clouds.len(), self.fields());
        out.cells.resize(clouds.len() * self.bytes_per_grid());
        let slots = Slots {
            counters: &mut out.counters,
            unusable: &mut out.unusable,
            saturated: &mut out.saturated,
            cells: out.cells.bytes_mut(),
            rows: &mut rows,
        };
        let made = self.run_into(clouds, slots);
        RowsOut {
            rows: out.rows,
            coords: out.coords,
            features: out.features,
        } = rows;
        made
    }

    /// Makes a grid of each cloud, and appends rows.
    pub(super) fn run_into(&mut self, clouds: &[Cloud<'_>], slots: Slots<'_>) -> Result<(), VoxelizeError> {
        for cloud in clouds {
            self.spec.check(cloud)?;
        }
        let (bytes, fields) = (self.bytes_per_grid(), self.fields());
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
                counters: &mut slots.counters[at..at + count],
                unusable: &mut slots.unusable[at * fields..(at + count) * fields],
                saturated: &mut slots.saturated[at..at + count],
                cells: &mut slots.cells[at * bytes..(at + count) * bytes],
                rows: &mut *slots.rows,
            };
            let made = self.run_chunk(&clouds[at..at + count], &form, part);
            if made.is_err() {
                // The clouds may still be on their way. The error that came first is the one to tell.
                let _ = self.builder.gpu.synchronize();
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

    fn run_chunk(&mut self, clouds: &[Cloud<'_>], form: &CloudForm, out: Slots<'_>) -> Result<(), VoxelizeError> {
        let total: usize = clouds.iter().map(Cloud::len).sum();
        let longest = clouds.iter().map(Cloud::len).max().unwrap_or(0);
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
        self.taken.clear(&self.spec.plan);
        self.taken.take(&self.spec, &clouds[0])?;
        let is_even = clouds.iter().all(|cloud| cloud.len() == longest);
        let product = match self.spec.layout {
            VoxelLayout::Bits => Product::Bits,
            VoxelLayout::Coo => Product::Rows { coords: true },
            VoxelLayout::Dense => Product::Rows { coords: false },
        };
        self.builder.prepare(&self.spec, product, clouds.len());
        self.builder.begin(clouds.len(), (!is_even).then_some(&self.starts))?;
        let mut params = GridBuilder::cloud_params(&self.spec, 0);
        let mut fields = Fields::default();
        form.describe(self.points.address(), total, &mut params, &mut fields);
        let on_device = CloudsOnDevice {
            cloud: params,
            fields,
            longest,
            total,
        };
        // SAFETY: the points are this batch's own, and the stream is synchronized below.
        unsafe {
            self.builder.add(&self.spec, on_device)?;
            self.builder.finish(&self.spec, &self.taken, total, Head::Read)?;
        }
        self.builder.wait()?;
        for (i, (counters, cloud)) in out.counters.iter_mut().zip(clouds).enumerate() {
            *counters = self.builder.counters(i, cloud.len());
        }
        match self.spec.layout {
            VoxelLayout::Bits => self.download_bits(clouds.len(), out.cells)?,
            VoxelLayout::Coo => self.download_rows(clouds.len(), out.rows)?,
            VoxelLayout::Dense => self.download_dense(out.saturated, out.cells)?,
        }
        for (i, unusable) in out.unusable.chunks_mut(self.fields().max(1)).enumerate() {
            unusable.copy_from_slice(self.builder.unusable(i));
        }
        Ok(())
    }

    fn download_bits(&mut self, grids: usize, out: &mut [u8]) -> Result<(), CudaError> {
        let bytes = self.bytes_per_grid();
        if bytes == self.builder.bitmap_stride() {
            let (bitmaps, at) = self.builder.bitmap(0);
            return DeviceBuf::fetch_each([(bitmaps, at, out)]);
        }
        for (grid, out) in out.chunks_mut(bytes).take(grids).enumerate() {
            let (bitmap, at) = self.builder.bitmap(grid);
            // SAFETY: it is borrowed until the stream is synchronized.
            unsafe { bitmap.download(at, out) }?;
        }
        self.builder.gpu.synchronize()
    }

    fn download_rows(&mut self, grids: usize, out: &mut RowsOut) -> Result<(), CudaError> {
        let before = out.rows.last().copied().unwrap_or(0);
        let rows = self.builder.first_row(grids);
        let columns = self.spec.channels.len();
        out.coords.resize((before + rows) * 3, 0);
        out.features.resize((before + rows) * columns, 0.0);
        let coords = bytemuck::cast_slice_mut(&mut out.coords[before * 3..]);
        let features = bytemuck::cast_slice_mut(&mut out.features[before * columns..]);
        DeviceBuf::fetch_each([
            (self.builder.coords(), 0, coords),
            (self.builder.features(), 0, features),
        ])?;
        // Last, so that what failed can be done again.
        out.rows
            .extend((1..=grids).map(|grid| before + self.builder.first_row(grid)));
        Ok(())
    }

    /// Only the occupied cells come from the device: they are far fewer bytes.
    fn download_dense(&mut self, saturated: &mut [u64], out: &mut [u8]) -> Result<(), CudaError> {
        let grids = saturated.len();
        let columns = self.spec.channels.len();
        let rows = self.builder.first_row(grids);
        let [order, features] = self.builder.fetch_rows(rows, columns, &mut self.rows)?;
        let bytes = out.len() / grids;
        for ((grid, out), saturated) in out.chunks_exact_mut(bytes).enumerate().zip(saturated) {
            let [from, until] = [grid, grid + 1].map(|grid| self.builder.first_row(grid));
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

    /// Makes a grid of each cloud, on the device, of points that are there, and leaves them there: see
    /// [`grids`](Self::grids).
    ///
    /// # Errors
    /// The clouds can't be taken or are on another device; no memory; what the driver says.
    pub fn run_device(&mut self, clouds: &DeviceClouds<'_>) -> Result<DeviceGrids<'_>, VoxelizeError> {
        // SAFETY: the clouds are borrowed until the stream is synchronized.
        unsafe { self.launch(clouds) }?;
        self.builder.read_head(&self.spec)?;
        self.builder.gpu.synchronize()?;
        Ok(self.grids())
    }

    /// Puts the making of the grids into the stream and waits for nothing. Two states take turns, so a graph must
    /// hold an even number of launches; one of the same size must have been done before it is captured.
    ///
    /// # Errors
    /// As [`run_device`](Self::run_device).
    ///
    /// # Safety
    /// The points, and this batch, are left alone until the stream is synchronized.
    pub unsafe fn launch(&mut self, clouds: &DeviceClouds<'_>) -> Result<(), VoxelizeError> {
        self.builder.gpu.check(clouds.buffer.gpu())?;
        self.spec.check(clouds)?;
        let product = match self.spec.layout {
            VoxelLayout::Bits => Product::Bits,
            VoxelLayout::Coo => Product::Rows { coords: true },
            VoxelLayout::Dense => Product::Dense(self.dtype),
        };
        self.taken.clear(&self.spec.plan);
        self.taken.take(&self.spec, clouds)?;
        let total = clouds.clouds * clouds.points;
        self.launched = [clouds.clouds, clouds.points];
        let mut params = GridBuilder::cloud_params(&self.spec, 0);
        let mut fields = Fields::default();
        clouds.describe(&self.spec.plan, &mut params, &mut fields)?;
        let grids = clouds.clouds.max(1);
        self.builder.prepare(&self.spec, product, grids);
        self.builder.begin(grids, None)?;
        let on_device = CloudsOnDevice {
            cloud: params,
            fields,
            longest: clouds.points,
            total,
        };
        // SAFETY: the fields are within their buffer; that it is left alone is the caller's promise.
        unsafe {
            self.builder.add(&self.spec, on_device)?;
            self.builder.finish(&self.spec, &self.taken, total, Head::Stays)?;
        }
        Ok(())
    }

    /// The grids that were launched last, where they are.
    pub fn grids(&self) -> DeviceGrids<'_> {
        DeviceGrids { batch: self }
    }
}

/// Grids on the device that they were made on. They are there until the batch makes others.
#[derive(Clone, Copy)]
pub struct DeviceGrids<'a> {
    batch: &'a VoxelizeBatch,
}

impl<'a> DeviceGrids<'a> {
    /// How many grids there are.
    pub fn len(&self) -> usize {
        self.batch.launched[0]
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What became of the points of a cloud. Known after [`VoxelizeBatch::run_device`], not after a bare launch.
    pub fn counters(&self, grid: usize) -> VoxelCounters {
        self.batch.builder.counters(grid, self.batch.launched[1])
    }

    /// For each field beside x, y and z that channels are computed from: how many values of a cloud its channels leave
    /// out. Known as the counters are.
    pub fn unusable(&self, grid: usize) -> &'a [u64] {
        self.batch.builder.unusable(grid)
    }

    /// How many values of a dense output its type can't hold. Known as the counters are.
    pub fn saturated(&self, grid: usize) -> u64 {
        self.batch.builder.saturated(grid)
    }

    /// Of layout `coo`: the first row of a grid, or after the last one their number. Known as the counters are.
    pub fn first_row(&self, grid: usize) -> usize {
        self.batch.builder.first_row(grid)
    }

    /// Of layout `coo`: the first row of each grid and the number of all, uint32.
    pub fn rows(&self) -> &'a DeviceBuf {
        self.batch.builder.rows()
    }

    /// Of layout `coo`: x y z of each row, int32.
    pub fn coords(&self) -> &'a DeviceBuf {
        self.batch.builder.coords()
    }

    /// Of layout `coo`: a value for each channel of each row, float32.
    pub fn features(&self) -> &'a DeviceBuf {
        self.batch.builder.features()
    }

    /// Of layout `dense`: the tensors `[C, X, Y, Z]`, behind one another.
    pub fn dense(&self) -> &'a DeviceBuf {
        self.batch.builder.dense()
    }

    /// Of layout `bits`: where the bitmap of a grid begins: a buffer and a byte in it.
    pub fn bitmap(&self, grid: usize) -> (&'a DeviceBuf, usize) {
        self.batch.builder.bitmap(grid)
    }
}
