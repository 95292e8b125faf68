//! Checks the configuration of align and fuse, and converts its values to ns, bytes and indices.
//!
//! A `Spec` or a `StreamSpec` holds checked values only. An error names the key, its value and the allowed values.

use super::{AlignConfig, AttachConfig, ChannelGroupConfig, ModalityConfig, Rows, TriggerConfig, TriggerKind};
use crate::channel_groups::ChannelGroup;
use crate::{ConfigError, check_from, duration_ns, held_bytes, refused};
use robocache_device::Dtype;
use robocache_stream::FromConfig;
use robocache_time::{TimeGrid, ms_to_ns, ns_to_ms};
use robocache_yaml::did_you_mean;
use std::collections::HashMap;

/// Checked settings of `align` or `fuse` that hold for all streams. `StreamSpec` has the settings of one stream.
pub(super) struct Spec {
    pub grid: TimeGrid,
    pub window: i64,
    pub stride: i64,
    pub emit_every: i64,
    /// Longest time that an observation waits for a slower stream, ns; `None`: no limit.
    pub max_wait: Option<i64>,
    pub trigger: Trigger,
    pub dtype: Dtype,
    pub fill_value: f32,
    pub attached: Vec<AttachedSpec>,
}

/// Checked settings that only an attached stream has, and a modality does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedSpec {
    /// Name of the output on which the messages of a window are published.
    pub output: String,
    /// Number of rows of a window, counted from the newest, that get an attached message.
    pub rows: usize,
    /// Greatest age of a message at the time of its row, ns; `None`: no limit.
    pub max_age: Option<i64>,
    /// Limit of the memory for messages of the stream that are kept, bytes.
    pub max_held: usize,
}

/// Source of the times of observations, checked; durations in ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trigger {
    Grid,
    /// Samples of modality `leader` are the targets. The next target is the first sample that is at least the `every`-th after
    /// the last target, and at least `min_interval` later.
    Stream {
        leader: usize,
        every: usize,
        min_interval: i64,
        rows: Rows,
    },
    /// Requests: name of the input whose messages are each answered with an observation.
    Request(String),
    /// Timer ticks: name of the input whose messages each ask for the newest observation.
    Timer(String),
}

/// Checked settings of one stream; durations in ns.
pub(super) struct StreamSpec {
    pub input: String,
    pub dim: usize,
    /// Names of the values of a sample, if the configuration selects the values by name; otherwise empty.
    pub fields: Vec<String>,
    /// Groups of channels, in the order of their channels; each channel is in one group.
    pub groups: Vec<ChannelGroup>,
    pub latency: i64,
    pub reorder: i64,
    /// Shortest time between two samples; 0 if it is not known.
    pub min_period: i64,
    /// True if observations wait for the stream while it is open: the key `wait`.
    pub waits: bool,
    pub reset: i64,
    /// Value of `jump_ms`, ns; `None` if the configuration has none.
    pub jump: Option<i64>,
    /// Greatest number of samples in the stream's history.
    pub history_limit: usize,
}

/// Name of the output of fuse that has the window without attached messages.
pub const FUSED: &str = "fused";
/// Name of the output of fuse that has the window with its attached messages.
pub const OBSERVATION: &str = "observation";

/// Default of `reset_ms`, ns, unless `reorder_ms` is greater.
const DEFAULT_RESET: i64 = 1_000_000_000;

/// Greatest distance of a requested time before the newest time that is due, ns. With the triggers `request` and `timer`,
/// samples are kept for this much longer.
pub(super) const MAX_LOOK_BACK: i64 = 1_000_000_000;

/// Greatest number of elements of an observation: 1 GiB in float32.
const MAX_ELEMENTS: usize = 1 << 28;

/// Usual limit of the memory for a stream's history, bytes, while the stream waits for slower streams. Past it, the oldest
/// samples are dropped and counted.
const HISTORY_BYTES: usize = 64 << 20;

/// Estimated memory of one attached message, bytes, without its payload, which `max_held_mb` limits.
const ATTACHED_BYTES: usize = 512;

/// Sensor rate, Hz, for which the history of a long window has room for every sample, if that takes
/// at most [`LONG_HISTORY_BYTES`].
const SENSOR_RATE: f64 = 1e4;
/// Size up to which a long window may enlarge a stream's history beyond [`HISTORY_BYTES`], bytes.
const LONG_HISTORY_BYTES: usize = 256 << 20;

