//! Plugin `record`: appends the messages of its inputs to a recording in a folder.
//!
//! A message that is not recorded is a fault of its input, and never ends the node. Nothing that is in the folder is overwritten.

use super::{add, report_losses};
use crate::app::{AppError, BuildContext, Fault, Operation, Outbox, Wake, folder};
use chrono::DateTime;
use robocache_ops::ConfigError;
use robocache_stream::Message;
use robocache_stream::recording::{self, WriteError, Writer};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Interval at which the writer looks for batches that are due to be written.
const TICK: Duration = Duration::from_millis(100);

/// Section `record:` of a configuration.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct RecordConfig {
    /// Folder of the recording. The node creates it if it is missing, and overwrites nothing in it. `{start}` stands
    /// for the start time of the dataflow.
    pub path: PathBuf,
    /// Inputs to record: inputs of the dataflow, and outputs of earlier operations in the same process. `None` stands
    /// for all inputs that the dataflow wires to the node.
    pub inputs: Option<Vec<String>>,
}

/// Placeholder in a path for the start time of the dataflow.
const START: &str = "{start}";

impl RecordConfig {
    /// Returns the folder for a run with the start time `started`.
    ///
    /// # Errors
    /// Returns an error if the path has a word in braces other than `{start}`.
    pub fn folder(&self, started: SystemTime) -> Result<PathBuf, ConfigError> {
        let Some(path) = self.path.to_str() else {
            // The search for placeholders needs UTF-8: any other path stays as it is.
            return Ok(self.path.clone());
        };
        let folder = path.replace(START, &folder_timestamp(started));
        match folder.split_once('{').and_then(|(_, behind)| behind.split_once('}')) {
            Some((word, _)) => {
                let problem = format!("`{{{word}}}` in `{path}` stands for nothing (allowed: {START})");
                Err(ConfigError::new("path", problem))
            }
            None => Ok(folder.into()),
        }
    }

    /// Checks that a new run can record into the folder. A relative path starts from `base`.
    ///
    /// # Errors
    /// Returns the reason why it can't. The folder may have a recording, or the path may not be a folder and can't become one.
    /// [`folder`](Self::folder) may refuse the path, or two `inputs` may have the same stream name.
    pub fn check_new_run(&self, base: &Path) -> Result<(), ConfigError> {
        let folder = base.join(self.folder(SystemTime::now())?);
        // Only the error matters here: two inputs of one stream.
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

/// Returns the stream name of each input, in the order of `inputs`.
///
/// # Errors
/// Returns an error if two inputs have the same stream name.
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

/// Formats a time as `2026-11-23T15-12-07.250Z`, in UTC. The format has no `:`, because some systems refuse it in the
/// name of a folder.
fn folder_timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let date = DateTime::from_timestamp_millis(since.as_millis() as i64).unwrap_or_default();
    date.format("%Y-%m-%dT%H-%M-%S%.3fZ").to_string()
}

/// Returns the stream name of an input. The name of an input may contain `/`, between the name of an operation and its
/// output, but the name of a file may not: `.` takes its place.
fn stream_of(input: &str) -> String {
    input.replace('/', ".")
}

plugin! {
    /// Plugin that writes the messages of the inputs of `record:` to a recording, in the folder that it names.
    RecordPlugin(RecordConfig), "record": "Writes the messages of its inputs to a recording."
}

fn build(config: RecordConfig, context: &mut BuildContext<'_>) -> Result<(), AppError> {
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
        let problem = "no input is wired to the node in the dataflow (allowed: one or more to record)";
        return Err(refused(&problem));
    }
    let streams = streams_of(&inputs).map_err(|error| context.refused(&error))?;
    folder::check(&place).map_err(|problem| refused(&problem))?;
    let writer = match context.run() {
        Some(run) => Writer::create_or_resume(place, &run.id),
        None => Writer::create(place),
    };
    let writer = writer.map_err(|error| refused(&error))?.with_arrivals();
    for stream in &streams {
        writer.can_record(stream).map_err(|error| refused(&error))?;
    }
    add(context, inputs, Vec::new(), Record { streams, writer })
}

/// Operation that appends the messages of each input to a stream of the recording.
struct Record {
    /// Stream name of each input, by the index of the input.
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
            // A write error counts as a fault of the input; it must not end the operation.
            report_lost(input, &error, out);
        }
        Ok(())
    }

    fn wake(&mut self, now: Instant, out: &mut Outbox<'_>) -> Result<Wake, Fault> {
        // Each tick also retries a failed write, because a full disk may have room again.
        let streams = &self.streams;
        self.writer.tick_each(now, |stream, error| {
            if let Some(input) = streams.iter().position(|known| known == stream) {
                report_lost(input, &error, out);
            }
        });
        Ok(Wake::At(now + TICK))
    }

    fn finish(&mut self, _: &mut Outbox<'_>) -> Result<(), Fault> {
        Ok(self.writer.finish()?)
    }
}

/// Reports one fault for each lost message, so that the number of faults is the number of lost messages.
fn report_lost(input: usize, error: &WriteError, out: &mut Outbox<'_>) {
    let lost = match error {
        WriteError::Lost { lost, .. } => *lost,
        // Every other error loses only the message at hand.
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
