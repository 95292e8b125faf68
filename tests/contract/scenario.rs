//! Random rigs, each a configuration of `fuse` with its streams, and their events: clocks, rates, losses, late
//! samples, closing streams.

use std::fmt;

use crate::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Previous,
    Nearest,
    Linear,
}

#[derive(Clone, Debug)]
pub struct Group {
    pub from: usize,
    pub to: usize,
    pub mode: Mode,
    pub max_age_ms: Option<f64>,
    pub max_gap_ms: Option<f64>,
    pub extrapolate_ms: Option<f64>,
}

#[derive(Clone, Debug)]
pub struct Modality {
    /// True if the stream is attached: its messages are published as they are. Attached streams come after the fused ones.
    pub attached: bool,
    /// Number of newest rows in which the stream's messages are attached; `None` for all rows.
    pub rows: Option<usize>,
    pub dim: usize,
    /// Groups of channels, in the order of the channels and without gaps.
    pub groups: Vec<Group>,
    pub latency_ms: f64,
    pub wait: bool,
    pub reorder_ms: f64,
    pub min_period_ms: Option<f64>,
    pub reset_ms: Option<f64>,
    pub jump_ms: Option<f64>,
}

/// Source of the targets: the time grid, the samples of a stream, requests, or a timer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trigger {
    Grid,
    Stream {
        leader: usize,
        every: usize,
        min_interval_ms: f64,
        samples: bool,
    },
    Request,
    Timer,
}

#[derive(Clone, Debug)]
pub enum Event {
    Push(usize, i64, Vec<f32>),
    /// Request for an observation at a time, ns, or at the newest time (`None`).
    Ask(Option<i64>),
    Tick,
    Close(usize),
    Open(usize),
    Latency(usize, f64),
    MaxWait(Option<f64>),
}

#[derive(Clone, Debug)]
pub struct Scenario {
    pub rate_hz: f64,
    pub window: usize,
    pub stride: usize,
    pub emit_every: usize,
    pub max_wait_ms: Option<f64>,
    pub trigger: Trigger,
    pub fill: f32,
    pub modalities: Vec<Modality>,
    pub events: Vec<Event>,
}

impl Scenario {
    pub fn dim(&self) -> usize {
        self.fused().map(|m| m.dim).sum()
    }

    /// Returns the modalities that are fused, not attached.
    pub fn fused(&self) -> impl Iterator<Item = &Modality> {
        self.modalities.iter().filter(|m| !m.attached)
    }

    /// Writes the section `fuse:` of the configuration as YAML.
    pub fn yaml(&self) -> String {
        let mut yaml = format!(
            "rate_hz: {}\nwindow: {}\nstride: {}\n",
            self.rate_hz, self.window, self.stride
        );
        yaml += &format!("emit_every: {}\nfill_value: {:?}\n", self.emit_every, self.fill);
        if let Some(ms) = self.max_wait_ms {
            yaml += &format!("max_wait_ms: {ms}\n");
        }
        yaml += &match self.trigger {
            Trigger::Grid => String::new(),
            Trigger::Stream {
                leader,
                every,
                min_interval_ms,
                samples,
            } => {
                let rows = if samples { "samples" } else { "period" };
                format!(
                    "trigger: {{ stream: s{leader}, every: {every}, min_interval_ms: {min_interval_ms}, rows: {rows} }}\n"
                )
            }
            Trigger::Request => "trigger: { request: ask }\n".into(),
            Trigger::Timer => "trigger: { timer: tick }\n".into(),
        };
        yaml += "modalities:\n";
        for (i, m) in self.modalities.iter().enumerate() {
            if m.attached && !self.modalities[i - 1].attached {
                yaml += "attach:\n";
            }
            match m.attached {
                true => yaml += &format!("  - input: s{i}\n    output: o{i}\n"),
                false => yaml += &format!("  - input: s{i}\n    dim: {}\n", m.dim),
            }
            for (key, value) in [
                ("reset_ms", m.reset_ms),
                ("jump_ms", m.jump_ms),
                ("min_period_ms", m.min_period_ms),
            ] {
                yaml += &value.map_or(String::new(), |ms| format!("    {key}: {ms}\n"));
            }
            yaml += &format!(
                "    latency_ms: {}\n    reorder_ms: {}\n    wait: {}\n",
                m.latency_ms, m.reorder_ms, m.wait
            );
            if m.attached {
                let age = m.groups[0].max_age_ms;
                yaml += &age.map_or(String::new(), |ms| format!("    max_age_ms: {ms}\n"));
                yaml += &m.rows.map_or(String::new(), |rows| format!("    rows: {rows}\n"));
            } else if let [all] = &m.groups[..] {
                yaml += &format!("    {}\n", all.rule().replace(", ", "\n    "));
            } else {
                yaml += "    groups:\n";
                for g in &m.groups {
                    yaml += &format!("      - {{ channels: [{}, {}], {} }}\n", g.from, g.to, g.rule());
                }
            }
        }
        yaml
    }
}