/// Greatest memory of a stream's history, bytes. A window that needs more, even with one sample for each period of
/// `rate_hz`, is refused.
const MAX_HISTORY_BYTES: usize = 1 << 30;

impl Spec {
    /// Checks a configuration. Returns the settings that hold for all streams, and those of each stream: modalities first,
    /// then attached streams.
    ///
    /// # Errors
    /// [`ConfigError`] names the invalid key, its value and the allowed values.
    pub(super) fn new(config: &AlignConfig) -> Result<(Self, Vec<StreamSpec>), ConfigError> {
        let grid = config.grid()?;
        let max_wait = max_wait_ns(config.max_wait_ms)?;
        config.check_attached()?;
        let trigger = config.checked_trigger()?;
        let looks_back = match trigger {
            Trigger::Request(_) | Trigger::Timer(_) => MAX_LOOK_BACK,
            _ => 0,
        };
        let held = max_wait.unwrap_or(0).saturating_add(looks_back);
        let stream = |at: String, of: &ModalityConfig| of.checked(&at, config, grid, held);
        let modalities = config.modalities.iter().enumerate();
        let modalities = modalities.map(|(i, modality)| stream(format!("modalities[{i}]"), modality));
        let attached = config.attach.iter().enumerate();
        let attached_streams = attached
            .clone()
            .map(|(i, attach)| stream(format!("attach[{i}]"), &attach.stream()));
        let streams = modalities.chain(attached_streams).collect::<Result<_, _>>()?;
        let attached = attached.map(|(i, attach)| attach.checked(i, config.window));
        let spec = Self {
            grid,
            window: config.window as i64,
            stride: config.stride as i64,
            emit_every: config.emit_every as i64,
            max_wait,
            trigger,
            dtype: config.dtype,
            fill_value: config.fill_value,
            attached: attached.collect::<Result<_, _>>()?,
        };
        Ok((spec, streams))
    }
}

impl StreamSpec {
    /// Returns how many samples an interpolated value needs at most: `[at or before the target, after it]`.
    pub(super) fn needs(&self) -> [usize; 2] {
        let needs = self.groups.iter().map(|group| group.rule.mode.needs());
        needs.fold([1, 0], |most, needs| [most[0].max(needs[0]), most[1].max(needs[1])])
    }

    /// True if a group interpolates rotations, so that a sample can be refused because its channels are not a rotation.
    pub(super) fn has_rotations(&self) -> bool {
        self.groups.iter().any(|group| group.rule.mode.is_rotation())
    }
}

/// Checks `max_wait_ms` and converts it to ns.
pub(super) fn max_wait_ns(ms: Option<f64>) -> Result<Option<i64>, ConfigError> {
    ms.map(|ms| duration_ns(|| "max_wait_ms".into(), ms)).transpose()
}

