//! The cells of points: found, marked in bitmaps, and saved for the kernels that need them later. The first launch for
//! a grid also clears the state of the previous grid.

use super::super::spec::Spec;
use super::memory::{GridMemory, Product};
use super::params::{CloudParams, Fields, POINT_BLOCK, POINTS, PointsParams, SAVE_ALL, SAVE_FIRST, SAVE_NONE};
use super::source::kernel_form;
use robocache_device::gpu::{Budget, DeviceBuf, DeviceFault, DevicePtr};

/// Clouds on the device: one cloud of the only grid, or one cloud of each of several grids.
#[derive(Clone, Copy)]
pub(super) struct CloudsOnDevice<'a> {
    pub(super) cloud: CloudParams<'a>,
    pub(super) fields: Fields<'a>,
    /// Number of points of the largest cloud.
    pub(super) longest: usize,
    /// Number of points of all clouds.
    pub(super) total: usize,
}

impl CloudsOnDevice<'_> {
    /// The kernel parameters of these clouds, as the clouds of the current grids.
    pub(super) fn params<'b>(&'b self, memory: &'b GridMemory) -> CloudParams<'b> {
        CloudParams {
            starts: memory.state().first_points(),
            points: self.longest as u32,
            ..self.cloud
        }
    }

    /// Returns the same clouds with another lifetime of the points' memory.
    ///
    /// # Safety
    /// The memory of the points is neither freed nor moved while the result is in use.
    pub(super) unsafe fn outliving<'b>(self) -> CloudsOnDevice<'b> {
        // SAFETY: only the lifetime changes.
        unsafe { std::mem::transmute::<CloudsOnDevice<'_>, CloudsOnDevice<'b>>(self) }
    }
}

/// Clouds that were added to the current grids, and the offset of their cells among the saved cells.
pub(super) struct Added<'a> {
    pub(super) clouds: CloudsOnDevice<'a>,
    /// Index of the clouds' first point among the points of the grid; 0 in a batch.
    pub(super) first: usize,
}

/// The choice of points whose cells are saved.
#[derive(Clone, Copy)]
pub(super) struct Saving {
    /// The choice as a parameter of the kernel: [`SAVE_NONE`], [`SAVE_ALL`] or [`SAVE_FIRST`].
    pub(super) which: u32,
    /// Mask with a bit for each cell of a group of neighbouring cells, such as 0xff for eight. Only the first cell of a
    /// group is saved.
    pub(super) group: u32,
}

impl Saving {
    pub(super) const NONE: Self = Self {
        which: SAVE_NONE,
        group: 1,
    };

    fn of(memory: &GridMemory, spec: &Spec) -> Self {
        if let Product::Dense(dtype) = memory.product
            && memory.is_occupancy(spec)
        {
            return Self {
                which: SAVE_FIRST,
                group: memory.sizes.sector_mask(dtype),
            };
        }
        let (which, group) = match (memory.has_rows(spec) && spec.needs_points(), memory.clears_by_cells()) {
            (true, _) => (SAVE_ALL, 1),
            (false, true) => (SAVE_FIRST, 0xff),
            (false, false) => return Self::NONE,
        };
        Self { which, group }
    }
}

