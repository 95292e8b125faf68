//! What align and fuse are: samples of messages into histories, and outputs of some of the modalities where an
//! observation is due. Fuse has one output of all modalities, align one of each.

use super::number_or_null;
use super::watch::Watch;
use crate::app::{Change, Fault, Operation, Outbox, Value, Wake};
use crate::device::cuda::{Budget, CudaError, Gpu};
use crate::device::{Backend, Device, Dtype, HostBuf, Placement, Values};
use crate::ops::ConfigError;
use crate::ops::align::cuda::{CudaFuser, DeviceSample, PushError};
use crate::ops::align::{AlignConfig, Masks, Pushed, Target, Timeline, cpu};
use crate::stream::{Header, Layout, Message, Payload};
use half::{bf16, f16};
use std::ops::Range;
use std::time::Instant;

/// Why a message holds no samples.
#[derive(Debug, thiserror::Error)]
enum SamplesError {
    #[error("the payload is a struct (allowed: a flat array of samples of {dim} values)")]
    Struct { dim: usize },
    #[error("{stamps} `timestamps_ns` with {values} values (allowed: {dim} values for each)")]
    Stamps { stamps: usize, values: usize, dim: usize },
    #[error(
        "`shape` {shape:?} is not that of {samples} samples of {dim} values (allowed: [{dim}], or [{samples}, {dim}])"
    )]
    Shape {
        shape: Vec<i64>,
        samples: usize,
        dim: usize,
    },
}

/// The operation of the sections `align:` and `fuse:`.
pub(super) struct Observe {
    windows: Windows,
    outputs: Vec<Output>,
    watch: Watch,
    /// The newest row that was taken from each input which brings observations.
    taken: Vec<Option<Taken>>,
    /// Where to go on, when not all that was due has been published yet.
    left: Option<Left>,
}

/// What is left of a message: the rows from the first on.
#[derive(Clone, Copy, Default)]
struct Left {
    input: usize,
    row: usize,
    /// The stamps before and at which its rows were taken already.
    taken_until: Option<i64>,
}

/// Observations that are published before those who take them in this process get to see them.
const AT_ONCE: usize = 256;

/// The newest row that was taken from the observations of an input.
#[derive(Clone, Copy)]
struct Taken {
    stamp_ns: i64,
    epoch: i64,
}

/// Observations that go back by more, or go back in a new epoch, are of a clock that was set back, ns.
const OBSERVATIONS_RESET: i64 = 1_000_000_000;

/// The windows of the streams, on either device.
struct Windows {
    aligner: Timeline,
    backend: Backend<CudaFuser>,
    /// What the backend holds of its device.
    budget: Budget,
    masks: Masks,
    /// A sample that comes on the device, and is wanted on the host.
    sample: HostBuf,
    /// The streams whose samples a lost device had, and how many, which nobody has been told yet.
    lost: Vec<(usize, usize)>,
}

/// Windows of fewer bytes are always made on the CPU, where they take less time than a launch on a device.
const CPU_BYTES: usize = 1 << 17;

/// An output of some of the modalities side by side.
struct Output {
    modalities: Range<usize>,
    names: Vec<String>,
    /// The i-th of the modalities is columns `offsets[i]..offsets[i + 1]`.
    offsets: Vec<i64>,
    layout: Layout,
    /// The frame of the stream, where the output is that of one stream.
    frame_id: Option<String>,
}

impl Observe {
    /// One output of all modalities.
    pub fn fused(name: &str, config: &AlignConfig, placement: &Placement) -> Result<Self, ConfigError> {
        Self::new(("fuse", name), config, placement, |modalities| {
            std::iter::once(0..modalities).collect()
        })
    }

    /// One output of each modality.
    pub fn aligned(name: &str, config: &AlignConfig, placement: &Placement) -> Result<Self, ConfigError> {
        let mut observe = Self::new(("align", name), config, placement, |modalities| {
            (0..modalities).map(|i| i..i + 1).collect()
        })?;
        for output in &mut observe.outputs {
            output.frame_id = Some(String::new());
        }
        Ok(observe)
    }

