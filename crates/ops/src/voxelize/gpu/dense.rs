//! Dense grids on the device, made from rows or directly from the cells of points. An output that holds the previous
//! grid is cleared only where that grid wrote to it.

use super::super::spec::{GridClouds, Spec};
use super::memory::{GridMemory, Method, Product};
use super::params::*;
use super::rows::Rows;
use super::source::kernel_form;
use robocache_device::Dtype;
use robocache_device::gpu::{Budget, DeviceBuf, DeviceFault, DevicePtr, Gpu};

/// Device memory of the dense outputs, and whether it holds the previous grids.
pub(super) struct Dense {
    /// Double-buffered outputs. Without double buffering only the first is used.
    outputs: [DeviceBuf; 2],
    /// Number of grids that the outputs hold; 0 if the content of the outputs is not known.
    grids: usize,
}

impl Dense {
    pub(super) fn new(gpu: &Gpu, budget: &Budget) -> Self {
        Self {
            outputs: [DeviceBuf::new(gpu, budget), DeviceBuf::new(gpu, budget)],
            grids: 0,
        }
    }

    /// Frees the device memory of the outputs.
    pub(super) fn release(&mut self) {
        self.outputs.iter_mut().for_each(DeviceBuf::release);
        self.grids = 0;
    }
    /// Marks the content of the outputs as unknown, so that the next use clears them.
    pub(super) fn forget(&mut self) {
        self.grids = 0;
    }

    /// The outputs of the current grids.
    pub(super) fn output(&self, memory: &GridMemory) -> &DeviceBuf {
        match memory.method {
            Method::PingPongOutputs => &self.outputs[memory.half],
            Method::Bitmaps => &self.outputs[0],
        }
    }

    /// Makes room for `bytes` bytes in each dense output in use, and clears the outputs as a whole. Does nothing if
    /// they hold the previous grids: the kernels clear only those.
    fn clear_outputs(&mut self, memory: &GridMemory, bytes: usize) -> Result<(), DeviceFault> {
        let grids = memory.laid_out();
        if self.grids == grids {
            return Ok(());
        }
        let used = if memory.method == Method::PingPongOutputs { 2 } else { 1 };
        for output in &mut self.outputs[..used] {
            output.reserve(bytes)?;
            output.clear(0, bytes)?;
        }
        self.grids = grids;
        Ok(())
    }

    /// Enqueues the kernel that marks the cells of a cloud's points in the dense occupancy output, without bitmaps.
    ///
    /// # Safety
    /// The memory of the points is neither written nor freed until the stream is synchronized.
    pub(super) unsafe fn launch_cells(
        &mut self,
        memory: &GridMemory,
        cloud: &CloudParams<'_>,
    ) -> Result<(), DeviceFault> {
        let grids = memory.laid_out();
        let Product::Dense(dtype) = memory.product else {
            return Ok(());
        };
        self.clear_outputs(memory, grids * memory.sizes.cells * dtype.size())?;
        let (state, old) = (memory.state(), memory.previous());
        let old_points = old.saved_points();
        let [.., end] = memory.sizes.layout(grids);
        // One thread for each saved cell, although two threads clear a cell: many saved cells are empty.
        let clearing_blocks = old_points.div_ceil(POINT_BLOCK).max(1);
        let params = CellsParams {
            cloud: *cloud,
            out: self.outputs[memory.half].pointer(),
            cells: state.cells.pointer(),
            counters: memory.memory().pointer(),
            out_elements: memory.sizes.cells as u64,
            clearing_blocks,
            one: one(dtype),
            element_bytes: dtype.size() as u32,
            old_points,
            old_out: self.outputs[1 - memory.half].pointer(),
            old_cells: old.cells.pointer(),
            old_starts: old.first_points(),
            clear: memory.memories[1 - memory.half].pointer(),
            clear_quads: end as u64 / 16,
            is_split: u32::from(memory.sizes.sector_mask(dtype) == 1),
            unused: 0,
        };
        let blocks = clearing_blocks + cloud.points.div_ceil(POINT_BLOCK);
        let kernel = CELLS[kernel_form(cloud) as usize];
        // SAFETY: there is an element for each cell of each grid, and there were as many grids before. The caller promises
        // for the points.
        unsafe {
            memory
                .gpu
                .launch(kernel, [blocks, grids as u32, 1], POINT_BLOCK, &params)
        }
    }

