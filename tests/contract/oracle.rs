//! A second implementation of `fuse`, slow and short, that shares no idea with the engine. It keeps every sample in order of
//! arrival, and finds everything by looking at all samples.
//!
//! "Design choice:" marks each point that docs/semantics.md leaves open, and how this oracle decides it.

use crate::scenario::{Modality, Mode, Scenario, Trigger};

const SECOND: i128 = 1_000_000_000;

struct Sample {
    stamp: i128,
    values: Vec<f32>,
    /// True if the stream had a clock jump after this sample, so that no window uses the sample.
    cleared: bool,
    /// True if no later observation can need the sample, so that the engine's buffer drops it. This shows only if
    /// time goes back.
    forgotten: bool,
}

struct StreamHistory {
    config: Modality,
    latency: i128,
    reorder: i128,
    /// Least distance of two samples, ns, from `min_period_ms`; 0 without that setting.
    min_period: i128,
    /// Stamp, ns, of the newest sample before which no other can still come, since samples are at least `min_period_ms` apart.
    /// `None` before the first.
    settled: Option<i128>,
    reset: i128,
    open: bool,
    arrivals: Vec<Sample>,
    /// Largest lead over the grid clock G, ns, at which G follows the stream again; `None` if the stream is not set aside.
    aside: Option<i128>,
    /// Stamp, ns, of the newest sample that the stream had when the grid clock G last followed the stream; `None` if it is
    /// not set aside.
    led_until: Option<i128>,
    /// Number of samples since the last observation whose stamps advanced the stream. Samples that only caught up after a pause
    /// do not count.
    samples: u32,
    /// Time, ns, by which the samples that `samples` counts advanced the stream.
    advance: i128,
    /// Steps, ns, by which the grid clock G advanced since this stream's last sample, each caused by a sample
    /// of another stream.
    steps: Vec<i128>,
    /// Stamp, ns, up to which samples only catch up after a pause, and are not counted in `samples`; `None` without a pause.
    catches_up_to: Option<i128>,
}

impl StreamHistory {
    fn time(&self, sample: &Sample) -> i128 {
        sample.stamp - self.latency
    }

    /// Returns the times of the samples since the stream's last clock jump, ns, in order of arrival.
    fn times(&self) -> impl Iterator<Item = i128> + '_ {
        self.arrivals.iter().filter(|s| !s.cleared).map(|s| self.time(s))
    }

    fn newest(&self) -> Option<i128> {
        self.times().max()
    }

    fn held(&self) -> impl Iterator<Item = &Sample> + '_ {
        self.arrivals.iter().filter(|s| !s.cleared && !s.forgotten)
    }

    fn first(&self) -> Option<i128> {
        self.held().map(|s| self.time(s)).min()
    }

    /// Returns the watermark, ns: the newest time that every channel group of the stream is past; `None` if a group is
    /// past no time.
    fn past(&self) -> Option<i128> {
        let newest = self.newest()?;
        let mut past = Some(i128::MAX);
        for group in &self.config.groups {
            let of_group = match group.mode {
                Mode::Previous => match self.settled(newest) {
                    Some(settled) => Some((newest - self.reorder).max(settled + (self.min_period - 1).max(0))),
                    None => Some(newest - self.reorder),
                },
                // Design choice: a forgotten sample, of a stream that was closed meanwhile, tells nothing about later ones.
                Mode::Nearest | Mode::Linear => {
                    let settled = self.settled(newest);
                    self.held().map(|s| self.time(s)).filter(|&t| Some(t) <= settled).max()
                }
            };
            past = past.min(of_group);
        }
        past
    }

    /// Returns the time of the newest settled sample, ns: no earlier sample can still come. The stream's newest sample
    /// is at `newest`.
    fn settled(&self, newest: i128) -> Option<i128> {
        let in_order = self
            .held()
            .map(|s| self.time(s))
            .filter(|&t| newest - t >= self.reorder)
            .max();
        in_order.max(self.settled.map(|stamp| stamp - self.latency))
    }

    /// Settles samples by `min_period_ms`: no sample can still come before a settled one. Design choice: a sample that follows
    /// a settled one so closely that no other fits between is settled from then on, if the buffer holds it at that moment.
    fn settle(&mut self) {
        let newest = self.newest().filter(|_| self.min_period > 0);
        let Some(mut settled) = newest.and_then(|newest| self.settled(newest)) else {
            return;
        };
        while let Some(next) = self.held().map(|s| self.time(s)).filter(|&t| t > settled).min()
            && next - settled < 2 * self.min_period
        {
            settled = next;
        }
        self.settled = Some(settled + self.latency);
    }

    fn count_anew(&mut self) {
        (self.samples, self.advance, self.catches_up_to) = (0, 0, None);
        self.steps.clear();
    }

    fn jump_limit(&self) -> i128 {
        nanos(self.config.jump_ms.unwrap_or(10_000.0))
    }

    /// Returns the largest time, ns, by which the watermark can be past the stream's newest sample.
    fn ahead(&self) -> i128 {
        let looks_ahead = self.config.groups.iter().any(|group| group.mode != Mode::Previous);
        if looks_ahead { 0 } else { (self.min_period - 1).max(0) }
    }

    /// Returns the newest sample at or before `t`, `None` if there is none. Of several with the same time, returns the
    /// last to arrive.
    fn left(&self, t: i128) -> Option<&Sample> {
        let mut best: Option<&Sample> = None;
        for sample in self.held().filter(|s| self.time(s) <= t) {
            if best.is_none_or(|b| self.time(sample) >= self.time(b)) {
                best = Some(sample);
            }
        }
        best
    }

    /// Returns the oldest sample after `t`, `None` if there is none. Of several with the same time, returns the last to arrive.
    fn right(&self, t: i128) -> Option<&Sample> {
        let mut best: Option<&Sample> = None;
        for sample in self.held().filter(|s| self.time(s) > t) {
            if best.is_none_or(|b| self.time(sample) <= self.time(b)) {
                best = Some(sample);
            }
        }
        best
    }
}

