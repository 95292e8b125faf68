//! Nothing silences the node: the bound of the design, from what was sent to the engine and what came out of it.
//!
//! Reading: n counts how far the newest stamp of all waited streams comes past both where it was and the newest target
//! sent, by samples that follow others of their stream: a first sample and a jump say where a clock stands, not how much
//! time has passed. The design allows `max_wait / period + 2` targets less than n. By its own rule the first target lies up to
//! `max_wait_ms` after the first sample and is due `max_wait_ms` later, so that a start (the first, or one after a jump)
//! takes twice the wait; and where it starts is the newest target that is due, whatever passed before. From there on
//! every step is held to one wait.

use crate::oracle::{Observation, nanos};
use crate::scenario::{Event, Scenario};

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