impl Group {
    fn rule(&self) -> String {
        let mut rule = format!("interpolation: {}", format!("{:?}", self.mode).to_lowercase());
        let limits = [
            ("max_age_ms", self.max_age_ms),
            ("max_gap_ms", self.max_gap_ms),
            ("extrapolate_ms", self.extrapolate_ms),
        ];
        for (key, value) in limits {
            rule += &value.map_or(String::new(), |ms| format!(", {key}: {ms}"));
        }
        rule
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Push(i, stamp, values) => write!(f, "push s{i} {stamp} {values:?}"),
            Self::Ask(time) => write!(f, "ask {time:?}"),
            Self::Tick => write!(f, "tick"),
            Self::Close(i) => write!(f, "close s{i}"),
            Self::Open(i) => write!(f, "open s{i}"),
            Self::Latency(i, ms) => write!(f, "set s{i}'s latency_ms to {ms}"),
            Self::MaxWait(ms) => write!(f, "set max_wait_ms to {ms:?}"),
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.yaml())?;
        self.events
            .iter()
            .enumerate()
            .try_for_each(|(i, event)| write!(f, "\n{i:4}  {event}"))
    }
}

const MS: f64 = 1e6;
const SECOND: f64 = 1e9;
const DAY: f64 = 86_400e9;
/// Largest distance of a stamp from 1970, ns. Design choice: a stamp 73 years or more from 1970 is refused.
const MOST_NS: i64 = 1 << 61;

fn mode_rule(r: &mut Random, from: usize, to: usize) -> Group {
    let mode = r.pick(&[Mode::Previous, Mode::Nearest, Mode::Linear]);
    let linear = mode == Mode::Linear;
    let limits = [2.5, 10.0, 33.333, 50.0, 100.0, 400.0, 2500.0];
    Group {
        from,
        to,
        mode,
        max_age_ms: (!linear && r.chance(0.5)).then(|| r.pick(&limits)),
        max_gap_ms: (linear && r.chance(0.5)).then(|| r.pick(&limits)),
        extrapolate_ms: (linear && r.chance(0.5)).then(|| r.pick(&limits)),
    }
}

fn modality(r: &mut Random, online: bool) -> Modality {
    let dim = r.below(4) + 1;
    let mut groups = Vec::new();
    if r.chance(0.3) {
        let mut from = 0;
        while from < dim {
            let to = from + 1 + r.below(dim - from);
            groups.push(mode_rule(r, from, to));
            from = to;
        }
    } else {
        groups.push(mode_rule(r, 0, dim));
    }
    let reorder_ms = if r.chance(0.6) {
        0.0
    } else {
        r.pick(&[0.7, 5.0, 20.0, 100.0, 300.0])
    };
    let reset_ms = (online && r.chance(0.4)).then(|| r.pick(&[50.0, 200.0, 1000.0, 5000.0]));
    Modality {
        attached: false,
        rows: None,
        dim,
        groups,
        latency_ms: if r.chance(0.5) {
            0.0
        } else {
            r.pick(&[0.001, 8.0, 33.0, 47.3, 250.0])
        },
        wait: r.chance(0.8),
        reorder_ms,
        // Some streams violate it. Their observations depend on the order of arrival, so offline rigs have no `min_period_ms`.
        min_period_ms: (online && r.chance(0.3)).then(|| r.pick(&[0.4, 2.0, 9.0, 30.0, 200.0])),
        reset_ms: reset_ms.map(|ms: f64| ms.max(reorder_ms)),
        jump_ms: (online && r.chance(0.3)).then(|| r.pick(&[300.0, 2000.0, 10_000.0, 60_000.0])),
    }
}

