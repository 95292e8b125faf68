//! The launches that make grids.

use super::super::plan::Source;
use super::super::quantum::power_of_two;
use super::super::spec::{Spec, Taken};
use super::builder::{CloudsOnDevice, GridBuilder, Head, Method, Product, Saving, State};
use super::params::*;
use super::source::kernel_form;
use robocache_device::Dtype;
use robocache_device::cuda::CudaError;

impl GridBuilder {
    /// # Safety
    /// As [`Self::add`].
    pub(super) unsafe fn launch_points(
        &mut self,
        spec: &Spec,
        clouds: &CloudsOnDevice,
        first: usize,
        save: Saving,
    ) -> Result<(), CudaError> {
        let grids = self.laid_out();
        let [counters, counts, words, end] = self.sizes.layout(grids).map(|at| at as u64);
        let (state, old) = (self.state(), self.previous());
        let memory = self.memory().address();
        let form = kernel_form(&clouds.cloud);
        let mut params = PointsParams {
            cloud: clouds.cloud,
            words: memory + words,
            counts: if self.has_rows(spec) { memory + counts } else { 0 },
            cells: state.cells.address() + first as u64 * 4,
            counters: memory + counters,
            words_per_grid: self.sizes.words as u32,
            superblocks: self.sizes.superblocks as u32,
            superblock_shift: self.sizes.shift,
            save: save.which,
            group: save.group,
            ..PointsParams::default()
        };
        if !self.has_cleared && !self.clears_first() {
            let old_memory = self.memories[1 - self.half].address();
            params.clear = old_memory;
            let by_cells = self.clears_by_cells();
            params.clear_quads = if by_cells { words } else { end } / 16;
            let mut work = params.clear_quads;
            if by_cells && old.saved > 0 {
                params.old_words = old_memory + words;
                params.old_cells = old.cells.address();
                params.old_points = old.saved as u32;
                work = work.max(old.saved as u64);
            }
            let whole = u64::from(self.gpu.multiprocessors());
            let blocks = work.div_ceil(u64::from(POINT_BLOCK)).clamp(1, whole);
            params.clearing_blocks = blocks.div_ceil(grids as u64) as u32;
        }
        let blocks = params.clearing_blocks + (clouds.longest as u32).div_ceil(POINT_BLOCK);
        // SAFETY: the memory was reserved for so many grids and points; the points are the caller's promise.
        unsafe {
            self.gpu
                .launch(POINTS[form as usize], [blocks, grids as u32, 1], POINT_BLOCK, &params)
        }?;
        self.has_cleared = true;
        Ok(())
    }

    /// # Safety
    /// As [`Self::add`].
    pub(super) unsafe fn launch_rows(
        &mut self,
        spec: &Spec,
        taken: &Taken,
        points: usize,
        head: Head,
    ) -> Result<(), CudaError> {
        let grids = self.laid_out();
        let plan = &spec.plan;
        let (stride, extremes) = (plan.stride(), plan.extremes.len());
        let coords = self.product == Product::Rows { coords: true };
        let limit = u32::try_from(spec.max_voxels).unwrap_or(u32::MAX);
        let capacity = points.min(grids * self.sizes.cells.min(limit as usize)).max(1);
        self.ranks.reserve(grids * self.sizes.words)?;
        self.sums.reserve(capacity * stride * 8)?;
        self.keys.reserve(capacity * extremes * 4)?;
        let planes = 2 * plan.field_sums();
        self.exceptions.reserve(capacity * planes * 8)?;
        self.row_capacity = capacity;
        self.states[self.half].order.reserve(capacity * 4)?;
        if coords {
            self.coords.reserve(capacity * 12)?;
        }
        if matches!(self.product, Product::Rows { .. }) {
            self.features.reserve(capacity * plan.outputs.len() * 4)?;
        }
        let [counters, counts, words, _] = self.sizes.layout(grids).map(|at| at as u64);
        let state = self.state();
        let memory = self.memory().address();
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
        let params = RankParams {
            words: memory + words,
            counts: memory + counts,
            ranks: self.ranks.address(),
            sums: self.sums.address(),
            keys: self.keys.address(),
            order: if spec.needs_points() { 0 } else { state.order.address() },
            rows: state.rows.address(),
            key_rows: capacity as u64,
            greatest,
            words_per_grid: self.sizes.words as u32,
            superblocks: self.sizes.superblocks as u32,
            superblock_shift: self.sizes.shift,
            limit,
            stride: stride as u32,
            extremes: extremes as u32,
            exceptions: self.exceptions.address(),
            planes: planes as u64,
        };
        // SAFETY: no grid has more rows than were reserved: there are not more cells than points.
        unsafe {
            self.gpu.launch(
                RANK,
                [self.sizes.superblocks as u32, grids as u32, 1],
                RANK_BLOCK,
                &params,
            )
        }?;
        let is_final = spec.max_voxels == usize::MAX;
        if head == Head::Read && is_final {
            self.read_head(spec)?;
        }
        if spec.needs_points() {
            let state = self.state();
            for added in &self.added {
                let params = SumsParams {
                    cloud: added.clouds.cloud,
                    cells: state.cells.address() + added.first as u64 * 4,
                    words: memory + words,
                    ranks: self.ranks.address(),
                    sums: self.sums.address(),
                    keys: self.keys.address(),
                    order: state.order.address(),
                    rows: if grids > 1 { state.rows.address() } else { 0 },
                    counters: memory + counters,
                    key_rows: capacity as u64,
                    greatest,
                    words_per_grid: self.sizes.words as u32,
                    limit,
                    stride: stride as u32,
                    extremes: extremes as u32,
                    is_whole: u32::from(self.sizes.cells > u32::MAX as usize),
                    exceptions: self.exceptions.address(),
                    unusable: memory + self.sizes.unusable(grids) as u64,
                    fields: added.clouds.fields,
                    ..sources(spec, taken)
                };
                let kernel = match plan.sums_all_axes() && stride == 4 && extremes == 0 {
                    true => SUMS_XYZ[kernel_form(&added.clouds.cloud) as usize],
                    false => SUMS,
                };
                let blocks = (added.clouds.longest as u32).div_ceil(BLOCK);
                // SAFETY: the cells of the points were saved by `add`; the points are the caller's promise.
                unsafe { self.gpu.launch(kernel, [blocks, grids as u32, 1], BLOCK, &params) }?;
            }
        }
        if matches!(self.product, Product::Rows { .. }) {
            let state = self.state();
            let [_, ny, nz] = spec.grid.shape().map(|n| n as u32);
            let params = FeaturesParams {
                channels: self.channels(spec, taken),
                out: self.features.address(),
                coords: if coords { self.coords.address() } else { 0 },
                order: state.order.address(),
                ny,
                nz,
                rows: state.rows.address() + grids as u64 * 4,
            };
            let elements = capacity * (plan.outputs.len() + if coords { 3 } else { 0 });
            let blocks = elements.div_ceil(BLOCK as usize).min(1 << 16) as u32;
            // SAFETY: there is an element for each channel and each coordinate of each row.
            unsafe { self.gpu.launch(FEATURES, [blocks, 1, 1], BLOCK, &params) }?;
        }
        if head == Head::Read && !is_final {
            // The points past max_voxels were counted with the sums.
            self.read_head(spec)?;
        } else if head == Head::Read {
            self.read_unusable()?;
        }
        Ok(())
    }

