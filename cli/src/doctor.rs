//! `robocache doctor`: checks if a machine is fit for a dataflow. The checks change nothing on the machine.

mod device;
mod system;

use crate::output::{Level, Output, plain};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Says whether this machine is fit for a dataflow
///
/// Checks dora, shared memory, the drivers of GPUs and each GPU, the clock, limits, the governor of the CPU, the release
/// of Jetson Linux, and the Python package. On each GPU it runs a kernel and compares the result with the CPU's.
#[derive(clap::Args)]
#[command(after_help = "Exit codes:
  0   there is no error
  1   there is one")]
pub struct Args {
    /// Path of the root of the machine's file system
    #[arg(long, default_value = "/", hide = true)]
    root: PathBuf,
}

#[derive(Serialize)]
struct Report {
    errors: usize,
    warnings: usize,
    checks: Vec<Check>,
}

/// Result of one check of the machine.
#[derive(Serialize)]
pub struct Check {
    pub level: Level,
    pub name: String,
    pub found: String,
}

impl Check {
    pub fn new(level: Level, name: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            level,
            name: name.into(),
            found: found.into(),
        }
    }
}

pub fn run(args: &Args, output: &Output) -> eyre::Result<ExitCode> {
    let root = &args.root;
    let mut checks = vec![dora(), system::shared_memory(root)];
    checks.extend(device::checks(root));
    checks.push(system::clock());
    checks.extend(system::limits());
    checks.extend(system::governor(root));
    checks.extend(system::jetson(root));
    checks.push(python());
    let count = |level| checks.iter().filter(|check| check.level == level).count();
    let report = Report {
        errors: count(Level::Error),
        warnings: count(Level::Warning),
        checks,
    };
    output.result(&report, |report| text(report, output))?;
    Ok(ExitCode::from(u8::from(report.errors > 0)))
}

fn text(report: &Report, output: &Output) -> String {
    let mut text = String::new();
    for Check { level, name, found } in &report.checks {
        // Writing to a string can't fail.
        let _ = writeln!(text, "{}: {name}: {}", output.level(*level), plain(found));
    }
    let _ = writeln!(text, "{} errors, {} warnings", report.errors, report.warnings);
    text
}

/// Runs a program with the arguments `words`. Returns the first line of its output, or the reason why it failed.
fn first_line_of(program: &str, words: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(words).output();
    let output = output.map_err(|error| format!("`{program}` can't be run: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout).lines().next().unwrap_or_default().to_owned());
    }
    let problem = text(&output.stderr);
    Err(format!("`{program}`: {}", problem.lines().last().unwrap_or("it fails")))
}

/// Checks the version of dora's command line, which contains the daemon.
fn dora() -> Check {
    let needed = robocache::dora::VERSION;
    match first_line_of("dora", &["--version"]) {
        Ok(line) if line.split_whitespace().any(|word| word == needed) => Check::new(Level::Ok, "dora", line),
        Ok(line) => Check::new(
            Level::Error,
            "dora",
            format!("{line} (allowed: {needed}, which the nodes are built for)"),
        ),
        Err(problem) => Check::new(Level::Error, "dora", format!("{problem} (allowed: {needed} on PATH)")),
    }
}

/// Checks the version of the Python package, which policies in Python need.
fn python() -> Check {
    let needed = env!("CARGO_PKG_VERSION");
    let program = "import robocache; print(robocache.__version__)";
    match first_line_of("python3", &["-c", program]) {
        Ok(version) if version == needed => Check::new(Level::Ok, "Python package", version),
        Ok(version) => Check::new(
            Level::Warning,
            "Python package",
            format!("{version} (this command is {needed})"),
        ),
        Err(problem) => Check::new(
            Level::Note,
            "Python package",
            format!("{problem} (policies in Python need it)"),
        ),
    }
}
