//! The rows of the occupied cells: their ranks, their sums and extremes, and the features that are made of these.
//! Within a grid, a cell's row is the cell's rank, so rows are in cell order.

use super::super::plan::{Plan, Source};
use super::super::quantum::power_of_two;
use super::super::spec::{GridClouds, Spec};
use super::memory::{GridMemory, Product};
use super::params::*;
use super::points::Added;
use super::source::kernel_form;
use robocache_device::gpu::{Budget, DeviceBuf, DeviceFault, DevicePtr, Gpu};

/// Device memory of the rows of the occupied cells.
pub(super) struct Rows {
    /// Number of occupied cells before each group of 4 bitmap words.
    ranks: DeviceBuf,
    sums: DeviceBuf,
    keys: DeviceBuf,
    /// Sum of the high parts of large values, and number of unusable values, for each row and each sum of a field.
    exceptions: DeviceBuf,
    coords: DeviceBuf,
    features: DeviceBuf,
    /// Number of rows that the buffers have room for.
    pub(super) capacity: usize,
}

impl Rows {
    pub(super) fn new(gpu: &Gpu, budget: &Budget) -> Self {
        let buffer = || DeviceBuf::new(gpu, budget);
        Self {
            ranks: buffer(),
            sums: buffer(),
            keys: buffer(),
            exceptions: buffer(),
            coords: buffer(),
            features: buffer(),
            capacity: 0,
        }
    }

    /// Frees the device memory of the rows.
    pub(super) fn release(&mut self) {
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
    }

    /// Makes room for the rows of the current grids, which have `points` points in all.
    pub(super) fn reserve(&mut self, memory: &mut GridMemory, spec: &Spec, points: usize) -> Result<(), DeviceFault> {
        let (grids, plan) = (memory.laid_out(), &spec.plan);
        let limit = limit(spec) as usize;
        let capacity = points.min(grids * memory.sizes.cells.min(limit)).max(1);
        self.ranks.reserve(grids * memory.sizes.words)?;
        self.sums.reserve(capacity * plan.stride() * 8)?;
        self.keys.reserve(capacity * plan.extremes.len() * 4)?;
        self.exceptions.reserve(capacity * planes(plan) * 8)?;
        self.capacity = capacity;
        memory.states[memory.half].order.reserve(capacity * 4)?;
        if memory.product == (Product::Rows { coords: true }) {
            self.coords.reserve(capacity * 12)?;
        }
        if matches!(memory.product, Product::Rows { .. }) {
            self.features.reserve(capacity * spec.outputs.len() * 4)?;
        }
        Ok(())
    }

    /// Enqueues the ranking of the occupied cells, and the clearing of their sums.
    pub(super) fn launch_rank(&self, memory: &GridMemory, spec: &Spec) -> Result<(), DeviceFault> {
        let (grids, plan) = (memory.laid_out(), &spec.plan);
        let [_, counts, words, _] = memory.sizes.layout(grids);
        let (state, at) = (memory.state(), memory.memory().pointer());
        if grids > 1 {
            let params = RowsParams {
                counts: at.offset(counts),
                rows: state.rows.pointer(),
                grids: grids as u32,
                superblocks: memory.sizes.superblocks as u32,
                limit: limit(spec),
                unused: 0,
            };
            // SAFETY: there is a row for each grid and one more, and a count for each superblock.
            unsafe { memory.gpu.launch(ROWS, [1; 3], BLOCK, &params) }?;
        }
        let params = RankParams {
            words: at.offset(words),
            counts: at.offset(counts),
            ranks: self.ranks.pointer(),
            sums: self.sums.pointer(),
            keys: self.keys.pointer(),
            order: if spec.needs_points() {
                DevicePtr::NULL
            } else {
                state.order.pointer()
            },
            rows: state.rows.pointer(),
            key_rows: self.capacity as u64,
            greatest: greatest(plan),
            words_per_grid: memory.sizes.words as u32,
            superblocks: memory.sizes.superblocks as u32,
            superblock_shift: memory.sizes.shift,
            limit: limit(spec),
            stride: plan.stride() as u32,
            extremes: plan.extremes.len() as u32,
            exceptions: self.exceptions.pointer(),
            planes: planes(plan) as u64,
        };
        // SAFETY: no grid has more rows than were reserved: there are not more cells than points.
        unsafe {
            memory.gpu.launch(
                RANK,
                [memory.sizes.superblocks as u32, grids as u32, 1],
                RANK_BLOCK,
                &params,
            )
        }
    }

