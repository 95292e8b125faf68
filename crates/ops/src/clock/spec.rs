use super::{ClockConfig, ClockInput, ClockKind};
use crate::{ConfigError, duration_ns};
use robocache_time::ms_to_ns;

/// A [`ClockConfig`] that can't be wrong.
#[derive(Clone, Debug)]
pub struct ClockSpec {
    inputs: Vec<InputSpec>,
}

/// What is to be done with the stamps of one input.
#[derive(Clone, Debug)]
pub struct InputSpec {
    /// Its name.
    pub input: String,
    /// The clock that stamps it.
    pub clock: ClockKind,
    /// The least time from capture to publication, ns.
    pub latency_ns: i64,
    /// The messages of how much time make an estimate, ns.
    pub window_ns: i64,
    /// After how much time an estimate is used, ns.
    pub lock_ns: i64,
    /// A clock that is off by more was set anew, ns.
    pub reset_ns: i64,
}

impl ClockSpec {
    /// Checks a configuration.
    ///
    /// # Errors
    /// The key, what came and what is allowed.
    pub fn new(config: &ClockConfig) -> Result<Self, ConfigError> {
        if config.inputs.is_empty() {
            return Err(ConfigError::new("inputs", "none (allowed: one or more)"));
        }
        let inputs = config.inputs.iter().enumerate().map(|(i, input)| {
            let earlier = &config.inputs[..i];
            if earlier.iter().any(|other| other.input == input.input) {
                let problem = format!("`{}` stands there twice (allowed: once)", input.input);
                return Err(ConfigError::new(format!("inputs[{i}].input"), problem));
            }
            InputSpec::new(&format!("inputs[{i}]"), input)
        });
        Ok(Self {
            inputs: inputs.collect::<Result<_, _>>()?,
        })
    }

    /// The inputs, in the order of the configuration.
    pub fn inputs(&self) -> &[InputSpec] {
        &self.inputs
    }
}

impl InputSpec {
    fn new(at: &str, config: &ClockInput) -> Result<Self, ConfigError> {
        let refused = |key: &str, problem: String| Err(ConfigError::new(format!("{at}.{key}"), problem));
        if config.input.is_empty() {
            return refused("input", "it is empty (allowed: the name of an input)".to_owned());
        }
        for (key, seconds) in [("window_s", config.window_s), ("lock_s", config.lock_s)] {
            if !(1.0..=3600.0).contains(&seconds) {
                return refused(key, format!("{seconds} (allowed: 1 to 3600 s)"));
            }
        }
        if config.lock_s > config.window_s {
            let problem = format!("{} (allowed: at most `window_s`, {})", config.lock_s, config.window_s);
            return refused("lock_s", problem);
        }
        if !(1.0..=1e9).contains(&config.reset_ms) {
            return refused("reset_ms", format!("{} (allowed: 1 to 1e9 ms)", config.reset_ms));
        }
        let ClockInput { window_s, lock_s, .. } = ClockInput::default();
        if config.clock != ClockKind::Device && (config.window_s, config.lock_s) != (window_s, lock_s) {
            let key = if config.window_s == window_s {
                "lock_s"
            } else {
                "window_s"
            };
            let name = config.clock.name();
            return refused(
                key,
                format!("`{name}` has no use for it (allowed with `clock: device`)"),
            );
        }
        Ok(Self {
            input: config.input.clone(),
            clock: config.clock,
            latency_ns: duration_ns(|| format!("{at}.latency_ms"), config.latency_ms)?,
            window_ns: ms_to_ns(1e3 * config.window_s),
            lock_ns: ms_to_ns(1e3 * config.lock_s),
            reset_ns: ms_to_ns(config.reset_ms),
        })
    }
}
