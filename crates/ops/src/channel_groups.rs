//! Groups of channels with rules of their own: those of a modality, and those of a trajectory.

use super::{ConfigError, duration_ns, unused_limit};
#[cfg(feature = "cuda")]
use bytemuck::{Pod, Zeroable};
use robocache_time::{Interpolation, Limits, QuaternionOrder, Rule};
use serde::Deserialize;
#[cfg(feature = "cuda")]
use std::ops::Range;

/// Channels that are judged and filled together. A rule that it leaves out is that of what it is a group of: a modality, or
/// the section `resample:`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupConfig {
    /// From the first channel up to, but without, the second.
    pub channels: [usize; 2],
    /// How values between samples are found.
    #[serde(default)]
    pub interpolation: Option<Interpolation>,
    /// See [`Limits::max_age`](robocache_time::Limits::max_age).
    #[serde(default)]
    pub max_age_ms: Option<f64>,
    /// See [`Limits::max_gap`](robocache_time::Limits::max_gap).
    #[serde(default)]
    pub max_gap_ms: Option<f64>,
    /// See [`Limits::extrapolate`](robocache_time::Limits::extrapolate).
    #[serde(default)]
    pub extrapolate_ms: Option<f64>,
    /// `slerp`: see [`Rule::canonical`]. `None`: false.
    #[serde(default)]
    pub canonical: Option<bool>,
    /// `slerp`: where w stands. `None`: `xyzw`.
    #[serde(default)]
    pub order: Option<QuaternionOrder>,
}

/// Channels from..to, which are judged and filled together.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub from: usize,
    pub to: usize,
    pub rule: Rule,
}

/// What groups are made of.
pub(crate) struct Groups<'a> {
    /// What stands before the keys in an error: `modalities[2]`, or nothing.
    pub key: &'a str,
    /// What the whole says: its channels are all there are, where that is known.
    pub whole: &'a GroupConfig,
    pub groups: &'a [GroupConfig],
}

impl Groups<'_> {
    /// The groups, sorted by channel: they follow one another from 0 on without a hole or an overlap, and where the number
    /// of channels is known, to the last. Where there is none, the whole is one.
    pub fn checked(&self) -> Result<Vec<Group>, ConfigError> {
        let mut configs: Vec<(Option<usize>, &GroupConfig)> = self
            .groups
            .iter()
            .enumerate()
            .map(|(g, group)| (Some(g), group))
            .collect();
        if configs.is_empty() {
            configs.push((None, self.whole));
        }
        configs.sort_by_key(|(_, group)| group.channels);
        let dim = self.whole.channels[1];
        let mut next = 0;
        let mut groups = Vec::with_capacity(configs.len());
        for (g, group) in configs {
            let [from, to] = group.channels;
            let key = |key: &str| self.key(g, key);
            if from >= to || to > dim {
                let of_dim = match dim {
                    usize::MAX => String::new(),
                    _ => format!(" <= dim = {dim}"),
                };
                return Err(ConfigError::new(
                    key("channels"),
                    format!("[{from}, {to}] (allowed: [from, to] with from < to{of_dim})"),
                ));
            }
            if from != next {
                let problem = if from < next {
                    "overlaps the group before it"
                } else {
                    "leaves a hole before it"
                };
                return Err(ConfigError::new(
                    key("channels"),
                    format!("[{from}, {to}] {problem}, which ends at {next} (each channel is in one group)"),
                ));
            }
            next = to;
            let mode = self.mode(group).ok_or_else(|| {
                ConfigError::new(
                    key("interpolation"),
                    format!("it is missing (allowed: {})", Interpolation::names()),
                )
            })?;
            check_width(mode, to - from, || match g {
                Some(_) => key("channels"),
                None => key("dim"),
            })?;
            groups.push(Group {
                from,
                to,
                rule: self.rule(g, group, mode)?,
            });
        }
        if next != dim && dim != usize::MAX {
            return Err(ConfigError::new(
                self.key(None, "groups"),
                format!("channels {next} to {dim} are in no group (each channel is in one group)"),
            ));
        }
        Ok(groups)
    }

    /// A key of a group, or of the whole.
    fn key(&self, group: Option<usize>, key: &str) -> String {
        let dot = if self.key.is_empty() { "" } else { "." };
        match group {
            Some(g) => format!("{}{dot}groups[{g}].{key}", self.key),
            None => format!("{}{dot}{key}", self.key),
        }
    }

    fn mode(&self, group: &GroupConfig) -> Option<Interpolation> {
        group.interpolation.or(self.whole.interpolation)
    }

    /// The rule of a group: what it says, else what the whole says, where its mode has a use for that.
    fn rule(&self, g: Option<usize>, group: &GroupConfig, mode: Interpolation) -> Result<Rule, ConfigError> {
        let whole = self.whole;
        // What the whole says holds for those of its groups that have a use for it.
        let limit = |key: &str, own: Option<f64>, inherited: Option<f64>, absent: i64| {
            let uses = |mode: Option<Interpolation>| mode.is_none_or(|mode| mode.limits().contains(&key));
            let (ms, set_at, is_used) = match (own, inherited) {
                (Some(ms), _) => (ms, g, uses(Some(mode))),
                (None, Some(ms)) => (ms, None, self.groups.iter().any(|group| uses(self.mode(group)))),
                (None, None) => return Ok(absent),
            };
            let ns = duration_ns(|| self.key(set_at, key), ms)?;
            match is_used {
                true => Ok(ns),
                false => Err(unused_limit(self.key(set_at, key), Some(mode))),
            }
        };
        let absent = Limits::default();
        let limits = Limits {
            max_age: limit("max_age_ms", group.max_age_ms, whole.max_age_ms, absent.max_age)?,
            max_gap: limit("max_gap_ms", group.max_gap_ms, whole.max_gap_ms, absent.max_gap)?,
            extrapolate: limit(
                "extrapolate_ms",
                group.extrapolate_ms,
                whole.extrapolate_ms,
                absent.extrapolate,
            )?,
        };
        let check_option = |key: &str, own: bool, inherited: bool| {
            let is_slerp = |group: &GroupConfig| self.mode(group) == Some(Interpolation::Slerp);
            match (own, inherited) {
                (true, _) if mode != Interpolation::Slerp => Err(unused_option(self.key(g, key), mode)),
                (false, true) if !self.groups.iter().any(is_slerp) => Err(unused_option(self.key(None, key), mode)),
                _ => Ok(()),
            }
        };
        check_option("canonical", group.canonical.is_some(), whole.canonical.is_some())?;
        check_option("order", group.order.is_some(), whole.order.is_some())?;
        Ok(Rule {
            mode,
            limits,
            canonical: group.canonical.or(whole.canonical).unwrap_or(false),
            order: group.order.or(whole.order).unwrap_or_default(),
        })
    }
}

