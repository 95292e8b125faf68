//! What align and fuse are: samples of messages into histories, and outputs of some of the modalities where an
//! observation is due. Fuse has one output of all modalities, align one of each.

use super::number_or_null;
use crate::app::{Change, Fault, Operation, Outbox, Parameter, Parameters, Payload, Value};
use crate::device::cuda::{Budget, CudaError, Gpu};
use crate::device::{Backend, Device, Dtype, Placement, Values};
use crate::ops::ConfigError;
use crate::ops::align::cuda::{CudaFuser, DeviceSample, PushError};
use crate::ops::align::{AlignConfig, Aligner, Masks, Pushed, Target, cpu};
use crate::stream::{Layout, Message};
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
}

/// The operation of the sections `align:` and `fuse:`.
pub(super) struct Observe {
    section: &'static str,
    windows: Windows,
    outputs: Vec<Output>,
}

/// The windows of the streams, on either device.
struct Windows {
    aligner: Aligner,
    backend: Backend<CudaFuser>,
    /// What the backend holds of its device.
    budget: Budget,
    masks: Masks,
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
    pub fn fused(config: &AlignConfig, placement: &Placement) -> Result<Self, ConfigError> {
        Self::new("fuse", config, placement, |modalities| {
            std::iter::once(0..modalities).collect()
        })
    }

    /// One output of each modality.
    pub fn aligned(config: &AlignConfig, placement: &Placement) -> Result<Self, ConfigError> {
        let mut observe = Self::new("align", config, placement, |modalities| {
            (0..modalities).map(|i| i..i + 1).collect()
        })?;
        for output in &mut observe.outputs {
            output.frame_id = Some(String::new());
        }
        Ok(observe)
    }

    fn new(
        section: &'static str,
        config: &AlignConfig,
        placement: &Placement,
        outputs: impl FnOnce(usize) -> Vec<Range<usize>>,
    ) -> Result<Self, ConfigError> {
        let aligner = Aligner::new(config)?;
        let budget = Budget::new(placement.max_bytes());
        let cuda = |gpus: &[Gpu]| Ok::<_, ConfigError>(CudaFuser::new(&aligner, &gpus[0], &budget));
        let backend = Backend::new(section, placement, CPU_BYTES, cuda)?;
        let outputs = outputs(aligner.modalities()).into_iter();
        Ok(Self {
            section,
            outputs: outputs.map(|modalities| Output::new(&aligner, modalities)).collect(),
            windows: Windows {
                aligner,
                backend,
                budget,
                masks: Masks::default(),
            },
        })
    }

    /// The inputs, in the order of the modalities.
    pub fn inputs(&self) -> Vec<String> {
        self.windows.aligner.inputs().map(str::to_owned).collect()
    }

    fn publish_due(&mut self, out: &mut Outbox<'_>) {
        while let Some(target) = self.windows.aligner.due() {
            for (i, output) in self.outputs.iter().enumerate() {
                self.windows.masks.overflows.clear();
                let sent = output.send_on_device(i, &mut self.windows, &target, out);
                if !sent {
                    out.send(i, &output.layout, |payload| {
                        output.observe(&mut self.windows, &target, payload)
                    });
                }
                output.count_overflows(&self.windows, out);
            }
            if let Some(error) = self.windows.backend.take_lost() {
                out.end(error);
                return;
            }
        }
    }
}

impl Operation for Observe {
    fn input(&mut self, input: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        if let Some(frame_id) = self.outputs.get_mut(input).and_then(|output| output.frame_id.as_mut()) {
            frame_id.clone_from(&message.frame_id);
        }
        let dim = self.windows.aligner.dim(input);
        let len = match (message.on_device(), message.flat()) {
            (Some(tensor), _) => tensor.len,
            (None, Some(values)) => values.len(),
            (None, None) => return Err(SamplesError::Struct { dim }.into()),
        };
        let one = [message.timestamp_ns];
        let stamps = match message.timestamps_ns.as_slice() {
            [] => one.as_slice(),
            several if len == several.len() * dim => several,
            several => {
                return Err(SamplesError::Stamps {
                    stamps: several.len(),
                    values: len,
                    dim,
                }
                .into());
            }
        };
        let parts = message.valid.len() / stamps.len();
        for (row, &stamp) in stamps.iter().enumerate() {
            // A row that an aligning node upstream says nothing of is no sample.
            if message.valid[row * parts..(row + 1) * parts].contains(&0) {
                continue;
            }
            let of_message = if stamps.len() == 1 {
                0..len
            } else {
                row * dim..(row + 1) * dim
            };
            match self.windows.push(input, stamp, message, of_message) {
                Ok(pushed) => {
                    if let Some(delta) = pushed.jumped_ns {
                        let seconds = delta as f64 * 1e-9;
                        out.fault(
                            input,
                            format_args!("the clock jumped by {seconds} s: the grid starts anew"),
                        );
                    }
                    if pushed.overflowed {
                        out.fault(
                            input,
                            "too much waits for another stream: the oldest sample was dropped",
                        );
                    }
                }
                // Without memory only this sample is lost.
                Err(PushError::Cuda(error)) if !error.is_memory() => self.windows.failed(dim, error),
                Err(error) => out.fault(input, error),
            }
            self.publish_due(out);
        }
        Ok(())
    }