/// Result of pushing a sample that is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushOutcome {
    pub late: bool,
    pub jumped: bool,
}

/// Reason why a request gets no observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    TooMany,
    OutOfRange,
    LongPast,
    FarAhead,
    Jumped,
    Closed,
}

/// An observation that the oracle makes. Values are stored as bits, so that NaNs can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    pub time: i128,
    pub epoch: u64,
    pub late_samples: u64,
    /// Number of the request that the observation answers; `None` if the time grid, a stream or a tick made it.
    pub request: Option<u64>,
    /// Time from the target to the sample that makes it due, ns. `None` if samples may be late, as the order of arrival then
    /// changes the result.
    pub wait: Option<i128>,
    pub timestamps: Vec<i128>,
    pub valid: Vec<u8>,
    pub age: Vec<i128>,
    pub values: Vec<u32>,
    /// Number and age, ns, of the attached message in each row and attached stream; `None` for a row without one.
    pub attached: Vec<Option<(u32, i128)>>,
}

pub struct Oracle {
    period: i128,
    window: i128,
    stride: i128,
    emit_every: i128,
    max_wait: Option<i128>,
    trigger: Trigger,
    fill: f32,
    streams: Vec<StreamHistory>,
    /// Requests without an answer, oldest first: the number of each, and the time that it asks for, or `None` for the newest time.
    pending_requests: Vec<(u64, Option<i128>)>,
    asked: u64,
    /// Waiting requests that were refused, with the reason, since the caller last took this list.
    pub refused: Vec<(u64, Refused)>,
    ticked: bool,
    epoch: u64,
    late_samples: u64,
    /// Time of the newest target sent, ns; `None` before the first. If time goes back, the next target sent replaces it.
    sent: Option<i128>,
    /// Last value of the grid clock G, ns. G keeps this value while none of the streams that it follows has a sample.
    last_clock: Option<i128>,
    /// Due time, ns, when the counts of samples were last reset. Used for the triggers tick and request.
    was_due: Option<i128>,
    /// Time of the next target, ns, if targets before it were skipped; otherwise `None`.
    skipped_to: Option<i128>,
    /// True if the time grid has started: the next target then follows from `sent`. Before that, the rule of the first
    /// target gives it.
    runs: bool,
    /// True from a clock jump to the next target. During that time the oracle checks whether time went back.
    is_restarting: bool,
}

pub fn nanos(ms: f64) -> i128 {
    (ms * 1e6).round() as i128
}

fn next_on_grid(t: i128, period: i128) -> i128 {
    (t + period - 1).div_euclid(period) * period
}

fn last_on_grid(t: i128, period: i128) -> i128 {
    t.div_euclid(period) * period
}

impl Oracle {
    pub fn new(scenario: &Scenario) -> Self {
        let streams = scenario.modalities.iter().map(|m| StreamHistory {
            config: m.clone(),
            latency: nanos(m.latency_ms),
            reorder: nanos(m.reorder_ms),
            min_period: nanos(m.min_period_ms.unwrap_or(0.0)),
            settled: None,
            reset: nanos(m.reset_ms.unwrap_or(m.reorder_ms.max(1000.0))),
            open: true,
            arrivals: Vec::new(),
            aside: None,
            led_until: None,
            samples: 0,
            advance: 0,
            steps: Vec::new(),
            catches_up_to: None,
        });
        Self {
            period: (1e9 / scenario.rate_hz).round() as i128,
            window: scenario.window as i128,
            stride: scenario.stride as i128,
            emit_every: scenario.emit_every as i128,
            max_wait: scenario.max_wait_ms.map(nanos),
            trigger: scenario.trigger,
            pending_requests: Vec::new(),
            asked: 0,
            refused: Vec::new(),
            ticked: false,
            fill: scenario.fill,
            streams: streams.collect(),
            epoch: 0,
            late_samples: 0,
            sent: None,
            last_clock: None,
            was_due: None,
            skipped_to: None,
            runs: false,
            is_restarting: false,
        }
    }

    pub fn is_open(&self, i: usize) -> bool {
        self.streams[i].open
    }

    pub fn close(&mut self, i: usize) {
        self.streams[i].open = false;
        self.last_clock = self.clock();
    }

    /// Opens a stream again. Design choice: the stream keeps the samples from before it closed. If its clock has changed
    /// meanwhile, that is a clock jump.
    pub fn open(&mut self, i: usize) {
        let before = self.clock();
        if !std::mem::replace(&mut self.streams[i].open, true) {
            self.judge_by_others(i, before);
        }
    }

