//! The plugins align and fuse as one operation: samples of messages in, and where an observation is due, its outputs.

mod asked;
mod attach;

use super::watch::Watch;
use super::{number_or_null, report_losses, warn_of_jump};
use crate::app::handed::Handed;
use crate::app::{Ailment, App, Change, Diagnosis, Dropped, Fault, Operation, Outbox, Value, Wake};
use asked::Asked;
use attach::Attach;
use robocache_device::Device;
use robocache_device::cuda::{Budget, Gpu};
use robocache_ops::ConfigError;
use robocache_ops::align::{
    AlignConfig, Aligner, FUSED, OBSERVATION, PushError, Pushed, SampleError, Samples, SamplesError, Wanted, Window,
};
use robocache_stream::{Header, Layout, Message, Reading};
use robocache_time::ns_to_ms;
use std::fmt::Display;
use std::time::Instant;

/// The operation of the sections `align:` and `fuse:`.
pub(super) struct Observe {
    aligner: Aligner,
    outputs: Vec<Published>,
    attach: Option<Attach>,
    watch: Watch,
    pending: Pending,
    /// The requests that wait.
    asked: Asked,
    /// How the inputs of the streams are read.
    readings: Vec<Reading>,
}

/// Whether messages of an output with so many columns can be made and sent.
pub(super) fn check_size(config: &AlignConfig, output: &str, columns: usize, app: &App) -> Result<(), ConfigError> {
    let bytes = config.window * columns * config.dtype.size();
    let too_large = |problem| {
        let rows = format!("{} rows of {columns} columns", config.window);
        ConfigError::new("window", format!("{rows} are {bytes} bytes on `{output}` ({problem})"))
    };
    app.check_message_size(output, bytes).map_err(too_large)
}

/// What is left to do, where more observations were due than are published at once.
#[derive(Clone, Copy)]
enum Pending {
    Nothing,
    /// Observations that are due.
    Observations,
    /// Those, and then the rest of a message.
    Samples(Samples),
}

/// Observations that are published before the operations that take them in this process get to see them.
const AT_ONCE: usize = 256;

/// What is said of every observation of an output.
struct Published {
    names: Vec<String>,
    offsets: Vec<i64>,
    layout: Layout,
    /// The frame of the stream, where the output is that of one stream.
    frame_id: Option<String>,
}

impl Observe {
    /// The operation of that name, and of this configuration. `has_frames`: each output is that of one stream, whose frame
    /// it passes on.
    pub fn new(name: &str, config: &AlignConfig, aligner: Aligner, has_frames: bool) -> Self {
        let timeline = aligner.timeline();
        let published = aligner.outputs().iter().map(|output| {
            let modalities = output.modalities();
            let names = timeline.inputs().skip(modalities.start).take(modalities.len());
            Published {
                names: names.map(str::to_owned).collect(),
                offsets: output.offsets().to_vec(),
                layout: output.layout().clone(),
                frame_id: has_frames.then(String::new),
            }
        });
        Self {
            outputs: published.collect(),
            attach: Attach::new(timeline),
            watch: Watch::new(name, timeline),
            pending: Pending::Nothing,
            asked: Asked::default(),
            readings: config.readings().collect(),
            aligner,
        }
    }

    /// The outputs of fuse: the window, what is attached to it, and both in one message.
    pub fn outputs_of_fuse(&self) -> Vec<String> {
        let attached = self.aligner.timeline().attached();
        let whole = (!attached.is_empty()).then(|| OBSERVATION.to_owned());
        let attached = attached.iter().map(|spec| spec.output.clone());
        std::iter::once(FUSED.to_owned()).chain(attached).chain(whole).collect()
    }

    /// The inputs of the modalities, in order, and then of the attached streams.
    pub fn streams(&self) -> Vec<String> {
        self.aligner.timeline().inputs().map(str::to_owned).collect()
    }

