//! Groups of channels, each with its own interpolation and limits: the key `groups` of a modality and of
//! the section `resample:`.
//!
//! Checked groups cover each channel exactly once, in the order of the channels.

use super::{ConfigError, duration_ns, refused, unused_limit};
use bytemuck::{Pod, Zeroable};
use robocache_time::{Interpolation, Limits, QuaternionOrder, Rule};
use serde::Deserialize;
use std::ops::Range;

/// Range of channels with its own interpolation and limits. At a target, its channels are all valid, or all have the fill
/// value. Settings that a group leaves out come from its modality, or from the section `resample:`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelGroupConfig {
    /// Range `[from, to)`: index of the first channel, and index after the last channel.
    pub channels: [usize; 2],
    /// Interpolation mode between samples; `None`: as set for the modality.
    pub interpolation: Option<Interpolation>,
    /// Greatest distance of a target from the sample that gives its value, ms; beyond it the value is not valid. Only
    /// `previous` and `nearest` use it. `None`: as set for the modality.
    pub max_age_ms: Option<f64>,
    /// Greatest time between the two samples around a target, ms; beyond it the value is not valid. All modes but `previous`
    /// and `nearest` use it. `None`: as set for the modality.
    pub max_gap_ms: Option<f64>,
    /// Longest time after the newest sample for which its value is still used, ms, for all modes but `previous` and `nearest`.
    /// `None`: as set for the modality.
    pub extrapolate_ms: Option<f64>,
    /// True if `slerp` publishes each quaternion with w >= 0; q and -q are the same rotation. `None`: as set for the
    /// modality, else false.
    pub canonical: Option<bool>,
    /// Order of the components of a quaternion for `slerp`: w last (`xyzw`) or first (`wxyz`). `None`: as set for the
    /// modality, else `xyzw`.
    pub order: Option<QuaternionOrder>,
}

/// Channels `from..to`, whose values `rule` computes: its interpolation mode and limits. At a target they are all valid, or all
/// have the fill value.
#[derive(Clone, Debug)]
pub(crate) struct ChannelGroup {
    pub from: usize,
    pub to: usize,
    pub rule: Rule,
}

/// Settings before the check: of a modality or of the section `resample:`, and of its channel groups.
struct ChannelGroups<'a> {
    /// Prefix of the keys in an error: `modalities[2]`, or empty for the section `resample:`.
    key: &'a str,
    /// Settings of the modality, or of the section `resample:`. Its range `channels` covers all channels, and ends at
    /// `usize::MAX` if their number is not known.
    whole: &'a ChannelGroupConfig,
    groups: &'a [ChannelGroupConfig],
}

impl ChannelGroupConfig {
    /// Checks channel groups of the modality, or of the section `resample:`, that has the settings `self`. `key` is the prefix
    /// of the keys in an error.
    pub(crate) fn checked(&self, key: &str, groups: &[Self]) -> Result<Vec<ChannelGroup>, ConfigError> {
        let whole = self;
        ChannelGroups { key, whole, groups }.checked()
    }
}

