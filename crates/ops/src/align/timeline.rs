//! Histories of the streams, and the rule that decides which observation is due.

mod clock;
mod due;
mod requests;
mod trigger;

use clock::Pace;
use requests::PendingRequest;

pub use requests::Refusal;
pub use trigger::Row;

use super::AlignConfig;
use super::spec::{AttachedSpec, Spec, StreamSpec, Trigger, latency_ns, max_wait_ns};
use crate::ConfigError;
use crate::channel_groups::ChannelGroup;
use robocache_device::{Dtype, Values};
use robocache_stream::{History, Insert, Place};
use robocache_time::{Limits, is_stamp_in_range};
use std::collections::VecDeque;

/// The reason why a sample was dropped. The stream goes on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SampleError {
    /// The number of values is wrong.
    #[error("a sample has {came} values, not {expected} (`dim`)")]
    WrongLength {
        /// The modality's `dim`.
        expected: usize,
        /// The number of values that the sample has.
        came: usize,
    },
    /// A value is NaN or infinite, or becomes so in float32.
    #[error("value {channel} of a sample is {value}, not finite in float32")]
    NonFinite {
        /// The first such channel.
        channel: usize,
        /// The value of that channel.
        value: f32,
    },
    /// Channels that must be a rotation are not one, or are far from unit length.
    #[error(
        "channels {from} to {to} of a sample are not a rotation for `{mode}` (allowed: directions of a norm of 1e-6 to 1e18)"
    )]
    NoRotation {
        /// The first of the channels.
        from: usize,
        /// The channel after the last of them.
        to: usize,
        /// The name of the interpolation.
        mode: &'static str,
    },
    /// The stamp is out of range.
    #[error("stamp {0} ns is out of range (allowed: +-2^61)")]
    StampOutOfRange(i64),
    /// The values of the stream are on a device, but the sample was pushed to the [`Timeline`] instead of to the
    /// [`Aligner`](super::Aligner), which keeps them there.
    #[error("the samples of this stream are on a device, and one came to the host")]
    OnDevice,
}

/// Result of a sample's arrival, beside its place in the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushOutcome {
    /// True if the sample lies at or before a target that was sent already, or is too soon.
    pub late: bool,
    /// Distance in ns from another sample of its stream, if it is less than `min_period_ms`.
    pub too_soon_ns: Option<i64>,
    /// True if the history was full and dropped its oldest sample.
    pub overflowed: bool,
    /// The stream's clock jumped by this many ns: its history was cleared, and the grid starts anew.
    pub jumped_ns: Option<i64>,
}

/// Event in the streams that the user should be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The grid started without a stream.
    StartedWithout {
        /// The modality.
        modality: usize,
        /// Distance of its newest sample behind the first target; `None`: it had no sample.
        behind_ns: Option<i64>,
    },
    /// A sample of a stream is too far ahead of the others: targets neither wait for the stream nor follow it.
    Aside {
        /// The modality.
        modality: usize,
        /// Lead of the stream over the grid's clock.
        ahead_ns: i64,
    },
    /// Targets follow another stream from now on, because it went on while there was no observation: a clock jump.
    Moved {
        /// The modality that they follow.
        modality: usize,
        /// Lead of its newest sample over the streams that targets followed before; negative: behind.
        by_ns: i64,
    },
    /// More targets fell due at once than anybody could take. They were skipped: this counts as a clock jump.
    Skipped {
        /// The number of targets.
        targets: i64,
    },
    /// A device was lost, and with it samples that were nowhere else.
    SamplesLost {
        /// The modality.
        modality: usize,
        /// The number of samples.
        samples: usize,
    },
}

/// An observation that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Time of the newest row of the window, ns.
    pub time_ns: i64,
    /// Number of clock jumps so far.
    pub epoch: i64,
    /// Number of late samples so far, of all streams.
    pub late_samples: i64,
    /// Number of the request that the observation answers, from [`Timeline::ask`].
    pub request: Option<u64>,
    /// True if the time follows from stamps alone, and not from the arrival of a request or a tick.
    pub is_deterministic: bool,
}

