//! The operation of the plugins align and fuse: reads samples, and publishes observations when they are due.
//!
//! The watch over the streams only logs and reports: it has no influence on what is published.

mod attach;
mod publish;
mod trigger;

use super::watch::Watch;
use super::{number_or_null, report_losses, warn_of_jump};
use crate::app::input_message::InputMessage;
use crate::app::{BuildContext, Change, Diagnosis, Dropped, Fault, HealthIssue, Operation, Outbox, Value, Wake};
use attach::Attach;
use publish::OutputMetadata;
use robocache_device::Device;
use robocache_device::gpu::Gpu;
use robocache_ops::ConfigError;
use robocache_ops::align::{
    AlignConfig, Aligner, FUSED, OBSERVATION, PushError, PushOutcome, SampleError, Samples, SamplesError,
};
use robocache_stream::{Message, Selection};
use robocache_time::ns_to_ms;
use std::time::Instant;
use trigger::Requests;

/// The operation of the sections `align:` and `fuse:`.
pub(super) struct Observe {
    aligner: Aligner,
    outputs: Vec<OutputMetadata>,
    attach: Option<Attach>,
    watch: Watch,
    pending: Pending,
    /// Requests that are not answered yet.
    requests: Requests,
    /// Fields that are read of the payloads of each stream's input.
    selections: Vec<Selection>,
}

/// Checks that the windows on an output, with `columns` values in each row, are not too large for a message.
pub(super) fn check_size(
    config: &AlignConfig,
    output: &str,
    columns: usize,
    context: &BuildContext<'_>,
) -> Result<(), ConfigError> {
    let bytes = config.window * columns * config.dtype.size();
    let too_large = |problem| {
        let rows = format!("{} rows of {columns} columns", config.window);
        ConfigError::new("window", format!("{rows} are {bytes} bytes on `{output}` ({problem})"))
    };
    context.check_message_size(output, bytes).map_err(too_large)
}

/// Work that the last call left, because more observations were due than one call publishes.
#[derive(Clone, Copy)]
enum Pending {
    Nothing,
    /// Publishing the observations that are due.
    Observations,
    /// Publishing the observations that are due, and then reading the remaining samples of the message.
    Samples(Samples),
}

impl Observe {
    /// Makes the operation of this name and configuration. `has_frames` is true if each output has one stream, whose coordinate
    /// frame (`frame_id`) it passes on.
    pub(super) fn new(name: &str, config: &AlignConfig, aligner: Aligner, has_frames: bool) -> Self {
        let timeline = aligner.timeline();
        Self {
            outputs: OutputMetadata::of(&aligner, has_frames),
            attach: Attach::new(timeline),
            watch: Watch::new(name, timeline),
            pending: Pending::Nothing,
            requests: Requests::default(),
            selections: config.selections().collect(),
            aligner,
        }
    }

    /// Names of the outputs of fuse: `fused`, one for each attached stream, and `observation`, which has all of them in one
    /// message. Without attached streams there is only `fused`.
    pub(super) fn outputs_of_fuse(&self) -> Vec<String> {
        let attached = self.aligner.timeline().attached();
        let whole = (!attached.is_empty()).then(|| OBSERVATION.to_owned());
        let attached = attached.iter().map(|spec| spec.output.clone());
        std::iter::once(FUSED.to_owned()).chain(attached).chain(whole).collect()
    }

    /// Names of the inputs of the modalities, in order, and then of the attached streams.
    pub(super) fn streams(&self) -> Vec<String> {
        self.aligner.timeline().inputs().map(str::to_owned).collect()
    }

    /// Names of the inputs of the streams, and then of the trigger, if it has an input of its own.
    pub(super) fn inputs(&self) -> Vec<String> {
        let mut inputs = self.streams();
        inputs.extend(self.aligner.timeline().trigger_input().map(str::to_owned));
        inputs
    }

    /// Index of the trigger's own input. If the trigger has no input of its own, this is the number of inputs.
    fn trigger_input(&self) -> usize {
        self.aligner.timeline().inputs().count()
    }

