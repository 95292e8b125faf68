//! The steps that make grids on a device: begin, add clouds, finish.
//!
//! Memory is double-buffered (ping-pong): while a grid is written to one half, the other half is cleared of the
//! previous grid. Only memory that the previous grid touched is cleared.

use super::super::spec::{GridClouds, Spec};
use super::dense::Dense;
use super::memory::{GridMemory, Method, Product};
use super::points::{CloudsOnDevice, Points};
use super::readback::{Head, Readback};
use super::rows::Rows;
use robocache_device::Dtype;
use robocache_device::gpu::{Budget, DeviceBuf, DeviceFault, DevicePtr, Gpu, PinnedBuf};

/// Makes grids on a device: [`Self::begin`], [`Self::add`] for the clouds, [`Self::finish`].
pub(super) struct GridBuilder {
    pub(super) memory: GridMemory,
    points: Points,
    pub(super) rows: Rows,
    dense: Dense,
    pub(super) readback: Readback,
}

impl GridBuilder {
    pub(super) fn new(spec: &Spec, gpu: &Gpu, budget: &Budget, product: Product) -> Result<Self, DeviceFault> {
        Ok(Self {
            memory: GridMemory::new(spec, gpu, budget, product),
            points: Points::default(),
            rows: Rows::new(gpu, budget),
            dense: Dense::new(gpu, budget),
            readback: Readback::new(gpu)?,
        })
    }

    pub(super) fn gpu(&self) -> &Gpu {
        &self.memory.gpu
    }

    pub(super) fn budget(&self) -> &Budget {
        &self.memory.budget
    }

    /// Frees the device memory of the grids. The next grid reserves it again.
    pub(super) fn release(&mut self) {
        self.memory.release();
        self.rows.release();
        self.dense.release();
    }

    /// Starts `grids` grids without points. If the clouds differ in their number of points, `starts` has the index of
    /// each cloud's first point, followed by the total number of points.
    pub(super) fn begin(&mut self, grids: usize, starts: Option<&[u32]>) -> Result<(), DeviceFault> {
        self.points.begin();
        if self.memory.begin(grids, starts)? {
            self.dense.forget();
        }
        Ok(())
    }

    /// Adds one cloud to the only grid, or one cloud to each of several grids.
    ///
    /// # Safety
    /// The memory of the points is neither written nor freed until the stream is synchronized after [`Self::finish`].
    pub(super) unsafe fn add(&mut self, spec: &Spec, clouds: CloudsOnDevice<'_>) -> Result<(), DeviceFault> {
        // SAFETY: as the caller promises.
        let clouds = unsafe { clouds.outliving() };
        let (added, saving) = self.points.save(&mut self.memory, spec, clouds)?;
        let cloud = added.clouds.params(&self.memory);
        if self.memory.method == Method::PingPongOutputs {
            // SAFETY: as the caller promises.
            return unsafe { self.dense.launch_cells(&self.memory, &cloud) };
        }
        // SAFETY: the caller promises for the points; the rest is the builder's own memory.
        unsafe { self.points.launch(&self.memory, spec, &cloud, added.first, saving) }?;
        self.points.added.push(added);
        Ok(())
    }

    /// Enqueues the work that makes the output ([`Product`]) of the added clouds, which have `points` points in all,
    /// and does not wait. If `head` is [`Head::Read`], also enqueues the copy of the counters: see [`Readback::wait`].
    ///
    /// # Safety
    /// As [`Self::add`].
    pub(super) unsafe fn finish(
        &mut self,
        spec: &Spec,
        clouds: &GridClouds,
        points: usize,
        head: Head,
    ) -> Result<(), DeviceFault> {
        let memory = &mut self.memory;
        if memory.method == Method::Bitmaps && !memory.clears_first() {
            // SAFETY: there are no points.
            unsafe { self.points.clear(memory, spec) }?;
        }
        if memory.has_rows(spec) {
            self.rows.reserve(memory, spec, points)?;
            self.rows.launch_rank(memory, spec)?;
            // With `max_voxels`, the points past it are only counted with the sums.
            let is_final = spec.max_voxels == usize::MAX;
            if head == Head::Read && is_final {
                self.readback.read_head(memory, spec)?;
            }
            if spec.needs_points() {
                // SAFETY: as the caller promises.
                unsafe { self.rows.launch_sums(memory, spec, clouds, &self.points.added) }?;
            }
            if let Product::Rows { coords } = memory.product {
                self.rows.launch_features(memory, spec, clouds, coords)?;
            }
            match (head, is_final) {
                (Head::Stays, _) => {}
                (Head::Read, true) => self.readback.read_unusable(memory)?,
                (Head::Read, false) => self.readback.read_head(memory, spec)?,
            }
        } else if head == Head::Read {
            self.readback.read_head(memory, spec)?;
        }
        if let Product::Dense(dtype) = memory.product
            && memory.method == Method::Bitmaps
        {
            // SAFETY: as the caller promises.
            unsafe { self.dense.launch(memory, &self.rows, spec, clouds, dtype) }?;
        }
        memory.is_dirty = false;
        Ok(())
    }

    /// Enqueues the copy of the counters and of each grid's first row to the host: see [`Readback::wait`].
    pub(super) fn read_head(&mut self, spec: &Spec) -> Result<(), DeviceFault> {
        self.readback.read_head(&self.memory, spec)
    }

    /// Enqueues the kernel that writes the single grid's rows to a dense output at `out`, whose bytes must all be 0.
    /// Also enqueues the copy of the number of values that the type can't hold.
    ///
    /// # Safety
    /// There is an element for each channel of each cell at `out`.
    pub(super) unsafe fn write_dense(
        &mut self,
        spec: &Spec,
        clouds: &GridClouds,
        dtype: Dtype,
        out: DevicePtr<'_>,
    ) -> Result<(), DeviceFault> {
        // SAFETY: as the caller promises.
        unsafe { self.dense.write(&self.memory, &self.rows, spec, clouds, dtype, out) }?;
        self.readback.read_saturated(&self.memory)
    }

    /// The dense outputs of the current grids.
    pub(super) fn dense(&self) -> &DeviceBuf {
        self.dense.output(&self.memory)
    }

    /// The occupied cells of the current grids in cell order, uint32.
    fn order(&self) -> &DeviceBuf {
        &self.memory.state().order
    }

    /// Copies the cells of `rows` rows, and their features of `channels` channels, to `to`. Waits for the copy, and
    /// returns both as bytes: the cells, and the features.
    pub(super) fn fetch_rows<'a>(
        &self,
        rows: usize,
        channels: usize,
        to: &'a mut PinnedBuf,
    ) -> Result<[&'a [u8]; 2], DeviceFault> {
        let (order, features) = (rows * 4, rows * channels * 4);
        to.resize(order + features)?;
        let (to_order, to_features) = to.bytes_mut().split_at_mut(order);
        DeviceBuf::fetch_each([(self.order(), 0, to_order), (self.rows.features(), 0, to_features)])?;
        Ok(to.bytes().split_at(order).into())
    }
}
