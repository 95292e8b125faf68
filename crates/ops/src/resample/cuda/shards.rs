use super::super::{ResampleConfig, ResampleCounters, Trajectories};
use super::CudaResampler;
use crate::ConfigError;
use robocache_device::cuda::share::{cut, run_each, split_off};
use robocache_device::cuda::{CudaError, Gpu};

/// Resamples each batch on several devices, each of which does some of its trajectories. The bytes are those of one.
pub struct ShardedResampler {
    shards: Vec<CudaResampler>,
}

impl ShardedResampler {
    /// A resampler of that configuration on each of the devices, each of which holds at most `max_bytes`.
    ///
    /// # Errors
    /// The key that is not allowed.
    pub fn new(config: &ResampleConfig, gpus: &[Gpu], max_bytes: Option<usize>) -> Result<Self, ConfigError> {
        let shards = gpus.iter().map(|gpu| CudaResampler::new(config, gpu, max_bytes));
        Ok(Self {
            shards: shards.collect::<Result<_, _>>()?,
        })
    }

    /// Bytes of device memory that it holds on all devices.
    pub fn bytes_in_use(&self) -> usize {
        self.shards.iter().map(CudaResampler::bytes_in_use).sum()
    }

    /// Does what [`CudaResampler::run`] does.
    ///
    /// # Errors
    /// That of the first device that fails.
    ///
    /// # Panics
    /// As [`CudaResampler::run`]; if there is no device.
    pub fn run(
        &mut self,
        batch: &Trajectories<'_>,
        mut values: &mut [u8],
        mut valid: &mut [u8],
    ) -> Result<ResampleCounters, CudaError> {
        let [alone] = self.shards.as_mut_slice() else {
            assert_eq!(
                values.len(),
                batch.output_bytes(),
                "one value for each target and channel"
            );
            assert_eq!(valid.len(), batch.targets(), "one byte for each target");
            let row_bytes = batch.dim() * batch.dtype().size();
            let work = |row| batch.row_samples(row).len() + batch.row_targets(row).len();
            let shares = cut(batch.rows(), self.shards.len(), work);
            let works = self.shards.iter_mut().zip(shares).map(|(shard, rows)| {
                let targets = (batch.target_offsets[rows.end] - batch.target_offsets[rows.start]) as usize;
                let own_values = split_off(&mut values, targets * row_bytes);
                (shard, rows, own_values, split_off(&mut valid, targets))
            });
            let results = run_each(works.collect(), |(shard, rows, values, valid)| {
                shard.run_rows(batch, rows, values, valid)
            });
            let mut counters = ResampleCounters::default();
            for result in results {
                counters += result?;
            }
            return Ok(counters);
        };
        alone.run(batch, values, valid)
    }
}
