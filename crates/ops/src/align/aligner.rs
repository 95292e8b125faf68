//! Core of `align` and `fuse`: takes samples and tells which observations are due. `samples.rs` takes samples from messages,
//! and `window.rs` computes the windows.
//!
//! The CPU and the device give the same bits, so the choice between them changes no value. If a device is lost, the samples
//! that only its memory held are missing.

use super::gpu::{DeviceSample, FuserError, GpuFuser};
use super::output::{Destination, Output};
use super::{AlignConfig, Masks, PushOutcome, SampleError, Target, Timeline};
use crate::{ConfigError, channel_groups};
use robocache_device::gpu::{Budget, DeviceFault, Gpu};
use robocache_device::{Backend, HostBuf, Outcome, Placement, Resident, Values};
use std::ops::Range;

/// Smallest size of a window, bytes, that [`Placement`] `auto` may send to a device. The CPU computes a smaller window in less
/// time than a device takes to launch a kernel.
const CPU_BYTES: usize = 1 << 17;

/// Aligns streams on common timestamps: takes samples, tells which observations are due, and computes their windows.
///
/// The CPU and the device compute the same bits. [`Placement`] `auto` sends each window to whichever of them computed windows
/// of its size faster. A sample that arrives on the device stays there while the device has room.
///
/// If the device runs out of memory, the CPU takes over for a while. If it fails for good, the CPU takes over for the rest of
/// the run. If the configuration names that device, the aligner stops instead, and [`take_lost`](Self::take_lost) gives the
/// reason.
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
/// let mut aligner = Aligner::fused(&config, &Placement::cpu("an example"))?;
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
    /// Rows (values of samples) that a device holds, and the choice between the CPU and the device for each window.
    pub(super) resident: Resident<GpuFuser>,
    /// Limit and count of the device memory that the backend uses.
    budget: Budget,
    pub(super) outputs: Vec<Output>,
    /// Memory in which each output of the current window is wanted: of the host, of the device, or none.
    pub(super) destinations: Vec<Destination>,
    pub(super) masks: Masks,
    /// Host copy of a sample that arrived on a device. The aligner reuses the buffer.
    fetched: HostBuf,
    /// Newest row of the observations that an aligning node upstream sends, for each modality; `None` if its input has brought no
    /// observation.
    pub(super) newest_rows: Vec<Option<NewestRow>>,
}

/// Reason why the aligner dropped a sample. Later samples of the stream are taken as usual.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The stamp, the length or a value of the sample is invalid.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// The copy of the sample from its device to the host failed.
    #[error(transparent)]
    Device(#[from] DeviceFault),
}

