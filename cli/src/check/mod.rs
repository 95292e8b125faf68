//! `robocache check`: what can be wrong with a configuration and its dataflow, before anything runs.

mod dataflow;
mod known;
mod section;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod units;
mod wiring;

use crate::config::{Built, Section, check, plugins};
use crate::convert::lerobot::Settings;
use crate::output::{Level, Output, plain};
use known::Known;
use robocache::app::{AppError, Config};
use serde::Serialize;
use std::fmt::{Display, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Programs of robocache, without the prefix of their names.
const PROGRAMS: [&str; 10] = [
    "align", "clock", "fuse", "group", "node", "record", "replay", "resample", "sim", "voxelize",
];

/// Finds mistakes in a configuration and its dataflow before anything runs
///
/// Beside what a node refuses, it looks for what can't work, or not well: limits below a period, waits below a latency,
/// inputs that are not wired, widths that differ, queues and shared memory that are too small, outputs that nobody
/// reads. What `dora validate --strict-types` finds is left to it. Rates are those of the simulated robot, of timers and
/// of recordings that are replayed; of other senders `min_period_ms` says what is known.
#[derive(clap::Args)]
#[command(after_help = "Exit codes:
  0   there is no error; with --strict no warning either
  1   --strict, and there is a warning
  2   there is an error, or a file can't be read")]
pub struct Args {
    /// The configuration
    #[arg(required_unless_present = "dataflow")]
    config: Option<PathBuf>,
    /// The dataflow whose nodes read it; those of their other configurations are checked, too
    #[arg(long, value_name = "FILE")]
    dataflow: Option<PathBuf>,
    /// Lets warnings count
    #[arg(long)]
    strict: bool,
}

#[derive(Serialize)]
struct Report {
    errors: usize,
    warnings: usize,
    findings: Vec<Finding>,
}

#[derive(Serialize, PartialEq)]
struct Finding {
    level: Level,
    file: PathBuf,
    /// The node, the section, the key.
    at: String,
    problem: String,
}

/// What was found so far.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, level: Level, file: &Path, at: impl Display, problem: impl Display) {
        let finding = Finding {
            level,
            file: file.to_owned(),
            at: at.to_string(),
            problem: problem.to_string(),
        };
        // Two nodes may read the same section.
        if !self.0.contains(&finding) {
            self.0.push(finding);
        }
    }

    fn error(&mut self, file: &Path, at: impl Display, problem: impl Display) {
        self.add(Level::Error, file, at, problem);
    }

    fn warn(&mut self, file: &Path, at: impl Display, problem: impl Display) {
        self.add(Level::Warning, file, at, problem);
    }

    fn note(&mut self, file: &Path, at: impl Display, problem: impl Display) {
        self.add(Level::Note, file, at, problem);
    }

    /// What the library refuses.
    fn refused(&mut self, error: AppError) {
        match error {
            AppError::Config { file, section, problem } => self.error(&file, section, problem),
            other => self.error(Path::new(""), "", other),
        }
    }
}

pub fn run(args: &Args, output: &Output) -> eyre::Result<ExitCode> {
    let mut findings = Findings::default();
    match &args.dataflow {
        Some(file) => wiring::check(file, args.config.as_deref(), &mut findings)?,
        None => alone(args.config.as_deref().unwrap_or(Path::new("")), &mut findings),
    }
    let Findings(mut findings) = findings;
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let report = Report {
        errors: count(Level::Error),
        warnings: count(Level::Warning),
        findings,
    };
    output.result(&report, |report| text(report, output))?;
    Ok(ExitCode::from(match report {
        Report { errors: 1.., .. } => 2,
        Report { warnings: 1.., .. } if args.strict => 1,
        _ => 0,
    }))
}

/// Checks a configuration without a dataflow: each of its sections, or what it lists.
fn alone(file: &Path, findings: &mut Findings) {
    for built in read_sections(file, findings) {
        for operation in &built.operations {
            section::check(file, operation, &|_| Known::default(), findings);
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

/// Checks that the nodes that read a file can write their status; a relative folder counts from `base`.
fn status(file: &Path, base: &Path, findings: &mut Findings) {
    // What can't be read is said already.
    if let Ok(Err(error)) = Config::read(file).map(|config| config.check_status(base)) {
        findings.refused(error);
    }
}

/// Checks the section `lerobot:` of a file that has one, as a conversion does.
fn datasets(file: &Path, findings: &mut Findings) {
    let is_there = Config::read(file).is_ok_and(|config| config.sections().any(|section| section == "lerobot"));
    match is_there.then(|| Settings::refusal(file)).flatten() {
        None => {}
        Some(Ok((section, problem))) => findings.error(file, section, problem),
        Some(Err(error)) => findings.refused(error),
    }
}

/// What the nodes that read a file make of it.
fn read_sections(file: &Path, findings: &mut Findings) -> Vec<Built> {
    let config = match Config::read(file) {
        Ok(config) => config,
        Err(error) => {
            findings.refused(error);
            return Vec::new();
        }
    };
    let own = config.sections().filter(|section| PROGRAMS.contains(section));
    let mut nodes: Vec<_> = own.map(|section| plugins(Some(section))).collect();
    if config.has_plugins() || nodes.is_empty() {
        nodes = vec![plugins(None)];
    }
    let mut found = Vec::new();
    for plugins in nodes {
        match check(file, plugins) {
            Ok(built) => found.push(built),
            Err(error) => findings.refused(error),
        }
    }
    found
}

fn text(report: &Report, output: &Output) -> String {
    let mut text = String::new();
    for Finding {
        level,
        file,
        at,
        problem,
    } in &report.findings
    {
        // Writing to a string can't fail.
        let place = format!("{}: {at}: {problem}", file.display());
        let _ = writeln!(text, "{}: {}", output.level(*level), plain(&place));
    }
    let _ = writeln!(text, "{} errors, {} warnings", report.errors, report.warnings);
    text
}