/// The kernel parameters that all clouds of an input share: the grid and the extrinsic.
pub(super) fn cloud_params<'a>(spec: &Spec, input: usize) -> CloudParams<'a> {
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

/// The clouds of the current grids, and whether the state of the previous grids is cleared.
#[derive(Default)]
pub(super) struct Points {
    pub(super) added: Vec<Added<'static>>,
    /// True if a launch for the current grids has cleared the state of the previous grids.
    has_cleared: bool,
}

impl Points {
    /// Starts grids without points. The state of the previous grids is still to be cleared.
    pub(super) fn begin(&mut self) {
        self.added.clear();
        self.has_cleared = false;
    }

    /// Chooses the points whose cells are saved, and makes room for these cells.
    pub(super) fn save(
        &self,
        memory: &mut GridMemory,
        spec: &Spec,
        clouds: CloudsOnDevice<'static>,
    ) -> Result<(Added<'static>, Saving), DeviceFault> {
        let CloudsOnDevice { longest, total, .. } = clouds;
        let first = self.added.iter().map(|added| added.clouds.longest).sum();
        let saving = Saving::of(memory, spec);
        let state = &mut memory.states[memory.half];
        if saving.which != SAVE_NONE {
            let bytes = (first + total) * 4;
            keep_and_reserve(&mut state.cells, &memory.budget, [first * 4, bytes])?;
            state.saved = first + total;
        }
        state.points = first + longest;
        Ok((Added { clouds, first }, saving))
    }

    /// Clears the state of the previous grids, unless the launch for a cloud has done so.
    ///
    /// # Safety
    /// `memory` is the memory of the current grids.
    pub(super) unsafe fn clear(&mut self, memory: &GridMemory, spec: &Spec) -> Result<(), DeviceFault> {
        if self.has_cleared {
            return Ok(());
        }
        // SAFETY: there are no points.
        unsafe { self.launch(memory, spec, &cloud_params(spec, 0), 0, Saving::NONE) }
    }

    /// Enqueues the kernel that finds the cells of a cloud's points. `first` is the index of the cloud's first point
    /// among the points of the grid.
    ///
    /// # Safety
    /// The memory of the points is neither written nor freed until the stream is synchronized.
    pub(super) unsafe fn launch(
        &mut self,
        memory: &GridMemory,
        spec: &Spec,
        cloud: &CloudParams<'_>,
        first: usize,
        saving: Saving,
    ) -> Result<(), DeviceFault> {
        let grids = memory.laid_out();
        let [counters, counts, words, end] = memory.sizes.layout(grids);
        let (state, old) = (memory.state(), memory.previous());
        let at = memory.memory().pointer();
        let form = kernel_form(cloud);
        let mut params = PointsParams {
            cloud: *cloud,
            words: at.offset(words),
            counts: if memory.has_rows(spec) {
                at.offset(counts)
            } else {
                DevicePtr::NULL
            },
            cells: state.cells.pointer().offset(first * 4),
            counters: at.offset(counters),
            words_per_grid: memory.sizes.words as u32,
            superblocks: memory.sizes.superblocks as u32,
            superblock_shift: memory.sizes.shift,
            save: saving.which,
            group: saving.group,
            ..PointsParams::default()
        };
        if !self.has_cleared && !memory.clears_first() {
            let old_memory = memory.memories[1 - memory.half].pointer();
            params.clear = old_memory;
            let by_cells = memory.clears_by_cells();
            params.clear_quads = (if by_cells { words } else { end } / 16) as u64;
            let mut work = params.clear_quads;
            if by_cells && old.saved > 0 {
                params.old_words = old_memory.offset(words);
                params.old_cells = old.cells.pointer();
                params.old_points = old.saved as u32;
                work = work.max(old.saved as u64);
            }
            let whole = u64::from(memory.gpu.multiprocessors());
            let blocks = work.div_ceil(u64::from(POINT_BLOCK)).clamp(1, whole);
            params.clearing_blocks = blocks.div_ceil(grids as u64) as u32;
        }
        let blocks = params.clearing_blocks + cloud.points.div_ceil(POINT_BLOCK);
        // SAFETY: the memory was reserved for these grids and points. The caller promises for the memory of the points.
        unsafe {
            memory
                .gpu
                .launch(POINTS[form as usize], [blocks, grids as u32, 1], POINT_BLOCK, &params)
        }?;
        self.has_cleared = true;
        Ok(())
    }
}

/// Makes room for `bytes` bytes in a buffer, and keeps its first `used` bytes.
fn keep_and_reserve(buffer: &mut DeviceBuf, budget: &Budget, [used, bytes]: [usize; 2]) -> Result<(), DeviceFault> {
    if bytes <= buffer.capacity() || used == 0 {
        return buffer.reserve(bytes);
    }
    let mut grown = DeviceBuf::new(buffer.gpu(), budget);
    grown.reserve(bytes.max(buffer.capacity() + buffer.capacity() / 2))?;
    grown.copy_from(0, buffer, 0, used)?;
    *buffer = grown;
    Ok(())
}
