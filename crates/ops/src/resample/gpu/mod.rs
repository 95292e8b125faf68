//! Resampling on CUDA devices: equal to [`CpuResampler`](super::CpuResampler) bit for bit.

mod host;
mod launch;
mod shards;

pub use launch::DeviceBatch;
pub use shards::ShardedResampler;

use super::spec::Spec;
use super::trajectories::Rows;
use super::{ResampleConfig, ResampleCounters, Trajectories};
use crate::ConfigError;
use host::Block;
use launch::OVERFLOW;
use robocache_device::gpu::{Budget, DeviceFault, Gpu};

/// Resamples batches of trajectories on one device. Once it has seen its largest batch it allocates nothing.
pub struct GpuResampler {
    spec: Spec,
    gpu: Gpu,
    budget: Budget,
    block: Block,
}

impl GpuResampler {
    /// A resampler of that configuration, which holds at most `max_bytes` of the device's memory.
    ///
    /// # Errors
    /// The key that is not allowed, or what is not on GPUs.
    pub fn new(config: &ResampleConfig, gpu: &Gpu, max_bytes: Option<usize>) -> Result<Self, ConfigError> {
        let budget = Budget::new(max_bytes);
        let spec = Spec::new(config)?;
        if let Some(reason) = spec.not_on_gpu() {
            return Err(ConfigError::new("device", reason));
        }
        Ok(Self {
            spec,
            block: Block::new(gpu, &budget),
            gpu: gpu.clone(),
            budget,
        })
    }

    /// The device it runs on.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Bytes of device memory that it holds.
    pub fn bytes_in_use(&self) -> usize {
        self.budget.used()
    }

    /// Does what [`CpuResampler::run`](super::CpuResampler::run) does, with the same bytes and counters.
    ///
    /// # Errors
    /// One that [`is_memory`](DeviceFault::is_memory), if the batch and its answer do not fit; what the driver says. The
    /// outputs are then undefined.
    ///
    /// # Panics
    /// If `values` are not [`Trajectories::output_bytes`], or `valid` is not one byte for each target.
    pub fn run(
        &mut self,
        batch: &Trajectories<'_>,
        values: &mut [u8],
        valid: &mut [u8],
    ) -> Result<ResampleCounters, DeviceFault> {
        self.run_rows(&batch.rows(), values, valid)
    }

    /// Does some of the rows of a batch. The outputs are those of these rows.
    fn run_rows(
        &mut self,
        rows: &Rows<'_>,
        values: &mut [u8],
        valid: &mut [u8],
    ) -> Result<ResampleCounters, DeviceFault> {
        assert_eq!(
            values.len(),
            rows.output_bytes(),
            "one value for each target and channel"
        );
        assert_eq!(valid.len(), rows.targets.len(), "one byte for each target");
        // SAFETY: the stream is synchronized before this function returns, and until then nothing touches the batch.
        let launched = unsafe { self.launch_rows(rows) };
        match launched.and_then(|()| self.block.fetch(values, valid)) {
            Ok([dropped_nonfinite, invalid, dropped_overflow]) => Ok(ResampleCounters {
                rows: rows.len() as u64,
                targets: rows.targets.len() as u64,
                invalid,
                dropped_nonfinite,
                dropped_overflow,
            }),
            Err(error) => {
                // The device may still read the batch. The error that came first is the one to tell.
                let _ = self.gpu.synchronize();
                Err(error)
            }
        }
    }

    /// Enqueues the upload of some rows, and the work on them.
    ///
    /// # Safety
    /// The batch is neither written nor freed until the stream is synchronized, also after an error.
    unsafe fn launch_rows(&mut self, rows: &Rows<'_>) -> Result<(), DeviceFault> {
        // SAFETY: as the caller promises; the block leaves each part the room that the batch says.
        unsafe {
            let (batch, dropped) = self.block.upload(rows)?;
            self.spec.launch(&self.gpu, &batch, OVERFLOW)?;
            self.spec.count_dropped(&self.gpu, &batch, rows.times.len(), dropped)
        }
    }

    /// Enqueues the work on a batch that is on the device, if the answer stays.
    ///
    /// Samples that are not finite are dropped, as everywhere, but not counted.
    ///
    /// # Errors
    /// [`DeviceFault::Slice`] if a slice is not as large as the batch says, not of its type, or on another device; what the
    /// driver says; one that [`is_memory`](DeviceFault::is_memory) if a sample takes more than 16 MiB.
    ///
    /// # Safety
    /// The memory of the slices lives until the stream is synchronized; the times of each trajectory ascend.
    pub unsafe fn launch(&self, batch: &DeviceBatch<'_>) -> Result<(), DeviceFault> {
        let batch = batch.checked(&self.gpu)?;
        // SAFETY: the slices were checked; the rest is the caller's promise.
        unsafe { self.spec.launch(&self.gpu, &batch, 0) }
    }
}