/// State of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamState {
    /// True if targets wait for the stream while it is open: `wait` of its configuration.
    pub waits: bool,
    /// True if the stream is open.
    pub open: bool,
    /// The capture time of its newest sample, ns; `None` before the first.
    pub newest_ns: Option<i64>,
    /// The capture time of the oldest sample in its history, ns.
    pub oldest_ns: Option<i64>,
    /// Step back of a stamp above which it is a clock jump, ns.
    pub reset_ns: i64,
}

/// Validity and age of each value of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Masks {
    /// Times of the T rows, ascending, ns.
    pub timestamps_ns: Vec<i64>,
    /// `[T, M]`, row-major: 1 if every group of the modality has a valid value, else 0.
    pub valid: Vec<i64>,
    /// `[T, M]`, row-major: target minus the newest sample at or before it, -1 if there is none, ns.
    pub age_ns: Vec<i64>,
    /// Number of rows of each of the M modalities that are not valid because the published type can't hold their values.
    pub overflows: Vec<i64>,
}

/// Histories of the streams, and the rule that decides which observation is due: all of align and fuse except the values.
///
/// A timeline knows no device, and no clock but the stamps. [`Aligner`](super::Aligner) adds the values.
pub struct Timeline {
    spec: Spec,
    /// Streams of the modalities, then the attached ones.
    streams: Vec<InputStream>,
    /// Earliest time of the next target, ns; on the grid, exactly its time. `None` before the first target, or if targets are
    /// to begin anew.
    next: Option<i64>,
    /// True from a clock jump to the next target: until then each sample decides whether target times may be sent again.
    begins_anew: bool,
    /// The newest target that was sent, ns. It is kept over a restart, so that no time is sent twice.
    last_sent: Option<i64>,
    /// True if the trigger's timer has ticked since the last call of `due`.
    ticked: bool,
    /// Requests that wait, in order of arrival; the number of the next request; and requests that were refused after they
    /// waited.
    pending: VecDeque<PendingRequest>,
    asked: u64,
    refused: VecDeque<(u64, Refusal)>,
    /// G, the grid's clock, ns: [updated](Self::update_clock) after each change of the streams.
    clock: Option<i64>,
    /// The due time when the samples of streams were last counted anew, ns; only with ticks and requests.
    due_mark: Option<i64>,
    /// Oldest row, ns, for which samples that no window needs are forgotten already; `None` if a change since may have brought
    /// more to forget.
    forgotten_before: Option<i64>,
    notices: Vec<Notice>,
    epoch: i64,
    late_samples: i64,
}

struct InputStream {
    spec: StreamSpec,
    /// Most samples that a value needs at or before its target, and most after it.
    needs: [usize; 2],
    has_rotations: bool,
    /// The newest time before which no sample can come any more that is in time; only with `min_period_ms`.
    settled: Option<i64>,
    open: bool,
    late_samples: i64,
    pace: Pace,
    history: History,
    /// The sample that arrived last, in float32.
    sample: Vec<f32>,
}

impl Timeline {
    /// Checks a configuration and creates the histories.
    ///
    /// # Errors
    /// The invalid key, and the mistake.
    pub fn new(config: &AlignConfig) -> Result<Self, ConfigError> {
        let (spec, streams) = Spec::new(config)?;
        Ok(Self {
            spec,
            streams: streams.into_iter().map(InputStream::new).collect(),
            next: None,
            begins_anew: false,
            last_sent: None,
            ticked: false,
            pending: VecDeque::new(),
            asked: 0,
            refused: VecDeque::new(),
            clock: None,
            due_mark: None,
            forgotten_before: None,
            notices: Vec::new(),
            epoch: 0,
            late_samples: 0,
        })
    }

