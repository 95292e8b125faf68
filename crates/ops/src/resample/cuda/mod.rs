//! Resampling on CUDA devices: equal to [`CpuResampler`](super::CpuResampler) bit for bit.

mod chunks;
mod lane;
mod launch;
mod shards;

pub use launch::DeviceBatch;
pub use shards::ShardedResampler;

use super::spec::Spec;
use super::{ResampleConfig, ResampleCounters, Trajectories};
use crate::ConfigError;
use chunks::{Chunk, Chunks};
use lane::{Answers, Lane};
use robocache_device::FIRST_RETRY;
use robocache_device::cuda::{Budget, CudaError, Gpu};
use std::ops::Range;
use std::time::Instant;

/// Resamples batches of trajectories on one device. Once it has seen its largest batch it allocates nothing.
pub struct CudaResampler {
    spec: Spec,
    gpu: Gpu,
    budget: Budget,
    /// One, until a large batch opens the others.
    lanes: Vec<Lane>,
    /// How many bytes all lanes together may take. It shrinks for a while if the device has less.
    room: usize,
    shrunk: Option<Instant>,
}

/// The chunks of a large batch take turns on so many streams: while one computes, others are uploaded and downloaded.
const LANES: usize = 4;

/// A batch of more bytes is large, and is cut into chunks of about so many.
const LARGE_BYTES: usize = 8 << 20;

/// The granularity of device memory, bytes.
const GRANULE: usize = 512;

impl CudaResampler {
    /// A resampler of that configuration, which holds at most so many bytes of the device's memory.
    ///
    /// # Errors
    /// The key that is not allowed, or what is not on CUDA.
    pub fn new(config: &ResampleConfig, gpu: &Gpu, max_bytes: Option<usize>) -> Result<Self, ConfigError> {
        let budget = Budget::new(max_bytes);
        let spec = Spec::new(config)?;
        if let Some(reason) = spec.not_on_cuda() {
            return Err(ConfigError::new("device", reason));
        }
        Ok(Self {
            spec,
            lanes: vec![Lane::new(gpu.clone(), &budget)],
            room: Self::whole_room(max_bytes),
            shrunk: None,
            gpu: gpu.clone(),
            budget,
        })
    }

    /// The device it runs on.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Bytes of device memory that it holds.
    pub fn bytes_in_use(&self) -> usize {
        self.budget.used()
    }

    /// Does what [`CpuResampler::run`](super::CpuResampler::run) does, with the same bytes and counters.
    ///
    /// A batch that does not fit the memory is cut into chunks of whole trajectories, and a trajectory that alone does
    /// not fit into chunks of its targets.
    ///
    /// # Errors
    /// One that [`is_memory`](CudaError::is_memory), if not even one trajectory with one target fits; what the driver
    /// says. The outputs are then undefined.
    ///
    /// # Panics
    /// If `values` are not [`Trajectories::output_bytes`], or `valid` is not one byte for each target.
    pub fn run(
        &mut self,
        batch: &Trajectories<'_>,
        values: &mut [u8],
        valid: &mut [u8],
    ) -> Result<ResampleCounters, CudaError> {
        assert_eq!(
            values.len(),
            batch.output_bytes(),
            "one value for each target and channel"
        );
        self.run_rows(batch, 0..batch.rows, values, valid)
    }