/// Checks `latency_ms` and converts it to ns; an error names the key `key`.
pub(crate) fn latency_ns(key: &str, ms: f64) -> Result<i64, ConfigError> {
    match (-1e12..=1e12).contains(&ms) {
        true => Ok(ms_to_ns(ms)),
        false => refused(key, format!("{ms} (allowed: -1e12 to 1e12 ms)")),
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
                return refused(key, format!("{value} (allowed: 1 to {})", 1 << 20));
            }
        }
        let Self {
            fill_value,
            dtype,
            rate_hz,
            ..
        } = self;
        if !dtype.holds(*fill_value) {
            let largest = dtype.largest();
            return refused(
                "fill_value",
                format!("{fill_value} (allowed in {dtype}: -{largest:e} to {largest:e})"),
            );
        }
        self.check_modalities()?;
        TimeGrid::from_rate(*rate_hz)
            .ok_or_else(|| ConfigError::new("rate_hz", format!("{rate_hz} (allowed: 1e-6 to 1e9)")))
    }

    fn checked_trigger(&self) -> Result<Trigger, ConfigError> {
        let Some(trigger) = &self.trigger else {
            return Ok(Trigger::Grid);
        };
        let kind = trigger.kind();
        if self.emit_every != 1 {
            let every = if kind == TriggerKind::Stream {
                "; `trigger.every` counts samples"
            } else {
                ""
            };
            let came = format!(
                "{} does not go with the trigger `{kind}`: `emit_every` counts targets of the grid",
                self.emit_every
            );
            return refused("emit_every", format!("{came} (allowed: 1{every})"));
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
                    let (hint, names) = (did_you_mean(stream, &names), names.join(", "));
                    let problem = format!("`{stream}` is the input of no modality{hint} (allowed: {names})");
                    return refused("trigger.stream", problem);
                };
                if !self.modalities[leader].wait {
                    let problem = format!("false, although the samples of `{stream}` are the targets (allowed: true)");
                    return refused(format!("modalities[{leader}].wait"), problem);
                }
                if *every == 0 || *every > 1 << 20 {
                    return refused("trigger.every", format!("{every} (allowed: 1 to {})", 1 << 20));
                }
                Ok(Trigger::Stream {
                    leader,
                    every: *every,
                    min_interval: duration_ns(|| "trigger.min_interval_ms".into(), *min_interval_ms)?,
                    rows: *rows,
                })
            }
            TriggerConfig::Request { request: input } | TriggerConfig::Timer { timer: input } => {
                let key = format!("trigger.{kind}");
                if input.is_empty() {
                    return refused(key, "it is empty (needed: the name of an input)");
                }
                let attached = self.attach.iter().position(|attach| attach.input == *input);
                let taken = modality(input).map(|i| ("modalities", i));
                if let Some((list, i)) = taken.or(attached.map(|i| ("attach", i))) {
                    return refused(key, format!("`{input}` is {list}[{i}] (allowed: an input of its own)"));
                }
                Ok(match trigger {
                    TriggerConfig::Request { .. } => Trigger::Request(input.clone()),
                    _ => Trigger::Timer(input.clone()),
                })
            }
        }
    }

    /// Returns the greatest number of samples in a stream's history: enough for a window, and for the time `wait_ns` for which
    /// the window may wait.
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
            let problem = format!(
                "{} rows, {} grid steps apart, and {} ms of waiting are {least:.0} samples of {dim} values of `{input}` at the \
                 grid's rate, {:.0} MiB (allowed: {} MiB a stream)",
                self.window,
                self.stride,
                waits / 1e6,
                least * sample_bytes as f64 / f64::from(1 << 20),
                MAX_HISTORY_BYTES >> 20
            );
            return refused("window", problem);
        }
        // A clock jump may bring a window as soon as a grid step after the last observation.
        let span = (steps + (self.emit_every - 1) as f64) * period + waits;
        let wanted = (span / 1e9 * SENSOR_RATE).min(fit(LONG_HISTORY_BYTES) as f64);
        let usual = fit(HISTORY_BYTES).clamp(64.min(fit(MAX_HISTORY_BYTES)), 1 << 20);
        Ok(usual.max(wanted as usize).max(least.ceil() as usize))
    }

    /// Checks the input and output names of the attached streams.
    fn check_attached(&self) -> Result<(), ConfigError> {
        for (i, attach) in self.attach.iter().enumerate() {
            let refused = |key: &str, problem: String| refused(format!("attach[{i}].{key}"), problem);
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
                return refused("output", format!("`{output}` is not a name of an output ({allowed})"));
            }
            if [FUSED, OBSERVATION].contains(&output.as_str()) {
                return refused("output", format!("`{output}` is an output of fuse itself"));
            }
            if let Some(first) = before.iter().position(|other| other.output == *output) {
                let needed = "needed: an `output` of its own for each";
                return refused(
                    "output",
                    format!("`{output}` is the output of attach[{first}] already ({needed})"),
                );
            }
        }
        Ok(())
    }

    fn check_modalities(&self) -> Result<(), ConfigError> {
        if self.modalities.is_empty() {
            return refused("modalities", "the list is empty (at least one is needed)");
        }
        if !self.modalities.iter().any(|modality| modality.wait) {
            let problem =
                "every modality has `wait: false`, so no stream decides when a target is due (at least one must wait)";
            return refused("modalities", problem);
        }
        let mut columns = 0usize;
        let mut known = HashMap::with_capacity(self.modalities.len());
        for (i, modality) in self.modalities.iter().enumerate() {
            let refused = |key: &str, problem: String| refused(format!("modalities[{i}].{key}"), problem);
            let (input, dim) = (modality.input.as_str(), modality.dim);
            if input.is_empty() {
                return refused("input", "it is empty (needed: the name of an input)".to_owned());
            }
            if let Some(first) = known.insert(input, i) {
                return refused("input", format!("`{input}` is modalities[{first}] already"));
            }
            if dim == 0 || dim > MAX_ELEMENTS {
                return refused("dim", format!("{dim} (allowed: 1 to {MAX_ELEMENTS})"));
            }
            columns += dim;
        }
        let rows = self.window;
        match columns.checked_mul(rows) {
            Some(elements) if elements <= MAX_ELEMENTS => Ok(()),
            _ => refused(
                "window",
                format!("{rows} rows of {columns} columns (allowed: {MAX_ELEMENTS} elements)"),
            ),
        }
    }
}

