//! The configuration of align and fuse, checked.

use super::{AlignConfig, AttachConfig, GroupConfig, ModalityConfig, Rows, TriggerConfig, TriggerKind};
use crate::channel_groups::{Group, Groups};
use crate::{ConfigError, check_from, duration_ns};
use robocache_device::Dtype;
use robocache_stream::FromConfig;
use robocache_time::ns_to_ms;
use robocache_time::{TimeGrid, ms_to_ns};
use robocache_yaml::did_you_mean;
use std::collections::HashMap;

/// A configuration that was checked, in the units of the operation: it can't be wrong any more.
pub struct Spec {
    pub(super) grid: TimeGrid,
    pub(super) window: i64,
    pub(super) stride: i64,
    pub(super) emit_every: i64,
    /// ns.
    pub(super) max_wait: Option<i64>,
    pub(super) trigger: Trigger,
    pub(super) dtype: Dtype,
    pub(super) fill_value: f32,
    /// Those of the modalities, then the attached ones.
    pub(super) streams: Vec<StreamSpec>,
    pub(super) attached: Vec<AttachedSpec>,
}

/// An attached stream of a [`Spec`], beside what it has in common with a modality.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedSpec {
    /// The output of those of its messages that a window has.
    pub output: String,
    /// How many of the newest rows have messages.
    pub rows: usize,
    /// How old a message may be at a row, ns; `None`: no limit.
    pub max_age: Option<i64>,
    /// The most of its messages that is held, bytes.
    pub max_held: usize,
}

/// What makes an observation; times in ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trigger {
    Grid,
    /// Every so manieth sample of a modality that is at least `min_interval` after the last target.
    Stream {
        leader: usize,
        every: usize,
        min_interval: i64,
        rows: Rows,
    },
    /// The messages of an input.
    Request(String),
    Timer(String),
}

/// A stream of a [`Spec`]; times in ns.
pub(super) struct StreamSpec {
    pub input: String,
    pub dim: usize,
    /// What its values are called, where the configuration takes them by name.
    pub fields: Vec<String>,
    /// In the order of their channels, each of which is in one.
    pub groups: Vec<Group>,
    pub latency: i64,
    pub reorder: i64,
    /// No two samples are closer than this; 0: nothing is known.
    pub min_period: i64,
    /// `wait` of the configuration.
    pub waits: bool,
    pub reset: i64,
    /// `jump_ms`, where the configuration says it.
    pub jump: Option<i64>,
    /// Samples that its history holds at most.
    pub history_limit: usize,
}

/// The output of fuse that has the window.
pub const FUSED: &str = "fused";
/// The output of fuse that has the window and the attached messages of it.
pub const OBSERVATION: &str = "observation";

/// A stamp that goes back by more is a clock jump, where the configuration does not say, ns.
const DEFAULT_RESET: i64 = 1_000_000_000;

/// A request may ask for a time so far before the newest one that is due, and ticks keep as much, ns.
pub(super) const LOOKS_BACK: i64 = 1_000_000_000;

/// The largest observation, in elements.
const MAX_ELEMENTS: usize = 1 << 28;

/// What a stream may hold while it waits for others; past it, its oldest samples are dropped and counted.
const HISTORY_BYTES: usize = 64 << 20;

/// What a message of an attached stream takes beside its payload, which is bounded by itself.
const ATTACHED_BYTES: usize = 512;

/// Where the window is long: enough for a sensor of this rate, Hz, up to so many bytes.
const SENSOR_RATE: f64 = 1e4;
const LONG_HISTORY_BYTES: usize = 256 << 20;

/// Where even a sensor of the grid's own rate could not fill the window otherwise.
const MAX_HISTORY_BYTES: usize = 1 << 30;

