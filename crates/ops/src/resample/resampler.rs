//! Operation `resample`: reads batches from messages, and resamples them on the CPU or on GPUs. The results have the same bits
//! on both.

use super::gpu::ShardedResampler;
use super::spec::Spec;
use super::{CpuResampler, ResampleConfig, ResampleCounters, Trajectories, TrajectoriesError};
use crate::ConfigError;
use robocache_device::gpu::{DeviceFault, Gpu};
use robocache_device::{Backend, Device, Placement, Work};
use robocache_stream::{Message, Payload};
use std::time::{Duration, Instant};

/// Smallest size, bytes of inputs and outputs, of a batch that [`Placement`] `auto` may send to a device. The CPU
/// finishes a smaller batch before a device could start.
const CPU_BYTES: usize = 1 << 16;

/// Resamples batches of trajectories at their targets, on the CPU or on devices.
///
/// The CPU and the devices compute the same bits. [`Placement`] `auto` sends each batch to whichever of them computed
/// batches of its size faster. If a device runs out of memory, the CPU takes over for a while. If a device fails for
/// good, the CPU takes over for the rest of the run, and [`take_lost`](Self::take_lost) tells the caller whether to
/// stop. Several devices share each batch.
///
/// After its largest batch, the resampler allocates no more memory on the host.
pub struct Resampler {
    spec: Spec,
    cpu: CpuResampler,
    /// Chooses between `cpu` and the devices for each batch.
    backend: Backend<ShardedResampler>,
}

/// A batch, and the output columns into which the CPU or the devices write its results.
struct BatchWork<'a> {
    batch: &'a Trajectories<'a>,
    values: &'a mut [u8],
    valid: &'a mut [u8],
}

impl Work for BatchWork<'_> {
    type Cpu = CpuResampler;
    type Gpu = ShardedResampler;
    type Done = ResampleCounters;
    type Fault = DeviceFault;

    fn on_cpu(&mut self, cpu: &mut CpuResampler) -> ResampleCounters {
        cpu.run(self.batch, self.values, self.valid)
    }

    fn on_gpu(&mut self, gpu: &mut ShardedResampler) -> Result<ResampleCounters, DeviceFault> {
        gpu.run(self.batch, self.values, self.valid)
    }
}

/// Report on a batch. The values themselves are in the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resampled {
    /// Counts of the samples and targets of the batch.
    pub counters: ResampleCounters,
    /// Device that computed the batch, or the CPU. If several devices shared the batch: the first one.
    pub device: Device,
    /// Time that [`Resampler::run`] took, from its start to its return.
    pub compute_time: Duration,
}

/// Reason why the resampler can't use a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The message is not a batch of trajectories.
    #[error(transparent)]
    Trajectories(#[from] TrajectoriesError),
    /// The width of the samples differs from the width of the configured groups, or the type of the samples can't
    /// represent the configured fill value.
    #[error(transparent)]
    Fill(#[from] ConfigError),
}

impl Resampler {
    /// Creates a resampler that computes as `config` says, on the CPU or on the devices of `placement`.
    ///
    /// # Errors
    /// Returns the invalid key of `config`, or the reason why the backend can't use `placement`.
    pub fn new(config: &ResampleConfig, placement: &Placement) -> Result<Self, ConfigError> {
        let spec = Spec::new(config)?;
        // The devices can't compute every configuration: the CPU computes the rest, whatever `placement` says.
        let on_cpu = spec
            .not_on_gpu()
            .map(|reason| placement.without_gpu("resample", &reason));
        let placement = on_cpu.as_ref().unwrap_or(placement);
        let on_gpu = |gpus: &[Gpu]| ShardedResampler::new(config, gpus, placement.max_bytes());
        Ok(Self {
            cpu: CpuResampler::from_spec(spec.clone()),
            spec,
            backend: Backend::new("resample", placement, CPU_BYTES, on_gpu)?,
        })
    }

    /// Reads a batch of trajectories from a message, and checks that it fits the configuration.
    ///
    /// # Errors
    /// Returns the reason why the message as a whole is unusable. A single bad row is not an error:
    /// [`Trajectories::refused`] lists it.
    pub fn read<'a>(&self, message: &'a Message) -> Result<Trajectories<'a>, BatchError> {
        let batch = Trajectories::from_message(message)?;
        self.spec.check(&batch)?;
        Ok(batch)
    }

    /// Resamples `batch` into `payload`: writes the columns of [`Trajectories::layout_into`] and their offsets.
    ///
    /// # Panics
    /// Panics if `payload` has a layout other than [`Trajectories::layout_into`] gives for `batch`.
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

    /// Computes values and validity where the backend chooses, or on the CPU if the devices fail.
    fn fill(&mut self, batch: &Trajectories<'_>, values: &mut [u8], valid: &mut [u8]) -> (ResampleCounters, Device) {
        let rows = batch.rows();
        let inputs = size_of_val(rows.times) + rows.values.bytes().len() + size_of_val(rows.targets);
        // Bytes read and written: the measure by which the backend compares batches.
        let work = inputs + batch.output_bytes();
        let start = Instant::now();
        let mut batch_work = BatchWork { batch, values, valid };
        let (counters, device) = self.backend.run(&mut batch_work, &mut self.cpu, work, false);
        // The backend learns from this time where to run the next batch of this size.
        self.backend.took(work, device, start.elapsed());
        (counters, device)
    }

    /// Returns the bytes of memory that the resampler holds on its devices, all devices added up.
    pub fn device_bytes(&mut self) -> usize {
        self.backend.on_gpu().map_or(0, |on_gpu| on_gpu.bytes_in_use())
    }

    /// Returns the fault that should end the run: the loss of a device that the configuration names. `None` if there
    /// was none, or on later calls. The CPU computes the batches in the meantime.
    pub fn take_lost(&mut self) -> Option<DeviceFault> {
        self.backend.take_lost()
    }
}
