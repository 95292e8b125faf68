use super::cuda::ShardedResampler;
use super::spec::Spec;
use super::{CpuResampler, ResampleConfig, ResampleCounters, Trajectories, TrajectoriesError};
use crate::ConfigError;
use robocache_device::cuda::{CudaError, Gpu};
use robocache_device::{Backend, Device, Placement};
use robocache_stream::{Message, Payload};
use std::time::{Duration, Instant};

/// With [`Placement`] `auto`, batches of fewer bytes always stay on the CPU, which is done before a device has started.
const CPU_BYTES: usize = 1 << 16;

/// Puts batches of trajectories on their targets, on the CPU or on devices.
///
/// Both backends give the same bits. With [`Placement`] `auto` each batch goes where batches of its size were quicker. A
/// device that runs out of memory is left alone for a while; one that fails for good is given up, and the CPU goes on.
/// Several devices share each batch.
///
/// Once it has seen its largest batch it allocates nothing on the CPU.
pub struct Resampler {
    spec: Spec,
    cpu: CpuResampler,
    backend: Backend<ShardedResampler>,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resampled {
    /// What was counted.
    pub counters: ResampleCounters,
    /// Where it was computed: the first device, where several shared it.
    pub device: Device,
    /// How long it took.
    pub compute_time: Duration,
}

/// A message that can't be resampled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// It is no batch of trajectories.
    #[error(transparent)]
    Trajectories(#[from] TrajectoriesError),
    /// Its samples are not as wide as the groups, or its type can't hold the fill value.
    #[error(transparent)]
    Fill(#[from] ConfigError),
}

impl Resampler {
    /// A resampler of that configuration, on the devices of `placement`.
    ///
    /// # Errors
    /// The key that is not allowed.
    pub fn new(config: &ResampleConfig, placement: &Placement) -> Result<Self, ConfigError> {
        let spec = Spec::new(config)?;
        let on_cpu = spec
            .not_on_cuda()
            .map(|reason| placement.without_cuda("resample", &reason));
        let placement = on_cpu.as_ref().unwrap_or(placement);
        let cuda = |gpus: &[Gpu]| ShardedResampler::new(config, gpus, placement.max_bytes());
        Ok(Self {
            cpu: CpuResampler::from_spec(spec.clone()),
            spec,
            backend: Backend::new("resample", placement, CPU_BYTES, cuda)?,
        })
    }

    /// Reads a batch of trajectories from a message.
    ///
    /// # Errors
    /// What is wrong with all of it. A row that makes no sense is one of the [`refused`](Trajectories::refused).
    pub fn read<'a>(&self, message: &'a Message) -> Result<Trajectories<'a>, BatchError> {
        let batch = Trajectories::from_message(message)?;
        self.spec.check(&batch)?;
        Ok(batch)
    }

    /// Writes the answer to a batch: the columns of [`Trajectories::layout_into`], with their offsets.
    ///
    /// # Panics
    /// If the payload has another layout.
    pub fn run(&mut self, batch: &Trajectories<'_>, payload: &mut Payload<'_>) -> Resampled {
        let start = Instant::now();
        let (value_offsets, valid_offsets) = payload.both_offsets();
        batch.offsets_into(value_offsets, valid_offsets);
        let (values, valid) = payload.columns();
        let (counters, device) = self.fill(batch, values, valid);
        Resampled {
            counters,
            device,
            compute_time: start.elapsed(),
        }
    }

    /// Writes values and validity on the backend that is quicker, or on the CPU where the devices fail.
    fn fill(&mut self, batch: &Trajectories<'_>, values: &mut [u8], valid: &mut [u8]) -> (ResampleCounters, Device) {
        let work = batch.input_bytes() + batch.output_bytes();
        let start = Instant::now();
        let mut done = None;
        if let Some(cuda) = self.backend.cuda(work, false) {
            match cuda.run(batch, values, valid) {
                Ok(counters) => done = Some((counters, self.backend.device())),
                Err(error) => self.backend.failed(work, error),
            }
        }
        let (counters, device) = done.unwrap_or_else(|| (self.cpu.run(batch, values, valid), Device::Cpu));
        self.backend.took(work, device, start.elapsed());
        (counters, device)
    }

    /// Bytes of memory that it holds on all its devices.
    pub fn device_bytes(&mut self) -> usize {
        self.backend.resident().map_or(0, |cuda| cuda.bytes_in_use())
    }

    /// Why it should not go on, once: a device that was asked for by name is lost. The CPU did the work meanwhile.
    pub fn take_lost(&mut self) -> Option<CudaError> {
        self.backend.take_lost()
    }
}
