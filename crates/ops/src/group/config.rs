//! Types of the section `group:` of a configuration file. Reading them checks their types only; `spec.rs` and `policy.rs` check
//! the values.

use serde::Deserialize;
use std::fmt;

/// Rule that decides which messages form a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupingPolicy {
    /// Sets of messages that are nearest to each other in time: ApproximateTime of message_filters.
    #[default]
    Approximate,
    /// Sets of messages of the same time: ExactTime of message_filters.
    Exact,
    /// Sets of the oldest waiting message of each stream, if these are no more than `max_span_ms` apart: ApproximateEpsilonTime
    /// of message_filters.
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

/// Streams whose messages are grouped into sets, and the rule of the grouping: the section `group:` of a configuration.
///
/// The default has no inputs. Its other fields have the defaults of a configuration file.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct GroupingConfig {
    /// Rule that decides which messages form a set.
    #[serde(default)]
    pub policy: GroupingPolicy,
    /// Greatest number of waiting messages of each input, 1 to 10,000; with `exact`, greatest number of incomplete sets. Beyond
    /// it the oldest is dropped.
    #[serde(default = "ten")]
    pub queue_size: usize,
    /// Preference of `approximate` for earlier sets, 0 to 1000. A set that ends t later is better only if it is narrower by
    /// more than `age_penalty` times t. `None`: 0.1.
    pub age_penalty: Option<f64>,
    /// Greatest time from the oldest to the newest message of a set, ms. `None`: no limit; `epsilon` needs a limit.
    pub max_span_ms: Option<f64>,
    /// Greatest payload size of all waiting messages together, MiB. Beyond it messages are dropped.
    #[serde(default = "crate::quarter_gib")]
    pub max_held_mb: f64,
    /// Streams to group, in the order in which the members of a set are published.
    pub inputs: Vec<GroupingInput>,
}

/// One stream of a [`GroupingConfig`].
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct GroupingInput {
    /// Name of the dataflow input, and of the output on which its messages are published.
    pub input: String,
    /// Smallest time between two stamps of the stream, ms, with which `approximate` can publish some sets earlier.
    /// `None`: unknown.
    pub min_period_ms: Option<f64>,
    /// Delay from the capture to the stream's stamp, ms. The time of a message is its stamp minus this delay.
    #[serde(default)]
    pub latency_ms: f64,
    /// Step back of the stream's stamps, ms, above which a message is a clock jump and not merely out of order.
    #[serde(default = "one_second")]
    pub reset_ms: f64,
    /// Step ahead of the newest stamps of all streams, ms, above which a message is a clock jump. `None`: no stamp is too
    /// far ahead.
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
