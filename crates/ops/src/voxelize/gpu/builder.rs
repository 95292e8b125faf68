//! The order in which grids are made.
//!
//! A grid clears up after the one before it while it is made: its buffers are double-buffered (ping-pong), so that one
//! half is written while the other half is cleared, only where it was touched.

use super::super::spec::{GridClouds, Spec};
use super::dense::Dense;
use super::memory::{GridMemory, Method, Product};
use super::points::{CloudsOnDevice, Points};
use super::readback::{Head, Readback};
use super::rows::Rows;
use robocache_device::Dtype;
use robocache_device::gpu::{Budget, DeviceBuf, DeviceFault, DevicePtr, Gpu, PinnedBuf};

/// Makes grids on a device.
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

    /// Gives all memory back.
    pub(super) fn release(&mut self) {
        self.memory.release();
        self.rows.release();
        self.dense.release();
    }

    /// Starts `grids` grids without points. `starts` says where the points of each cloud begin, and where all end, if
    /// the clouds differ in length.
    pub(super) fn begin(&mut self, grids: usize, starts: Option<&[u32]>) -> Result<(), DeviceFault> {
        self.points.begin();
        if self.memory.begin(grids, starts)? {
            self.dense.forget();
        }
        Ok(())
    }

    /// Adds clouds: one to the only grid, or one to each grid.
    ///
    /// # Safety
    /// The memory of the points is left alone until the stream is synchronized after [`Self::finish`].
    pub(super) unsafe fn add(&mut self, spec: &Spec, clouds: CloudsOnDevice<'_>) -> Result<(), DeviceFault> {
        // SAFETY: as this function.
        let clouds = unsafe { clouds.outliving() };
        let (added, saving) = self.points.save(&mut self.memory, spec, clouds)?;
        let cloud = added.clouds.params(&self.memory);
        if self.memory.method == Method::PingPongOutputs {
            // SAFETY: as this function.
            return unsafe { self.dense.launch_cells(&self.memory, &cloud) };
        }
        // SAFETY: the points are the caller's promise; the rest is the builder's own.
        unsafe { self.points.launch(&self.memory, spec, &cloud, added.first, saving) }?;
        self.points.added.push(added);
        Ok(())
    }

    /// Makes the product of what was added. Nothing is waited for; see [`Readback::wait`].
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
            // Otherwise the points past max_voxels are counted with the sums.
            let is_final = spec.max_voxels == usize::MAX;
            if head == Head::Read && is_final {
                self.readback.read_head(memory, spec)?;
            }
            if spec.needs_points() {
                // SAFETY: as this function.
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
            // SAFETY: as this function.
            unsafe { self.dense.launch(memory, &self.rows, spec, clouds, dtype) }?;
        }
        memory.is_dirty = false;
        Ok(())
    }

    /// Puts the copy of the counters and of where the rows begin into the stream, to be waited for.
    pub(super) fn read_head(&mut self, spec: &Spec) -> Result<(), DeviceFault> {
        self.readback.read_head(&self.memory, spec)
    }

    /// Puts the making of a dense output of the rows of the only grid into the stream, in memory that is clear, and the copy
    /// of the count of values that it can't hold.
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
        // SAFETY: as this function.
        unsafe { self.dense.write(&self.memory, &self.rows, spec, clouds, dtype, out) }?;
        self.readback.read_saturated(&self.memory)
    }

    /// The dense outputs of the grids at hand.
    pub(super) fn dense(&self) -> &DeviceBuf {
        self.dense.output(&self.memory)
    }

    /// The occupied cells in cell order.
    fn order(&self) -> &DeviceBuf {
        &self.memory.state().order
    }

    /// Copies the cells of `rows` rows, and their features, of `channels` channels, to `to`, and waits for it.
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
