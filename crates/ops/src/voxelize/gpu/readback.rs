//! Copies of the counters and of each grid's first row to the host. A copy is read only after its event, or after the
//! stream is synchronized.

use super::super::VoxelCounters;
use super::super::spec::Spec;
use super::memory::GridMemory;
use super::sizes::{COUNTER_BYTES, Sizes};
use robocache_device::gpu::{DeviceFault, Event, Gpu, PinnedBuf};

/// Choice whether the counters and the first rows are copied to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// The counters and the first rows are copied to the host.
    Read,
    /// The counters and the first rows stay on the device.
    Stays,
}

/// The counters on the host, as [`Sizes`] lays them out, and the first row of each grid.
pub(super) struct Readback {
    memory: PinnedBuf,
    /// Event after the copy of the counters and the first rows.
    ready: Event,
    /// Event after the copy of the counts of unusable values, which are counted with the sums, after the other
    /// counters.
    unusable_ready: Event,
    /// Sizes and number of the grids whose counters are in `memory`.
    of: (Sizes, usize),
}

impl Readback {
    pub(super) fn new(gpu: &Gpu) -> Result<Self, DeviceFault> {
        Ok(Self {
            memory: PinnedBuf::new(gpu),
            ready: gpu.event()?,
            unusable_ready: gpu.event()?,
            of: (Sizes::of(0, 0), 0),
        })
    }

    /// Enqueues the copy of the counters and of each grid's first row to the host, for [`Self::wait`].
    pub(super) fn read_head(&mut self, memory: &GridMemory, spec: &Spec) -> Result<(), DeviceFault> {
        let grids = memory.laid_out();
        self.of = (memory.sizes, grids);
        let [_, rows, ..] = memory.sizes.layout(grids);
        self.memory.resize((rows + (grids + 1) * 4).next_multiple_of(8))?;
        let (counters, starts) = self.memory.bytes_mut().split_at_mut(rows);
        // SAFETY: the memory is read after the event only, and is this value's own.
        unsafe {
            memory.memory().download(0, counters)?;
            if memory.has_rows(spec) {
                memory.state().rows.download(0, &mut starts[..(grids + 1) * 4])?;
            }
        }
        self.unusable_ready.record()?;
        self.ready.record()
    }

    /// Enqueues another copy of the counts of unusable values, for sums that were enqueued after [`Self::read_head`].
    pub(super) fn read_unusable(&mut self, memory: &GridMemory) -> Result<(), DeviceFault> {
        let grids = memory.laid_out();
        let [from, until] = [memory.sizes.unusable(grids), memory.sizes.saturated(grids)];
        if from == until {
            return Ok(());
        }
        let counts = &mut self.memory.bytes_mut()[from..until];
        // SAFETY: the memory is read after the event only, and is this value's own.
        unsafe { memory.memory().download(from, counts) }?;
        self.unusable_ready.record()
    }

    /// Waits for the copy of [`Self::read_unusable`].
    pub(super) fn wait_for_unusable(&self) -> Result<(), DeviceFault> {
        self.unusable_ready.wait()
    }

    /// Enqueues the copy of the number of values beyond the range of the single grid's element type.
    pub(super) fn read_saturated(&mut self, memory: &GridMemory) -> Result<(), DeviceFault> {
        let at = memory.sizes.saturated(1);
        // SAFETY: the memory is read after the stream is synchronized, and is this value's own.
        unsafe { memory.memory().download(at, &mut self.memory.bytes_mut()[at..at + 8]) }
    }

    /// Waits for the copy of [`Self::read_head`].
    pub(super) fn wait(&self) -> Result<(), DeviceFault> {
        self.ready.wait()
    }

    /// The counters of a grid that was made of `points` points.
    pub(super) fn counters(&self, grid: usize, points: usize) -> VoxelCounters {
        let slots: &[[u64; 4]] = bytemuck::cast_slice(&self.memory.bytes()[grid * COUNTER_BYTES..][..COUNTER_BYTES]);
        let counters = [0, 1, 2, 3].map(|i| slots.iter().map(|slot| slot[i]).sum::<u64>());
        VoxelCounters {
            points_in: points as u64,
            points_kept: counters[0] - counters[3],
            dropped_nonfinite: counters[1],
            dropped_outside: counters[2],
            dropped_overflow: counters[3],
        }
    }

    /// Number of a grid's unusable values of each field, in the order of `Plan::fields`.
    pub(super) fn unusable(&self, grid: usize) -> &[u64] {
        let (sizes, grids) = self.of;
        let at = sizes.unusable(grids) + grid * sizes.fields * 8;
        bytemuck::cast_slice(&self.memory.bytes()[at..][..sizes.fields * 8])
    }

    /// Number of values that the type of a grid's dense output on the device can't hold, if the output was written
    /// before the counters were read.
    pub(super) fn saturated(&self, grid: usize) -> u64 {
        let (sizes, grids) = self.of;
        let at = sizes.saturated(grids) + grid * 8;
        bytemuck::pod_read_unaligned(&self.memory.bytes()[at..][..8])
    }

    /// Index of a grid's first row; for the index after the last grid, the total number of rows.
    pub(super) fn first_row(&self, grid: usize) -> usize {
        let (sizes, grids) = self.of;
        let [_, counts, ..] = sizes.layout(grids);
        let rows: &[u32] = bytemuck::cast_slice(&self.memory.bytes()[counts..]);
        rows[grid] as usize
    }
}