    /// The inputs of the streams, in order: those of the modalities, then the attached ones.
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = &str> {
        self.streams.iter().map(|stream| stream.spec.input.as_str())
    }

    /// M, the number of modalities.
    pub fn modalities(&self) -> usize {
        self.streams.len() - self.spec.attached.len()
    }

    /// The attached streams, in order. The first is stream M, after the modalities.
    pub fn attached(&self) -> &[AttachedSpec] {
        &self.spec.attached
    }

    /// The number of values in a sample of a modality.
    pub fn dim(&self, modality: usize) -> usize {
        self.streams[modality].spec.dim
    }

    /// Names of a modality's values, if its configuration takes them by name.
    pub(super) fn fields(&self, modality: usize) -> &[String] {
        &self.streams[modality].spec.fields
    }

    /// T, the rows of an observation.
    pub fn window(&self) -> usize {
        self.spec.window as usize
    }

    /// The time between observations of the grid, ns.
    pub fn period_ns(&self) -> i64 {
        self.spec.grid.period().saturating_mul(self.spec.emit_every)
    }

    /// The type of the published values.
    pub fn dtype(&self) -> Dtype {
        self.spec.dtype
    }

    /// Fill value of targets without a valid value.
    pub(crate) fn fill_value(&self) -> f32 {
        self.spec.fill_value
    }

    /// Adds a sample with its stamp (ns) to the history of its modality. Call [`due`](Self::due) after each sample, so that a
    /// message of several samples gives the same observations as a message for each.
    ///
    /// # Errors
    /// The reason why the sample was dropped; the stream goes on.
    pub fn push(&mut self, modality: usize, stamp_ns: i64, sample: Values<'_>) -> Result<PushOutcome, SampleError> {
        if self.are_rows_on_device(modality) {
            return Err(SampleError::OnDevice);
        }
        self.read(modality, stamp_ns, sample)?;
        let insert = |stream: &mut InputStream, time| stream.history.insert(time, &stream.sample);
        Ok(self.arrive(modality, stamp_ns, insert))
    }

    /// Checks the stamp and the length of a sample, whose values may be on a device.
    pub(super) fn check(&self, modality: usize, stamp_ns: i64, len: usize) -> Result<(), SampleError> {
        let expected = self.dim(modality);
        if !is_stamp_in_range(stamp_ns) {
            return Err(SampleError::StampOutOfRange(stamp_ns));
        }
        if len != expected {
            return Err(SampleError::WrongLength { expected, came: len });
        }
        Ok(())
    }

    /// Checks a sample, and returns its values in float32.
    pub(super) fn read(&mut self, modality: usize, stamp_ns: i64, sample: Values<'_>) -> Result<&[f32], SampleError> {
        self.check(modality, stamp_ns, sample.len())?;
        let stream = &mut self.streams[modality];
        sample.to_f32(&mut stream.sample);
        if let Some(channel) = stream.sample.iter().position(|value| !value.is_finite()) {
            return Err(SampleError::NonFinite {
                channel,
                value: stream.sample[channel],
            });
        }
        if stream.has_rotations {
            for group in &stream.spec.groups {
                check_rotation(group, &stream.sample[group.from..group.to])?;
            }
        }
        Ok(&stream.sample)
    }

    /// Adds the time of a checked sample to the history of a stream whose rows are kept elsewhere. Also returns the place of
    /// its row there, if the history keeps the sample.
    pub(super) fn push_time(&mut self, modality: usize, stamp_ns: i64) -> (PushOutcome, Option<Place>) {
        let mut row = None;
        let pushed = self.arrive(modality, stamp_ns, |stream, time| {
            let inserted;
            (inserted, row) = stream.history.insert_time(time);
            inserted
        });
        (pushed, row)
    }

    /// True if the rows of a modality are on a device.
    pub fn are_rows_on_device(&self, modality: usize) -> bool {
        self.streams[modality].history.are_rows_on_device()
    }

