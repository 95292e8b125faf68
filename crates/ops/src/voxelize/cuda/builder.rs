//! The memory of grids on a device, and the order in which they are made.
//!
//! A grid clears up after the one before it while it is made: its buffers are double-buffered (ping-pong), so that one
//! half is written while the other half is cleared, only where it was touched.

use super::super::VoxelCounters;
use super::super::channel::Output;
use super::super::spec::{Spec, Taken};
use super::params::*;
use robocache_device::Dtype;
use robocache_device::cuda::{Budget, CudaError, DeviceBuf, Event, Gpu, PinnedBuf};

/// Words of the smallest superblock, 2^this: two for each thread of a block of [`RANK`].
const SUPERBLOCK_SHIFT: u32 = RANK_BLOCK.ilog2() + 1;
/// A bitmap over so many bytes is cleared where it was touched, a smaller one in whole, which is quicker.
const BYTES_CLEARED_WHOLE: usize = 16 << 20;
/// Bitmaps over so many bytes are cleared before they are used; smaller ones while the others are used, which saves a
/// launch.
const BYTES_CLEARED_MEANWHILE: usize = 4 << 20;

/// Dense outputs over so many bytes are not double-buffered.
const BYTES_DOUBLE_BUFFERED: usize = 128 << 20;

/// How the occupied cells are found, and those of the grid before cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// In bitmaps: double-buffered where they are small, else one that is cleared first.
    Bitmaps,
    /// Without bitmaps, in double-buffered dense outputs.
    PingPongOutputs,
}

/// What is made of the points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Product {
    /// The bitmaps.
    Bits,
    /// The features of the occupied cells in cell order, with their coordinates or their indices.
    Rows { coords: bool },
    /// Every cell, in [`GridBuilder::dense`].
    Dense(Dtype),
}

/// Whether the counters and the number of rows are sent to the host once they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    Read,
    Stays,
}

/// The sizes of a grid's bitmap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) cells: usize,
    pub(super) words: usize,
    pub(super) superblocks: usize,
    pub(super) shift: u32,
    /// Fields beside x, y and z.
    fields: usize,
}

impl Sizes {
    /// Of a grid of which there is no bitmap.
    fn without_bitmap(cells: usize, fields: usize) -> Self {
        Self {
            cells,
            words: 0,
            superblocks: 0,
            shift: SUPERBLOCK_SHIFT,
            fields,
        }
    }

    fn of(cells: usize, fields: usize) -> Self {
        let words = cells.div_ceil(32);
        let mut shift = SUPERBLOCK_SHIFT;
        while words.div_ceil(1 << shift) > MAX_SUPERBLOCKS {
            shift += 1;
        }
        let superblocks = words.div_ceil(1 << shift);
        Self {
            cells,
            words: superblocks << shift,
            superblocks,
            shift,
            fields,
        }
    }

    /// Where counters, counts and words lie in the memory of a state of so many grids, and where that ends.
    pub(super) fn layout(&self, grids: usize) -> [usize; 4] {
        let counts = self.saturated(grids) + grids * 8;
        let words = (counts + grids * self.superblocks * 4).next_multiple_of(ALIGNMENT);
        [0, counts, words, words + grids * self.words * 4]
    }

    /// Where, behind the counters, the unusable values of each field of each grid are counted.
    pub(super) fn unusable(&self, grids: usize) -> usize {
        grids * COUNTER_BYTES
    }

    /// Where, behind those, the values of each grid are counted that a dense output can't hold.
    pub(super) fn saturated(&self, grids: usize) -> usize {
        self.unusable(grids) + grids * self.fields * 8
    }
}

const ALIGNMENT: usize = 256;
/// Those of a grid.
const COUNTER_BYTES: usize = COUNTER_SLOTS * 32;

