//! Publishes the observations that are due, with their headers.
//!
//! Observations are published in the order in which they become due. A request that was refused before an observation was due
//! is answered before it.

use super::attach::Attach;
use super::{Observe, trigger};
use crate::app::Outbox;
use crate::app::plugins::watch::Watch;
use robocache_device::Device;
use robocache_device::gpu::{Budget, Gpu};
use robocache_ops::align::{Aligner, Destination, Window};
use robocache_ops::{self as ops, align};
use robocache_stream::{Header, Layout, form};

/// Largest number of observations that one call publishes. The operations of this process that read them are called before the
/// next ones are published.
const AT_ONCE: usize = 256;

/// Metadata that all observations of an output share.
pub(super) struct OutputMetadata {
    pub names: Vec<String>,
    pub offsets: Vec<i64>,
    pub layout: Layout,
    /// Coordinate frame of the output's stream, from the stream's last message; `None` if the output has several streams.
    pub frame_id: Option<String>,
}

impl Observe {
    /// Publishes the observations that are due, up to a limit. Returns true if none that is due is left.
    pub(super) fn publish_due(&mut self, out: &mut Outbox<'_>) -> bool {
        let mut published = 0;
        while published < AT_ONCE
            && !out.is_full()
            && let Some(target) = self.aligner.due()
        {
            published += 1;
            // Requests that were refused before this observation are answered first.
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
                _ if is_whole_wanted => Destination::Host,
                Some((gpu, _)) if out.is_wanted_on_device(output, gpu) => Destination::Device,
                _ if out.is_wanted(output) => Destination::Host,
                _ => Destination::Nowhere,
            });
            let request = target.request.and_then(|number| self.requests.take(number));
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
            self.requests.give_back(request);
        }
        self.answer_refused(out);
        for notice in self.aligner.timeline_mut().take_notices() {
            self.watch.notice(notice, out);
        }
        if let Some(error) = self.aligner.take_lost() {
            out.end(error);
        }
        published < AT_ONCE && !out.is_full()
    }
}

impl OutputMetadata {
    /// Makes the metadata of each output of an aligner, in order. `has_frames` is true if each output has one stream, whose
    /// coordinate frame (`frame_id`) it passes on.
    pub(super) fn of(aligner: &Aligner, has_frames: bool) -> Vec<Self> {
        let timeline = aligner.timeline();
        let published = aligner.outputs().iter().map(|output| {
            let modalities = output.modalities();
            let names = timeline.inputs().skip(modalities.start).take(modalities.len());
            Self {
                names: names.map(str::to_owned).collect(),
                offsets: output.offsets().to_vec(),
                layout: output.layout().clone(),
                frame_id: has_frames.then(String::new),
            }
        });
        published.collect()
    }

    /// Publishes output `i` of a window from `device` or from the host. Returns false if nobody takes the output. `request` is the
    /// header of the request that the window answers.
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
        match (window.destination(i), device) {
            (Destination::Nowhere, _) => return false,
            (Destination::Device, Some((gpu, budget))) => {
                let sent = out.send_on_device(i, &self.layout, (gpu, budget), |columns, header| {
                    window.leave_on_device(i, &mut columns[0].memory)?;
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

    /// Publishes the window and the attached messages as `observation`, and the window alone if that is wanted. The window's values
    /// are computed once for both.
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

    /// Writes the header of an output of the window. The values must be written before, because they decide the mask and the
    /// compute time.
    fn describe(&self, window: &Window<'_>, request: Option<&Header>, header: &mut Header) {
        if let Some(request) = request {
            trigger::answer(header, request);
        }
        let (target, masks, timeline) = (window.target(), window.masks(), window.timeline());
        let width = self.offsets.last().copied().unwrap_or(0);
        header.shape.set([timeline.window() as i64, width]);
        header.dtype.set(timeline.dtype());
        header.timestamp_ns.set(target.time_ns);
        header.timestamps_ns.set(&masks.timestamps_ns);
        form::modalities.set(header, &self.names);
        align::key::offsets.set(header, &self.offsets);
        header.valid.set(&masks.valid);
        form::age_ns.set(header, &masks.age_ns);
        ops::key::epoch.set(header, target.epoch);
        align::key::late_samples.set(header, target.late_samples);
        align::key::trigger.set(header, timeline.trigger());
        align::key::wait_ns.set(header, timeline.wait_ns(target));
        if !target.is_deterministic {
            align::key::deterministic.set(header, 0);
        }
        ops::key::device.set(header, window.device());
        ops::key::compute_us.set(header, window.compute_time().as_secs_f64() * 1e6);
        if window.device() != Device::Cpu {
            ops::key::device_bytes.set(header, window.device_bytes() as i64);
        }
        if let Some(frame_id) = self.frame_id.as_ref().filter(|frame_id| !frame_id.is_empty()) {
            header.frame_id.set(frame_id);
        }
    }
}

/// Reports the age and validity of each stream in the newest row of output `i`, and counts rows with values that the published
/// type can't hold.
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
    let overflows = modalities.zip(&masks.overflows);
    for (input, rows) in overflows.filter(|(_, rows)| **rows > 0) {
        let largest = dtype.largest();
        let text = format_args!(
            "{rows} rows of a window are past what {dtype} holds ({largest:e}): they are not valid (needed: smaller values, or a `dtype` that holds more)"
        );
        out.fault(input, text);
    }
}
