//! The operation: samples in, windows out, on the CPU or on a device.

use super::cuda::{CudaFuser, DeviceSample, FuserError};
use super::window::{Output, Wanted, Window};
use super::{AlignConfig, Masks, Notice, Pushed, Refusal, SampleError, Target, Timeline};
use crate::{ConfigError, channel_groups};
use robocache_device::cuda::{Budget, CudaError, Gpu};
use robocache_device::{Backend, Device, HostBuf, Placement, Values};
use std::ops::Range;
use std::time::Instant;

/// Smaller windows, in bytes, are always made on the CPU under `auto`: a launch alone takes a device longer.
const CPU_BYTES: usize = 1 << 17;

/// Streams on common timestamps: takes samples, says which observations are due, and makes their windows.
///
/// Both backends give the same bits. With [`Placement`] `auto` each window goes where windows of its size were quicker. A
/// device that runs out of memory is left alone for a while; one that fails for good is given up, and the CPU goes on.
/// Samples that come on a device stay there, as long as it has room for them.
///
/// ```
/// use robocache_device::{Placement, Values};
/// use robocache_ops::align::{AlignConfig, Aligner, ModalityConfig};
/// use robocache_time::Interpolation;
///
/// let stream = |input: &str, interpolation| ModalityConfig {
///     input: input.into(),
///     dim: 1,
///     interpolation: Some(interpolation),
///     ..ModalityConfig::default()
/// };
/// let config = AlignConfig {
///     rate_hz: 100.0,
///     modalities: vec![
///         stream("gripper", Interpolation::Previous),
///         stream("force", Interpolation::Linear),
///     ],
///     ..AlignConfig::default()
/// };
/// let mut aligner = Aligner::new(&config, &Placement::cpu("an example"))?;
///
/// const MS: i64 = 1_000_000;
/// let samples = [(0, 0, 5.0), (1, 4 * MS, 1.0), (0, 12 * MS, 6.0), (1, 14 * MS, 2.0)];
/// let mut observations = Vec::new();
/// for (modality, stamp_ns, value) in samples {
///     aligner.push(modality, stamp_ns, Values::from_f32(&[value]))?;
///     while let Some(target) = aligner.due() {
///         let mut values = [0f32; 2];
///         let mut window = aligner.window(target);
///         window.write(0, &mut values);
///         observations.push((target.time_ns / MS, values, window.masks().valid.clone()));
///     }
/// }
/// // At 10 ms: the gripper of 0 ms, and the force 0.6 of the way from 4 to 14 ms.
/// assert_eq!(observations, [(10, [5.0, 1.6], vec![1, 1])]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Aligner {
    pub(super) timeline: Timeline,
    pub(super) backend: Backend<CudaFuser>,
    /// What the backend holds of its device.
    budget: Budget,
    pub(super) outputs: Vec<Output>,
    /// Where each output of the present window is wanted.
    pub(super) wanted: Vec<Wanted>,
    pub(super) masks: Masks,
    /// A sample that came on a device and is wanted on the host.
    fetched: HostBuf,
    /// The newest row that was taken from each input which brings observations.
    pub(super) newest_rows: Vec<Option<super::samples::NewestRow>>,
}

/// Why a sample was not taken.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The sample can't be used. It is dropped, and the stream goes on.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// The sample could not be copied off the device that it came on. It is dropped, and the stream goes on.
    #[error(transparent)]
    Device(#[from] DeviceFailure),
}

/// What a device failed with.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct DeviceFailure(#[from] CudaError);