/// What a grid needs while it is made, and the next one to clear up after it.
pub(super) struct State {
    /// The cell of each point, or of some by which all can be found.
    pub(super) cells: DeviceBuf,
    /// How many of them there are; 0: none were saved.
    pub(super) saved: usize,
    /// Where the points of each cloud begin, if the clouds differ in length.
    pub(super) starts: DeviceBuf,
    pub(super) has_starts: bool,
    /// The occupied cells in cell order, and the first row of each grid.
    pub(super) order: DeviceBuf,
    pub(super) rows: DeviceBuf,
    /// Points of a cloud, where all clouds have as many.
    pub(super) points: usize,
    pub(super) grids: usize,
}

/// Clouds on the device: one of the only grid, or one of each grid.
#[derive(Clone, Copy)]
pub(super) struct CloudsOnDevice {
    pub(super) cloud: CloudParams,
    pub(super) fields: Fields,
    /// The most points of one of them.
    pub(super) longest: usize,
    /// The points of all.
    pub(super) total: usize,
}

/// Clouds that were added, and where their cells are.
pub(super) struct Added {
    pub(super) clouds: CloudsOnDevice,
    /// The first of their points among those of the grid; in a batch 0.
    pub(super) first: usize,
}

/// Which cells of points are saved.
#[derive(Clone, Copy)]
pub(super) struct Saving {
    /// One of the `SAVE_` constants.
    pub(super) which: u32,
    /// The bits of the cells among which the first is saved, at bit 0.
    pub(super) group: u32,
}

impl Saving {
    pub(super) const NONE: Self = Self {
        which: SAVE_NONE,
        group: 1,
    };
}

/// Makes grids on a device. Its memory grows to that of the largest, and is used again.
pub(super) struct GridBuilder {
    pub(super) gpu: Gpu,
    pub(super) budget: Budget,
    pub(super) product: Product,
    pub(super) method: Method,
    pub(super) sizes: Sizes,
    pub(super) states: [State; 2],
    /// VoxelCounters, counts and bitmaps, those of each state or the first for both: see [`Sizes::layout`].
    pub(super) memories: [DeviceBuf; 2],
    /// The half of each pair that the grid at hand is in.
    pub(super) half: usize,
    /// Whether a call was left in the middle, so that nothing is known of the states.
    pub(super) is_dirty: bool,
    /// Whether the state of the grid before was cleared already.
    pub(super) has_cleared: bool,
    pub(super) added: Vec<Added>,
    /// For each 4 words the occupied cells before them.
    pub(super) ranks: DeviceBuf,
    pub(super) sums: DeviceBuf,
    pub(super) keys: DeviceBuf,
    /// What the sums of fields can't take: see the kernel.
    pub(super) exceptions: DeviceBuf,
    pub(super) coords: DeviceBuf,
    pub(super) features: DeviceBuf,
    /// Where dense grids are written: double-buffered, or always the first.
    pub(super) outputs: [DeviceBuf; 2],
    /// The grids that [`Self::outputs`] hold; 0: they hold anything.
    pub(super) dense_grids: usize,
    /// Rows that there is room for.
    pub(super) row_capacity: usize,
    pub(super) head: PinnedBuf,
    pub(super) head_ready: Event,
    /// What is counted with the sums is known later than the rest of the head.
    pub(super) unusable_ready: Event,
}

impl GridBuilder {
    pub(super) fn new(spec: &Spec, gpu: &Gpu, budget: &Budget, product: Product) -> Result<Self, CudaError> {
        let buffer = || DeviceBuf::new(gpu, budget);
        let state = || State {
            cells: buffer(),
            saved: 0,
            starts: buffer(),
            has_starts: false,
            order: buffer(),
            rows: buffer(),
            points: 0,
            grids: 0,
        };
        Ok(Self {
            gpu: gpu.clone(),
            budget: budget.clone(),
            product,
            method: Method::Bitmaps,
            sizes: Sizes::of(spec.grid.cells(), spec.plan.fields.len()),
            states: [state(), state()],
            memories: [buffer(), buffer()],
            half: 0,
            is_dirty: true,
            has_cleared: false,
            added: Vec::new(),
            ranks: buffer(),
            sums: buffer(),
            keys: buffer(),
            exceptions: buffer(),
            coords: buffer(),
            features: buffer(),
            outputs: [buffer(), buffer()],
            dense_grids: 0,
            row_capacity: 0,
            head: PinnedBuf::new(gpu),
            head_ready: gpu.event()?,
            unusable_ready: gpu.event()?,
        })
    }

