//! [`Timeline`]: the history of each stream's samples, and the rule that decides which observation is due.
//!
//! All decisions follow from capture times and the order of arrival: no clock and no device is read here. A multiple of the
//! period is the target of at most one observation, unless a clock jump takes time itself back.
//!
//! Terms, as in `docs/semantics.md`:
//!
//! - *G*, the grid's clock: the newest capture time of the streams that lead.
//! - A stream *leads* if it is open, has `wait: true` and is not aside.
//! - A stream is *aside* if it is too far ahead of G: observations neither wait for it nor take G from it.
//! - The *leader* is the stream whose samples are the targets (`trigger: stream`).
//!
//! The head of `align/mod.rs` defines *settled* and *watermark*.

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

/// Reason why a sample of a modality was dropped. Later samples of the stream are accepted as usual.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SampleError {
    /// The sample does not have `dim` values.
    #[error("a sample has {came} values, not {expected} (`dim`)")]
    WrongLength {
        /// The modality's `dim`: number of values that a sample must have.
        expected: usize,
        /// Number of values that the sample has.
        came: usize,
    },
    /// A value of the sample is NaN or infinite, or too large for float32.
    #[error("value {channel} of a sample is {value}, not finite in float32")]
    NonFinite {
        /// Index of the first channel that is not finite.
        channel: usize,
        /// Value of channel `channel` in float32: NaN or infinite.
        value: f32,
    },
    /// Channels of a group with a rotation mode, such as `slerp`, do not hold a rotation.
    #[error(
        "channels [{from}, {to}] of a sample are not a rotation for `{mode}` (allowed: a norm of 1e-6 to 1e18, of a `rotvec` 0 to 1e18; are these the channels of the rotation?)"
    )]
    NoRotation {
        /// Index of the group's first channel.
        from: usize,
        /// Index of the channel after the group's last channel.
        to: usize,
        /// Name of the group's interpolation, such as `slerp`.
        mode: &'static str,
    },
    /// The stamp, ns, is not within +-2^61.
    #[error("stamp {0} ns is out of range (allowed: +-2^61): stamps are ns since 1970")]
    StampOutOfRange(i64),
    /// The values of the stream are in device memory, but the sample was pushed to the [`Timeline`] instead of to the
    /// [`Aligner`](super::Aligner), which adds it there.
    #[error(
        "the samples of this stream are on a device, and one came to the host (needed: `Aligner`, which takes both)"
    )]
    OnDevice,
}

/// Result of adding a sample to a [`Timeline`]: late, too soon, overflow, clock jump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushOutcome {
    /// True if the sample's time is at or before the newest observation sent, or closer than `min_period_ms` to another sample.
    /// A late sample is still kept.
    pub late: bool,
    /// Distance from the nearest other sample of the stream, ns, if that is less than `min_period_ms`; otherwise `None`.
    pub too_soon_ns: Option<i64>,
    /// True if the stream's history was full and dropped its oldest sample.
    pub overflowed: bool,
    /// Step of the stream's clock, ns, if the sample shows a clock jump; negative: back. `None` without a jump. The stream's
    /// earlier samples were dropped, and targets begin anew.
    pub jumped_ns: Option<i64>,
}

/// Event in the streams of a [`Timeline`] that the user should know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Observations began although a stream had no sample at or after the first target.
    StartedWithout {
        /// Index of the stream that was behind, as in [`Timeline::inputs`].
        modality: usize,
        /// Distance from the stream's newest sample to the first target, ns; `None` if the stream had no sample.
        behind_ns: Option<i64>,
    },
    /// A stream is set aside: its sample is so far ahead of the other streams that observations do not wait for it.
    Aside {
        /// Index of the stream that was set aside, as in [`Timeline::inputs`].
        modality: usize,
        /// Distance from the grid's clock (newest sample of the other streams) to the sample of this stream, ns.
        ahead_ns: i64,
    },
    /// The grid's clock moved to this stream, because only this stream advanced and no observation was due. Counts as
    /// a clock jump.
    Moved {
        /// Index of the stream that the grid's clock moved to, as in [`Timeline::inputs`].
        modality: usize,
        /// Change of the grid's clock, ns: newest sample of this stream minus the clock before the move; negative: back.
        by_ns: i64,
    },
    /// More than 2^32 periods of `rate_hz` became due at once. Their observations were skipped, which counts as a clock jump.
    Skipped {
        /// Number of skipped periods of `rate_hz`.
        targets: i64,
    },
    /// A device failed, and the samples whose values were only in its memory are lost.
    SamplesLost {
        /// Index of the stream that lost samples, as in [`Timeline::inputs`].
        modality: usize,
        /// Number of samples lost.
        samples: usize,
    },
}