    /// Keeps only the times of a modality's samples from now on. The caller keeps the rows.
    pub(super) fn move_rows_to_device(&mut self, modality: usize) {
        self.streams[modality].history.move_rows_to_device();
    }

    /// Keeps the rows of a modality here again: takes the rows of all its samples back from a device.
    pub(super) fn restore_rows(&mut self, modality: usize, rows: &[f32]) {
        self.streams[modality].history.restore_rows(rows);
    }

    /// Adds the values of a sample whose time has arrived already, if the values were lost on their way to a device. Its
    /// history must be on the host again.
    ///
    /// # Errors
    /// The same as of [`push`](Self::push).
    pub fn restore(&mut self, modality: usize, stamp_ns: i64, sample: Values<'_>) -> Result<(), SampleError> {
        self.read(modality, stamp_ns, sample)?;
        let stream = &mut self.streams[modality];
        stream.history.insert(stamp_ns - stream.spec.latency, &stream.sample);
        self.forgotten_before = None;
        Ok(())
    }

    /// Drops the samples whose rows are on a device that was lost. Their streams begin anew on the host, and the grid goes on.
    /// One sample of the modality `restored` does not count as lost: [`restore`](Self::restore) puts it back.
    pub fn forget_rows_on_device(&mut self, restored: Option<usize>) {
        for (modality, stream) in self.streams.iter_mut().enumerate() {
            if stream.history.are_rows_on_device() {
                let restored = usize::from(restored == Some(modality));
                let samples = stream.history.times().len().saturating_sub(restored);
                if samples > 0 {
                    self.notices.push(Notice::SamplesLost { modality, samples });
                }
                stream.history.forget_rows_on_device();
                stream.settled = None;
            }
        }
        self.update_clock();
    }

    /// Takes a checked sample: opens its stream, looks for a clock jump, and counts the sample if it is late. `insert` adds it
    /// to the history.
    fn arrive(
        &mut self,
        modality: usize,
        stamp_ns: i64,
        insert: impl FnOnce(&mut InputStream, i64) -> Insert,
    ) -> PushOutcome {
        self.open(modality);
        let time = stamp_ns - self.streams[modality].spec.latency;
        let before = self.clock;
        let jumped_ns = self.jump(modality, time);
        let is_first = !self.pending.is_empty() && before.is_none();
        let stream = &mut self.streams[modality];
        let old = stream.history.newest();
        if jumped_ns.is_some() {
            stream.clear();
        }
        let too_soon_ns = stream.too_soon(time);
        let overflowed = insert(stream, time) == Insert::Overflowed;
        stream.settle();
        let settles = stream.keep_from() < i64::MAX;
        self.forgotten_before = self.forgotten_before.filter(|&before| time > before && !settles);
        if jumped_ns.is_some() {
            self.restart();
        }
        self.follow(modality, before, old, jumped_ns.is_some());
        if is_first {
            self.judge_waiting();
        }
        let was_sent = self.sent_until().is_some_and(|sent| time <= sent);
        let late = was_sent || too_soon_ns.is_some();
        self.late_samples += i64::from(late);
        self.streams[modality].late_samples += i64::from(late);
        PushOutcome {
            late,
            too_soon_ns,
            overflowed,
            jumped_ns,
        }
    }

    /// Closes a stream: no target waits for it until it has a sample again.
    pub fn close(&mut self, modality: usize) {
        self.streams[modality].open = false;
        self.update_clock();
    }

    /// Opens a stream: targets wait for it.
    pub fn open(&mut self, modality: usize) {
        if !self.streams[modality].open {
            let before = self.clock;
            self.streams[modality].open = true;
            self.judge_by_others(modality, before);
        }
    }

