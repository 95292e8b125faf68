//! A batch over several devices.

use super::super::{Cloud, VoxelizeConfig};
use super::VoxelizeError;
use super::batch::{RowsOut, Slots, VoxelBatch, VoxelizeBatch};
use crate::device::cuda::Gpu;

/// Makes grids of many clouds on several CUDA devices: each takes its share of neighbouring clouds. The result is that
/// of one device.
pub struct VoxelizeShards {
    shards: Vec<(VoxelizeBatch, RowsOut)>,
}

impl VoxelizeShards {
    /// As [`VoxelizeBatch::new`] for each device.
    ///
    /// # Errors
    /// As [`VoxelizeBatch::new`].
    ///
    /// # Panics
    /// If there are no devices.
    pub fn new(config: &VoxelizeConfig, gpus: &[Gpu], max_bytes: Option<usize>) -> Result<Self, VoxelizeError> {
        assert!(!gpus.is_empty(), "at least one device");
        let shard = |gpu| Ok((VoxelizeBatch::new(config, gpu, max_bytes)?, RowsOut::default()));
        let shards = gpus.iter().map(shard).collect::<Result<_, VoxelizeError>>()?;
        Ok(Self { shards })
    }

    /// Bytes of device memory that are held, on all devices.
    pub fn used_bytes(&self) -> usize {
        self.shards.iter().map(|(batch, _)| batch.used_bytes()).sum()
    }

    /// Makes a grid of each cloud.
    ///
    /// # Errors
    /// As [`VoxelizeBatch::run`]; that of the first device that has one.
    pub fn run(&mut self, clouds: &[Cloud<'_>], out: &mut VoxelBatch) -> Result<(), VoxelizeError> {
        let (first, _) = &self.shards[0];
        let (bytes, fields) = (first.bytes_per_grid(), first.fields());
        out.begin(clouds.len(), first.fields());
        out.cells.resize(clouds.len() * bytes);
        let shares = shares(clouds, self.shards.len());
        let mut counters = out.counters.as_mut_slice();
        let (mut unusable, mut saturated) = (out.unusable.as_mut_slice(), out.saturated.as_mut_slice());
        let mut cells = out.cells.bytes_mut();
        let made: Vec<_> = std::thread::scope(|scope| {
            let mut threads = Vec::with_capacity(shares.len());
            for ((batch, rows), share) in self.shards.iter_mut().zip(shares) {
                rows.clear();
                let (own_counters, other_counters) = counters.split_at_mut(share.len());
                let (own_cells, other_cells) = cells.split_at_mut(share.len() * bytes);
                (counters, cells) = (other_counters, other_cells);
                let (own_unusable, others) = unusable.split_at_mut(share.len() * fields);
                unusable = others;
                let (own_saturated, others) = saturated.split_at_mut(share.len());
                saturated = others;
                let slots = Slots {
                    counters: own_counters,
                    unusable: own_unusable,
                    saturated: own_saturated,
                    cells: own_cells,
                    rows,
                };
                threads.push(scope.spawn(move || batch.run_into(share, slots)));
            }
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
                Ok(made) => made,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            threads.into_iter().map(join).collect()
        });
        made.into_iter().collect::<Result<(), _>>()?;
        out.rows.clear();
        out.rows.push(0);
        out.coords.clear();
        out.features.clear();
        for (_, part) in &self.shards {
            let before = out.coords.len() / 3;
            out.rows.extend(part.rows.iter().skip(1).map(|row| before + row));
            out.coords.extend_from_slice(&part.coords);
            out.features.extend_from_slice(&part.features);
        }
        Ok(())
    }
}

/// Divides clouds among so many devices, so that each has about as many points.
fn shares<'a, 'c>(clouds: &'a [Cloud<'c>], devices: usize) -> Vec<&'a [Cloud<'c>]> {
    let mut left = clouds;
    let mut points: usize = clouds.iter().map(Cloud::len).sum();
    let mut shares = Vec::with_capacity(devices);
    for devices in (1..=devices).rev() {
        let goal = points.div_ceil(devices);
        let mut taken = 0;
        // Each device takes a cloud at least, and the last one what is left, clouds without points among it.
        let is_full = |(i, cloud): (usize, &Cloud<'_>)| {
            taken += cloud.len();
            devices > 1 && i > 0 && taken > goal
        };
        let count = left.iter().enumerate().position(is_full).unwrap_or(left.len());
        let (share, rest) = left.split_at(count);
        points -= share.iter().map(Cloud::len).sum::<usize>();
        shares.push(share);
        left = rest;
    }
    shares
}
