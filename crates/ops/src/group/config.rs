use serde::Deserialize;
use std::fmt;

/// Rule by which messages make up a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupingPolicy {
    /// Messages that are nearest to each other: ApproximateTime of message_filters.
    #[default]
    Approximate,
    /// Messages of the same time: ExactTime of message_filters.
    Exact,
    /// The oldest message of each stream, if they are no more than `max_span_ms` apart: ApproximateEpsilonTime of
    /// message_filters.
    Epsilon,
}

impl fmt::Display for GroupingPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Approximate => "approximate",
            Self::Exact => "exact",
            Self::Epsilon => "epsilon",
        })
    }
}

/// Streams to group, and the rule for it: the section `group:` of a configuration.
///
/// `Default` has no inputs; other keys have the defaults of a configuration file.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct GroupingConfig {
    /// Rule by which messages make up a set.
    #[serde(default)]
    pub policy: GroupingPolicy,
    /// Most messages of an input that wait, or with `exact` most sets that are not complete.
    #[serde(default = "ten")]
    pub queue_size: usize,
    /// `approximate`: a later set is preferred if it is narrower by more than this share of the time by which it ends later.
    /// `None`: 0.1.
    pub age_penalty: Option<f64>,
    /// The greatest distance between the times of a set. `None`: no limit.
    pub max_span_ms: Option<f64>,
    /// Limit of the payload that is held, MiB.
    #[serde(default = "crate::quarter_gib")]
    pub max_held_mb: f64,
    /// The streams, in the order in which the members of a set are published.
    pub inputs: Vec<GroupingInput>,
}

/// A stream that is grouped with others.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct GroupingInput {
    /// The id of the dataflow input, and of the output.
    pub input: String,
    /// `approximate`: the least time between two stamps. `None`: not known.
    pub min_period_ms: Option<f64>,
    /// Delay of its stamps behind the capture: a message's time is its stamp minus this.
    #[serde(default)]
    pub latency_ms: f64,
    /// A stamp that goes back by more than this is a clock jump.
    #[serde(default = "one_second")]
    pub reset_ms: f64,
    /// A stamp is a clock jump if it is more than this ahead of the newest stamps of all streams. `None`: no stamp is too far
    /// ahead.
    pub jump_ms: Option<f64>,
}

fn ten() -> usize {
    10
}

fn one_second() -> f64 {
    1000.0
}

impl Default for GroupingConfig {
    fn default() -> Self {
        Self {
            policy: GroupingPolicy::default(),
            queue_size: ten(),
            age_penalty: None,
            max_span_ms: None,
            max_held_mb: crate::quarter_gib(),
            inputs: Vec::new(),
        }
    }
}

impl Default for GroupingInput {
    fn default() -> Self {
        Self {
            input: String::new(),
            min_period_ms: None,
            latency_ms: 0.0,
            reset_ms: one_second(),
            jump_ms: None,
        }
    }
}