    /// Makes room for dense outputs, and clears them where they hold something else than the grid before.
    fn clear_outputs(&mut self, bytes: usize, grids: usize) -> Result<(), CudaError> {
        if self.dense_grids == grids {
            return Ok(());
        }
        let used = if self.method == Method::PingPongOutputs { 2 } else { 1 };
        for output in &mut self.outputs[..used] {
            output.reserve(bytes)?;
            output.clear(0, bytes)?;
        }
        self.dense_grids = grids;
        Ok(())
    }

    /// # Safety
    /// As [`Self::add`].
    pub(super) unsafe fn launch_cells(&mut self, cloud: &CloudParams) -> Result<(), CudaError> {
        let grids = self.laid_out();
        let Product::Dense(dtype) = self.product else {
            return Ok(());
        };
        self.clear_outputs(grids * self.sizes.cells * dtype.size(), grids)?;
        let (state, old) = (self.state(), self.previous());
        let starts = |state: &State| if state.has_starts { state.starts.address() } else { 0 };
        let old_points = if old.saved > 0 { old.points as u32 } else { 0 };
        let [.., end] = self.sizes.layout(grids);
        // Half of the threads that would take a cell each: many of the cells are none.
        let clearing_blocks = old_points.div_ceil(POINT_BLOCK).max(1);
        let params = CellsParams {
            cloud: *cloud,
            out: self.outputs[self.half].address(),
            cells: state.cells.address(),
            counters: self.memory().address(),
            out_elements: self.sizes.cells as u64,
            clearing_blocks,
            one: one(dtype),
            element_bytes: dtype.size() as u32,
            old_points,
            old_out: self.outputs[1 - self.half].address(),
            old_cells: old.cells.address(),
            old_starts: starts(old),
            clear: self.memories[1 - self.half].address(),
            clear_quads: end as u64 / 16,
            is_split: u32::from(self.sector_mask(dtype) == 1),
            unused: 0,
        };
        let blocks = clearing_blocks + cloud.points.div_ceil(POINT_BLOCK);
        let kernel = CELLS[kernel_form(cloud) as usize];
        // SAFETY: there is an element for each cell of each grid, and the cells before were of as many grids; the
        // points are the caller's promise.
        unsafe { self.gpu.launch(kernel, [blocks, grids as u32, 1], POINT_BLOCK, &params) }
    }