    /// Sets the latency of a stream. The samples in its history move with it; this is not a clock jump.
    ///
    /// # Errors
    /// If a configuration could not have this latency.
    pub fn set_latency_ms(&mut self, modality: usize, ms: f64) -> Result<(), ConfigError> {
        let latency = latency_ns("latency_ms", ms)?;
        let before = self.clock;
        let stream = &mut self.streams[modality];
        let moved = stream.spec.latency - latency;
        stream.history.shift(moved);
        stream.settled = stream.settled.map(|settled| settled + moved);
        stream.spec.latency = latency;
        stream.pace.shift(moved);
        self.forgotten_before = None;
        self.judge_by_others(modality, before);
        Ok(())
    }

    /// Sets how long a target waits for a stream that is behind; `None`: for ever.
    ///
    /// # Errors
    /// If a configuration could not have this wait.
    pub fn set_max_wait_ms(&mut self, ms: Option<f64>) -> Result<(), ConfigError> {
        self.spec.max_wait = max_wait_ns(ms)?;
        self.follow_max_wait();
        Ok(())
    }

    /// Drains the notices, in the order of their events.
    pub fn take_notices(&mut self) -> impl Iterator<Item = Notice> + '_ {
        self.notices.drain(..)
    }

    /// The number of [late](PushOutcome::late) samples of a modality so far.
    pub fn late_samples(&self, modality: usize) -> i64 {
        self.streams[modality].late_samples
    }

    /// The number of clock jumps so far.
    pub fn epoch(&self) -> i64 {
        self.epoch
    }

    /// The least `max_age_ms` and the least `max_gap_ms` of the groups of a stream, ns; `None` without a limit.
    pub fn limits_ns(&self, stream: usize) -> [Option<i64>; 2] {
        let least = |limit: fn(&Limits) -> i64| {
            let groups = self.streams[stream].spec.groups.iter();
            let limits = groups.map(|group| limit(&group.rule.limits));
            limits.min().filter(|&limit| limit < i64::MAX)
        };
        [least(|limits| limits.max_age), least(|limits| limits.max_gap)]
    }

    /// The state of a stream.
    pub fn stream(&self, modality: usize) -> StreamState {
        let stream = &self.streams[modality];
        StreamState {
            waits: stream.spec.waits,
            open: stream.open,
            newest_ns: stream.history.newest(),
            oldest_ns: stream.history.oldest(),
            reset_ns: stream.spec.reset,
        }
    }

    /// True if a row of an observation that is still to come may lie in `from..to`, ns.
    pub(super) fn awaits_row_in(&self, from: i64, to: i64) -> bool {
        if self.spec.trigger != Trigger::Grid {
            return from < to;
        }
        let steps = (self.spec.window - 1) * self.spec.stride;
        let oldest_row = self.next.map(|next| self.back(self.earliest(next), steps));
        let from = from.max(oldest_row.unwrap_or(i64::MIN));
        from < to && self.spec.grid.time(self.spec.grid.index_at_or_after(from)) < to
    }

    /// The samples of a stream.
    pub(super) fn history(&self, modality: usize) -> &History {
        &self.streams[modality].history
    }

    /// The groups of a modality, in the order of their channels.
    pub(super) fn groups(&self, modality: usize) -> &[ChannelGroup] {
        &self.streams[modality].spec.groups
    }
}

/// Checks that the channels of a group are a rotation, if they must be one.
pub(super) fn check_rotation(group: &ChannelGroup, channels: &[f32]) -> Result<(), SampleError> {
    match group.rule.takes(channels) {
        true => Ok(()),
        false => Err(SampleError::NoRotation {
            from: group.from,
            to: group.to,
            mode: group.rule.mode.name(),
        }),
    }
}

impl InputStream {
    fn new(spec: StreamSpec) -> Self {
        Self {
            needs: spec.needs(),
            has_rotations: spec.has_rotations(),
            settled: None,
            open: true,
            late_samples: 0,
            pace: Pace::default(),
            history: History::new(spec.dim, spec.history_limit),
            sample: vec![0.0; spec.dim],
            spec,
        }
    }

