//! Batches in host memory: one block of a device's memory holds a copy of a batch, and its answer. The batch stays
//! borrowed until the stream is synchronized.

use super::super::ResampleCounters;
use super::super::spec::Spec;
use super::super::trajectories::Rows;
use super::launch::{Batch, OVERFLOW, Tile, Tiling};
use robocache_device::gpu::{Budget, DeviceBuf, DeviceFault, DevicePtr, Gpu, PinnedBuf};

/// Byte offsets of the arrays in a block of device memory, and the size of the block.
struct Offsets {
    times: usize,
    values: usize,
    targets: usize,
    tiles: usize,
    out: usize,
    /// Offset of the count of dropped samples. The validity follows directly, so that one copy takes both.
    dropped: usize,
    bytes: usize,
}

/// Alignment of every array in a block, bytes.
const ALIGNMENT: usize = 256;

/// Bytes of the count of dropped samples, which stands before the validity.
const COUNT: usize = size_of::<u64>();

impl Rows<'_> {
    /// The times, the values and the targets of these rows, as bytes.
    fn inputs(&self) -> [&[u8]; 3] {
        let (times, targets) = (bytemuck::cast_slice(self.times), bytemuck::cast_slice(self.targets));
        [times, self.values.bytes(), targets]
    }

    /// Cuts the targets of each row into tiles of at most `most` targets.
    fn tiles(&self, most: usize) -> impl Iterator<Item = Tile> + '_ {
        (0..self.len()).flat_map(move |row| {
            let (samples, targets) = (self.samples_of(row), self.targets_of(row));
            targets.clone().step_by(most).map(move |from| Tile {
                sample: samples.start as u64,
                target: from as u64,
                samples: samples.len() as u32,
                targets: most.min(targets.end - from) as u32,
            })
        })
    }

    fn offsets(&self, tiles: usize) -> Offsets {
        let mut bytes = 0;
        let mut append = |size: usize| {
            let offset = bytes;
            bytes += size.next_multiple_of(ALIGNMENT);
            offset
        };
        let [times, values, targets] = self.inputs().map(|part| append(part.len()));
        let tiles = append(tiles * size_of::<Tile>());
        let out = append(self.output_bytes());
        let dropped = append(COUNT + self.targets.len());
        Offsets {
            times,
            values,
            targets,
            tiles,
            out,
            dropped,
            bytes,
        }
    }
}

/// Memory of a device, and page-locked memory of the host, for one batch and its answer.
pub(super) struct Block {
    memory: DeviceBuf,
    tiles: PinnedBuf,
    /// The count of dropped samples, and the validity of the targets as the kernels write it.
    head: PinnedBuf,
    /// Byte offset of the answer's values in the device memory.
    out: usize,
}

impl Block {
    pub(super) fn new(gpu: &Gpu, budget: &Budget) -> Self {
        Self {
            memory: DeviceBuf::new(gpu, budget),
            tiles: PinnedBuf::new(gpu),
            head: PinnedBuf::new(gpu),
            out: 0,
        }
    }

    /// The device of the block, with the stream that the block's work goes to.
    pub(super) fn gpu(&self) -> &Gpu {
        self.memory.gpu()
    }

    /// Enqueues the upload of a batch, and the kernels that resample it and count its dropped samples.
    ///
    /// # Errors
    /// The device has too little memory, or the driver fails.
    ///
    /// # Safety
    /// As [`upload`](Self::upload).
    pub(super) unsafe fn start(&mut self, spec: &Spec, rows: &Rows<'_>) -> Result<(), DeviceFault> {
        let gpu = self.gpu().clone();
        // SAFETY: as the caller promises; the block leaves each part the room that the batch says.
        unsafe {
            let (batch, dropped) = self.upload(rows)?;
            spec.launch(&gpu, &batch, OVERFLOW)?;
            spec.count_dropped(&gpu, &batch, rows.times.len(), dropped)
        }
    }

