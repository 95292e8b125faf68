mod due;

use super::AlignConfig;
use super::config::Group;
use crate::device::{Dtype, Element, Values};
use crate::ops::{ConfigError, duration_ns};
use crate::stream::{History, Insert, Place};
use crate::time::blend::{self, Written};
use crate::time::{Grid, ms_to_ns, pick};

/// A stamp that goes back by more is a clock jump, where the configuration does not say, ns.
const DEFAULT_RESET: i64 = 1_000_000_000;

/// Stamps beyond this are refused, so that differences of stamps can't overflow, ns.
const MAX_STAMP: i64 = i64::MAX / 4;

/// Why a sample was dropped. The stream goes on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SampleError {
    /// It has the wrong number of values.
    #[error("a sample has {came} values, not {expected}")]
    WrongLength {
        /// The modality's `dim`.
        expected: usize,
        /// The length that came.
        came: usize,
    },
    /// It has a NaN or an infinity, or what is one in float32.
    #[error("value {channel} of a sample is {value}, not finite in float32")]
    NonFinite {
        /// The first such channel.
        channel: usize,
        /// Its value.
        value: f32,
    },
    /// Its stamp is out of range.
    #[error("stamp {0} ns is out of range (allowed: +-2^61)")]
    StampOutOfRange(i64),
    /// The rows of its stream are on a device, and it came to the aligner instead of to what keeps them there.
    #[error("the samples of this stream are on a device, and one came to the host")]
    Elsewhere,
}

/// What the arrival of a sample did besides taking its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    /// It came for a target that was sent already.
    pub late: bool,
    /// The history was full and gave up its oldest sample.
    pub overflowed: bool,
    /// The stream's clock jumped by so many ns: its history was cleared and the grid starts anew.
    pub jumped_ns: Option<i64>,
}

/// Something about the clocks of the streams that somebody should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The grid started without this stream, which was so many ns behind; `None`: it had no sample.
    StartedWithout {
        /// The modality.
        modality: usize,
        /// By how much its newest sample was behind the first target.
        behind_ns: Option<i64>,
    },
    /// This stream was so many ns ahead of one that goes on, and has stopped: it counts as a clock jump.
    LeftBehind {
        /// The modality.
        modality: usize,
        /// By how much it was ahead.
        ahead_ns: i64,
    },
    /// So many targets fell due at once that they were skipped, which counts as a clock jump.
    Skipped {
        /// The number of targets.
        targets: i64,
    },
}

/// An observation that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its place on the grid: its time is `index * period`.
    pub index: i64,
    /// Its time, ns: the newest row of the window.
    pub time_ns: i64,
    /// How often the clock of a stream had jumped.
    pub epoch: i64,
    /// Samples that had come for a target that was sent already.
    pub late_samples: i64,
}

/// What is known of the clock of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamState {
    /// Whether targets wait for it while it is open.
    pub waits: bool,
    /// Whether it is open.
    pub open: bool,
    /// The capture time of its newest sample, ns; `None` before the first.
    pub newest_ns: Option<i64>,
    /// The capture time of the oldest sample that is held, ns.
    pub oldest_ns: Option<i64>,
    /// A stamp that goes back by more is a clock jump, ns.
    pub reset_ns: i64,
}

/// What is known of the values of a window, row by row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Masks {
    /// The targets, T, ascending, ns.
    pub timestamps_ns: Vec<i64>,
    /// `[T, M]`, row-major: 1 where every group of the modality has a valid value, else 0.
    pub valid: Vec<i64>,
    /// `[T, M]`, row-major: target minus the newest sample at or before it, -1 where there is none, ns.
    pub age_ns: Vec<i64>,
    /// M: how many rows of the modality are not valid because the published type can't hold what they would be.
    pub overflows: Vec<i64>,
}

/// What is known of the value of a modality at a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Whether all groups are valid.
    pub valid: bool,
    /// Whether the published type can't hold some group.
    pub overflows: bool,
    /// The target minus the newest sample at or before it, -1 where there is none, ns.
    pub age_ns: i64,
}

/// The histories of the streams, and which observation is due.
pub struct Timeline {
    grid: Grid,
    window: i64,
    stride: i64,
    emit_every: i64,
    max_wait: Option<i64>,
    modalities: Vec<Modality>,
    /// The index of the next target; `None` while the grid has not started, or is to start anew.
    next: Option<i64>,
    /// The index of the last target that was sent. It stays when the grid starts anew, so that no time is sent twice.
    last_sent: Option<i64>,
    /// How much time the observations that were sent cover, and the targets that were skipped at clock jumps, ns.
    covered: i64,
    notices: Vec<Notice>,
    epoch: i64,
    late_samples: i64,
    dtype: Dtype,
    fill_value: f32,
}

