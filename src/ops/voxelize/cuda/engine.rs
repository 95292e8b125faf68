//! The memory of grids on a device, and the launches that make them.

use super::super::Counters;
use super::super::plan::{Output, Source};
use super::super::quantum::{self, power_of_two};
use super::super::spec::{Spec, Taken};
use super::params::*;
use super::source::{dtype_code, kernel_form};
use crate::device::Dtype;
use crate::device::cuda::{Budget, CudaError, DeviceBuf, Event, Gpu, PinnedBuf};

/// Words of the smallest superblock, 2^this.
const SUPERBLOCK_SHIFT: u32 = 10;
/// A grid is divided into no more superblocks than this, since a block sums the counts of those before its own.
const MAX_SUPERBLOCKS: usize = 4096;
/// A bitmap over so many bytes is cleared where it was touched, a smaller one in whole, which is quicker.
const BYTES_CLEARED_WHOLE: usize = 16 << 20;

/// What is made of the points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Product {
    /// The bitmaps.
    Bits,
    /// The features of the occupied cells in cell order, with their coordinates or their indices.
    Rows { coords: bool },
    /// Every cell, in [`Engine::dense`].
    Dense(Dtype),
}

/// The sizes of a grid's bitmap.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    cells: usize,
    words: usize,
    superblocks: usize,
    shift: u32,
}

impl Sizes {
    fn of(cells: usize) -> Self {
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
        }
    }

    /// Where counters, counts and words lie in the memory of a state of so many grids, and where that ends.
    fn layout(&self, grids: usize) -> [usize; 4] {
        let counts = grids * 32;
        let words = (counts + grids * self.superblocks * 4).next_multiple_of(ALIGNMENT);
        [0, counts, words, words + grids * self.words * 4]
    }
}

const ALIGNMENT: usize = 256;

/// What a grid needs while it is made, and what clears up after it while the next one is made.
struct State {
    /// Counters, counts and bitmaps: see [`Sizes::layout`].
    memory: DeviceBuf,
    /// The cell of each point, or of those that were the first in theirs.
    cells: DeviceBuf,
    /// Whether all of them were saved for this grid.
    saved: usize,
    starts: DeviceBuf,
    has_starts: bool,
    /// The occupied cells in cell order, and the first row of each grid.
    order: DeviceBuf,
    rows: DeviceBuf,
    /// Points of a cloud, where all clouds have as many.
    points: usize,
    grids: usize,
}

/// Clouds that were added: where their points are, and where their cells are.
struct Added {
    cloud: CloudParams,
    /// The first of their points among those of the grid; in a batch 0.
    first: usize,
    /// The most points of one of them.
    longest: usize,
}

/// Makes grids on a device. Its memory grows to that of the largest, and is used again.
pub(super) struct Engine {
    pub(super) gpu: Gpu,
    pub(super) budget: Budget,
    pub(super) product: Product,
    sizes: Sizes,
    states: [State; 2],
    turn: usize,
    /// Whether a call was left in the middle, so that nothing is known of the states.
    is_dirty: bool,
    /// Whether the state of the grid before was cleared already.
    has_cleared: bool,
    added: Vec<Added>,
    table: DeviceBuf,
    sums: DeviceBuf,
    keys: DeviceBuf,
    coords: DeviceBuf,
    features: DeviceBuf,
    dense: DeviceBuf,
    /// The grids whose cells [`Self::dense`] holds; 0: it holds anything.
    dense_grids: usize,
    /// Rows that there is room for.
    row_capacity: usize,
    head: PinnedBuf,
    head_ready: Event,
}