    /// Enqueues the kernels that add the points to the sums and extremes of their cells.
    ///
    /// # Safety
    /// The memory of the points is neither written nor freed until the stream is synchronized.
    pub(super) unsafe fn launch_sums(
        &self,
        memory: &GridMemory,
        spec: &Spec,
        clouds: &GridClouds,
        added: &[Added<'_>],
    ) -> Result<(), DeviceFault> {
        let (grids, plan) = (memory.laid_out(), &spec.plan);
        let [counters, _, words, _] = memory.sizes.layout(grids);
        let at = memory.memory().pointer();
        let state = memory.state();
        for added in added {
            let cloud = added.clouds.params(memory);
            let params = SumsParams {
                cloud,
                cells: state.cells.pointer().offset(added.first * 4),
                words: at.offset(words),
                ranks: self.ranks.pointer(),
                sums: self.sums.pointer(),
                keys: self.keys.pointer(),
                order: state.order.pointer(),
                rows: if grids > 1 {
                    state.rows.pointer()
                } else {
                    DevicePtr::NULL
                },
                counters: at.offset(counters),
                key_rows: self.capacity as u64,
                greatest: greatest(plan),
                words_per_grid: memory.sizes.words as u32,
                limit: limit(spec),
                stride: plan.stride() as u32,
                extremes: plan.extremes.len() as u32,
                is_whole: u32::from(memory.sizes.cells > u32::MAX as usize),
                exceptions: self.exceptions.pointer(),
                unusable: at.offset(memory.sizes.unusable(grids)),
                fields: added.clouds.fields,
                ..sources(spec, clouds)
            };
            let kernel = match plan.sums_all_axes() && plan.stride() == 4 && plan.extremes.is_empty() {
                true => SUMS_XYZ[kernel_form(&cloud) as usize],
                false => SUMS,
            };
            let blocks = cloud.points.div_ceil(BLOCK);
            // SAFETY: the cells of the points were saved by `add`; the points are the caller's promise.
            unsafe { memory.gpu.launch(kernel, [blocks, grids as u32, 1], BLOCK, &params) }?;
        }
        Ok(())
    }

    /// Enqueues the kernel that writes the features of the rows and, if `coords`, their cell indices x, y, z.
    pub(super) fn launch_features(
        &self,
        memory: &GridMemory,
        spec: &Spec,
        clouds: &GridClouds,
        coords: bool,
    ) -> Result<(), DeviceFault> {
        let grids = memory.laid_out();
        let state = memory.state();
        let [_, ny, nz] = spec.grid.shape().map(|n| n as u32);
        let params = FeaturesParams {
            channels: self.channels(spec, clouds),
            out: self.features.pointer(),
            coords: if coords { self.coords.pointer() } else { DevicePtr::NULL },
            order: state.order.pointer(),
            ny,
            nz,
            rows: state.rows.pointer().offset(grids * 4),
        };
        let elements = self.capacity * (spec.outputs.len() + if coords { 3 } else { 0 });
        let blocks = elements.div_ceil(BLOCK as usize).min(1 << 16) as u32;
        // SAFETY: there is an element for each channel and each coordinate of each row.
        unsafe { memory.gpu.launch(FEATURES, [blocks, 1, 1], BLOCK, &params) }
    }

    /// The kernel parameters that describe how channels are made of the sums and extremes.
    pub(super) fn channels(&self, spec: &Spec, clouds: &GridClouds) -> Channels<'_> {
        let plan = &spec.plan;
        let mut channels = Channels {
            sums: self.sums.pointer(),
            keys: self.keys.pointer(),
            exceptions: self.exceptions.pointer(),
            key_rows: self.capacity as u64,
            stride: plan.stride() as u32,
            count: spec.outputs.len() as u32,
            axis_sums: plan.axis_sums() as u32,
            ..Channels::default()
        };
        for (unit, &source) in channels.units.iter_mut().zip(&plan.sums) {
            *unit = power_of_two(-spec.bits(source, clouds));
        }
        for (i, output) in spec.outputs.iter().enumerate() {
            (channels.outputs[i], channels.places[i]) = output_code(*output);
        }
        channels
    }

    /// Cell indices x, y, z of each row, int32.
    pub(super) fn coords(&self) -> &DeviceBuf {
        &self.coords
    }

    /// A value for each channel of each row, float32.
    pub(super) fn features(&self) -> &DeviceBuf {
        &self.features
    }
}

/// Greatest number of rows of a grid: `max_voxels`, but not more than a uint32 can hold.
fn limit(spec: &Spec) -> u32 {
    u32::try_from(spec.max_voxels).unwrap_or(u32::MAX)
}

/// Number of planes of [`Rows::exceptions`]: two for each sum of a field.
fn planes(plan: &Plan) -> usize {
    2 * plan.field_sums()
}

/// Bit mask of the plan's extremes: bit `i` is 1 if extreme `i` is a greatest value, 0 if it is a least value.
fn greatest(plan: &Plan) -> u64 {
    let extremes = plan.extremes.iter().enumerate();
    extremes.fold(0, |bits, (i, extreme)| bits | u64::from(extreme.greatest) << i)
}

/// Kernel parameters with the sources of the sums and extremes, and the scales of the sums.
fn sources<'a>(spec: &Spec, clouds: &GridClouds) -> SumsParams<'a> {
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
        params.scales[i] = power_of_two(spec.bits(source, clouds));
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