/// Draws a clock error, ns: an offset or a step of a millisecond to two days, forwards or backwards.
fn clock(r: &mut Random) -> f64 {
    let size = match r.below(5) {
        0 => r.log_uniform(MS, 100.0 * MS),
        1 => r.log_uniform(100.0 * MS, 3.0 * SECOND),
        2 => r.log_uniform(3.0 * SECOND, 60.0 * SECOND),
        3 => r.log_uniform(60.0 * SECOND, 3600.0 * SECOND),
        _ => r.log_uniform(3600.0 * SECOND, 2.0 * DAY),
    };
    if r.chance(0.5) { size } else { -size }
}

fn value(r: &mut Random) -> f32 {
    match r.below(200) {
        0 => 3e38,
        1 => -3e38,
        2 => -0.0,
        _ => (r.uniform(-100.0, 100.0)) as f32,
    }
}

/// Events, each with its time of arrival in ns.
type Arrivals = Vec<(f64, Event)>;

/// Draws the times at which a stream samples, ns since the start: about `most` of them at most, within `span` ns.
fn capture_times(r: &mut Random, span: f64, most: f64) -> Vec<f64> {
    let rate = r.log_uniform(0.5, 2000.0).min(most / (span / SECOND)).max(0.5);
    let period = SECOND / rate;
    let jitter = if r.chance(0.5) { 0.0 } else { r.uniform(0.0, 0.6) };
    // With bursts, a fast stream keeps its period over a long span.
    let burst = r
        .chance(0.2)
        .then(|| (r.uniform(0.05, 0.3), r.uniform(2.0, 10.0) * period));
    let mut times = Vec::new();
    let mut t = r.uniform(0.0, period) + if r.chance(0.2) { r.uniform(0.0, 0.5) * span } else { 0.0 };
    let end = if r.chance(0.15) {
        r.uniform(0.1, 1.0) * span
    } else {
        span
    };
    while t < end && (times.len() as f64) < 2.0 * most {
        times.push((t + period * jitter * r.uniform(-0.5, 0.5)).max(0.0));
        t += period;
        if let Some((part, length)) = burst {
            t += if r.chance(period / length) { length / part } else { 0.0 };
        }
    }
    for _ in 0..r.below(3) {
        if r.chance(0.5) {
            let (from, length) = (r.uniform(0.0, span), r.log_uniform(0.001, 0.5) * span);
            times.retain(|&t| t < from || t >= from + length);
        }
    }
    let lost = if r.chance(0.3) { r.uniform(0.0, 0.3) } else { 0.0 };
    times.retain(|_| !r.chance(lost));
    times
}

fn base_time(r: &mut Random) -> f64 {
    r.pick(&[0.0, 0.0, -4e9, 5e12, 1.7e18, 1.7e18, 1.7e18])
}

struct Rig {
    span: f64,
    base: i64,
    /// Time at which all clocks of the rig are set at once, ns, and the step by which they change, ns; `None` if they
    /// are not set.
    set: Option<(f64, f64)>,
}

