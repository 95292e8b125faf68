//! Histories of streams on a device, which follow those of an aligner.

use super::params::Fresh;
use crate::device::cuda::{Budget, CudaError, DeviceBuf, Gpu};
use crate::stream::History;
use std::ops::Range;

/// A ring has room for so many samples, unless they take more bytes than these: it then has what it needs.
const SMALL_PLACES: usize = 64;
const SMALL_BYTES: usize = 64 << 10;

/// The samples of one stream on a device: sample number n is at place n & (places - 1).
pub(super) struct Ring {
    /// The times of all places, then their rows of float32.
    samples: DeviceBuf,
    dim: usize,
    /// A power of two, or 0 at first.
    places: usize,
    /// The samples of the history before this number are in the ring.
    end: u64,
}

impl Ring {
    pub fn new(gpu: &Gpu, budget: &Budget, dim: usize) -> Self {
        Self {
            samples: DeviceBuf::new(gpu, budget),
            dim,
            places: 0,
            end: 0,
        }
    }

    /// Nothing in the ring can be relied on, but rows that are nowhere else.
    pub fn forget(&mut self) {
        self.end = 0;
    }

    /// The samples of the history that the ring lacks, by their place in the history. They count as being in it from
    /// now on, until it is told to [`forget`](Self::forget).
    pub fn lacking(&mut self, history: &History) -> Result<Range<usize>, CudaError> {
        let held = history.times().len();
        let (first, end) = (history.first(), history.first() + held as u64);
        let mut known = self.end.min(history.take_rewritten());
        if !self.has_room(held) {
            known = 0;
            self.grow(held)?;
        }
        self.end = end;
        Ok(known.saturating_sub(first).min(held as u64) as usize..held)
    }

    /// An empty ring with room for more samples than this one, and so many at least.
    pub fn larger(&self, gpu: &Gpu, budget: &Budget, held: usize) -> Result<Self, CudaError> {
        let mut larger = Self::new(gpu, budget, self.dim);
        larger.grow(held)?;
        Ok(larger)
    }

    /// Whether there is room for so many samples.
    pub fn has_room(&self, held: usize) -> bool {
        self.places > 0 && held <= self.places
    }

    fn grow(&mut self, held: usize) -> Result<(), CudaError> {
        let sample_bytes = size_of::<i64>() + self.dim * size_of::<f32>();
        let is_small = SMALL_PLACES * sample_bytes <= SMALL_BYTES;
        let places = held.next_power_of_two().max(if is_small { SMALL_PLACES } else { 1 });
        // The ring is empty should this fail.
        (self.places, self.end) = (0, 0);
        let bytes = places * sample_bytes;
        self.samples.reserve(bytes)?;
        // The kernel reads a row of an empty ring, though it takes nothing from it.
        self.samples.clear(0, bytes)?;
        self.places = places;
        Ok(())
    }

    /// That the rows of the history, which are in `old`, are to be put into this ring: runs of them that lie one after
    /// the other there.
    pub fn moves(&self, history: &History, old: &Self) -> impl Iterator<Item = Fresh> {
        let held = history.times().len();
        let wrap = match old.places {
            0 => 0,
            places => (places - old.place(history, 0) as usize).min(held),
        };
        [0..wrap, wrap..held]
            .into_iter()
            .filter(|run| !run.is_empty())
            .map(move |run| {
                let bytes = old.place(history, run.start) as usize * self.dim * size_of::<f32>();
                self.fresh(history, &run, 0, old.values() + bytes as u64)
            })
    }

    /// Copies the rows of samples of these numbers to the host, and waits for it.
    pub fn fetch(&self, numbers: Range<u64>, rows: &mut [f32]) -> Result<(), CudaError> {
        let (mut number, mut rows) = (numbers.start, rows);
        while number < numbers.end {
            let place = self.place_of(number) as usize;
            let run = (self.places - place).min((numbers.end - number) as usize);
            let at = self.places * size_of::<i64>() + place * self.dim * size_of::<f32>();
            let of_run;
            (of_run, rows) = rows.split_at_mut(run * self.dim);
            self.samples.fetch(at, bytemuck::cast_slice_mut(of_run))?;
            number += run as u64;
        }
        Ok(())
    }

    /// The place of a sample of that number.
    pub fn place_of(&self, number: u64) -> u32 {
        number as u32 & self.mask()
    }

    /// The place of a sample of the history.
    pub fn place(&self, history: &History, sample: usize) -> u32 {
        self.place_of(history.first() + sample as u64)
    }

    pub fn mask(&self) -> u32 {
        self.places as u32 - 1
    }

    pub fn times(&self) -> u64 {
        self.samples.address()
    }

    pub fn values(&self) -> u64 {
        self.samples.address() + (self.places * size_of::<i64>()) as u64
    }

    /// That samples `lacking` of the history, which lie at these addresses of the device, are to be put into the ring;
    /// without an address of times, their rows alone.
    pub fn fresh(&self, history: &History, lacking: &Range<usize>, times: u64, values: u64) -> Fresh {
        Fresh {
            times,
            values,
            ring_times: self.times(),
            ring_values: self.values(),
            first: self.place(history, lacking.start),
            count: lacking.len() as u32,
            mask: self.mask(),
            dim: self.dim as u32,
        }
    }
}
