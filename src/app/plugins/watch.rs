//! Watch over the streams of an operation: logs why there are no observations, and which stamps can't be capture times.
//!
//! Nothing in this module has an influence on the observations. The module may look at the wall clock, which observations
//! must not.

mod blame;
mod stream;

use crate::app::rate_limit::RateLimit;
use crate::app::{Change, HealthIssue, Level, Outbox};
use robocache_ops::align::{Notice, StreamState, Timeline, TriggerKind};
use robocache_time::ns_to_s;
use std::time::{Duration, Instant};
pub(super) use stream::StreamWatch;

/// Shortest time without an observation after which the log says why.
const SILENT: Duration = Duration::from_secs(2);

/// Shortest time between two log lines about the same problem.
const SAY_AGAIN: Duration = Duration::from_secs(10);

/// Period at which an operation calls [`Watch::check`].
pub(super) const CHECK_EVERY: Duration = Duration::from_millis(500);

/// Watch over the samples and observations of one operation, which logs what is missing.
pub(super) struct Watch {
    operation: String,
    /// Time without an observation after which the log says why: [`SILENT`], or longer if observations come seldom.
    silent: Duration,
    start: Option<Instant>,
    last_observation: Option<Instant>,
    said: RateLimit,
    observations: u64,
    streams: Vec<StreamWatch>,
    /// Number of samples of the stream that sets the targets, counted at the last observation.
    leader_samples: u64,
    /// Watch over the trigger's own input; its name is empty if the trigger has no input of its own.
    trigger: StreamWatch,
    is_trigger_closed: bool,
}

impl Watch {
    /// Makes the watch over the streams and the trigger of a timeline.
    pub(super) fn new(operation: &str, timeline: &Timeline) -> Self {
        let now = Instant::now();
        let stream = |name: &str| StreamWatch::new(name, now);
        let period = Duration::from_nanos(timeline.period_ns().unsigned_abs());
        Self {
            operation: operation.to_owned(),
            silent: match timeline.trigger() {
                TriggerKind::Grid => SILENT.max(period * 2),
                _ => SILENT.max(Duration::from_nanos(timeline.min_interval_ns().unsigned_abs()) * 2),
            },
            start: None,
            last_observation: None,
            said: RateLimit::default(),
            observations: 0,
            streams: timeline.inputs().map(stream).collect(),
            leader_samples: 0,
            trigger: stream(timeline.trigger_input().unwrap_or_default()),
            is_trigger_closed: false,
        }
    }

    /// Counts a request or a tick on the trigger's input.
    pub(super) fn triggered(&mut self) {
        let now = Instant::now();
        self.trigger.samples += 1;
        self.trigger.last = Some(now);
        self.trigger.first.get_or_insert(now);
        self.is_trigger_closed = false;
    }

    /// Notes that the trigger's input was closed, or opened again.
    pub(super) fn trigger_changed(&mut self, to: Change) {
        self.is_trigger_closed = to == Change::Closed;
    }

    /// Number of observations since the start.
    pub(super) fn observations(&self) -> u64 {
        self.observations
    }

    /// Counts `times` messages or samples of a stream that were refused.
    pub(super) fn refused(&mut self, stream: usize, times: u64) {
        self.streams[stream].refused += times;
    }

    /// Counts an accepted sample of a stream, and warns if the sample's stamp can't be a capture time.
    pub(super) fn sample(&mut self, stream: usize, stamp_ns: i64, timeline: &Timeline, out: &mut Outbox<'_>) {
        let now = Instant::now();
        let of = &mut self.streams[stream];
        of.came(now);
        let arrival_ns = out.times.arrival_ns;
        of.lead_ns = arrival_ns.map(|arrival_ns| stamp_ns.saturating_sub(arrival_ns));
        if let Some(kind) = of.judge(now, stamp_ns, arrival_ns) {
            out.warn(stream, kind, of.stamp_problem.as_deref().unwrap_or_default());
        }
        if of.samples == 1 {
            self.first_sample(stream, timeline, out);
        }
    }