fn plain(r: &mut Random, online: bool) -> (Scenario, Rig) {
    let span = r.log_uniform(1.0, 300.0) * SECOND;
    let most_targets = r.log_uniform(60.0, 1500.0);
    let rates = [1.0_f64, 2.5, 7.0, 10.0, 30.0, 33.3, 50.0, 100.0, 250.0];
    let rate_hz = r.pick(&rates).min((most_targets / (span / SECOND)).max(0.3));
    let count = r.below(4) + 1;
    let mut modalities: Vec<Modality> = (0..count).map(|_| modality(r, online)).collect();
    if modalities.iter().all(|m| !m.wait) {
        modalities[0].wait = true;
    }
    let waits = [0.0, 5.0, 20.0, 40.0, 100.0, 500.0, 2000.0];
    let scenario = Scenario {
        rate_hz: (rate_hz * 1000.0).round() / 1000.0,
        window: if r.chance(0.5) { 1 } else { r.below(8) + 1 },
        stride: if r.chance(0.7) { 1 } else { r.below(4) + 1 },
        emit_every: if r.chance(0.7) { 1 } else { r.below(5) + 1 },
        max_wait_ms: (online && r.chance(0.8)).then(|| r.pick(&waits)),
        trigger: Trigger::Grid,
        fill: r.pick(&[0.0, -1.5, 7.25]),
        modalities,
        events: Vec::new(),
    };
    let base = base_time(r) as i64 + r.below(1_000_000_000) as i64;
    let set = (online && r.chance(0.12)).then(|| (r.uniform(0.1, 0.9) * span, -clock(r).abs()));
    (scenario, Rig { span, base, set })
}

fn sort(events: &mut Arrivals) -> Vec<Event> {
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    events.drain(..).map(|(_, event)| event).collect()
}

fn values(r: &mut Random, dim: usize) -> Vec<f32> {
    (0..dim).map(|_| value(r)).collect()
}

/// Makes a rig on one clock, or on several with constant offsets, whose samples are late by less than `reorder_ms`. The
/// streams close at the end, or each after its last sample.
pub fn offline(r: &mut Random) -> Scenario {
    let (mut scenario, rig) = plain(r, false);
    let apart = r.chance(0.2);
    let as_they_end = r.chance(0.4);
    let most = r.log_uniform(10.0, 1000.0);
    let mut arrivals = Arrivals::new();
    let mut closings = Arrivals::new();
    for (i, m) in scenario.modalities.iter().enumerate() {
        let latency = m.latency_ms * MS;
        let offset = if apart { r.log_uniform(MS, 60.0 * SECOND) } else { 0.0 };
        let mut end = r.uniform(0.0, 2.0) * rig.span;
        if !r.chance(0.05) {
            let delay = r.uniform(0.0, 100.0 * MS);
            for time in capture_times(r, rig.span, most) {
                let stamp = rig.base + (time + offset + latency) as i64;
                // Above 0.99 of `reorder_ms`, rounding would decide whether the sample is late.
                let late = if r.chance(0.5) {
                    r.uniform(0.0, 0.99 * m.reorder_ms * MS)
                } else {
                    0.0
                };
                let arrival = (time.floor() + offset).floor() + late;
                let dim = m.dim;
                arrivals.push((arrival + delay, Event::Push(i, stamp, values(r, dim))));
                if r.chance(0.02) {
                    arrivals.push((arrival + delay, Event::Push(i, stamp, values(r, dim))));
                }
                end = arrival + delay;
            }
        }
        let last = arrivals
            .iter()
            .filter(|(_, e)| matches!(e, Event::Push(j, ..) if *j == i))
            .map(|a| a.0);
        end = last.fold(end, f64::max);
        let at = if as_they_end {
            end + r.uniform(0.0, 0.1) * rig.span
        } else {
            1e18 * r.uniform(1.0, 2.0)
        };
        closings.push((at, Event::Close(i)));
    }
    arrivals.append(&mut closings);
    scenario.events = sort(&mut arrivals);
    scenario
}

/// Puts the samples in another order of arrival: within a stream by less than its `reorder_ms`, between streams at random.
pub fn shuffled(scenario: &Scenario, r: &mut Random) -> Scenario {
    let mut streams = vec![Vec::new(); scenario.modalities.len()];
    let mut closings = Vec::new();
    for event in &scenario.events {
        match event {
            Event::Push(i, stamp, _) => {
                let late = r.uniform(0.0, 0.99 * scenario.modalities[*i].reorder_ms * MS) as i64;
                streams[*i].push((*stamp, stamp + late, event.clone()));
            }
            other => closings.push(other.clone()),
        }
    }
    let mut queues: Vec<_> = streams
        .into_iter()
        .map(|mut stream: Vec<(i64, i64, Event)>| {
            // Of two samples with the same time the later arrival wins, so they keep their order.
            stream.sort_by_key(|&(stamp, _, _)| stamp);
            for j in 1..stream.len() {
                if stream[j].0 == stream[j - 1].0 {
                    stream[j].1 = stream[j - 1].1;
                }
            }
            stream.sort_by_key(|&(_, arrival, _)| arrival);
            stream
                .into_iter()
                .map(|(_, _, event)| event)
                .collect::<std::collections::VecDeque<_>>()
        })
        .collect();
    let mut events = Vec::new();
    while queues.iter().any(|q| !q.is_empty()) {
        let i = r.below(queues.len());
        for _ in 0..=r.below(20) {
            events.extend(queues[i].pop_front());
        }
    }
    events.extend(closings);
    Scenario {
        events,
        ..scenario.clone()
    }
}