struct Modality {
    input: String,
    dim: usize,
    groups: Vec<Group>,
    looks_ahead: bool,
    latency: i64,
    reorder: i64,
    waits: bool,
    reset: i64,
    /// `jump_ms`, where the configuration says it.
    jump: Option<i64>,
    open: bool,
    late_samples: i64,
    /// Its newest time when it was left behind, until it speaks again: then it is ahead of the others, as if by a jump.
    left_behind_at: Option<i64>,
    /// By how much its newest stamp went on, clock jumps left out, ns: in all, and since the last observation.
    advanced: i64,
    advanced_since_sent: i64,
    samples_since_sent: u32,
    history: History,
    sample: Vec<f32>,
}

impl Timeline {
    /// Checks the configuration and makes the histories.
    pub fn new(config: &AlignConfig) -> Result<Self, ConfigError> {
        let grid = config.grid()?;
        let max_wait = config
            .max_wait_ms
            .map(|ms| duration_ns(|| "max_wait_ms".into(), ms))
            .transpose()?;
        let modalities = (0..config.modalities.len()).map(|i| Modality::new(config, i, grid, max_wait));
        Ok(Self {
            grid,
            window: config.window as i64,
            stride: config.stride as i64,
            emit_every: config.emit_every as i64,
            max_wait,
            modalities: modalities.collect::<Result<_, _>>()?,
            next: None,
            last_sent: None,
            covered: 0,
            notices: Vec::new(),
            epoch: 0,
            late_samples: 0,
            dtype: config.dtype,
            fill_value: config.fill_value,
        })
    }

    /// The inputs of the modalities, in order.
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = &str> {
        self.modalities.iter().map(|modality| modality.input.as_str())
    }

    /// M, the number of modalities.
    pub fn modalities(&self) -> usize {
        self.modalities.len()
    }

    /// The values a sample of the modality has.
    pub fn dim(&self, modality: usize) -> usize {
        self.modalities[modality].dim
    }

    /// T, the rows of an observation.
    pub fn window(&self) -> usize {
        self.window as usize
    }

    /// The time between observations, ns.
    pub fn period_ns(&self) -> i64 {
        self.grid.period().saturating_mul(self.emit_every)
    }

    /// The type of the published values.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// What stands where there is no valid value.
    pub fn fill_value(&self) -> f32 {
        self.fill_value
    }

    /// Puts a sample with its stamp (ns) into the history of its modality. Ask for what is [`due`](Self::due) after
    /// each: a message of several samples must give the same observations as several messages.
    pub fn push(&mut self, modality: usize, stamp_ns: i64, sample: Values<'_>) -> Result<Pushed, SampleError> {
        if self.rows_are_elsewhere(modality) {
            return Err(SampleError::Elsewhere);
        }
        self.read(modality, stamp_ns, sample)?;
        let insert = |stream: &mut Modality, time| stream.history.insert(time, &stream.sample);
        Ok(self.arrive(modality, stamp_ns, insert))
    }

    /// Checks a sample that is not read here.
    pub(super) fn check(&self, modality: usize, stamp_ns: i64, len: usize) -> Result<(), SampleError> {
        let expected = self.modalities[modality].dim;
        if !(-MAX_STAMP..=MAX_STAMP).contains(&stamp_ns) {
            return Err(SampleError::StampOutOfRange(stamp_ns));
        }
        if len != expected {
            return Err(SampleError::WrongLength { expected, came: len });
        }
        Ok(())
    }

    /// Checks a sample, and gives its values in float32.
    pub(super) fn read(&mut self, modality: usize, stamp_ns: i64, sample: Values<'_>) -> Result<&[f32], SampleError> {
        self.check(modality, stamp_ns, sample.len())?;
        let stream = &mut self.modalities[modality];
        sample.to_f32(&mut stream.sample);
        match stream.sample.iter().position(|value| !value.is_finite()) {
            Some(channel) => Err(SampleError::NonFinite {
                channel,
                value: stream.sample[channel],
            }),
            None => Ok(&stream.sample),
        }
    }

    /// Puts the time of a checked sample into the history of its modality, whose rows are elsewhere, and says where its
    /// row belongs, if it is kept.
    pub(super) fn push_time(&mut self, modality: usize, stamp_ns: i64) -> (Pushed, Option<Place>) {
        let mut place = None;
        let pushed = self.arrive(modality, stamp_ns, |stream, time| {
            let inserted;
            (inserted, place) = stream.history.insert_time(time);
            inserted
        });
        (pushed, place)
    }

