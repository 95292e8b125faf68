//! Grid's clock, *G*: the newest capture time of the streams that *lead*. With `max_wait_ms`, a target is due once G is that
//! far past it.
//!
//! A stream *leads* if it is open, has `wait: true` and is not aside. It is *aside* if it is more than `jump_ms` ahead of G:
//! observations then neither wait for it nor take G from it. G *moves* to another stream if only that stream advances.
//!
//! Invariant: with `max_wait_ms`, no stream stops the observations, whatever its stamps are. Without `max_wait_ms`, no stream
//! is aside and G does not move.

use super::{InputStream, Notice, Timeline, Trigger};

/// Default of `jump_ms` with `max_wait_ms`, ns.
const DEFAULT_JUMP: i64 = 10_000_000_000;

/// Number of samples that a stream must bring without an observation in between before the grid's clock may move to it.
const MOVING_SAMPLES: u32 = 8;

/// Greatest distance ahead of the grid's clock, ns, at which a stream counts for that clock again, after a move of the clock
/// set it aside as too far ahead.
const MAX_LEAD_AGAIN: i64 = 1_000_000_000;

/// Progress of a stream compared with the grid's clock: whether it is set aside as too far ahead, and how far it has advanced
/// since the last observation.
#[derive(Default)]
pub(super) struct Pace {
    /// Distance ahead of the grid's clock, ns, at or below which the stream is no longer set aside as too far ahead. `None`
    /// while it is not set aside.
    aside: Option<i64>,
    /// Newest time of the stream before it was set aside as too far ahead, ns; `None` while it is not set aside.
    led_until: Option<i64>,
    /// Number of samples that advanced the stream since the last observation. Samples that make up for a pause do not count.
    samples: u32,
    /// Time by which the samples counted in `samples` advanced the stream, ns.
    advance: i64,
    /// Progress of the grid's clock by samples of other streams since this stream's last sample, ns: a measure of its pause.
    missed: i64,
    /// Largest single step of the grid's clock in `missed`, ns.
    greatest: i64,
    /// Time up to which samples only make up for a pause of the stream and do not count, ns; at most the grid's clock. `None`
    /// before the first pause.
    catches_up_to: Option<i64>,
}

impl Pace {
    /// Restarts the counts of samples and pauses. A stream that is set aside as too far ahead stays so.
    fn restart(&mut self) {
        *self = Self {
            aside: self.aside,
            led_until: self.led_until,
            ..Self::default()
        };
    }

    /// Adds `ns` to the stored times of the stream, after a change of its latency.
    pub(super) fn shift(&mut self, ns: i64) {
        for time in [&mut self.led_until, &mut self.catches_up_to] {
            *time = time.map(|time| time.saturating_add(ns));
        }
    }

    /// Counts a sample that moves the newest time of the stream from `old` to `newest`, unless it only makes up for a pause.
    /// Returns true if the sample counts. `clock` is the grid's clock before the sample, `longest_pause` the longest pause to
    /// make up for, ns.
    fn count(&mut self, old: Option<i64>, newest: i64, clock: Option<i64>, longest_pause: i64) -> bool {
        // A single large step may come from a wrong stamp of another stream, and is then no pause.
        let pause = (self.missed - self.greatest).min(longest_pause);
        (self.missed, self.greatest) = (0, 0);
        if pause > 0 {
            let caught_up = old.unwrap_or(newest).saturating_add(pause);
            self.catches_up_to = self.catches_up_to.max(clock.map(|clock| clock.min(caught_up)));
        }
        // The grid's clock may have gone back since.
        let catches_up_to = self.catches_up_to.zip(clock).map(|(until, clock)| until.min(clock));
        let counts_from = old.map(|old| catches_up_to.map_or(old, |until| until.max(old)));
        let Some(from) = counts_from.filter(|&from| newest > from) else {
            return false;
        };
        self.samples = self.samples.saturating_add(1);
        self.advance = self.advance.saturating_add(newest - from);
        true
    }
}

impl InputStream {
    /// Returns the stream's time that counts for the grid's clock, ns: its newest, or if it is set aside as too far ahead, its
    /// newest before that.
    fn leads_until(&self) -> Option<i64> {
        match self.pace.aside {
            None => self.history.newest(),
            Some(_) => self.pace.led_until,
        }
    }

