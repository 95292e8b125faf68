use super::approximate::{Approximate, Penalty};
use super::epsilon::Epsilon;
use super::exact::Exact;
use super::spec::unused;
use super::{ConfigError, GroupingConfig, GroupingPolicy, duration_ns};
use crate::refused;
use robocache_time::ms_to_ns;

/// Grouping policy, with the messages that wait under it.
pub(super) enum Policy<M> {
    Approximate(Approximate<M>),
    Exact(Exact<M>),
    Epsilon(Epsilon<M>),
}

impl<M> Policy<M> {
    /// Checks the policy and its keys in `config`, and creates it. [`GroupingConfig::checked_inputs`] checks the inputs.
    pub(super) fn new(config: &GroupingConfig, queue_size: usize) -> Result<Self, ConfigError> {
        let (policy, inputs) = (config.policy, &config.inputs);
        if config.age_penalty.is_some() && policy != GroupingPolicy::Approximate {
            return unused("age_penalty", policy, "approximate");
        }
        let span = config.max_span_ms.map(|ms| duration_ns(|| "max_span_ms".into(), ms));
        match (policy, span.transpose()?) {
            (GroupingPolicy::Exact, Some(_)) => unused("max_span_ms", policy, "approximate, epsilon"),
            (GroupingPolicy::Exact, None) => Ok(Self::Exact(Exact::new(inputs.len(), queue_size))),
            (GroupingPolicy::Epsilon, Some(max_span)) => {
                Ok(Self::Epsilon(Epsilon::new(inputs.len(), queue_size, max_span)))
            }
            (GroupingPolicy::Epsilon, None) => refused(
                "max_span_ms",
                "is missing: policy `epsilon` needs it (allowed: 0 to 1e12 ms)",
            ),
            (GroupingPolicy::Approximate, span) => {
                let penalty = config.age_penalty.unwrap_or(0.1);
                let Some(penalty) = Penalty::new(penalty) else {
                    return refused("age_penalty", format!("{penalty} is not allowed (allowed: 0 to 1000)"));
                };
                let min_periods = inputs.iter().map(|input| ms_to_ns(input.min_period_ms.unwrap_or(0.0)));
                let policy = Approximate::new(min_periods, queue_size, penalty, span.unwrap_or(i64::MAX));
                Ok(Self::Approximate(policy))
            }
        }
    }
}