    /// Whether the rows of a modality are on a device.
    pub fn rows_are_elsewhere(&self, modality: usize) -> bool {
        self.modalities[modality].history.rows_are_elsewhere()
    }

    /// Keeps only the times of a modality's samples from now on: whoever calls it has the rows.
    pub(super) fn send_rows_elsewhere(&mut self, modality: usize) {
        self.modalities[modality].history.send_rows_elsewhere();
    }

    /// The modalities whose rows are on a device, and how many samples each holds.
    pub fn elsewhere(&self) -> impl Iterator<Item = (usize, usize)> {
        let streams = self.modalities.iter().enumerate();
        let elsewhere = streams.filter(|(_, stream)| stream.history.rows_are_elsewhere());
        elsewhere.map(|(modality, stream)| (modality, stream.history.times().len()))
    }

    /// Keeps the rows of a modality again: those of all its samples, which were on a device.
    pub(super) fn put_rows_back(&mut self, modality: usize, rows: &[f32]) {
        self.modalities[modality].history.put_rows_back(rows);
    }

    /// Puts the values of a sample that has arrived into its history, whose rows are here: they were lost on their way
    /// to a device.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn restore(&mut self, modality: usize, stamp_ns: i64, sample: Values<'_>) -> Result<(), SampleError> {
        self.read(modality, stamp_ns, sample)?;
        let stream = &mut self.modalities[modality];
        stream.history.insert(stamp_ns - stream.latency, &stream.sample);
        Ok(())
    }

    /// Gives up the samples whose rows are on a device, as when it is lost. Their streams begin anew on the host; the
    /// grid goes on.
    pub fn forget_elsewhere(&mut self) {
        for stream in &mut self.modalities {
            if stream.history.rows_are_elsewhere() {
                stream.history.bring_rows_back();
            }
        }
    }

    /// A checked sample arrives: its stream is open, its clock may have jumped, it may be late; `insert` puts it into
    /// its place in time.
    fn arrive(&mut self, modality: usize, stamp_ns: i64, insert: impl FnOnce(&mut Modality, i64) -> Insert) -> Pushed {
        self.modalities[modality].open = true;
        let time = stamp_ns - self.modalities[modality].latency;
        let jumped_ns = self.jump(modality, time);
        let stream = &mut self.modalities[modality];
        if jumped_ns.is_some() {
            stream.history.clear();
        } else if let Some(newest) = stream.history.newest() {
            let advance = (time - newest).max(0);
            stream.advanced = stream.advanced.saturating_add(advance);
            stream.advanced_since_sent = stream.advanced_since_sent.saturating_add(advance);
            stream.samples_since_sent = stream.samples_since_sent.saturating_add(u32::from(advance > 0));
        }
        stream.left_behind_at = None;
        let overflowed = insert(stream, time) == Insert::Overflowed;
        if jumped_ns.is_some() {
            self.restart();
        }
        let late = self.not_again().is_some_and(|sent| time <= self.grid.time(sent));
        self.late_samples += i64::from(late);
        self.modalities[modality].late_samples += i64::from(late);
        Pushed {
            late,
            overflowed,
            jumped_ns,
        }
    }

    /// The stream ended: nothing waits for it any more, until it has a sample again.
    pub fn close(&mut self, modality: usize) {
        self.modalities[modality].open = false;
    }

    /// The stream is back: targets wait for it.
    pub fn open(&mut self, modality: usize) {
        self.modalities[modality].open = true;
    }

    /// Sets the latency of a stream. The samples that are held move with it, and it is no clock jump.
    pub fn set_latency_ms(&mut self, modality: usize, ms: f64) -> Result<(), ConfigError> {
        let latency = signed_ns("latency_ms", ms)?;
        let stream = &mut self.modalities[modality];
        stream.history.shift(stream.latency - latency);
        stream.latency = latency;
        Ok(())
    }

    /// Sets for how long a target waits for a stream that is behind; `None`: for ever.
    pub fn set_max_wait_ms(&mut self, ms: Option<f64>) -> Result<(), ConfigError> {
        self.max_wait = ms.map(|ms| duration_ns(|| "max_wait_ms".into(), ms)).transpose()?;
        self.forget_advances();
        Ok(())
    }

    /// What is to be said of the clocks of the streams since this was last asked.
    pub fn take_notices(&mut self) -> impl Iterator<Item = Notice> + '_ {
        self.notices.drain(..)
    }

    /// Samples of a modality that had come for a target that was sent already.
    pub fn late_samples(&self, modality: usize) -> i64 {
        self.modalities[modality].late_samples
    }

    /// What is known of the clock of a stream.
    pub fn stream(&self, modality: usize) -> StreamState {
        let stream = &self.modalities[modality];
        StreamState {
            waits: stream.waits,
            open: stream.open,
            newest_ns: stream.history.newest(),
            oldest_ns: stream.history.oldest(),
            reset_ns: stream.reset,
        }
    }

    /// The time of row `row` of the window of a target, ns.
    pub fn row_time(&self, target: &Target, row: usize) -> i64 {
        self.grid
            .time(target.index - (self.window - 1 - row as i64) * self.stride)
    }

    /// The samples of a modality.
    pub(super) fn history(&self, modality: usize) -> &History {
        &self.modalities[modality].history
    }

    /// The groups of a modality, in the order of their channels.
    pub(super) fn groups(&self, modality: usize) -> &[Group] {
        &self.modalities[modality].groups
    }

    /// Writes the values of a modality at `time`, `dim` of them. None is valid where the rows are elsewhere.
    pub(crate) fn value_at<E: Element>(&self, modality: usize, time: i64, out: &mut [E]) -> Known {
        let stream = &self.modalities[modality];
        let times = stream.history.times();
        let until = times.partition_point(|&t| t <= time);
        let rows_are_here = !stream.history.rows_are_elsewhere();
        let (mut valid, mut overflows) = (rows_are_here, false);
        let fill = E::from_f32(self.fill_value);
        if !rows_are_here {
            out.fill(fill);
        }
        for group in stream.groups.iter().filter(|_| rows_are_here) {
            let channels = group.from..group.to;
            let picked = pick(times, until, time, group.mode, &group.limits);
            let sample = |i: usize| &stream.history.row(i)[channels.clone()];
            let written = blend::write(group.mode, picked, sample, false, fill, &mut out[channels.clone()]);
            valid &= written == Written::Value;
            overflows |= written == Written::Overflow;
        }
        Known {
            valid,
            overflows,
            age_ns: until.checked_sub(1).map_or(-1, |i| time - times[i]),
        }
    }
}

