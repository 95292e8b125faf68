//! The plugins align and fuse as one operation: samples of messages in, and where an observation is due, its outputs.

mod attach;

use super::watch::Watch;
use super::{number_or_null, report_losses, warn_of_jump};
use crate::app::handed::Handed;
use crate::app::{Change, Fault, Operation, Outbox, Value, Wake};
use crate::device::Device;
use crate::device::cuda::{Budget, Gpu};
use crate::ops::align::{Aligner, FUSED, OBSERVATION, Pushed, Samples, SamplesError, Wanted, Window};
use crate::stream::{Header, Layout, Message};
use attach::Attach;
use std::time::Instant;

/// The operation of the sections `align:` and `fuse:`.
pub(super) struct Observe {
    aligner: Aligner,
    outputs: Vec<Published>,
    attach: Option<Attach>,
    watch: Watch,
    pending: Pending,
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
    /// The operation of that name. `has_frames`: each output is that of one stream, whose frame it passes on.
    pub fn new(name: &str, aligner: Aligner, has_frames: bool) -> Self {
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
            watch: Watch::new(name, timeline.inputs(), timeline.period_ns()),
            pending: Pending::Nothing,
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

    /// The inputs, in the order of the modalities, then of the attached streams.
    pub fn inputs(&self) -> Vec<String> {
        self.aligner.timeline().inputs().map(str::to_owned).collect()
    }

    /// Publishes what is due, a number of observations at most. Returns whether that was all.
    fn publish_due(&mut self, out: &mut Outbox<'_>) -> bool {
        let mut published = 0;
        while published < AT_ONCE
            && let Some(target) = self.aligner.due()
        {
            published += 1;
            self.watch.observation();
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
            if let Some(attach) = &mut self.attach {
                attach.select(window.timeline(), &target, out);
                attach.publish(&target, out);
            }
            for (i, output) in self.outputs.iter().enumerate() {
                match &mut self.attach {
                    Some(attach) if is_whole_wanted => output.publish_whole(&mut window, attach, out),
                    attach => output.publish(i, &mut window, attach.as_ref(), device.as_ref(), out),
                }
            }
        }
        for notice in self.aligner.take_notices() {
            self.watch.notice(notice, out);
        }
        if let Some(error) = self.aligner.take_lost() {
            out.end(error);
        }
        published < AT_ONCE
    }

    /// Takes a message, which is of an attached stream or holds samples.
    fn handed(&mut self, input: usize, message: Handed<'_>, out: &mut Outbox<'_>) -> Result<(), Fault> {
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
        let arrival = arrival.inspect_err(|_| self.watch.refused(input))?;
        self.watch.sample(input, stamp_ns, self.aligner.timeline(), out);
        self.report(input, arrival.pushed, out);
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
        let samples = samples.inspect_err(|_: &SamplesError| self.watch.refused(input))?;
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
                    self.watch.refused(input);
                    out.fault(input, error);
                }
            }
            if !self.publish_due(out) {
                self.pending = Pending::Samples(samples);
                return;
            }
        }
    }

    /// Warns of what the arrival of a sample did, beside adding to its history.
    fn report(&self, input: usize, pushed: Pushed, out: &mut Outbox<'_>) {
        if let Some(jump) = pushed.jumped_ns {
            warn_of_jump(input, jump, "the grid starts anew", out);
        }
        if let Some(ns) = pushed.too_soon_ns {
            let late = self.aligner.timeline().late_samples(input);
            out.warn_seldom(
                input,
                "samples too soon",
                format_args!(
                    "a sample is {} ms from another one, less than `min_period_ms`, {late} late ones of this stream so far",
                    ns as f64 * 1e-6
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
        Ok(Wake::At(self.watch.check(now, self.aligner.timeline())))
    }

    /// What is attached is held on the host.
    fn device_of_input(&self, input: usize) -> Option<usize> {
        let is_sample = input < self.aligner.timeline().modalities();
        self.aligner.input_gpu().filter(|_| is_sample).map(Gpu::ordinal)
    }

    fn changed(&mut self, input: usize, to: Change, out: &mut Outbox<'_>) {
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
        Ok(true)
    }
}

impl Published {
    /// Publishes an output of a window where it is wanted. `device` is the one on which it may stay, with its budget.
    fn publish(
        &self,
        i: usize,
        window: &mut Window<'_>,
        attach: Option<&Attach>,
        device: Option<&(Gpu, Budget)>,
        out: &mut Outbox<'_>,
    ) {
        let describe = |window: &Window<'_>, header: &mut Header| {
            self.describe(window, header);
            if let Some(attach) = attach {
                attach.describe(header);
            }
        };
        let mut is_sent = false;
        match (window.wanted(i), device) {
            (Wanted::Nowhere, _) => return,
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
        report_overflows(i, window, out);
    }

    /// Publishes the window as `observation` with what is attached to it, and alone where that is wanted. Its values are
    /// computed once.
    fn publish_whole(&self, window: &mut Window<'_>, attach: &mut Attach, out: &mut Outbox<'_>) {
        attach.values.resize(window.output(0).bytes());
        window.write(0, attach.values.bytes_mut());
        out.send(0, &self.layout, |payload, header| {
            payload.column::<u8>(0).copy_from_slice(attach.values.bytes());
            self.describe(window, header);
            attach.describe(header);
        });
        attach.publish_whole(window.timeline().dtype(), out, |header| self.describe(window, header));
        report_overflows(0, window, out);
    }

    /// Writes the header of the output that was taken last.
    fn describe(&self, window: &Window<'_>, header: &mut Header) {
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

/// Counts values of an output that the published type can't hold.
fn report_overflows(i: usize, window: &Window<'_>, out: &mut Outbox<'_>) {
    let dtype = window.timeline().dtype();
    let modalities = window.output(i).modalities();
    for (input, &rows) in modalities.zip(&window.masks().overflows).filter(|(_, rows)| **rows > 0) {
        let largest = dtype.largest();
        out.fault(
            input,
            format_args!("{rows} rows of a window are past what {dtype} holds ({largest:e}): they are not valid"),
        );
    }
}