    pub fn set_latency_ms(&mut self, i: usize, ms: f64) {
        let before = self.clock();
        self.streams[i].latency = nanos(ms);
        self.judge_by_others(i, before);
    }

    fn judge_by_others(&mut self, i: usize, before: Option<i128>) {
        let is_waited_for = self.streams[i].open && self.streams[i].config.wait;
        if let (true, Some(newest), Some(_)) = (is_waited_for, self.streams[i].newest(), self.max_wait) {
            let others = self
                .others(i)
                .filter(|s| s.aside.is_none())
                .filter_map(StreamHistory::newest)
                .max();
            self.leads_too_far(i, others, None);
            // Design choice: the time up to which the stream led is judged like a sample of that time.
            let limit = self.streams[i].jump_limit();
            let stream = &mut self.streams[i];
            let is_near = |led: &i128| others.is_none_or(|others| led - stream.latency - others <= limit);
            stream.led_until = stream.led_until.filter(is_near);
            if others.is_none() && before.is_some_and(|before| newest - before > self.streams[i].jump_limit()) {
                self.move_to(i);
            }
        }
        self.last_clock = self.clock();
    }

    pub fn set_max_wait_ms(&mut self, ms: Option<f64>) {
        self.max_wait = ms.map(nanos);
        if ms.is_none() {
            // Design choice: without `max_wait_ms` no sample counts.
            self.all_count_anew();
            self.streams
                .iter_mut()
                .for_each(|s| (s.aside, s.led_until) = (None, None));
        }
        self.last_clock = self.clock();
    }

    fn all_count_anew(&mut self) {
        self.streams.iter_mut().for_each(StreamHistory::count_anew);
        self.was_due = None;
    }

