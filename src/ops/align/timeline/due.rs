//! When an observation is due: the watermark rule, which target comes next, the first one, clock jumps, and streams that hold
//! up others.

use super::{Notice, Stream, Target, Timeline, Trigger};
use crate::ops::align::Rows;
use crate::ops::align::spec::LOOKS_BACK;

/// More targets than this falling due at once count as a clock jump even without `jump_ms`: nobody could take them.
/// Without `max_wait_ms` a stream may have waited for another for days, so the bound is wide; with it, only clocks can make
/// so many due, such as that of a stream which speaks for the first time.
const MAX_TARGETS_AT_ONCE: i64 = 1 << 32;
const MAX_TARGETS_WITH_MAX_WAIT: i64 = 1 << 20;

/// With `max_wait_ms`: a first target further behind what is due already is skipped, ns.
const START_HORIZON: i64 = 1_000_000_000;

/// The default of `jump_ms` with `max_wait_ms`, ns.
const DEFAULT_JUMP: i64 = 10_000_000_000;

/// With so many samples since the last observation a stream goes on; with fewer it may just have caught up.
const GOES_ON_SAMPLES: u32 = 8;

/// The target that comes next, due or not.
pub(super) struct Next {
    pub time_ns: i64,
    /// Streams that are behind at the start are left behind.
    pub leaves_behind: bool,
    /// The request that it answers.
    pub request: Option<u64>,
    pub is_deterministic: bool,
}

impl Next {
    pub fn at(time_ns: i64) -> Self {
        Self {
            time_ns,
            leaves_behind: false,
            request: None,
            is_deterministic: true,
        }
    }
}

impl Timeline {
    /// The next observation that is due, if one is. Its window can be read until the next call, which drops what no window
    /// needs any more.
    pub fn due(&mut self) -> Option<Target> {
        if self.asks_again() {
            self.leave_stopped_leader();
        }
        let due = self.next_due().or_else(|| {
            // A leader that has stopped may hold up a stream that goes on.
            (self.may_be_held_up() && self.leave_stopped_leader())
                .then(|| self.next_due())
                .flatten()
        });
        self.ticked = false;
        due
    }

    /// The trigger's timer ticks: the next call of [`due`](Self::due) gives the observation of the newest time that is due,
    /// if that is newer than the last one.
    pub fn tick(&mut self) {
        self.ticked = true;
    }

    fn next_due(&mut self) -> Option<Target> {
        let until = self.due_until();
        let next = match self.trigger {
            Trigger::Grid => self.next_on_grid(until)?,
            Trigger::Stream {
                leader,
                every,
                min_interval,
                ..
            } => self.next_of_leader(leader, every, min_interval)?,
            Trigger::Timer(_) => self.next_at_tick(until?)?,
            Trigger::Request(_) => self.next_asked(until)?,
        };
        if until.is_none_or(|until| until < next.time_ns) {
            return None;
        }
        Some(self.send(next))
    }

    /// Counts a target as sent.
    fn send(&mut self, next: Next) -> Target {
        let (time, sent) = (next.time_ns, self.not_again());
        let is_grid = self.trigger == Trigger::Grid;
        if is_grid && self.next.is_none() {
            self.skip_to(time);
        }
        if next.leaves_behind {
            self.notice_streams_behind(time);
        }
        let covers = match is_grid {
            true => self.period_ns(),
            false => sent.map_or(0, |sent| (time - sent).max(0)),
        };
        self.covered = self.covered.saturating_add(covers);
        self.next = Some(time.saturating_add(if is_grid { self.period_ns() } else { 1 }));
        self.last_sent = Some(sent.map_or(time, |sent| sent.max(time)));
        if next.request.is_some() {
            self.asks.pop_front();
        }
        // A request may be answered with what another one got.
        let is_newer = sent.is_none_or(|sent| time > sent);
        for stream in self.streams.iter_mut().filter(|_| is_newer) {
            (stream.advanced_since_sent, stream.samples_since_sent) = (0, 0);
        }
        Target {
            time_ns: time,
            epoch: self.epoch,
            late_samples: self.late_samples,
            request: next.request,
            is_deterministic: next.is_deterministic,
        }
    }