impl AttachConfig {
    /// Returns the settings that an attached stream shares with a modality, as the configuration of a modality with `dim` 0.
    fn stream(&self) -> ModalityConfig {
        ModalityConfig {
            input: self.input.clone(),
            from: self.from.clone(),
            latency_ms: self.latency_ms,
            reorder_ms: self.reorder_ms,
            min_period_ms: self.min_period_ms,
            wait: self.wait,
            reset_ms: self.reset_ms,
            jump_ms: self.jump_ms,
            ..ModalityConfig::default()
        }
    }

    fn checked(&self, i: usize, window: usize) -> Result<AttachedSpec, ConfigError> {
        let key = |key: &str| format!("attach[{i}].{key}");
        let max_age = self.max_age_ms.map(|ms| duration_ns(|| key("max_age_ms"), ms));
        if let Some(rows) = self.rows.filter(|&rows| rows == 0 || rows > window) {
            return refused(
                key("rows"),
                format!("{rows} (allowed: 1 to {window}, the rows of the window)"),
            );
        }
        Ok(AttachedSpec {
            output: self.output.clone(),
            rows: self.rows.unwrap_or(window),
            max_held: held_bytes(|| key("max_held_mb"), self.max_held_mb)?,
            max_age: max_age.transpose()?,
        })
    }
}

impl ModalityConfig {
    fn checked(&self, at: &str, config: &AlignConfig, grid: TimeGrid, wait_ns: i64) -> Result<StreamSpec, ConfigError> {
        let key = |key: &str| format!("{at}.{key}");
        let duration = |name: &str, ms: Option<f64>| ms.map(|ms| duration_ns(|| key(name), ms)).transpose();
        let groups = self.checked_groups(at)?;
        check_from(at, self.from.as_ref(), (self.dim > 0).then_some(self.dim))?;
        let reorder = duration_ns(|| key("reorder_ms"), self.reorder_ms)?;
        let reset = duration("reset_ms", self.reset_ms)?.unwrap_or(reorder.max(DEFAULT_RESET));
        if reset < reorder {
            let (reset, reorder) = (ns_to_ms(reset), self.reorder_ms);
            let problem = "a sample that comes late would be a clock jump";
            return refused(
                key("reset_ms"),
                format!("{reset} ms is less than reorder_ms, {reorder}: {problem}"),
            );
        }
        Ok(StreamSpec {
            latency: latency_ns(&key("latency_ms"), self.latency_ms)?,
            reorder,
            min_period: duration("min_period_ms", self.min_period_ms)?.unwrap_or(0),
            jump: duration("jump_ms", self.jump_ms)?,
            waits: self.wait,
            reset,
            history_limit: config.history_limit(&self.input, self.dim, grid, wait_ns + reorder)?,
            input: self.input.clone(),
            dim: self.dim,
            fields: self.from.as_ref().map(FromConfig::fields).unwrap_or_default(),
            groups,
        })
    }

    /// Checks the groups of channels, and returns them in the order of their channels.
    fn checked_groups(&self, at: &str) -> Result<Vec<ChannelGroup>, ConfigError> {
        if self.dim == 0 {
            return Ok(Vec::new());
        }
        let whole = ChannelGroupConfig {
            channels: [0, self.dim],
            interpolation: self.interpolation,
            max_age_ms: self.max_age_ms,
            max_gap_ms: self.max_gap_ms,
            extrapolate_ms: self.extrapolate_ms,
            canonical: self.canonical,
            order: self.order,
        };
        whole.checked(at, &self.groups)
    }
}