    /// The inputs: those of the streams, and then the trigger's, where it has one of its own.
    pub fn inputs(&self) -> Vec<String> {
        let mut inputs = self.streams();
        inputs.extend(self.aligner.timeline().trigger_input().map(str::to_owned));
        inputs
    }

    /// The trigger's input, where it has one of its own.
    fn trigger_input(&self) -> usize {
        self.aligner.timeline().inputs().count()
    }

    /// Publishes what is due, a number of observations at most. Returns whether that was all.
    fn publish_due(&mut self, out: &mut Outbox<'_>) -> bool {
        let mut published = 0;
        while published < AT_ONCE
            && !out.is_full()
            && let Some(target) = self.aligner.due()
        {
            published += 1;
            // Those that waited in front of it come first.
            self.answer_refused(out);
            self.watch.observation(self.aligner.timeline());
            if let Some(mut figures) = out.figures() {
                figures.observation(Some(self.aligner.timeline().wait_ns(&target)));
            }
            let device = self
                .aligner
                .output_gpu()
                .map(|(gpu, budget)| (gpu.clone(), budget.clone()));
            let observation = self.attach.as_ref().map(Attach::observation);
            let is_whole_wanted = observation.is_some_and(|output| out.is_wanted(output));
            let mut window = self.aligner.window_for(target, |output| match &device {
                _ if is_whole_wanted => Wanted::OnHost,
                Some((gpu, _)) if out.is_wanted_on_device(output, gpu) => Wanted::OnDevice,
                _ if out.is_wanted(output) => Wanted::OnHost,
                _ => Wanted::Nowhere,
            });
            let request = target.request.and_then(|number| self.asked.take(number));
            let answered = request.as_ref();
            if let Some(attach) = &mut self.attach {
                attach.select(window.timeline(), &target, out);
                attach.report(window.timeline(), &mut self.watch, out);
                attach.publish(&target, answered, out);
            }
            for (i, output) in self.outputs.iter().enumerate() {
                let is_made = match &mut self.attach {
                    Some(attach) if is_whole_wanted => {
                        output.publish_whole(&mut window, answered, attach, out);
                        true
                    }
                    attach => output.publish(i, &mut window, answered, attach.as_ref(), device.as_ref(), out),
                };
                if is_made {
                    report(i, &window, &mut self.watch, out);
                }
            }
            self.asked.give_back(request);
        }
        self.answer_refused(out);
        for notice in self.aligner.take_notices() {
            self.watch.notice(notice, out);
        }
        if let Some(error) = self.aligner.take_lost() {
            out.end(error);
        }
        published < AT_ONCE && !out.is_full()
    }

    /// Answers the requests that waited and get no observation.
    fn answer_refused(&mut self, out: &mut Outbox<'_>) {
        while let Some((number, refusal)) = self.aligner.take_refused() {
            if let Some(request) = self.asked.take(number) {
                self.refuse(&request, &refusal, out);
                self.asked.give_back(Some(request));
            }
        }
    }

    /// Takes a message, which is a request or a tick, of an attached stream, or holds samples.
    fn handed(&mut self, input: usize, message: Handed<'_>, out: &mut Outbox<'_>) -> Result<(), Fault> {
        if input == self.trigger_input() {
            self.triggered(&message, out);
            return Ok(());
        }
        let attach = self.attach.as_mut();
        let Some((attach, stream)) = attach.and_then(|attach| attach.stream(input).map(|stream| (attach, stream)))
        else {
            return self.samples(input, &message, out);
        };
        report_losses(
            input,
            &message,
            ("is not attached", "which are not attached as such"),
            out,
        );
        let stamp_ns = message.timestamp_ns();
        let arrival = attach.push(&mut self.aligner, stream, message);
        let arrival = arrival.inspect_err(|_| self.watch.refused(input, 1))?;
        self.watch.sample(input, stamp_ns, self.aligner.timeline(), out);
        self.report(input, arrival.pushed, out);
        for _ in 0..arrival.dropped {
            out.dropped(input, Dropped::Overflow);
        }
        if arrival.dropped > 0 {
            out.warn_seldom(
                input,
                "max_held_mb",
                "more than `max_held_mb` waits for other streams: the oldest message was dropped",
            );
        }
        if !self.publish_due(out) {
            self.pending = Pending::Observations;
        }
        Ok(())
    }