/// Makes a rig as it runs in practice: clocks that differ, step or are set, bad stamps, late and lost samples, and streams
/// that die, close and come back.
pub fn online(r: &mut Random) -> Scenario {
    let (mut scenario, rig) = plain(r, true);
    let apart = r.chance(0.3);
    let steps = r.chance(0.25);
    let bad_stamps = r.chance(0.25);
    let closes = r.chance(0.3);
    let most = r.log_uniform(10.0, 1000.0);
    let mut arrivals = Arrivals::new();
    for (i, m) in scenario.modalities.iter().enumerate() {
        if r.chance(0.06) {
            continue;
        }
        let latency = m.latency_ms * MS;
        let mut offset = if apart && r.chance(0.6) { clock(r) } else { 0.0 };
        let mut step = (steps && r.chance(0.6)).then(|| (r.uniform(0.0, 1.0) * rig.span, clock(r)));
        let mut set = rig.set;
        let delay = if r.chance(0.9) {
            r.uniform(0.0, 100.0 * MS)
        } else {
            r.uniform(0.0, 5.0 * SECOND)
        };
        let disorder = if r.chance(0.4) {
            0.0
        } else {
            r.pick(&[0.5, 0.9, 2.0]) * (m.reorder_ms + r.pick(&[0.0, 5.0])) * MS
        };
        let times = capture_times(r, rig.span, most);
        let bad = if bad_stamps && r.chance(0.7) {
            r.uniform(0.5, 3.0) / (times.len() as f64 + 1.0)
        } else {
            0.0
        };
        let not_samples = if r.chance(0.2) { 0.03 } else { 0.0 };
        for time in times {
            for change in [&mut step, &mut set] {
                if let Some((_, by)) = change.take_if(|(at, _)| time > *at) {
                    offset += by;
                }
            }
            let good = rig.base + (time + offset + latency) as i64;
            let mut stamp = good;
            if r.chance(bad) {
                stamp = match r.below(6) {
                    0 => 0,
                    1 => good / 1_000_000_000,
                    2 => good / 1_000_000,
                    3 => good + r.log_uniform(SECOND, 1e18) as i64,
                    4 => -good,
                    _ => good - r.log_uniform(SECOND, 1e18) as i64,
                };
            }
            stamp = stamp.clamp(1 - MOST_NS, MOST_NS - 1);
            let arrival = time + delay + r.uniform(0.0, 1.0) * disorder;
            let mut sample = values(r, m.dim);
            if r.chance(not_samples) {
                match r.below(3) {
                    0 => sample[0] = f32::NAN,
                    1 => sample[m.dim - 1] = f32::INFINITY,
                    _ => sample.push(1.0),
                }
            }
            arrivals.push((arrival, Event::Push(i, stamp, sample)));
            if r.chance(0.02) {
                let again = arrival + r.log_uniform(0.01 * MS, SECOND);
                arrivals.push((again, Event::Push(i, stamp, values(r, m.dim))));
            }
        }
        if closes && r.chance(0.7) {
            let from = r.uniform(0.0, 1.0) * rig.span;
            arrivals.push((from, Event::Close(i)));
            if r.chance(0.7) {
                arrivals.push((from + r.log_uniform(0.001, 1.0) * rig.span, Event::Open(i)));
            }
        }
    }
    if r.chance(0.5) {
        for i in 0..scenario.modalities.len() {
            arrivals.push((1e18 * r.uniform(1.0, 2.0), Event::Close(i)));
        }
    }
    scenario.events = sort(&mut arrivals);
    scenario
}