    /// Gives all memory back.
    pub(super) fn release(&mut self) {
        for state in &mut self.states {
            for buffer in [&mut state.cells, &mut state.starts, &mut state.order, &mut state.rows] {
                buffer.release();
            }
        }
        for buffer in [
            &mut self.ranks,
            &mut self.sums,
            &mut self.keys,
            &mut self.exceptions,
            &mut self.coords,
            &mut self.features,
        ] {
            buffer.release();
        }
        for buffer in self.outputs.iter_mut().chain(&mut self.memories) {
            buffer.release();
        }
        self.is_dirty = true;
        self.dense_grids = 0;
    }

    /// Takes up another product, or another number of grids. What is held for those before is of no use for it.
    pub(super) fn prepare(&mut self, spec: &Spec, product: Product, grids: usize) {
        let cells = self.sizes.cells;
        let is_occupancy = matches!(spec.plan.outputs[..], [Output::One]);
        let method = match product {
            Product::Dense(dtype) if is_occupancy && self.can_double_buffer(grids * cells * dtype.size()) => {
                Method::PingPongOutputs
            }
            _ => Method::Bitmaps,
        };
        if (self.product, self.method) == (product, method) {
            return;
        }
        (self.product, self.method) = (product, method);
        self.sizes = match method {
            Method::Bitmaps => Sizes::of(cells, spec.plan.fields.len()),
            Method::PingPongOutputs => Sizes::without_bitmap(cells, spec.plan.fields.len()),
        };
        self.is_dirty = true;
    }

    /// Whether there is one bitmap of each grid, which is cleared before it is used.
    pub(super) fn clears_first(&self) -> bool {
        let [.., bytes] = self.sizes.layout(self.laid_out());
        bytes > BYTES_CLEARED_MEANWHILE && !self.clears_by_cells()
    }

    /// VoxelCounters, counts and bitmaps of the grids at hand.
    pub(super) fn memory(&self) -> &DeviceBuf {
        let half = if self.clears_first() { 0 } else { self.half };
        &self.memories[half]
    }

    /// Whether two outputs of so many bytes are no more than the operation should hold.
    fn can_double_buffer(&self, bytes: usize) -> bool {
        let limit = self.budget.limit().unwrap_or(usize::MAX);
        bytes <= BYTES_DOUBLE_BUFFERED && 3 * bytes <= limit
    }

    pub(super) fn state(&self) -> &State {
        &self.states[self.half]
    }

    pub(super) fn previous(&self) -> &State {
        &self.states[1 - self.half]
    }

    /// The grids that the memory of the states is laid out for.
    pub(super) fn laid_out(&self) -> usize {
        self.states[0].grids.max(self.states[1].grids)
    }

    /// Whether the dense output is the occupancy alone, for which no rows are needed.
    pub(super) fn is_occupancy(&self, spec: &Spec) -> bool {
        matches!(self.product, Product::Dense(_)) && matches!(spec.plan.outputs[..], [Output::One])
    }

    pub(super) fn has_rows(&self, spec: &Spec) -> bool {
        match self.product {
            Product::Bits => false,
            Product::Rows { .. } => true,
            Product::Dense(_) => !self.is_occupancy(spec),
        }
    }

    pub(super) fn clears_by_cells(&self) -> bool {
        self.sizes.words * 4 > BYTES_CLEARED_WHOLE && self.laid_out() == 1
    }