impl ChannelGroups<'_> {
    /// Checks the groups and sorts them by channel. They must follow one another from channel 0 on without a gap or an overlap,
    /// up to the last channel if the number of channels is known. Without groups, all channels are one group.
    fn checked(&self) -> Result<Vec<ChannelGroup>, ConfigError> {
        let groups = self.groups.iter().enumerate();
        let mut configs: Vec<(Option<usize>, &ChannelGroupConfig)> =
            groups.map(|(g, group)| (Some(g), group)).collect();
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
                let allowed = format!("allowed: [from, to] with from < to{of_dim}");
                return refused(key("channels"), format!("[{from}, {to}] ({allowed})"));
            }
            if from != next {
                let does = if from < next {
                    "overlaps the group"
                } else {
                    "leaves a hole"
                };
                let problem = format!("{does} before it, which ends at {next} (each channel is in one group)");
                return refused(key("channels"), format!("[{from}, {to}] {problem}"));
            }
            next = to;
            let Some(mode) = self.mode(group) else {
                let allowed = Interpolation::names();
                return refused(key("interpolation"), format!("it is missing (allowed: {allowed})"));
            };
            check_width(mode, to - from, || key(if g.is_some() { "channels" } else { "dim" }))?;
            let rule = self.rule(g, group, mode)?;
            groups.push(ChannelGroup { from, to, rule });
        }
        if next != dim && dim != usize::MAX {
            let problem = format!("channels {next} to {dim} are in no group (each channel is in one group)");
            return refused(self.key(None, "groups"), problem);
        }
        Ok(groups)
    }

    /// Returns the full name of a key for an error: of a group, or with `None` of the modality or of the section `resample:`.
    fn key(&self, group: Option<usize>, key: &str) -> String {
        let dot = if self.key.is_empty() { "" } else { "." };
        match group {
            Some(g) => format!("{}{dot}groups[{g}].{key}", self.key),
            None => format!("{}{dot}{key}", self.key),
        }
    }

    fn mode(&self, group: &ChannelGroupConfig) -> Option<Interpolation> {
        group.interpolation.or(self.whole.interpolation)
    }

    /// Returns the interpolation mode and limits of a group. What the group leaves out comes from its modality, or from the
    /// section `resample:`. Refuses a setting that the mode does not use.
    fn rule(&self, g: Option<usize>, group: &ChannelGroupConfig, mode: Interpolation) -> Result<Rule, ConfigError> {
        let whole = self.whole;
        // Settings of the modality hold for those of its groups that use them.
        let limit = |key: &str, of: fn(&ChannelGroupConfig) -> Option<f64>, absent: i64| {
            let uses = |mode: Option<Interpolation>| mode.is_none_or(|mode| mode.limits().contains(&key));
            let (ms, set_at, is_used) = match (of(group), of(whole)) {
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
            max_age: limit("max_age_ms", |of| of.max_age_ms, absent.max_age)?,
            max_gap: limit("max_gap_ms", |of| of.max_gap_ms, absent.max_gap)?,
            extrapolate: limit("extrapolate_ms", |of| of.extrapolate_ms, absent.extrapolate)?,
        };
        let check_option = |key: &str, own: bool, inherited: bool| {
            let is_slerp = |group: &ChannelGroupConfig| self.mode(group) == Some(Interpolation::Slerp);
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

/// Checks that a group has as many channels as its mode needs; an error names the key that `key` returns.
pub(crate) fn check_width(
    mode: Interpolation,
    channels: usize,
    key: impl FnOnce() -> String,
) -> Result<(), ConfigError> {
    match mode.width() {
        Some(width) if channels != width && channels != usize::MAX => refused(
            key(),
            format!("{channels} channels (allowed with `{}`: {width})", mode.name()),
        ),
        _ => Ok(()),
    }
}

/// Returns the error for an option that only `slerp` uses, but that is set for another mode.
fn unused_option(key: String, mode: Interpolation) -> ConfigError {
    let name = mode.name();
    ConfigError::new(key, format!("`{name}` does not use this key (allowed with: slerp)"))
}

/// Greatest number of groups that fit in the launch parameters of the resampling kernels, as in `kernels/time.cuh`.
pub(crate) const MOST_GROUPS: usize = 32;

/// Launch parameters of one group: the struct `Group` of `kernels/time.cuh`, field for field.
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

/// Returns the kernel parameters of groups in the order that the kernels expect: rotations first, then the other groups.
pub(crate) fn rotations_first(
    groups: impl Iterator<Item = (Range<usize>, Rule)> + Clone,
) -> impl Iterator<Item = GroupParams> {
    let rotations = groups.clone().filter(|(_, rule)| rule.mode.is_rotation());
    let others = groups.filter(|(_, rule)| !rule.mode.is_rotation());
    rotations
        .chain(others)
        .map(|(channels, rule)| GroupParams::new(channels, &rule))
}

/// Returns the number of groups with a rotation mode, and 1 if a group has a curve mode (`cubic`, `pchip`), else 0.
pub(crate) fn count_kinds(rules: impl Iterator<Item = Rule> + Clone) -> (u32, u32) {
    let rotations = rules.clone().filter(|rule| rule.mode.is_rotation()).count() as u32;
    let mut curves = rules.filter(|rule| rule.mode.needs()[0] > 1);
    (rotations, curves.next().is_some().into())
}

/// Returns the reason why a device can't compute these groups, because of an interpolation mode; `None` if it can.
pub(crate) fn not_on_gpu<'a>(mut groups: impl Iterator<Item = &'a ChannelGroup>) -> Option<String> {
    let group = groups.find(|group| !group.rule.mode.is_on_gpu())?;
    Some(format!("interpolation `{}` is not on GPUs", group.rule.mode.name()))
}

/// Adds assertions to the C++ header `header`: for the struct, the constant and the mode codes that channel groups share
/// with the kernels.
#[cfg(test)]
pub(crate) fn list_shared(header: &mut crate::layout::Header) {
    let modes = Interpolation::ALL.map(|mode| (format!("{mode:?}"), mode.code()));
    header.codes("Interpolation", &modes);
    crate::layout::shared_structs! { header:
        GroupParams = "Group" {
            max_age = "limits.max_age", max_gap = "limits.max_gap", extrapolate = "limits.extrapolate", from, to, mode,
            canonical,
        }
    }
    crate::layout::shared_constants! { header: MOST_GROUPS }
}
