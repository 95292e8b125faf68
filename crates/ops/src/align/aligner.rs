//! [`Aligner`], the core of `align` and `fuse`: takes sensor samples and returns the observations that are due. `samples.rs`
//! splits messages into samples, and `window.rs` computes the values of an observation.
//!
//! The CPU and the GPU give the same bits, so the choice between them changes no value. If a GPU fails, the samples that only
//! its memory held are lost.

use super::gpu::{DeviceSample, FuserError, GpuFuser};
use super::output::{Destination, Output};
use super::{AlignConfig, Masks, PushOutcome, SampleError, Target, Timeline};
use crate::{ConfigError, channel_groups};
use robocache_device::gpu::{Budget, DeviceFault, Gpu};
use robocache_device::{Backend, HostBuf, Outcome, Placement, Resident, Values};
use std::ops::Range;

/// Smallest size of a window's values, bytes, that `device: auto` ([`Placement`]) may compute on a device. For fewer bytes, the
/// CPU takes less time than a kernel launch.
const CPU_BYTES: usize = 1 << 17;

/// Aligns sensor streams on common timestamps: takes samples, returns each observation once it is due, and computes its
/// values and masks.
///
/// The CPU and the device compute the same bits. [`Placement`] `auto` sends each window to whichever of them computed windows
/// of its size faster. A sample that arrives in device memory stays there while that memory has room.
///
/// If the device runs out of memory, the CPU takes over for a while. If the device fails for good, the CPU takes over for the
/// rest of the run. If the configuration names that device, the aligner stops instead, and [`take_lost`](Self::take_lost)
/// returns the reason.
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
    /// Choice of the CPU or the device for each window, and the samples whose values only device memory holds.
    pub(super) resident: Resident<GpuFuser>,
    /// Device memory that the backend uses, and its limit.
    budget: Budget,
    pub(super) outputs: Vec<Output>,
    /// Destination of each output of the current window: host memory, device memory, or none if it is not computed.
    pub(super) destinations: Vec<Destination>,
    pub(super) masks: Masks,
    /// Reused buffer for the host copy of a sample that arrived in device memory.
    fetched: HostBuf,
    /// Newest row of the observations on each modality's input, if another aligning node sends them. `None` before
    /// the first observation.
    pub(super) newest_rows: Vec<Option<NewestRow>>,
}

/// Reason why the aligner dropped a sample. Later samples of the stream are accepted as usual.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The stamp, the length or a value of the sample is invalid.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// The copy of the sample from its device to the host failed.
    #[error(transparent)]
    Device(#[from] DeviceFault),
}

/// Values of a sample, in host or device memory, wherever they arrived.
#[derive(Clone, Copy)]
pub(super) enum Sample<'a> {
    Host(Values<'a>),
    Device(DeviceSample<'a>),
}

/// Stamp, ns, of the newest row of the observations on an input, and the epoch (number of clock jumps) of that observation.
#[derive(Clone, Copy)]
pub(super) struct NewestRow {
    pub stamp_ns: i64,
    pub epoch: i64,
}

impl Aligner {
    /// Creates an aligner for `fuse`: each window has one output, `[T, D]`, with the columns of all modalities side by side.
    ///
    /// # Errors
    /// Returns the invalid key of `config`, or the reason why the backend can't use `placement`.
    pub fn fused(config: &AlignConfig, placement: &Placement) -> Result<Self, ConfigError> {
        Self::with_outputs("fuse", config, placement, |modalities| {
            std::iter::once(0..modalities).collect()
        })
    }

    /// Creates an aligner for `align`: each window has one output, `[T, dim]`, for each modality. A configuration with attached
    /// messages is refused.
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

    /// Creates an aligner whose windows have one output for each range of modalities that `outputs` returns. `outputs` gets the
    /// number of modalities.
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

    /// Returns the timeline: the samples of each stream, their settings, and the next observation.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Returns the timeline, to open, close and configure streams, request observations, tick the timer, and read notices. Add
    /// samples with [`push`](Self::push) instead, which knows whether the host or the device holds the samples of a stream.
    pub fn timeline_mut(&mut self) -> &mut Timeline {
        &mut self.timeline
    }

    /// Closes the stream of a modality: observations stop waiting for its samples, until the next one arrives
    /// or until [`open`](Self::open).
    pub fn close(&mut self, modality: usize) {
        self.timeline_mut().close(modality);
    }

    /// Opens the stream of a modality that was closed: observations wait for its samples again, if it has `wait: true`.
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
    /// If `modality` is not the index of a modality.
    pub fn push(&mut self, modality: usize, stamp_ns: i64, sample: Values<'_>) -> Result<PushOutcome, PushError> {
        self.push_sample(modality, stamp_ns, Sample::Host(sample))
    }

    /// Adds a sample in device memory to its stream. The sample stays in device memory if the aligner computes there. On
    /// return, the caller may reuse the sample's memory. Call [`due`](Self::due) after each sample, until it returns `None`.
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

    /// Adds a sample to its stream: in device memory if the sample or the stream's earlier samples are there, otherwise in host
    /// memory. If the device fails, the sample goes to host memory.
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

    /// Returns the next observation that is due; `None` if none is. Call [`window`](Self::window) for it before the next call
    /// of `due`. Always `None` after a device that the configuration names has failed for good.
    pub fn due(&mut self) -> Option<Target> {
        match self.resident.is_lost() {
            true => None,
            false => self.timeline.due(),
        }
    }

    /// Returns, once, the fault of a device that the configuration names and that has failed for good. No observation is due
    /// any more. Otherwise returns `None`.
    pub fn take_lost(&mut self) -> Option<DeviceFault> {
        self.resident.take_lost()
    }

    /// Returns the device on which samples can stay without a copy to the host. `None` without a device, or while it is
    /// short of memory.
    pub fn input_gpu(&self) -> Option<&Gpu> {
        self.resident.input_gpu()
    }

    /// Returns the device on which outputs can stay, and the budget that counts their memory. `None` without a device, or while
    /// it is short of memory for outputs.
    pub fn output_gpu(&mut self) -> Option<(&Gpu, &Budget)> {
        let gpu = self.resident.output_gpu()?;
        Some((gpu, &self.budget))
    }

    /// Returns the size of the device memory that the aligner uses, bytes.
    pub fn device_bytes(&self) -> usize {
        self.budget.used()
    }
}