impl Spec {
    /// Checks a configuration.
    ///
    /// # Errors
    /// What is wrong, by its key.
    pub fn new(config: &AlignConfig) -> Result<Self, ConfigError> {
        let grid = config.grid()?;
        let max_wait = max_wait_ns(config.max_wait_ms)?;
        config.check_attached()?;
        let trigger = config.checked_trigger()?;
        let looks_back = match trigger {
            Trigger::Request(_) | Trigger::Timer(_) => LOOKS_BACK,
            _ => 0,
        };
        let held = max_wait.unwrap_or(0).saturating_add(looks_back);
        let streams = StreamConfig::of(config).map(|stream| stream?.checked(config, grid, held));
        let attached = config
            .attach
            .iter()
            .enumerate()
            .map(|(i, attach)| attach.checked(i, config.window));
        Ok(Self {
            grid,
            window: config.window as i64,
            stride: config.stride as i64,
            emit_every: config.emit_every as i64,
            max_wait,
            trigger,
            dtype: config.dtype,
            fill_value: config.fill_value,
            streams: streams.collect::<Result<_, _>>()?,
            attached: attached.collect::<Result<_, _>>()?,
        })
    }
}

/// What a modality and an attached stream have in common.
struct StreamConfig<'a> {
    /// The place of its keys.
    at: String,
    input: &'a str,
    dim: usize,
    from: Option<&'a FromConfig>,
    groups: Vec<Group>,
    latency_ms: f64,
    reorder_ms: f64,
    min_period_ms: Option<f64>,
    wait: bool,
    reset_ms: Option<f64>,
    jump_ms: Option<f64>,
}

impl<'a> StreamConfig<'a> {
    /// The modalities, then the attached streams, which have no columns.
    fn of(config: &'a AlignConfig) -> impl Iterator<Item = Result<Self, ConfigError>> {
        let modalities = config.modalities.iter().enumerate().map(|(i, modality)| {
            Ok(Self {
                at: format!("modalities[{i}]"),
                input: &modality.input,
                dim: modality.dim,
                from: modality.from.as_ref(),
                groups: modality.checked_groups(i)?,
                latency_ms: modality.latency_ms,
                reorder_ms: modality.reorder_ms,
                min_period_ms: modality.min_period_ms,
                wait: modality.wait,
                reset_ms: modality.reset_ms,
                jump_ms: modality.jump_ms,
            })
        });
        let attached = config.attach.iter().enumerate().map(|(i, attach)| {
            Ok(Self {
                at: format!("attach[{i}]"),
                input: &attach.input,
                dim: 0,
                from: attach.from.as_ref(),
                groups: Vec::new(),
                latency_ms: attach.latency_ms,
                reorder_ms: attach.reorder_ms,
                min_period_ms: attach.min_period_ms,
                wait: attach.wait,
                reset_ms: attach.reset_ms,
                jump_ms: attach.jump_ms,
            })
        });
        modalities.chain(attached)
    }

    fn checked(self, config: &AlignConfig, grid: TimeGrid, wait_ns: i64) -> Result<StreamSpec, ConfigError> {
        let key = |key: &str| format!("{}.{key}", self.at);
        check_from(&self.at, self.from, (self.dim > 0).then_some(self.dim))?;
        let reorder = duration_ns(|| key("reorder_ms"), self.reorder_ms)?;
        let reset = match self.reset_ms {
            Some(ms) => duration_ns(|| key("reset_ms"), ms)?,
            None => reorder.max(DEFAULT_RESET),
        };
        if reset < reorder {
            return Err(ConfigError::new(
                key("reset_ms"),
                format!(
                    "{} ms is less than reorder_ms, {}: a sample that comes late would be a clock jump",
                    ns_to_ms(reset),
                    self.reorder_ms
                ),
            ));
        }
        let jump = self.jump_ms.map(|ms| duration_ns(|| key("jump_ms"), ms));
        Ok(StreamSpec {
            latency: latency_ns(&key("latency_ms"), self.latency_ms)?,
            reorder,
            min_period: match self.min_period_ms {
                Some(ms) => duration_ns(|| key("min_period_ms"), ms)?,
                None => 0,
            },
            waits: self.wait,
            reset,
            jump: jump.transpose()?,
            history_limit: config.history_limit(self.input, self.dim, grid, wait_ns + reorder)?,
            input: self.input.to_owned(),
            dim: self.dim,
            fields: self.from.map(FromConfig::fields).unwrap_or_default(),
            groups: self.groups,
        })
    }
}