    fn new(
        (section, name): (&'static str, &str),
        config: &AlignConfig,
        placement: &Placement,
        outputs: impl FnOnce(usize) -> Vec<Range<usize>>,
    ) -> Result<Self, ConfigError> {
        let aligner = Timeline::new(config)?;
        let budget = Budget::new(placement.max_bytes());
        let cuda = |gpus: &[Gpu]| Ok::<_, ConfigError>(CudaFuser::new(&aligner, &gpus[0], &budget));
        let backend = Backend::new(section, placement, CPU_BYTES, cuda)?;
        let outputs = outputs(aligner.modalities()).into_iter();
        Ok(Self {
            watch: Watch::new(name, aligner.inputs(), aligner.period_ns()),
            taken: vec![None; aligner.modalities()],
            left: None,
            outputs: outputs.map(|modalities| Output::new(&aligner, modalities)).collect(),
            windows: Windows {
                aligner,
                backend,
                budget,
                masks: Masks::default(),
                sample: HostBuf::default(),
                lost: Vec::new(),
            },
        })
    }

    /// The inputs, in the order of the modalities.
    pub fn inputs(&self) -> Vec<String> {
        self.windows.aligner.inputs().map(str::to_owned).collect()
    }

    /// Publishes what is due, a number of observations at most, and says whether that was all.
    fn publish_due(&mut self, out: &mut Outbox<'_>) -> bool {
        let mut published = 0;
        while published < AT_ONCE
            && !self.windows.backend.is_lost()
            && let Some(target) = self.windows.aligner.due()
        {
            published += 1;
            self.watch.observation();
            for (i, output) in self.outputs.iter().enumerate() {
                self.windows.masks.overflows.clear();
                let sent = output.send_on_device(i, &mut self.windows, &target, out);
                if !sent {
                    out.send(i, &output.layout, |payload, header| {
                        output.observe(&mut self.windows, &target, payload, header);
                    });
                }
                output.count_overflows(&self.windows, out);
            }
        }
        for (input, samples) in self.windows.lost.drain(..) {
            out.fault(
                input,
                format_args!("{samples} samples are lost with the device that had them"),
            );
        }
        if let Some(error) = self.windows.backend.take_lost() {
            out.end(error);
        }
        for notice in self.windows.aligner.take_notices() {
            self.watch.notice(notice, out);
        }
        published < AT_ONCE
    }

    /// The stamps before and at which the rows of a message were taken already: those of an observation that the one
    /// before it held, too, as a window repeats all rows but the newest.
    fn taken_until(&mut self, input: usize, message: &Message) -> Option<i64> {
        let header = &message.header;
        if header.modalities.is_empty() {
            return None;
        }
        let newest = header.timestamps_ns.last().copied().unwrap_or(*header.timestamp_ns);
        let before = self.taken[input].filter(|taken| {
            let back = taken.stamp_ns.saturating_sub(newest);
            back <= 0 || (back <= OBSERVATIONS_RESET && taken.epoch == *header.epoch)
        });
        let until = before.map(|taken| taken.stamp_ns);
        self.taken[input] = Some(Taken {
            stamp_ns: until.map_or(newest, |until| until.max(newest)),
            epoch: *header.epoch,
        });
        until
    }
}

impl Observe {
    /// Takes the samples of a message, and publishes what each makes due.
    fn take(&mut self, input: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), SamplesError> {
        if let Some(frame_id) = self.outputs.get_mut(input).and_then(|output| output.frame_id.as_mut()) {
            frame_id.clone_from(&message.header.frame_id);
        }
        let samples = self.samples(input, message)?;
        let taken_until = self.taken_until(input, message);
        let all = Left {
            input,
            row: 0,
            taken_until,
        };
        self.take_rows(all, samples, message, out);
        Ok(())
    }

    /// The stamps of the samples of a message, and how many values they have together.
    fn samples<'a>(&self, input: usize, message: &'a Message) -> Result<(&'a [i64], usize), SamplesError> {
        let dim = self.windows.aligner.dim(input);
        let len = match (message.on_device(), message.flat()) {
            (Some(tensor), _) => tensor.len,
            (None, Some(values)) => values.len(),
            (None, None) => return Err(SamplesError::Struct { dim }),
        };
        let stamps = match message.header.timestamps_ns.as_slice() {
            [] => std::slice::from_ref(&*message.header.timestamp_ns),
            several if len == several.len() * dim => several,
            several => {
                return Err(SamplesError::Stamps {
                    stamps: several.len(),
                    values: len,
                    dim,
                });
            }
        };
        check_shape(message, stamps.len(), dim)?;
        Ok((stamps, len))
    }

