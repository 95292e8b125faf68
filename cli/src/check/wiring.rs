//! Finds mistakes in the wiring between the nodes of a dataflow. A node whose configuration can't be read is reported, and does not
//! keep other nodes from being checked.

mod inputs;
mod node;
mod outputs;
mod recordings;

use super::dataflow::Dataflow;
use super::facts::{StreamFacts, Streams};
use super::files;
use super::findings::Findings;
use super::section;
use crate::config::{Operation, Section};
use eyre::WrapErr;
use node::{Checker, RobocacheNode};
use robocache::app::plugins::RecordConfig;
use std::collections::BTreeMap;
use std::path::Path;

/// Checks the nodes of robocache in a dataflow. If `config` is given, one of them should read it.
pub fn check(file: &Path, config: Option<&Path>, findings: &mut Findings) -> eyre::Result<()> {
    let dataflow = Dataflow::read(file)?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let own: Vec<RobocacheNode<'_>> = dataflow
        .nodes
        .iter()
        .filter_map(|node| node::read(file, folder, node, findings))
        .collect();
    if let Some(config) = config {
        let real = |path: &Path| {
            path.canonicalize()
                .wrap_err_with(|| format!("{}: it can't be read", path.display()))
        };
        let asked = real(config)?;
        let mut named = dataflow.nodes.iter().filter_map(|node| node.config(folder));
        if !named.any(|file| real(&file).is_ok_and(|file| file == asked)) {
            findings.error(
                file,
                "nodes",
                format!(
                    "none of them reads {} (allowed: `args: --config FILE`)",
                    config.display()
                ),
            );
            files::alone(config, findings);
        }
    }
    let operations: BTreeMap<String, Vec<Operation>> = own
        .iter()
        .map(|own| (own.node.id.clone(), own.built.operations.clone()))
        .collect();
    let mut checker = Checker {
        file,
        folder,
        streams: Streams::new(&dataflow, &operations, folder),
        findings,
    };
    for own in &own {
        of_node(&mut checker, own);
    }
    for node in &dataflow.nodes {
        if !own.iter().any(|own| own.node.id == node.id) {
            checker.held_up(node);
        }
    }
    checker.recordings(&own);
    checker.pools();
    let mut configs: Vec<&Path> = own.iter().map(|own| own.config.as_path()).collect();
    configs.sort();
    configs.dedup();
    for config in configs {
        // Sections that no node of this dataflow reads are checked, too.
        files::read_sections(config, checker.findings);
        files::datasets(config, checker.findings);
        checker.recorded(config, &own);
    }
    for own in own.iter().filter(|own| own.node.place().is_none()) {
        files::status(&own.config, folder, checker.findings);
    }
    Ok(())
}

fn of_node(checker: &mut Checker<'_>, own: &RobocacheNode<'_>) {
    let at = format!("nodes.{}", own.node.id);
    let mut inside: Vec<(String, StreamFacts)> = Vec::new();
    for operation in &own.built.operations {
        let streams = &checker.streams;
        let input = |name: &str| streams.input(own.node, &inside, name);
        section::check(&own.config, operation, &input, checker.findings);
        let found = checker.streams.outputs(operation, &input);
        inside.extend(found);
        checker.trigger(own, operation);
        if let Section::Record(RecordConfig {
            inputs: Some(inputs), ..
        }) = &operation.section
        {
            let before = inside.iter().map(|(output, _)| output.clone());
            let known: Vec<String> = before
                .chain(own.node.edges().map(|(input, _)| input.to_owned()))
                .collect();
            checker.record_inputs(own, operation, inputs, &known);
        }
    }
    checker.inputs(own, &at);
    checker.outputs(own, &at, &inside);
    checker.residence(own);
}
