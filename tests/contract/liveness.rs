//! Nothing silences the node: the bound of the design, from what was sent to the engine and what came out of it.
//!
//! Reading: n counts how far the newest stamp of all waited streams comes past both where it was and the newest target
//! sent, by samples that follow others of their stream: a first sample and a jump say where a clock stands, not how much
//! time has passed. The design allows `max_wait / period + 2` targets less than n. By its own rule the first target lies up to
//! `max_wait_ms` after the first sample and is due `max_wait_ms` later, so that a start (the first, or one after a jump)
//! takes twice the wait; and where it starts is the newest target that is due, whatever passed before. From there on
//! every step is held to one wait.

use crate::oracle::{Came, Observation, nanos};
use crate::scenario::{Event, Scenario, Trigger};

struct Stream {
    latency: i128,
    newest: Option<i128>,
    open: bool,
    wait: bool,
}

pub struct Liveness {
    step: i128,
    max_wait: Option<i128>,
    streams: Vec<Stream>,
    sent: Option<i128>,
    /// Since the last start: whether it has sent something, how much, and how far time has gone on since.
    started: bool,
    epoch: u64,
    observations: i128,
    advanced: i128,
}

impl Liveness {
    pub fn new(scenario: &Scenario) -> Self {
        let streams = scenario.modalities.iter();
        let streams = streams.map(|m| Stream {
            latency: nanos(m.latency_ms),
            newest: None,
            open: true,
            wait: m.wait,
        });
        Self {
            step: (1e9 / scenario.rate_hz).round() as i128 * scenario.emit_every as i128,
            max_wait: scenario.max_wait_ms.map(nanos),
            streams: streams.collect(),
            sent: None,
            started: false,
            epoch: 0,
            observations: 0,
            advanced: 0,
        }
    }

    fn newest(&self) -> Option<i128> {
        self.streams
            .iter()
            .filter(|s| s.open && s.wait)
            .filter_map(|s| s.newest)
            .max()
    }

    fn start(&mut self, started: bool) {
        (self.started, self.observations, self.advanced) = (started, 0, 0);
    }

    fn advance(&mut self, before: i128, now: i128) {
        let sent = self.sent.unwrap_or(i128::MIN);
        // After a jump of all clocks back their time counts anew, until it comes to where it was.
        if self.started || now >= sent {
            if !self.started && before < sent {
                self.advanced = 0;
            }
            self.advanced += (now - before.max(sent)).max(0);
        } else {
            self.advanced += (now - before).max(0);
        }
    }

    /// Takes an event (a sample only if the engine took it) and what was sent after it.
    pub fn event(&mut self, event: &Event, taken: bool, jumped: bool, sent: &[Observation]) -> Result<(), String> {
        let before = self.newest();
        match *event {
            Event::Push(i, stamp, _) if taken => {
                let stream = &mut self.streams[i];
                let time = i128::from(stamp) - stream.latency;
                let follows = stream.newest.is_some() && !jumped;
                stream.newest = if jumped {
                    Some(time)
                } else {
                    stream.newest.max(Some(time))
                };
                if jumped {
                    self.start(false);
                }
                if let (true, Some(now), Some(before)) = (follows, self.newest(), before) {
                    self.advance(before, now);
                }
            }
            Event::Push(..) | Event::Ask(_) | Event::Tick => {}
            Event::Close(i) | Event::Open(i) => {
                self.streams[i].open = matches!(event, Event::Open(_));
                self.start(self.started);
            }
            Event::Latency(i, ms) => {
                let stream = &mut self.streams[i];
                let moved = nanos(ms) - stream.latency;
                stream.latency += moved;
                stream.newest = stream.newest.map(|t| t - moved);
                self.start(self.started);
            }
            Event::MaxWait(ms) => {
                self.max_wait = ms.map(nanos);
                self.start(self.started);
            }
        }
        // A stream that was left behind counts as a jump of its clock, too, and a jump begins a new start.
        if let Some(epoch) = sent.last().map(|o| o.epoch).filter(|&epoch| epoch > self.epoch) {
            self.epoch = epoch;
            self.start(false);
        }
        self.sent = sent.last().map(|o| o.time).or(self.sent);
        self.observations += sent.len() as i128;
        if !self.started && !sent.is_empty() {
            self.start(true);
        }
        let Some(wait) = self.max_wait else { return Ok(()) };
        let waits = if self.started { wait } else { 2 * wait };
        let least = (self.advanced - waits).div_euclid(self.step) - 2;
        if self.streams.iter().any(|s| s.open && s.wait) && self.observations < least {
            return Err(format!(
                "silent: the newest stamp went on by {} ns and {} observations came, at least {least} should have",
                self.advanced, self.observations
            ));
        }
        Ok(())
    }
}

