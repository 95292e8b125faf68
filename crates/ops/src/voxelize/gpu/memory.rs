//! The memory of grids on a device: two double-buffered states, so that the previous grid can be cleared while the next
//! grid is made.

use super::super::channel::Output;
use super::super::spec::Spec;
use super::sizes::Sizes;
use robocache_device::Dtype;
use robocache_device::gpu::{Budget, DeviceBuf, DeviceFault, DevicePtr, Gpu};

/// Bytes of a bitmap above which only its touched words are cleared. It is faster to clear a smaller bitmap as a whole.
const BYTES_CLEARED_WHOLE: usize = 16 << 20;
/// Size of the grids' counters and bitmaps, bytes, above which bitmaps are cleared before they are used. Smaller
/// bitmaps are double-buffered: one half is cleared while the other is used, which saves a launch.
const BYTES_CLEARED_MEANWHILE: usize = 4 << 20;
/// Size of the dense outputs, bytes, above which they are not double-buffered.
const BYTES_DOUBLE_BUFFERED: usize = 128 << 20;

/// The way in which the occupied cells are found, and the cells of the previous grid are cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// Bitmaps: double-buffered if they are small, else a single bitmap for each grid, which is cleared first.
    Bitmaps,
    /// Double-buffered dense outputs, without bitmaps.
    PingPongOutputs,
}

/// The output that is made of the points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Product {
    /// The bitmaps of the occupied cells.
    Bits,
    /// The features of the occupied cells in cell order, and the cells' x, y, z (`coords`) or only their indices.
    Rows { coords: bool },
    /// A tensor of every cell, in [`Dense`](super::dense::Dense).
    Dense(Dtype),
}

/// Memory of the grids of one launch. The next grids read it to clear what these grids wrote.
pub(super) struct State {
    /// Cell of each point. If several points are in one group of neighbouring cells, the cell of only one of these
    /// points may be saved.
    pub(super) cells: DeviceBuf,
    /// Number of points in [`Self::cells`]; 0: no cells were saved.
    pub(super) saved: usize,
    /// Index of the first point of each cloud, uint32, if the clouds differ in length: see `has_starts`.
    pub(super) starts: DeviceBuf,
    pub(super) has_starts: bool,
    /// The occupied cells in cell order, uint32.
    pub(super) order: DeviceBuf,
    /// Index of each grid's first row, followed by the total number of rows, uint32.
    pub(super) rows: DeviceBuf,
    /// Number of points of each grid; of the largest grid if they differ.
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

    /// Address of the index of each cloud's first point; null if the clouds don't differ in length.
    pub(super) fn first_points(&self) -> DevicePtr<'_> {
        match self.has_starts {
            true => self.starts.pointer(),
            false => DevicePtr::NULL,
        }
    }

    /// Number of points of each grid whose cells were saved; 0 if no cells were saved.
    pub(super) fn saved_points(&self) -> u32 {
        if self.saved > 0 { self.points as u32 } else { 0 }
    }
}

/// The memory in which grids are made, for any output ([`Product`]). It grows with the largest grids so far, and is
/// reused.
pub(super) struct GridMemory {
    pub(super) gpu: Gpu,
    pub(super) budget: Budget,
    pub(super) product: Product,
    pub(super) method: Method,
    pub(super) sizes: Sizes,
    pub(super) states: [State; 2],
    /// Counters, counts and bitmaps: a buffer for each state, or the first buffer for both states. See
    /// [`Sizes::layout`].
    pub(super) memories: [DeviceBuf; 2],
    /// Index of the current grids in [`Self::states`] and, if there are two, in [`Self::memories`].
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

    /// Frees the device memory of both states.
    pub(super) fn release(&mut self) {
        for state in &mut self.states {
            for buffer in [&mut state.cells, &mut state.starts, &mut state.order, &mut state.rows] {
                buffer.release();
            }
        }
        self.memories.iter_mut().for_each(DeviceBuf::release);
        self.is_dirty = true;
    }

    /// Chooses the method for an output and a number of grids. A change marks the content of the states as not known.
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

    /// True if each grid has a single bitmap, which is cleared before use, instead of two that are used alternately.
    pub(super) fn clears_first(&self) -> bool {
        let [.., bytes] = self.sizes.layout(self.laid_out());
        bytes > BYTES_CLEARED_MEANWHILE && !self.clears_by_cells()
    }

    /// The buffer with the counters, counts and bitmaps of the current grids.
    pub(super) fn memory(&self) -> &DeviceBuf {
        &self.memories[self.memory_half()]
    }

    /// Index of the current grids in [`Self::memories`].
    pub(super) fn memory_half(&self) -> usize {
        if self.clears_first() { 0 } else { self.half }
    }

    /// The state of the current grids.
    pub(super) fn state(&self) -> &State {
        &self.states[self.half]
    }

    /// The state of the previous grids.
    pub(super) fn previous(&self) -> &State {
        &self.states[1 - self.half]
    }

    /// Number of grids that the memory of the states is laid out for.
    pub(super) fn laid_out(&self) -> usize {
        self.states[0].grids.max(self.states[1].grids)
    }

    /// True if the output is a dense tensor of the occupancy alone, for which no rows are needed.
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

    /// True if outputs of `bytes` bytes are small enough to double-buffer, and the budget has room for them.
    fn can_double_buffer(&self, bytes: usize) -> bool {
        let limit = self.budget.limit().unwrap_or(usize::MAX);
        bytes <= BYTES_DOUBLE_BUFFERED && 3 * bytes <= limit
    }

    /// Starts `grids` grids without points. If the clouds differ in their number of points, `starts` has the index of
    /// each cloud's first point, followed by the total number of points. Returns true if all memory was cleared, so
    /// that nothing of earlier grids is left.
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