    /// Does some of the rows of a batch. The outputs are those of these rows.
    fn run_rows(
        &mut self,
        batch: &Trajectories<'_>,
        rows: Range<usize>,
        values: &mut [u8],
        valid: &mut [u8],
    ) -> Result<ResampleCounters, CudaError> {
        let first = batch.target_offsets[rows.start] as usize;
        assert_eq!(
            valid.len(),
            batch.target_offsets[rows.end] as usize - first,
            "one byte for each target"
        );
        if self.shrunk.is_some_and(|since| since.elapsed() >= FIRST_RETRY) {
            self.shrunk = None;
            self.room = Self::whole_room(self.budget.limit());
            tracing::info!("resample: trying larger chunks again");
        }
        let mut answers = Answers {
            values,
            valid,
            first,
            row_bytes: batch.dim * batch.dtype().size(),
        };
        let mut chunks = Chunks::new(batch, rows.clone());
        self.open_lanes(chunks.whole_bytes())?;
        let mut counters = ResampleCounters::default();
        let mut turn = 0;
        while let Some(chunk) = self.next(&chunks) {
            let lane = turn % self.lanes.len();
            match self.lanes[lane].finish(&mut answers) {
                Ok(count) => counters += count,
                Err(error) => {
                    // What was not copied is lost. The error that came first is the one to tell.
                    let _ = self.finish(&mut answers);
                    return Err(error);
                }
            }
            // SAFETY: every lane is finished before this function returns or goes on after an error, and until then nothing
            // touches what the caller lent.
            match unsafe { self.lanes[lane].start(&self.spec, batch, &chunk, &mut answers) } {
                Ok(()) => {
                    chunks.advance(&chunk);
                    turn += 1;
                }
                Err(error) => {
                    counters += self.finish(&mut answers)?;
                    self.shrink(error, batch, &chunk)?;
                }
            }
        }
        counters += self.finish(&mut answers)?;
        counters.rows = rows.len() as u64;
        Ok(counters)
    }

    fn whole_room(max_bytes: Option<usize>) -> usize {
        max_bytes.map_or(usize::MAX, |bytes| bytes / GRANULE * GRANULE)
    }

    /// Opens the other lanes for a large batch.
    fn open_lanes(&mut self, bytes: usize) -> Result<(), CudaError> {
        if bytes > LARGE_BYTES && self.room >= LANES * LARGE_BYTES {
            while self.lanes.len() < LANES {
                let gpu = Gpu::open(self.gpu.ordinal())?;
                self.lanes.push(Lane::new(gpu, &self.budget));
            }
        }
        Ok(())
    }

    /// The next chunk: as much as fits with one lane, a part that leaves the others theirs with several.
    fn next(&self, chunks: &Chunks<'_, '_>) -> Option<Chunk> {
        let most = self.room / self.lanes.len() / GRANULE * GRANULE;
        let room = if self.lanes.len() > 1 {
            most.min(LARGE_BYTES)
        } else {
            most
        };
        chunks.next(room, most)
    }

    /// Makes `room` smaller after a chunk did not fit.
    ///
    /// # Errors
    /// `error`, if a smaller chunk would not help.
    fn shrink(&mut self, error: CudaError, batch: &Trajectories<'_>, chunk: &Chunk) -> Result<(), CudaError> {
        if !error.is_memory() || (self.lanes.len() == 1 && !chunk.can_be_halved()) {
            return Err(error);
        }
        // One lane needs less memory than several.
        if self.lanes.len() > 1 {
            self.lanes.truncate(1);
            self.room = self.room.min(chunk.bytes(batch).max(LARGE_BYTES));
        } else {
            self.room = chunk.half_bytes(batch);
        }
        self.shrunk = Some(Instant::now());
        tracing::warn!("resample: {error}; going on with chunks of {} bytes", self.room);
        Ok(())
    }

    /// Finishes every lane, even if one fails. Returns what was counted.
    fn finish(&mut self, answers: &mut Answers<'_>) -> Result<ResampleCounters, CudaError> {
        let mut sum = Ok(ResampleCounters::default());
        for lane in &mut self.lanes {
            let count = lane.finish(answers);
            sum = sum.and_then(|mut sum: ResampleCounters| {
                sum += count?;
                Ok(sum)
            });
        }
        sum
    }

    /// Enqueues the work on a batch that is on the device, where the answer stays.
    ///
    /// Samples that are not finite are dropped, as everywhere, but not counted.
    ///
    /// # Errors
    /// [`CudaError::Slice`] if a slice is not as large as the batch says, not of its type, or on another device; what the
    /// driver says; one that [`is_memory`](CudaError::is_memory) where a sample takes more than 16 MiB.
    ///
    /// # Safety
    /// The memory of the slices lives until the stream is synchronized; the times of each trajectory ascend.
    pub unsafe fn launch(&self, batch: &DeviceBatch) -> Result<(), CudaError> {
        let batch = batch.checked(&self.gpu)?;
        // SAFETY: the slices were checked; the rest is the caller's promise.
        unsafe { self.spec.launch(&self.gpu, &batch, 0) }
    }
}