    /// Starts `grids` grids without points. `starts` says where the points of each cloud begin, and where all end, if
    /// the clouds differ in length.
    pub(super) fn begin(&mut self, grids: usize, starts: Option<&[u32]>) -> Result<(), CudaError> {
        self.added.clear();
        self.has_cleared = false;
        self.half = 1 - self.half;
        let [.., bytes] = self.sizes.layout(grids);
        let is_new = self.is_dirty || grids != self.laid_out();
        self.is_dirty = true;
        if is_new {
            for state in &mut self.states {
                state.rows.reserve((grids + 1) * 4)?;
                state.rows.clear(0, (grids + 1) * 4)?;
                (state.grids, state.saved, state.points, state.has_starts) = (grids, 0, 0, false);
            }
            self.dense_grids = 0;
            let used = if self.clears_first() { 1 } else { 2 };
            for memory in &mut self.memories[..used] {
                memory.reserve(bytes)?;
                memory.clear(0, bytes)?;
            }
        } else if self.clears_first() {
            self.memories[0].clear(0, bytes)?;
        }
        let state = &mut self.states[self.half];
        (state.saved, state.points) = (0, 0);
        state.has_starts = starts.is_some();
        if let Some(starts) = starts {
            state.starts.reserve(size_of_val(starts))?;
            // SAFETY: the caller leaves page-locked memory alone until the stream is synchronized.
            unsafe { state.starts.upload(0, bytemuck::cast_slice(starts)) }?;
        }
        Ok(())
    }

    /// What is the same for all clouds of an input.
    pub(super) fn cloud_params(spec: &Spec, input: usize) -> CloudParams {
        let grid = &spec.grid;
        let [_, ny, nz] = grid.shape().map(|n| n as u32);
        let mut cloud = CloudParams {
            origin: grid.origin_m(),
            inverse: grid.inverse(),
            shape: grid.shape().map(|n| n as f32),
            ny,
            nz,
            field_count: spec.plan.fields.len() as u32,
            ..CloudParams::default()
        };
        if let Some(transform) = &spec.transforms[input] {
            cloud.is_moved = 1;
            cloud.rotation = transform.rotation;
            cloud.translation = transform.translation;
        }
        cloud
    }

    /// Adds clouds: one to the only grid, or one to each grid.
    ///
    /// # Safety
    /// The memory of the points is left alone until the stream is synchronized after [`Self::finish`].
    pub(super) unsafe fn add(&mut self, spec: &Spec, mut clouds: CloudsOnDevice) -> Result<(), CudaError> {
        let CloudsOnDevice { longest, total, .. } = clouds;
        if self.state().has_starts {
            clouds.cloud.starts = self.state().starts.address();
        }
        clouds.cloud.points = longest as u32;
        let first = self.added.iter().map(|added| added.clouds.longest).sum();
        let save = self.save(spec);
        if save.which != SAVE_NONE {
            let bytes = (first + total) * 4;
            keep_and_reserve(&mut self.states[self.half].cells, &self.budget, [first * 4, bytes])?;
            self.states[self.half].saved = first + total;
        }
        self.states[self.half].points = first + longest;
        if self.method == Method::PingPongOutputs {
            // SAFETY: as this function.
            return unsafe { self.launch_cells(&clouds.cloud) };
        }
        // SAFETY: the points are the caller's promise; the rest is the builder's own.
        unsafe { self.launch_points(spec, &clouds, first, save) }?;
        self.added.push(Added { clouds, first });
        Ok(())
    }

    fn save(&self, spec: &Spec) -> Saving {
        if let Product::Dense(dtype) = self.product
            && self.is_occupancy(spec)
        {
            return Saving {
                which: SAVE_FIRST,
                group: self.sector_mask(dtype),
            };
        }
        let (which, group) = match (self.has_rows(spec) && spec.needs_points(), self.clears_by_cells()) {
            (true, _) => (SAVE_ALL, 1),
            (false, true) => (SAVE_FIRST, 0xff),
            (false, false) => return Saving::NONE,
        };
        Saving { which, group }
    }