    /// Warns if the first sample of a stream is more than `reset_ms` from the samples of every other stream: their
    /// clocks differ.
    fn first_sample(&self, stream: usize, timeline: &Timeline, out: &mut Outbox<'_>) {
        let StreamState {
            newest_ns, reset_ns, ..
        } = timeline.stream(stream);
        let Some(own) = newest_ns else { return };
        let others = (0..self.streams.len()).filter(|&other| other != stream);
        // The distance is from all samples of the other stream: a long message is ahead by its length alone.
        let distance = |other: usize| {
            let state = timeline.stream(other);
            Some((other, own - own.clamp(state.oldest_ns?, state.newest_ns?)))
        };
        let nearest = others.filter_map(distance).min_by_key(|(_, distance)| distance.abs());
        let Some((other, distance)) = nearest else { return };
        if distance.abs() > reset_ns {
            let text = format_args!(
                "its first sample is {} `{}`: their clocks differ (`latency_ms` or robocache-clock puts them right)",
                apart(distance),
                self.streams[other].name
            );
            out.warn(stream, "clocks that differ", text);
        }
    }

    /// Logs what the timeline reports: a stream behind or ahead of the others, a new stream that the targets follow, skipped
    /// targets, or lost samples.
    pub(super) fn notice(&self, notice: Notice, out: &mut Outbox<'_>) {
        match notice {
            Notice::StartedWithout { modality, behind_ns } => {
                let why = behind_ns.map_or("has no sample yet".to_owned(), |behind| {
                    format!("is {} the first target", apart(-behind))
                });
                let text = format_args!("observations start without it: it {why}");
                out.warn(modality, "behind at the start", text);
            }
            Notice::Aside { modality, ahead_ns } => {
                let text = format_args!(
                    "its newest sample is {:.3} s ahead of the other streams: observations go on without it \
                     (`latency_ms` or robocache-clock puts its clock right)",
                    ns_to_s(ahead_ns)
                );
                out.warn_seldom(modality, "ahead of the others", text);
            }
            Notice::Moved { modality, by_ns } => {
                let text = format_args!(
                    "targets begin anew at its samples, {} the streams that they followed: those don't go on",
                    apart(by_ns)
                );
                out.warn(modality, "targets follow it", text);
            }
            Notice::Skipped { targets } => tracing::warn!(
                "{}: {targets} targets fell due at once and are skipped, and targets begin anew (`jump_ms` says which stamps are too far ahead)",
                self.operation
            ),
            Notice::SamplesLost { modality, samples } => out.fault_of_input(
                modality,
                samples as u64,
                format_args!("{samples} samples are lost with the device that had them"),
            ),
        }
    }

    /// Counts an observation that was sent.
    pub(super) fn observation(&mut self, timeline: &Timeline) {
        self.observations += 1;
        self.leader_samples = timeline.leader().map_or(0, |leader| self.streams[leader].samples);
        self.last_observation = Some(Instant::now());
    }

    /// Records a stream's validity in the newest row of an observation, and the age of its newest sample, ns (-1 if none).
    pub(super) fn observed(&mut self, stream: usize, age_ns: i64, is_valid: bool) {
        self.streams[stream].seen.record(|seen| {
            seen.observed += 1;
            seen.valid += u64::from(is_valid);
            seen.age_ns = seen.age_ns.max(age_ns);
        });
    }

    /// Current problem of an input, which belongs to a stream or is the trigger's; `None` if there is no problem.
    pub(super) fn health_issue(&self, input: usize) -> Option<&HealthIssue> {
        self.streams.get(input).unwrap_or(&self.trigger).health_issue.as_ref()
    }

