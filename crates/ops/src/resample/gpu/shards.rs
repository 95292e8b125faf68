use super::super::{ResampleConfig, ResampleCounters, Trajectories};
use super::GpuResampler;
use crate::ConfigError;
use robocache_device::gpu::{DeviceFault, Gpu};
use std::ops::Range;

/// Resamples each batch on several devices, each of which does some of its trajectories. The bytes are those of one.
pub struct ShardedResampler {
    shards: Vec<GpuResampler>,
}

impl ShardedResampler {
    /// A resampler of that configuration on each of the devices, each of which holds at most `max_bytes`.
    ///
    /// # Errors
    /// The key that is not allowed.
    pub fn new(config: &ResampleConfig, gpus: &[Gpu], max_bytes: Option<usize>) -> Result<Self, ConfigError> {
        let shards = gpus.iter().map(|gpu| GpuResampler::new(config, gpu, max_bytes));
        Ok(Self {
            shards: shards.collect::<Result<_, _>>()?,
        })
    }

    /// Bytes of device memory that it holds on all devices.
    pub fn bytes_in_use(&self) -> usize {
        self.shards.iter().map(GpuResampler::bytes_in_use).sum()
    }

    /// Does what [`GpuResampler::run`] does.
    ///
    /// # Errors
    /// The error of the first device that fails.
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
        let work = |row| rows.samples_of(row).len() + rows.targets_of(row).len();
        let shares = cut(rows.len(), self.shards.len(), work);
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

/// Cuts `items` items into consecutive ranges of about the same work, one for each of `shares`. The ranges cover all
/// items; those at the end may be empty. `work` is what an item costs, in any unit.
fn cut(items: usize, shares: usize, work: impl Fn(usize) -> usize) -> Vec<Range<usize>> {
    assert!(shares > 0, "one device at least");
    let total: usize = (0..items).map(&work).sum();
    let (mut start, mut end, mut done) = (0, 0, 0);
    (1..=shares)
        .map(|share| {
            start = end;
            while end < items && (share == shares || done < total * share / shares) {
                done += work(end);
                end += 1;
            }
            start..end
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_everything_in_order_with_about_the_same_work() {
        assert_eq!(cut(6, 2, |_| 5), [0..3, 3..6]);
        assert_eq!(cut(4, 3, |item| [90, 1, 1, 8][item]), [0..1, 1..1, 1..4]);
        assert_eq!(
            cut(3, 2, |item| [4, 4, 0][item]),
            [0..1, 1..3],
            "what costs nothing is not left out"
        );
        assert_eq!(cut(0, 2, |_| 1), [0..0, 0..0]);
        assert_eq!(cut(2, 1, |_| 0), vec![0..2; 1]);
        for items in 0..20 {
            for shares in 1..6 {
                let ranges = cut(items, shares, |item| item % 3);
                assert_eq!(ranges.len(), shares);
                let covered: Vec<usize> = ranges.into_iter().flatten().collect();
                assert_eq!(covered, Vec::from_iter(0..items));
            }
        }
    }
}
