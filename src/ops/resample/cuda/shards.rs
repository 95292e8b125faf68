use super::super::{ResampleConfig, ResampleCounters, Trajectories};
use super::CudaResampler;
use crate::device::cuda::{CudaError, Gpu};
use crate::ops::ConfigError;
use std::ops::Range;

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
            let shares = shares(batch, self.shards.len());
            let results = std::thread::scope(|scope| {
                let mut running = Vec::with_capacity(shares.len());
                for (shard, rows) in self.shards.iter_mut().zip(shares) {
                    let targets = (batch.target_offsets[rows.end] - batch.target_offsets[rows.start]) as usize;
                    let (own_values, own_valid);
                    (own_values, values) = std::mem::take(&mut values).split_at_mut(targets * row_bytes);
                    (own_valid, valid) = std::mem::take(&mut valid).split_at_mut(targets);
                    running.push(scope.spawn(move || shard.run_rows(batch, rows, own_values, own_valid)));
                }
                let join = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
                    Ok(result) => result,
                    Err(panic) => std::panic::resume_unwind(panic),
                };
                running.into_iter().map(join).collect::<Vec<_>>()
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

/// Cuts the rows into one range for each device, with about as many samples and targets in each.
fn shares(batch: &Trajectories<'_>, devices: usize) -> Vec<Range<usize>> {
    assert!(devices > 0, "a device at least");
    if batch.rows() == 0 {
        return Vec::new();
    }
    let work = |row: usize| batch.time_offsets()[row] as usize + batch.target_offsets[row] as usize;
    let rows: Vec<usize> = (0..=batch.rows()).collect();
    let ends = (1..=devices).map(|share| {
        let until = work(batch.rows()) * share / devices;
        rows.partition_point(|&row| work(row) < until).min(batch.rows())
    });
    let mut start = 0;
    let mut shares: Vec<_> = ends
        .map(|end| {
            let rows = start..end.max(start);
            start = rows.end;
            rows
        })
        .collect();
    // Rows at the end without samples and targets.
    if let Some(last) = shares.last_mut() {
        last.end = batch.rows();
    }
    shares
}