    /// Takes what is left of a message, until more is due than is published at once.
    fn take_rows(&mut self, left: Left, (stamps, len): (&[i64], usize), message: &Message, out: &mut Outbox<'_>) {
        let Left { input, taken_until, .. } = left;
        let dim = self.windows.aligner.dim(input);
        let valid = message.header.valid.as_slice();
        let parts = valid.len() / stamps.len();
        for (row, &stamp) in stamps.iter().enumerate().skip(left.row) {
            // A row that an aligning node upstream says nothing of is no sample, nor is one that came before.
            let is_masked = valid[row * parts..(row + 1) * parts].contains(&0);
            if is_masked || taken_until.is_some_and(|until| stamp <= until) {
                continue;
            }
            let of_message = if stamps.len() == 1 {
                0..len
            } else {
                row * dim..(row + 1) * dim
            };
            match self.windows.push(input, stamp, message, of_message) {
                Ok(pushed) => {
                    self.watch.sample(input, stamp, &self.windows.aligner, out);
                    self.report(input, pushed, out);
                }
                Err(error) => {
                    self.watch.refused(input);
                    out.fault(input, error);
                }
            }
            if !self.publish_due(out) {
                self.left = Some(Left { row: row + 1, ..left });
                return;
            }
        }
    }

    /// Says what the arrival of a sample did besides taking its place.
    fn report(&self, input: usize, pushed: Pushed, out: &mut Outbox<'_>) {
        if let Some(jump) = pushed.jumped_ns {
            let seconds = jump as f64 * 1e-9;
            // Two kinds, so that a stamp that goes there and back is said twice.
            let kind = if jump < 0 {
                "clock jumps back"
            } else {
                "clock jumps ahead"
            };
            out.warn(
                input,
                kind,
                format_args!("the clock jumped by {seconds} s: the grid starts anew"),
            );
        }
        if pushed.late {
            let late = self.windows.aligner.late_samples(input);
            out.warn_seldom(
                input,
                "late samples",
                format_args!("a sample came after its target was sent, {late} of this stream so far"),
            );
        }
        if pushed.overflowed {
            out.warn_seldom(
                input,
                "samples dropped",
                "too much waits for another stream: the oldest sample was dropped",
            );
        }
    }
}

/// A shape says how many samples there are, and how many values each has.
fn check_shape(message: &Message, samples: usize, dim: usize) -> Result<(), SamplesError> {
    let shape = message.header.shape.as_slice();
    // The bits of a voxel grid are eight cells to a byte.
    let is_bits = message.header.grid_shape.is_present();
    let fits_dim = |shape: &[i64]| {
        let values = shape
            .iter()
            .try_fold(1usize, |product, &n| product.checked_mul(n as usize));
        values.is_some_and(|values| values == dim || is_bits && values.div_ceil(8) == dim)
    };
    let fits = match shape {
        [] => true,
        [first, rest @ ..] if !rest.is_empty() && *first as usize == samples && fits_dim(rest) => true,
        all => samples == 1 && fits_dim(all),
    };
    match fits {
        true => Ok(()),
        false => Err(SamplesError::Shape {
            shape: shape.to_vec(),
            samples,
            dim,
        }),
    }
}

impl Operation for Observe {
    fn input(&mut self, input: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        let taken = self.take(input, message, out);
        if taken.is_err() {
            self.watch.refused(input);
        }
        Ok(taken?)
    }

    fn wake(&mut self, now: Instant, _: &mut Outbox<'_>) -> Result<Wake, Fault> {
        Ok(Wake::At(self.watch.check(now, &self.windows.aligner)))
    }

    fn device_of_input(&self, _: usize) -> Option<usize> {
        self.windows.backend.input_gpu().map(Gpu::ordinal)
    }

    fn changed(&mut self, input: usize, to: Change, out: &mut Outbox<'_>) {
        match to {
            Change::Closed => self.windows.aligner.close(input),
            Change::Opened => self.windows.aligner.open(input),
        }
        if !self.publish_due(out) {
            self.left = Some(Left::default());
        }
    }

    fn has_more(&self) -> bool {
        self.left.is_some()
    }

    fn go_on(&mut self, message: Option<&Message>, out: &mut Outbox<'_>) -> Result<(), Fault> {
        let Some(left) = self.left.take() else { return Ok(()) };
        if !self.publish_due(out) {
            self.left = Some(left);
        } else if let Some(message) = message {
            let samples = self.samples(left.input, message)?;
            self.take_rows(left, samples, message, out);
        }
        Ok(())
    }