    /// Takes a message of samples.
    fn samples(&mut self, input: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        if let Some(frame_id) = self.outputs.get_mut(input).and_then(|output| output.frame_id.as_mut()) {
            frame_id.clone_from(&message.header.frame_id);
        }
        let samples = self.aligner.samples(input, message);
        let samples = samples.inspect_err(|error| {
            self.watch.refused(input, 1);
            out.dropped(input, why_message(error));
        })?;
        self.take(samples, message, out);
        Ok(())
    }

    /// Takes the samples of a message, until more is due than is published at once.
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

    /// A request or a tick came.
    fn triggered(&mut self, message: &Message, out: &mut Outbox<'_>) {
        let input = self.trigger_input();
        self.watch.triggered();
        if self.aligner.timeline().trigger() == "timer" {
            self.aligner.tick();
        } else {
            let asked = asked::time(&message.header);
            let number = asked.and_then(|time| Ok(self.aligner.ask(time)?));
            match number {
                Ok(number) => self.asked.put(number, &message.header),
                Err(refusal) => self.refuse(&message.header, refusal.into_inner().as_ref(), out),
            }
        }
        let before = self.watch.observations();
        if !self.publish_due(out) {
            self.pending = Pending::Observations;
        }
        if self.aligner.timeline().trigger() == "timer" && self.watch.observations() == before {
            out.tally(input, "ticks without anything newer");
        }
    }

    /// Answers a request that gets no observation: no row, and why.
    fn refuse(&self, request: &Header, why: &(impl Display + ?Sized), out: &mut Outbox<'_>) {
        let timeline = self.aligner.timeline();
        let whole = self
            .attach
            .as_ref()
            .map(|attach| (attach.observation(), &self.outputs[0]));
        for (i, output) in self.outputs.iter().enumerate().chain(whole) {
            out.send(i, &Layout::flat(timeline.dtype(), 0), |_, header| {
                asked::answer(header, request);
                header.shape.set([0, output.offsets.last().copied().unwrap_or(0)]);
                header.dtype.set(timeline.dtype());
                header.trigger.set(timeline.trigger());
                header.error.set(why);
            });
        }
        out.fault(self.trigger_input(), format_args!("a request is refused: {why}"));
    }

    /// Warns of what the arrival of a sample did, beside adding to its history.
    fn report(&self, input: usize, pushed: Pushed, out: &mut Outbox<'_>) {
        if let Some(jump) = pushed.jumped_ns {
            warn_of_jump(input, jump, "targets begin anew", out);
        }
        if let Some(ns) = pushed.too_soon_ns {
            let late = self.aligner.timeline().late_samples(input);
            out.warn_seldom(
                input,
                "samples too soon",
                format_args!(
                    "a sample is {} ms from another one, less than `min_period_ms`, {late} late ones of this stream so far",
                    ns_to_ms(ns)
                ),
            );
        } else if pushed.late {
            let late = self.aligner.timeline().late_samples(input);
            out.warn_seldom(
                input,
                "late samples",
                format_args!("a sample came after its target was sent, {late} of this stream so far"),
            );
        }
        if pushed.overflowed {
            out.dropped(input, Dropped::Overflow);
            out.warn_seldom(
                input,
                "samples dropped",
                "too much waits for another stream: the oldest sample was dropped",
            );
        }
    }
}

impl Operation for Observe {
    fn input(&mut self, input: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        self.handed(input, Handed::Lent(message), out)
    }

    fn input_owned(&mut self, input: usize, message: &mut Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        self.handed(input, Handed::Given(message), out)
    }

    fn wake(&mut self, now: Instant, _: &mut Outbox<'_>) -> Result<Wake, Fault> {
        let waits_since = self.asked.oldest();
        Ok(Wake::At(self.watch.check(now, waits_since, self.aligner.timeline())))
    }