/// A sample where it lies.
#[derive(Clone, Copy)]
pub(super) enum Sample<'a> {
    Host(Values<'a>),
    Device(DeviceSample<'a>),
}

impl Aligner {
    /// Fuses: a window has all modalities side by side, `[T, D]`, as its only output.
    ///
    /// # Errors
    /// What the configuration has wrong, by its key.
    pub fn new(config: &AlignConfig, placement: &Placement) -> Result<Self, ConfigError> {
        Self::with_outputs("fuse", config, placement, |modalities| {
            std::iter::once(0..modalities).collect()
        })
    }

    /// Aligns: a window has an output for each modality, `[T, dim]`, and nothing is attached.
    ///
    /// # Errors
    /// What the configuration has wrong, by its key.
    pub fn split(config: &AlignConfig, placement: &Placement) -> Result<Self, ConfigError> {
        if !config.attach.is_empty() {
            return Err(ConfigError::new("attach", "align can't attach messages (fuse can)"));
        }
        Self::with_outputs("align", config, placement, |modalities| {
            (0..modalities).map(|modality| modality..modality + 1).collect()
        })
    }

    fn with_outputs(
        operation: &'static str,
        config: &AlignConfig,
        placement: &Placement,
        outputs: impl FnOnce(usize) -> Vec<Range<usize>>,
    ) -> Result<Self, ConfigError> {
        let timeline = Timeline::new(config)?;
        let budget = Budget::new(placement.max_bytes());
        let outputs = outputs(timeline.modalities()).into_iter();
        let outputs: Vec<Output> = outputs.map(|modalities| Output::new(&timeline, modalities)).collect();
        let not_on_cuda = channel_groups::not_on_cuda((0..timeline.modalities()).flat_map(|i| timeline.groups(i)));
        let on_cpu = not_on_cuda.map(|reason| placement.without_cuda(operation, &reason));
        let placement = on_cpu.as_ref().unwrap_or(placement);
        let cuda = |gpus: &[Gpu]| Ok::<_, ConfigError>(CudaFuser::new(&timeline, outputs.len(), &gpus[0], &budget));
        Ok(Self {
            backend: Backend::new(operation, placement, CPU_BYTES, cuda)?,
            wanted: Vec::with_capacity(outputs.len()),
            masks: Masks::default(),
            fetched: HostBuf::default(),
            newest_rows: vec![None; timeline.modalities()],
            outputs,
            budget,
            timeline,
        })
    }

    /// The streams: what they are, and where they stand.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// What a window is written to: one output for all modalities, or one for each.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// Adds a sample of the host to its stream. Ask what is [`due`](Self::due) after each one.
    ///
    /// # Errors
    /// [`PushError::Sample`].
    ///
    /// # Panics
    /// If there is no such modality.
    pub fn push(&mut self, modality: usize, stamp_ns: i64, sample: Values<'_>) -> Result<Pushed, PushError> {
        self.push_sample(modality, stamp_ns, Sample::Host(sample))
    }

    /// Adds a sample that is on a device to its stream, where it stays if this operation runs there. Its memory is not
    /// needed any more on return. Ask what is [`due`](Self::due) after each one.
    ///
    /// # Errors
    /// [`PushError`].
    pub fn push_on_device(
        &mut self,
        modality: usize,
        stamp_ns: i64,
        sample: DeviceSample<'_>,
    ) -> Result<Pushed, PushError> {
        self.push_sample(modality, stamp_ns, Sample::Device(sample))
    }

    /// Adds a sample on the device where it or its history is there, else, or where the device fails, on the host.
    pub(super) fn push_sample(
        &mut self,
        modality: usize,
        stamp_ns: i64,
        sample: Sample<'_>,
    ) -> Result<Pushed, PushError> {
        let timeline = &mut self.timeline;
        let tried = match sample {
            Sample::Device(sample) => {
                let cuda = self.backend.cuda_for_input();
                cuda.map(|cuda| cuda.push(timeline, modality, stamp_ns, sample))
            }
            Sample::Host(values) => {
                let cuda = self.backend.resident();
                cuda.map(|cuda| cuda.push_host(timeline, modality, stamp_ns, values))
            }
        };
        let arrived = match tried {
            None => None,
            Some(Ok(pushed)) => return Ok(pushed),
            Some(Err(FuserError::Sample(error))) => return Err(error.into()),
            Some(Err(FuserError::Cuda(error))) => {
                self.failed(0, error);
                None
            }
            Some(Err(FuserError::Lost { error, pushed })) => {
                self.failed(0, error);
                Some(pushed)
            }
        };
        let values = match sample {
            Sample::Host(values) => values,
            Sample::Device(sample) => sample.fetch(&mut self.fetched).map_err(DeviceFailure)?,
        };
        match arrived {
            None => Ok(self.timeline.push(modality, stamp_ns, values)?),
            Some(pushed) => {
                self.timeline.restore(modality, stamp_ns, values)?;
                Ok(pushed)
            }
        }
    }

    /// The next observation that is due, if one is. Its [`window`](Self::window) can be made until the next call.
    pub fn due(&mut self) -> Option<Target> {
        match self.backend.is_lost() {
            true => None,
            false => self.timeline.due(),
        }
    }

    /// Takes a request for an observation: [`Timeline::ask`].
    ///
    /// # Errors
    /// Why it is refused at once.
    ///
    /// # Panics
    /// If the trigger is another one.
    pub fn ask(&mut self, time_ns: Option<i64>) -> Result<u64, Refusal> {
        self.timeline.ask(time_ns)
    }

    /// The trigger's timer ticks: [`Timeline::tick`].
    pub fn tick(&mut self) {
        self.timeline.tick();
    }

    /// Takes the next request that waited and is refused.
    pub fn take_refused(&mut self) -> Option<(u64, Refusal)> {
        self.timeline.take_refused()
    }

    /// The window of a target that is due, every output of which is written to host memory.
    pub fn window(&mut self, target: Target) -> Window<'_> {
        self.window_for(target, |_| Wanted::OnHost)
    }

    /// The window of a target that is due, each output of which goes to where it is wanted.
    ///
    /// A device makes all outputs in one pass, here. The CPU makes each one when it is written.
    pub fn window_for(&mut self, target: Target, wanted: impl FnMut(usize) -> Wanted) -> Window<'_> {
        let start = Instant::now();
        self.wanted.clear();
        self.wanted.extend((0..self.outputs.len()).map(wanted));
        let wanted = || self.outputs.iter().zip(&self.wanted);
        let bytes = wanted().filter(|(_, wanted)| **wanted != Wanted::Nowhere);
        let work = bytes.map(|(output, _)| output.bytes()).sum();
        let stays = self.wanted.contains(&Wanted::OnDevice);
        let mut device = Device::Cpu;
        if work > 0 {
            // Only the device has the samples that came there.
            let cuda = match self.are_rows_elsewhere() {
                true => self.backend.resident(),
                false => self.backend.cuda(work, stays),
            };
            let made = cuda.map(|cuda| cuda.make(&self.timeline, &target, &self.outputs, &self.wanted));
            match made {
                None => {}
                Some(Ok(())) => device = self.backend.device(),
                Some(Err(error)) => self.failed(work, error),
            }
        }
        Window::new(self, target, device, work, start.elapsed())
    }

    fn are_rows_elsewhere(&self) -> bool {
        (0..self.timeline.modalities()).any(|modality| self.timeline.rows_are_elsewhere(modality))
    }

    /// The device failed on a window of `work` bytes, or with 0 on a sample. Brings back to the host what it alone has.
    /// Where that fails, too, those samples are lost and their streams begin anew.
    pub(super) fn failed(&mut self, work: usize, error: CudaError) {
        self.backend.failed(work, error);
        if let Some(cuda) = self.backend.resident()
            && let Err(error) = cuda.bring_back(&mut self.timeline)
        {
            self.backend.failed(work, error);
        }
        self.timeline.forget_elsewhere();
    }

    /// Closes a stream: no target waits for it until it has a sample again.
    pub fn close(&mut self, modality: usize) {
        self.timeline.close(modality);
    }

    /// Opens a stream: targets wait for it.
    pub fn open(&mut self, modality: usize) {
        self.timeline.open(modality);
    }

    /// Sets the latency of a stream. The samples in its history move with it; this is no clock jump.
    ///
    /// # Errors
    /// A latency that is none, as in a configuration.
    pub fn set_latency_ms(&mut self, modality: usize, ms: f64) -> Result<(), ConfigError> {
        self.timeline.set_latency_ms(modality, ms)
    }

    /// Sets for how long a target waits for a stream that is behind; `None`: for ever.
    ///
    /// # Errors
    /// A wait that is none, as in a configuration.
    pub fn set_max_wait_ms(&mut self, ms: Option<f64>) -> Result<(), ConfigError> {
        self.timeline.set_max_wait_ms(ms)
    }

    /// Drains what somebody should be told, in the order in which it happened.
    pub fn take_notices(&mut self) -> impl Iterator<Item = Notice> + '_ {
        self.timeline.take_notices()
    }

    /// Why the operation can't go on, once: a device that was asked for by name is lost. Nothing is due after that.
    pub fn take_lost(&mut self) -> Option<DeviceFailure> {
        self.backend.take_lost().map(DeviceFailure)
    }

    /// The device on which samples are taken where they lie: none while it is short of memory.
    pub fn input_gpu(&self) -> Option<&Gpu> {
        self.backend.input_gpu()
    }

    /// The device on which an output may stay, and the budget in which its memory counts: none while it is short of memory
    /// for that.
    pub fn output_gpu(&mut self) -> Option<(&Gpu, &Budget)> {
        self.backend.output_gpu().map(|gpu| (gpu, &self.budget))
    }

    /// Bytes of device memory that the operation holds.
    pub fn device_bytes(&self) -> usize {
        self.budget.used()
    }
}
