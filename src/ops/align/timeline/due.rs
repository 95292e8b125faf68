//! When an observation is due: the first target, clock jumps, and streams that hold up others.

use super::{Modality, Notice, Target, Timeline};

/// More targets than this falling due at once are a clock jump even where no `jump_ms` says so: nobody could take them.
/// With `max_wait_ms` they come of clocks alone, such as that of a stream which speaks for the first time; without it, a
/// stream may have waited for another for days.
const MAX_TARGETS_AT_ONCE: i64 = 1 << 32;
const MAX_TARGETS_WITH_MAX_WAIT: i64 = 1 << 20;

/// With `max_wait_ms`: a first target that lies further behind what is due already is not caught up with, ns.
const START_HORIZON: i64 = 1_000_000_000;

/// With `max_wait_ms`: a stamp that goes ahead by more is a clock jump, where the configuration does not say, ns.
const DEFAULT_JUMP: i64 = 10_000_000_000;

/// A stream goes on, and has not just caught up, once it had so many samples since the last observation.
const GOES_ON_SAMPLES: u32 = 8;

impl Timeline {
    /// The next observation that is due, if one is. Its window can be read until the next call.
    pub fn due(&mut self) -> Option<Target> {
        // A stream that leads and has stopped may hold up one that goes on.
        self.next_due()
            .or_else(|| self.leave_stopped_leader().then(|| self.next_due()).flatten())
    }

    fn next_due(&mut self) -> Option<Target> {
        let due_until = self.due_until();
        let is_waiting = self.max_wait.is_some() && self.waited_for().next().is_some();
        let most = if is_waiting {
            MAX_TARGETS_WITH_MAX_WAIT
        } else {
            MAX_TARGETS_AT_ONCE
        };
        if let (Some(index), Some(until)) = (self.next, due_until)
            && until.saturating_sub(self.grid.time(index)) / self.grid.period() > most
        {
            let anew = self.grid.index_at_or_before(until);
            self.notices.push(Notice::Skipped { targets: anew - index });
            self.epoch += 1;
            self.skip_to(anew);
            self.next = Some(anew);
        }
        let (index, leaves_behind) = match self.next {
            Some(index) => {
                self.forget(index);
                (index, false)
            }
            None => self.first_target()?,
        };
        if due_until.is_none_or(|until| until < self.grid.time(index)) {
            return None;
        }
        if self.next.is_none() {
            self.skip_to(index);
        }
        if leaves_behind {
            self.notice_streams_behind(self.grid.time(index));
        }
        self.next = Some(index + self.emit_every);
        self.last_sent = Some(index);
        self.covered = self.covered.saturating_add(self.period_ns());
        for stream in &mut self.modalities {
            (stream.advanced_since_sent, stream.samples_since_sent) = (0, 0);
        }
        Some(Target {
            index,
            time_ns: self.grid.time(index),
            epoch: self.epoch,
            late_samples: self.late_samples,
        })
    }

    /// Targets up to this time are due, if any are: where every stream is past them, or the wait for them is over.
    fn due_until(&self) -> Option<i64> {
        let newest = self.newest()?;
        let complete = self
            .waited_for()
            .map(Modality::watermark)
            .try_fold(newest, |until, watermark| Some(until.min(watermark?)));
        complete.max(self.max_wait.map(|wait| newest - wait))
    }

    /// The first target, and whether it leaves streams behind: the first one at which every stream that is waited for
    /// has a sample or its wait ran out, after what is not sent again. Where that lies more than a second behind what
    /// `max_wait_ms` has made due, it is the newest target that is.
    fn first_target(&self) -> Option<(i64, bool)> {
        let first = self.grid.index_at_or_after(self.start()?);
        let first = self.not_again().map_or(first, |sent| first.max(sent + 1));
        let newest = self.waited_for().filter_map(|stream| stream.history.newest()).max();
        let due = newest.zip(self.max_wait).map(|(newest, wait)| newest - wait);
        let is_far_behind = |due: &i64| due.saturating_sub(self.grid.time(first)) > START_HORIZON;
        Some(match due.filter(is_far_behind) {
            Some(due) => (self.grid.index_at_or_before(due), true),
            None => (first, false),
        })
    }