    fn finish(&mut self, out: &mut Outbox<'_>) -> Result<(), Fault> {
        while let Some(request) = self.asked.take_oldest() {
            self.refuse(&request, "the node ends", out);
        }
        Ok(())
    }

    fn reading(&self, input: usize) -> Reading {
        self.readings.get(input).cloned().unwrap_or_default()
    }

    fn takes_any(&self, input: usize) -> bool {
        input == self.trigger_input()
    }

    fn unreadable(&mut self, input: usize, messages: u64) {
        if input != self.trigger_input() {
            self.watch.refused(input, messages);
        }
    }

    fn ailment(&self, input: usize) -> Option<&Ailment> {
        self.watch.ailment(input)
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

    /// What is attached is held on the host.
    fn device_of_input(&self, input: usize) -> Option<usize> {
        let is_sample = input < self.aligner.timeline().modalities();
        self.aligner.input_gpu().filter(|_| is_sample).map(Gpu::ordinal)
    }

    fn changed(&mut self, input: usize, to: Change, out: &mut Outbox<'_>) {
        if input == self.trigger_input() {
            return self.watch.trigger_changed(to);
        }
        match to {
            Change::Closed => self.aligner.close(input),
            Change::Opened => self.aligner.open(input),
        }
        if !self.publish_due(out) {
            self.pending = Pending::Observations;
        }
    }

    fn has_more(&self) -> bool {
        !matches!(self.pending, Pending::Nothing)
    }

    fn go_on(&mut self, message: Option<&Message>, out: &mut Outbox<'_>) -> Result<(), Fault> {
        let pending = std::mem::replace(&mut self.pending, Pending::Nothing);
        if !matches!(pending, Pending::Nothing) && !self.publish_due(out) {
            self.pending = pending;
        } else if let (Pending::Samples(samples), Some(message)) = (pending, message) {
            self.take(samples, message, out);
        }
        Ok(())
    }

    /// Sets `max_wait_ms` or `<input>.latency_ms`, with or without `modalities.` or `attach.` before it.
    fn parameter(&mut self, key: &str, value: &Value) -> Result<bool, Fault> {
        let prefixes = ["modalities.", "attach."].iter();
        let key = prefixes
            .filter_map(|prefix| key.strip_prefix(prefix))
            .next()
            .unwrap_or(key);
        if key == "max_wait_ms" {
            self.aligner.set_max_wait_ms(number_or_null(value)?)?;
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
            .set_latency_ms(modality, value.as_f64().ok_or("it must be a number")?)?;
        self.pending = Pending::Observations;
        Ok(true)
    }
}

impl Published {
    /// Publishes an output of a window where it is wanted. `device` is the one on which it may stay, with its budget.
    /// `request` is the one that the window answers. Says whether it was wanted.
    fn publish(
        &self,
        i: usize,
        window: &mut Window<'_>,
        request: Option<&Header>,
        attach: Option<&Attach>,
        device: Option<&(Gpu, Budget)>,
        out: &mut Outbox<'_>,
    ) -> bool {
        let describe = |window: &Window<'_>, header: &mut Header| {
            self.describe(window, request, header);
            if let Some(attach) = attach {
                attach.describe(header);
            }
        };
        let mut is_sent = false;
        match (window.wanted(i), device) {
            (Wanted::Nowhere, _) => return false,
            (Wanted::OnDevice, Some((gpu, budget))) => {
                let tensor = (window.timeline().dtype(), self.layout.rows);
                let sent = out.send_on_device(i, tensor, (gpu, budget), |memory, header| {
                    window.leave_on_device(i, memory)?;
                    describe(window, header);
                    Ok(())
                });
                is_sent = sent.map_err(|error| window.failed_to_leave(error)).is_ok();
            }
            _ => {}
        }
        if !is_sent {
            out.send(i, &self.layout, |payload, header| {
                window.write(i, payload.column::<u8>(0));
                describe(window, header);
            });
        }
        true
    }

    /// Publishes the window as `observation` with what is attached to it, and alone where that is wanted. Its values are
    /// computed once.
    fn publish_whole(
        &self,
        window: &mut Window<'_>,
        request: Option<&Header>,
        attach: &mut Attach,
        out: &mut Outbox<'_>,
    ) {
        attach.values.resize(window.output(0).bytes());
        window.write(0, attach.values.bytes_mut());
        out.send(0, &self.layout, |payload, header| {
            payload.column::<u8>(0).copy_from_slice(attach.values.bytes());
            self.describe(window, request, header);
            attach.describe(header);
        });
        let dtype = window.timeline().dtype();
        attach.publish_whole(dtype, out, |header| self.describe(window, request, header));
    }

    /// Writes the header of the output that was taken last.
    fn describe(&self, window: &Window<'_>, request: Option<&Header>, header: &mut Header) {
        if let Some(request) = request {
            asked::answer(header, request);
        }
        let (target, masks, timeline) = (window.target(), window.masks(), window.timeline());
        let width = self.offsets.last().copied().unwrap_or(0);
        header.shape.set([timeline.window() as i64, width]);
        header.dtype.set(timeline.dtype());
        header.timestamp_ns.set(target.time_ns);
        header.timestamps_ns.set(&masks.timestamps_ns);
        header.modalities.set(&self.names);
        header.offsets.set(&self.offsets);
        header.valid.set(&masks.valid);
        header.age_ns.set(&masks.age_ns);
        header.epoch.set(target.epoch);
        header.late_samples.set(target.late_samples);
        header.trigger.set(timeline.trigger());
        header.wait_ns.set(timeline.wait_ns(target));
        if !target.is_deterministic {
            header.deterministic.set(0);
        }
        header.device.set(window.device());
        header.compute_us.set(window.compute_time().as_secs_f64() * 1e6);
        if window.device() != Device::Cpu {
            header.device_bytes.set(window.device_bytes() as i64);
        }
        if let Some(frame_id) = self.frame_id.as_ref().filter(|frame_id| !frame_id.is_empty()) {
            header.frame_id.set(frame_id);
        }
    }
}

/// Why a message holds no samples.
fn why_message(error: &SamplesError) -> Dropped {
    match error {
        SamplesError::NoStamp => Dropped::Stamp,
        SamplesError::NonFinite { .. } => Dropped::NonFinite,
        _ => Dropped::Length,
    }
}

/// Why a sample is not taken.
fn why_sample(error: &SampleError) -> Dropped {
    match error {
        SampleError::StampOutOfRange(_) => Dropped::Stamp,
        SampleError::NonFinite { .. } | SampleError::NoRotation { .. } => Dropped::NonFinite,
        SampleError::WrongLength { .. } | SampleError::Elsewhere => Dropped::Length,
    }
}

/// Says what the newest row of an output has of each stream, and counts values that the published type can't hold.
fn report(i: usize, window: &Window<'_>, watch: &mut Watch, out: &mut Outbox<'_>) {
    let dtype = window.timeline().dtype();
    let modalities = window.output(i).modalities();
    let masks = window.masks();
    let newest = masks.valid.len() - modalities.len();
    let streams = || {
        let newest = masks.age_ns[newest..].iter().zip(&masks.valid[newest..]);
        modalities.clone().zip(newest)
    };
    streams().for_each(|(input, (&age_ns, &valid))| watch.observed(input, age_ns, valid == 1));
    if let Some(mut figures) = out.figures() {
        streams().for_each(|(input, (&age_ns, &valid))| figures.observed(input, age_ns, valid == 1));
        figures.computed(window.compute_time(), window.device(), window.device_bytes());
    }
    for (input, &rows) in modalities
        .clone()
        .zip(&window.masks().overflows)
        .filter(|(_, rows)| **rows > 0)
    {
        let largest = dtype.largest();
        out.fault(
            input,
            format_args!("{rows} rows of a window are past what {dtype} holds ({largest:e}): they are not valid"),
        );
    }
}