    fn device_of_input(&self, _: usize) -> Option<usize> {
        self.windows.backend.gpu().map(Gpu::ordinal)
    }

    fn changed(&mut self, input: usize, to: Change, out: &mut Outbox<'_>) {
        match to {
            Change::Closed => self.windows.aligner.close(input),
            Change::Opened => self.windows.aligner.open(input),
        }
        self.publish_due(out);
    }

    /// Sets `max_wait_ms` or `<input>.latency_ms`, with or without the section's name and `modalities.` before it.
    fn parameter(&mut self, key: &str, value: &Value) -> Result<bool, Fault> {
        let key = key
            .strip_prefix(self.section)
            .and_then(|key| key.strip_prefix('.'))
            .unwrap_or(key);
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
    /// Puts a sample, which is so many elements of a message, into its history.
    fn push(
        &mut self,
        input: usize,
        stamp: i64,
        message: &Message,
        elements: Range<usize>,
    ) -> Result<Pushed, PushError> {
        let Some(tensor) = message.on_device() else {
            let values = message.flat().unwrap_or(Values::from_f32(&[]));
            let sample = values.slice(elements.start, elements.end);
            return match self.backend.resident() {
                Some(cuda) => cuda.push_host(&mut self.aligner, input, stamp, sample),
                None => Ok(self.aligner.push(input, stamp, sample)?),
            };
        };
        let sample = DeviceSample {
            memory: &tensor.memory,
            at: elements.start * tensor.dtype.size(),
            dtype: tensor.dtype,
            len: elements.len(),
        };
        match self.backend.resident() {
            Some(cuda) => cuda.push(&mut self.aligner, input, stamp, sample),
            None => Err(PushError::Lost),
        }
    }

    /// The device failed on a window or a sample of so many bytes. What it alone has is lost with it: streams that were
    /// handed on there begin anew.
    fn failed(&mut self, work: usize, error: CudaError) {
        self.backend.failed(work, error);
        if self.are_rows_elsewhere() {
            tracing::warn!("the samples of streams that were on the device are lost");
            self.aligner.forget_elsewhere();
        }
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

impl Output {
    fn new(aligner: &Aligner, modalities: Range<usize>) -> Self {
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
        let Some(gpu) = windows.backend.gpu().cloned() else {
            return false;
        };
        if !out.is_wanted_on_device(output, &gpu) || !windows.are_on_device(work, true) {
            return false;
        }
        let dtype = windows.aligner.dtype();
        let sent = out.send_on_device(output, dtype, self.layout.rows, &gpu, |memory| {
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
            Ok(self.describe(windows, target, windows.backend.device(), start))
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

    /// Writes an observation into a payload of the aligner's element type, times it, and gives its metadata.
    fn observe(&self, windows: &mut Windows, target: &Target, payload: &mut Payload<'_>) -> Parameters {
        let start = Instant::now();
        let device = windows.write(target, self.modalities.clone(), payload);
        self.describe(windows, target, device, start)
    }

    /// The metadata of an observation that was begun at `start` and is done.
    fn describe(&self, windows: &Windows, target: &Target, device: Device, start: Instant) -> Parameters {
        let compute_us = start.elapsed().as_secs_f64() * 1e6;
        let Windows { aligner, masks, .. } = windows;
        let width = self.offsets.last().copied().unwrap_or(0);
        let entries = [
            ("shape", Parameter::ListInt(vec![aligner.window() as i64, width])),
            ("dtype", Parameter::String(aligner.dtype().name().into())),
            ("timestamp_ns", Parameter::Integer(target.time_ns)),
            ("timestamps_ns", Parameter::ListInt(masks.timestamps_ns.clone())),
            ("modalities", Parameter::ListString(self.names.clone())),
            ("offsets", Parameter::ListInt(self.offsets.clone())),
            ("valid", Parameter::ListInt(masks.valid.clone())),
            ("age_ns", Parameter::ListInt(masks.age_ns.clone())),
            ("epoch", Parameter::Integer(target.epoch)),
            ("late_samples", Parameter::Integer(target.late_samples)),
            ("device", Parameter::String(device.to_string())),
            ("compute_us", Parameter::Float(compute_us)),
        ];
        let mut parameters: Parameters = entries
            .map(|(key, value)| (key.to_owned(), value))
            .into_iter()
            .collect();
        if device != Device::Cpu {
            let bytes = Parameter::Integer(windows.budget.used() as i64);
            parameters.insert("device_bytes".into(), bytes);
        }
        if let Some(frame_id) = self.frame_id.as_ref().filter(|frame_id| !frame_id.is_empty()) {
            parameters.insert("frame_id".into(), Parameter::String(frame_id.clone()));
        }
        parameters
    }
}
