//! Checked configuration of resampling, shared by the CPU and the devices.

use super::ChannelGroupConfig;
use super::{ResampleConfig, Trajectories};
use crate::channel_groups::{self, ChannelGroup};
use crate::{ConfigError, refused};
use robocache_time::{Interpolation, Limits};
use std::sync::Arc;

/// A checked configuration of resampling, with times in ns.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    /// Interpolation of all channels, if the configuration is not grouped.
    pub mode: Interpolation,
    pub limits: Limits,
    pub fill: f32,
    /// Groups, in the order of their channels. A configuration without groups has a single one, which ends at `usize::MAX`.
    pub groups: Arc<[ChannelGroup]>,
    /// True if the configuration has groups, or an interpolation other than `previous`, `nearest` and `linear`.
    pub is_grouped: bool,
}

impl Spec {
    /// Checks a configuration.
    ///
    /// # Errors
    /// The first key whose value is not allowed, the value, and the allowed values.
    pub(super) fn new(config: &ResampleConfig) -> Result<Self, ConfigError> {
        // A number too large for float32 reads as an infinity. A NaN is allowed: only `.nan` reads as NaN.
        if config.fill_value.is_infinite() {
            let problem = format!("`{}` (allowed: a finite float32 or .nan)", config.fill_value);
            return refused("fill_value", problem);
        }
        let whole = ChannelGroupConfig {
            channels: [0, usize::MAX],
            interpolation: Some(config.interpolation),
            max_age_ms: config.max_age_ms,
            max_gap_ms: config.max_gap_ms,
            extrapolate_ms: config.extrapolate_ms,
            canonical: config.canonical,
            order: config.order,
        };
        let groups = whole.checked("", &config.groups)?;
        let first = groups[0].rule;
        Ok(Self {
            mode: first.mode,
            limits: first.limits,
            fill: config.fill_value,
            is_grouped: !config.groups.is_empty() || !first.mode.is_plain(),
            groups: groups.into(),
        })
    }

    /// Returns the groups of channels for samples of `dim` values. A group that would end after `dim` ends there.
    pub(super) fn groups(&self, dim: usize) -> impl Iterator<Item = ChannelGroup> + Clone + '_ {
        let of_dim = move |group: &ChannelGroup| ChannelGroup {
            to: group.to.min(dim),
            ..group.clone()
        };
        self.groups.iter().map(of_dim)
    }

    /// Returns the reason why GPUs can't resample with this configuration; `None` if they can.
    pub(super) fn not_on_gpu(&self) -> Option<String> {
        let mode = channel_groups::not_on_gpu(self.groups.iter());
        mode.or_else(|| {
            let (count, most) = (self.groups.len(), channel_groups::MOST_GROUPS);
            (count > most).then(|| format!("{count} `groups` are too many for GPUs (at most {most})"))
        })
    }

    /// Checks that the groups cover the channels of a batch's samples, and that the batch's type can hold the fill value.
    ///
    /// # Errors
    /// The key that does not fit the batch, and what is allowed.
    pub(super) fn check(&self, batch: &Trajectories<'_>) -> Result<(), ConfigError> {
        let dim = batch.dim();
        match &*self.groups {
            [all] if all.to == usize::MAX => {
                channel_groups::check_width(all.rule.mode, dim, || "dim of the batch".into())?
            }
            [.., last] if last.to != dim => {
                let problem = format!("they end at channel {}", last.to);
                return refused(
                    "groups",
                    format!("{problem}, but the batch has `dim` {dim} (needed: groups up to {dim})"),
                );
            }
            _ => {}
        }
        let (fill, dtype) = (self.fill, batch.dtype());
        if fill.is_nan() || dtype.holds(fill) {
            return Ok(());
        }
        let largest = dtype.largest();
        let allowed = format!("allowed in batches of {dtype}: -{largest:e} to {largest:e}");
        refused("fill_value", format!("{fill} ({allowed})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> Result<Spec, ConfigError> {
        Spec::new(&serde_yaml::from_str(text).unwrap())
    }

    #[test]
    fn absent_keys_are_linear_without_limits_and_without_extrapolation() {
        let spec = spec("{}").unwrap();
        assert_eq!(spec.mode, Interpolation::Linear);
        assert_eq!(spec.limits, Limits::default());
    }

    #[test]
    fn milliseconds_become_nanoseconds() {
        let nearest = spec("{ interpolation: nearest, max_age_ms: 0.5 }").unwrap();
        assert_eq!(nearest.mode, Interpolation::Nearest);
        let limits = Limits {
            max_age: 500_000,
            ..Limits::default()
        };
        assert_eq!(nearest.limits, limits);
        let limits = Limits {
            max_gap: 50_000_000,
            extrapolate: 5_000_000,
            ..Limits::default()
        };
        let linear = spec("{ max_gap_ms: 50, extrapolate_ms: 5 }").unwrap();
        assert_eq!(linear.limits, limits);
    }

    #[test]
    fn a_limit_that_the_interpolation_has_no_use_for_is_refused() {
        for (text, expected) in [
            (
                "max_age_ms: 5",
                "max_age_ms: `linear` does not use this key (allowed with it: max_gap_ms, extrapolate_ms)",
            ),
            (
                "{ interpolation: previous, max_gap_ms: 5 }",
                "max_gap_ms: `previous` does not use this key (allowed with it: max_age_ms)",
            ),
            (
                "{ interpolation: nearest, extrapolate_ms: 0 }",
                "extrapolate_ms: `nearest` does not use this key (allowed with it: max_age_ms)",
            ),
        ] {
            assert_eq!(spec(text).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn what_is_not_allowed_is_refused_with_its_key_and_its_value() {
        for key in ["max_gap_ms", "max_age_ms", "extrapolate_ms"] {
            for value in ["-1", ".nan", ".inf"] {
                let refused = spec(&format!("{key}: {value}")).unwrap_err();
                assert_eq!(refused.key, key);
                assert!(refused.problem.contains("allowed: 0 to 1e12 ms"), "{refused}");
            }
        }
        let refused = spec("max_gap_ms: -2.5").unwrap_err();
        assert!(
            refused.to_string().starts_with("max_gap_ms: -2.5 is not a duration"),
            "{refused}"
        );
        assert_eq!(spec("fill_value: 1e300").unwrap_err().key, "fill_value");
        assert!(spec("fill_value: .nan").unwrap().fill.is_nan());
    }

    #[test]
    fn unknown_keys_are_refused() {
        let refused = serde_yaml::from_str::<ResampleConfig>("max_gap: 50").unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused.contains("max_gap") && refused.contains("max_gap_ms"),
            "{refused}"
        );
    }
}