    /// Handles a message of any input: a request or a tick, a message of an attached stream, or samples.
    fn take_message(&mut self, input: usize, message: InputMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Fault> {
        if input == self.trigger_input() {
            self.triggered(&message, out);
            return Ok(());
        }
        let attach = self.attach.as_mut();
        let Some((attach, stream)) = attach.and_then(|attach| attach.stream(input).map(|stream| (attach, stream)))
        else {
            return self.samples(input, &message, out);
        };
        let words = ("is not attached", "which are not attached as such");
        report_losses(input, &message, words, out);
        let stamp_ns = message.timestamp_ns();
        let arrival = attach.push(&mut self.aligner, stream, message);
        let arrival = arrival.inspect_err(|_| self.watch.refused(input, 1))?;
        self.watch.sample(input, stamp_ns, self.aligner.timeline(), out);
        self.report(input, arrival.pushed, out);
        for _ in 0..arrival.dropped {
            out.dropped(input, Dropped::Overflow);
        }
        if arrival.dropped > 0 {
            let text = "more than `max_held_mb` waits for other streams: the oldest message was dropped (a larger one keeps it, a shorter `max_wait_ms` waits less)";
            out.warn_seldom(input, "max_held_mb", text);
        }
        self.publish_some(out);
        Ok(())
    }

    /// Reads the samples of a modality's message. A message that can't be read as samples is refused as a whole.
    fn samples(&mut self, input: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        if let Some(frame_id) = self.outputs.get_mut(input).and_then(|output| output.frame_id.as_mut()) {
            let came = message.header.frame_id.get().unwrap_or_default();
            came.clone_into(frame_id);
        }
        let samples = self.aligner.samples(input, message);
        let samples = samples.inspect_err(|error| {
            self.watch.refused(input, 1);
            out.dropped(input, why_message(error));
        })?;
        self.take(samples, message, out);
        Ok(())
    }

    /// Adds the samples of a message to the aligner, until more observations are due than are published at once.
    fn take(&mut self, mut samples: Samples, message: &Message, out: &mut Outbox<'_>) {
        while let Some(pushed) = self.aligner.push_next(&mut samples, message) {
            let input = samples.modality();
            match pushed {
                Ok(pushed) => {
                    self.watch
                        .sample(input, samples.stamp_ns(), self.aligner.timeline(), out);
                    self.report(input, pushed, out);
                }
                Err(error) => {
                    self.watch.refused(input, 1);
                    if let PushError::Sample(error) = &error {
                        out.dropped(input, why_sample(error));
                    }
                    out.fault(input, error);
                }
            }
            if !self.publish_due(out) {
                self.pending = Pending::Samples(samples);
                return;
            }
        }
    }

    /// Warns of what a sample's arrival has shown: a clock jump, lateness, less than `min_period_ms` to another sample, or a
    /// full history that dropped its oldest sample.
    fn report(&self, input: usize, pushed: PushOutcome, out: &mut Outbox<'_>) {
        if let Some(jump) = pushed.jumped_ns {
            warn_of_jump(input, jump, "targets begin anew", out);
        }
        let late = self.aligner.timeline().late_samples(input);
        if let Some(ms) = pushed.too_soon_ns.map(ns_to_ms) {
            let text = format_args!(
                "a sample is {ms} ms from another one, less than `min_period_ms`, {late} late ones of this stream so far"
            );
            out.warn_seldom(input, "samples too soon", text);
        } else if pushed.late {
            let text = format_args!(
                "a sample came after its target was sent, {late} of this stream so far (`max_wait_ms`, `wait` and `reorder_ms` say how long targets wait)"
            );
            out.warn_seldom(input, "late samples", text);
        }
        if pushed.overflowed {
            out.dropped(input, Dropped::Overflow);
            let text = "the history is full while another stream is waited for: the oldest sample was dropped (`max_wait_ms` limits the wait)";
            out.warn_seldom(input, "samples dropped", text);
        }
    }

    /// Publishes the observations that are due, and sets `pending` if some are left.
    fn publish_some(&mut self, out: &mut Outbox<'_>) {
        if !self.publish_due(out) {
            self.pending = Pending::Observations;
        }
    }
}

impl Operation for Observe {
    fn input(&mut self, input: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        self.take_message(input, InputMessage::Borrowed(message), out)
    }

    fn input_owned(&mut self, input: usize, message: &mut Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        self.take_message(input, InputMessage::Owned(message), out)
    }

    fn wake(&mut self, now: Instant, _: &mut Outbox<'_>) -> Result<Wake, Fault> {
        let waits_since = self.requests.oldest();
        Ok(Wake::At(self.watch.check(now, waits_since, self.aligner.timeline())))
    }