    /// Sets `max_wait_ms` or `<input>.latency_ms`, with or without `modalities.` before it.
    fn parameter(&mut self, key: &str, value: &Value) -> Result<bool, Fault> {
        let key = key.strip_prefix("modalities.").unwrap_or(key);
        if key == "max_wait_ms" {
            self.windows.aligner.set_max_wait_ms(number_or_null(value)?)?;
            return Ok(true);
        }
        let Some((input, "latency_ms")) = key.rsplit_once('.') else {
            return Ok(false);
        };
        let Some(modality) = self.windows.aligner.inputs().position(|name| name == input) else {
            return Ok(false);
        };
        self.windows
            .aligner
            .set_latency_ms(modality, value.as_f64().ok_or("it must be a number")?)?;
        Ok(true)
    }
}

impl Windows {
    /// Puts a sample, which is so many elements of a message, into its history: on the device where it or the history is
    /// there, and on the host after all where the device fails.
    fn push(
        &mut self,
        input: usize,
        stamp: i64,
        message: &Message,
        elements: Range<usize>,
    ) -> Result<Pushed, PushError> {
        let tried = match message.on_device() {
            Some(tensor) => self.backend.cuda_for_input().map(|cuda| {
                let sample = DeviceSample {
                    memory: &tensor.memory,
                    at: elements.start * tensor.dtype.size(),
                    dtype: tensor.dtype,
                    len: elements.len(),
                };
                cuda.push(&mut self.aligner, input, stamp, sample)
            }),
            None => self.backend.resident().map(|cuda| {
                let sample = on_host(&mut self.sample, message, &elements)?;
                cuda.push_host(&mut self.aligner, input, stamp, sample)
            }),
        };
        let pushed = match tried {
            None => None,
            Some(Err(PushError::Cuda(error))) => {
                self.failed(0, error);
                None
            }
            Some(Err(PushError::Unplaced { error, pushed })) => {
                self.failed(0, error);
                Some(pushed)
            }
            Some(done) => return done,
        };
        let sample = on_host(&mut self.sample, message, &elements)?;
        match pushed {
            None => Ok(self.aligner.push(input, stamp, sample)?),
            Some(pushed) => {
                self.aligner.restore(input, stamp, sample)?;
                Ok(pushed)
            }
        }
    }

    /// The device failed on a window of so many bytes, or on a sample. What it alone has comes back to the host; where it
    /// does not, it is lost, and those streams begin anew.
    fn failed(&mut self, work: usize, error: CudaError) {
        self.backend.failed(work, error);
        if let Some(cuda) = self.backend.resident()
            && let Err(error) = cuda.bring_back(&mut self.aligner)
        {
            self.backend.failed(work, error);
        }
        self.lost.extend(self.aligner.elsewhere());
        self.aligner.forget_elsewhere();
    }

    fn are_rows_elsewhere(&self) -> bool {
        (0..self.aligner.modalities()).any(|modality| self.aligner.rows_are_elsewhere(modality))
    }

    /// Whether windows of so many bytes are to be made on the device, where they may stay: also where it has samples that
    /// nobody else has.
    fn are_on_device(&mut self, work: usize, stays: bool) -> bool {
        let cuda = match self.are_rows_elsewhere() {
            true => self.backend.resident(),
            false => self.backend.cuda(work, stays),
        };
        cuda.is_some()
    }

    /// Writes the window of some of the modalities, and its masks, on the device that is quicker, and says which it was.
    fn write(&mut self, target: &Target, modalities: Range<usize>, payload: &mut Payload<'_>) -> Device {
        let work = payload.column::<u8>(0).len();
        let start = Instant::now();
        let mut device = Device::Cpu;
        if self.are_on_device(work, false)
            && let Some(cuda) = self.backend.resident()
        {
            let out = payload.column(0);
            match cuda.window(&self.aligner, target, modalities.clone(), out, &mut self.masks) {
                Ok(()) => device = self.backend.device(),
                Err(error) => self.failed(work, error),
            }
        }
        if device == Device::Cpu {
            let Self { aligner, masks, .. } = self;
            match aligner.dtype() {
                Dtype::Float16 => cpu::window::<f16>(aligner, target, modalities, payload.column(0), masks),
                Dtype::BFloat16 => cpu::window::<bf16>(aligner, target, modalities, payload.column(0), masks),
                _ => cpu::window::<f32>(aligner, target, modalities, payload.column(0), masks),
            }
        }
        self.backend.took(work, device, start.elapsed());
        device
    }
}

