//! Batches of trajectories at their targets on CUDA devices: equal to [`Resampler`](super::Resampler) bit for bit.

mod chunks;
mod launch;
mod shards;

pub use launch::DeviceBatch;
pub use shards::ShardedResampler;

use super::{Counters, ResampleConfig, Trajectories};
use crate::device::cuda::{Budget, CudaError, DeviceBuf, Gpu, PinnedBuf};
use crate::ops::ConfigError;
use chunks::{Chunk, Chunks, Places};
use launch::{Batch, Rules, Tile, Tiling};
use std::ops::Range;

/// Puts batches of trajectories on their targets, on a device. Once it has seen its largest batch it allocates nothing.
pub struct CudaResampler {
    rules: Rules,
    gpu: Gpu,
    budget: Budget,
    /// Inputs and outputs of a chunk, one after the other.
    memory: DeviceBuf,
    tiles: PinnedBuf,
    dropped: PinnedBuf,
    /// How much a chunk may take; it shrinks when the device turns out to have less.
    room: usize,
}

impl CudaResampler {
    /// A resampler of that configuration, which holds at most so many bytes of the device's memory.
    ///
    /// # Errors
    /// Which key can't be what it is.
    pub fn new(config: &ResampleConfig, gpu: &Gpu, max_bytes: Option<usize>) -> Result<Self, ConfigError> {
        let budget = Budget::new(max_bytes);
        Ok(Self {
            rules: Rules::new(config)?,
            memory: DeviceBuf::new(gpu, &budget),
            tiles: PinnedBuf::new(gpu),
            dropped: PinnedBuf::new(gpu),
            // Memory is had in pieces of 512 bytes.
            room: max_bytes.map_or(usize::MAX, |bytes| bytes / 512 * 512),
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

    /// Does what [`Resampler::run`](super::Resampler::run) does, with the same bytes and counters.
    ///
    /// A batch that is larger than the memory is cut into chunks: of trajectories, and where one alone is too large, of
    /// its targets.
    ///
    /// # Errors
    /// One that [`is_memory`](CudaError::is_memory), where not even one trajectory and one target fit; what the driver
    /// says. The outputs then hold anything.
    ///
    /// # Panics
    /// If `values` are not [`Trajectories::output_bytes`], or `valid` is not one byte for each target.
    pub fn run(
        &mut self,
        batch: &Trajectories<'_>,
        values: &mut [u8],
        valid: &mut [u8],
    ) -> Result<Counters, CudaError> {
        assert_eq!(
            values.len(),
            batch.output_bytes(),
            "one value for each target and channel"
        );
        self.run_rows(batch, 0..batch.rows, values, valid)
    }

    /// Some of the rows of a batch, with the outputs of those rows.
    fn run_rows(
        &mut self,
        batch: &Trajectories<'_>,
        rows: Range<usize>,
        values: &mut [u8],
        valid: &mut [u8],
    ) -> Result<Counters, CudaError> {
        let first = batch.target_offsets[rows.start] as usize;
        assert_eq!(
            valid.len(),
            batch.target_offsets[rows.end] as usize - first,
            "one byte for each target"
        );
        let row_bytes = batch.dim * batch.dtype().size();
        let mut counters = Counters {
            rows: rows.len() as u64,
            targets: valid.len() as u64,
            ..Counters::default()
        };
        let mut chunks = Chunks::new(batch, rows);
        while let Some(chunk) = chunks.next(self.room) {
            let span = chunk.targets.start - first..chunk.targets.end - first;
            let values = &mut values[span.start * row_bytes..span.end * row_bytes];
            let done = self.run_chunk(batch, &chunk, values, &mut valid[span]);
            match done {
                Ok(dropped) => {
                    counters.dropped_nonfinite += dropped;
                    chunks.advance(&chunk);
                }
                Err(error) if error.is_memory() && chunk.can_be_halved() => {
                    self.room = chunk.half_bytes(batch);
                    tracing::warn!("resample: {error}; going on with chunks of {} bytes", self.room);
                }
                Err(error) => return Err(error),
            }
        }
        counters.invalid = valid.iter().filter(|&&valid| valid == 0).count() as u64;
        Ok(counters)
    }

    /// Returns how many samples were not finite.
    fn run_chunk(
        &mut self,
        batch: &Trajectories<'_>,
        chunk: &Chunk,
        values: &mut [u8],
        valid: &mut [u8],
    ) -> Result<u64, CudaError> {
        let places = Places::of(batch, chunk);
        self.memory.reserve(places.bytes)?;
        let base = self.memory.address();
        let (times, samples, targets) = chunk.inputs(batch);
        let mut on_device = Batch {
            dtype: batch.dtype(),
            dim: batch.dim,
            times: base + places.times as u64,
            values: base + places.values as u64,
            targets: base + places.targets as u64,
            out: base + places.out as u64,
            valid: base + places.valid as u64,
            tiling: Tiling::Regular {
                rows: chunk.rows.len(),
                samples: 0,
                targets: 0,
            },
        };
        if let Some((samples, targets)) = chunk.regular(batch) {
            on_device.tiling = Tiling::Regular {
                rows: chunk.rows.len(),
                samples,
                targets,
            };
        } else {
            let tile = on_device.tile_targets(&self.gpu, chunk.targets.len());
            let count = chunk.tiles(batch, tile).count();
            // One at least: an empty buffer is not aligned for them.
            self.tiles.resize(count.max(1) * size_of::<Tile>())?;
            for (to, from) in self.tiles.as_mut_slice().iter_mut().zip(chunk.tiles(batch, tile)) {
                *to = from;
            }
            on_device.tiling = Tiling::Ragged {
                tiles: base + places.tiles as u64,
                count,
            };
        }
        self.dropped.resize(size_of::<u64>())?;
        let done = self.put(&on_device, &places, chunk, [times, samples, targets], values, valid);
        // Even where something failed: the device must have left the caller's memory before this returns.
        let synchronized = self.gpu.synchronize();
        done.and(synchronized)?;
        Ok(if chunk.counts_samples {
            self.dropped.as_slice::<u64>()[0]
        } else {
            0
        })
    }

    /// Puts the uploads, the kernels and the downloads of a chunk into the stream.
    fn put(
        &mut self,
        batch: &Batch,
        places: &Places,
        chunk: &Chunk,
        inputs: [&[u8]; 3],
        values: &mut [u8],
        valid: &mut [u8],
    ) -> Result<(), CudaError> {
        let Self { rules, gpu, memory, .. } = self;
        // SAFETY: the caller synchronizes the stream while it holds all of the host memory, and the places of the
        // inputs and outputs are as large as the batch says.
        unsafe {
            for (at, bytes) in [places.times, places.values, places.targets].into_iter().zip(inputs) {
                memory.upload(at, bytes)?;
            }
            if let Tiling::Ragged { .. } = batch.tiling {
                memory.upload(places.tiles, self.tiles.bytes())?;
            }
            rules.launch(gpu, batch)?;
            memory.download(places.out, values)?;
            memory.download(places.valid, valid)?;
            if chunk.counts_samples {
                memory.clear(places.dropped, size_of::<u64>())?;
                let dropped = memory.address() + places.dropped as u64;
                launch::count_nonfinite(gpu, batch, chunk.samples.len(), dropped)?;
                memory.download(places.dropped, self.dropped.bytes_mut())?;
            }
        }
        Ok(())
    }

    /// Puts the work on a batch that is on the device, and whose outputs stay there, into the stream.
    ///
    /// Samples that are not finite are dropped, as everywhere, but not counted.
    ///
    /// # Errors
    /// What the driver says; one that [`is_memory`](CudaError::is_memory) where a sample takes a gigabyte or more.
    ///
    /// # Safety
    /// Every address of the batch is memory of this device that is as large as the batch says, aligned for its type,
    /// and lives until the stream is synchronized; the times of each trajectory ascend.
    pub unsafe fn launch(&self, batch: &DeviceBatch) -> Result<(), CudaError> {
        // SAFETY: as the caller promises.
        unsafe { self.rules.launch(&self.gpu, &batch.on_device()) }
    }
}
