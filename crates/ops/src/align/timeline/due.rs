//! Rules that decide when an observation is due: the watermarks, the next target, the first target, and clock jumps.
//!
//! A target is due once the values of every stream that is waited for are final up to it (the watermark), or once `max_wait_ms`
//! is over. The head of `timeline.rs` defines G, lead, leader and aside.

use super::{InputStream, Notice, Target, Timeline, Trigger};
use crate::align::Rows;
use crate::align::spec::MAX_LOOK_BACK;

/// Greatest number of targets that may be due at once. More are skipped, which counts as a clock jump. Without `max_wait_ms`,
/// observations may have waited for a stream for days, so the limit is high. With `max_wait_ms`, `jump_ms` is the limit.
const MAX_TARGETS_AT_ONCE: i64 = 1 << 32;

/// Greatest distance, ns, of the first target behind the time that `max_wait_ms` makes due. Targets further behind are skipped.
const START_HORIZON: i64 = 1_000_000_000;

/// Next target, whether or not it is due yet.
pub(super) struct NextTarget {
    pub time_ns: i64,
    /// True for a first target that does not wait for streams whose samples are far behind it.
    pub leaves_behind: bool,
    /// Number of the request that the target answers; `None` if another trigger made the target.
    pub request: Option<u64>,
    pub is_deterministic: bool,
}

impl NextTarget {
    pub(super) fn at(time_ns: i64) -> Self {
        Self {
            time_ns,
            leaves_behind: false,
            request: None,
            is_deterministic: true,
        }
    }
}

impl Timeline {
    /// Returns the next observation that is due; `None` if none is. Its window can be computed until the next call, which drops
    /// the samples that no later window needs.
    pub fn due(&mut self) -> Option<Target> {
        let due = self.next_due();
        self.ticked = false;
        due
    }

    /// Records a tick of the timer that triggers observations. The next call of [`due`](Self::due) then returns the observation
    /// at the newest time that is due, if that is after the last one.
    pub fn tick(&mut self) {
        self.ticked = true;
    }

