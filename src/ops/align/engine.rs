use super::config::Group;
use super::{AlignConfig, ModalityConfig};
use crate::device::{Dtype, Element, Values};
use crate::ops::{ConfigError, duration_ns};
use crate::stream::{History, Insert, Place};
use crate::time::{Grid, Pick, ms_to_ns, pick};

/// A stream may hold this much while it waits for the others; past it, its oldest samples go and are counted.
const HISTORY_BYTES: usize = 64 << 20;

/// More targets than this falling due at once are a clock jump, not a gap.
const MAX_TARGETS_AT_ONCE: i64 = 1 << 16;

/// With `max_wait_ms`: streams whose first samples lie further apart have clocks that disagree, and the grid starts at
/// the newest of them instead of catching up, ns.
const START_HORIZON: i64 = 1_000_000_000;

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
pub struct Aligner {
    grid: Grid,
    window: i64,
    stride: i64,
    emit_every: i64,
    max_wait: Option<i64>,
    modalities: Vec<Modality>,
    next: Option<i64>,
    last_sent: Option<i64>,
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
    jump: i64,
    open: bool,
    history: History,
    sample: Vec<f32>,
}

impl Aligner {
    /// Checks the configuration and makes the histories.
    pub fn new(config: &AlignConfig) -> Result<Self, ConfigError> {
        let grid = config.grid()?;
        let modalities = config
            .modalities
            .iter()
            .enumerate()
            .map(|(i, modality)| Modality::new(i, modality));
        Ok(Self {
            grid,
            window: config.window as i64,
            stride: config.stride as i64,
            emit_every: config.emit_every as i64,
            max_wait: config
                .max_wait_ms
                .map(|ms| duration_ns(|| "max_wait_ms".into(), ms))
                .transpose()?,
            modalities: modalities.collect::<Result<_, _>>()?,
            next: None,
            last_sent: None,
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
        let stream = &mut self.modalities[modality];
        stream.open = true;
        let time = stamp_ns - stream.latency;
        let jumped_ns = stream
            .history
            .newest()
            .map(|newest| time - newest)
            .filter(|&delta| delta < -stream.reset || delta > stream.jump);
        if jumped_ns.is_some() {
            stream.history.clear();
            self.restart();
        }
        let late = self.last_sent.is_some_and(|sent| time <= sent);
        self.late_samples += i64::from(late);
        Pushed {
            late,
            overflowed: insert(&mut self.modalities[modality], time) == Insert::Overflowed,
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

    /// Sets the latency of the samples that come from now on.
    pub fn set_latency_ms(&mut self, modality: usize, ms: f64) -> Result<(), ConfigError> {
        self.modalities[modality].latency = signed_ns("latency_ms", ms)?;
        Ok(())
    }

    /// Sets for how long a target waits for a stream that is behind; `None`: for ever.
    pub fn set_max_wait_ms(&mut self, ms: Option<f64>) -> Result<(), ConfigError> {
        self.max_wait = ms.map(|ms| duration_ns(|| "max_wait_ms".into(), ms)).transpose()?;
        Ok(())
    }

    /// The next observation that is due, if one is. Its window can be read until the next call.
    pub fn due(&mut self) -> Option<Target> {
        let newest = self.newest()?;
        let due_until = self.due_until(newest);
        if let (Some(index), Some(until)) = (self.next, due_until)
            && until.saturating_sub(self.grid.time(index)) / self.grid.period() > MAX_TARGETS_AT_ONCE
        {
            tracing::warn!(
                epoch = self.epoch + 1,
                "a stamp is so far ahead that the grid starts anew"
            );
            self.restart();
            self.next = Some(self.grid.index_at_or_after(until));
        }
        let index = match self.next {
            Some(index) => {
                self.forget(index);
                index
            }
            None => self.grid.index_at_or_after(self.start(newest)?),
        };
        let time_ns = self.grid.time(index);
        if due_until.is_none_or(|until| until < time_ns) {
            return None;
        }
        self.next = Some(index + self.emit_every);
        self.last_sent = Some(time_ns);
        Some(Target {
            index,
            time_ns,
            epoch: self.epoch,
            late_samples: self.late_samples,
        })
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
        if !rows_are_here {
            out.fill(E::from_f32(self.fill_value));
        }
        for group in stream.groups.iter().filter(|_| rows_are_here) {
            let channels = group.from..group.to;
            let out = &mut out[channels.clone()];
            let mut overflow = 0;
            match pick(times, until, time, group.mode, &group.limits) {
                Pick::Invalid => {
                    out.fill(E::from_f32(self.fill_value));
                    valid = false;
                }
                Pick::Sample(i) => {
                    for (to, &from) in out.iter_mut().zip(&stream.history.row(i)[channels]) {
                        *to = E::from_f32(from);
                        // In float32 a sample is finite, and copying it is all there is to do.
                        if E::DTYPE != Dtype::Float32 {
                            overflow |= E::overflow_bit(from);
                        }
                    }
                }
                Pick::Between { before, after, weight } => {
                    let weight = weight as f32;
                    let before = &stream.history.row(before)[channels.clone()];
                    let after = &stream.history.row(after)[channels];
                    for ((to, &a), &b) in out.iter_mut().zip(before).zip(after) {
                        let value = a + weight * (b - a);
                        *to = E::from_f32(value);
                        overflow |= E::overflow_bit(value);
                    }
                }
            }
            if overflow >> 31 != 0 {
                out.fill(E::from_f32(self.fill_value));
                (valid, overflows) = (false, true);
            }
        }
        Known {
            valid,
            overflows,
            age_ns: until.checked_sub(1).map_or(-1, |i| time - times[i]),
        }
    }

    fn newest(&self) -> Option<i64> {
        self.modalities
            .iter()
            .filter_map(|stream| stream.history.newest())
            .max()
    }

    /// Targets up to this time are due, if any are: where every stream is past them, or the wait for them is over.
    fn due_until(&self, newest: i64) -> Option<i64> {
        let holding = self.modalities.iter().filter(|stream| stream.open && stream.waits);
        let complete = holding
            .map(Modality::watermark)
            .try_fold(newest, |until, watermark| Some(until.min(watermark?)));
        complete.max(self.max_wait.map(|wait| newest - wait))
    }

    /// The earliest time at which every stream that is waited for has a sample or its wait ran out.
    fn start(&self, newest: i64) -> Option<i64> {
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
        let start = start.unwrap_or(earliest);
        match self.max_wait {
            Some(wait) if newest - wait - start > START_HORIZON => Some(newest - wait),
            _ => Some(start),
        }
    }

    fn restart(&mut self) {
        self.epoch += 1;
        self.next = None;
        self.last_sent = None;
    }

    fn forget(&mut self, next: i64) {
        let oldest_row = self.grid.time(next - (self.window - 1) * self.stride);
        for stream in &mut self.modalities {
            stream.history.forget_before(oldest_row);
        }
    }
}

impl Modality {
    fn new(i: usize, config: &ModalityConfig) -> Result<Self, ConfigError> {
        let groups = config.checked_groups(i)?;
        let key = |key: &str| format!("modalities[{i}].{key}");
        let bytes = config.dim * size_of::<f32>() + size_of::<i64>();
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
            jump: match config.jump_ms {
                Some(ms) => duration_ns(|| key("jump_ms"), ms)?,
                None => i64::MAX,
            },
            open: true,
            history: History::new(config.dim, (HISTORY_BYTES / bytes).clamp(64, 1 << 20)),
            sample: vec![0.0; config.dim],
        })
    }

    /// Nothing that may still come in time changes the values up to here.
    fn watermark(&self) -> Option<i64> {
        let settled = self.history.newest()? - self.reorder;
        if self.reorder == 0 || !self.looks_ahead {
            return Some(settled);
        }
        let times = self.history.times();
        let until = times.partition_point(|&t| t <= settled);
        until.checked_sub(1).map(|i| times[i])
    }
}

fn signed_ns(key: &str, ms: f64) -> Result<i64, ConfigError> {
    if (-1e12..=1e12).contains(&ms) {
        Ok(ms_to_ns(ms))
    } else {
        Err(ConfigError::new(key, format!("{ms} (allowed: -1e12 to 1e12 ms)")))
    }
}