/// Makes an offline rig whose latencies and `max_wait_ms` change at run time.
pub fn tuned(r: &mut Random) -> Scenario {
    let mut scenario = offline(r);
    for m in &mut scenario.modalities {
        m.jump_ms = Some(5000.0);
    }
    scenario.max_wait_ms = r.chance(0.5).then(|| r.pick(&[20.0, 100.0, 500.0]));
    for _ in 0..r.below(4) + 1 {
        let at = r.below(scenario.events.len() + 1);
        let event = if r.chance(0.8) {
            Event::Latency(
                r.below(scenario.modalities.len()),
                r.pick(&[0.0, 1.0, 33.0, 250.0, 2000.0, 3000.5]),
            )
        } else {
            Event::MaxWait(r.chance(0.6).then(|| r.pick(&[0.0, 40.0, 1000.0])))
        };
        scenario.events.insert(at, event);
    }
    scenario
}

/// Makes an offline or online rig whose targets are the samples of one stream.
pub fn led(r: &mut Random) -> Scenario {
    let mut scenario = if r.chance(0.4) { offline(r) } else { online(r) };
    lead(&mut scenario, r);
    scenario
}

/// Makes an offline rig whose targets are the samples of one stream.
pub fn led_offline(r: &mut Random) -> Scenario {
    let mut scenario = offline(r);
    lead(&mut scenario, r);
    scenario
}

fn lead(scenario: &mut Scenario, r: &mut Random) {
    let leader = r.below(scenario.modalities.len());
    scenario.modalities[leader].wait = true;
    scenario.emit_every = 1;
    scenario.trigger = Trigger::Stream {
        leader,
        every: if r.chance(0.6) { 1 } else { r.below(6) + 1 },
        min_interval_ms: if r.chance(0.6) {
            0.0
        } else {
            r.pick(&[1.0, 12.5, 100.0, 1500.0])
        },
        samples: r.chance(0.5),
    };
}

/// Makes an offline or online rig whose trigger is requests.
pub fn asked(r: &mut Random) -> Scenario {
    let mut scenario = if r.chance(0.4) { offline(r) } else { online(r) };
    ask(&mut scenario, r);
    scenario
}

fn ask(scenario: &mut Scenario, r: &mut Random) {
    scenario.emit_every = 1;
    scenario.trigger = Trigger::Request;
    let asks = r.below(200) + 1;
    let bursts = r.chance(0.2);
    let mut events = Vec::new();
    let mut newest = None;
    let chance = asks as f64 / scenario.events.len().max(1) as f64;
    for event in scenario.events.drain(..) {
        while r.chance(chance.min(0.7)) {
            let often = if bursts && r.chance(0.1) { 300 } else { 1 };
            let base: i64 = newest.unwrap_or(0);
            for _ in 0..often {
                let time = match r.below(8) {
                    0..=2 => None,
                    3 | 4 => Some(base - r.log_uniform(1000.0, 0.9 * SECOND) as i64),
                    5 | 6 => Some(base + r.log_uniform(1000.0, 0.5 * SECOND) as i64),
                    _ => Some((base as f64 + clock(r)).clamp(-2e18, 2e18) as i64),
                };
                events.push(Event::Ask(time));
            }
        }
        if let Event::Push(_, stamp, _) = event {
            newest = Some(stamp);
        }
        events.push(event);
    }
    events.push(Event::Ask(None));
    scenario.events = events;
}

/// Makes an offline or online rig whose trigger is a timer.
pub fn ticked(r: &mut Random) -> Scenario {
    let mut scenario = if r.chance(0.4) { offline(r) } else { online(r) };
    tick(&mut scenario, r);
    scenario
}

fn tick(scenario: &mut Scenario, r: &mut Random) {
    scenario.emit_every = 1;
    scenario.trigger = Trigger::Timer;
    let chance = r.log_uniform(0.003, 0.9);
    let events = scenario.events.drain(..);
    let with_ticks = events.flat_map(|event| std::iter::once(event).chain(r.chance(chance).then_some(Event::Tick)));
    scenario.events = with_ticks.collect();
    scenario.events.push(Event::Tick);
}

