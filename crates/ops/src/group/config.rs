//! Configuration of the operation `group` as a file has it: the section `group:`. Only the types are checked here; `spec.rs`
//! and `policy.rs` check the values.

use serde::Deserialize;
use std::fmt;

/// Rule by which messages make up a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupingPolicy {
    /// Sets of messages that are nearest to each other in time: ApproximateTime of message_filters.
    #[default]
    Approximate,
    /// Sets of messages of the same time: ExactTime of message_filters.
    Exact,
    /// Sets of the oldest message of each stream, if these are no more than `max_span_ms` apart: ApproximateEpsilonTime of
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

/// Streams to group, and the rule by which they are grouped: the section `group:` of a configuration.
///
/// `Default` has no inputs; other keys have the defaults of a configuration file.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct GroupingConfig {
    /// Rule by which messages make up a set.
    #[serde(default)]
    pub policy: GroupingPolicy,
    /// Greatest number of messages of an input that wait, 1 to 10,000; with `exact`, greatest number of sets that are not
    /// complete.
    #[serde(default = "ten")]
    pub queue_size: usize,
    /// `approximate`: a later set is preferred if it is narrower by more than this share of the time by which it ends later.
    /// `None`: 0.1.
    pub age_penalty: Option<f64>,
    /// Greatest distance between the oldest and the newest message of a set, ms. `None`: no limit; `epsilon` needs a limit.
    pub max_span_ms: Option<f64>,
    /// Limit of the payloads of all messages that are held, MiB.
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
    /// `approximate`: smallest time between two stamps of the stream, ms. `None`: not known.
    pub min_period_ms: Option<f64>,
    /// Delay of the stream's stamps behind the capture, ms: the time of a message is its stamp minus this delay.
    #[serde(default)]
    pub latency_ms: f64,
    /// A stamp that goes back by more than this, ms, is a clock jump.
    #[serde(default = "one_second")]
    pub reset_ms: f64,
    /// A stamp is a clock jump if it is more than this, ms, ahead of the newest stamps of all streams. `None`: no stamp is too
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