    fn next_on_grid(&mut self, until: Option<i64>) -> Option<Next> {
        let is_waiting = self.max_wait.is_some() && self.waited_for().next().is_some();
        let most = if is_waiting {
            MAX_TARGETS_WITH_MAX_WAIT
        } else {
            MAX_TARGETS_AT_ONCE
        };
        if let (Some(next), Some(until)) = (self.next, until)
            && until.saturating_sub(next) / self.grid.period() > most
        {
            let anew = self.at_or_before(until);
            let targets = (anew - next) / self.grid.period();
            self.notices.push(Notice::Skipped { targets });
            self.epoch += 1;
            self.skip_to(anew);
            self.next = Some(anew);
        }
        let Some(next) = self.next else {
            return self.first_target();
        };
        self.forget(self.earliest(next));
        Some(Next::at(next))
    }

    /// The earliest target of the grid that may come before the next one: a clock jump lets the grid start anew right after
    /// the last one sent, whatever `emit_every` is.
    pub(super) fn earliest(&self, next: i64) -> i64 {
        self.back(next, self.emit_every - 1)
    }

    /// The first sample of the leader that is the `every`-th after the last target or later, and `min_interval` after it.
    /// Where targets begin anew, it is the first one at or after the [start](Self::start) that was not sent already.
    fn next_of_leader(&mut self, leader: usize, every: usize, min_interval: i64) -> Option<Next> {
        let sent = self.not_again();
        let runs = self.next.is_some();
        if let Some(sent) = sent.filter(|_| runs) {
            self.forget_for_leader(leader, sent);
        }
        let start = if runs { None } else { Some(self.start()?) };
        let history = &self.streams[leader].history;
        let (times, first_at) = (history.times(), |time: i64| history.until(time.saturating_sub(1)));
        let mut at = start.map_or(0, first_at);
        if let Some(sent) = sent {
            let follows = history.until(sent) + if runs { every - 1 } else { 0 };
            at = at.max(follows).max(first_at(sent.saturating_add(min_interval)));
        }
        let mut next = Next::at(*times.get(at)?);
        if let Some(due) = self.due_at_start().filter(|_| !runs)
            && due.saturating_sub(next.time_ns) > START_HORIZON
        {
            next.time_ns = times[history.until(due) - 1];
            next.leaves_behind = true;
        }
        Some(next)
    }

    /// The newest time that is due, where the timer has ticked and that is newer than the last target.
    fn next_at_tick(&mut self, until: i64) -> Option<Next> {
        if !self.has_begun(until) {
            return None;
        }
        // What is due may go back before the next tick: where a stream opens again, or where all are closed.
        self.forget(until - LOOKS_BACK);
        let is_newer = self.last_sent.is_none_or(|sent| until > sent);
        (self.ticked && is_newer).then(|| Next {
            is_deterministic: false,
            ..Next::at(until)
        })
    }

    /// Whether targets that ticks and requests choose run, which they do from the [start](Self::start) on. Nothing is forgotten
    /// before, or the start would move.
    pub(super) fn has_begun(&mut self, until: i64) -> bool {
        if self.next.is_none()
            && let Some(start) = self.start().filter(|&start| start <= until)
        {
            self.last_sent = self.not_again();
            self.next = Some(start);
        }
        self.next.is_some()
    }

    /// Whether a stream that has stopped may be why there is no newer target: not where a time is asked for by the leader's
    /// samples or a request.
    fn may_be_held_up(&self) -> bool {
        match self.trigger {
            Trigger::Grid => true,
            Trigger::Stream { .. } => false,
            Trigger::Timer(_) => self.ticked,
            // One that is answered shows nothing: see `asks_again`.
            Trigger::Request(_) => false,
        }
    }

    /// By how much the newest sample of the streams that are waited for would be past a target when it falls due, if all
    /// samples came in the order of their times, ns. So it does not depend on when they really come.
    pub fn wait_ns(&self, target: &Target) -> i64 {
        let time = target.time_ns;
        let waits = || self.streams.iter().filter(|stream| stream.spec.waits);
        let mut past = waits().filter_map(|stream| stream.past_with(time)).max();
        if let Some(wait) = self.max_wait {
            let over = |stream: &Stream| {
                let first = stream.history.until(time.saturating_add(wait).saturating_sub(1));
                stream.history.times().get(first).copied()
            };
            let is_missing = |stream: &Stream| stream.open && stream.past_with(time).is_none();
            if waits().any(is_missing) {
                past = None;
            }
            past = past.into_iter().chain(waits().filter_map(over).min()).min();
        }
        past.or(self.newest()).map_or(0, |newest| newest - time)
    }