    /// The bits of the cells that share 32 bytes of a dense output; of one cell, where the grid is no whole number
    /// of them.
    pub(super) fn sector_mask(&self, dtype: Dtype) -> u32 {
        match 32 / dtype.size() {
            cells if !self.sizes.cells.is_multiple_of(cells) => 1,
            8 => 0xff,
            _ => 0xffff,
        }
    }

    /// Makes the product of what was added. Nothing is waited for; see [`Self::wait`].
    ///
    /// # Safety
    /// As [`Self::add`].
    pub(super) unsafe fn finish(
        &mut self,
        spec: &Spec,
        taken: &Taken,
        points: usize,
        head: Head,
    ) -> Result<(), CudaError> {
        let grids = self.laid_out();
        if !self.has_cleared && self.method == Method::Bitmaps && !self.clears_first() {
            let none = CloudsOnDevice {
                cloud: Self::cloud_params(spec, 0),
                fields: Fields::default(),
                longest: 0,
                total: 0,
            };
            // SAFETY: there are no points.
            unsafe { self.launch_points(spec, &none, 0, Saving::NONE) }?;
        }
        if self.has_rows(spec) {
            // SAFETY: as this function.
            unsafe { self.launch_rows(spec, taken, points, head) }?;
        } else if head == Head::Read {
            self.read_head(spec)?;
        }
        if let Product::Dense(dtype) = self.product
            && self.method == Method::Bitmaps
        {
            // SAFETY: as this function.
            unsafe { self.launch_dense(spec, taken, dtype, grids) }?;
        }
        self.is_dirty = false;
        Ok(())
    }

    /// Puts the copy of the counters and of where the rows begin into the stream, to be waited for.
    pub(super) fn read_head(&mut self, spec: &Spec) -> Result<(), CudaError> {
        let (grids, has_rows) = (self.laid_out(), self.has_rows(spec));
        let [_, rows, ..] = self.sizes.layout(grids);
        self.head.resize((rows + (grids + 1) * 4).next_multiple_of(8))?;
        let state = &self.states[self.half];
        let memory = &self.memories[if self.clears_first() { 0 } else { self.half }];
        let (counters, starts) = self.head.bytes_mut().split_at_mut(rows);
        // SAFETY: the memory is read after the event only, and is this builder's.
        unsafe {
            memory.download(0, counters)?;
            if has_rows {
                state.rows.download(0, &mut starts[..(grids + 1) * 4])?;
            }
        }
        self.unusable_ready.record()?;
        self.head_ready.record()
    }

    /// Puts the copy of the counts of unusable values into the stream, where the head was read before they were made.
    pub(super) fn read_unusable(&mut self) -> Result<(), CudaError> {
        let grids = self.laid_out();
        let [from, until] = [self.sizes.unusable(grids), self.sizes.saturated(grids)];
        if from == until {
            return Ok(());
        }
        let half = if self.clears_first() { 0 } else { self.half };
        let counts = &mut self.head.bytes_mut()[from..until];
        // SAFETY: the memory is read after the event only, and is this builder's.
        unsafe { self.memories[half].download(from, counts) }?;
        self.unusable_ready.record()
    }

    /// Waits for what [`Self::read_unusable`] copies.
    pub(super) fn wait_for_unusable(&self) -> Result<(), CudaError> {
        self.unusable_ready.wait()
    }

    /// Puts the copy of the count of values that the only grid's dense output can't hold into the stream.
    pub(super) fn read_saturated(&mut self) -> Result<(), CudaError> {
        let at = self.sizes.saturated(1);
        let half = if self.clears_first() { 0 } else { self.half };
        // SAFETY: the memory is read after the stream is synchronized, and is this builder's.
        unsafe { self.memories[half].download(at, &mut self.head.bytes_mut()[at..at + 8]) }
    }

    /// Waits for what [`Self::read_head`] copies.
    pub(super) fn wait(&self) -> Result<(), CudaError> {
        self.head_ready.wait()
    }