impl StreamSpec {
    /// How many samples its values need at most at or before a target, and how many after it.
    pub fn needs(&self) -> [usize; 2] {
        let needs = self.groups.iter().map(|group| group.rule.mode.needs());
        needs.fold([1, 0], |most, needs| [most[0].max(needs[0]), most[1].max(needs[1])])
    }

    /// Whether a sample may be none because some of its channels are no rotation.
    pub fn has_rotations(&self) -> bool {
        self.groups.iter().any(|group| group.rule.mode.is_rotation())
    }
}

/// `max_wait_ms` in ns.
pub(super) fn max_wait_ns(ms: Option<f64>) -> Result<Option<i64>, ConfigError> {
    ms.map(|ms| duration_ns(|| "max_wait_ms".into(), ms)).transpose()
}

/// `latency_ms` in ns; `key` names it in the error.
pub(super) fn latency_ns(key: &str, ms: f64) -> Result<i64, ConfigError> {
    if (-1e12..=1e12).contains(&ms) {
        Ok(ms_to_ns(ms))
    } else {
        Err(ConfigError::new(key, format!("{ms} (allowed: -1e12 to 1e12 ms)")))
    }
}

impl AlignConfig {
    fn grid(&self) -> Result<TimeGrid, ConfigError> {
        let at_least_one = [
            ("window", self.window),
            ("stride", self.stride),
            ("emit_every", self.emit_every),
        ];
        for (key, value) in at_least_one {
            if value == 0 || value > 1 << 20 {
                return Err(ConfigError::new(key, format!("{value} (allowed: 1 to {})", 1 << 20)));
            }
        }
        if !self.dtype.holds(self.fill_value) {
            let Self { fill_value, dtype, .. } = self;
            let largest = dtype.largest();
            return Err(ConfigError::new(
                "fill_value",
                format!("{fill_value} (allowed in {dtype}: -{largest:e} to {largest:e})"),
            ));
        }
        self.check_modalities()?;
        TimeGrid::from_rate(self.rate_hz)
            .ok_or_else(|| ConfigError::new("rate_hz", format!("{} (allowed: 1e-6 to 1e9)", self.rate_hz)))
    }