    fn next_due(&mut self) -> Option<Target> {
        let until = self.due_until();
        let next = match self.spec.trigger {
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

    /// Records a target as sent, and returns it with the counts for the observation's metadata.
    fn send(&mut self, next: NextTarget) -> Target {
        let (time, sent) = (next.time_ns, self.sent_until());
        if next.leaves_behind {
            self.notice_streams_behind(time);
        }
        match self.spec.trigger {
            Trigger::Grid => self.next = Some(time.saturating_add(self.period_ns())),
            // A request with a time may be answered before targets begin.
            Trigger::Request(_) if self.next.is_none() => {}
            _ => self.next = Some(time.saturating_add(1)),
        }
        self.begins_anew &= self.next.is_none();
        self.last_sent = Some(sent.map_or(time, |sent| sent.max(time)));
        if next.request.is_some() {
            self.pending.pop_front();
        }
        if self.spec.trigger == Trigger::Grid {
            self.count_anew();
        }
        Target {
            time_ns: time,
            epoch: self.epoch,
            late_samples: self.late_samples,
            request: next.request,
            is_deterministic: next.is_deterministic,
        }
    }

    fn next_on_grid(&mut self, until: Option<i64>) -> Option<NextTarget> {
        if let (Some(next), Some(until)) = (self.next, until)
            && until.saturating_sub(next) / self.spec.grid.period() > MAX_TARGETS_AT_ONCE
        {
            let anew = self.grid_time_at_or_before(until);
            let targets = (anew - next) / self.spec.grid.period();
            self.notices.push(Notice::Skipped { targets });
            self.epoch += 1;
            self.next = Some(anew);
        }
        let Some(next) = self.next else {
            return self.first_target();
        };
        self.forget(self.earliest(next));
        Some(NextTarget::at(next))
    }

    /// Returns the earliest target that may replace `next`, ns. After a clock jump, targets begin anew at the first period of
    /// `rate_hz` after the last target, whatever `emit_every` is.
    pub(super) fn earliest(&self, next: i64) -> i64 {
        self.back(next, self.spec.emit_every - 1)
    }

    /// Returns the next target among the samples of modality `leader`: the first that is at least the `every`-th after the last
    /// target, and at least `min_interval` later. If targets begin anew, it is the first sample at or after the
    /// [start](Self::start) that follows the last target by `min_interval` or more.
    fn next_of_leader(&mut self, leader: usize, every: usize, min_interval: i64) -> Option<NextTarget> {
        let sent = self.sent_until();
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
        let mut next = NextTarget::at(*times.get(at)?);
        if let Some(due) = self.due_at_start(next.time_ns).filter(|_| !runs) {
            next.time_ns = times[history.until(due) - 1];
            next.leaves_behind = true;
        }
        Some(next)
    }

    /// Returns a target at `until`, the newest time that is due, if the timer has ticked and that time is after
    /// the last target.
    fn next_at_tick(&mut self, until: i64) -> Option<NextTarget> {
        if !self.has_begun(until) {
            return None;
        }
        // The due time may go back before the next tick: if a stream opens again, or if all are closed.
        self.forget(until - MAX_LOOK_BACK);
        let is_newer = self.sent_until().is_none_or(|sent| until > sent);
        (self.ticked && is_newer).then(|| NextTarget {
            is_deterministic: false,
            ..NextTarget::at(until)
        })
    }

    /// True if observations at ticks and requests have begun: the newest time that is due, `until`, has reached the
    /// [start](Self::start). Until then no sample is dropped, because that would move the start.
    pub(super) fn has_begun(&mut self, until: i64) -> bool {
        if self.next.is_none()
            && let Some(start) = self.start().filter(|&start| start <= until)
        {
            self.next = Some(start);
        }
        self.next.is_some()
    }

    /// Returns the time for which an observation waited for slower streams, by the stamps, ns: from its own time to the
    /// newest sample when it became due. Computed as if all samples came in the order of their times, so it does not depend
    /// on their arrival.
    pub fn wait_ns(&self, target: &Target) -> i64 {
        let time = target.time_ns;
        let clock = self.clock;
        let waits = || {
            let waits = self.streams.iter().filter(|stream| stream.spec.waits);
            waits.filter(|stream| !stream.is_aside(clock))
        };
        let mut past = waits().filter_map(|stream| stream.newest_when_past(time)).max();
        if let Some(wait) = self.spec.max_wait {
            let over = |stream: &InputStream| {
                let first = stream.history.until(time.saturating_add(wait).saturating_sub(1));
                stream.history.times().get(first).copied()
            };
            let is_missing = |stream: &InputStream| stream.open && stream.newest_when_past(time).is_none();
            if waits().any(is_missing) {
                past = None;
            }
            past = past.into_iter().chain(waits().filter_map(over).min()).min();
        }
        past.or(clock).map_or(0, |newest| newest - time)
    }

    /// Returns the newest time that is due, ns; `None` if there is none yet. Up to that time, the values of every stream that
    /// is waited for are final, or `max_wait_ms` is over.
    pub(super) fn due_until(&self) -> Option<i64> {
        let clock = self.clock?;
        let mut watermarks = self.holding_up().map(InputStream::watermark);
        let all_are_past = match watermarks.next() {
            Some(first) => {
                first.and_then(|first| watermarks.try_fold(first, |until, watermark| Some(until.min(watermark?))))
            }
            None => Some(clock),
        };
        all_are_past.max(self.spec.max_wait.map(|wait| clock - wait))
    }

    /// Returns the first target, and whether it leaves streams behind. `None` while the [start](Self::start) is not known.
    ///
    /// This is the first multiple of the period at or after the start that was not sent yet. If it is more than a second behind
    /// the time that `max_wait_ms` makes due, the newest target that is due replaces it.
    fn first_target(&self) -> Option<NextTarget> {
        let period = self.spec.grid.period();
        let first = self.spec.grid.time(self.spec.grid.index_at_or_after(self.start()?));
        let mut next = NextTarget::at(self.sent_until().map_or(first, |sent| first.max(sent + period)));
        if let Some(due) = self.due_at_start(next.time_ns) {
            next.time_ns = next.time_ns.max(self.grid_time_at_or_before(due));
            next.leaves_behind = true;
        }
        Some(next)
    }

    /// True if the trigger is `grid` and the next target is due.
    pub(super) fn is_next_due(&self) -> bool {
        let next = || match self.next {
            Some(next) => Some(next),
            None => self.first_target().map(|next| next.time_ns),
        };
        self.spec.trigger == Trigger::Grid && self.due_until().zip(next()).is_some_and(|(until, next)| until >= next)
    }

    /// Returns the last multiple of the period at or before `time`, ns.
    pub(super) fn grid_time_at_or_before(&self, time: i64) -> i64 {
        self.spec.grid.time(self.spec.grid.index_at_or_before(time))
    }

    /// Returns the time that `max_wait_ms` makes due if `first`, the first target, is more than `START_HORIZON` behind it: the
    /// clocks of the streams then disagree. Otherwise returns `None`. While only one stream has a sample, this comparison takes
    /// its first sample for the grid's clock, because the stream may be slow.
    fn due_at_start(&self, first: i64) -> Option<i64> {
        let (wait, clock) = (self.spec.max_wait?, self.clock?);
        let waits = self.streams.iter().filter(|stream| stream.spec.waits);
        let mut firsts = waits.filter_map(|stream| stream.history.oldest());
        let judged_by = match (firsts.next(), firsts.next()) {
            (Some(only), None) => only,
            _ => clock,
        };
        let is_far = (judged_by - wait).saturating_sub(first) > START_HORIZON;
        is_far.then_some(clock - wait)
    }

    /// Returns the start, before which there is no target; `None` while it is not known. It is the earliest time at which every
    /// stream that is waited for has a sample, or `max_wait_ms` is over.
    pub(super) fn start(&self) -> Option<i64> {
        let firsts = || self.streams.iter().filter_map(|stream| stream.history.oldest());
        let (earliest, clock) = (firsts().min()?, self.clock);
        let mut start = None;
        let waits = self.streams.iter().filter(|stream| stream.spec.waits);
        for stream in waits.filter(|stream| !stream.is_aside(clock)) {
            let wait_over = self.spec.max_wait.map(|wait| earliest + wait);
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

    /// Returns the newest target sent, ns: no target up to it is sent again. `None` if none was sent, or if targets begin
    /// anew because time itself went back. If the samples of a stream are the targets, only its clock decides whether
    /// time went back.
    pub(super) fn sent_until(&self) -> Option<i64> {
        // With `min_period_ms`, a target may have been sent before there was a sample as new as it.
        let newest = || match self.spec.trigger {
            Trigger::Stream { leader, .. } => {
                let leader = &self.streams[leader];
                Some(leader.history.newest()?.saturating_add(leader.ahead()))
            }
            _ => self.clock_with_lead(),
        };
        let went_back = |sent: i64| self.begins_anew && newest().is_some_and(|newest| newest < sent);
        self.last_sent.filter(|&sent| !went_back(sent))
    }

    pub(super) fn waited_for(&self) -> impl Iterator<Item = &InputStream> {
        self.streams.iter().filter(|stream| stream.is_waited_for())
    }

    /// Returns the distance of a sample at `time` from the newest of its stream, ns, if the sample is a clock jump; otherwise
    /// `None`. A jump is more than `reset_ms` back, or more than `jump_ms` ahead of that sample and of every stream that is
    /// waited for. Only a stream that the grid's clock [always follows](Self::always_leads), or that observations do not wait
    /// for, can jump ahead.
    pub(super) fn jump(&self, modality: usize, time: i64) -> Option<i64> {
        let stream = &self.streams[modality];
        let own = time - stream.history.newest()?;
        if own < -stream.spec.reset {
            return Some(own);
        }
        let limit = self.jump_limit(modality)?;
        let mut others = self.streams.iter().enumerate().filter(|&(i, _)| i != modality);
        let is_ahead = |newest: i64| time - newest > limit;
        let is_alone = others.all(|(_, other)| !other.is_waited_for() || other.history.newest().is_none_or(is_ahead));
        let may_jump = !stream.spec.waits || self.always_leads(modality);
        (own > limit && may_jump && is_alone).then_some(own)
    }

    /// Counts a clock jump: targets begin anew from the samples in the histories, and waiting requests for a given
    /// time are refused.
    pub(super) fn restart(&mut self) {
        self.epoch += 1;
        self.next = None;
        self.begins_anew = true;
        self.due_mark = None;
        self.refuse_after_jump();
    }

    /// Adds a notice for each stream without a sample at or after `time`, the first target.
    fn notice_streams_behind(&mut self, time: i64) {
        for (modality, stream) in self.streams.iter().enumerate() {
            let newest = stream.history.newest();
            if stream.is_waited_for() && newest.is_none_or(|newest| newest < time) {
                let behind_ns = newest.map(|newest| time - newest);
                self.notices.push(Notice::StartedWithout { modality, behind_ns });
            }
        }
    }

    /// Drops the samples that windows of targets at or after `time` do not need.
    pub(super) fn forget(&mut self, time: i64) {
        let oldest_row = self.back(time, (self.spec.window - 1) * self.spec.stride);
        self.forget_before(oldest_row);
    }

    /// Drops the samples that no window needs after the target `sent`, a sample of modality `leader`.
    fn forget_for_leader(&mut self, leader: usize, sent: i64) {
        let Trigger::Stream {
            rows: Rows::Samples, ..
        } = self.spec.trigger
        else {
            return self.forget(sent);
        };
        let oldest_row = self.sample_before(leader, sent, (self.spec.window - 1) * self.spec.stride);
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
            let oldest = oldest_row.min(stream.keep_from());
            stream.history.forget_before(oldest, stream.needs[0]);
        }
    }
}