    /// The time up to which targets are due: every stream that is waited for is past it, or `max_wait_ms` is over.
    pub(super) fn due_until(&self) -> Option<i64> {
        let newest = self.newest()?;
        let mut watermarks = self.waited_for().map(Stream::watermark);
        let all_are_past = match watermarks.next() {
            Some(first) => {
                first.and_then(|first| watermarks.try_fold(first, |until, watermark| Some(until.min(watermark?))))
            }
            None => Some(newest),
        };
        all_are_past.max(self.max_wait.map(|wait| newest - wait))
    }

    /// The first target, and whether it leaves streams behind.
    ///
    /// It is the first at which every stream that is waited for has a sample, or has been waited for long enough, and none
    /// that was sent already. Where that lies more than a second behind what `max_wait_ms` has made due, it is the newest
    /// target that is due instead.
    fn first_target(&self) -> Option<Next> {
        let period = self.grid.period();
        let first = self.grid.time(self.grid.index_at_or_after(self.start()?));
        let mut next = Next::at(self.not_again().map_or(first, |sent| first.max(sent + period)));
        if let Some(due) = self.due_at_start()
            && due.saturating_sub(next.time_ns) > START_HORIZON
        {
            next.time_ns = self.at_or_before(due);
            next.leaves_behind = true;
        }
        Some(next)
    }

    /// The last time of the grid at or before `time`.
    fn at_or_before(&self, time: i64) -> i64 {
        self.grid.time(self.grid.index_at_or_before(time))
    }

    /// With `max_wait_ms`: the time that it has made due, whatever is missing.
    fn due_at_start(&self) -> Option<i64> {
        let newest = self.waited_for().filter_map(|stream| stream.history.newest()).max();
        newest.zip(self.max_wait).map(|(newest, wait)| newest - wait)
    }

    /// The earliest time at which every stream that is waited for has a sample, or has been waited for long enough.
    fn start(&self) -> Option<i64> {
        let firsts = || self.streams.iter().filter_map(|stream| stream.history.oldest());
        let earliest = firsts().min()?;
        let mut start = None;
        for stream in self.streams.iter().filter(|stream| stream.spec.waits) {
            let wait_over = self.max_wait.map(|wait| earliest + wait);
            let ready = match (stream.history.oldest(), wait_over) {
                (Some(first), Some(over)) => first.min(over),
                (Some(first), None) => first,
                (None, _) if !stream.open => continue,
                (None, Some(over)) => over,
                (None, None) => return None,
            };
            start = start.max(Some(ready));
        }
        Some(start.unwrap_or(earliest))
    }

    /// The target up to which none is sent again, ns: the newest one sent, unless targets begin anew because time itself
    /// went back. The time of targets that are a leader's samples is that of its clock.
    pub(super) fn not_again(&self) -> Option<i64> {
        // With `min_period_ms`, a target may have been sent before there was a sample as new as it.
        let reach = |stream: &Stream| Some(stream.history.newest()?.saturating_add(stream.ahead()));
        let newest = || match self.trigger {
            Trigger::Stream { leader, .. } => reach(&self.streams[leader]),
            _ => self.newest_of(reach),
        };
        let went_back = |sent: i64| self.next.is_none() && newest().is_some_and(|newest| newest < sent);
        self.last_sent.filter(|&sent| !went_back(sent))
    }

    /// The newest time of the streams that are waited for; of all streams where none is.
    pub(super) fn newest(&self) -> Option<i64> {
        self.newest_of(|stream| stream.history.newest())
    }

    /// The newest of a time of the streams that are waited for; of all streams where none is.
    fn newest_of(&self, of: impl Fn(&Stream) -> Option<i64>) -> Option<i64> {
        match self.waited_for().next() {
            Some(_) => self.waited_for().filter_map(of).max(),
            None => self.streams.iter().filter_map(of).max(),
        }
    }

    fn waited_for(&self) -> impl Iterator<Item = &Stream> {
        self.streams.iter().filter(|stream| stream.is_waited_for())
    }

    /// By how much a sample at `time` jumps from its stream's newest, if it is a clock jump: back by more than `reset_ms`,
    /// or ahead by more than `jump_ms` of that and of the newest of every stream that is waited for.
    pub(super) fn jump(&self, modality: usize, time: i64) -> Option<i64> {
        let stream = &self.streams[modality];
        let own = time - stream.history.newest().or(stream.left_behind_at)?;
        if own < -stream.spec.reset {
            return Some(own);
        }
        let limit = stream.spec.jump.or(self.max_wait.map(|_| DEFAULT_JUMP))?;
        let mut others = self.streams.iter().enumerate().filter(|&(i, _)| i != modality);
        let is_ahead = |newest: i64| time - newest > limit;
        let is_alone = others.all(|(_, other)| !other.is_waited_for() || other.history.newest().is_none_or(is_ahead));
        let leaps = own > limit || stream.left_behind_at.is_some();
        (leaps && is_alone).then_some(own)
    }