/// Makes a rig where any clock may be wrong and everything changes at run time.
pub fn hostile(r: &mut Random) -> Scenario {
    let mut scenario = match r.below(10) {
        0 => slow(r),
        1..=3 => offline(r),
        _ => online(r),
    };
    if r.chance(0.95) {
        scenario.max_wait_ms = Some(r.pick(&[0.0, 5.0, 20.0, 40.0, 100.0, 500.0, 2000.0]));
    }
    for _ in 0..r.below(4) {
        let stream = r.below(scenario.modalities.len());
        let from = r.below(scenario.events.len() + 1);
        let by = clock(r) as i64;
        match r.below(6) {
            // An absurd stamp: after it the stream dies (0), comes back (1), or stays off (2, 3).
            kind @ 0..=3 => {
                let mut is_first = true;
                let mut of_stream = 0;
                scenario.events.retain_mut(|event| {
                    let Event::Push(i, stamp, _) = event else { return true };
                    of_stream += 1;
                    if *i != stream || of_stream <= from {
                        return true;
                    }
                    if is_first || kind >= 2 {
                        *stamp = stamp.saturating_add(by).clamp(1 - MOST_NS, MOST_NS - 1);
                    }
                    std::mem::take(&mut is_first) || kind >= 1
                });
            }
            // Another clock from the start.
            4 => {
                for event in &mut scenario.events {
                    if let Event::Push(i, stamp, _) = event
                        && *i == stream
                    {
                        *stamp = stamp.saturating_add(by).clamp(1 - MOST_NS, MOST_NS - 1);
                    }
                }
            }
            // Stamps in another unit from some event on.
            _ => {
                let unit = r.pick(&[1_000, 1_000_000, 1_000_000_000]);
                for event in &mut scenario.events[from..] {
                    if let Event::Push(i, stamp, _) = event
                        && *i == stream
                    {
                        *stamp /= unit;
                    }
                }
            }
        }
    }
    match r.below(8) {
        0 => ask(&mut scenario, r),
        1 => tick(&mut scenario, r),
        2 => lead(&mut scenario, r),
        _ => {}
    }
    for _ in 0..r.below(6) {
        let (at, stream) = (r.below(scenario.events.len() + 1), r.below(scenario.modalities.len()));
        let event = match r.below(8) {
            0 => Event::Latency(stream, r.pick(&[0.0, 1.0, 33.0, 250.0, 2000.0, 30_000.5, -20_000.0])),
            1 => Event::MaxWait(r.chance(0.8).then(|| r.pick(&[0.0, 40.0, 1000.0]))),
            2..=4 => Event::Open(stream),
            _ => Event::Close(stream),
        };
        scenario.events.insert(at, event);
    }
    scenario
}

