use super::super::spec::Spec;
use super::super::{ResampleCounters, Trajectories};
use super::chunks::{Chunk, Offsets};
use super::launch::{Batch, OVERFLOW, Tile, Tiling};
use robocache_device::cuda::{Budget, CudaError, DeviceBuf, Gpu, PinnedBuf};

/// A CUDA stream with memory for one chunk. Lanes overlap: one copies while another one computes.
pub(super) struct Lane {
    gpu: Gpu,
    /// The chunk, laid out by [`Offsets`].
    memory: DeviceBuf,
    tiles: PinnedBuf,
    /// How many samples were dropped, and the validity of the targets as the kernels write it.
    head: PinnedBuf,
    /// What the stream works on.
    work: Option<Work>,
}

struct Work {
    chunk: Chunk,
    /// Where its values are, if [`Lane::finish`] is to copy them to the host.
    out: Option<usize>,
}

/// Where the answers of some rows of a batch go.
pub(super) struct Answers<'a> {
    pub values: &'a mut [u8],
    pub valid: &'a mut [u8],
    /// The first target of these rows, counted over the batch.
    pub first: usize,
    /// Bytes of a target's values.
    pub row_bytes: usize,
}

impl Answers<'_> {
    /// Those of a chunk.
    fn of(&mut self, chunk: &Chunk) -> (&mut [u8], &mut [u8]) {
        let span = chunk.targets.start - self.first..chunk.targets.end - self.first;
        let values = span.start * self.row_bytes..span.end * self.row_bytes;
        (&mut self.values[values], &mut self.valid[span])
    }
}

/// The count before the validity in [`Lane::head`], bytes.
const COUNT: usize = size_of::<u64>();

impl Lane {
    pub fn new(gpu: Gpu, budget: &Budget) -> Self {
        Self {
            memory: DeviceBuf::new(&gpu, budget),
            tiles: PinnedBuf::new(&gpu),
            head: PinnedBuf::new(&gpu),
            work: None,
            gpu,
        }
    }

    /// Enqueues the work on a chunk. The lane has been finished.
    ///
    /// # Errors
    /// What the driver says. [`finish`](Self::finish) must be called all the same.
    ///
    /// # Safety
    /// [`finish`](Self::finish) is called before the batch or the answers are touched or freed.
    pub unsafe fn start(
        &mut self,
        spec: &Spec,
        batch: &Trajectories<'_>,
        chunk: &Chunk,
        answers: &mut Answers<'_>,
    ) -> Result<(), CudaError> {
        let offsets = Offsets::of(batch, chunk);
        self.memory.reserve(offsets.bytes)?;
        self.head.resize(COUNT + chunk.targets.len())?;
        let on_device = self.batch(batch, chunk, &offsets)?;
        let (values, _) = answers.of(chunk);
        // A copy to other memory would wait for the kernels, and the lanes after this one with it.
        let copies_itself = self.gpu.is_page_locked(values);
        let (memory, head) = (&self.memory, self.head.bytes_mut());
        // SAFETY: the caller finishes the lane before it touches the host memory, the offsets leave each part the room
        // that the batch says, and the lane itself leaves its tiles and its head alone until then.
        unsafe {
            let inputs = chunk.inputs(batch);
            for (offset, bytes) in [offsets.times, offsets.values, offsets.targets].into_iter().zip(inputs) {
                memory.upload(offset, bytes)?;
            }
            if let Tiling::Ragged { .. } = on_device.tiling {
                memory.upload(offsets.tiles, self.tiles.bytes())?;
            }
            spec.launch(&self.gpu, &on_device, OVERFLOW)?;
            if chunk.counts_samples {
                memory.clear(offsets.dropped, COUNT)?;
                let dropped = memory.address() + offsets.dropped as u64;
                spec.count_dropped(&self.gpu, &on_device, chunk.samples.len(), dropped)?;
            }
            if copies_itself {
                memory.download(offsets.out, values)?;
            }
            if chunk.counts_samples {
                memory.download(offsets.dropped, head)?;
            } else {
                head[..COUNT].fill(0);
                memory.download(offsets.valid, &mut head[COUNT..])?;
            }
        }
        self.work = Some(Work {
            chunk: chunk.clone(),
            out: (!copies_itself).then_some(offsets.out),
        });
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

    /// Waits for the chunk, and writes what the device did not write itself. Returns what was counted of it; of a chunk
    /// that could not be started, nothing.
    ///
    /// # Errors
    /// What the driver says. The device no longer uses the host's memory all the same.
    pub fn finish(&mut self, answers: &mut Answers<'_>) -> Result<ResampleCounters, CudaError> {
        let Some(Work { chunk, out }) = self.work.take() else {
            return self.gpu.synchronize().map(|()| ResampleCounters::default());
        };
        let (values, valid) = answers.of(&chunk);
        match out {
            Some(out) => self.memory.fetch(out, values)?,
            None => self.gpu.synchronize()?,
        }
        let (count, came) = self.head.bytes().split_at(COUNT);
        let (invalid, dropped_overflow) = write_valid(came, valid);
        Ok(ResampleCounters {
            rows: 0,
            targets: chunk.targets.len() as u64,
            invalid,
            dropped_nonfinite: bytemuck::pod_read_unaligned(count),
            dropped_overflow,
        })
    }
}

/// Writes validity, 0 or 1, from that of the kernels. Returns how many targets are not valid, and how many of these have a
/// value that the type can't hold.
fn write_valid(came: &[u8], valid: &mut [u8]) -> (u64, u64) {
    // As many as a byte can count: the loop over them is of bytes alone, and so a few instructions for many of them.
    const BLOCK: usize = 255;
    let (mut invalid, mut overflows) = (0, 0);
    for (valid, came) in valid.chunks_mut(BLOCK).zip(came.chunks(BLOCK)) {
        let (mut are_valid, mut overflow) = (0u8, 0u8);
        for (valid, &came) in valid.iter_mut().zip(came) {
            *valid = u8::from(came == 1);
            are_valid += *valid;
            overflow += u8::from(came == OVERFLOW);
        }
        invalid += (valid.len() - usize::from(are_valid)) as u64;
        overflows += u64::from(overflow);
    }
    (invalid, overflows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validity_is_0_or_1_and_what_is_not_valid_is_counted() {
        let came: Vec<u8> = (0..1000).map(|i| [1, 1, 0, OVERFLOW, 1, 1, 1][i % 7]).collect();
        let mut valid = vec![9; came.len()];
        let counted = write_valid(&came, &mut valid);
        let count = |what| came.iter().filter(|&&came| came == what).count() as u64;
        assert_eq!(counted, (count(0) + count(OVERFLOW), count(OVERFLOW)));
        assert!(
            valid
                .iter()
                .zip(&came)
                .all(|(&valid, &came)| valid == u8::from(came == 1))
        );
    }
}
