use super::super::Trajectories;
use super::super::spec::Spec;
use super::chunks::{Chunk, Offsets};
use super::launch::{Batch, OVERFLOW, Tile, Tiling};
use crate::device::cuda::{Budget, CudaError, DeviceBuf, Gpu, PinnedBuf};

/// A CUDA stream with memory for one chunk. Lanes overlap: one copies while another one computes.
pub(super) struct Lane {
    gpu: Gpu,
    /// The chunk, laid out by [`Offsets`].
    memory: DeviceBuf,
    tiles: PinnedBuf,
    dropped: PinnedBuf,
    /// Whether the stream writes a count to `dropped`.
    counts_samples: bool,
}

impl Lane {
    pub fn new(gpu: Gpu, budget: &Budget) -> Self {
        Self {
            memory: DeviceBuf::new(&gpu, budget),
            tiles: PinnedBuf::new(&gpu),
            dropped: PinnedBuf::new(&gpu),
            counts_samples: false,
            gpu,
        }
    }

    /// Enqueues the work on a chunk.
    ///
    /// # Errors
    /// What the driver says. [`finish`](Self::finish) must be called all the same.
    ///
    /// # Safety
    /// [`finish`](Self::finish) is called before the batch, `values` and `valid` are touched or freed.
    pub unsafe fn start(
        &mut self,
        spec: &Spec,
        batch: &Trajectories<'_>,
        chunk: &Chunk,
        values: &mut [u8],
        valid: &mut [u8],
    ) -> Result<(), CudaError> {
        let offsets = Offsets::of(batch, chunk);
        self.counts_samples = false;
        self.memory.reserve(offsets.bytes)?;
        self.dropped.resize(size_of::<u64>())?;
        let on_device = self.batch(batch, chunk, &offsets)?;
        let inputs = chunk.inputs(batch);
        let memory = &self.memory;
        // SAFETY: the caller finishes the lane before it touches the host memory, the offsets leave each part the room
        // that the batch says, and the lane itself leaves its tiles and its count alone until then.
        unsafe {
            for (offset, bytes) in [offsets.times, offsets.values, offsets.targets].into_iter().zip(inputs) {
                memory.upload(offset, bytes)?;
            }
            if let Tiling::Ragged { .. } = on_device.tiling {
                memory.upload(offsets.tiles, self.tiles.bytes())?;
            }
            spec.launch(&self.gpu, &on_device, OVERFLOW)?;
            memory.download(offsets.out, values)?;
            memory.download(offsets.valid, valid)?;
            if chunk.counts_samples {
                memory.clear(offsets.dropped, size_of::<u64>())?;
                let dropped = memory.address() + offsets.dropped as u64;
                spec.count_dropped(&self.gpu, &on_device, chunk.samples.len(), dropped)?;
                memory.download(offsets.dropped, self.dropped.bytes_mut())?;
                self.counts_samples = true;
            }
        }
        Ok(())
    }

    /// The chunk by its addresses. Fills `tiles` where the rows differ in length.
    fn batch(&mut self, batch: &Trajectories<'_>, chunk: &Chunk, offsets: &Offsets) -> Result<Batch, CudaError> {
        let at = |offset: usize| self.memory.address() + offset as u64;
        let (samples, targets) = chunk.regular(batch).unwrap_or_default();
        let mut on_device = Batch {
            dtype: batch.dtype(),
            dim: batch.dim,
            times: at(offsets.times),
            values: at(offsets.values),
            targets: at(offsets.targets),
            out: at(offsets.out),
            valid: at(offsets.valid),
            tiling: Tiling::Regular {
                rows: chunk.rows.len(),
                samples,
                targets,
            },
        };
        if chunk.regular(batch).is_none() {
            let tile = on_device.tile_targets(&self.gpu, chunk.targets.len());
            let count = chunk.tiles(batch, tile).count();
            on_device.tiling = Tiling::Ragged {
                tiles: at(offsets.tiles),
                count,
            };
            self.tiles.resize(count * size_of::<Tile>())?;
            for (to, from) in self.tiles.as_mut_slice().iter_mut().zip(chunk.tiles(batch, tile)) {
                *to = from;
            }
        }
        Ok(on_device)
    }

    /// Waits for the chunk. Returns how many of its samples were not finite.
    ///
    /// # Errors
    /// What the driver says. The device no longer uses the host's memory all the same.
    pub fn finish(&mut self) -> Result<u64, CudaError> {
        self.gpu.synchronize()?;
        let counts_samples = std::mem::take(&mut self.counts_samples);
        Ok(if counts_samples {
            self.dropped.as_slice::<u64>()[0]
        } else {
            0
        })
    }
}