/// Makes a rig of one stream with a good clock, which is waited for and never pauses, and of streams with clocks of their own. The
/// latter stop, close, open and get other latencies. The trigger is the time grid, ticks or requests.
pub fn one_steady_stream(r: &mut Random) -> Scenario {
    let (mut scenario, rig) = plain(r, true);
    scenario.rate_hz = r.pick(&[10.0, 50.0, 100.0]);
    scenario.max_wait_ms = Some(r.pick(&[0.0, 5.0, 20.0, 100.0, 500.0]));
    while scenario.modalities.len() < 2 {
        scenario.modalities.push(modality(r, true));
    }
    let good = &mut scenario.modalities[0];
    (good.wait, good.latency_ms, good.reorder_ms, good.min_period_ms) = (true, 0.0, 0.0, None);
    let streams = scenario.modalities.len();
    let period = r.pick(&[1.0, 8.0, 10.0, 33.0]) * MS;
    let leads: Vec<f64> = (0..streams)
        .map(|i| {
            if i > 0 && r.chance(0.8) {
                let most_behind = r.pick(&[-2.0, -60.0]);
                r.uniform(most_behind, 9.0) * SECOND
            } else {
                0.0
            }
        })
        .collect();
    let mut now = 0.0;
    for _ in 0..r.below(300) + 20 {
        now += period;
        let sample = values(r, scenario.modalities[0].dim);
        scenario.events.push(Event::Push(0, rig.base + now as i64, sample));
        for (i, lead) in leads.iter().enumerate().skip(1) {
            if r.chance(0.3) {
                let stamp = rig.base + (now + lead + r.uniform(0.0, 1.0) * period) as i64;
                scenario
                    .events
                    .push(Event::Push(i, stamp, values(r, scenario.modalities[i].dim)));
            }
            if r.chance(0.03) {
                let events = match r.below(7) {
                    0 | 1 => vec![Event::Close(i)],
                    2 | 3 => vec![Event::Open(i)],
                    4 => vec![Event::Close(i), Event::Open(i)],
                    _ => vec![Event::Latency(i, r.pick(&[0.0, 5.0, 100.0, 3000.0, 8000.0, -2000.0]))],
                };
                scenario.events.extend(events);
            }
        }
        if r.chance(0.01) {
            scenario.events.push(Event::MaxWait(Some(r.pick(&[0.0, 20.0, 100.0]))));
        }
    }
    match r.below(4) {
        0 => ask(&mut scenario, r),
        1 => tick(&mut scenario, r),
        _ => {}
    }
    scenario
}

/// Makes a rig of one or two slow streams, with periods of 0.5 to 15 s.
fn slow(r: &mut Random) -> Scenario {
    let mut scenario = online(r);
    scenario.modalities.truncate(1 + r.below(2));
    scenario.modalities[0].wait = true;
    let base = base_time(r) as i64;
    let mut arrivals = Arrivals::new();
    for (i, m) in scenario.modalities.iter().enumerate() {
        let period = r.log_uniform(0.5, 15.0) * SECOND;
        let mut time = r.uniform(0.0, 1.0) * period;
        for _ in 0..r.below(40) {
            arrivals.push((time, Event::Push(i, base + time as i64, values(r, m.dim))));
            time += period;
        }
    }
    scenario.events = sort(&mut arrivals);
    scenario
}

/// Attaches the last streams of a rig: their samples become messages, whose value is their number.
pub fn attached(r: &mut Random, rig: fn(&mut Random) -> Scenario) -> Scenario {
    let mut scenario = rig(r);
    while scenario.modalities.len() < 2 {
        scenario = rig(r);
    }
    let fused = 1 + r.below(scenario.modalities.len() - 1);
    scenario.modalities[0].wait = true;
    if let Trigger::Stream { leader, .. } = &mut scenario.trigger {
        *leader %= fused;
        scenario.modalities[*leader].wait = true;
    }
    let period = 1e9 / scenario.rate_hz;
    for m in &mut scenario.modalities[fused..] {
        m.attached = true;
        m.rows = r.chance(0.3).then(|| 1 + r.below(scenario.window));
        m.dim = 1;
        m.groups = vec![Group {
            from: 0,
            to: 1,
            mode: Mode::Previous,
            max_age_ms: r
                .chance(0.6)
                .then(|| r.pick(&[0.0, 2.5, 100.0, 400.0, 2500.0, period.round() / MS])),
            max_gap_ms: None,
            extrapolate_ms: None,
        }];
    }
    // Some attached streams that arrive in order have times on the grid, or a nanosecond beside it.
    let period = period.round() as i64;
    let beside: Vec<Option<i64>> = scenario.modalities[fused..]
        .iter()
        .map(|m| {
            (m.reorder_ms == 0.0 && r.chance(0.6)).then(|| (m.latency_ms * MS).round() as i64 + r.pick(&[-1, 0, 0, 1]))
        })
        .collect();
    for (number, event) in scenario.events.iter_mut().enumerate() {
        if let Event::Push(i, stamp, values) = event
            && *i >= fused
        {
            *values = vec![number as f32];
            if let Some(beside) = beside[*i - fused] {
                *stamp = ((*stamp).div_euclid(period) * period + beside).clamp(1 - MOST_NS, MOST_NS - 1);
            }
        }
    }
    scenario
}