    fn checked_trigger(&self) -> Result<Trigger, ConfigError> {
        let Some(trigger) = &self.trigger else {
            return Ok(Trigger::Grid);
        };
        let kind = trigger.kind();
        let refused = |key: &str, problem: String| Err(ConfigError::new(format!("trigger.{key}"), problem));
        if self.emit_every != 1 {
            return Err(ConfigError::new(
                "emit_every",
                format!(
                    "{} counts targets of the grid, and `trigger` is `{kind}` (allowed: 1{})",
                    self.emit_every,
                    if kind == TriggerKind::Stream {
                        "; `trigger.every` counts samples"
                    } else {
                        ""
                    }
                ),
            ));
        }
        let modality = |input: &str| self.modalities.iter().position(|modality| modality.input == input);
        match trigger {
            TriggerConfig::Stream {
                stream,
                every,
                min_interval_ms,
                rows,
            } => {
                let Some(leader) = modality(stream) else {
                    let names: Vec<&str> = self.modalities.iter().map(|modality| modality.input.as_str()).collect();
                    return refused(
                        "stream",
                        format!(
                            "`{stream}` is the input of no modality{} (allowed: {})",
                            did_you_mean(stream, &names),
                            names.join(", ")
                        ),
                    );
                };
                if !self.modalities[leader].wait {
                    return Err(ConfigError::new(
                        format!("modalities[{leader}].wait"),
                        format!("false, and the samples of `{stream}` are the targets (allowed: true)"),
                    ));
                }
                if *every == 0 || *every > 1 << 20 {
                    return refused("every", format!("{every} (allowed: 1 to {})", 1 << 20));
                }
                Ok(Trigger::Stream {
                    leader,
                    every: *every,
                    min_interval: duration_ns(|| "trigger.min_interval_ms".into(), *min_interval_ms)?,
                    rows: *rows,
                })
            }
            TriggerConfig::Request { request: input } | TriggerConfig::Timer { timer: input } => {
                if input.is_empty() {
                    return refused(
                        &kind.to_string(),
                        "it is empty (needed: the name of an input)".to_owned(),
                    );
                }
                let attached = self.attach.iter().position(|attach| attach.input == *input);
                let taken = modality(input)
                    .map(|i| ("modalities", i))
                    .or(attached.map(|i| ("attach", i)));
                if let Some((list, i)) = taken {
                    return refused(
                        &kind.to_string(),
                        format!("`{input}` is {list}[{i}] (allowed: an input of its own)"),
                    );
                }
                Ok(match trigger {
                    TriggerConfig::Request { .. } => Trigger::Request(input.clone()),
                    _ => Trigger::Timer(input.clone()),
                })
            }
        }
    }

    /// How many samples of a stream are held at most: those of a window, and of the time for which it may wait.
    fn history_limit(&self, input: &str, dim: usize, grid: TimeGrid, wait_ns: i64) -> Result<usize, ConfigError> {
        let sample_bytes = match dim {
            0 => ATTACHED_BYTES,
            dim => dim * size_of::<f32>() + size_of::<i64>(),
        };
        let fit = |bytes: usize| bytes / sample_bytes;
        let steps = (self.window - 1) as f64 * self.stride as f64;
        let waits = wait_ns as f64;
        let period = grid.period() as f64;
        // A bracket needs up to two more samples at either end.
        let least = steps + waits / period + 4.0;
        if least > fit(MAX_HISTORY_BYTES) as f64 {
            return Err(ConfigError::new(
                "window",
                format!(
                    "{} rows, {} grid steps apart, and {} ms of waiting are {least:.0} samples of {dim} values of `{input}` at the \
                     grid's rate, {:.0} MiB (allowed: {} MiB a stream)",
                    self.window,
                    self.stride,
                    waits / 1e6,
                    least * sample_bytes as f64 / f64::from(1 << 20),
                    MAX_HISTORY_BYTES >> 20
                ),
            ));
        }
        // A clock jump may bring a window as soon as a grid step after the last observation.
        let span = (steps + (self.emit_every - 1) as f64) * period + waits;
        let wanted = (span / 1e9 * SENSOR_RATE).min(fit(LONG_HISTORY_BYTES) as f64);
        let usual = fit(HISTORY_BYTES).clamp(64.min(fit(MAX_HISTORY_BYTES)), 1 << 20);
        Ok(usual.max(wanted as usize).max(least.ceil() as usize))
    }

    /// Checks the names of the attached streams.
    fn check_attached(&self) -> Result<(), ConfigError> {
        for (i, attach) in self.attach.iter().enumerate() {
            let refused = |key: &str, problem: String| Err(ConfigError::new(format!("attach[{i}].{key}"), problem));
            let (input, output) = (&attach.input, &attach.output);
            let before = &self.attach[..i];
            if input.is_empty() {
                return refused("input", "it is empty (needed: the name of an input)".to_owned());
            }
            if let Some(m) = self.modalities.iter().position(|modality| modality.input == *input) {
                return refused("input", format!("`{input}` is modalities[{m}] already"));
            }
            if let Some(first) = before.iter().position(|other| other.input == *input) {
                return refused("input", format!("`{input}` is attach[{first}] already"));
            }
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            if output.is_empty() || !output.chars().all(is_name) {
                let allowed = "allowed: letters, digits, `_` and `-`";
                return refused("output", format!("`{output}` is no name of an output ({allowed})"));
            }
            if [FUSED, OBSERVATION].contains(&output.as_str()) {
                return refused("output", format!("`{output}` is an output of fuse itself"));
            }
            if let Some(first) = before.iter().position(|other| other.output == *output) {
                let needed = "needed: an `output` of its own for each";
                return refused(
                    "output",
                    format!("`{output}` is that of attach[{first}] already ({needed})"),
                );
            }
        }
        Ok(())
    }