impl Engine {
    pub(super) fn new(spec: &Spec, gpu: &Gpu, budget: &Budget, product: Product) -> Result<Self, CudaError> {
        let buffer = || DeviceBuf::new(gpu, budget);
        let state = || State {
            memory: buffer(),
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
            sizes: Sizes::of(spec.grid.cells()),
            states: [state(), state()],
            turn: 0,
            is_dirty: true,
            has_cleared: false,
            added: Vec::new(),
            table: buffer(),
            sums: buffer(),
            keys: buffer(),
            coords: buffer(),
            features: buffer(),
            dense: buffer(),
            dense_grids: 0,
            row_capacity: 0,
            head: PinnedBuf::new(gpu),
            head_ready: gpu.event()?,
        })
    }

    /// Gives all memory back.
    pub(super) fn release(&mut self) {
        for state in &mut self.states {
            for buffer in [
                &mut state.memory,
                &mut state.cells,
                &mut state.starts,
                &mut state.order,
                &mut state.rows,
            ] {
                buffer.release();
            }
        }
        for buffer in [
            &mut self.table,
            &mut self.sums,
            &mut self.keys,
            &mut self.coords,
            &mut self.features,
            &mut self.dense,
        ] {
            buffer.release();
        }
        self.is_dirty = true;
        self.dense_grids = 0;
    }

    /// Takes up another product. What is held for the one before is of no use for it.
    pub(super) fn reset(&mut self, product: Product) {
        self.product = product;
        self.is_dirty = true;
    }

    fn state(&self) -> &State {
        &self.states[self.turn]
    }

    fn old(&self) -> &State {
        &self.states[1 - self.turn]
    }

    /// The grids that the memory of the states is laid out for.
    fn laid_out(&self) -> usize {
        self.states[0].grids.max(self.states[1].grids)
    }

    /// Whether the dense output is the occupancy alone, for which no rows are needed.
    fn is_occupancy(&self, spec: &Spec) -> bool {
        matches!(self.product, Product::Dense(_)) && matches!(spec.plan.outputs[..], [Output::One])
    }

    fn has_rows(&self, spec: &Spec) -> bool {
        match self.product {
            Product::Bits => false,
            Product::Rows { .. } => true,
            Product::Dense(_) => !self.is_occupancy(spec),
        }
    }

    fn clears_by_cells(&self) -> bool {
        self.sizes.words * 4 > BYTES_CLEARED_WHOLE && self.laid_out() == 1
    }

    /// Starts `grids` grids without points. The addresses of the clouds' first points are uploaded where they differ.
    pub(super) fn begin(&mut self, grids: usize, starts: Option<&[u32]>) -> Result<(), CudaError> {
        self.added.clear();
        self.has_cleared = false;
        self.turn = 1 - self.turn;
        let [.., bytes] = self.sizes.layout(grids);
        let is_new = self.is_dirty || grids != self.laid_out();
        self.is_dirty = true;
        if is_new {
            for state in &mut self.states {
                state.memory.reserve(bytes)?;
                state.memory.clear(0, bytes)?;
                state.rows.reserve((grids + 1) * 4)?;
                state.rows.clear(0, (grids + 1) * 4)?;
                (state.grids, state.saved, state.points, state.has_starts) = (grids, 0, 0, false);
            }
            self.dense_grids = 0;
        }
        let state = &mut self.states[self.turn];
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
            is_whole: u32::from(grid.cells() > u32::MAX as usize),
            ..CloudParams::default()
        };
        if let Some(transform) = &spec.transforms[input] {
            cloud.is_moved = 1;
            cloud.rotation = transform.rotation;
            cloud.translation = transform.translation;
        }
        cloud
    }

    /// Adds clouds: one to the only grid, or one to each grid. `points` is that of each, or the most of one where
    /// they differ.
    ///
    /// # Safety
    /// The memory of the points is left alone until the stream is synchronized after [`Self::finish`].
    pub(super) unsafe fn add(
        &mut self,
        spec: &Spec,
        mut cloud: CloudParams,
        longest: usize,
        total: usize,
    ) -> Result<(), CudaError> {
        for (field, (bound, column)) in spec.plan.fields.iter().zip(cloud.bounds.iter_mut().zip(&cloud.fields)) {
            let dtype = Dtype::ALL[column.dtype as usize];
            *bound = if field.mean { quantum::bound(dtype) } else { -1.0 };
        }
        let first = self.added.iter().map(|added| added.longest).sum();
        let save = self.save(spec);
        if save.0 != SAVE_NONE {
            let bytes = (first + total) * 4;
            keep_and_reserve(&mut self.states[self.turn].cells, &self.budget, [first * 4, bytes])?;
            self.states[self.turn].saved = first + total;
        }
        self.states[self.turn].points = first + longest;
        if self.states[self.turn].has_starts {
            cloud.starts = self.state().starts.address();
        }
        cloud.points = longest as u32;
        // SAFETY: the points are the caller's promise; the rest is the engine's own.
        unsafe { self.launch_points(spec, &cloud, first, longest, save) }?;
        self.added.push(Added { cloud, first, longest });
        Ok(())
    }

    /// Which cells are saved, and among the cells of which group the first.
    fn save(&self, spec: &Spec) -> (u32, u32) {
        if let Product::Dense(dtype) = self.product
            && self.is_occupancy(spec)
        {
            return (SAVE_FIRST, self.sector_mask(dtype));
        }
        match (self.has_rows(spec) && spec.needs_points(), self.clears_by_cells()) {
            (true, _) => (SAVE_ALL, 1),
            (false, true) => (SAVE_FIRST, 0xff),
            (false, false) => (SAVE_NONE, 1),
        }
    }

    /// The bits of the cells that share 32 bytes of a dense output; of one cell, where the grid is no whole number
    /// of them.
    fn sector_mask(&self, dtype: Dtype) -> u32 {
        match 32 / dtype.size() {
            cells if !self.sizes.cells.is_multiple_of(cells) => 1,
            8 => 0xff,
            _ => 0xffff,
        }
    }

    /// # Safety
    /// As [`Self::add`].
    unsafe fn launch_points(
        &mut self,
        spec: &Spec,
        cloud: &CloudParams,
        first: usize,
        longest: usize,
        (save, group): (u32, u32),
    ) -> Result<(), CudaError> {
        let grids = self.laid_out();
        let [counters, counts, words, end] = self.sizes.layout(grids).map(|at| at as u64);
        let (state, old) = (self.state(), self.old());
        let memory = state.memory.address();
        let form = kernel_form(cloud);
        let mut params = PointsParams {
            cloud: *cloud,
            words: memory + words,
            counts: if self.has_rows(spec) { memory + counts } else { 0 },
            cells: state.cells.address() + first as u64 * 4,
            counters: memory + counters,
            words_per_grid: self.sizes.words as u32,
            superblocks: self.sizes.superblocks as u32,
            superblock_shift: self.sizes.shift,
            save,
            group,
            ..PointsParams::default()
        };
        if !self.has_cleared {
            params.clear = old.memory.address();
            let by_cells = self.clears_by_cells();
            params.clear_quads = if by_cells { words } else { end } / 16;
            let mut work = params.clear_quads;
            if by_cells && old.saved > 0 {
                params.old_words = old.memory.address() + words;
                params.old_cells = old.cells.address();
                params.old_points = old.saved as u32;
                work = work.max(old.saved as u64);
            }
            let whole = 2 * u64::from(self.gpu.multiprocessors());
            let blocks = work.div_ceil(u64::from(BLOCK)).clamp(1, whole);
            params.clearing_blocks = blocks.div_ceil(grids as u64) as u32;
        }
        let per_block = BLOCK * POINTS_PER_THREAD[form as usize];
        let blocks = params.clearing_blocks + (longest as u32).div_ceil(per_block);
        // SAFETY: the memory was reserved for so many grids and points; the points are the caller's promise.
        unsafe {
            self.gpu
                .launch(POINTS[form as usize], [blocks, grids as u32, 1], BLOCK, &params)
        }?;
        self.has_cleared = true;
        Ok(())
    }

    /// Makes the product of what was added. Nothing is waited for; see [`Self::wait`].
    ///
    /// # Safety
    /// As [`Self::add`].
    pub(super) unsafe fn finish(&mut self, spec: &Spec, taken: &Taken, points: usize) -> Result<(), CudaError> {
        let grids = self.laid_out();
        if !self.has_cleared {
            let cloud = Self::cloud_params(spec, 0);
            // SAFETY: there are no points.
            unsafe { self.launch_points(spec, &cloud, 0, 0, (SAVE_NONE, 1)) }?;
        }
        if self.has_rows(spec) {
            // SAFETY: as this function.
            unsafe { self.launch_rows(spec, taken, points) }?;
        }
        if let Product::Dense(dtype) = self.product {
            // SAFETY: as this function.
            unsafe { self.launch_dense(spec, taken, dtype, grids) }?;
        }
        self.is_dirty = false;
        Ok(())
    }

    /// # Safety
    /// As [`Self::add`].
    unsafe fn launch_rows(&mut self, spec: &Spec, taken: &Taken, points: usize) -> Result<(), CudaError> {
        let grids = self.laid_out();
        let plan = &spec.plan;
        let (stride, extremes) = (plan.stride(), plan.extremes.len());
        let coords = self.product == Product::Rows { coords: true };
        let limit = u32::try_from(spec.max_voxels).unwrap_or(u32::MAX);
        let capacity = points.min(grids * self.sizes.cells.min(limit as usize)).max(1);
        self.table.reserve(grids * self.sizes.words * 8)?;
        self.sums.reserve(capacity * stride * 8)?;
        self.keys.reserve(capacity * extremes * 4)?;
        self.row_capacity = capacity;
        if coords {
            self.coords.reserve(capacity * 12)?;
        } else {
            self.states[self.turn].order.reserve(capacity * 4)?;
        }
        if matches!(self.product, Product::Rows { .. }) {
            self.features.reserve(capacity * plan.outputs.len() * 4)?;
        }
        let [counters, counts, words, _] = self.sizes.layout(grids).map(|at| at as u64);
        let state = self.state();
        let memory = state.memory.address();
        let greatest = plan.extremes.iter().enumerate();
        let greatest = greatest.fold(0, |bits, (i, extreme)| bits | u64::from(extreme.greatest) << i);
        if grids > 1 {
            let params = RowsParams {
                counts: memory + counts,
                rows: state.rows.address(),
                grids: grids as u32,
                superblocks: self.sizes.superblocks as u32,
                limit,
                unused: 0,
            };
            // SAFETY: there is a row for each grid and one more, and a count for each superblock.
            unsafe { self.gpu.launch(ROWS, [1; 3], BLOCK, &params) }?;
        }
        let [_, ny, nz] = spec.grid.shape().map(|n| n as u32);
        let params = RankParams {
            words: memory + words,
            counts: memory + counts,
            table: self.table.address(),
            sums: self.sums.address(),
            keys: self.keys.address(),
            coords: if coords { self.coords.address() } else { 0 },
            order: if coords { 0 } else { state.order.address() },
            rows: state.rows.address(),
            key_rows: capacity as u64,
            greatest,
            words_per_grid: self.sizes.words as u32,
            superblocks: self.sizes.superblocks as u32,
            superblock_shift: self.sizes.shift,
            limit,
            ny,
            nz,
            stride: stride as u32,
            extremes: extremes as u32,
            single: u32::from(grids == 1),
            unused: 0,
        };
        // SAFETY: no grid has more rows than were reserved: there are not more cells than points.
        unsafe {
            self.gpu
                .launch(RANK, [self.sizes.superblocks as u32, grids as u32, 1], BLOCK, &params)
        }?;
        if spec.needs_points() {
            for added in &self.added {
                let params = SumsParams {
                    cloud: added.cloud,
                    cells: state.cells.address() + added.first as u64 * 4,
                    table: self.table.address(),
                    sums: self.sums.address(),
                    keys: self.keys.address(),
                    rows: if grids > 1 { state.rows.address() } else { 0 },
                    counters: memory + counters,
                    key_rows: capacity as u64,
                    greatest,
                    words_per_grid: self.sizes.words as u32,
                    limit,
                    stride: stride as u32,
                    extremes: extremes as u32,
                    ..sources(spec, taken)
                };
                let kernel = match plan.sums_all_axes() && stride == 4 && extremes == 0 {
                    true => SUMS_XYZ[kernel_form(&added.cloud) as usize],
                    false => SUMS,
                };
                let blocks = (added.longest as u32).div_ceil(BLOCK);
                // SAFETY: the cells of the points were saved by `add`; the points are the caller's promise.
                unsafe { self.gpu.launch(kernel, [blocks, grids as u32, 1], BLOCK, &params) }?;
            }
        }
        if matches!(self.product, Product::Rows { .. }) {
            let params = FeaturesParams {
                channels: self.channels(spec, taken),
                out: self.features.address(),
                rows: state.rows.address() + grids as u64 * 4,
            };
            let elements = (capacity * plan.outputs.len()) as u64;
            let blocks = elements.div_ceil(u64::from(BLOCK)).min(1 << 20) as u32;
            // SAFETY: there is an element for each channel of each row.
            unsafe { self.gpu.launch(FEATURES, [blocks, 1, 1], BLOCK, &params) }?;
        }
        Ok(())
    }

    /// How channels are made of the sums and extremes.
    fn channels(&self, spec: &Spec, taken: &Taken) -> Channels {
        let plan = &spec.plan;
        let mut channels = Channels {
            sums: self.sums.address(),
            keys: self.keys.address(),
            key_rows: self.row_capacity as u64,
            stride: plan.stride() as u32,
            count: plan.outputs.len() as u32,
            ..Channels::default()
        };
        for (unit, &source) in channels.units.iter_mut().zip(&plan.sums) {
            *unit = power_of_two(-spec.bits(source, taken));
        }
        for (i, output) in plan.outputs.iter().enumerate() {
            (channels.outputs[i], channels.places[i]) = match *output {
                Output::One => (OUTPUT_ONE, 0),
                Output::Count => (OUTPUT_COUNT, 0),
                Output::Mean(plane) => (OUTPUT_MEAN, plane as u8),
                Output::Extreme(place) => (OUTPUT_EXTREME, place as u8),
            };
        }
        channels
    }

    /// # Safety
    /// As [`Self::add`].
    unsafe fn launch_dense(&mut self, spec: &Spec, taken: &Taken, dtype: Dtype, grids: usize) -> Result<(), CudaError> {
        let elements = self.sizes.cells * spec.plan.outputs.len();
        let bytes = grids * elements * dtype.size();
        if self.dense.capacity() < bytes {
            self.dense_grids = 0;
        }
        self.dense.reserve(bytes)?;
        let is_clean = self.dense_grids == grids;
        if !is_clean {
            self.dense.clear(0, bytes)?;
        }
        self.dense_grids = grids;
        let [_, _, words, _] = self.sizes.layout(grids).map(|at| at as u64);
        let (state, old) = (self.state(), self.old());
        let memory = state.memory.address();
        if !self.is_occupancy(spec) {
            let params = ScatterParams {
                channels: self.channels(spec, taken),
                words: memory + words,
                order: state.order.address(),
                rows: state.rows.address(),
                old_order: old.order.address(),
                old_rows: old.rows.address(),
                out: self.dense.address(),
                cells: self.sizes.cells as u64,
                words_per_grid: self.sizes.words as u32,
                dtype: dtype_code(dtype),
            };
            let most = self.row_capacity.div_ceil(grids).max(1);
            let blocks = (2 * most as u32).div_ceil(BLOCK).min(1 << 16);
            // SAFETY: the rows of both states' grids are cells of the grids; there is an element for each channel.
            return unsafe { self.gpu.launch(SCATTER, [blocks, grids as u32, 1], BLOCK, &params) };
        }
        let starts = |state: &State| if state.has_starts { state.starts.address() } else { 0 };
        let params = SectorsParams {
            words: memory + words,
            cells: state.cells.address(),
            starts: starts(state),
            old_cells: old.cells.address(),
            old_starts: starts(old),
            out: self.dense.address(),
            out_elements: self.sizes.cells as u64,
            points: if state.saved > 0 { state.points as u32 } else { 0 },
            old_points: if old.saved > 0 { old.points as u32 } else { 0 },
            words_per_grid: self.sizes.words as u32,
            one: match dtype {
                Dtype::Float16 => 0x3c00,
                Dtype::BFloat16 => 0x3f80,
                _ => 1f32.to_bits(),
            },
            element_bytes: dtype.size() as u32,
            is_split: u32::from(self.sector_mask(dtype) == 1),
        };
        let visits = 2 * (state.points + old.points) as u32;
        // SAFETY: the cells of both states' points are cells of the grids, and there is an element for each.
        unsafe {
            self.gpu
                .launch(SECTORS, [visits.div_ceil(BLOCK), grids as u32, 1], BLOCK, &params)
        }
    }

    /// Puts the copy of the counters and of where the rows begin into the stream, to be waited for.
    pub(super) fn read_head(&mut self, spec: &Spec) -> Result<(), CudaError> {
        let (grids, has_rows) = (self.laid_out(), self.has_rows(spec));
        let rows = grids * 32;
        self.head.resize((rows + (grids + 1) * 4).next_multiple_of(8))?;
        let state = &self.states[self.turn];
        let (counters, starts) = self.head.bytes_mut().split_at_mut(rows);
        // SAFETY: the memory is read after the event only, and is this engine's.
        unsafe {
            state.memory.download(0, counters)?;
            if has_rows {
                state.rows.download(0, &mut starts[..(grids + 1) * 4])?;
            }
        }
        self.head_ready.record()
    }

    /// Waits for what [`Self::read_head`] copies.
    pub(super) fn wait(&self) -> Result<(), CudaError> {
        self.head_ready.wait()
    }

    /// What became of the points of a grid that was made of `points` points.
    pub(super) fn counters(&self, grid: usize, points: usize) -> Counters {
        let counters: &[u64] = bytemuck::cast_slice(&self.head.bytes()[grid * 32..][..32]);
        Counters {
            points_in: points as u64,
            points_kept: counters[0] - counters[3],
            dropped_nonfinite: counters[1],
            dropped_outside: counters[2],
            dropped_overflow: counters[3],
        }
    }

    /// The first row of a grid; of the one after the last: the number of rows.
    pub(super) fn first_row(&self, grid: usize) -> usize {
        let rows: &[u32] = bytemuck::cast_slice(&self.head.bytes()[self.laid_out() * 32..]);
        rows[grid] as usize
    }

    /// The bitmaps, and the byte in them at which that of a grid begins.
    pub(super) fn bitmap(&self, grid: usize) -> (&DeviceBuf, usize) {
        let [_, _, words, _] = self.sizes.layout(self.laid_out());
        (&self.state().memory, words + grid * self.sizes.words * 4)
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

    pub(super) fn dense(&self) -> &DeviceBuf {
        &self.dense
    }

    /// The number of rows of each grid before it, as uint32 on the device, and of all after the last.
    pub(super) fn rows(&self) -> &DeviceBuf {
        &self.state().rows
    }
}

/// The places and the scales of the values of the sums and extremes.
fn sources(spec: &Spec, taken: &Taken) -> SumsParams {
    let code = |source: Source| match source {
        Source::Axis(axis) => axis as u8,
        Source::Field(field) => 3 + field as u8,
    };
    let mut params = SumsParams::default();
    for (i, &source) in spec.plan.sums.iter().enumerate() {
        params.sum_sources[i] = code(source);
        params.scales[i] = power_of_two(spec.bits(source, taken));
    }
    let places = params.extreme_sources.as_flattened_mut();
    for (place, extreme) in places.iter_mut().zip(&spec.plan.extremes) {
        *place = code(extreme.source);
    }
    params
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
