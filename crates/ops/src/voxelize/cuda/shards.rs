//! A batch over several devices.

use super::super::{Cloud, VoxelizeConfig};
use super::VoxelizeError;
use super::batch::{RowsOut, Slots, VoxelBatch, VoxelizeBatch};
use robocache_device::cuda::Gpu;
use robocache_device::cuda::share::{cut, run_each, split_off};

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
        // A cloud without points is a grid to be made, too.
        let shares = cut(clouds.len(), self.shards.len(), |cloud| clouds[cloud].len() + 1);
        let (mut counters, mut cells) = (out.counters.as_mut_slice(), out.cells.bytes_mut());
        let (mut unusable, mut saturated) = (out.unusable.as_mut_slice(), out.saturated.as_mut_slice());
        let works = self.shards.iter_mut().zip(shares).map(|((batch, rows), share)| {
            rows.clear();
            let slots = Slots {
                counters: split_off(&mut counters, share.len()),
                unusable: split_off(&mut unusable, share.len() * fields),
                saturated: split_off(&mut saturated, share.len()),
                cells: split_off(&mut cells, share.len() * bytes),
                rows,
            };
            (batch, &clouds[share], slots)
        });
        let made = run_each(works.collect(), |(batch, clouds, slots)| batch.run_into(clouds, slots));
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