    /// Returns the streams that are waited for: those with `wait: true` that are open. Design choice: a closed stream is
    /// not waited for.
    fn waited(&self) -> impl Iterator<Item = &StreamHistory> + '_ {
        self.streams.iter().filter(|s| s.open && s.config.wait)
    }

    /// Adds a sample to its stream; `None` if it is refused. Design choice: a message that is not a sample (NaN, wrong length)
    /// changes nothing, and its stamp is ignored.
    pub fn push(&mut self, i: usize, stamp: i64, values: &[f32]) -> Option<PushOutcome> {
        if values.len() != self.streams[i].config.dim || values.iter().any(|v| !v.is_finite()) {
            return None;
        }
        let stamp = i128::from(stamp);
        let before = self.clock();
        let is_first = before.is_none();
        let jumped = self.jumps(i, stamp - self.streams[i].latency);
        let stream = &mut self.streams[i];
        let time = stamp - stream.latency;
        let old = stream.newest();
        if jumped {
            stream.arrivals.iter_mut().for_each(|s| s.cleared = true);
            stream.settled = None;
        }
        let nearest = stream.held().map(|s| (stream.time(s) - time).abs()).min();
        let too_soon = nearest.is_some_and(|distance| distance < stream.min_period);
        stream.arrivals.push(Sample {
            stamp,
            values: values.to_vec(),
            cleared: false,
            forgotten: false,
        });
        stream.settle();
        if jumped {
            self.begin_anew();
        }
        self.update_clock(i, before, old, jumped);
        if is_first {
            for (number, time) in std::mem::take(&mut self.pending_requests) {
                match time.and_then(|time| self.judge(time)) {
                    Some(refused) => self.refused.push((number, refused)),
                    None => self.pending_requests.push((number, time)),
                }
            }
        }
        // Design choice: a sample of any stream at or before the newest target sent is late. So is one that jumped, unless
        // time itself has gone back.
        let late = too_soon || self.not_again().is_some_and(|sent| time <= sent);
        self.late_samples += u64::from(late);
        Some(PushOutcome { late, jumped })
    }

    /// True if a sample is a clock jump. Design choice: times (stamp less latency) are compared, and the first sample of a
    /// stream is never a jump. Other streams count only if they have a sample, are open and are waited for.
    fn jumps(&self, i: usize, time: i128) -> bool {
        let stream = &self.streams[i];
        let Some(newest) = stream.newest() else {
            return false;
        };
        let default = self.max_wait.map(|_| 10_000.0);
        let back = time < newest - stream.reset;
        let may_jump = !stream.config.wait || self.max_wait.is_none() || self.always_leads(i);
        let ahead = stream.config.jump_ms.or(default).is_some_and(|jump| {
            let jump = nanos(jump);
            time - newest > jump
                && self
                    .others(i)
                    .filter_map(StreamHistory::newest)
                    .all(|other| time - other > jump)
        });
        back || ahead && may_jump
    }

    /// Returns the streams other than `i` that are open and waited for.
    fn others(&self, i: usize) -> impl Iterator<Item = &StreamHistory> + '_ {
        let others = self.streams.iter().enumerate().filter(move |&(j, _)| j != i);
        others.map(|(_, s)| s).filter(|s| s.open && s.config.wait)
    }

    fn always_leads(&self, i: usize) -> bool {
        self.others(i).next().is_none() || matches!(self.trigger, Trigger::Stream { leader, .. } if leader == i)
    }

    /// Returns the grid clock G, ns: the newest time of the streams that are waited for. A stream that is set aside counts up to
    /// the sample at which G last followed it.
    pub fn clock(&self) -> Option<i128> {
        let newest_of = |streams: Vec<&StreamHistory>| {
            let led = |s: &StreamHistory| match s.aside {
                None => s.newest(),
                Some(_) => s.led_until.map(|stamp| stamp - s.latency),
            };
            streams.into_iter().filter_map(led).max()
        };
        let leading = match self.waited().next() {
            None => newest_of(self.streams.iter().filter(|s| s.config.wait).collect()),
            Some(_) => newest_of(self.waited().collect()),
        };
        leading.or(self.last_clock)
    }

    fn is_aside(&self, stream: &StreamHistory) -> bool {
        stream.aside.is_some() && stream.newest() > self.clock()
    }

    /// Returns the lead of stream `i` over the grid clock G, ns, if the stream is set aside; otherwise `None`.
    pub fn aside(&self, i: usize) -> Option<i128> {
        let stream = &self.streams[i];
        let is_aside = stream.open && stream.config.wait && self.is_aside(stream);
        Some(stream.newest().filter(|_| is_aside)? - self.clock()?)
    }

    /// Sets stream `i` aside if its lead over `clock` is more than its limit and it does not always lead; otherwise no
    /// longer. Returns true if the lead is more than the limit and no other stream is waited for. The stream's newest sample
    /// was at `old` before.
    fn leads_too_far(&mut self, i: usize, clock: Option<i128>, old: Option<i128>) -> bool {
        if self.max_wait.is_none() {
            return false;
        }
        let (always_leads, is_alone) = (self.always_leads(i), self.others(i).next().is_none());
        let stream = &mut self.streams[i];
        let limit = stream.aside.unwrap_or(stream.jump_limit());
        let ahead = stream.newest().zip(clock).map_or(0, |(newest, clock)| newest - clock);
        let was_aside = stream.aside.is_some();
        stream.aside = (ahead > limit && !always_leads).then_some(limit);
        match (was_aside, stream.aside) {
            (_, None) => stream.led_until = None,
            (false, Some(_)) => stream.led_until = old.map(|old| old + stream.latency),
            (true, Some(_)) => {}
        }
        ahead > limit && is_alone
    }

    /// Updates the grid clock G after a sample of stream `i`. Before the sample, G was at `before`, and the stream's newest sample
    /// at `old`.
    fn update_clock(&mut self, i: usize, before: Option<i128>, old: Option<i128>, jumped: bool) {
        if !self.streams[i].config.wait {
            return self.follow_due();
        }
        if self.max_wait.is_none() {
            // Design choice: no sample counts, and no pause either.
            self.last_clock = self.clock();
            return self.follow_due();
        }
        let moves = self.leads_too_far(i, before, old) && !jumped;
        let stream = &mut self.streams[i];
        let newest = stream.newest().unwrap();
        let steps = std::mem::take(&mut stream.steps);
        let pause = steps.iter().sum::<i128>() - steps.iter().max().unwrap_or(&0);
        let pause = pause.min(stream.jump_limit());
        let mut counted = false;
        if jumped {
            stream.count_anew();
        } else {
            // Design choice: a stream that has not paused has nothing to catch up with.
            if pause > 0 {
                let until = before.map(|before| before.min(old.unwrap_or(newest) + pause) + stream.latency);
                stream.catches_up_to = stream.catches_up_to.max(until);
            }
            // Design choice: samples catch up with G as it is now at most, which may have gone back since the pause.
            let until = stream
                .catches_up_to
                .map(|stamp| before.unwrap().min(stamp - stream.latency));
            if let Some(from) = old.map(|old| Some(old).max(until).unwrap())
                && newest > from
            {
                stream.samples += 1;
                stream.advance += newest - from;
                counted = true;
            }
        }
        self.last_clock = self.clock();
        if let (Some(before), Some(after), false) = (before, self.clock(), jumped)
            && after > before
        {
            let others = self.streams.iter_mut().enumerate().filter(|&(j, _)| j != i);
            others.for_each(|(_, s)| s.steps.push(after - before));
        }
        self.follow_due();
        let enough = self
            .max_wait
            .is_some_and(|wait| self.streams[i].advance > 2 * wait + 4 * self.emit_every * self.period);
        let goes_on = self.streams[i].samples >= 8 && enough && !matches!(self.trigger, Trigger::Stream { .. });
        // Design choice: nothing is held up, and G stays, if this sample makes the next target due.
        let makes_due =
            || self.trigger == Trigger::Grid && self.next_target().is_some_and(|t| Some(t) <= self.horizon());
        if moves || goes_on && counted && !makes_due() {
            self.move_to(i);
        }
    }

    /// Resets the counts of samples if the trigger is a request or a tick, and the due time went on by a period. Design choice:
    /// this is checked at each sample, from the first sample after a clock jump or a move of the grid clock G.
    fn follow_due(&mut self) {
        let Some(due) = self.horizon() else { return };
        let Some(was_due) = self.was_due else {
            self.was_due = Some(due);
            return;
        };
        let is_after_start = self.runs || self.start().is_some_and(|start| start <= due);
        let would_be_answered = match self.trigger {
            Trigger::Request => is_after_start,
            Trigger::Timer => is_after_start && self.not_again().is_none_or(|sent| due > sent),
            Trigger::Grid | Trigger::Stream { .. } => false,
        };
        if would_be_answered && due - was_due >= self.period {
            self.was_due = Some(due);
            self.streams.iter_mut().for_each(|s| (s.samples, s.advance) = (0, 0));
        }
    }

    fn begin_anew(&mut self) {
        self.epoch += 1;
        self.runs = false;
        self.is_restarting = true;
        self.skipped_to = None;
        self.was_due = None;
        self.refuse_those_with_a_time();
    }

    /// Moves the grid clock G to the newest sample of stream `i`. Streams that are ahead of that sample are set aside.
    fn move_to(&mut self, i: usize) {
        let to = self.streams[i].newest().unwrap();
        // Design choice: time goes back if the stream was behind the newest target sent when its samples began to count.
        let counted_from = to - self.streams[i].advance;
        let is_back = self
            .sent
            .is_some_and(|sent| counted_from + self.streams[i].ahead() < sent);
        let was_due = self.was_due;
        for (j, stream) in self.streams.iter_mut().enumerate() {
            let is_ahead = j != i && stream.config.wait && stream.newest().is_some_and(|newest| newest > to);
            stream.led_until = None;
            stream.aside = is_ahead.then(|| stream.jump_limit().min(SECOND));
        }
        self.begin_anew();
        self.last_clock = Some(to);
        let due = to - self.max_wait.unwrap();
        match self.trigger {
            // Design choice: if samples are the targets, the rule of the first target gives the next one.
            Trigger::Stream { .. } => return self.all_count_anew(),
            Trigger::Grid => {
                let newest = last_on_grid(due, self.period);
                let follows = self.sent.filter(|_| !is_back).map(|sent| sent + self.period);
                self.skipped_to = Some(follows.map_or(newest, |follows| newest.max(follows)));
            }
            Trigger::Request | Trigger::Timer => {}
        }
        (self.runs, self.is_restarting) = (true, false);
        self.sent = self
            .sent
            .filter(|&sent| !is_back || sent < self.skipped_to.unwrap_or(due));
        // Design choice: if the move makes nothing due, only the samples of the stream itself count anew.
        let horizon = self.horizon().unwrap();
        let away = || was_due.is_none_or(|was_due| (horizon - was_due).abs() >= self.period);
        let comes_of_it = match self.trigger {
            Trigger::Grid => self.next_target().is_some_and(|target| target <= horizon),
            Trigger::Timer => away() && self.not_again().is_none_or(|sent| horizon > sent),
            Trigger::Request | Trigger::Stream { .. } => away(),
        };
        if comes_of_it {
            self.all_count_anew();
        }
        self.streams[i].count_anew();
    }

    fn refuse_those_with_a_time(&mut self) {
        let (timed, others) = self.pending_requests.drain(..).partition(|(_, time)| time.is_some());
        self.pending_requests = others;
        let timed: Vec<(u64, Option<i128>)> = timed;
        self.refused
            .extend(timed.into_iter().map(|(number, _)| (number, Refused::Jumped)));
    }

    /// Returns the reason why a request for `time`, ns, is refused at once; `None` if it is accepted.
    fn judge(&self, time: i128) -> Option<Refused> {
        if time.abs() > (i64::MAX / 4).into() {
            Some(Refused::OutOfRange)
        } else if self.clock().is_some_and(|newest| time > newest + 10 * SECOND) {
            Some(Refused::FarAhead)
        } else if self.horizon().is_some_and(|horizon| time < horizon - SECOND) {
            Some(Refused::LongPast)
        } else {
            None
        }
    }

    pub fn ask(&mut self, time: Option<i64>) -> Result<u64, Refused> {
        let time = time.map(i128::from);
        if let Some(refused) = time.and_then(|time| self.judge(time)) {
            return Err(refused);
        }
        if self.pending_requests.len() >= 256 {
            return Err(Refused::TooMany);
        }
        self.pending_requests.push((self.asked, time));
        self.asked += 1;
        Ok(self.asked - 1)
    }

    pub fn tick(&mut self) {
        self.ticked = true;
    }

    /// Returns the newest target sent, ns, up to which nothing is sent again; `None` if nothing was sent, or time went back
    /// since. Design choice: while the grid starts anew, until its first target is sent, it is checked whether time went back.
    /// A grid that runs never steps back.
    fn not_again(&self) -> Option<i128> {
        // Design choice: a stream with `min_period_ms` is as new as its watermark can be.
        let newest = |s: &StreamHistory| s.newest().map(|newest| newest + s.ahead());
        let newest = match self.trigger {
            // Design choice: if samples are the targets, the clock of their stream alone decides.
            Trigger::Stream { leader, .. } => newest(&self.streams[leader]),
            _ => {
                let all_are_closed = self.waited().next().is_none();
                let counts = |s: &&StreamHistory| s.config.wait && (s.open || all_are_closed) && s.aside.is_none();
                let leading = self.streams.iter().filter(counts);
                leading.filter_map(newest).max().max(self.clock())
            }
        };
        let went_back = |sent: i128| self.is_restarting && newest.is_some_and(|newest| newest < sent);
        self.sent.filter(|&sent| !went_back(sent))
    }

    /// Returns the earliest time, at `target` or later, that was not yet sent: at least one period after the
    /// newest target sent.
    fn passed_over(&self, target: i128) -> i128 {
        self.not_again().map_or(target, |sent| target.max(sent + self.period))
    }

    /// Returns the due time, ns: every target up to this time is due. `None` if no target can be due yet.
    pub fn horizon(&self) -> Option<i128> {
        let clock = self.clock()?;
        let past: Vec<Option<i128>> = self
            .waited()
            .filter(|s| !self.is_aside(s))
            .map(StreamHistory::past)
            .collect();
        // `None` is less than any time: a stream without a sample is past nothing.
        let all_past = past.into_iter().min().unwrap_or(Some(clock));
        all_past.max(self.max_wait.map(|wait| clock - wait))
    }

    /// Returns the due time by `max_wait_ms`, ns, if the first target `target` lies so far before it that the clocks of the
    /// streams must disagree; otherwise `None`.
    fn is_far_behind(&self, target: i128) -> Option<i128> {
        let (clock, wait) = (self.clock()?, self.max_wait?);
        let spoken = self.streams.iter().filter(|s| s.config.wait);
        let firsts: Vec<i128> = spoken.filter_map(StreamHistory::first).collect();
        let judged_by = if let [only] = firsts[..] { only } else { clock };
        (target < judged_by - wait - SECOND).then_some(clock - wait)
    }

    /// Returns the earliest time that the first target may have, ns; `None` as long as more samples are needed to tell.
    fn start(&self) -> Option<i128> {
        // Design choice: a closed stream with a sample counts, too, or the moment at which a short stream closes could be
        // seen. If none counts, the earliest first sample of any stream decides.
        let counted: Vec<&StreamHistory> = self
            .streams
            .iter()
            .filter(|s| s.config.wait && (s.open || s.first().is_some()) && !self.is_aside(s))
            .collect();
        // Design choice: the wait begins at the earliest first sample of any stream.
        let earliest = self.streams.iter().filter_map(StreamHistory::first).min()?;
        if counted.is_empty() {
            return Some(earliest);
        }
        let mut start = i128::MIN;
        for stream in counted {
            let bound = self.max_wait.map(|wait| earliest + wait);
            start = start.max(match (stream.first(), bound) {
                (Some(first), Some(bound)) => first.min(bound),
                (first, bound) => first.or(bound)?,
            });
        }
        Some(start)
    }

    /// Returns the first target of a time grid that starts, or starts anew.
    fn first_target(&self) -> Option<i128> {
        // Design choice: targets up to the last one sent are passed over before it is judged whether the start lies too far
        // behind. The count of `emit_every` begins at the target where the grid starts.
        let mut target = self.passed_over(next_on_grid(self.start()?, self.period));
        if let Some(due) = self.is_far_behind(target) {
            target = target.max(last_on_grid(due, self.period));
        }
        Some(target)
    }

    /// Returns the target that comes next on the time grid, due or not.
    fn next_target(&self) -> Option<i128> {
        match (self.skipped_to, self.sent) {
            (Some(target), _) if self.runs => Some(target),
            (None, Some(sent)) if self.runs => Some(sent + self.emit_every * self.period),
            _ => self.first_target(),
        }
    }

    /// Makes the next observation that is due; `None` if no observation is due.
    pub fn due(&mut self) -> Option<Observation> {
        let due = match self.trigger {
            Trigger::Grid => self.next(),
            Trigger::Stream {
                leader,
                every,
                min_interval_ms,
                samples,
            } => self.next_led(leader, every, nanos(min_interval_ms), samples),
            Trigger::Timer => self.next_ticked(),
            Trigger::Request => self.next_answer(),
        };
        self.ticked = false;
        due
    }

    /// Makes the observation at the next sample of the stream `leader` that is a target; `None` if that target is not due.
    fn next_led(&mut self, leader: usize, every: usize, min_interval: i128, samples: bool) -> Option<Observation> {
        let sent = self.not_again();
        if let Some(sent) = sent.filter(|_| self.runs) {
            // Design choice: samples are kept from the oldest row of the last window on, as no later window begins earlier.
            let oldest = self.rows(sent).first().copied();
            match oldest {
                Some((time, true)) => self.forget(time),
                _ if samples => {}
                _ => self.forget(sent - (self.window - 1) * self.stride * self.period),
            }
        }
        let start = if self.runs { i128::MIN } else { self.start()? };
        let mut times: Vec<i128> = self.streams[leader]
            .held()
            .map(|s| self.streams[leader].time(s))
            .collect();
        times.sort();
        times.dedup();
        let is_far = |t: i128| t >= start && sent.is_none_or(|sent| t > sent && t - sent >= min_interval);
        let follows = |t: i128| match sent.filter(|_| self.runs) {
            Some(sent) => times.iter().filter(|&&other| sent < other && other <= t).count() >= every,
            None => true,
        };
        let mut target = *times.iter().find(|&&t| is_far(t) && follows(t))?;
        if let Some(due) = self.is_far_behind(target).filter(|_| !self.runs) {
            target = *times.iter().rfind(|&&t| t <= due)?;
        }
        self.horizon().filter(|&horizon| horizon >= target)?;
        Some(self.send(target, None))
    }

    /// True once ticks and requests may make observations. Design choice: they may from the moment at which the time `start` is
    /// due. Until then no sample is forgotten.
    fn begins(&mut self) -> bool {
        if !self.runs
            && let (Some(horizon), Some(start)) = (self.horizon(), self.start())
            && start <= horizon
        {
            self.runs = true;
        }
        self.runs
    }

    fn next_ticked(&mut self) -> Option<Observation> {
        let horizon = self.horizon()?;
        if !self.begins() {
            return None;
        }
        // Design choice: the due time may go back before the next tick, so samples are kept for a second more, as for requests.
        self.forget(horizon - SECOND - (self.window - 1) * self.stride * self.period);
        let is_newer = self.not_again().is_none_or(|sent| horizon > sent);
        (self.ticked && is_newer).then(|| self.send(horizon, None))
    }

    fn next_answer(&mut self) -> Option<Observation> {
        let horizon = self.horizon();
        let begun = horizon.is_some() && self.begins();
        if let Some(horizon) = horizon.filter(|_| begun) {
            let mut kept = horizon - SECOND;
            for time in self.pending_requests.iter().filter_map(|(_, time)| *time) {
                kept = kept.min(time);
            }
            self.forget(kept - (self.window - 1) * self.stride * self.period);
        }
        loop {
            let &(number, time) = self.pending_requests.first()?;
            let due = match time {
                Some(time) => horizon.filter(|horizon| *horizon >= time).map(|_| time),
                None => horizon.filter(|_| begun),
            };
            if let Some(due) = due {
                self.pending_requests.remove(0);
                return Some(self.send(due, Some(number)));
            }
            let is_far_ahead = |newest: i128| time.is_some_and(|time| time > newest + 10 * SECOND);
            let refused = if self.waited().next().is_none() {
                Refused::Closed
            } else if self.clock().is_some_and(is_far_ahead) {
                // Design choice: G may have gone back since the request came.
                Refused::FarAhead
            } else {
                return None;
            };
            self.pending_requests.remove(0);
            self.refused.push((number, refused));
        }
    }

    /// Makes an observation whose target is not on the time grid, and records the target as the newest one sent.
    fn send(&mut self, target: i128, request: Option<u64>) -> Observation {
        let mut observation = self.observe(target);
        observation.request = request;
        let sent = self.not_again();
        self.sent = sent.max(Some(target));
        self.runs |= request.is_none();
        self.is_restarting &= !self.runs;
        observation
    }

    /// Returns the time of each row of a window, ns, oldest first. The flag is false for rows before the first
    /// sample, else true.
    fn rows(&self, target: i128) -> Vec<(i128, bool)> {
        let steps = (0..self.window).rev().map(|row| row * self.stride);
        let Trigger::Stream {
            leader, samples: true, ..
        } = self.trigger
        else {
            return steps.map(|steps| (target - steps * self.period, true)).collect();
        };
        let stream = &self.streams[leader];
        let mut times: Vec<i128> = stream.held().map(|s| stream.time(s)).collect();
        times.sort();
        times.dedup();
        let until: Vec<i128> = times.iter().copied().filter(|&t| t <= target).collect();
        let row = |steps: i128| match until.iter().rev().nth(steps as usize) {
            Some(&time) => (time, true),
            // Design choice: before the first sample, the times go on by a period for each missing sample.
            None => (times[0] - (steps + 1 - until.len() as i128) * self.period, false),
        };
        steps.map(row).collect()
    }

    /// Computes how far the stamps are past the target when it falls due, ns, by going through all samples in order of time.
    /// Returns `None` if samples may be late.
    fn wait(&self, target: i128) -> Option<i128> {
        let waits: Vec<&StreamHistory> = self
            .streams
            .iter()
            .filter(|s| s.config.wait && !self.is_aside(s))
            .collect();
        if waits.iter().any(|s| s.reorder > 0) {
            return None;
        }
        let mut times: Vec<i128> = waits.iter().flat_map(|s| s.held().map(|x| s.time(x))).collect();
        times.sort();
        let passes = |s: &StreamHistory, n: i128| {
            let newest = s.held().map(|x| s.time(x)).filter(|&t| t <= n).max();
            newest.is_some_and(|newest| newest + s.ahead() >= target)
        };
        let counts = |s: &StreamHistory| passes(s, i128::MAX) || s.open && self.max_wait.is_some();
        let counted: Vec<&&StreamHistory> = waits.iter().filter(|s| counts(s)).collect();
        for n in times {
            let all = !counted.is_empty() && counted.iter().all(|s| passes(s, n));
            if all || self.max_wait.is_some_and(|wait| n >= target + wait) {
                return Some(n - target);
            }
        }
        Some(self.clock().map_or(0, |newest| newest - target))
    }

    fn next(&mut self) -> Option<Observation> {
        let mut target = self.next_target()?;
        // Design choice: more than 2^32 targets, more than anybody could take, are a jump, too.
        if let Some(horizon) = self
            .horizon()
            .filter(|horizon| self.runs && (horizon - target) / self.period > 1 << 32)
        {
            target = last_on_grid(horizon, self.period);
            self.epoch += 1;
            self.skipped_to = Some(target);
        }
        if self.runs {
            let earliest = target - (self.emit_every - 1) * self.period;
            self.forget(earliest - (self.window - 1) * self.stride * self.period);
        }
        if self.horizon().is_none_or(|horizon| target > horizon) {
            return None;
        }
        let observation = self.observe(target);
        self.streams.iter_mut().for_each(|s| (s.samples, s.advance) = (0, 0));
        self.sent = Some(target);
        self.skipped_to = None;
        (self.runs, self.is_restarting) = (true, false);
        Some(observation)
    }

    /// Marks samples that no later window needs as forgotten. Design choice: a buffer holds the sample at or before the
    /// oldest row of the next observation's window, and all later ones. It also holds the samples by which later samples
    /// will be settled.
    fn forget(&mut self, oldest_row: i128) {
        for stream in &mut self.streams {
            let latency = stream.latency;
            let oldest = match stream.settled {
                _ if stream.min_period == 0 || stream.reorder == 0 => oldest_row,
                Some(settled) => oldest_row.min(settled - latency),
                None => continue,
            };
            let needed = stream.left(oldest).map(|s| s.stamp - latency);
            for sample in stream.arrivals.iter_mut().filter(|s| !s.cleared) {
                sample.forgotten |= Some(sample.stamp - latency) < needed;
            }
        }
    }

    fn observe(&self, target: i128) -> Observation {
        let mut observation = Observation {
            time: target,
            epoch: self.epoch,
            late_samples: self.late_samples,
            request: None,
            wait: self.wait(target),
            timestamps: Vec::new(),
            valid: Vec::new(),
            age: Vec::new(),
            values: Vec::new(),
            attached: Vec::new(),
        };
        let rows = self.rows(target);
        for (newer_rows, &(t, is_there)) in (0..rows.len() as i128).rev().zip(&rows) {
            observation.timestamps.push(t);
            for stream in self.streams.iter().filter(|s| s.config.attached) {
                let message = stream.left(t).map(|s| (s.values[0] as u32, t - stream.time(s)));
                let limit = stream.config.groups[0].max_age_ms.map(nanos);
                let fits = |&(_, age): &(u32, i128)| limit.is_none_or(|limit| age <= limit);
                let has_messages = stream.config.rows.is_none_or(|rows| newer_rows < rows as i128);
                observation
                    .attached
                    .push(message.filter(|m| fits(m) && has_messages && is_there));
            }
            for stream in self.streams.iter().filter(|s| !s.config.attached) {
                if !is_there {
                    observation.values.extend(vec![self.fill.to_bits(); stream.config.dim]);
                    observation.valid.push(0);
                    observation.age.push(-1);
                    continue;
                }
                let mut all_valid = true;
                for group in &stream.config.groups {
                    let values = self.value(stream, group, t);
                    all_valid &= values.is_some();
                    let filled = values.unwrap_or(vec![self.fill; group.to - group.from]);
                    observation.values.extend(filled.iter().map(|v| v.to_bits()));
                }
                observation.valid.push(u8::from(all_valid));
                observation.age.push(stream.left(t).map_or(-1, |l| t - stream.time(l)));
            }
        }
        observation
    }

    /// Returns the values of a group of channels at time `t`; `None` if the group has no valid value there.
    fn value(&self, stream: &StreamHistory, group: &crate::scenario::Group, t: i128) -> Option<Vec<f32>> {
        let channels = |s: &Sample| s.values[group.from..group.to].to_vec();
        let (left, right) = (stream.left(t), stream.right(t));
        let before = left.map(|s| t - stream.time(s));
        let after = right.map(|s| stream.time(s) - t);
        let within = |distance: i128, limit: Option<f64>| limit.is_none_or(|ms| distance <= nanos(ms));
        if before == Some(0) {
            return left.map(channels);
        }
        match group.mode {
            Mode::Previous => left.filter(|_| within(before.unwrap(), group.max_age_ms)).map(channels),
            Mode::Nearest => {
                let takes_left = match (before, after) {
                    (Some(before), Some(after)) => before <= after,
                    (before, _) => before.is_some(),
                };
                let (sample, distance) = if takes_left { (left, before) } else { (right, after) };
                sample
                    .filter(|_| within(distance.unwrap(), group.max_age_ms))
                    .map(channels)
            }
            Mode::Linear => match (left, right) {
                (None, _) => None,
                (Some(l), None) => (before.unwrap() <= nanos(group.extrapolate_ms.unwrap_or(0.0))).then(|| channels(l)),
                (Some(l), Some(r)) => {
                    let gap = stream.time(r) - stream.time(l);
                    let w = (before.unwrap() as f64 / gap as f64) as f32;
                    let line = channels(l).into_iter().zip(channels(r)).map(|(a, b)| a + w * (b - a));
                    let values: Vec<f32> = line.collect();
                    // Design choice: one channel that the type can't hold makes its group invalid.
                    (within(gap, group.max_gap_ms) && values.iter().all(|v| v.is_finite())).then_some(values)
                }
            },
        }
    }
}