    /// True if targets wait for this stream: it is open, and its configuration says so.
    fn is_waited_for(&self) -> bool {
        self.open && self.spec.waits
    }

    /// Forgets every sample.
    fn clear(&mut self) {
        self.history.clear();
        self.settled = None;
    }

    /// Returns the watermark: the newest time at or before which no value can change any more, if samples come in order or late
    /// by up to `reorder_ms`.
    ///
    /// A mode that looks ahead needs one or two settled samples at or after the target. Another mode only needs the time to
    /// have passed, or, with `min_period_ms`, that no other sample can come so soon.
    fn watermark(&self) -> Option<i64> {
        let settled_until = self.history.newest()? - self.spec.reorder;
        let [_, ahead] = self.needs;
        if ahead == 0 {
            let silent_until = self.settled.map(|settled| settled.saturating_add(self.ahead()));
            return silent_until.max(Some(settled_until));
        }
        if ahead == 1 && self.spec.reorder == 0 {
            return Some(settled_until);
        }
        let settled = self
            .history
            .until(self.settled.map_or(settled_until, |settled| settled.max(settled_until)));
        settled.checked_sub(ahead).map(|newest| self.history.times()[newest])
    }

    /// Finds the newest settled sample, with `min_period_ms`. Samples up to `reorder_ms` before the newest are settled. So is
    /// each sample that follows a settled one by less than twice `min_period_ms`, because nothing fits between.
    fn settle(&mut self) {
        let (times, min_period) = (self.history.times(), self.spec.min_period);
        let Some(newest) = times.last().filter(|_| min_period > 0) else {
            return;
        };
        let in_order = self.history.until(newest - self.spec.reorder);
        let mut settled = self.settled.max(in_order.checked_sub(1).map(|i| times[i]));
        if let Some(settled) = &mut settled {
            for &time in &times[self.history.until(*settled)..] {
                if time - *settled >= 2 * min_period {
                    break;
                }
                *settled = time;
            }
        }
        self.settled = settled;
    }

    /// Returns the time from which on samples are kept to find the newest settled one, ns; `i64::MAX` if none need be.
    fn keep_from(&self) -> i64 {
        match self.spec.min_period > 0 && self.spec.reorder > 0 {
            true => self.settled.unwrap_or(i64::MIN),
            false => i64::MAX,
        }
    }

    /// Returns the time that the stream's newest sample must have for the [watermark](Self::watermark) to reach `time`,
    /// `reorder_ms` included. `None` if the sample that decides is not there yet.
    fn newest_when_past(&self, time: i64) -> Option<i64> {
        let reorder = self.spec.reorder;
        if reorder > 0 && self.watermark()? < time {
            return None;
        }
        let [_, ahead] = self.needs;
        if ahead == 0 && reorder > 0 {
            return Some(time + reorder);
        }
        let first = self.history.until(time.saturating_sub(self.ahead() + 1));
        let with = self.history.times().get(first + ahead.saturating_sub(1))?;
        Some(with + reorder)
    }

    /// Returns the greatest lead of the watermark over the newest sample, ns.
    fn ahead(&self) -> i64 {
        match self.needs {
            [_, 0] => (self.spec.min_period - 1).max(0),
            _ => 0,
        }
    }

    /// Returns the distance of a sample at `time` from the nearest one of its stream, ns, if it is less than `min_period_ms`.
    fn too_soon(&self, time: i64) -> Option<i64> {
        if self.spec.min_period == 0 {
            return None;
        }
        let (times, until) = (self.history.times(), self.history.until(time));
        let before = until.checked_sub(1).map(|i| time - times[i]);
        let after = times.get(until).map(|&after| after - time);
        let nearest = before.into_iter().chain(after).min();
        nearest.filter(|&distance| distance < self.spec.min_period)
    }
}
