//! Checks of a configuration file by itself: its sections, its folders and the dataset that it describes. A mistake becomes a
//! finding and does not end the check.

use super::facts::{self, StreamFacts};
use super::findings::Findings;
use super::section;
use crate::config::{CheckedConfig, Section, check, plugins};
use crate::convert::lerobot::{LerobotConfig, Settings};
use robocache::app::Config;
use std::path::Path;

/// Programs of robocache, without the prefix `robocache-` of their names.
pub(super) const PROGRAMS: [&str; 10] = [
    "align", "clock", "fuse", "group", "node", "record", "replay", "resample", "sim", "voxelize",
];

/// Checks a configuration without a dataflow: each of its sections, or the operations that `plugins:` lists.
pub(super) fn alone(file: &Path, findings: &mut Findings) {
    let all = read_sections(file, findings);
    // Outputs of other operations are known; about external inputs nothing is known.
    let made = all
        .iter()
        .flat_map(|built| &built.operations)
        .flat_map(facts::of_chains);
    let made: Vec<(String, StreamFacts)> = made.collect();
    let input = |name: &str| {
        let known = made.iter().find(|(output, _)| output == name);
        known.map(|(_, known)| known.clone()).unwrap_or_default()
    };
    for built in all {
        for operation in &built.operations {
            section::check(file, operation, &input, findings);
            if let Section::Record(config) = &operation.section
                && let Err(error) = config.check_new_run(Path::new("."))
            {
                findings.error(file, format!("record.{}", error.key), error.problem);
            }
        }
    }
    status(file, Path::new("."), findings);
    datasets(file, findings);
}

/// Checks that the nodes that read a configuration can write their status files. A relative status folder counts from `base`.
pub(super) fn status(file: &Path, base: &Path, findings: &mut Findings) {
    // A file that can't be read is reported already.
    if let Ok(Err(error)) = Config::read(file).map(|config| config.check_status(base)) {
        findings.refused(error);
    }
}

/// Checks the section `lerobot:` of a file by the same rules as `robocache convert`. Does nothing without the section.
pub(super) fn datasets(file: &Path, findings: &mut Findings) {
    let is_there = Config::read(file).is_ok_and(|config| config.sections().any(|section| section == "lerobot"));
    match is_there.then(|| Settings::refusal(file)).flatten() {
        None => {}
        Some(Ok((section, problem))) => findings.error(file, section, problem),
        Some(Err(error)) => findings.refused(error),
    }
}

/// Reads the sections of a configuration as its nodes do. A section that can't be used is reported and left out.
pub(super) fn read_sections(file: &Path, findings: &mut Findings) -> Vec<CheckedConfig> {
    let config = match Config::read(file) {
        Ok(config) => config,
        Err(error) => {
            findings.refused(error);
            return Vec::new();
        }
    };
    // Kinematics has no node of its own.
    let own = config
        .sections()
        .filter(|section| PROGRAMS.contains(section) || *section == "kinematics");
    let mut nodes: Vec<_> = own.map(|section| plugins(Some(section))).collect();
    if config.has_plugins() || nodes.is_empty() {
        nodes = vec![plugins(None)];
    }
    let mut found = Vec::new();
    for plugins in nodes {
        match check(file, plugins) {
            Ok(built) => {
                let warnings = built.warnings.iter();
                warnings.for_each(|warning| findings.warn(file, "plugins", warning));
                found.push(built);
            }
            Err(error) => findings.refused(error),
        }
    }
    chains(file, &config, &found, findings);
    found
}

/// Reports warnings about the kinematic chains that operations name. A node logs the same warnings.
fn chains(file: &Path, config: &Config, found: &[CheckedConfig], findings: &mut Findings) {
    let sections = found
        .iter()
        .flat_map(|built| &built.operations)
        .map(|operation| &operation.section);
    for section in sections {
        let Section::Kinematics(kinematics) = section else {
            continue;
        };
        for entry in &kinematics.entries {
            warn_of_chain(file, config, &entry.chain, findings);
        }
    }
    // A section that can't be read is reported by `datasets`.
    let dataset = config.read_section::<LerobotConfig>("lerobot").ok().flatten();
    for name in dataset.iter().flat_map(LerobotConfig::chains) {
        warn_of_chain(file, config, name, findings);
    }
}

fn warn_of_chain(file: &Path, config: &Config, name: &str, findings: &mut Findings) {
    for warning in config.chain_warnings(name) {
        findings.warn(file, format!("chains: {name}"), warning);
    }
}