    /// Puts the making of a dense output of the rows of the grid at hand into the stream, in memory that is clear.
    ///
    /// # Safety
    /// There is an element for each channel of each cell at `out`.
    pub(super) unsafe fn write_dense(
        &mut self,
        spec: &Spec,
        taken: &Taken,
        dtype: Dtype,
        out: u64,
    ) -> Result<(), CudaError> {
        let half = if self.clears_first() { 0 } else { self.half };
        // The grid may have been written before.
        self.memories[half].clear(self.sizes.saturated(1), 8)?;
        let params = self.scatter_params(spec, taken, dtype, out);
        // SAFETY: as this function.
        unsafe { self.launch_scatter(&params, 1) }
    }

    fn scatter_params(&self, spec: &Spec, taken: &Taken, dtype: Dtype, out: u64) -> ScatterParams {
        let (bitmaps, words) = self.bitmap(0);
        ScatterParams {
            channels: self.channels(spec, taken),
            words: bitmaps.address() + words as u64,
            order: self.state().order.address(),
            rows: self.state().rows.address(),
            out,
            cells: self.sizes.cells as u64,
            saturated: bitmaps.address() + self.sizes.saturated(self.laid_out()) as u64,
            words_per_grid: self.sizes.words as u32,
            dtype: dtype.code(),
            ..ScatterParams::default()
        }
    }

    /// Takes the rows of so many states.
    unsafe fn launch_scatter(&self, params: &ScatterParams, states: usize) -> Result<(), CudaError> {
        let grids = self.laid_out();
        let rows = (states * self.row_capacity.div_ceil(grids)).max(1);
        let blocks = (rows as u32).div_ceil(BLOCK).min(1 << 16);
        // SAFETY: the caller's promise.
        unsafe { self.gpu.launch(SCATTER, [blocks, grids as u32, 1], BLOCK, params) }
    }

    /// How channels are made of the sums and extremes.
    fn channels(&self, spec: &Spec, taken: &Taken) -> Channels {
        let plan = &spec.plan;
        let mut channels = Channels {
            sums: self.sums.address(),
            keys: self.keys.address(),
            exceptions: self.exceptions.address(),
            key_rows: self.row_capacity as u64,
            stride: plan.stride() as u32,
            count: plan.outputs.len() as u32,
            axis_sums: plan.axis_sums() as u32,
            ..Channels::default()
        };
        for (unit, &source) in channels.units.iter_mut().zip(&plan.sums) {
            *unit = power_of_two(-spec.bits(source, taken));
        }
        for (i, output) in plan.outputs.iter().enumerate() {
            (channels.outputs[i], channels.places[i]) = output_code(*output);
        }
        channels
    }

    /// # Safety
    /// As [`Self::add`].
    pub(super) unsafe fn launch_dense(
        &mut self,
        spec: &Spec,
        taken: &Taken,
        dtype: Dtype,
        grids: usize,
    ) -> Result<(), CudaError> {
        let elements = self.sizes.cells * spec.plan.outputs.len();
        let bytes = grids * elements * dtype.size();
        self.clear_outputs(bytes, grids)?;
        let [_, _, words, _] = self.sizes.layout(grids).map(|at| at as u64);
        let (state, old) = (self.state(), self.previous());
        let memory = self.memory().address();
        if !self.is_occupancy(spec) {
            let params = ScatterParams {
                old_order: old.order.address(),
                old_rows: old.rows.address(),
                ..self.scatter_params(spec, taken, dtype, self.outputs[0].address())
            };
            // SAFETY: the rows of both states' grids are cells of the grids; there is an element for each channel.
            return unsafe { self.launch_scatter(&params, 2) };
        }
        let starts = |state: &State| if state.has_starts { state.starts.address() } else { 0 };
        let params = SectorsParams {
            words: memory + words,
            cells: state.cells.address(),
            starts: starts(state),
            old_cells: old.cells.address(),
            old_starts: starts(old),
            out: self.outputs[0].address(),
            out_elements: self.sizes.cells as u64,
            points: if state.saved > 0 { state.points as u32 } else { 0 },
            old_points: if old.saved > 0 { old.points as u32 } else { 0 },
            words_per_grid: self.sizes.words as u32,
            one: one(dtype),
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
}

/// The sources and the scales of the values of the sums and extremes.
fn sources(spec: &Spec, taken: &Taken) -> SumsParams {
    let code = |source: Source| match source {
        Source::Axis(axis) => axis as u8,
        Source::Field(field) => 3 + field as u8,
    };
    let mut params = SumsParams {
        axis_sums: spec.plan.axis_sums() as u32,
        ..SumsParams::default()
    };
    for (i, &source) in spec.plan.sums.iter().enumerate() {
        params.sum_sources[i] = code(source);
        params.scales[i] = power_of_two(spec.bits(source, taken));
        if let Source::Field(field) = source {
            params.field_scales[field] = params.scales[i];
        }
    }
    let places = params.extreme_sources.as_flattened_mut();
    for (place, extreme) in places.iter_mut().zip(&spec.plan.extremes) {
        *place = code(extreme.source);
    }
    params
}

/// The bits of 1.0.
fn one(dtype: Dtype) -> u32 {
    match dtype {
        Dtype::Float16 => 0x3c00,
        Dtype::BFloat16 => 0x3f80,
        _ => 1f32.to_bits(),
    }
}
