//! Finds the nodes of robocache in a dataflow, and reads their configurations as the nodes themselves do.

use crate::check::dataflow::{Node, parts_of_type};
use crate::check::facts::{Kind, StreamFacts, Streams};
use crate::check::files::PROGRAMS;
use crate::check::findings::Findings;
use crate::config::{self, CheckedConfig};
use robocache::app::did_you_mean;
use std::path::{Path, PathBuf};

/// Program of the only node of robocache that does not read a configuration, without the prefix `robocache-`.
const VIEWER: &str = "view";

/// Node of robocache in a dataflow, with the path and the checked contents of its configuration.
pub(super) struct RobocacheNode<'a> {
    pub node: &'a Node,
    pub config: PathBuf,
    pub built: CheckedConfig,
}

/// Checker of the nodes of the dataflow `file`, with the facts about streams and the findings so far.
pub(super) struct Checker<'a> {
    pub file: &'a Path,
    pub folder: &'a Path,
    pub streams: Streams<'a>,
    pub findings: &'a mut Findings,
}

/// Reads the configuration of a node; `None` if the node is not one of robocache's, or if a mistake was reported.
pub(super) fn read<'a>(
    file: &Path,
    folder: &Path,
    node: &'a Node,
    findings: &mut Findings,
) -> Option<RobocacheNode<'a>> {
    let at = format!("nodes.{}", node.id);
    let Some(program) = node.program() else {
        if let Some(config) = node.config(folder) {
            let problem = format!(
                "not a program of robocache's: `PROGRAM --check {}` says what it makes of it",
                config.display()
            );
            findings.note(file, at, problem);
        }
        return None;
    };
    if program == VIEWER {
        return None;
    }
    if !PROGRAMS.contains(&program) {
        let hint = did_you_mean(program, &PROGRAMS);
        let programs = PROGRAMS.map(|program| format!("robocache-{program}")).join(", ");
        let problem = format!("`robocache-{program}` is not a node{hint} (allowed: {programs}, robocache-{VIEWER})");
        findings.error(file, format!("{at}.path"), problem);
        return None;
    }
    let Some(config) = node.config(folder) else {
        let problem = "no configuration is given (allowed: `--config FILE`, or ROBOCACHE_CONFIG in `env`)";
        findings.error(file, format!("{at}.args"), problem);
        return None;
    };
    let plugins = config::plugins(Some(program).filter(|&program| program != "node"));
    match config::check(&config, plugins) {
        Ok(built) => Some(RobocacheNode { node, config, built }),
        Err(error) => {
            findings.refused(error);
            None
        }
    }
}

impl Checker<'_> {
    /// Checks that the `dim` of the type `urn` is the number of values in a sample, if both are known.
    pub(super) fn width(&mut self, urn: Option<&String>, known: &StreamFacts, at: &str) {
        let dim = urn.and_then(|urn| parts_of_type(urn)?.1);
        if let (Some(dim), Some(width)) = (dim, known.kind.as_ref().and_then(Kind::width))
            && dim != width
        {
            self.findings.error(
                self.file,
                at,
                format!("dim={dim}, and a sample has {width} values (allowed: as many)"),
            );
        }
    }
}
