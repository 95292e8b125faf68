//! Shows how to write a plugin in your own crate, and how to run the plugin with robocache's plugins in one process.
//!
//! The plugin publishes the running mean of a stream as `force_mean`. If it is listed before `fuse` in the configuration, fuse
//! reads this output within the process.

use robocache::prelude::*;
use serde::Deserialize;
use std::collections::VecDeque;

/// Plugin that adds the operation `force_mean` to an app.
#[derive(Default)]
pub struct ForceMeanPlugin {
    /// Configuration set by the program; `None` to read the section `force_mean:` of the configuration file.
    config: Option<ForceMeanConfig>,
}

/// The section `force_mean:` of a configuration.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForceMeanConfig {
    /// Name of the stream whose mean is published.
    pub input: String,
    /// Number of values in a sample of the stream, 1 to 1024.
    pub dim: usize,
    /// Length of the window, ms: the mean at t is the mean of the samples in (t - window, t].
    pub window_ms: f64,
}

impl ForceMeanPlugin {
    /// Makes the plugin with `config` in place of a section of the configuration file.
    pub fn new(config: ForceMeanConfig) -> Self {
        Self { config: Some(config) }
    }
}

impl Plugin for ForceMeanPlugin {
    fn name(&self) -> &'static str {
        "force_mean"
    }

    fn about(&self) -> &'static str {
        "Publishes the running mean of a stream, `force_mean`."
    }

    fn is_configured(&self) -> bool {
        self.config.is_some()
    }

    fn build(&self, context: &mut BuildContext<'_>) -> Result<(), AppError> {
        let config = context.config_or(&self.config)?;
        let operation = ForceMean::new(&config).map_err(|error| context.refused(&error))?;
        context.add_operation(Registration {
            name: context.name().into(),
            inputs: vec![config.input],
            outputs: vec!["force_mean".into()],
            operation: Box::new(operation),
        });
        Ok(())
    }
}

struct ForceMean {
    window_ns: i64,
    layout: Layout,
    times: VecDeque<i64>,
    values: VecDeque<f32>,
    /// Buffer for the newest sample, `dim` values.
    sample: Vec<f32>,
    /// Sum of the samples in the window, for each of the `dim` values.
    sums: Vec<f64>,
}

impl ForceMean {
    fn new(config: &ForceMeanConfig) -> Result<Self, ConfigError> {
        if !(1..=1024).contains(&config.dim) {
            return Err(ConfigError::new("dim", format!("{} (allowed: 1 to 1024)", config.dim)));
        }
        if !(0.001..=60_000.0).contains(&config.window_ms) {
            let problem = format!("{} (allowed: 0.001 to 60000 ms)", config.window_ms);
            return Err(ConfigError::new("window_ms", problem));
        }
        Ok(Self {
            window_ns: (config.window_ms * 1e6) as i64,
            layout: Layout::flat(Dtype::Float32, config.dim),
            times: VecDeque::new(),
            values: VecDeque::new(),
            sample: vec![0.0; config.dim],
            sums: vec![0.0; config.dim],
        })
    }

    /// Adds the newest sample to the window; `time` is its stamp, ns. Drops the samples that have left the window, and updates
    /// the sums.
    fn add(&mut self, time: i64) {
        let dim = self.sample.len();
        if self.times.back().is_some_and(|&newest| time < newest) {
            // The clock was set back, so that the times of earlier samples mean nothing now.
            self.times.clear();
            self.values.clear();
        }
        self.times.push_back(time);
        self.values.extend(&self.sample);
        while self
            .times
            .front()
            .is_some_and(|&oldest| oldest <= time.saturating_sub(self.window_ns))
        {
            self.times.pop_front();
            self.values.drain(..dim);
        }
        self.sums.fill(0.0);
        for (i, &value) in self.values.iter().enumerate() {
            self.sums[i % dim] += f64::from(value);
        }
    }
}

impl Operation for ForceMean {
    fn input(&mut self, input: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        for sample in message.samples(self.sample.len())? {
            if let Err(error) = sample.to_f32(&mut self.sample) {
                out.fault(input, error);
                continue;
            }
            self.add(sample.stamp_ns);
            let count = self.times.len() as f64;
            out.send(0, &self.layout, |payload, header| {
                for (mean, sum) in payload.column::<f32>(0).iter_mut().zip(&self.sums) {
                    *mean = (sum / count) as f32;
                }
                header.timestamp_ns.set(sample.stamp_ns);
                header.frame_id.copy_from(&message.header.frame_id);
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
