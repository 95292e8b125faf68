//! Resampling on CUDA devices: equal to [`CpuResampler`](super::CpuResampler) bit for bit.

mod host;
mod launch;
mod parts;
mod shards;

pub use launch::DeviceBatch;
pub use shards::ShardedResampler;

use super::spec::Spec;
use super::trajectories::Rows;
use super::{ResampleConfig, ResampleCounters, Trajectories};
use crate::ConfigError;
use host::Block;
use robocache_device::gpu::{Budget, DeviceFault, Gpu};
use std::ops::Range;

/// Resamples batches of trajectories on one device. Once the resampler has seen its largest batch, it allocates
/// nothing.
pub struct GpuResampler {
    spec: Spec,
    gpu: Gpu,
    budget: Budget,
    /// A single block, until a large batch adds the others.
    blocks: Vec<Block>,
    /// The parts of the current batch, as ranges of rows.
    parts: Vec<Range<usize>>,
}

/// Number of blocks that take the parts of a large batch in turns, each with a stream of its own. While the answer of one
/// part is copied to the host, the next part is copied to the device.
const BLOCKS: usize = 2;

/// Size of a batch and its answer on a device, bytes, up to which the batch is not cut into parts.
const WHOLE_BYTES: usize = 8 << 20;

/// Approximate greatest size of a part of a larger batch, bytes. The batch is cut into two or more parts of about the
/// same size.
const PART_BYTES: usize = 16 << 20;

impl GpuResampler {
    /// Checks a configuration, and makes a resampler for it that holds at most `max_bytes` of the device's memory;
    /// `None`: no limit.
    ///
    /// # Errors
    /// The key whose value is not allowed, or the reason why GPUs can't resample with this configuration.
    pub fn new(config: &ResampleConfig, gpu: &Gpu, max_bytes: Option<usize>) -> Result<Self, ConfigError> {
        let budget = Budget::new(max_bytes);
        let spec = Spec::new(config)?;
        if let Some(reason) = spec.not_on_gpu() {
            return Err(ConfigError::new("device", reason));
        }
        Ok(Self {
            spec,
            blocks: vec![Block::new(gpu, &budget)],
            parts: Vec::new(),
            gpu: gpu.clone(),
            budget,
        })
    }

    /// The device that the resampler runs on.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Bytes of device memory that the resampler holds.
    pub fn bytes_in_use(&self) -> usize {
        self.budget.used()
    }

    /// Does what [`CpuResampler::run`](super::CpuResampler::run) does, with the same bytes and counters.
    ///
    /// # Errors
    /// A fault that [`is_memory`](DeviceFault::is_memory), if the batch and its answer do not fit; the driver's error.
    /// After an error the outputs are undefined.
    ///
    /// # Panics
    /// If `values` does not have [`Trajectories::output_bytes`] bytes, or `valid` not one byte for each target.
    pub fn run(
        &mut self,
        batch: &Trajectories<'_>,
        values: &mut [u8],
        valid: &mut [u8],
    ) -> Result<ResampleCounters, DeviceFault> {
        self.run_rows(&batch.rows(), values, valid)
    }

    /// Resamples some of the rows of a batch. `values` and `valid` are the outputs of these rows alone.
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
        // Memory that is not page-locked is copied by the calling thread, which then has no time for the copies back.
        let is_cut = rows.bytes() > WHOLE_BYTES && self.gpu.is_page_locked(rows.values.bytes());
        let parts = match is_cut {
            true => rows.bytes().div_ceil(PART_BYTES).max(2),
            false => 1,
        };
        self.parts.clear();
        self.parts.extend(rows.cut(parts).filter(|part| !part.is_empty()));
        // SAFETY: the streams are synchronized before this function returns, and until then nothing touches the batch.
        let done = unsafe { self.run_parts(rows, values, valid) };
        if done.is_err() {
            // A device may still read the batch. The first error is the one to report.
            for block in &self.blocks {
                let _ = block.gpu().synchronize();
            }
        }
        done
    }

    /// Resamples the parts of some rows. Each block takes one part after the other.
    ///
    /// # Safety
    /// The batch is neither written nor freed until the streams of the blocks are synchronized. After an error they may not
    /// be synchronized on return.
    unsafe fn run_parts(
        &mut self,
        rows: &Rows<'_>,
        mut values: &mut [u8],
        mut valid: &mut [u8],
    ) -> Result<ResampleCounters, DeviceFault> {
        let parts = self.parts.iter().map(|part| rows.range(part.clone()));
        let in_turn = BLOCKS.min(parts.len());
        while self.blocks.len() < in_turn {
            self.blocks.push(Block::new(&self.gpu.another()?, &self.budget));
        }
        let mut counters = ResampleCounters::default();
        let before = std::iter::repeat_n(None, in_turn).chain(parts.clone().map(Some));
        let parts = parts.map(Some).chain(std::iter::repeat_n(None, in_turn));
        for (turn, (part, before)) in parts.zip(before).enumerate() {
            let block = &mut self.blocks[turn % in_turn];
            if let Some(before) = before {
                let values = values.split_off_mut(..before.output_bytes()).unwrap_or_default();
                let valid = valid.split_off_mut(..before.targets.len()).unwrap_or_default();
                counters += block.fetch(values, valid)?;
            }
            if let Some(part) = part {
                // SAFETY: as the caller promises.
                unsafe { block.start(&self.spec, &part) }?;
            }
        }
        counters.rows = rows.len() as u64;
        Ok(counters)
    }

    /// Enqueues the resampling of a batch that is on the device. The answer stays on the device.
    ///
    /// Samples that are not finite are dropped, as in [`run`](Self::run), but not counted.
    ///
    /// # Errors
    /// [`DeviceFault::Slice`] if a slice has the wrong size or type, or is on another device. A fault that
    /// [`is_memory`](DeviceFault::is_memory) if a sample takes more than 16 MiB. The driver's error.
    ///
    /// # Safety
    /// The memory of the slices lives until the stream is synchronized; the times of each trajectory ascend.
    pub unsafe fn launch(&self, batch: &DeviceBatch<'_>) -> Result<(), DeviceFault> {
        let batch = batch.checked(&self.gpu)?;
        // SAFETY: the slices were checked; the rest is the caller's promise.
        unsafe { self.spec.launch(&self.gpu, &batch, 0) }
    }
}