/// What a trigger asks for comes once `max_wait_ms` has passed, by the stamps alone.
pub struct Asked {
    trigger: Trigger,
    max_wait: Option<i128>,
    streams: Vec<Stream>,
    /// Since the last clock jump: the first time from which a leader's samples are targets for sure, and these samples.
    certain: Option<i128>,
    led: Vec<i128>,
    /// Requests that wait, by their numbers.
    waiting: Vec<(u64, Option<i128>)>,
    has_begun: bool,
    /// Where the newest stream was that is closed.
    was_at: Option<i128>,
    sent: Option<i128>,
}

impl Asked {
    pub fn new(scenario: &Scenario) -> Self {
        let Liveness { max_wait, streams, .. } = Liveness::new(scenario);
        Self {
            trigger: scenario.trigger,
            max_wait,
            streams,
            certain: None,
            led: Vec::new(),
            waiting: Vec::new(),
            has_begun: false,
            was_at: None,
            sent: None,
        }
    }

    fn newest(&self) -> Option<i128> {
        let waited = self.streams.iter().filter(|s| s.open && s.wait);
        waited.filter_map(|s| s.newest).max()
    }

    /// Takes an event: what became of a sample or a request, which streams were left behind then, what was sent after it, and
    /// the requests refused.
    pub fn event(
        &mut self,
        event: &Event,
        came: Option<Came>,
        asked: Option<u64>,
        left_behind: &[usize],
        sent: &[Observation],
        refused: &[u64],
    ) -> Result<(), String> {
        let before = self.newest();
        match *event {
            Event::Push(i, stamp, _) => {
                if let Some(Came { jumped, .. }) = came {
                    let stream = &mut self.streams[i];
                    let time = i128::from(stamp) - stream.latency;
                    stream.newest = stream.newest.filter(|_| !jumped).max(Some(time));
                    self.streams[i].open = true;
                    if jumped {
                        (self.has_begun, self.certain, self.was_at) = (false, None, None);
                        self.led.clear();
                    }
                    if matches!(self.trigger, Trigger::Stream { leader, .. } if leader == i) {
                        self.led.push(time);
                    }
                }
            }
            Event::Close(i) | Event::Open(i) => self.streams[i].open = matches!(event, Event::Open(_)),
            Event::Ask(time) => self.waiting.extend(asked.map(|number| (number, time.map(i128::from)))),
            _ => {}
        }
        // That counts as a jump.
        for &stream in left_behind {
            self.streams[stream].newest = None;
            self.has_begun = false;
        }
        for observation in sent {
            self.has_begun = true;
            self.sent = Some(observation.time);
            self.waiting.retain(|(number, _)| Some(*number) != observation.request);
        }
        self.waiting.retain(|(number, _)| !refused.contains(number));
        if !self.streams.iter().any(|s| s.open) && !self.waiting.is_empty() {
            return Err(format!("all is closed, and {:?} wait", self.waiting));
        }
        // The stream that was ahead is closed: targets may begin anew where the others are, as after a jump.
        if self.newest() < before {
            self.was_at = self.was_at.max(before);
        }
        let (Some(wait), Some(newest)) = (self.max_wait, self.newest()) else {
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
                // The start is at most a wait after the oldest sample held, which is one of the leader's or older.
                if let Some(first) = self.streams[leader].newest {
                    self.certain.get_or_insert(first + wait);
                }
                let is_due = |t: &&i128| **t <= due && (self.has_begun || Some(**t) >= self.certain);
                let missed = self.led.iter().filter(is_due).max();
                if self.certain.is_some() && missed.is_some_and(|missed| self.sent < Some(*missed)) {
                    return Err(format!(
                        "silent: {missed:?} is due at {due}, and {:?} was sent last",
                        self.sent
                    ));
                }
                self.led.retain(|t| *t > due);
            }
            Trigger::Request => match self.waiting.first() {
                Some((_, Some(time))) if *time <= due => return Err(format!("a request for {time} waits at {due}")),
                Some((_, None)) if self.has_begun && Some(newest) >= self.was_at => {
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