    /// True if the stream counts for the grid's clock while it is open: it has `wait: true`, and is not set aside as
    /// too far ahead.
    fn leads(&self) -> bool {
        self.spec.waits && self.pace.aside.is_none()
    }
}

impl Timeline {
    /// Sets the grid's clock to the newest time of the open streams with `wait: true`. A stream that is set aside as too far
    /// ahead counts with its newest time before that. Closed streams count only if none is open. Without any such time, the
    /// clock does not change.
    pub(super) fn update_clock(&mut self) {
        let newest = |streams: &mut dyn Iterator<Item = &InputStream>| {
            let waits = streams.filter(|stream| stream.spec.waits);
            waits.filter_map(InputStream::leads_until).max()
        };
        let leading = match self.waited_for().next() {
            Some(_) => newest(&mut self.waited_for()),
            None => newest(&mut self.streams.iter()),
        };
        self.clock = leading.or(self.clock);
    }

    /// Returns the grid's clock as if each stream that counts for it were newer by [`InputStream::ahead`], ns. Targets up to
    /// this time may already be due.
    pub(super) fn clock_with_lead(&self) -> Option<i64> {
        let all_are_closed = self.waited_for().next().is_none();
        let leading = self
            .streams
            .iter()
            .filter(|stream| stream.leads() && (stream.open || all_are_closed));
        let reach = leading.filter_map(|stream| Some(stream.history.newest()?.saturating_add(stream.ahead())));
        reach.max().max(self.clock)
    }

    /// Returns the streams that observations wait for: open, with `wait: true`, and not set aside as too far ahead.
    pub(super) fn holding_up(&self) -> impl Iterator<Item = &InputStream> {
        let clock = self.clock;
        self.waited_for().filter(move |stream| !stream.is_aside(clock))
    }

    /// Returns the distance by which a stream that is set aside as too far ahead is ahead of the grid's clock, ns; `None` for
    /// any other stream.
    pub fn aside_ns(&self, stream: usize) -> Option<i64> {
        let (stream, clock) = (&self.streams[stream], self.clock?);
        let is_aside = stream.is_waited_for() && stream.is_aside(Some(clock));
        stream
            .history
            .newest()
            .filter(|_| is_aside)
            .map(|newest| newest - clock)
    }

    /// True if a stream counts for the grid's clock whatever its stamps are: observations wait for no other stream, or its
    /// samples are the targets, or there is no `max_wait_ms`.
    pub(super) fn always_leads(&self, modality: usize) -> bool {
        self.spec.max_wait.is_none() || self.leader() == Some(modality) || self.is_sole(modality)
    }

    fn is_sole(&self, modality: usize) -> bool {
        let mut others = self.streams.iter().enumerate().filter(|&(i, _)| i != modality);
        !others.any(|(_, other)| other.is_waited_for())
    }

    /// Returns the greatest distance, ns, by which a stamp may be ahead of the other streams. A stamp further ahead is a clock
    /// jump, or sets its stream aside. `None` without a limit.
    pub(super) fn jump_limit(&self, modality: usize) -> Option<i64> {
        let limit = self.streams[modality].spec.jump;
        limit.or(self.spec.max_wait.map(|_| DEFAULT_JUMP))
    }

    /// Updates the grid's clock after a sample of a stream: decides whether the stream is set aside as too far ahead, and moves
    /// the clock to it if necessary. Before the sample, the clock was `before`, and the stream's newest time `old`. The sample
    /// is a clock jump if `jumped`.
    pub(super) fn follow(&mut self, modality: usize, before: Option<i64>, old: Option<i64>, jumped: bool) {
        let newest = self.streams[modality].history.newest();
        let (Some(newest), true) = (newest, self.streams[modality].spec.waits) else {
            return self.follow_due();
        };
        let (mut moves, mut counts) = (false, false);
        if let Some(limit) = self.jump_limit(modality).filter(|_| self.spec.max_wait.is_some()) {
            moves = self.judge_lead(modality, [old, Some(newest)], before, limit) && !jumped;
            let pace = &mut self.streams[modality].pace;
            match jumped {
                true => pace.restart(),
                false => counts = pace.count(old, newest, before, limit),
            }
        }
        self.update_clock();
        if let (Some(before), Some(after), false) = (before, self.clock, jumped)
            && after > before
            && self.spec.max_wait.is_some()
        {
            let others = self.streams.iter_mut().enumerate().filter(|&(i, _)| i != modality);
            for (_, stream) in others {
                stream.pace.missed = stream.pace.missed.saturating_add(after - before);
                stream.pace.greatest = stream.pace.greatest.max(after - before);
            }
        }
        self.follow_due();
        let pace = &self.streams[modality].pace;
        let goes_on_alone = counts && pace.samples >= MOVING_SAMPLES && pace.advance > self.may_advance();
        if moves || goes_on_alone && self.leader().is_none() && !self.is_next_due() {
            self.move_clock(modality);
        }
    }