    /// The earliest time at which every stream that is waited for has a sample or its wait ran out.
    fn start(&self) -> Option<i64> {
        let firsts = || self.modalities.iter().filter_map(|stream| stream.history.oldest());
        let earliest = firsts().min()?;
        let mut start = None;
        for stream in self.modalities.iter().filter(|stream| stream.waits) {
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

    /// The target up to which none is sent again: the last one sent, unless the grid is to start anew because time itself
    /// went back.
    pub(super) fn not_again(&self) -> Option<i64> {
        let went_back =
            |sent: i64| self.next.is_none() && self.newest().is_some_and(|newest| newest < self.grid.time(sent));
        self.last_sent.filter(|&sent| !went_back(sent))
    }

    /// The newest time of the streams that are waited for; of all where there is none of those.
    fn newest(&self) -> Option<i64> {
        let of = |stream: &Modality| stream.history.newest();
        match self.waited_for().next() {
            Some(_) => self.waited_for().filter_map(of).max(),
            None => self.modalities.iter().filter_map(of).max(),
        }
    }

    fn waited_for(&self) -> impl Iterator<Item = &Modality> {
        self.modalities.iter().filter(|stream| stream.is_waited_for())
    }

    /// By how much a sample of that time is a jump of its stream's clock, if it is one: back from its newest by more
    /// than `reset_ms`, or ahead of its newest and of those of all streams that are waited for by more than `jump_ms`.
    pub(super) fn jump(&self, modality: usize, time: i64) -> Option<i64> {
        let stream = &self.modalities[modality];
        let own = time - stream.history.newest().or(stream.left_behind_at)?;
        if own < -stream.reset {
            return Some(own);
        }
        let limit = stream.jump.or(self.max_wait.map(|_| DEFAULT_JUMP))?;
        let mut others = self.modalities.iter().enumerate().filter(|&(i, _)| i != modality);
        let is_ahead = |newest: i64| time - newest > limit;
        let is_alone = others.all(|(_, other)| !other.is_waited_for() || other.history.newest().is_none_or(is_ahead));
        let leaps = own > limit || stream.left_behind_at.is_some();
        (leaps && is_alone).then_some(own)
    }

    /// The clock of a stream jumped: the grid starts anew on what the histories hold.
    pub(super) fn restart(&mut self) {
        self.epoch += 1;
        self.next = None;
    }

    /// The grid goes on at this target after a clock jump: what lies between is covered.
    fn skip_to(&mut self, index: i64) {
        if let Some(sent) = self.not_again() {
            let skipped = (index - sent - self.emit_every).max(0);
            self.covered = self.covered.saturating_add(skipped.saturating_mul(self.grid.period()));
        }
    }

    /// Says which streams are further behind a grid that starts at `time` than it would wait for.
    fn notice_streams_behind(&mut self, time: i64) {
        for (modality, stream) in self.modalities.iter().enumerate() {
            let newest = stream.history.newest();
            if stream.is_waited_for() && newest.is_none_or(|newest| newest < time) {
                let behind_ns = newest.map(|newest| time - newest);
                self.notices.push(Notice::StartedWithout { modality, behind_ns });
            }
        }
    }

    /// With `max_wait_ms`, no stream holds up another for ever, not even by being ahead of it: where one goes on behind
    /// what was sent, and those ahead of it have stopped, they are left behind as if their clocks had jumped. Says
    /// whether that was so.
    ///
    /// Whether they have stopped is told from stamps alone, by the bound that holds whatever the clocks do: a stream that
    /// went on by n periods has made n observations due, less those for which it was waited, less those skipped.
    fn leave_stopped_leader(&mut self) -> bool {
        let (Some(wait), Some(sent)) = (self.max_wait, self.not_again().map(|sent| self.grid.time(sent))) else {
            return false;
        };
        let steps = (self.emit_every + 4).saturating_mul(self.grid.period());
        let allowed = (2 * wait).saturating_add(steps);
        let is_held_up = |stream: &&Modality| {
            stream.samples_since_sent >= GOES_ON_SAMPLES
                && stream.advanced_since_sent > allowed
                && stream.advanced.saturating_sub(self.covered) > allowed
                && stream.history.newest().is_some_and(|newest| newest < sent)
        };
        let held_up = self.waited_for().filter(is_held_up);
        let Some(newest) = held_up.filter_map(|stream| stream.history.newest()).max() else {
            return false;
        };
        for (modality, stream) in self.modalities.iter_mut().enumerate() {
            let ahead_ns = stream.history.newest().map_or(0, |own| own - newest);
            if stream.is_waited_for() && ahead_ns > wait {
                stream.left_behind_at = stream.history.newest();
                stream.history.clear();
                self.notices.push(Notice::LeftBehind { modality, ahead_ns });
            }
        }
        self.restart();
        true
    }

    /// Begins anew to tell streams that have stopped from those that go on.
    pub(super) fn forget_advances(&mut self) {
        self.covered = 0;
        for stream in &mut self.modalities {
            (stream.advanced, stream.advanced_since_sent) = (0, 0);
            stream.samples_since_sent = 0;
        }
    }

    fn forget(&mut self, next: i64) {
        let oldest_row = self.grid.time(next - (self.window - 1) * self.stride);
        for stream in &mut self.modalities {
            stream.history.forget_before(oldest_row);
        }
    }
}