    /// Logs why there are no observations, if none was sent for too long. Returns the time of the next check. `asked` is the
    /// arrival of the oldest waiting request.
    pub(super) fn check(&mut self, now: Instant, asked: Option<Instant>, timeline: &Timeline) -> Instant {
        // The time of the first call counts as an observation.
        let last = *self.last_observation.get_or_insert(now);
        let start = *self.start.get_or_insert(now);
        let silent = now.saturating_duration_since(last.max(asked.unwrap_or(last)));
        let inputs = self.streams.iter_mut().chain([&mut self.trigger]);
        inputs.for_each(|input| input.health_issue = None);
        self.look_for_invalid(now, start, timeline);
        self.streams.iter_mut().for_each(StreamWatch::set_stamp_ailment);
        if silent >= self.silent
            && !self.is_silent_by_design(now, last, start, timeline)
            && let Some((guilty, cause)) = self.why_silent(now, timeline)
        {
            let health_issue = HealthIssue {
                level: Level::Error,
                what: format!("no observation for {:.1} s", silent.as_secs_f64()),
                cause,
            };
            if self.said.take_turn(now, SAY_AGAIN) {
                tracing::error!("{}: {health_issue}", self.operation);
            }
            self.streams.get_mut(guilty).unwrap_or(&mut self.trigger).health_issue = Some(health_issue);
        }
        if self.observations > 0 && now.saturating_duration_since(last) < self.silent {
            self.warn_of_quiet_streams(now, start, timeline);
        }
        now + CHECK_EVERY
    }

    /// Logs a warning about each stream that is silent while observations are published without it.
    fn warn_of_quiet_streams(&mut self, now: Instant, start: Instant, timeline: &Timeline) {
        let last = self.last_observation.unwrap_or(start);
        for (i, stream) in self.streams.iter_mut().enumerate() {
            let goes_on = last.saturating_duration_since(stream.last.unwrap_or(start)) >= SILENT / 2;
            if timeline.stream(i).open && goes_on {
                let besides = ", and observations go on without it";
                stream.warn_if_quiet([now, start], &self.operation, besides);
            }
        }
    }

    /// True if no observation is expected now. With requests as the trigger: no request waits. With a timer: its input is closed,
    /// or no tick has come since the last observation and the next one is not overdue. With a stream that sets the targets: it has
    /// sent too few samples since the last observation, and the next one is not overdue.
    fn is_silent_by_design(&self, now: Instant, last: Instant, start: Instant, timeline: &Timeline) -> bool {
        let rests = |trigger: &StreamWatch| {
            let spoke = trigger.last.is_some_and(|spoke| spoke > last);
            !spoke && trigger.quiet(now, start).is_none()
        };
        match (timeline.trigger(), timeline.leader()) {
            (TriggerKind::Request, _) => timeline.waiting_requests() == 0,
            (TriggerKind::Timer, _) => self.is_trigger_closed || rests(&self.trigger),
            (_, Some(leader)) => {
                let of = &self.streams[leader];
                let too_few = of.samples - self.leader_samples < timeline.every() && of.quiet(now, start).is_none();
                rests(of) || too_few
            }
            _ => false,
        }
    }

    /// Describes the trigger's state, such as a request that waits, to begin the reason for a missing observation. Empty if the
    /// grid sets the targets.
    fn why_of_trigger(&self, now: Instant, timeline: &Timeline) -> String {
        match (timeline.trigger(), timeline.leader()) {
            (TriggerKind::Request, _) => match timeline.waiting_requests() {
                1 => "a request waits: ".to_owned(),
                waiting => format!("{waiting} requests wait: "),
            },
            (TriggerKind::Timer, _) => match self.trigger.last {
                None => format!("the timer `{}` has not ticked: ", self.trigger.name),
                Some(last) => format!(
                    "the timer `{}` ticked last {:.1} s ago, and found nothing newer: ",
                    self.trigger.name,
                    now.saturating_duration_since(last).as_secs_f64()
                ),
            },
            (_, Some(leader)) => {
                let (leader, is_open) = (&self.streams[leader].name, timeline.stream(leader).open);
                let state = if is_open { "" } else { " and which is closed" };
                format!("the targets are the samples of `{leader}`{state}: ")
            }
            _ => String::new(),
        }
    }
}

/// Formats a difference of capture times, ns, as seconds `ahead of` or, if it is negative, `behind` another stream.
fn apart(ns: i64) -> String {
    let seconds = ns_to_s(ns).abs();
    let side = if ns < 0 { "behind" } else { "ahead of" };
    format!("{seconds:.3} s of capture time {side}")
}

#[cfg(test)]
mod tests;
