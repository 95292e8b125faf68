//! `robocache check`: finds mistakes in a configuration and its dataflow before anything runs.

mod dataflow;
mod facts;
mod files;
mod findings;
mod section;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod units;
mod wiring;

use crate::output::{Level, Output, plain};
use findings::{Finding, Findings};
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Finds mistakes in a configuration and its dataflow before anything runs
///
/// Finds what a node would refuse, and settings that can't work, or not well: limits below a period, waits below a
/// latency, unwired inputs, widths that differ. Also finds queues and shared memory that are too small, and outputs that
/// nobody reads. Types along an edge are left to `dora validate --strict-types`. Rates are known of the simulated robot,
/// of timers and of replayed recordings; of other senders only by `min_period_ms`.
#[derive(clap::Args)]
#[command(after_help = "Exit codes:
  0   there is no error; with --strict no warning either
  1   --strict, and there is a warning
  2   there is an error, or a file can't be read")]
pub struct Args {
    /// The configuration
    #[arg(required_unless_present = "dataflow")]
    config: Option<PathBuf>,
    /// Dataflow whose nodes read the configuration; the other configurations of its nodes are checked, too
    #[arg(long, value_name = "FILE")]
    dataflow: Option<PathBuf>,
    /// Exits with 1 in place of 0 if there are warnings
    #[arg(long)]
    strict: bool,
}

#[derive(Serialize)]
struct Report {
    errors: usize,
    warnings: usize,
    findings: Vec<Finding>,
}

pub fn run(args: &Args, output: &Output) -> eyre::Result<ExitCode> {
    let mut findings = Findings::default();
    match &args.dataflow {
        Some(file) => wiring::check(file, args.config.as_deref(), &mut findings)?,
        None => files::alone(args.config.as_deref().unwrap_or(Path::new("")), &mut findings),
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
