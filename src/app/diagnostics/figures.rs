//! Collector of a node's diagnostics, updated with each message and each result.
//!
//! After the start it allocates nothing. A message costs a few clock readings and additions.

use super::judge::{Faulty, InputState, LONGEST_LEAD_NS, SinceReport, judge};
use super::recent::{Figure, Recent, Times};
use super::{Level, Report, Row};
use robocache_device::Device;
use robocache_ops::voxelize::VoxelCounters;
use robocache_stream::Message;
use robocache_time::is_stamp_in_range;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Backward step of a stamp, ns, beyond which the sender's clock counts as set back. A smaller step counts as a message out of
/// order.
const RESET_NS: i64 = 1_000_000_000;

/// Delay from a stamp to its arrival, ns, from which on the stamp counts as one of another clock or of a recording. Such a
/// delay is left out of the statistics.
const OTHER_CLOCK_NS: i64 = 3_600_000_000_000;

/// Multiple of the median step between capture times beyond which a step counts as a gap, as in `robocache info`.
const GAP_STEPS: f64 = 1.5;

/// Number of recent steps between capture times from which on their median is used to find gaps.
const LEAST_STEPS: u64 = 8;

/// Collector of the diagnostics of all operations of a node.
pub(in crate::app) struct Diagnostics {
    operations: Vec<OperationFigures>,
    observations: u64,
    /// Sums of the point counts of all grids; `None` before the first grid.
    points: Option<VoxelCounters>,
    results: Recent<Results>,
}

struct OperationFigures {
    inputs: Vec<Input>,
    device: Option<Device>,
    device_bytes: usize,
}

/// Collector of one operation's diagnostics, from [`Outbox::figures`](crate::app::Outbox::figures).
pub struct Figures<'a> {
    diagnostics: &'a mut Diagnostics,
    operation: usize,
}

#[derive(Default)]
struct Results {
    observations: u64,
    wait: Times,
    compute: Times,
}

struct Input {
    messages: u64,
    out_of_order: u64,
    gaps: u64,
    newest_ns: Option<i64>,
    /// Step between successive capture times above which a gap is counted, ns; `i64::MAX` until the median step is known.
    gap_ns: i64,
    /// Longest step between capture times since the last report, ns.
    longest_step_ns: i64,
    since: Instant,
    first: Option<Instant>,
    last: Option<Instant>,
    recent: Recent<Samples>,
    /// Row of this input in the last report.
    row: Row,
}

#[derive(Default)]
struct Samples {
    messages: u64,
    steps: u64,
    period: Times,
    delay: Times,
    delays: u64,
    /// Number of recent messages whose stamps are more than [`LONGEST_LEAD_NS`] ahead of their arrival.
    ahead: u64,
    /// Greatest time that a recent stamp was ahead of its arrival, ns; 0 if none was ahead.
    lead_ns: i64,
    age: Times,
    observed: u64,
    valid: u64,
}

impl Figure for Results {
    fn clear(&mut self) {
        self.observations = 0;
        self.wait.clear();
        self.compute.clear();
    }
}

impl Figure for Samples {
    fn clear(&mut self) {
        (self.messages, self.steps, self.observed, self.valid) = (0, 0, 0, 0);
        (self.delays, self.ahead, self.lead_ns) = (0, 0, 0);
        self.period.clear();
        self.delay.clear();
        self.age.clear();
    }
}

impl Input {
    fn new(operation: &str, input: &str, now: Instant) -> Self {
        Self {
            messages: 0,
            out_of_order: 0,
            gaps: 0,
            newest_ns: None,
            gap_ns: i64::MAX,
            longest_step_ns: 0,
            since: now,
            first: None,
            last: None,
            recent: Recent::new(now),
            row: Row {
                operation: operation.to_owned(),
                input: input.to_owned(),
                ..Row::default()
            },
        }
    }

    fn count_message(&mut self, message: &Message) {
        let now = Instant::now();
        self.messages += 1;
        self.first.get_or_insert(now);
        self.last = Some(now);
        // Operations refuse a stamp out of range, so nothing is counted from it.
        let stamp = message.header.timestamp_ns.get();
        let stamp = stamp.filter(|&stamp| is_stamp_in_range(stamp));
        let step = stamp.and_then(|stamp| self.step(stamp));
        let delay = stamp.zip(message.arrival_ns).filter(|_| !message.header.is_unstamped());
        let delay = delay.map(|(stamp, arrival)| arrival.saturating_sub(stamp));
        let delay = delay.filter(|&ns| ns < OTHER_CLOCK_NS);
        self.recent.record(|samples| {
            samples.messages += 1;
            if let Some(step) = step {
                samples.steps += 1;
                samples.period.record(step);
            }
            if let Some(delay) = delay {
                samples.delay.record(delay);
                samples.delays += 1;
                samples.ahead += u64::from(delay < -LONGEST_LEAD_NS);
                samples.lead_ns = samples.lead_ns.max(delay.saturating_neg());
            }
        });
    }

