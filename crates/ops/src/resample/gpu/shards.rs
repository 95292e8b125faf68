//! Resampling on several devices. The answer has the same bytes as on one device, since trajectories are independent.

use super::super::{ResampleConfig, ResampleCounters, Trajectories};
use super::GpuResampler;
use crate::ConfigError;
use robocache_device::gpu::{DeviceFault, Gpu};

/// Resamples each batch on several devices, each of which does some of the trajectories. The answer has the same bytes as
/// on one device.
pub struct ShardedResampler {
    shards: Vec<GpuResampler>,
}

impl ShardedResampler {
    /// Checks a configuration, and makes a resampler for it on each device. Each holds at most `max_bytes` of its
    /// device's memory; `None`: no limit.
    ///
    /// # Errors
    /// The key whose value is not allowed, or the reason why GPUs can't resample with this configuration.
    pub fn new(config: &ResampleConfig, gpus: &[Gpu], max_bytes: Option<usize>) -> Result<Self, ConfigError> {
        let shards = gpus.iter().map(|gpu| GpuResampler::new(config, gpu, max_bytes));
        Ok(Self {
            shards: shards.collect::<Result<_, _>>()?,
        })
    }

    /// Bytes of device memory that the resampler holds, all devices added up.
    pub fn bytes_in_use(&self) -> usize {
        self.shards.iter().map(GpuResampler::bytes_in_use).sum()
    }

    /// Does what [`GpuResampler::run`] does, on all devices at once.
    ///
    /// # Errors
    /// The error of the first device, in their order, that fails. After an error the outputs are undefined.
    ///
    /// # Panics
    /// As [`GpuResampler::run`]; if there is no device.
    pub fn run(
        &mut self,
        batch: &Trajectories<'_>,
        mut values: &mut [u8],
        mut valid: &mut [u8],
    ) -> Result<ResampleCounters, DeviceFault> {
        if let [alone] = self.shards.as_mut_slice() {
            return alone.run(batch, values, valid);
        }
        let rows = batch.rows();
        let shares = rows.cut(self.shards.len());
        std::thread::scope(|scope| {
            let shards = self.shards.iter_mut().zip(shares);
            let threads: Vec<_> = shards
                .map(|(shard, share)| {
                    let rows = rows.range(share);
                    let own_values = values.split_off_mut(..rows.output_bytes()).unwrap_or_default();
                    let own_valid = valid.split_off_mut(..rows.targets.len()).unwrap_or_default();
                    scope.spawn(move || shard.run_rows(&rows, own_values, own_valid))
                })
                .collect();
            let mut counters = ResampleCounters::default();
            for thread in threads {
                counters += thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            Ok(counters)
        })
    }
}