    /// Sets a stream aside if it is more than `limit` ns ahead of `clock`, and otherwise ends that state. `newest` has its
    /// newest time before and after a sample. Returns true if the grid's clock has to move to the stream at once.
    fn judge_lead(&mut self, modality: usize, newest: [Option<i64>; 2], clock: Option<i64>, limit: i64) -> bool {
        let (always, is_sole) = (self.always_leads(modality), self.is_sole(modality));
        let pace = &mut self.streams[modality].pace;
        let [old, newest] = newest;
        let ahead_ns = newest
            .zip(clock)
            .map_or(0, |(newest, clock)| newest.saturating_sub(clock));
        let is_ahead = ahead_ns > pace.aside.unwrap_or(limit);
        if is_ahead && !always {
            if pace.aside.is_none() {
                (pace.aside, pace.led_until) = (Some(limit), old);
            }
            self.notices.push(Notice::Aside { modality, ahead_ns });
        } else {
            (pace.aside, pace.led_until) = (None, None);
        }
        is_ahead && is_sole
    }

    /// Restarts the streams' counts of samples once the newest time that is due has advanced by a period. Only with the
    /// triggers `timer` and `request`. An observation must be possible at that time: it is not before the start, and with
    /// `timer` it is after the last target.
    fn follow_due(&mut self) {
        if matches!(self.spec.trigger, Trigger::Grid | Trigger::Stream { .. }) {
            return;
        }
        let Some(due) = self.due_until() else { return };
        // After a clock jump the mark begins anew: a jump is not progress of the others.
        let mark = *self.due_mark.get_or_insert(due);
        let has_begun = || self.next.is_some() || self.start().is_some_and(|start| start <= due);
        if self.is_new(due) && due.saturating_sub(mark) >= self.period_ns() && has_begun() {
            self.due_mark = Some(due);
            self.count_anew();
        }
    }

    /// True if an observation at `due`, the newest time that is due, would be new. With the trigger `timer`, it must be after
    /// the last one sent.
    fn is_new(&self, due: i64) -> bool {
        !matches!(self.spec.trigger, Trigger::Timer(_)) || self.sent_until().is_none_or(|sent| due > sent)
    }

    /// True if `due` is a period or more away from `mark`, the due time when the counts of samples were last restarted. Also
    /// true without a `mark`.
    fn is_period_away(&self, due: i64, mark: Option<i64>) -> bool {
        mark.is_none_or(|mark| due.saturating_sub(mark).saturating_abs() >= self.period_ns())
    }

    /// Returns the distance, ns, that a stream may advance without an observation before the grid's clock moves to it: twice
    /// `max_wait_ms` plus four times the time between two observations.
    fn may_advance(&self) -> i64 {
        let wait = self.spec.max_wait.unwrap_or(0);
        wait.saturating_mul(2)
            .saturating_add(self.period_ns().saturating_mul(4))
    }

