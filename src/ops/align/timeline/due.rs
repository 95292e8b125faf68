//! When an observation is due: the watermark rule, the first target, clock jumps, and streams that hold up others.

use super::{Notice, Stream, Target, Timeline};

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

impl Timeline {
    /// The next observation that is due, if one is. Its window can be read until the next call, which drops what no window
    /// needs any more.
    pub fn due(&mut self) -> Option<Target> {
        // A leader that has stopped may hold up a stream that goes on.
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
        for stream in &mut self.streams {
            (stream.advanced_since_sent, stream.samples_since_sent) = (0, 0);
        }
        Some(Target {
            index,
            time_ns: self.grid.time(index),
            epoch: self.epoch,
            late_samples: self.late_samples,
        })
    }

    /// The time up to which targets are due: every stream that is waited for is past it, or `max_wait_ms` is over.
    fn due_until(&self) -> Option<i64> {
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

    /// The target up to which none is sent again: the last one sent, unless the grid starts anew because time itself went
    /// back.
    pub(super) fn not_again(&self) -> Option<i64> {
        // With `min_period_ms`, a target may have been sent before there was a sample as new as it.
        let reach = |stream: &Stream| Some(stream.history.newest()?.saturating_add(stream.ahead()));
        let went_back = |sent: i64| {
            self.next.is_none()
                && self
                    .newest_of(reach)
                    .is_some_and(|newest| newest < self.grid.time(sent))
        };
        self.last_sent.filter(|&sent| !went_back(sent))
    }

    /// The newest time of the streams that are waited for; of all streams where none is.
    fn newest(&self) -> Option<i64> {
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

    /// Starts the grid anew on what the histories hold, after a clock jump.
    pub(super) fn restart(&mut self) {
        self.epoch += 1;
        self.next = None;
    }

    /// Counts the time up to a target at which the grid goes on after a clock jump as covered.
    fn skip_to(&mut self, index: i64) {
        if let Some(sent) = self.not_again() {
            let skipped = (index - sent - self.emit_every).max(0);
            self.covered = self.covered.saturating_add(skipped.saturating_mul(self.grid.period()));
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
        let (Some(wait), Some(sent)) = (self.max_wait, self.not_again().map(|sent| self.grid.time(sent))) else {
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

    /// Drops the samples that neither the window of target `next` nor a later one needs.
    fn forget(&mut self, next: i64) {
        let oldest_row = self.oldest_row(next);
        for stream in &mut self.streams {
            stream.history.forget_before(oldest_row, stream.needs[0]);
        }
    }
}
