use super::super::Trajectories;
use super::super::spec::Spec;
use super::chunks::{Chunk, Places};
use super::launch::{self, Batch, OVERFLOW, Tile, Tiling};
use crate::device::cuda::{Budget, CudaError, DeviceBuf, Gpu, PinnedBuf};

/// A stream with the memory for one chunk: copies of one lane go on while another one computes.
pub(super) struct Lane {
    gpu: Gpu,
    /// Inputs and outputs of the chunk, one after the other.
    memory: DeviceBuf,
    tiles: PinnedBuf,
    dropped: PinnedBuf,
    /// Whether there is a count in `dropped` once the stream has been waited for.
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

    /// Puts the work on a chunk into the stream.
    ///
    /// # Errors
    /// What the driver says; `finish` is still due.
    ///
    /// # Safety
    /// The lane is finished before the batch, `values` and `valid` are touched or freed.
    pub unsafe fn start(
        &mut self,
        spec: &Spec,
        batch: &Trajectories<'_>,
        chunk: &Chunk,
        values: &mut [u8],
        valid: &mut [u8],
    ) -> Result<(), CudaError> {
        let places = Places::of(batch, chunk);
        self.counts_samples = false;
        self.memory.reserve(places.bytes)?;
        self.dropped.resize(size_of::<u64>())?;
        let on_device = self.batch(batch, chunk, &places)?;
        let inputs = chunk.inputs(batch);
        let memory = &self.memory;
        // SAFETY: the caller finishes the lane while it has all of the host memory, the places are as large as the
        // batch says, and the lane itself keeps its tiles and its count as they are until then.
        unsafe {
            for (at, bytes) in [places.times, places.values, places.targets].into_iter().zip(inputs) {
                memory.upload(at, bytes)?;
            }
            if let Tiling::Ragged { .. } = on_device.tiling {
                memory.upload(places.tiles, self.tiles.bytes())?;
            }
            spec.launch(&self.gpu, &on_device, OVERFLOW)?;
            memory.download(places.out, values)?;
            memory.download(places.valid, valid)?;
            if chunk.counts_samples {
                memory.clear(places.dropped, size_of::<u64>())?;
                let dropped = memory.address() + places.dropped as u64;
                launch::count_nonfinite(&self.gpu, &on_device, chunk.samples.len(), dropped)?;
                memory.download(places.dropped, self.dropped.bytes_mut())?;
                self.counts_samples = true;
            }
        }
        Ok(())
    }

    /// The chunk at its place in the memory. Fills `tiles` where the rows are not alike.
    fn batch(&mut self, batch: &Trajectories<'_>, chunk: &Chunk, places: &Places) -> Result<Batch, CudaError> {
        let at = |place: usize| self.memory.address() + place as u64;
        let (samples, targets) = chunk.regular(batch).unwrap_or_default();
        let mut on_device = Batch {
            dtype: batch.dtype(),
            dim: batch.dim,
            times: at(places.times),
            values: at(places.values),
            targets: at(places.targets),
            out: at(places.out),
            valid: at(places.valid),
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
                tiles: at(places.tiles),
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
    /// What the driver says; the device is done with the host's memory all the same.
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