    /// Records a stamp, ns, and counts gaps and messages out of order. Returns the step from the newest stamp so far, ns; `None` if
    /// the new stamp is not newer.
    fn step(&mut self, stamp: i64) -> Option<i64> {
        let step = self.newest_ns.map(|newest| stamp.saturating_sub(newest));
        match step {
            Some(step) if (-RESET_NS..0).contains(&step) => {
                self.out_of_order += 1;
                return None;
            }
            _ => self.newest_ns = Some(stamp),
        }
        let step = step.filter(|&step| step > 0)?;
        self.gaps += u64::from(step > self.gap_ns);
        self.longest_step_ns = self.longest_step_ns.max(step);
        Some(step)
    }

    /// Messages per second, over the last 5 to 10 seconds or since the first message.
    fn rate_hz(&self, now: Instant) -> f64 {
        let (since, messages) = (self.recent.since(), self.recent.get().messages);
        let (since, messages) = match self.first {
            Some(first) if first >= since => (first, messages.saturating_sub(1)),
            _ => (since, messages),
        };
        messages as f64 / now.saturating_duration_since(since).as_secs_f64().max(1e-3)
    }

    /// Returns the facts about the time since the last report: longest step, stamps ahead of their arrival, and silence. Resets
    /// the longest step.
    fn lately(&mut self, now: Instant) -> SinceReport {
        let usual = match (self.first, self.last) {
            (Some(first), Some(last)) if self.messages > 1 => {
                let steps = u32::try_from(self.messages - 1).unwrap_or(u32::MAX);
                last.saturating_duration_since(first) / steps
            }
            _ => Duration::ZERO,
        };
        let recent = self.recent.get();
        SinceReport {
            longest_step_ns: std::mem::take(&mut self.longest_step_ns),
            lead_ns: (2 * recent.ahead > recent.delays).then_some(recent.lead_ns),
            quiet: now.saturating_duration_since(self.last.unwrap_or(self.since)),
            usual,
        }
    }

    /// Makes the input's row for a report, with its level and reason. Keeps a copy, with which the next row is compared.
    fn report(&mut self, state: &InputState<'_>, now: Instant) -> Row {
        self.recent.turn(now);
        let recent = self.recent.get();
        let usual_ns = recent.period.quantile(0.5);
        if let Some(usual_ns) = usual_ns.filter(|_| recent.steps >= LEAST_STEPS) {
            self.gap_ns = (usual_ns as f64 * GAP_STEPS) as i64;
        }
        let Faulty {
            faults,
            dropped: [overflow, nonfinite, length, stamp, range, unreachable],
            ..
        } = state.faulty;
        let row = Row {
            operation: std::mem::take(&mut self.row.operation),
            input: std::mem::take(&mut self.row.input),
            level: Level::Ok,
            message: String::new(),
            messages: self.messages,
            rate_hz: self.rate_hz(now),
            period_p50_ns: usual_ns,
            period_p99_ns: recent.period.quantile(0.99),
            age_p50_ns: recent.age.quantile(0.5),
            age_p99_ns: recent.age.quantile(0.99),
            age_max_ns: recent.age.max(),
            delay_p50_ns: recent.delay.quantile(0.5),
            delay_p99_ns: recent.delay.quantile(0.99),
            valid_share: (recent.observed > 0).then(|| recent.valid as f64 / recent.observed as f64),
            late: state.diagnosis.late,
            faults,
            dropped_overflow: overflow,
            dropped_nonfinite: nonfinite,
            dropped_length: length,
            dropped_stamp: stamp,
            dropped_range: range,
            dropped_unreachable: unreachable,
            out_of_order: self.out_of_order,
            gaps: self.gaps,
            epoch: state.diagnosis.epoch,
            clock_offset_ns: state.diagnosis.clock.map(|(offset_ns, _)| offset_ns),
            clock_skew_ppm: state.diagnosis.clock.map(|(_, skew_ppm)| skew_ppm),
        };
        let lately = self.lately(now);
        let (level, message) = judge(&row, &self.row, &lately, state);
        self.row = Row { level, message, ..row };
        self.row.clone()
    }
}

