//! Histories of streams on a device, which follow those of an aligner.

use super::params::Fresh;
use crate::device::cuda::{Budget, CudaError, DeviceBuf, Gpu};
use crate::stream::History;
use std::ops::Range;

/// The fewest samples that a ring has room for.
const LEAST_PLACES: usize = 64;

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

    /// Nothing in the ring can be relied on.
    pub fn forget(&mut self) {
        self.end = 0;
    }

    /// The samples of the history that the ring lacks, by their place in the history. They count as being in it from
    /// now on, until it is told to [`forget`](Self::forget).
    pub fn lacking(&mut self, history: &History) -> Result<Range<usize>, CudaError> {
        let held = history.times().len();
        let (first, end) = (history.first(), history.first() + held as u64);
        let mut known = self.end.min(history.take_rewritten());
        if held > self.places || self.places == 0 {
            let places = held.next_power_of_two().max(LEAST_PLACES);
            // The ring is empty should this fail.
            (self.places, self.end, known) = (0, 0, 0);
            self.samples
                .reserve(places * (size_of::<i64>() + self.dim * size_of::<f32>()))?;
            self.places = places;
        }
        self.end = end;
        Ok(known.saturating_sub(first).min(held as u64) as usize..held)
    }

    /// The place of a sample of the history.
    pub fn place(&self, history: &History, sample: usize) -> u32 {
        (history.first() + sample as u64) as u32 & self.mask()
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

    /// That samples `lacking` of the history, which lie at these addresses of the device, are to be put into the ring.
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
