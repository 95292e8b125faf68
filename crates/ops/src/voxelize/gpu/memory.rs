//! The memory of grids on a device: two states that take turns, so that each grid clears the state of the grid before.

use super::super::channel::Output;
use super::super::spec::Spec;
use super::sizes::Sizes;
use robocache_device::Dtype;
use robocache_device::gpu::{Budget, DeviceBuf, DeviceFault, DevicePtr, Gpu};

/// Bytes of a bitmap above which only its touched words are cleared. It is faster to clear a smaller bitmap as a whole.
const BYTES_CLEARED_WHOLE: usize = 16 << 20;
/// Bytes above which bitmaps are cleared before they are used. Smaller bitmaps are double-buffered: one half is cleared
/// while the other is used, which saves a launch.
const BYTES_CLEARED_MEANWHILE: usize = 4 << 20;
/// Bytes above which dense outputs are not double-buffered.
const BYTES_DOUBLE_BUFFERED: usize = 128 << 20;

/// The way in which the occupied cells are found, and the cells of the grid before are cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// Bitmaps: double-buffered if they are small, else a single one that is cleared first.
    Bitmaps,
    /// Double-buffered dense outputs, without bitmaps.
    PingPongOutputs,
}

/// The product that is made of the points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Product {
    /// The bitmaps.
    Bits,
    /// The features of the occupied cells in cell order, with their coordinates or their indices.
    Rows { coords: bool },
    /// Every cell, in [`Dense`](super::dense::Dense).
    Dense(Dtype),
}

/// The memory that a grid needs while it is made, and that the next grid needs to clear up after it.
pub(super) struct State {
    /// Cell of each point. If several points are in one group of cells, only one of them may have a cell here.
    pub(super) cells: DeviceBuf,
    /// Number of points in [`Self::cells`]; 0: no cells were saved.
    pub(super) saved: usize,
    /// The first point of each cloud, if the clouds differ in length.
    pub(super) starts: DeviceBuf,
    pub(super) has_starts: bool,
    /// The occupied cells in cell order, and the first row of each grid.
    pub(super) order: DeviceBuf,
    pub(super) rows: DeviceBuf,
    /// Points of a grid; the most of any grid if they differ.
    pub(super) points: usize,
    pub(super) grids: usize,
}

impl State {
    fn new(gpu: &Gpu, budget: &Budget) -> Self {
        let buffer = || DeviceBuf::new(gpu, budget);
        Self {
            cells: buffer(),
            saved: 0,
            starts: buffer(),
            has_starts: false,
            order: buffer(),
            rows: buffer(),
            points: 0,
            grids: 0,
        }
    }

    /// The first point of each cloud; null if the clouds don't differ in length.
    pub(super) fn first_points(&self) -> DevicePtr<'_> {
        match self.has_starts {
            true => self.starts.pointer(),
            false => DevicePtr::NULL,
        }
    }

    /// Points of a grid whose cells were saved.
    pub(super) fn saved_points(&self) -> u32 {
        if self.saved > 0 { self.points as u32 } else { 0 }
    }
}

/// The memory in which grids are made, for any product. It grows with the largest grids so far, and is reused.
pub(super) struct GridMemory {
    pub(super) gpu: Gpu,
    pub(super) budget: Budget,
    pub(super) product: Product,
    pub(super) method: Method,
    pub(super) sizes: Sizes,
    pub(super) states: [State; 2],
    /// Counters, counts and bitmaps: a buffer for each state, or the first for both states. See [`Sizes::layout`].
    pub(super) memories: [DeviceBuf; 2],
    /// Index of the half of each pair that the current grids are in.
    pub(super) half: usize,
    /// True if the content of the states is not known, as after a call that failed.
    pub(super) is_dirty: bool,
}

impl GridMemory {
    pub(super) fn new(spec: &Spec, gpu: &Gpu, budget: &Budget, product: Product) -> Self {
        let state = || State::new(gpu, budget);
        let buffer = || DeviceBuf::new(gpu, budget);
        Self {
            gpu: gpu.clone(),
            budget: budget.clone(),
            product,
            method: Method::Bitmaps,
            sizes: Sizes::of(spec.grid.cells(), spec.plan.fields.len()),
            states: [state(), state()],
            memories: [buffer(), buffer()],
            half: 0,
            is_dirty: true,
        }
    }

    /// Frees all memory.
    pub(super) fn release(&mut self) {
        for state in &mut self.states {
            for buffer in [&mut state.cells, &mut state.starts, &mut state.order, &mut state.rows] {
                buffer.release();
            }
        }
        self.memories.iter_mut().for_each(DeviceBuf::release);
        self.is_dirty = true;
    }

    /// Chooses the method for a product and a number of grids. After a change the content of the states is of no use.
    pub(super) fn prepare(&mut self, spec: &Spec, product: Product, grids: usize) {
        let cells = self.sizes.cells;
        let is_occupancy = matches!(spec.outputs[..], [Output::One]);
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

    /// Returns true if there is one bitmap of each grid, which is cleared before it is used.
    pub(super) fn clears_first(&self) -> bool {
        let [.., bytes] = self.sizes.layout(self.laid_out());
        bytes > BYTES_CLEARED_MEANWHILE && !self.clears_by_cells()
    }

    /// Counters, counts and bitmaps of the current grids.
    pub(super) fn memory(&self) -> &DeviceBuf {
        &self.memories[self.memory_half()]
    }

    /// Index of the memory that the current grids are in.
    pub(super) fn memory_half(&self) -> usize {
        if self.clears_first() { 0 } else { self.half }
    }

    /// The state of the current grids.
    pub(super) fn state(&self) -> &State {
        &self.states[self.half]
    }

    /// The state of the grids before.
    pub(super) fn previous(&self) -> &State {
        &self.states[1 - self.half]
    }

    /// Number of grids that the memory of the states is laid out for.
    pub(super) fn laid_out(&self) -> usize {
        self.states[0].grids.max(self.states[1].grids)
    }

    /// Returns true if the dense output is the occupancy alone, for which no rows are needed.
    pub(super) fn is_occupancy(&self, spec: &Spec) -> bool {
        matches!(self.product, Product::Dense(_)) && matches!(spec.outputs[..], [Output::One])
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

    /// Returns true if the operation may hold two outputs of `bytes` bytes.
    fn can_double_buffer(&self, bytes: usize) -> bool {
        let limit = self.budget.limit().unwrap_or(usize::MAX);
        bytes <= BYTES_DOUBLE_BUFFERED && 3 * bytes <= limit
    }

    /// Starts `grids` grids without points. Returns true if all memory was cleared, so that no grid before is left. If the
    /// clouds differ in length, `starts` has the first point of each cloud, and then the number of all points.
    pub(super) fn begin(&mut self, grids: usize, starts: Option<&[u32]>) -> Result<bool, DeviceFault> {
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
            // SAFETY: the caller does not change page-locked memory until the stream is synchronized.
            unsafe { state.starts.upload(0, bytemuck::cast_slice(starts)) }?;
        }
        Ok(is_new)
    }

    /// The buffer of the bitmaps, and the byte at which the bitmap of a grid begins.
    pub(super) fn bitmap(&self, grid: usize) -> (&DeviceBuf, usize) {
        let [_, _, words, _] = self.sizes.layout(self.laid_out());
        (self.memory(), words + grid * self.bitmap_stride())
    }

    /// Bytes from one bitmap to the next.
    pub(super) fn bitmap_stride(&self) -> usize {
        self.sizes.words * 4
    }
}