/// Observation that is due: its time, and the counts for its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Time of the newest row of the window, ns.
    pub time_ns: i64,
    /// Number of clock jumps so far.
    pub epoch: i64,
    /// Number of late samples so far, of all streams.
    pub late_samples: i64,
    /// Number of the request that the observation answers, from [`Timeline::ask`]; `None` for any other trigger.
    pub request: Option<u64>,
    /// True if the time follows from stamps alone; false if it depends on the arrival of a request or a tick.
    pub is_deterministic: bool,
}

/// State of one stream of a [`Timeline`]: settings, and the times of its oldest and newest sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamState {
    /// True if observations wait for the stream while it is open: `wait` of its configuration.
    pub waits: bool,
    /// False if the stream was closed, until its next sample or [`Timeline::open`]; otherwise true.
    pub open: bool,
    /// Capture time of the newest sample in the history, ns; `None` if the history is empty.
    pub newest_ns: Option<i64>,
    /// Capture time of the oldest sample in the history, ns; `None` if the history is empty.
    pub oldest_ns: Option<i64>,
    /// Greatest step back of a stamp that is not a clock jump, ns: `reset_ms`.
    pub reset_ns: i64,
}

/// Times, validity and ages of a window of T rows and M modalities.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Masks {
    /// Times of the T rows, ns, ascending.
    pub timestamps_ns: Vec<i64>,
    /// Validity, `[T, M]` row-major: 1 if every group of channels of the modality has a valid value, else 0.
    pub valid: Vec<i64>,
    /// Ages, `[T, M]` row-major, ns: time of the row minus the newest sample at or before it; -1 if there is none.
    pub age_ns: Vec<i64>,
    /// Number of rows, for each of the M modalities, with values out of the range of the published type. Such a row
    /// is not valid.
    pub overflows: Vec<i64>,
}

/// Histories of the streams, and the rule that decides which observation is due: align and fuse without the
/// computation of values.
///
/// A timeline uses no device, and no clock but the stamps. [`Aligner`](super::Aligner) computes the values.
pub struct Timeline {
    spec: Spec,
    /// Streams of the modalities, followed by the attached streams.
    streams: Vec<InputStream>,
    /// Time of the next target, ns, with the trigger `grid`; with other triggers, its earliest time. `None` before the first
    /// target, and after a clock jump until targets begin anew.
    next: Option<i64>,
    /// True from a clock jump until the next target is sent. Until then, targets up to `last_sent` may be sent again if the
    /// newest samples are before it.
    begins_anew: bool,
    /// Newest target that was sent, ns; `None` before the first. A clock jump does not reset it, so that targets up to it are
    /// sent again only if time itself went back.
    last_sent: Option<i64>,
    /// True if the timer that triggers observations has ticked since the last call of `due`.
    ticked: bool,
    /// Requests that wait for an answer, in order of arrival.
    pending: VecDeque<PendingRequest>,
    /// Number for the next request.
    asked: u64,
    /// Requests that were refused after they waited: number and reason, the earliest refusal first.
    refused: VecDeque<(u64, Refusal)>,
    /// Grid's clock, *G*, ns: the newest capture time of the open streams with `wait: true`, without those set aside as too far
    /// ahead. [Updated](Self::update_clock) after each change of the streams. `None` before the first sample.
    clock: Option<i64>,
    /// Newest time that was due when the streams' counts of samples, in `pace`, were last restarted, ns. Only with the triggers
    /// `timer` and `request`; otherwise `None`.
    due_mark: Option<i64>,
    /// Time before which samples were last dropped, ns. The same time then needs no second search of the histories. `None` if a
    /// history has changed, so that a search may find samples to drop.
    forgotten_before: Option<i64>,
    notices: Vec<Notice>,
    epoch: i64,
    late_samples: i64,
}

struct InputStream {
    spec: StreamSpec,
    /// Greatest number of samples that an interpolated value needs: `[at or before its target, after it]`.
    needs: [usize; 2],
    has_rotations: bool,
    /// Time of the newest settled sample, ns: only a late sample can come before it. `None` without such a sample,
    /// or without `min_period_ms`.
    settled: Option<i64>,
    open: bool,
    late_samples: i64,
    pace: Pace,
    history: History,
    /// Buffer for the values of the sample that arrived last, in float32.
    sample: Vec<f32>,
}

impl Timeline {
    /// Checks a configuration, and creates a timeline without samples.
    ///
    /// # Errors
    /// [`ConfigError`] names the invalid key, its value and the allowed values.
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

    /// Returns the input names of the streams: those of the modalities, then those of the attached streams, in the order
    /// of the configuration.
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = &str> {
        self.streams.iter().map(|stream| stream.spec.input.as_str())
    }

    /// Returns M, the number of modalities.
    pub fn modalities(&self) -> usize {
        self.streams.len() - self.spec.attached.len()
    }

