//! Requests and ticks: the times that they ask for, and the metadata of requests until they are answered.
//!
//! Each request has exactly one answer: an observation, or a refusal with the reason.

use super::Observe;
use crate::app::{Fault, Outbox};
use robocache_ops::align::{self, TriggerKind};
use robocache_stream::{Header, Layout, Message, key};
use std::collections::VecDeque;
use std::fmt::Display;
use std::time::Instant;

/// Requests that are not answered yet, in the order of their arrival, in memory that is reused.
#[derive(Default)]
pub(super) struct Requests {
    waiting: VecDeque<(u64, Instant, Header)>,
    free: Vec<Header>,
}

impl Requests {
    /// Stores a request's metadata under `number`, by which the timeline identifies the request.
    pub(super) fn put(&mut self, number: u64, header: &Header) {
        let mut kept = self.free.pop().unwrap_or_default();
        kept.copy_from(header);
        self.waiting.push_back((number, Instant::now(), kept));
    }

    /// Removes a request and returns its metadata; `None` if no request with this number waits.
    pub(super) fn take(&mut self, number: u64) -> Option<Header> {
        let at = self.waiting.iter().position(|(of, ..)| *of == number)?;
        self.waiting.remove(at).map(|(.., header)| header)
    }

    /// Removes the oldest request and returns its metadata; `None` if no request waits.
    pub(super) fn take_oldest(&mut self) -> Option<Header> {
        self.waiting.pop_front().map(|(.., header)| header)
    }

    /// Keeps the memory of a request's metadata for a later request.
    pub(super) fn give_back(&mut self, header: Option<Header>) {
        self.free.extend(header);
    }

    /// Arrival of the oldest request; `None` if no request waits.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.waiting.front().map(|&(_, came, _)| came)
    }
}

impl Observe {
    /// Handles a message of the trigger's input: a request, or a tick of the timer.
    pub(super) fn triggered(&mut self, message: &Message, out: &mut Outbox<'_>) {
        let input = self.trigger_input();
        self.watch.triggered();
        if self.aligner.timeline().trigger() == TriggerKind::Timer {
            self.aligner.timeline_mut().tick();
        } else {
            let asked = time(&message.header);
            let number = asked.and_then(|time| Ok(self.aligner.timeline_mut().ask(time)?));
            match number {
                Ok(number) => self.requests.put(number, &message.header),
                Err(refusal) => self.refuse(&message.header, refusal.into_inner().as_ref(), out),
            }
        }
        let before = self.watch.observations();
        self.publish_some(out);
        if self.aligner.timeline().trigger() == TriggerKind::Timer && self.watch.observations() == before {
            out.tally(input, "ticks without anything newer");
        }
    }

    /// Answers the waiting requests that the timeline has refused since the last call.
    pub(super) fn answer_refused(&mut self, out: &mut Outbox<'_>) {
        while let Some((number, refusal)) = self.aligner.timeline_mut().take_refused() {
            if let Some(request) = self.requests.take(number) {
                self.refuse(&request, &refusal, out);
                self.requests.give_back(Some(request));
            }
        }
    }

    /// Answers a request that gets no observation: each output sends the reason in the metadata of a message without rows.
    pub(super) fn refuse(&self, request: &Header, why: &(impl Display + ?Sized), out: &mut Outbox<'_>) {
        let timeline = self.aligner.timeline();
        let whole = self
            .attach
            .as_ref()
            .map(|attach| (attach.observation(), &self.outputs[0]));
        for (i, output) in self.outputs.iter().enumerate().chain(whole) {
            out.send(i, &Layout::flat(timeline.dtype(), 0), |_, header| {
                answer(header, request);
                header.shape.set([0, output.offsets.last().copied().unwrap_or(0)]);
                header.dtype.set(timeline.dtype());
                align::key::trigger.set(header, timeline.trigger());
                align::key::error.set(header, why);
            });
        }
        out.fault(self.trigger_input(), format_args!("a request is refused: {why}"));
    }
}

/// Reads the time that a request asks for, ns; `None` asks for the newest observation that is due. A stamp that dora gave to a
/// request without one does not count.
///
/// # Errors
/// A `timestamp_ns` that is not an integer.
fn time(header: &Header) -> Result<Option<i64>, Fault> {
    if let Some(came) = header.other.get(key::timestamp_ns) {
        let (key, came) = (key::timestamp_ns, came.as_ref());
        return Err(format!("metadata `{key}` is {came:?} (allowed: an Integer, or none for the newest)").into());
    }
    Ok(header.timestamp_ns.get().filter(|_| !header.is_unstamped()))
}

/// Starts the header of an answer with the request's metadata, without the keys that describe the request's payload, and
/// without a stamp that dora gave it.
pub(super) fn answer(header: &mut Header, request: &Header) {
    header.copy_from(request);
    header.forget_form();
    if header.unstamped.is_present() {
        header.timestamp_ns.clear();
        header.unstamped.clear();
    }
}