    /// Enqueues the upload of a batch. Returns the batch on the device, and the address of its count of dropped samples,
    /// which is 0.
    ///
    /// # Errors
    /// The device has too little memory, or the driver fails.
    ///
    /// # Safety
    /// The batch is neither written nor freed until the stream is synchronized, also after an error.
    unsafe fn upload(&mut self, rows: &Rows<'_>) -> Result<(Batch<'_>, DevicePtr<'_>), DeviceFault> {
        let mut batch = Batch {
            dtype: rows.values.dtype(),
            dim: rows.dim,
            times: DevicePtr::NULL,
            values: DevicePtr::NULL,
            targets: DevicePtr::NULL,
            out: DevicePtr::NULL,
            valid: DevicePtr::NULL,
            tiling: Tiling::Ragged {
                tiles: DevicePtr::NULL,
                count: 0,
            },
        };
        let regular = rows.regular();
        // The addresses are still null, which is aligned for the widest vector, as every part will be.
        let tile = batch.tile_targets(self.memory.gpu(), rows.targets.len());
        let count = regular.map_or_else(|| rows.tiles(tile).count(), |_| 0);
        let offsets = rows.offsets(count);
        self.memory.reserve(offsets.bytes)?;
        self.head.resize(COUNT + rows.targets.len())?;
        self.tiles.resize(count * size_of::<Tile>())?;
        if regular.is_none() {
            for (to, from) in self.tiles.as_mut_slice().iter_mut().zip(rows.tiles(tile)) {
                *to = from;
            }
        }
        self.out = offsets.out;
        let at = |offset: usize| self.memory.pointer().offset(offset);
        batch.times = at(offsets.times);
        batch.values = at(offsets.values);
        batch.targets = at(offsets.targets);
        batch.out = at(offsets.out);
        batch.valid = at(offsets.dropped + COUNT);
        batch.tiling = match regular {
            Some((samples, targets)) => Tiling::Regular {
                rows: rows.len(),
                samples,
                targets,
            },
            None => Tiling::Ragged {
                tiles: at(offsets.tiles),
                count,
            },
        };
        let [times, values, targets] = rows.inputs();
        // SAFETY: as the caller promises; the tiles are written again once the stream was synchronized.
        unsafe {
            self.memory.upload(offsets.times, times)?;
            self.memory.upload(offsets.values, values)?;
            self.memory.upload(offsets.targets, targets)?;
            self.memory.upload(offsets.tiles, self.tiles.bytes())?;
        }
        self.memory.clear(offsets.dropped, COUNT)?;
        Ok((batch, at(offsets.dropped)))
    }

    /// Copies the answer to the host, and waits for the copy. Returns the counts of the batch, with `rows` left at 0.
    ///
    /// # Errors
    /// The driver's error.
    pub(super) fn fetch(&mut self, values: &mut [u8], valid: &mut [u8]) -> Result<ResampleCounters, DeviceFault> {
        let dropped = self.out + values.len().next_multiple_of(ALIGNMENT);
        DeviceBuf::fetch_each([
            (&self.memory, dropped, self.head.bytes_mut()),
            (&self.memory, self.out, values),
        ])?;
        let (count, codes) = self.head.bytes().split_at(COUNT);
        let (invalid, dropped_overflow) = write_valid(codes, valid);
        Ok(ResampleCounters {
            rows: 0,
            targets: valid.len() as u64,
            invalid,
            dropped_nonfinite: bytemuck::pod_read_unaligned(count),
            dropped_overflow,
        })
    }
}

/// Turns the validity that the kernels wrote into 0 or 1. Returns the number of targets that are not valid, and the number
/// of these with a value that the type can't hold.
fn write_valid(codes: &[u8], valid: &mut [u8]) -> (u64, u64) {
    // Targets that are counted in one byte. The inner loop then has bytes alone, and vectorizes well.
    const BLOCK: usize = 255;
    let (mut invalid, mut overflows) = (0, 0);
    for (valid, codes) in valid.chunks_mut(BLOCK).zip(codes.chunks(BLOCK)) {
        let (mut are_valid, mut overflow) = (0u8, 0u8);
        for (valid, &codes) in valid.iter_mut().zip(codes) {
            *valid = u8::from(codes == 1);
            are_valid += *valid;
            overflow += u8::from(codes == OVERFLOW);
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
        let codes: Vec<u8> = (0..1000).map(|i| [1, 1, 0, OVERFLOW, 1, 1, 1][i % 7]).collect();
        let mut valid = vec![9; codes.len()];
        let counted = write_valid(&codes, &mut valid);
        let count = |what| codes.iter().filter(|&&codes| codes == what).count() as u64;
        assert_eq!(counted, (count(0) + count(OVERFLOW), count(OVERFLOW)));
        assert!(
            valid
                .iter()
                .zip(&codes)
                .all(|(&valid, &codes)| valid == u8::from(codes == 1))
        );
    }
}
