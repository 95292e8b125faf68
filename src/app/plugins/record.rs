use super::report_losses;
use crate::app::{AppError, BuildContext, Fault, Operation, Outbox, Plugin, Registration, Wake, folder};
use chrono::DateTime;
use robocache_ops::ConfigError;
use robocache_stream::Message;
use robocache_stream::recording::{self, WriteError, Writer};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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
    /// The folder; it is made where it is not there, and nothing in it is written over. `{start}` becomes the time at which
    /// the dataflow was started.
    pub path: PathBuf,
    /// What is recorded: inputs of the dataflow, and outputs of operations before it in the process. `None`: all inputs
    /// that are wired.
    pub inputs: Option<Vec<String>>,
}

/// What stands in a path for the time at which the dataflow was started.
const START: &str = "{start}";

impl RecordConfig {
    /// The folder of a run that was started then.
    ///
    /// # Errors
    /// Another word in braces than `{start}`.
    pub fn folder(&self, started: SystemTime) -> Result<PathBuf, ConfigError> {
        let Some(path) = self.path.to_str() else {
            return Ok(self.path.clone());
        };
        let folder = path.replace(START, &time_in_words(started));
        match folder.split_once('{').and_then(|(_, behind)| behind.split_once('}')) {
            Some((word, _)) => {
                let problem = format!("`{{{word}}}` in `{path}` stands for nothing (allowed: {START})");
                Err(ConfigError::new("path", problem))
            }
            None => Ok(folder.into()),
        }
    }

    /// Checks that a new run can record there; a path that is relative counts from `base`.
    ///
    /// # Errors
    /// Why it can't: what is in the folder already, that it is none or can't be made, what [`folder`](Self::folder) refuses; two
    /// `inputs` of one name.
    pub fn check_new_run(&self, base: &Path) -> Result<(), ConfigError> {
        let folder = base.join(self.folder(SystemTime::now())?);
        streams_of(self.inputs.as_deref().unwrap_or_default())?;
        let streams = recording::streams(&folder).unwrap_or_default();
        match streams.first() {
            Some(stream) => {
                let problem = format!(
                    "{} has a recording of `{stream}`, which is not written over (allowed: a folder without one, such as one with \
                     {START} in its path)",
                    folder.display()
                );
                Err(ConfigError::new("path", problem))
            }
            None => folder::check(&folder).map_err(|problem| ConfigError::new("path", problem)),
        }
    }
}

/// What the streams of inputs are called.
///
/// # Errors
/// Two of one name.
fn streams_of(inputs: &[String]) -> Result<Vec<String>, ConfigError> {
    let streams: Vec<String> = inputs.iter().map(|input| stream_of(input)).collect();
    match (1..streams.len()).find(|&i| streams[..i].contains(&streams[i])) {
        Some(twice) => {
            let problem = format!("two of them are the stream `{}` (allowed: each once)", streams[twice]);
            Err(ConfigError::new("inputs", problem))
        }
        None => Ok(streams),
    }
}

/// As `2026-11-23T15-12-07.250Z`, in UTC: a name that a folder may have everywhere.
fn time_in_words(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let date = DateTime::from_timestamp_millis(since.as_millis() as i64).unwrap_or_default();
    date.format("%Y-%m-%dT%H-%M-%S%.3fZ").to_string()
}

/// What a stream is called: an output of an operation with a name of its own has that before it, and no file has `/` in
/// its name.
fn stream_of(input: &str) -> String {
    input.replace('/', ".")
}

impl Plugin for RecordPlugin {
    fn name(&self) -> &'static str {
        "record"
    }

    fn about(&self) -> &'static str {
        "Writes whatever is wired to it, or named, to a recording."
    }

    fn is_configured(&self) -> bool {
        self.config.is_some()
    }

    fn build(&self, context: &mut BuildContext<'_>) -> Result<(), AppError> {
        let config = context.config_or(&self.config)?;
        let refused = |error: &dyn std::fmt::Display| context.refused(&ConfigError::new("path", error.to_string()));
        let started = context.run().map_or_else(SystemTime::now, |run| run.started);
        let place = config.folder(started).map_err(|error| context.refused(&error))?;
        if context.is_check() {
            return Ok(());
        }
        let inputs = match &config.inputs {
            Some(inputs) => inputs.clone(),
            None => context.wired_inputs().to_vec(),
        };
        if inputs.is_empty() {
            return Err(refused(
                &"no input is wired to the node in the dataflow (allowed: one or more to record)",
            ));
        }
        let streams = streams_of(&inputs).map_err(|error| context.refused(&error))?;
        folder::check(&place).map_err(|problem| refused(&problem))?;
        let writer = match context.run() {
            Some(run) => Writer::create_or_go_on(place, &run.id),
            None => Writer::create(place),
        };
        let writer = writer.map_err(|error| refused(&error))?.with_arrivals();
        for stream in &streams {
            writer.can_record(stream).map_err(|error| refused(&error))?;
        }
        context.add_operation(Registration {
            name: context.name().into(),
            operation: Box::new(Record { streams, writer }),
            inputs,
            outputs: Vec::new(),
        });
        Ok(())
    }
}

struct Record {
    /// By input.
    streams: Vec<String>,
    writer: Writer,
}

impl Operation for Record {
    fn input(&mut self, input: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        let words = (
            "is not recorded",
            "which a recording does not keep: a replay differs there",
        );
        report_losses(input, message, words, out);
        if let Err(error) = self.writer.append(&self.streams[input], message, Instant::now()) {
            count(input, &error, out);
        }
        Ok(())
    }

    fn wake(&mut self, now: Instant, out: &mut Outbox<'_>) -> Result<Wake, Fault> {
        // A full disk may have room again.
        let streams = &self.streams;
        self.writer.tick_each(now, |stream, error| {
            if let Some(input) = streams.iter().position(|known| known == stream) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn config(path: &str) -> RecordConfig {
        RecordConfig {
            path: path.into(),
            ..RecordConfig::default()
        }
    }

    #[test]
    fn start_is_the_time_at_which_the_dataflow_was_started() {
        let cases = [
            (0, "1970-01-01T00-00-00.000Z"),
            (951_782_400_000, "2000-02-29T00-00-00.000Z"),
            (1_078_012_799_999, "2004-02-28T23-59-59.999Z"),
            (1_795_446_727_250, "2026-11-23T15-12-07.250Z"),
            (4_107_542_400_000, "2100-03-01T00-00-00.000Z"),
        ];
        for (ms, words) in cases {
            let folder = config("out/{start}/a").folder(UNIX_EPOCH + Duration::from_millis(ms));
            assert_eq!(folder.unwrap(), Path::new("out").join(words).join("a"));
        }
        let now = SystemTime::now();
        assert_eq!(config("out/a").folder(now).unwrap(), Path::new("out/a"));
        let refused = config("out/{date}").folder(now).unwrap_err().to_string();
        assert!(
            refused.contains("`{date}`") && refused.contains("allowed: {start}"),
            "{refused}"
        );
    }
}