    fn finish(&mut self, out: &mut Outbox<'_>) -> Result<(), Fault> {
        while let Some(request) = self.requests.take_oldest() {
            self.refuse(&request, "the node ends", out);
        }
        Ok(())
    }

    fn selection(&self, input: usize) -> Selection {
        self.selections.get(input).cloned().unwrap_or_default()
    }

    fn takes_any(&self, input: usize) -> bool {
        input == self.trigger_input()
    }

    fn unreadable(&mut self, input: usize, messages: u64) {
        if input != self.trigger_input() {
            self.watch.refused(input, messages);
        }
    }

    fn health_issue(&self, input: usize) -> Option<&HealthIssue> {
        self.watch.health_issue(input)
    }

    fn diagnosis(&self, input: usize) -> Diagnosis {
        let timeline = self.aligner.timeline();
        if input == self.trigger_input() {
            return Diagnosis::default();
        }
        let [max_age_ns, max_gap_ns] = timeline.limits_ns(input);
        Diagnosis {
            late: timeline.late_samples(input).unsigned_abs(),
            epoch: timeline.epoch(),
            max_age_ns,
            max_gap_ns,
            ..Diagnosis::default()
        }
    }

    /// Device on which samples of an input are read; `None`, which is the host, for attached messages and for an aligner on
    /// the CPU.
    fn device_of_input(&self, input: usize) -> Option<Device> {
        let is_sample = input < self.aligner.timeline().modalities();
        self.aligner.input_gpu().filter(|_| is_sample).map(Gpu::device)
    }

    fn changed(&mut self, input: usize, to: Change, out: &mut Outbox<'_>) {
        if input == self.trigger_input() {
            return self.watch.trigger_changed(to);
        }
        match to {
            Change::Closed => self.aligner.close(input),
            Change::Opened => self.aligner.open(input),
        }
        self.publish_some(out);
    }

    fn has_more(&self) -> bool {
        !matches!(self.pending, Pending::Nothing)
    }

    fn resume(&mut self, message: Option<&Message>, out: &mut Outbox<'_>) -> Result<(), Fault> {
        let pending = std::mem::replace(&mut self.pending, Pending::Nothing);
        if !matches!(pending, Pending::Nothing) && !self.publish_due(out) {
            self.pending = pending;
        } else if let (Pending::Samples(samples), Some(message)) = (pending, message) {
            self.take(samples, message, out);
        }
        Ok(())
    }

    /// Sets the parameter `max_wait_ms` or `<input>.latency_ms`. The key may begin with `modalities.` or `attach.`.
    fn parameter(&mut self, key: &str, value: &Value) -> Result<bool, Fault> {
        let prefixes = ["modalities.", "attach."];
        let key = prefixes
            .iter()
            .find_map(|prefix| key.strip_prefix(prefix))
            .unwrap_or(key);
        if key == "max_wait_ms" {
            self.aligner.timeline_mut().set_max_wait_ms(number_or_null(value)?)?;
            self.pending = Pending::Observations;
            return Ok(true);
        }
        let Some((input, "latency_ms")) = key.rsplit_once('.') else {
            return Ok(false);
        };
        let Some(modality) = self.aligner.timeline().inputs().position(|name| name == input) else {
            return Ok(false);
        };
        self.aligner
            .timeline_mut()
            .set_latency_ms(modality, value.as_f64().ok_or("it must be a number")?)?;
        self.pending = Pending::Observations;
        Ok(true)
    }
}

/// Converts the error of a refused message to the reason that the diagnostics count.
fn why_message(error: &SamplesError) -> Dropped {
    match error {
        SamplesError::NoStamp => Dropped::Stamp,
        SamplesError::NonFinite { .. } => Dropped::NonFinite,
        _ => Dropped::Length,
    }
}

/// Converts the error of a refused sample to the reason that the diagnostics count.
fn why_sample(error: &SampleError) -> Dropped {
    match error {
        SampleError::StampOutOfRange(_) => Dropped::Stamp,
        SampleError::NonFinite { .. } | SampleError::NoRotation { .. } => Dropped::NonFinite,
        SampleError::WrongLength { .. } | SampleError::OnDevice => Dropped::Length,
    }
}