/// Values of a sample, in the memory in which they arrived.
#[derive(Clone, Copy)]
pub(super) enum Sample<'a> {
    Host(Values<'a>),
    Device(DeviceSample<'a>),
}

/// Stamp, ns, and epoch (number of clock jumps) of the newest row that was taken from the observations of an input.
#[derive(Clone, Copy)]
pub(super) struct NewestRow {
    pub stamp_ns: i64,
    pub epoch: i64,
}

impl Aligner {
    /// Creates an aligner for `fuse`: the only output of a window, `[T, D]`, holds all modalities side by side.
    ///
    /// # Errors
    /// Returns the invalid key of `config`, or the reason why the backend can't use `placement`.
    pub fn fused(config: &AlignConfig, placement: &Placement) -> Result<Self, ConfigError> {
        Self::with_outputs("fuse", config, placement, |modalities| {
            std::iter::once(0..modalities).collect()
        })
    }

    /// Creates an aligner for `align`: a window has one output, `[T, dim]`, for each modality and no attached messages.
    ///
    /// # Errors
    /// Returns the invalid key of `config`, or the reason why the backend can't use `placement`.
    pub fn aligned(config: &AlignConfig, placement: &Placement) -> Result<Self, ConfigError> {
        if !config.attach.is_empty() {
            return Err(ConfigError::new("attach", "align can't attach messages (fuse can)"));
        }
        Self::with_outputs("align", config, placement, |modalities| {
            (0..modalities).map(|modality| modality..modality + 1).collect()
        })
    }

    /// Creates an aligner whose windows have one output for each range of modalities that `outputs` returns.
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
        // A device can't compute every configuration: the CPU computes the rest, whatever `placement` says.
        let not_on_gpu = channel_groups::not_on_gpu((0..timeline.modalities()).flat_map(|i| timeline.groups(i)));
        let on_cpu = not_on_gpu.map(|reason| placement.without_gpu(operation, &reason));
        let placement = on_cpu.as_ref().unwrap_or(placement);
        // An aligner uses one device, even if `placement` has several.
        let on_gpu = |gpus: &[Gpu]| Ok::<_, ConfigError>(GpuFuser::new(&timeline, outputs.len(), &gpus[0], &budget));
        Ok(Self {
            resident: Resident::new(Backend::new(operation, placement, CPU_BYTES, on_gpu)?),
            destinations: Vec::with_capacity(outputs.len()),
            masks: Masks::default(),
            fetched: HostBuf::default(),
            newest_rows: vec![None; timeline.modalities()],
            outputs,
            budget,
            timeline,
        })
    }

    /// Returns the timeline: the streams, their configuration and their progress.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Returns the timeline, through which the caller opens, closes and configures streams, makes requests, passes on ticks of a
    /// timer, and takes notices. Samples must go through [`push`](Self::push) instead: it knows whether the host or the device
    /// holds the history of a stream.
    pub fn timeline_mut(&mut self) -> &mut Timeline {
        &mut self.timeline
    }

    /// Closes a modality: targets stop waiting for it until its next sample, or until [`open`](Self::open).
    pub fn close(&mut self, modality: usize) {
        self.timeline_mut().close(modality);
    }

    /// Opens a modality that was closed: targets wait for it again, if it has `wait: true`.
    pub fn open(&mut self, modality: usize) {
        self.timeline_mut().open(modality);
    }

    /// Returns the outputs of a window: one for all modalities (`fuse`), or one for each modality (`align`).
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// Adds a sample in host memory to its stream. Call [`due`](Self::due) after each sample, until it returns `None`.
    ///
    /// # Errors
    /// Returns [`PushError::Sample`] if the sample is invalid.
    ///
    /// # Panics
    /// Panics if there is no such modality.
    pub fn push(&mut self, modality: usize, stamp_ns: i64, sample: Values<'_>) -> Result<PushOutcome, PushError> {
        self.push_sample(modality, stamp_ns, Sample::Host(sample))
    }

    /// Adds a sample in device memory to its stream. The sample stays on its device if the aligner runs there. The
    /// caller may reuse the memory of the sample on return. Call [`due`](Self::due) after each sample, until it returns
    /// `None`.
    ///
    /// # Errors
    /// Returns [`PushError`] if the sample is invalid, or if its copy to the host fails.
    pub fn push_on_device(
        &mut self,
        modality: usize,
        stamp_ns: i64,
        sample: DeviceSample<'_>,
    ) -> Result<PushOutcome, PushError> {
        self.push_sample(modality, stamp_ns, Sample::Device(sample))
    }

    /// Adds a sample to its stream: on the device if the sample or its history is there, otherwise on the host. If the
    /// device fails, the host takes the sample.
    pub(super) fn push_sample(
        &mut self,
        modality: usize,
        stamp_ns: i64,
        sample: Sample<'_>,
    ) -> Result<PushOutcome, PushError> {
        // `Some` if the timeline has taken the sample already, but the device lost its values.
        let mut already_pushed = None;
        let mut taken = |result: Result<PushOutcome, FuserError>| match result {
            Ok(pushed) => Ok(Ok(pushed)),
            Err(FuserError::Sample(error)) => Ok(Err(error)),
            Err(FuserError::Gpu(fault)) => Err(fault),
            Err(FuserError::Lost { error, pushed }) => {
                already_pushed = Some(pushed);
                Err(error)
            }
        };
        let outcome = match sample {
            Sample::Device(sample) => self.resident.take_input(&mut self.timeline, |fuser, timeline| {
                taken(fuser.push(timeline, modality, stamp_ns, sample))
            }),
            Sample::Host(values) => self.resident.update(&mut self.timeline, |fuser, timeline| {
                taken(fuser.push_host(timeline, modality, stamp_ns, values))
            }),
        };
        match outcome {
            Outcome::Done(pushed) => return Ok(pushed?),
            Outcome::FellBack => {}
            Outcome::Reset => {
                let restored = already_pushed.as_ref().map(|_| modality);
                self.timeline.forget_rows_on_device(restored);
            }
        }
        let values = match sample {
            Sample::Host(values) => values,
            Sample::Device(sample) => sample.fetch(&mut self.fetched)?,
        };
        match already_pushed {
            None => Ok(self.timeline.push(modality, stamp_ns, values)?),
            Some(pushed) => {
                // A second `push` would take the sample twice: put back only its values.
                self.timeline.restore(modality, stamp_ns, values)?;
                Ok(pushed)
            }
        }
    }

    /// Returns the next observation that is due. Call [`window`](Self::window) for it before the next call of `due`.
    /// After the loss of a device that the configuration names, nothing is due.
    pub fn due(&mut self) -> Option<Target> {
        match self.resident.is_lost() {
            true => None,
            false => self.timeline.due(),
        }
    }

    /// Returns the device fault that ends the operation, once: the loss of a device that the configuration names. `None` if no such
    /// device is lost, or on later calls. No observation is due after the loss.
    pub fn take_lost(&mut self) -> Option<DeviceFault> {
        self.resident.take_lost()
    }

    /// Returns the device on which samples can stay without a copy to the host; `None` without a device, or while it is short of
    /// memory.
    pub fn input_gpu(&self) -> Option<&Gpu> {
        self.resident.input_gpu()
    }

    /// Returns the device that may keep an output, and the budget that counts the memory of that output. Returns `None`
    /// while the device is short of memory for outputs.
    pub fn output_gpu(&mut self) -> Option<(&Gpu, &Budget)> {
        let gpu = self.resident.output_gpu()?;
        Some((gpu, &self.budget))
    }

    /// Returns the bytes of device memory that the aligner holds.
    pub fn device_bytes(&self) -> usize {
        self.budget.used()
    }
}