    /// What became of the points of a grid that was made of `points` points.
    pub(super) fn counters(&self, grid: usize, points: usize) -> VoxelCounters {
        let slots: &[[u64; 4]] = bytemuck::cast_slice(&self.head.bytes()[grid * COUNTER_BYTES..][..COUNTER_BYTES]);
        let counters = [0, 1, 2, 3].map(|i| slots.iter().map(|slot| slot[i]).sum::<u64>());
        VoxelCounters {
            points_in: points as u64,
            points_kept: counters[0] - counters[3],
            dropped_nonfinite: counters[1],
            dropped_outside: counters[2],
            dropped_overflow: counters[3],
        }
    }

    /// How many values of each field are unusable, in the order of the plan.
    pub(super) fn unusable(&self, grid: usize) -> &[u64] {
        let fields = self.sizes.fields;
        let at = self.sizes.unusable(self.laid_out()) + grid * fields * 8;
        bytemuck::cast_slice(&self.head.bytes()[at..][..fields * 8])
    }

    /// How many values a dense output on the device can't hold, as far as it was written before the counters were read.
    pub(super) fn saturated(&self, grid: usize) -> u64 {
        let at = self.sizes.saturated(self.laid_out()) + grid * 8;
        bytemuck::pod_read_unaligned(&self.head.bytes()[at..][..8])
    }

    /// The first row of a grid; of the one after the last: the number of rows.
    pub(super) fn first_row(&self, grid: usize) -> usize {
        let [_, counts, ..] = self.sizes.layout(self.laid_out());
        let rows: &[u32] = bytemuck::cast_slice(&self.head.bytes()[counts..]);
        rows[grid] as usize
    }

    /// The bitmaps, and the byte in them at which that of a grid begins.
    pub(super) fn bitmap(&self, grid: usize) -> (&DeviceBuf, usize) {
        let [_, _, words, _] = self.sizes.layout(self.laid_out());
        (self.memory(), words + grid * self.bitmap_stride())
    }

    /// Bytes from the bitmap of a grid to that of the next.
    pub(super) fn bitmap_stride(&self) -> usize {
        self.sizes.words * 4
    }

    pub(super) fn coords(&self) -> &DeviceBuf {
        &self.coords
    }

    pub(super) fn order(&self) -> &DeviceBuf {
        &self.state().order
    }

    pub(super) fn features(&self) -> &DeviceBuf {
        &self.features
    }

    /// Copies the cells of so many rows, and their features, of so many channels, to `to`, and waits for it.
    pub(super) fn fetch_rows<'a>(
        &self,
        rows: usize,
        channels: usize,
        to: &'a mut PinnedBuf,
    ) -> Result<[&'a [u8]; 2], CudaError> {
        let (order, features) = (rows * 4, rows * channels * 4);
        to.resize(order + features)?;
        let (to_order, to_features) = to.bytes_mut().split_at_mut(order);
        DeviceBuf::fetch_each([(self.order(), 0, to_order), (self.features(), 0, to_features)])?;
        Ok(to.bytes().split_at(order).into())
    }

    pub(super) fn dense(&self) -> &DeviceBuf {
        match self.method {
            Method::PingPongOutputs => &self.outputs[self.half],
            _ => &self.outputs[0],
        }
    }

    /// The number of rows of each grid before it, as uint32 on the device, and of all after the last.
    pub(super) fn rows(&self) -> &DeviceBuf {
        &self.state().rows
    }
}

/// Makes room for `bytes` bytes and keeps the first `used`.
fn keep_and_reserve(buffer: &mut DeviceBuf, budget: &Budget, [used, bytes]: [usize; 2]) -> Result<(), CudaError> {
    if bytes <= buffer.capacity() || used == 0 {
        return buffer.reserve(bytes);
    }
    let mut grown = DeviceBuf::new(buffer.gpu(), budget);
    grown.reserve(bytes.max(buffer.capacity() + buffer.capacity() / 2))?;
    grown.copy_from(0, buffer, 0, used)?;
    *buffer = grown;
    Ok(())
}
