use crate::device::Dtype;
use crate::ops::{ConfigError, NotYet, duration_ns, unused_limit};
use crate::time::{Grid, Interpolation, Limits};
use serde::Deserialize;

/// The sections `align:` and `fuse:` of a configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlignConfig {
    /// Targets per second: they lie at whole multiples of `round(1e9 / rate_hz)` ns.
    pub rate_hz: f64,
    /// T, the rows of an observation.
    #[serde(default = "one")]
    pub window: usize,
    /// Grid steps between the rows of a window.
    #[serde(default = "one")]
    pub stride: usize,
    /// Grid steps between observations.
    #[serde(default = "one")]
    pub emit_every: usize,
    /// For how long a target waits for a stream that is behind the newest one; null or absent: for ever.
    #[serde(default)]
    pub max_wait_ms: Option<f64>,
    /// The type of the published values.
    #[serde(default = "float32")]
    pub dtype: Dtype,
    /// What stands where there is no valid value.
    #[serde(default)]
    pub fill_value: f32,
    /// The streams, in the order of the last axis.
    pub modalities: Vec<ModalityConfig>,
    /// Observations at the stamps of a stream instead of on a grid.
    #[serde(default)]
    pub trigger: Option<NotYet>,
}

/// One stream of an [`AlignConfig`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModalityConfig {
    /// The input it comes from.
    pub input: String,
    /// Values a sample.
    pub dim: usize,
    /// How values between samples are found; may be left out where every group says it.
    #[serde(default)]
    pub interpolation: Option<Interpolation>,
    /// By how much its stamps are later than the capture.
    #[serde(default)]
    pub latency_ms: f64,
    /// See [`Limits::max_age`].
    #[serde(default)]
    pub max_age_ms: Option<f64>,
    /// See [`Limits::max_gap`].
    #[serde(default)]
    pub max_gap_ms: Option<f64>,
    /// See [`Limits::extrapolate`].
    #[serde(default)]
    pub extrapolate_ms: Option<f64>,
    /// How late a sample may come and still be sorted in before it is used.
    #[serde(default)]
    pub reorder_ms: f64,
    /// Whether a target waits for this stream.
    #[serde(default = "yes")]
    pub wait: bool,
    /// A stamp that goes back by more than this is a clock jump; at least `reorder_ms`. Absent: 1000, or `reorder_ms`
    /// where that is more.
    #[serde(default)]
    pub reset_ms: Option<f64>,
    /// A stamp that is further ahead than this of its stream's newest and of those of all streams that are waited for is
    /// a clock jump. Absent: 10,000 with `max_wait_ms`, else none is.
    #[serde(default)]
    pub jump_ms: Option<f64>,
    /// Groups of channels with rules of their own; together they are all channels, each once.
    #[serde(default)]
    pub groups: Vec<GroupConfig>,
}

/// Channels of a modality that share their rules. What it does not say is the modality's.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupConfig {
    /// From the first channel up to, but without, the second.
    pub channels: [usize; 2],
    /// How values between samples are found.
    #[serde(default)]
    pub interpolation: Option<Interpolation>,
    /// See [`Limits::max_age`].
    #[serde(default)]
    pub max_age_ms: Option<f64>,
    /// See [`Limits::max_gap`].
    #[serde(default)]
    pub max_gap_ms: Option<f64>,
    /// See [`Limits::extrapolate`].
    #[serde(default)]
    pub extrapolate_ms: Option<f64>,
}

/// Channels with their rules, checked.
pub(super) struct Group {
    pub from: usize,
    pub to: usize,
    pub mode: Interpolation,
    pub limits: Limits,
}

/// The largest observation, in elements.
const MAX_ELEMENTS: usize = 1 << 28;

/// A stream may hold this much while it waits for others; past it, its oldest samples go and are counted.
const HISTORY_BYTES: usize = 64 << 20;

/// It may hold more where the window is long: the samples of a sensor of this rate, Hz, up to so many bytes.
const SENSOR_RATE: f64 = 1e4;
const LONG_HISTORY_BYTES: usize = 256 << 20;

/// And more still where the window could otherwise not be filled even by a sensor of the grid's own rate.
const MAX_HISTORY_BYTES: usize = 1 << 30;

fn one() -> usize {
    1
}

fn yes() -> bool {
    true
}

fn float32() -> Dtype {
    Dtype::Float32
}

impl AlignConfig {
    /// Columns over all modalities.
    pub fn columns(&self) -> usize {
        self.modalities.iter().map(|modality| modality.dim).sum()
    }

    pub(super) fn grid(&self) -> Result<Grid, ConfigError> {
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
        Grid::from_rate(self.rate_hz)
            .ok_or_else(|| ConfigError::new("rate_hz", format!("{} (allowed: 1e-6 to 1e9)", self.rate_hz)))
    }