    /// Moves the grid's clock to a stream that is set aside or behind the last target; counts as a clock jump. Targets continue
    /// at the newest time that `max_wait_ms` makes due by the new clock. If the last target is later, they continue after it,
    /// unless the stream was behind that target when its samples began to count. Streams ahead of the new clock are set aside.
    fn move_clock(&mut self, modality: usize) {
        let (Some(to), Some(wait)) = (self.streams[modality].history.newest(), self.spec.max_wait) else {
            return;
        };
        let by_ns = self.clock.map_or(0, |clock| to.saturating_sub(clock));
        let counted_from = to.saturating_sub(self.streams[modality].pace.advance);
        let reached = counted_from.saturating_add(self.streams[modality].ahead());
        let was_behind = self.last_sent.is_some_and(|sent| reached < sent);
        self.notices.push(Notice::Moved { modality, by_ns });
        for i in 0..self.streams.len() {
            let limit = self.jump_limit(i).unwrap_or(DEFAULT_JUMP).min(MAX_LEAD_AGAIN);
            let stream = &mut self.streams[i];
            let ahead_ns = stream.history.newest().map_or(0, |newest| newest.saturating_sub(to));
            let is_aside = stream.spec.waits && i != modality && ahead_ns > 0;
            stream.pace.aside = is_aside.then_some(limit);
            stream.pace.led_until = None;
            if is_aside && stream.open {
                self.notices.push(Notice::Aside { modality: i, ahead_ns });
            }
        }
        let mark = self.due_mark;
        self.restart();
        self.clock = Some(to);
        let due = to.saturating_sub(wait);
        self.next = match self.spec.trigger {
            Trigger::Grid => Some(self.grid_time_at_or_before(due)),
            Trigger::Stream { .. } => None,
            Trigger::Timer(_) | Trigger::Request(_) => Some(due),
        };
        self.begins_anew = self.next.is_none();
        if was_behind {
            self.last_sent = self.last_sent.filter(|&sent| self.next.is_none_or(|next| sent < next));
        } else if let (Trigger::Grid, Some(next), Some(sent)) = (&self.spec.trigger, self.next, self.last_sent) {
            self.next = Some(next.max(sent.saturating_add(self.spec.grid.period())));
        }
        // If the move made nothing due, the others go on counting: a stream that closes and opens must not silence them.
        let makes_due = match self.spec.trigger {
            Trigger::Grid => self.is_next_due(),
            _ => self
                .due_until()
                .is_none_or(|due| self.is_new(due) && self.is_period_away(due, mark)),
        };
        for (i, stream) in self.streams.iter_mut().enumerate() {
            if makes_due || i == modality {
                stream.pace.restart();
            }
        }
    }

    /// Restarts the count of samples since the last observation, for every stream.
    pub(super) fn count_anew(&mut self) {
        for stream in &mut self.streams {
            (stream.pace.samples, stream.pace.advance) = (0, 0);
        }
    }

    /// Updates the grid's clock after a change of `max_wait_ms`. Without `max_wait_ms`, no stream is set aside as too far
    /// ahead, and samples are not counted.
    pub(super) fn follow_max_wait(&mut self) {
        if self.spec.max_wait.is_none() {
            self.streams.iter_mut().for_each(|stream| stream.pace = Pace::default());
            self.due_mark = None;
        }
        self.update_clock();
    }

    /// Decides whether a stream whose times changed, or which opened, is set aside as too far ahead of the other streams.
    /// Before the change, the grid's clock was `before`. If no other stream counts for that clock, it follows this stream.
    pub(super) fn judge_by_others(&mut self, modality: usize, before: Option<i64>) {
        let newest = self.streams[modality].history.newest();
        let is_waited_for = self.streams[modality].is_waited_for();
        let limit = self.jump_limit(modality).filter(|_| self.spec.max_wait.is_some());
        if let (Some(newest), Some(limit), true) = (newest, limit, is_waited_for) {
            let others = self.streams.iter().enumerate().filter(|&(i, _)| i != modality);
            let leading = others.filter(|(_, other)| other.is_waited_for() && other.leads());
            let clock = leading.filter_map(|(_, other)| other.history.newest()).max();
            self.judge_lead(modality, [None, Some(newest)], clock, limit);
            let pace = &mut self.streams[modality].pace;
            // The others may have gone elsewhere since the stream led.
            let is_near = |&led: &i64| clock.is_none_or(|clock| led.saturating_sub(clock) <= limit);
            pace.led_until = pace.led_until.filter(is_near);
            if clock.is_none() && before.is_some_and(|before| newest.saturating_sub(before) > limit) {
                return self.move_clock(modality);
            }
        }
        self.update_clock();
    }
}

impl InputStream {
    /// True if the stream is set aside and its newest time is ahead of `clock`, the grid's clock.
    pub(super) fn is_aside(&self, clock: Option<i64>) -> bool {
        self.pace.aside.is_some() && self.history.newest() > clock
    }
}