    /// Returns the settings of the attached streams, in the order of the configuration. Attached stream i is stream M + i
    /// of the timeline.
    pub fn attached(&self) -> &[AttachedSpec] {
        &self.spec.attached
    }

    /// Returns the number of values in a sample of a modality; 0 for an attached stream.
    pub fn dim(&self, modality: usize) -> usize {
        self.streams[modality].spec.dim
    }

    /// Returns the names of a modality's values, if the configuration selects the values by name; otherwise nothing.
    pub(super) fn fields(&self, modality: usize) -> &[String] {
        &self.streams[modality].spec.fields
    }

    /// Returns T, the number of rows of an observation.
    pub fn window(&self) -> usize {
        self.spec.window as usize
    }

    /// Returns the time between two observations with the trigger `grid`, ns: `emit_every` periods of `rate_hz`.
    pub fn period_ns(&self) -> i64 {
        self.spec.grid.period().saturating_mul(self.spec.emit_every)
    }

    /// Returns the element type of the published values.
    pub fn dtype(&self) -> Dtype {
        self.spec.dtype
    }

    /// Returns the value that is published where a modality has no valid value.
    pub(crate) fn fill_value(&self) -> f32 {
        self.spec.fill_value
    }

    /// Adds a sample with its stamp, ns, to the history of its modality. Call [`due`](Self::due) after each sample, so that a
    /// message of several samples gives the same observations as one message for each sample.
    ///
    /// # Errors
    /// [`SampleError`]: the sample is not added, and later samples are accepted as usual.
    pub fn push(&mut self, modality: usize, stamp_ns: i64, sample: Values<'_>) -> Result<PushOutcome, SampleError> {
        if self.are_rows_on_device(modality) {
            return Err(SampleError::OnDevice);
        }
        self.read(modality, stamp_ns, sample)?;
        let insert = |stream: &mut InputStream, time| stream.history.insert(time, &stream.sample);
        Ok(self.arrive(modality, stamp_ns, insert))
    }

    /// Checks the stamp and the number of values of a sample, whose values may be in device memory.
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

    /// Checks the stamp, length and values of a sample in host memory, and returns the values in float32.
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

    /// Adds the time of a checked sample to a stream's history, if the caller stores the values elsewhere. Also returns the
    /// sample's position in the history, or `None` if the history does not keep the sample.
    pub(super) fn push_time(&mut self, modality: usize, stamp_ns: i64) -> (PushOutcome, Option<Place>) {
        let mut row = None;
        let pushed = self.arrive(modality, stamp_ns, |stream, time| {
            let inserted;
            (inserted, row) = stream.history.insert_time(time);
            inserted
        });
        (pushed, row)
    }

    /// True if only a device holds the sample values (rows) of a modality, and the timeline holds only their times.
    pub fn are_rows_on_device(&self, modality: usize) -> bool {
        self.streams[modality].history.are_rows_on_device()
    }

    /// Drops the sample values of a modality from host memory, and keeps only times from now on. The caller must have copied
    /// the values to a device.
    pub(super) fn move_rows_to_device(&mut self, modality: usize) {
        self.streams[modality].history.move_rows_to_device();
    }

    /// Stores the values of all samples of a modality, oldest first, in host memory again, after a device held them.
    pub(super) fn restore_rows(&mut self, modality: usize, rows: &[f32]) {
        self.streams[modality].history.restore_rows(rows);
    }

    /// Adds the values of a sample whose time is already in the history, if the values were lost on their way to a device. The
    /// modality's other values must be in host memory again.
    ///
    /// # Errors
    /// The same as those of [`push`](Self::push).
    pub fn restore(&mut self, modality: usize, stamp_ns: i64, sample: Values<'_>) -> Result<(), SampleError> {
        self.read(modality, stamp_ns, sample)?;
        let stream = &mut self.streams[modality];
        stream.history.insert(stamp_ns - stream.spec.latency, &stream.sample);
        self.forgotten_before = None;
        Ok(())
    }

    /// Drops the samples whose values were in the memory of a device that failed. Their histories begin anew on the host, and
    /// targets continue. One sample of the modality `restored` does not count as lost, because [`restore`](Self::restore)
    /// adds it again.
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

    /// Adds a checked sample with the function `insert`: opens its stream, handles a clock jump, updates the grid's clock, and
    /// counts the sample if it is late.
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

    /// Closes a stream: observations no longer wait for it, until its next sample or until [`open`](Self::open).
    pub fn close(&mut self, modality: usize) {
        self.streams[modality].open = false;
        self.update_clock();
    }

    /// Opens a stream that was closed: observations wait for it again, if it has `wait: true`.
    pub fn open(&mut self, modality: usize) {
        if !self.streams[modality].open {
            let before = self.clock;
            self.streams[modality].open = true;
            self.judge_by_others(modality, before);
        }
    }

