use super::approximate::Penalty;
use super::{ConfigError, GroupingConfig, GroupingInput, GroupingPolicy, duration_ns};
use robocache_time::ms_to_ns;

/// The most messages of an input that may wait.
const MAX_QUEUE: usize = 10_000;

/// What a configuration asks for, checked: times in ns, sizes in bytes.
pub(super) struct Spec {
    pub policy: PolicySpec,
    pub queue_size: usize,
    pub max_held: usize,
    pub inputs: Vec<InputSpec>,
}

pub(super) enum PolicySpec {
    Approximate { penalty: Penalty, max_span: i64 },
    Exact,
    Epsilon { max_span: i64 },
}

pub(super) struct InputSpec {
    pub name: String,
    pub min_period: i64,
    pub latency: i64,
    pub reset: i64,
    pub jump: Option<i64>,
}

impl Spec {
    /// Checks every value.
    ///
    /// # Errors
    /// The first key whose value is not allowed, the value, and what is.
    pub fn new(config: &GroupingConfig) -> Result<Self, ConfigError> {
        let queue_size = config.queue_size;
        if !(1..=MAX_QUEUE).contains(&queue_size) {
            let problem = format!("{queue_size} is not allowed (allowed: 1 to {MAX_QUEUE} messages)");
            return Err(ConfigError::new("queue_size", problem));
        }
        let mb = config.max_held_mb;
        if !(mb > 0.0 && mb <= 1e6) {
            let problem = format!("{mb} is not allowed (allowed: a number of MiB above 0, up to 1e6)");
            return Err(ConfigError::new("max_held_mb", problem));
        }
        Ok(Self {
            policy: policy(config)?,
            queue_size,
            max_held: (mb * f64::from(1 << 20)) as usize,
            inputs: inputs(config)?,
        })
    }
}

fn policy(config: &GroupingConfig) -> Result<PolicySpec, ConfigError> {
    let policy = config.policy;
    let unused = |key: &str, with: &str| {
        Err(ConfigError::new(
            key,
            format!("policy `{policy}` has no use for it (allowed with: {with})"),
        ))
    };
    if config.age_penalty.is_some() && policy != GroupingPolicy::Approximate {
        return unused("age_penalty", "approximate");
    }
    let span = config.max_span_ms.map(|ms| duration_ns(|| "max_span_ms".into(), ms));
    let span = span.transpose()?;
    match (policy, span) {
        (GroupingPolicy::Exact, Some(_)) => unused("max_span_ms", "approximate, epsilon"),
        (GroupingPolicy::Exact, None) => Ok(PolicySpec::Exact),
        (GroupingPolicy::Epsilon, Some(max_span)) => Ok(PolicySpec::Epsilon { max_span }),
        (GroupingPolicy::Epsilon, None) => Err(ConfigError::new(
            "max_span_ms",
            "is missing: policy `epsilon` needs it (allowed: 0 to 1e12 ms)",
        )),
        (GroupingPolicy::Approximate, span) => {
            let penalty = config.age_penalty.unwrap_or(0.1);
            let Some(penalty) = Penalty::new(penalty) else {
                let problem = format!("{penalty} is not allowed (allowed: 0 to 1000)");
                return Err(ConfigError::new("age_penalty", problem));
            };
            let max_span = span.unwrap_or(i64::MAX);
            Ok(PolicySpec::Approximate { penalty, max_span })
        }
    }
}

fn inputs(config: &GroupingConfig) -> Result<Vec<InputSpec>, ConfigError> {
    let inputs = &config.inputs;
    if inputs.len() < 2 {
        let problem = format!("{} of them are no group (allowed: 2 or more)", inputs.len());
        return Err(ConfigError::new("inputs", problem));
    }
    let checked = inputs.iter().enumerate().map(|(i, input)| {
        let key = |rest: &str| format!("inputs[{i}].{rest}");
        if input.input.is_empty() {
            return Err(ConfigError::new(key("input"), "is empty (the id of an input)"));
        }
        if let Some(earlier) = inputs[..i].iter().position(|earlier| earlier.input == input.input) {
            let problem = format!("`{}` is inputs[{earlier}] already (each input once)", input.input);
            return Err(ConfigError::new(key("input"), problem));
        }
        let GroupingInput {
            min_period_ms,
            latency_ms,
            reset_ms,
            jump_ms,
            ..
        } = *input;
        if min_period_ms.is_some() && config.policy != GroupingPolicy::Approximate {
            let policy = config.policy;
            let problem = format!("policy `{policy}` has no use for it (allowed with: approximate)");
            return Err(ConfigError::new(key("min_period_ms"), problem));
        }
        if !(-1e12..=1e12).contains(&latency_ms) {
            let problem = format!("{latency_ms} is not allowed (allowed: -1e12 to 1e12 ms)");
            return Err(ConfigError::new(key("latency_ms"), problem));
        }
        Ok(InputSpec {
            name: input.input.clone(),
            min_period: duration_ns(|| key("min_period_ms"), min_period_ms.unwrap_or(0.0))?,
            latency: ms_to_ns(latency_ms),
            reset: duration_ns(|| key("reset_ms"), reset_ms)?,
            jump: jump_ms.map(|ms| duration_ns(|| key("jump_ms"), ms)).transpose()?,
        })
    });
    checked.collect()
}
