//! Checks the two bounds of docs/semantics.md, that nothing silences the node and nothing floods it, by the samples that the
//! engine got and the observations that it sent.
//!
//! Design choice: silence is judged at the samples of each stream that is waited for. It counts from the last observation,
//! or from a clock jump of that stream. With ticks as the trigger, silence is judged at a tick without an observation;
//! with requests, while a request without a time waits. For both triggers it also counts from when the due time last went
//! on by a period.
//!
//! A gap between the stamps of a stream needs no rule, as silence is not judged within it. Whether samples only catch up after
//! a pause depends on the grid clock G, which is taken from the oracle. So is the due time.

use crate::oracle::{Observation, PushOutcome, nanos};
use crate::scenario::{Event, Modality, Scenario, Trigger};

const SECOND: i128 = 1_000_000_000;

struct StreamProgress {
    latency: i128,
    newest: Option<i128>,
    open: bool,
    wait: bool,
    jump: i128,
    reset: i128,
    /// Number of samples since the last observation whose stamps advanced the stream. Samples that only caught up after a pause
    /// do not count.
    samples: u32,
    /// Time, ns, by which the samples that `samples` counts advanced the stream.
    advance: i128,
    /// Steps, ns, by which the grid clock G advanced since this stream's last sample, each caused by a sample
    /// of another stream.
    steps: Vec<i128>,
    catches_up_to: i128,
}

impl StreamProgress {
    fn reset_counts(&mut self) {
        (self.samples, self.advance, self.catches_up_to) = (0, 0, i128::MIN);
        self.steps.clear();
    }

    /// Counts a sample at `time`, ns. The flag `jumped` is true for a clock jump. The grid clock G was at `clock`, ns,
    /// before the sample.
    fn push(&mut self, time: i128, jumped: bool, clock: Option<i128>) {
        let steps = std::mem::take(&mut self.steps);
        let pause = steps.iter().sum::<i128>() - steps.iter().max().unwrap_or(&0);
        if jumped {
            self.reset_counts();
            self.newest = None;
        } else if pause > 0 {
            let caught_up = self.newest.unwrap_or(time) + pause.min(self.jump);
            self.catches_up_to = self.catches_up_to.max(caught_up);
        }
        let catches_up_to = clock.map_or(i128::MIN, |clock| self.catches_up_to.min(clock));
        if let Some(newest) = self.newest
            && time > newest.max(catches_up_to)
        {
            self.samples += 1;
            self.advance += time - newest.max(catches_up_to);
        }
        self.newest = self.newest.max(Some(time));
    }
}

pub struct Liveness {
    trigger: Trigger,
    period: i128,
    step: i128,
    max_wait: Option<i128>,
    /// Span of targets, ns, that `reorder_ms` and `min_period_ms` can hold back until one sample makes them all due.
    settles: i128,
    /// The longest `max_wait_ms` in force since the last observation, ns.
    longest_wait: i128,
    /// Due time, ns, when the counts of samples were last reset; `None` after a clock jump. Used for the triggers
    /// tick and request.
    was_due: Option<i128>,
    streams: Vec<StreamProgress>,
}

impl Liveness {
    pub fn new(scenario: &Scenario) -> Self {
        let streams = scenario.modalities.iter();
        let streams = streams.map(|m| StreamProgress {
            latency: nanos(m.latency_ms),
            newest: None,
            open: true,
            wait: m.wait,
            jump: nanos(m.jump_ms.unwrap_or(10_000.0)),
            reset: nanos(m.reset_ms.unwrap_or(m.reorder_ms.max(1000.0))),
            samples: 0,
            advance: 0,
            steps: Vec::new(),
            catches_up_to: i128::MIN,
        });
        let longest = |of: fn(&Modality) -> f64| nanos(scenario.modalities.iter().map(of).fold(0.0, f64::max));
        let period = (1e9 / scenario.rate_hz).round() as i128;
        Self {
            trigger: scenario.trigger,
            period,
            step: period * scenario.emit_every as i128,
            max_wait: scenario.max_wait_ms.map(nanos),
            settles: longest(|m| m.reorder_ms) + longest(|m| m.min_period_ms.unwrap_or(0.0)),
            longest_wait: 0,
            was_due: None,
            streams: streams.collect(),
        }
    }