    /// Sets the latency of a stream, ms. The times of the samples in its history change with it, which does not count as
    /// a clock jump.
    ///
    /// # Errors
    /// [`ConfigError`] if `ms` is not within -1e12 to 1e12.
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

    /// Sets the longest time that an observation waits for a slower stream, ms; `None`: for ever.
    ///
    /// # Errors
    /// [`ConfigError`] if `ms` is not within 0 to 1e12.
    pub fn set_max_wait_ms(&mut self, ms: Option<f64>) -> Result<(), ConfigError> {
        self.spec.max_wait = max_wait_ns(ms)?;
        self.follow_max_wait();
        Ok(())
    }

    /// Returns and removes the notices since the last call, oldest first.
    pub fn take_notices(&mut self) -> impl Iterator<Item = Notice> + '_ {
        self.notices.drain(..)
    }

    /// Returns the number of [late](PushOutcome::late) samples of a modality so far.
    pub fn late_samples(&self, modality: usize) -> i64 {
        self.streams[modality].late_samples
    }

    /// Returns the number of clock jumps so far: a jump of a stream's clock, a move of the grid's clock to another stream,
    /// or skipped targets.
    pub fn epoch(&self) -> i64 {
        self.epoch
    }

    /// Returns the smallest `max_age_ms` and the smallest `max_gap_ms` of the channel groups of a stream, ns; `None`
    /// without a limit.
    pub fn limits_ns(&self, stream: usize) -> [Option<i64>; 2] {
        let least = |limit: fn(&Limits) -> i64| {
            let groups = self.streams[stream].spec.groups.iter();
            let limits = groups.map(|group| limit(&group.rule.limits));
            limits.min().filter(|&limit| limit < i64::MAX)
        };
        [least(|limits| limits.max_age), least(|limits| limits.max_gap)]
    }

    /// Returns the settings of a stream, and the times of its oldest and newest sample. `modality` is its
    /// index in [`inputs`](Self::inputs).
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

    /// True if a later observation may have a row at a time in `from..to`, ns.
    pub(super) fn awaits_row_in(&self, from: i64, to: i64) -> bool {
        if self.spec.trigger != Trigger::Grid {
            return from < to;
        }
        let steps = (self.spec.window - 1) * self.spec.stride;
        let oldest_row = self.next.map(|next| self.back(self.earliest(next), steps));
        let from = from.max(oldest_row.unwrap_or(i64::MIN));
        from < to && self.spec.grid.time(self.spec.grid.index_at_or_after(from)) < to
    }

    /// Returns the history of a stream: its samples in the order of their times.
    pub(super) fn history(&self, modality: usize) -> &History {
        &self.streams[modality].history
    }

    /// Returns the channel groups of a modality, in the order of their channels.
    pub(super) fn groups(&self, modality: usize) -> &[ChannelGroup] {
        &self.streams[modality].spec.groups
    }
}

/// Checks that the channels of a group are a rotation, if the mode of the group needs one.
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

    /// True if observations wait for this stream: it is open, and has `wait: true`.
    fn is_waited_for(&self) -> bool {
        self.open && self.spec.waits
    }

    /// Drops all samples of the stream.
    fn clear(&mut self) {
        self.history.clear();
        self.settled = None;
    }

    /// Returns the watermark, ns: the newest time up to which the stream's values are final. Only a sample that is out of order
    /// by more than `reorder_ms` could still change them.
    ///
    /// If a mode of the stream uses one or two samples after the target, as many samples in their final order lie at or after
    /// the watermark. Otherwise the watermark is `reorder_ms` before the newest sample. With `min_period_ms` it may be later:
    /// just before the earliest time at which a sample can follow the newest settled one. `None` without enough samples.
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

    /// Updates `settled`, the newest sample before which only late samples can come; only with `min_period_ms`. Samples up to
    /// `reorder_ms` before the newest are settled. So is a sample less than twice `min_period_ms` after a settled one, because
    /// no other sample fits between the two.
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

    /// Returns the time from which on `settle` still needs the samples, ns; `i64::MAX` if it needs none.
    fn keep_from(&self) -> i64 {
        match self.spec.min_period > 0 && self.spec.reorder > 0 {
            true => self.settled.unwrap_or(i64::MIN),
            false => i64::MAX,
        }
    }

    /// Returns the time of the newest sample with which the [watermark](Self::watermark) reaches `time`, ns. `None` if a sample
    /// that decides this has not arrived.
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

    /// Returns the greatest distance by which the watermark can be ahead of the newest sample, ns.
    fn ahead(&self) -> i64 {
        match self.needs {
            [_, 0] => (self.spec.min_period - 1).max(0),
            _ => 0,
        }
    }

    /// Returns the distance from a sample at `time` to the nearest sample of the stream, ns, if it is less than
    /// `min_period_ms`.
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