impl Modality {
    fn new(config: &AlignConfig, i: usize, grid: Grid, max_wait: Option<i64>) -> Result<Self, ConfigError> {
        let section = config;
        let config = &section.modalities[i];
        let groups = config.checked_groups(i)?;
        let key = |key: &str| format!("modalities[{i}].{key}");
        let reorder = duration_ns(|| key("reorder_ms"), config.reorder_ms)?;
        let reset = match config.reset_ms {
            Some(ms) => duration_ns(|| key("reset_ms"), ms)?,
            None => reorder.max(DEFAULT_RESET),
        };
        if reset < reorder {
            return Err(ConfigError::new(
                key("reset_ms"),
                format!(
                    "{} ms is less than reorder_ms, {}: a sample that comes late would be a clock jump",
                    reset as f64 * 1e-6,
                    config.reorder_ms
                ),
            ));
        }
        Ok(Self {
            input: config.input.clone(),
            dim: config.dim,
            looks_ahead: groups.iter().any(|group| group.mode.looks_ahead()),
            groups,
            latency: signed_ns(&key("latency_ms"), config.latency_ms)?,
            reorder,
            waits: config.wait,
            reset,
            jump: config
                .jump_ms
                .map(|ms| duration_ns(|| key("jump_ms"), ms))
                .transpose()?,
            open: true,
            late_samples: 0,
            left_behind_at: None,
            advanced: 0,
            advanced_since_sent: 0,
            samples_since_sent: 0,
            history: History::new(
                config.dim,
                section.history_limit(i, grid, max_wait.unwrap_or(0) + reorder)?,
            ),
            sample: vec![0.0; config.dim],
        })
    }

    /// Whether targets wait for this stream: it is open, and the configuration says so.
    fn is_waited_for(&self) -> bool {
        self.open && self.waits
    }

    /// Nothing that may still come in time changes the values up to here.
    fn watermark(&self) -> Option<i64> {
        let settled = self.history.newest()? - self.reorder;
        if self.reorder == 0 || !self.looks_ahead {
            return Some(settled);
        }
        let until = self.history.until(settled);
        until.checked_sub(1).map(|i| self.history.times()[i])
    }
}

fn signed_ns(key: &str, ms: f64) -> Result<i64, ConfigError> {
    if (-1e12..=1e12).contains(&ms) {
        Ok(ms_to_ns(ms))
    } else {
        Err(ConfigError::new(key, format!("{ms} (allowed: -1e12 to 1e12 ms)")))
    }
}