    /// Checks the bounds after an event. The argument `came` is the outcome of its sample; `None` if the event is not an
    /// accepted sample. The grid clock G was `clock[0]` before the event and is `clock[1]` after it, when the due time is
    /// `due`. The flag `is_asked` is true if a request without a time waits.
    pub fn event(
        &mut self,
        event: &Event,
        came: Option<PushOutcome>,
        clock: [Option<i128>; 2],
        due: Option<i128>,
        sent: &[Observation],
        is_asked: bool,
    ) -> Result<(), String> {
        match (event, came) {
            (&Event::Push(i, stamp, _), Some(PushOutcome { jumped, .. })) => {
                let is_step = self.streams[i].wait && !jumped;
                if let [Some(before), Some(after)] = clock
                    && after > before
                    && is_step
                {
                    let others = self.streams.iter_mut().enumerate().filter(|&(j, _)| j != i);
                    others.for_each(|(_, s)| s.steps.push(after - before));
                }
                let stream = &mut self.streams[i];
                stream.push(i128::from(stamp) - stream.latency, jumped, clock[0]);
            }
            (&Event::Latency(i, ms), _) => {
                let stream = &mut self.streams[i];
                let moved = nanos(ms) - stream.latency;
                stream.latency += moved;
                stream.newest = stream.newest.map(|t| t - moved);
                stream.catches_up_to = stream.catches_up_to.saturating_sub(moved);
            }
            (&Event::Close(i) | &Event::Open(i), _) => self.streams[i].open = matches!(event, Event::Open(_)),
            (Event::MaxWait(ms), _) => {
                let had_none = self.max_wait.is_none();
                self.max_wait = ms.map(nanos);
                if had_none || ms.is_none() {
                    self.streams.iter_mut().for_each(StreamProgress::reset_counts);
                }
            }
            _ => {}
        }
        let is_due = matches!(self.trigger, Trigger::Timer | Trigger::Request);
        if came.is_some_and(|came| came.jumped) {
            self.was_due = None;
        }
        let goes_on = is_due && due.is_some_and(|due| self.was_due.is_some_and(|was| due - was >= self.period));
        if goes_on || self.was_due.is_none() || !sent.is_empty() {
            self.was_due = due;
        }
        if goes_on || !sent.is_empty() {
            self.streams.iter_mut().for_each(|s| (s.samples, s.advance) = (0, 0));
            self.longest_wait = 0;
        }
        let Some(wait) = self.max_wait else {
            return Ok(());
        };
        self.longest_wait = self.longest_wait.max(wait);
        let is_told = match self.trigger {
            Trigger::Grid => matches!(event, Event::Push(..)),
            Trigger::Timer => matches!(event, Event::Tick),
            Trigger::Request => is_asked,
            Trigger::Stream { .. } => false,
        };
        let most = 2 * self.longest_wait + 6 * self.step;
        let is_silent = |s: &&StreamProgress| s.open && s.wait && s.samples > 8 && s.advance > most;
        if let Some(stream) = self.streams.iter().find(is_silent).filter(|_| is_told) {
            return Err(format!(
                "silent: a stream went on by {} ns in {} samples without an observation",
                stream.advance, stream.samples
            ));
        }
        let (&Event::Push(i, ..), Trigger::Grid) = (event, self.trigger) else {
            return Ok(());
        };
        let stream = &self.streams[i];
        // Where targets begin, they may catch up with a second, a period, or the lateness of a first sample.
        let caught_up = SECOND.max(self.period).max(stream.reset);
        let most = stream.jump.max(caught_up) + wait + self.settles;
        if sent.len() as i128 > most / self.step + 1 {
            return Err(format!(
                "flooded: {} observations by one sample of stream {i}",
                sent.len()
            ));
        }
        Ok(())
    }
}

/// Checks that an observation that a trigger asks for is sent at the latest once the stamps are `max_wait_ms` past its target.
pub struct TriggerBound {
    trigger: Trigger,
    max_wait: Option<i128>,
    streams: Vec<StreamProgress>,
    /// Time, ns, from which on every sample of the triggering stream must be a target; `None` after a clock jump.
    certain_from: Option<i128>,
    /// Times of the triggering stream's samples that are not due yet, ns, since the last clock jump.
    leader_times: Vec<i128>,
    /// Requests without an answer, each as its number and the time that it asks for, ns; `None` asks for the newest time.
    waiting: Vec<(u64, Option<i128>)>,
    has_begun: bool,
    /// Largest value of the grid clock G, ns, before a stream closed and G went back.
    clock_before_close: Option<i128>,
    sent: Option<i128>,
}

impl TriggerBound {
    pub fn new(scenario: &Scenario) -> Self {
        let Liveness { max_wait, streams, .. } = Liveness::new(scenario);
        Self {
            trigger: scenario.trigger,
            max_wait,
            streams,
            certain_from: None,
            leader_times: Vec::new(),
            waiting: Vec::new(),
            has_begun: false,
            clock_before_close: None,
            sent: None,
        }
    }

