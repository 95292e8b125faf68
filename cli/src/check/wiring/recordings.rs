//! Checks recorders, replays, and configurations of datasets. A recording that does not exist yet is a note, not an error.

use super::node::{Checker, RobocacheNode};
use crate::check::dataflow::tidy;
use crate::config::{Operation, Section};
use crate::convert::lerobot::streams_of;
use robocache::app::did_you_mean;
use robocache::app::plugins::RecordConfig;
use std::path::Path;

impl Checker<'_> {
    /// Checks that the `inputs` of a recorder exist: `known` lists the wired inputs and the outputs of earlier operations.
    pub(super) fn record_inputs(
        &mut self,
        own: &RobocacheNode<'_>,
        operation: &Operation,
        inputs: &[String],
        known: &[String],
    ) {
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        for (i, input) in inputs
            .iter()
            .enumerate()
            .filter(|(_, input)| !known.contains(&input.as_str()))
        {
            let problem = format!(
                "`{input}` is neither wired nor an output of an operation before it{} (allowed: {})",
                did_you_mean(input, &known),
                known.join(", ")
            );
            let at = format!("{}.inputs[{i}]", operation.label());
            self.findings.error(&own.config, at, problem);
        }
    }

    /// Checks that the recorders of the dataflow, if there are any, record the streams that the section `lerobot:` reads.
    pub(super) fn recorded(&mut self, config: &Path, own: &[RobocacheNode<'_>]) {
        let mut recorded = Vec::new();
        for own in own {
            for operation in &own.built.operations {
                if let Section::Record(RecordConfig { inputs, .. }) = &operation.section {
                    let wired = || own.node.edges().map(|(input, _)| input.to_owned()).collect();
                    recorded.extend(inputs.clone().unwrap_or_else(wired));
                }
            }
        }
        let streams: Vec<String> = recorded.iter().map(|input| input.replace('/', ".")).collect();
        let Ok(needed) = streams_of(config) else { return };
        let streams: Vec<&str> = streams.iter().map(String::as_str).collect();
        for stream in needed
            .iter()
            .filter(|stream| !streams.is_empty() && !streams.contains(&stream.as_str()))
        {
            let problem = format!(
                "`{stream}` is recorded by no node of {}{} (recorded: {})",
                self.file.display(),
                did_you_mean(stream, &streams),
                streams.join(", ")
            );
            self.findings.error(config, "lerobot", problem);
        }
    }

    /// Checks that replayed recordings exist and are not written by the same dataflow, and that each recorder can begin a new run.
    pub(super) fn recordings(&mut self, own: &[RobocacheNode<'_>]) {
        let operations = || {
            own.iter()
                .flat_map(|own| own.built.operations.iter().map(move |it| (own, &it.section)))
        };
        let records = || {
            operations().filter_map(|(own, section)| match section {
                Section::Record(config) => Some((own, config)),
                _ => None,
            })
        };
        let replays = operations().filter_map(|(own, section)| match section {
            Section::Replay(config) => Some((own, &config.path)),
            _ => None,
        });
        for (replay, path) in replays {
            let folder = tidy(&self.folder.join(path));
            if self.streams.recording(path).is_none() {
                self.findings.note(
                    &replay.config,
                    "replay.path",
                    format!("no recording is in {} yet", folder.display()),
                );
            }
            if records().any(|(_, written)| tidy(&self.folder.join(&written.path)) == folder) {
                let problem = format!(
                    "`{}` is recorded to by the same dataflow (allowed: another folder)",
                    path.display()
                );
                self.findings.error(&replay.config, "replay.path", problem);
            }
        }
        for (own, config) in records() {
            if own.node.place().is_none()
                && let Err(error) = config.check_new_run(self.folder)
            {
                let at = format!("record.{}", error.key);
                self.findings.error(&own.config, at, error.problem);
            }
        }
    }
}
