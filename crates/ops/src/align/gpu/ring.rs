//! Copies of the histories of sensor streams on a device, as ring buffers.
//!
//! The history decides which samples there are, and a ring buffer only follows it. Before a window is computed, every sample that
//! `Ring::lacking` returns is copied into the ring buffer.

use super::params::Fresh;
use robocache_device::gpu::{Budget, DeviceBuf, DeviceFault, DevicePtr, Gpu};
use robocache_stream::History;
use std::ops::Range;

/// Smallest number of slots of a ring buffer, if these slots take at most [`SMALL_BYTES`]. A ring buffer of larger samples has only
/// the slots that it needs.
const SMALL_SLOTS: usize = 64;
/// Greatest size of [`SMALL_SLOTS`] slots, bytes, at which a ring buffer has that many from the start.
const SMALL_BYTES: usize = 64 << 10;

/// Device copy of the samples of one sensor stream, as a ring buffer: sample number n is in slot n & (slots - 1).
pub(super) struct Ring {
    /// Device buffer with the times of all slots, int64, and behind them their rows, float32.
    samples: DeviceBuf,
    dim: usize,
    /// Number of slots: a power of two; 0 before memory is allocated.
    slots: usize,
    /// Number, in the history, of the first sample that has not been copied into the ring buffer.
    end: u64,
}

impl Ring {
    pub(super) fn new(gpu: &Gpu, budget: &Budget, dim: usize) -> Self {
        Self {
            samples: DeviceBuf::new(gpu, budget),
            dim,
            slots: 0,
            end: 0,
        }
    }

    /// Marks every sample as not copied, so that the next pass copies the history anew. Rows that only the device holds stay where
    /// they are.
    pub(super) fn forget(&mut self) {
        self.end = 0;
    }

    /// Returns the samples that the ring buffer lacks, as indices in the history, and allocates room for them. They count as copied
    /// from now on, until [`forget`](Self::forget).
    pub(super) fn lacking(&mut self, history: &History) -> Result<Range<usize>, DeviceFault> {
        let held = history.times().len();
        let (first, end) = (history.first(), history.first() + held as u64);
        let mut copied_until = self.end.min(history.take_rewritten());
        if !self.has_room(held) {
            copied_until = 0;
            self.grow(held)?;
        }
        self.end = end;
        Ok(copied_until.saturating_sub(first).min(held as u64) as usize..held)
    }

    /// Creates an empty ring buffer of the same stream with room for `held` samples.
    pub(super) fn larger(&self, gpu: &Gpu, budget: &Budget, held: usize) -> Result<Self, DeviceFault> {
        let mut larger = Self::new(gpu, budget, self.dim);
        larger.grow(held)?;
        Ok(larger)
    }

    /// True if the ring buffer has slots for `held` samples in all.
    pub(super) fn has_room(&self, held: usize) -> bool {
        self.slots > 0 && held <= self.slots
    }

    fn grow(&mut self, held: usize) -> Result<(), DeviceFault> {
        let sample_bytes = size_of::<i64>() + self.dim * size_of::<f32>();
        let is_small = SMALL_SLOTS * sample_bytes <= SMALL_BYTES;
        let slots = held.next_power_of_two().max(if is_small { SMALL_SLOTS } else { 1 });
        // If this fails, the ring is empty.
        (self.slots, self.end) = (0, 0);
        let bytes = slots * sample_bytes;
        self.samples.reserve(bytes)?;
        // The kernel reads a row of an empty ring, though it uses nothing of it.
        self.samples.clear(0, bytes)?;
        self.slots = slots;
        Ok(())
    }

    /// Returns the copies that bring the rows of the history from the ring buffer `old` into this one. There is one for each of at
    /// most two runs that are contiguous in `old`.
    pub(super) fn moves<'a>(&'a self, history: &'a History, old: &'a Self) -> impl Iterator<Item = Fresh<'a>> {
        let held = history.times().len();
        let wrap = match old.slots {
            0 => 0,
            slots => (slots - old.slot_of(history, 0) as usize).min(held),
        };
        [0..wrap, wrap..held]
            .into_iter()
            .filter(|run| !run.is_empty())
            .map(move |run| {
                let bytes = old.slot_of(history, run.start) as usize * self.dim * size_of::<f32>();
                self.fresh(history, &run, DevicePtr::NULL, old.values().offset(bytes))
            })
    }

    /// Copies the rows of the samples `numbers` of the history to `rows`, in host memory, and waits for the copy.
    pub(super) fn fetch(&self, numbers: Range<u64>, rows: &mut [f32]) -> Result<(), DeviceFault> {
        let (mut number, mut rows) = (numbers.start, rows);
        while number < numbers.end {
            let slot = self.slot(number) as usize;
            let run = (self.slots - slot).min((numbers.end - number) as usize);
            let at = self.slots * size_of::<i64>() + slot * self.dim * size_of::<f32>();
            let of_run;
            (of_run, rows) = rows.split_at_mut(run * self.dim);
            self.samples.fetch(at, bytemuck::cast_slice_mut(of_run))?;
            number += run as u64;
        }
        Ok(())
    }

    /// Slot of the sample with this number in the history.
    pub(super) fn slot(&self, number: u64) -> u32 {
        number as u32 & self.mask()
    }

    /// Slot of the sample with index `sample` in the history.
    pub(super) fn slot_of(&self, history: &History, sample: usize) -> u32 {
        self.slot(history.first() + sample as u64)
    }

    pub(super) fn mask(&self) -> u32 {
        self.slots as u32 - 1
    }

    pub(super) fn times(&self) -> DevicePtr<'_> {
        self.samples.pointer()
    }

    pub(super) fn values(&self) -> DevicePtr<'_> {
        self.samples.pointer().offset(self.slots * size_of::<i64>())
    }

    /// Returns the copy that brings samples of the history, whose times and values are at these device addresses, into the ring
    /// buffer. If `times` is null, only the rows are copied.
    pub(super) fn fresh<'a>(
        &'a self,
        history: &History,
        samples: &Range<usize>,
        times: DevicePtr<'a>,
        values: DevicePtr<'a>,
    ) -> Fresh<'a> {
        Fresh {
            times,
            values,
            ring_times: self.times(),
            ring_values: self.values(),
            first: self.slot_of(history, samples.start),
            count: samples.len() as u32,
            mask: self.mask(),
            dim: self.dim as u32,
        }
    }
}