    /// True if the oldest unanswered request asks for the newest time that is due.
    pub fn is_asked(&self) -> bool {
        self.waiting.first().is_some_and(|(_, time)| time.is_none())
    }

    /// Checks the bound after an event. The argument `came` is the outcome of its sample, and `asked` the number of its
    /// request; each is `None` if the event is not an accepted one. The grid clock G was `clock[0]` before the event and is
    /// `clock[1]` after it. The flag `moved` is true if G moved to another stream.
    pub fn event(
        &mut self,
        (event, came, asked): (&Event, Option<PushOutcome>, Option<u64>),
        clock: [Option<i128>; 2],
        moved: bool,
        sent: &[Observation],
        refused: &[u64],
    ) -> Result<(), String> {
        let [before, newest] = clock;
        match *event {
            Event::Push(i, stamp, _) => {
                if let Some(PushOutcome { jumped, .. }) = came {
                    let stream = &mut self.streams[i];
                    let time = i128::from(stamp) - stream.latency;
                    stream.newest = stream.newest.filter(|_| !jumped).max(Some(time));
                    self.streams[i].open = true;
                    if jumped {
                        (self.has_begun, self.certain_from, self.clock_before_close) = (false, None, None);
                        self.leader_times.clear();
                    }
                    if matches!(self.trigger, Trigger::Stream { leader, .. } if leader == i) {
                        self.leader_times.push(time);
                    }
                }
            }
            Event::Close(i) | Event::Open(i) => self.streams[i].open = matches!(event, Event::Open(_)),
            Event::Ask(time) => self.waiting.extend(asked.map(|number| (number, time.map(i128::from)))),
            Event::MaxWait(ms) => self.max_wait = ms.map(nanos),
            Event::Latency(i, ms) => {
                self.streams[i].latency = nanos(ms);
                (self.has_begun, self.certain_from) = (false, None);
                self.leader_times.clear();
            }
            Event::Tick => {}
        }
        if moved {
            (self.has_begun, self.certain_from, self.clock_before_close) = (false, None, None);
        }
        for observation in sent {
            // A request for a time may be answered before the start.
            let is_timed = self
                .waiting
                .iter()
                .any(|(number, time)| Some(*number) == observation.request && time.is_some());
            self.has_begun |= !is_timed;
            self.sent = Some(observation.time);
            self.waiting.retain(|(number, _)| Some(*number) != observation.request);
        }
        self.waiting.retain(|(number, _)| !refused.contains(number));
        if !self.streams.iter().any(|s| s.open && s.wait) && !self.waiting.is_empty() {
            return Err(format!("all is closed, and {:?} wait", self.waiting));
        }
        // The stream that was ahead is closed: targets may begin anew where the others are, as after a jump.
        if newest < before {
            self.clock_before_close = self.clock_before_close.max(before);
        }
        let (Some(wait), Some(newest)) = (self.max_wait, newest) else {
            return Ok(());
        };
        let due = newest - wait;
        match self.trigger {
            Trigger::Stream {
                leader,
                every: 1,
                min_interval_ms: 0.0,
                ..
            } => {
                // The start is at most `max_wait_ms` after the oldest sample held, which is the leader's first one or older.
                if let Some(first) = self.streams[leader].newest.filter(|_| !self.leader_times.is_empty()) {
                    self.certain_from.get_or_insert(first + wait);
                }
                let is_due = |t: &&i128| **t <= due && (self.has_begun || Some(**t) >= self.certain_from);
                let missed = self.leader_times.iter().filter(is_due).max();
                if self.certain_from.is_some() && missed.is_some_and(|missed| self.sent < Some(*missed)) {
                    return Err(format!(
                        "silent: {missed:?} is due at {due}, and {:?} was sent last",
                        self.sent
                    ));
                }
                self.leader_times.retain(|t| *t > due);
            }
            Trigger::Request => match self.waiting.first() {
                Some((_, Some(time))) if *time <= due => return Err(format!("a request for {time} waits at {due}")),
                Some((_, None)) if self.has_begun && Some(newest) >= self.clock_before_close => {
                    return Err(format!("a request for the newest waits at {due}"));
                }
                _ => {}
            },
            Trigger::Timer if matches!(event, Event::Tick) && self.has_begun && self.sent < Some(due) => {
                return Err(format!("silent: a tick at {due}, and {:?} was sent last", self.sent));
            }
            _ => {}
        }
        Ok(())
    }
}