/// Checks that a group of so many channels is as wide as its mode needs it; `key` says where its width stands.
pub(crate) fn check_width(
    mode: Interpolation,
    channels: usize,
    key: impl FnOnce() -> String,
) -> Result<(), ConfigError> {
    match mode.width() {
        Some(width) if channels != width && channels != usize::MAX => Err(ConfigError::new(
            key(),
            format!("{channels} channels (allowed with `{}`: {width})", mode.name()),
        )),
        _ => Ok(()),
    }
}

/// The refusal of an option that only `slerp` has.
fn unused_option(key: String, mode: Interpolation) -> ConfigError {
    ConfigError::new(
        key,
        format!("`{}` has no use for it (allowed with: slerp)", mode.name()),
    )
}

/// So many groups travel in the launch parameters of kernels that take no table of them, as in `kernels/time.cuh`.
pub(crate) const MOST_GROUPS: usize = 32;

/// `Group` of `kernels/time.cuh`.
#[cfg(feature = "cuda")]
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(crate) struct GroupParams {
    max_age: i64,
    max_gap: i64,
    extrapolate: i64,
    from: u32,
    to: u32,
    mode: u32,
    canonical: u32,
}

#[cfg(feature = "cuda")]
impl GroupParams {
    fn new(channels: Range<usize>, rule: &Rule) -> Self {
        let channel_of_w = match rule.order {
            QuaternionOrder::Xyzw => 3,
            QuaternionOrder::Wxyz => 0,
        };
        Self {
            max_age: rule.limits.max_age,
            max_gap: rule.limits.max_gap,
            extrapolate: rule.limits.extrapolate,
            from: channels.start as u32,
            to: channels.end as u32,
            mode: rule.mode.code(),
            canonical: if rule.canonical { 1 + channel_of_w } else { 0 },
        }
    }
}

/// Groups in the order of the kernels: rotations come first.
#[cfg(feature = "cuda")]
pub(crate) fn rotations_first(
    groups: impl Iterator<Item = (Range<usize>, Rule)> + Clone,
) -> impl Iterator<Item = GroupParams> {
    let rotations = groups.clone().filter(|(_, rule)| rule.mode.is_rotation());
    let others = groups.filter(|(_, rule)| !rule.mode.is_rotation());
    rotations
        .chain(others)
        .map(|(channels, rule)| GroupParams::new(channels, &rule))
}

/// How many groups are rotations, and whether one is a curve: 1, else 0.
#[cfg(feature = "cuda")]
pub(crate) fn count_kinds(rules: impl Iterator<Item = Rule> + Clone) -> (u32, u32) {
    let rotations = rules.clone().filter(|rule| rule.mode.is_rotation()).count() as u32;
    let mut curves = rules.filter(|rule| rule.mode.needs()[0] > 1);
    (rotations, curves.next().is_some().into())
}

/// Why a device can't do what groups ask for, if it can't.
pub(crate) fn not_on_cuda<'a>(mut groups: impl Iterator<Item = &'a Group>) -> Option<String> {
    let group = groups.find(|group| !group.rule.mode.is_on_cuda())?;
    Some(format!("interpolation `{}` is not on CUDA", group.rule.mode.name()))
}
