use crate::device::Dtype;
use crate::ops::{ConfigError, unused_limit};
use crate::time::{Interpolation, Limits, ms_to_ns};
use serde::Deserialize;

/// The section `resample:` of a configuration.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct ResampleConfig {
    /// How a value between samples is found; `linear` where it is absent.
    pub interpolation: Interpolation,
    /// `linear`: the largest distance between the two samples around a target. Absent: no limit.
    pub max_gap_ms: Option<f64>,
    /// `previous` and `nearest`: the largest distance from a target to its sample. Absent: no limit.
    pub max_age_ms: Option<f64>,
    /// `linear` past the last sample: for how long that one is held. Absent: 0.
    pub extrapolate_ms: Option<f64>,
    /// What the values of an invalid target are.
    pub fill_value: f32,
}

impl Default for ResampleConfig {
    fn default() -> Self {
        Self {
            interpolation: Interpolation::Linear,
            max_gap_ms: None,
            max_age_ms: None,
            extrapolate_ms: None,
            fill_value: 0.0,
        }
    }
}

impl ResampleConfig {
    /// Whether batches of that type can hold the fill value.
    ///
    /// # Errors
    /// That they can't, and what is allowed.
    pub fn check_fill(&self, dtype: Dtype) -> Result<(), ConfigError> {
        if dtype.holds(self.fill_value) || self.fill_value.is_nan() {
            return Ok(());
        }
        let (fill, largest) = (self.fill_value, dtype.largest());
        Err(ConfigError::new(
            "fill_value",
            format!("{fill} (allowed in batches of {dtype}: -{largest:e} to {largest:e})"),
        ))
    }

    /// The limits in ns, or which key can't be what it is.
    pub fn limits(&self) -> Result<Limits, ConfigError> {
        let none = Limits::default();
        // An infinity is what a number too large for float32 reads as; a NaN is asked for by name.
        if self.fill_value.is_infinite() {
            return Err(ConfigError::new(
                "fill_value",
                format!("`{}` (allowed: a finite float32 or .nan)", self.fill_value),
            ));
        }
        let limits = Limits {
            max_age: nanoseconds("max_age_ms", self.max_age_ms, none.max_age)?,
            max_gap: nanoseconds("max_gap_ms", self.max_gap_ms, none.max_gap)?,
            extrapolate: nanoseconds("extrapolate_ms", self.extrapolate_ms, none.extrapolate)?,
        };
        let given = [
            ("max_age_ms", self.max_age_ms),
            ("max_gap_ms", self.max_gap_ms),
            ("extrapolate_ms", self.extrapolate_ms),
        ];
        match given
            .iter()
            .find(|(key, ms)| ms.is_some() && !self.interpolation.limits().contains(key))
        {
            Some((key, _)) => Err(unused_limit(*key, Some(self.interpolation))),
            None => Ok(limits),
        }
    }
}

fn nanoseconds(key: &str, ms: Option<f64>, absent: i64) -> Result<i64, ConfigError> {
    match ms {
        None => Ok(absent),
        Some(ms) if ms.is_finite() && ms >= 0.0 => Ok(ms_to_ns(ms)),
        Some(ms) => Err(ConfigError::new(
            key,
            format!("`{ms}` (allowed: a finite number of milliseconds, 0 or more)"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ResampleConfig, serde_yaml::Error> {
        serde_yaml::from_str(text)
    }

    #[test]
    fn absent_keys_are_linear_without_limits_and_without_extrapolation() {
        let config = parse("{}").unwrap();
        assert_eq!(config, ResampleConfig::default());
        assert_eq!(config.interpolation, Interpolation::Linear);
        assert_eq!(config.limits().unwrap(), Limits::default());
    }

    #[test]
    fn milliseconds_become_nanoseconds() {
        let config = parse("{ interpolation: nearest, max_age_ms: 0.5 }").unwrap();
        assert_eq!(config.interpolation, Interpolation::Nearest);
        let limits = Limits {
            max_age: 500_000,
            ..Limits::default()
        };
        assert_eq!(config.limits().unwrap(), limits);
        let limits = Limits {
            max_gap: 50_000_000,
            extrapolate: 5_000_000,
            ..Limits::default()
        };
        assert_eq!(
            parse("{ max_gap_ms: 50, extrapolate_ms: 5 }")
                .unwrap()
                .limits()
                .unwrap(),
            limits
        );
    }

    #[test]
    fn a_limit_that_the_interpolation_has_no_use_for_is_refused() {
        for (text, expected) in [
            (
                "max_age_ms: 5",
                "max_age_ms: `linear` has no use for it (allowed with it: max_gap_ms, extrapolate_ms)",
            ),
            (
                "{ interpolation: previous, max_gap_ms: 5 }",
                "max_gap_ms: `previous` has no use for it (allowed with it: max_age_ms)",
            ),
            (
                "{ interpolation: nearest, extrapolate_ms: 0 }",
                "extrapolate_ms: `nearest` has no use for it (allowed with it: max_age_ms)",
            ),
        ] {
            assert_eq!(parse(text).unwrap().limits().unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn what_is_not_allowed_is_refused_with_its_key_and_its_value() {
        for key in ["max_gap_ms", "max_age_ms", "extrapolate_ms"] {
            for value in ["-1", ".nan", ".inf"] {
                let config = parse(&format!("{key}: {value}")).unwrap();
                let refused = config.limits().unwrap_err();
                assert_eq!(refused.key, key);
                assert!(refused.problem.contains("0 or more"), "{refused}");
            }
        }
        let refused = parse("max_gap_ms: -2.5").unwrap().limits().unwrap_err();
        assert!(refused.to_string().starts_with("max_gap_ms: `-2.5`"), "{refused}");
        assert_eq!(
            parse("fill_value: 1e300").unwrap().limits().unwrap_err().key,
            "fill_value"
        );
        assert!(parse("fill_value: .nan").unwrap().limits().is_ok());
    }

    #[test]
    fn unknown_keys_are_refused() {
        let refused = parse("max_gap: 50").unwrap_err().to_string();
        assert!(
            refused.contains("max_gap") && refused.contains("max_gap_ms"),
            "{refused}"
        );
    }
}