/// The values of a sample, which is so many elements of a message, on the host.
fn on_host<'a>(
    memory: &'a mut HostBuf,
    message: &'a Message,
    elements: &Range<usize>,
) -> Result<Values<'a>, CudaError> {
    let Some(tensor) = message.on_device() else {
        let values = message.flat().unwrap_or(Values::from_f32(&[]));
        return Ok(values.slice(elements.start, elements.end));
    };
    let size = tensor.dtype.size();
    memory.resize(elements.len() * size);
    tensor.memory.fetch(elements.start * size, memory.bytes_mut())?;
    Ok(Values::new(tensor.dtype, memory.bytes()))
}

impl Output {
    fn new(aligner: &Timeline, modalities: Range<usize>) -> Self {
        let mut offsets = vec![0];
        let mut columns = 0;
        for modality in modalities.clone() {
            columns += aligner.dim(modality);
            offsets.push(columns as i64);
        }
        let names = aligner.inputs().skip(modalities.start).take(modalities.len());
        Self {
            names: names.map(str::to_owned).collect(),
            offsets,
            layout: Layout::flat(aligner.dtype(), aligner.window() * columns),
            frame_id: None,
            modalities,
        }
    }

    /// Publishes an observation that stays on its device, where those that take it want it there. Says whether it did.
    fn send_on_device(&self, output: usize, windows: &mut Windows, target: &Target, out: &mut Outbox<'_>) -> bool {
        let work = self.bytes();
        let Some(gpu) = windows.backend.output_gpu().cloned() else {
            return false;
        };
        if !out.is_wanted_on_device(output, &gpu) || !windows.are_on_device(work, true) {
            return false;
        }
        let dtype = windows.aligner.dtype();
        let budget = windows.budget.clone();
        let sent = out.send_on_device(output, (dtype, self.layout.rows), (&gpu, &budget), |memory, header| {
            let start = Instant::now();
            let Windows {
                aligner,
                backend,
                masks,
                ..
            } = windows;
            if let Some(cuda) = backend.resident() {
                cuda.window_on_device(aligner, target, self.modalities.clone(), memory, masks)?;
            }
            self.describe(windows, target, windows.backend.device(), start, header);
            Ok(())
        });
        if let Err(error) = sent {
            windows.failed(work, error);
            return false;
        }
        true
    }

    /// Says of which inputs there were values that the published type can't hold.
    fn count_overflows(&self, windows: &Windows, out: &mut Outbox<'_>) {
        let dtype = windows.aligner.dtype();
        let counted = self.modalities.clone().zip(&windows.masks.overflows);
        for (input, rows) in counted.filter(|&(_, &rows)| rows > 0) {
            let largest = dtype.largest();
            out.fault(
                input,
                format_args!("{rows} rows of a window are past what {dtype} holds ({largest:e}): they are not valid"),
            );
        }
    }

    fn bytes(&self) -> usize {
        self.layout
            .columns
            .iter()
            .map(|column| column.len(self.layout.rows) * column.dtype.size())
            .sum()
    }

    /// Writes an observation into a payload of the aligner's element type, times it, and writes its header.
    fn observe(&self, windows: &mut Windows, target: &Target, payload: &mut Payload<'_>, header: &mut Header) {
        let start = Instant::now();
        let device = windows.write(target, self.modalities.clone(), payload);
        self.describe(windows, target, device, start, header);
    }

    /// Writes the header of an observation that was begun at `start` and is done.
    fn describe(&self, windows: &Windows, target: &Target, device: Device, start: Instant, header: &mut Header) {
        header.compute_us.set(start.elapsed().as_secs_f64() * 1e6);
        let Windows { aligner, masks, .. } = windows;
        let width = self.offsets.last().copied().unwrap_or(0);
        header.shape.set([aligner.window() as i64, width]);
        header.dtype.set(aligner.dtype());
        header.timestamp_ns.set(target.time_ns);
        header.timestamps_ns.set(&masks.timestamps_ns);
        header.modalities.set(&self.names);
        header.offsets.set(&self.offsets);
        header.valid.set(&masks.valid);
        header.age_ns.set(&masks.age_ns);
        header.epoch.set(target.epoch);
        header.late_samples.set(target.late_samples);
        header.device.set(device);
        if device != Device::Cpu {
            header.device_bytes.set(windows.budget.used() as i64);
        }
        if let Some(frame_id) = self.frame_id.as_ref().filter(|frame_id| !frame_id.is_empty()) {
            header.frame_id.set(frame_id);
        }
    }
}