impl Diagnostics {
    /// Makes the collector for these operations: the name of each, and the names of its inputs.
    pub(crate) fn new<'a, I: Iterator<Item = &'a str>>(operations: impl Iterator<Item = (&'a str, I)>) -> Self {
        let now = Instant::now();
        let operation = |(name, inputs): (&str, I)| OperationFigures {
            inputs: inputs.map(|input| Input::new(name, input, now)).collect(),
            device: None,
            device_bytes: 0,
        };
        Self {
            operations: operations.map(operation).collect(),
            observations: 0,
            points: None,
            results: Recent::new(now),
        }
    }

    /// Returns the collector of one operation (by its index).
    pub(crate) fn of(&mut self, operation: usize) -> Figures<'_> {
        Figures {
            diagnostics: self,
            operation,
        }
    }

    /// Observations, message sets and voxel grids per second, over the last 5 to 10 seconds; `None` in the first half second.
    fn observation_rate_hz(&self, now: Instant) -> Option<f64> {
        let seconds = now.saturating_duration_since(self.results.since()).as_secs_f64();
        (seconds >= 0.5).then(|| self.results.get().observations as f64 / seconds)
    }

    /// Counts a message of an operation's input (both by index), with its stamp and arrival.
    pub(crate) fn count_message(&mut self, operation: usize, input: usize, message: &Message) {
        self.operations[operation].inputs[input].count_message(message);
    }

    /// Makes the report at the time `now`. `state` returns the state of an input, by the indices of operation and input.
    pub(crate) fn report<'a>(&mut self, now: Instant, mut state: impl FnMut(usize, usize) -> InputState<'a>) -> Report {
        self.results.turn(now);
        let Results { wait, compute, .. } = self.results.get();
        let us = |ns: i64| ns as f64 / 1e3;
        let devices = || self.operations.iter().filter_map(|operation| operation.device);
        let device = devices().find(|&device| device != Device::Cpu).or(devices().next());
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut report = Report {
            version: Report::VERSION,
            timestamp_ns: i64::try_from(since_epoch.as_nanos()).unwrap_or(i64::MAX),
            observations: self.observations,
            observation_rate_hz: self.observation_rate_hz(now),
            wait_p50_ns: wait.quantile(0.5),
            wait_p99_ns: wait.quantile(0.99),
            compute_p50_us: compute.quantile(0.5).map(us),
            compute_p99_us: compute.quantile(0.99).map(us),
            points: self.points,
            device: device.unwrap_or(Device::Cpu).to_string(),
            device_bytes: self.operations.iter().map(|it| it.device_bytes as u64).sum(),
            ..Report::default()
        };
        for (i, operation) in self.operations.iter_mut().enumerate() {
            for (j, input) in operation.inputs.iter_mut().enumerate() {
                report.inputs.push(input.report(&state(i, j), now));
            }
        }
        // `max_by_key` returns the last of equally bad rows: in reverse, the first.
        let worst = report.inputs.iter().rev().max_by_key(|row| row.level);
        if let Some(worst) = worst.filter(|row| row.level > Level::Ok) {
            (report.level, report.message) = (worst.level, format!("`{}`: {}", worst.input, worst.message));
        }
        report
    }
}

impl Figures<'_> {
    /// Counts a published observation, message set or voxel grid. `wait_ns` is the time from its target to the newest stamp
    /// seen by then; `None` if unknown.
    pub fn observation(&mut self, wait_ns: Option<i64>) {
        self.diagnostics.observations += 1;
        self.diagnostics.results.record(|results| {
            results.observations += 1;
            wait_ns.into_iter().for_each(|wait_ns| results.wait.record(wait_ns));
        });
    }

    /// Records an input's share in one observation: the age of its newest sample, ns (-1 if none), and its validity.
    pub fn observed(&mut self, input: usize, age_ns: i64, is_valid: bool) {
        let input = &mut self.diagnostics.operations[self.operation].inputs[input];
        input.recent.record(|samples| {
            samples.observed += 1;
            samples.valid += u64::from(is_valid);
            if age_ns >= 0 {
                samples.age.record(age_ns);
            }
        });
    }

    /// Adds the counts of the points of one grid.
    pub fn points(&mut self, counters: VoxelCounters) {
        *self.diagnostics.points.get_or_insert_default() += counters;
    }

    /// Records the compute time of a result, the device that computed it, and the device memory of the operation, bytes.
    pub fn computed(&mut self, time: Duration, device: Device, device_bytes: usize) {
        let ns = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        self.diagnostics.results.record(|results| results.compute.record(ns));
        let operation = &mut self.diagnostics.operations[self.operation];
        (operation.device, operation.device_bytes) = (Some(device), device_bytes);
    }
}