    /// Lets targets begin anew on what the histories hold, after a clock jump.
    pub(super) fn restart(&mut self) {
        self.epoch += 1;
        self.next = None;
        self.refuse_after_jump();
    }

    /// Counts the time up to a target at which the grid goes on after a clock jump as covered.
    fn skip_to(&mut self, time: i64) {
        if let Some(sent) = self.not_again() {
            let skipped = (time - sent).saturating_sub(self.period_ns()).max(0);
            self.covered = self.covered.saturating_add(skipped);
        }
    }

    /// Notes which streams have no sample at or after `time`, where the grid starts without them.
    fn notice_streams_behind(&mut self, time: i64) {
        for (modality, stream) in self.streams.iter().enumerate() {
            let newest = stream.history.newest();
            if stream.is_waited_for() && newest.is_none_or(|newest| newest < time) {
                let behind_ns = newest.map(|newest| time - newest);
                self.notices.push(Notice::StartedWithout { modality, behind_ns });
            }
        }
    }

    /// Leaves streams behind, as if their clocks had jumped, that were ahead of one which goes on and have stopped. Returns
    /// whether there were any.
    ///
    /// Targets behind the last one sent are not sent again, so a leader that stops would silence the node for as long as
    /// the others need to catch up. That it has stopped is told from stamps alone, by the bound that holds whatever the
    /// clocks do: with `max_wait_ms`, a stream that advanced by n periods has made n observations due, less those that it
    /// was waited for, less those skipped.
    fn leave_stopped_leader(&mut self) -> bool {
        let (Some(wait), Some(sent)) = (self.max_wait, self.not_again()) else {
            return false;
        };
        let steps = (self.emit_every + 4).saturating_mul(self.grid.period());
        let allowed = (2 * wait).saturating_add(steps);
        let is_held_up = |stream: &&Stream| {
            stream.samples_since_sent >= GOES_ON_SAMPLES
                && stream.advanced_since_sent > allowed
                && stream.advanced.saturating_sub(self.covered) > allowed
                && stream.history.newest().is_some_and(|newest| newest < sent)
        };
        let held_up = self.waited_for().filter(is_held_up);
        let Some(newest) = held_up.filter_map(|stream| stream.history.newest()).max() else {
            return false;
        };
        for (modality, stream) in self.streams.iter_mut().enumerate() {
            let ahead_ns = stream.history.newest().map_or(0, |own| own - newest);
            if stream.is_waited_for() && ahead_ns > wait {
                stream.left_behind_at = stream.history.newest();
                stream.clear();
                self.notices.push(Notice::LeftBehind { modality, ahead_ns });
            }
        }
        self.restart();
        true
    }

    /// Restarts the counts by which a stream that has stopped is told from one that goes on.
    pub(super) fn forget_advances(&mut self) {
        self.covered = 0;
        for stream in &mut self.streams {
            (stream.advanced, stream.advanced_since_sent) = (0, 0);
            stream.samples_since_sent = 0;
        }
    }

    /// Drops the samples that neither the window of a target at `time` nor a later one needs.
    pub(super) fn forget(&mut self, time: i64) {
        let oldest_row = self.back(time, (self.window - 1) * self.stride);
        self.forget_before(oldest_row);
    }

    /// The same after the target of a leader.
    fn forget_for_leader(&mut self, leader: usize, sent: i64) {
        let Trigger::Stream {
            rows: Rows::Samples, ..
        } = self.trigger
        else {
            return self.forget(sent);
        };
        let oldest_row = self.sample_before(leader, sent, (self.window - 1) * self.stride);
        if oldest_row.is_there {
            self.forget_before(oldest_row.time_ns);
        }
    }

    fn forget_before(&mut self, oldest_row: i64) {
        if self.forgotten_before == Some(oldest_row) {
            return;
        }
        self.forgotten_before = Some(oldest_row);
        for stream in &mut self.streams {
            let oldest = oldest_row.min(stream.settles_from());
            stream.history.forget_before(oldest, stream.needs[0]);
        }
    }
}