    /// How many samples of a modality are kept at most: those that lie in a window, and in the time for which it may
    /// wait.
    pub(super) fn history_limit(&self, i: usize, grid: Grid, wait_ns: i64) -> Result<usize, ConfigError> {
        let modality = &self.modalities[i];
        let sample_bytes = modality.dim * size_of::<f32>() + size_of::<i64>();
        let fit = |bytes: usize| bytes / sample_bytes;
        let steps = (self.window - 1) as f64 * self.stride as f64;
        let waits = wait_ns as f64;
        let period = grid.period() as f64;
        // A bracket needs one more sample at either end.
        let least = steps + waits / period + 2.0;
        if least > fit(MAX_HISTORY_BYTES) as f64 {
            return Err(ConfigError::new(
                "window",
                format!(
                    "{} rows, {} grid steps apart, and {} ms of waiting are {least:.0} samples of {} values of `{}` at the \
                     grid's rate, {:.0} MiB (allowed: {} MiB a stream)",
                    self.window,
                    self.stride,
                    waits * 1e-6,
                    modality.dim,
                    modality.input,
                    least * sample_bytes as f64 / f64::from(1 << 20),
                    MAX_HISTORY_BYTES >> 20
                ),
            ));
        }
        let wanted = ((steps * period + waits) * 1e-9 * SENSOR_RATE).min(fit(LONG_HISTORY_BYTES) as f64);
        let usual = fit(HISTORY_BYTES).clamp(64.min(fit(MAX_HISTORY_BYTES)), 1 << 20);
        Ok(usual.max(wanted as usize).max(least.ceil() as usize))
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
        for (i, modality) in self.modalities.iter().enumerate() {
            if let Some(first) = self.modalities[..i]
                .iter()
                .position(|other| other.input == modality.input)
            {
                return Err(ConfigError::new(
                    format!("modalities[{i}].input"),
                    format!("`{}` is modalities[{first}] already", modality.input),
                ));
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

impl ModalityConfig {
    /// The checked groups, in the order of their channels, so that they follow one another from 0 to `dim`.
    pub(super) fn checked_groups(&self, i: usize) -> Result<Vec<Group>, ConfigError> {
        let of_modality = |group: Option<usize>| match group {
            Some(g) => format!("modalities[{i}].groups[{g}]"),
            None => format!("modalities[{i}]"),
        };
        let whole = GroupConfig {
            channels: [0, self.dim],
            interpolation: None,
            max_age_ms: None,
            max_gap_ms: None,
            extrapolate_ms: None,
        };
        let mut configs: Vec<(Option<usize>, &GroupConfig)> = self
            .groups
            .iter()
            .enumerate()
            .map(|(g, group)| (Some(g), group))
            .collect();
        if configs.is_empty() {
            configs.push((None, &whole));
        }
        configs.sort_by_key(|(_, group)| group.channels);
        let mut next = 0;
        let mut groups = Vec::with_capacity(configs.len());
        for (g, group) in configs {
            let [from, to] = group.channels;
            let place = of_modality(g);
            if from >= to || to > self.dim {
                return Err(ConfigError::new(
                    format!("{place}.channels"),
                    format!(
                        "[{from}, {to}] (allowed: [from, to] with from < to <= dim = {})",
                        self.dim
                    ),
                ));
            }
            if from != next {
                let problem = if from < next {
                    "overlaps the group before it"
                } else {
                    "leaves a hole before it"
                };
                return Err(ConfigError::new(
                    format!("{place}.channels"),
                    format!("[{from}, {to}] {problem}, which ends at {next} (each channel is in one group)"),
                ));
            }
            next = to;
            groups.push(Group {
                from,
                to,
                mode: group.interpolation.or(self.interpolation).ok_or_else(|| {
                    ConfigError::new(
                        format!("{place}.interpolation"),
                        format!("it is missing (allowed: {})", Interpolation::names()),
                    )
                })?,
                limits: self.limits(&place, group)?,
            });
        }
        if next != self.dim {
            return Err(ConfigError::new(
                format!("modalities[{i}].groups"),
                format!(
                    "channels {next} to {} are in no group (each channel is in one group)",
                    self.dim
                ),
            ));
        }
        Ok(groups)
    }

    fn limits(&self, place: &str, group: &GroupConfig) -> Result<Limits, ConfigError> {
        let absent = Limits::default();
        let of_modality = place.split(".groups[").next().unwrap_or(place);
        let limit = |key: &str, own: Option<f64>, inherited: Option<f64>, absent: i64| {
            let used_by = |group: &GroupConfig| {
                let mode = group.interpolation.or(self.interpolation);
                mode.is_none_or(|mode| mode.limits().contains(&key))
            };
            // A limit of the modality is for those of its groups that have a use for it.
            let (ms, place, is_used) = match (own, inherited) {
                (Some(ms), _) => (ms, place, used_by(group)),
                (None, Some(ms)) if self.groups.is_empty() => (ms, place, used_by(group)),
                (None, Some(ms)) => (ms, of_modality, self.groups.iter().any(used_by)),
                (None, None) => return Ok(absent),
            };
            let ns = duration_ns(|| format!("{place}.{key}"), ms)?;
            match is_used {
                true => Ok(ns),
                false => Err(unused_limit(
                    format!("{place}.{key}"),
                    group.interpolation.or(self.interpolation),
                )),
            }
        };
        Ok(Limits {
            max_age: limit("max_age_ms", group.max_age_ms, self.max_age_ms, absent.max_age)?,
            max_gap: limit("max_gap_ms", group.max_gap_ms, self.max_gap_ms, absent.max_gap)?,
            extrapolate: limit(
                "extrapolate_ms",
                group.extrapolate_ms,
                self.extrapolate_ms,
                absent.extrapolate,
            )?,
        })
    }
}