    /// Enqueues the kernel that writes the current grid's rows to a dense output at `out`, whose bytes must all be 0.
    ///
    /// # Safety
    /// There is an element for each channel of each cell at `out`.
    pub(super) unsafe fn write(
        &self,
        memory: &GridMemory,
        rows: &Rows,
        spec: &Spec,
        clouds: &GridClouds,
        dtype: Dtype,
        out: DevicePtr<'_>,
    ) -> Result<(), DeviceFault> {
        // The count may be left from an earlier output of the same grid.
        memory.memory().clear(memory.sizes.saturated(1), 8)?;
        let params = scatter_params(memory, rows, spec, clouds, dtype, out);
        // SAFETY: as the caller promises.
        unsafe { launch_scatter(memory, rows, &params, 1) }
    }

    /// Enqueues the kernel that writes the dense outputs of the current grids and clears the cells of the previous
    /// grids.
    ///
    /// # Safety
    /// The earlier work for the grids is enqueued, up to their rows if they have any.
    pub(super) unsafe fn launch(
        &mut self,
        memory: &GridMemory,
        rows: &Rows,
        spec: &Spec,
        clouds: &GridClouds,
        dtype: Dtype,
    ) -> Result<(), DeviceFault> {
        let grids = memory.laid_out();
        let elements = memory.sizes.cells * spec.outputs.len();
        self.clear_outputs(memory, grids * elements * dtype.size())?;
        let [_, _, words, _] = memory.sizes.layout(grids);
        let (state, old) = (memory.state(), memory.previous());
        if !memory.is_occupancy(spec) {
            let params = ScatterParams {
                old_order: old.order.pointer(),
                old_rows: old.rows.pointer(),
                ..scatter_params(memory, rows, spec, clouds, dtype, self.outputs[0].pointer())
            };
            // SAFETY: the rows of both states' grids are cells of the grids; there is an element for each channel.
            return unsafe { launch_scatter(memory, rows, &params, 2) };
        }
        let params = SectorsParams {
            words: memory.memory().pointer().offset(words),
            cells: state.cells.pointer(),
            starts: state.first_points(),
            old_cells: old.cells.pointer(),
            old_starts: old.first_points(),
            out: self.outputs[0].pointer(),
            out_elements: memory.sizes.cells as u64,
            points: state.saved_points(),
            old_points: old.saved_points(),
            words_per_grid: memory.sizes.words as u32,
            one: one(dtype),
            element_bytes: dtype.size() as u32,
            is_split: u32::from(memory.sizes.sector_mask(dtype) == 1),
        };
        let visits = 2 * (state.points + old.points) as u32;
        // SAFETY: the cells of both states' points are cells of the grids, and there is an element for each.
        unsafe {
            memory
                .gpu
                .launch(SECTORS, [visits.div_ceil(BLOCK), grids as u32, 1], BLOCK, &params)
        }
    }
}

fn scatter_params<'a>(
    memory: &'a GridMemory,
    rows: &'a Rows,
    spec: &Spec,
    clouds: &GridClouds,
    dtype: Dtype,
    out: DevicePtr<'a>,
) -> ScatterParams<'a> {
    let (bitmaps, words) = memory.bitmap(0);
    ScatterParams {
        channels: rows.channels(spec, clouds),
        words: bitmaps.pointer().offset(words),
        order: memory.state().order.pointer(),
        rows: memory.state().rows.pointer(),
        out,
        cells: memory.sizes.cells as u64,
        saturated: bitmaps.pointer().offset(memory.sizes.saturated(memory.laid_out())),
        words_per_grid: memory.sizes.words as u32,
        dtype: dtype.code(),
        ..ScatterParams::default()
    }
}

/// Enqueues the kernel that writes rows to a dense output. `states` is 1 for the current grids, and 2 if the kernel
/// also clears the rows of the previous grids.
///
/// # Safety
/// The rows are cells of the grids. There is an element for each channel of each cell at the output of the parameters.
unsafe fn launch_scatter(
    memory: &GridMemory,
    rows: &Rows,
    params: &ScatterParams<'_>,
    states: usize,
) -> Result<(), DeviceFault> {
    let grids = memory.laid_out();
    let rows = (states * rows.capacity.div_ceil(grids)).max(1);
    let blocks = (rows as u32).div_ceil(BLOCK).min(1 << 16);
    // SAFETY: the caller's promise.
    unsafe { memory.gpu.launch(SCATTER, [blocks, grids as u32, 1], BLOCK, params) }
}

/// The bit pattern of 1.0 in a float type.
fn one(dtype: Dtype) -> u32 {
    match dtype {
        Dtype::Float16 => 0x3c00,
        Dtype::BFloat16 => 0x3f80,
        _ => 1f32.to_bits(),
    }
}
