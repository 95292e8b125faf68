//! Checks the inputs and the queue of the operation `group`, and converts durations to ns. An error names the key, its value
//! and the allowed values.

use super::{ConfigError, GroupingConfig, GroupingInput, GroupingPolicy, duration_ns};
use crate::refused;
use robocache_time::ms_to_ns;

/// Greatest allowed `queue_size`: number of messages of an input that may wait.
const MAX_QUEUE: usize = 10_000;

/// Checked settings of one input; times in ns.
pub(super) struct InputSpec {
    pub name: String,
    pub min_period: i64,
    pub latency: i64,
    pub reset: i64,
    pub jump: Option<i64>,
}

impl GroupingConfig {
    /// Checks `queue_size` and returns it.
    pub(super) fn checked_queue_size(&self) -> Result<usize, ConfigError> {
        let queue_size = self.queue_size;
        if !(1..=MAX_QUEUE).contains(&queue_size) {
            let problem = format!("{queue_size} is not allowed (allowed: 1 to {MAX_QUEUE} messages)");
            return refused("queue_size", problem);
        }
        Ok(queue_size)
    }

    /// Checks the inputs, and returns them in the same order.
    pub(super) fn checked_inputs(&self) -> Result<Vec<InputSpec>, ConfigError> {
        let inputs = &self.inputs;
        if inputs.len() < 2 {
            let problem = format!("the number of inputs is {} (allowed: 2 or more)", inputs.len());
            return refused("inputs", problem);
        }
        let checked = inputs.iter().enumerate().map(|(i, of)| {
            let key = |rest: &str| format!("inputs[{i}].{rest}");
            let GroupingInput {
                input,
                min_period_ms,
                latency_ms,
                reset_ms,
                jump_ms,
            } = of;
            if input.is_empty() {
                return refused(key("input"), "is empty (the id of an input)");
            }
            if let Some(earlier) = inputs[..i].iter().position(|earlier| earlier.input == *input) {
                let problem = format!("`{input}` is inputs[{earlier}] already (each input once)");
                return refused(key("input"), problem);
            }
            if min_period_ms.is_some() && self.policy != GroupingPolicy::Approximate {
                return unused(key("min_period_ms"), self.policy, "approximate");
            }
            if !(-1e12..=1e12).contains(latency_ms) {
                let problem = format!("{latency_ms} is not allowed (allowed: -1e12 to 1e12 ms)");
                return refused(key("latency_ms"), problem);
            }
            Ok(InputSpec {
                name: input.clone(),
                min_period: duration_ns(|| key("min_period_ms"), min_period_ms.unwrap_or(0.0))?,
                latency: ms_to_ns(*latency_ms),
                reset: duration_ns(|| key("reset_ms"), *reset_ms)?,
                jump: jump_ms.map(|ms| duration_ns(|| key("jump_ms"), ms)).transpose()?,
            })
        });
        checked.collect()
    }
}

/// Returns the error for a key that `policy` does not use; `with` names the policies that use it.
pub(super) fn unused<T>(key: impl Into<String>, policy: GroupingPolicy, with: &str) -> Result<T, ConfigError> {
    refused(
        key,
        format!("policy `{policy}` does not use this key (allowed with: {with})"),
    )
}
