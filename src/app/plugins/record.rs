use super::report_losses;
use crate::app::{App, AppError, Fault, Operation, Outbox, Plugin, Registration, Wake};
use crate::ops::ConfigError;
use crate::stream::Message;
use crate::stream::recording::{WriteError, Writer};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often it looks for batches that are due.
const TICK: Duration = Duration::from_millis(100);

/// Writes whatever the dataflow wires to the node into the folder that `record:` names.
#[derive(Default)]
pub struct RecordPlugin {
    config: Option<RecordConfig>,
}

impl RecordPlugin {
    /// With a configuration from the program. [`default`](Self::default) takes it from the file.
    pub fn new(config: RecordConfig) -> Self {
        Self { config: Some(config) }
    }
}

/// The section `record:`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct RecordConfig {
    /// The folder; it is made where it is not there, and nothing in it is written over.
    pub path: PathBuf,
}

impl Plugin for RecordPlugin {
    fn name(&self) -> &'static str {
        "record"
    }

    fn about(&self) -> &'static str {
        "Writes whatever is wired to it to a recording."
    }

    fn is_configured(&self) -> bool {
        self.config.is_some()
    }

    fn build(&self, app: &mut App) -> Result<(), AppError> {
        let config = app.config_or(&self.config)?;
        let refused = |error: &dyn std::fmt::Display| app.refused(&ConfigError::new("path", error.to_string()));
        if app.is_check() {
            return Ok(());
        }
        let inputs = app.wired_inputs().to_vec();
        if inputs.is_empty() {
            return Err(refused(
                &"no input is wired to the node in the dataflow (allowed: one or more to record)",
            ));
        }
        let writer = Writer::create(config.path)
            .map_err(|error| refused(&error))?
            .with_arrivals();
        for input in &inputs {
            writer.can_record(input).map_err(|error| refused(&error))?;
        }
        app.add_operation(Registration {
            name: app.name().into(),
            operation: Box::new(Record {
                inputs: inputs.clone(),
                writer,
            }),
            inputs,
            outputs: Vec::new(),
        });
        Ok(())
    }
}

struct Record {
    inputs: Vec<String>,
    writer: Writer,
}

impl Operation for Record {
    fn input(&mut self, input: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        let words = (
            "is not recorded",
            "which a recording does not keep: a replay differs there",
        );
        report_losses(input, message, words, out);
        if let Err(error) = self.writer.append(&self.inputs[input], message, Instant::now()) {
            count(input, &error, out);
        }
        Ok(())
    }

    fn wake(&mut self, now: Instant, out: &mut Outbox<'_>) -> Result<Wake, Fault> {
        // A full disk may have room again.
        let inputs = &self.inputs;
        self.writer.tick_each(now, |stream, error| {
            if let Some(input) = inputs.iter().position(|input| input == stream) {
                count(input, &error, out);
            }
        });
        Ok(Wake::At(now + TICK))
    }

    fn finish(&mut self, _: &mut Outbox<'_>) -> Result<(), Fault> {
        Ok(self.writer.finish()?)
    }
}

/// Counts every message that is lost.
fn count(input: usize, error: &WriteError, out: &mut Outbox<'_>) {
    let lost = match error {
        WriteError::Lost { lost, .. } => *lost,
        _ => 1,
    };
    for _ in 0..lost {
        out.fault(input, error);
    }
}