    fn check_modalities(&self) -> Result<(), ConfigError> {
        if self.modalities.is_empty() {
            return Err(ConfigError::new("modalities", "there is none (at least one is needed)"));
        }
        if !self.modalities.iter().any(|modality| modality.wait) {
            return Err(ConfigError::new(
                "modalities",
                "every one has `wait: false`, so nothing says when a target is due (at least one must wait)",
            ));
        }
        let mut columns = 0usize;
        let mut known = HashMap::with_capacity(self.modalities.len());
        for (i, modality) in self.modalities.iter().enumerate() {
            let refused = |problem: String| Err(ConfigError::new(format!("modalities[{i}].input"), problem));
            if modality.input.is_empty() {
                return refused("it is empty (needed: the name of an input)".to_owned());
            }
            if let Some(first) = known.insert(modality.input.as_str(), i) {
                return refused(format!("`{}` is modalities[{first}] already", modality.input));
            }
            if modality.dim == 0 || modality.dim > MAX_ELEMENTS {
                return Err(ConfigError::new(
                    format!("modalities[{i}].dim"),
                    format!("{} (allowed: 1 to {MAX_ELEMENTS})", modality.dim),
                ));
            }
            columns += modality.dim;
        }
        match columns.checked_mul(self.window) {
            Some(elements) if elements <= MAX_ELEMENTS => Ok(()),
            _ => Err(ConfigError::new(
                "window",
                format!(
                    "{} rows of {columns} columns (allowed: {MAX_ELEMENTS} elements)",
                    self.window
                ),
            )),
        }
    }
}

impl AttachConfig {
    fn checked(&self, i: usize, window: usize) -> Result<AttachedSpec, ConfigError> {
        let key = |key: &str| format!("attach[{i}].{key}");
        let max_age = self.max_age_ms.map(|ms| duration_ns(|| key("max_age_ms"), ms));
        if let Some(rows) = self.rows.filter(|&rows| rows == 0 || rows > window) {
            let problem = format!("{rows} (allowed: 1 to {window}, the rows of the window)");
            return Err(ConfigError::new(key("rows"), problem));
        }
        let mb = self.max_held_mb;
        if !(mb > 0.0 && mb <= 1e6) {
            let problem = format!("{mb} is not allowed (allowed: a number of MiB above 0, up to 1e6)");
            return Err(ConfigError::new(key("max_held_mb"), problem));
        }
        Ok(AttachedSpec {
            output: self.output.clone(),
            rows: self.rows.unwrap_or(window),
            max_age: max_age.transpose()?,
            max_held: (mb * f64::from(1 << 20)) as usize,
        })
    }
}

impl ModalityConfig {
    /// The groups, in the order of their channels.
    fn checked_groups(&self, i: usize) -> Result<Vec<Group>, ConfigError> {
        let whole = GroupConfig {
            channels: [0, self.dim],
            interpolation: self.interpolation,
            max_age_ms: self.max_age_ms,
            max_gap_ms: self.max_gap_ms,
            extrapolate_ms: self.extrapolate_ms,
            canonical: self.canonical,
            order: self.order,
        };
        let groups = Groups {
            key: &format!("modalities[{i}]"),
            whole: &whole,
            groups: &self.groups,
        };
        groups.checked()
    }
}
