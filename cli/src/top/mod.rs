//! `robocache top`: shows the state of the nodes of a running dataflow, which it reads from their status files. Nothing is sent
//! to the nodes.

mod files;
mod lines;
mod prometheus;
mod screen;

use crate::output::{Output, Table, path};
use files::Status;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Period of writing the file for Prometheus, which usually scrapes a node exporter every 15 s.
const WRITE_EVERY: Duration = Duration::from_secs(5);

/// Width of a line if standard output is not a terminal, characters.
const WIDTH: usize = 80;

/// Shows how the nodes of a running dataflow are
///
/// Each node writes its file if its configuration has `status: DIR`, or the environment `ROBOCACHE_STATUS`. Problems
/// come first, the worst on top, then each node with its inputs below it. Rates, ages and shares are of the last 5 to 10
/// seconds, counts of the whole run.
#[derive(clap::Args)]
#[command(after_help = "Keys: up, down and the page keys scroll, q ends.

Exit codes of --once, and of --json:
  0   every node is well, warns at most, or has ended
  1   a node is in error or stale, or its file can't be read; or no node has written one
  2   the folder can't be read, or the file can't be written")]
pub struct Args {
    /// The folder of the status files [default: that of ROBOCACHE_STATUS]
    folder: Option<PathBuf>,
    /// Prints, or writes, the status once and ends
    #[arg(long)]
    once: bool,
    /// Writes the figures to this file every 5 s, or once, for the textfile collector of Prometheus' node exporter
    #[arg(long, value_name = "FILE.prom")]
    prometheus: Option<PathBuf>,
}

pub fn run(args: &Args, output: &Output) -> eyre::Result<ExitCode> {
    let of_env = || std::env::var_os("ROBOCACHE_STATUS").filter(|folder| !folder.is_empty());
    let Some(folder) = args.folder.clone().or_else(|| of_env().map(PathBuf::from)) else {
        eyre::bail!("no folder is named (needed: that of `status:` in the configuration, or ROBOCACHE_STATUS)");
    };
    if let Some(file) = &args.prometheus {
        loop {
            let status = Status::read(&folder)?;
            prometheus::write(file, &status)?;
            if args.once {
                return Ok(ExitCode::from(u8::from(!status.is_well())));
            }
            std::thread::sleep(WRITE_EVERY);
        }
    }
    if !args.once && !output.is_json() {
        screen::show(&folder)?;
        return Ok(ExitCode::SUCCESS);
    }
    let status = Status::read(&folder)?;
    output.result(&status, text)?;
    Ok(ExitCode::from(u8::from(!status.is_well())))
}

fn text(status: &Status) -> String {
    if status.nodes.is_empty() {
        return format!(
            "{}: no node has written its status (needed: this folder as `status:` of a node, or as its ROBOCACHE_STATUS)\n",
            path(&status.folder)
        );
    }
    let width = match std::io::stdout().is_terminal() {
        true => ratatui::crossterm::terminal::size().map_or(WIDTH, |(columns, _)| usize::from(columns)),
        false => WIDTH,
    };
    let mut text = String::new();
    for reason in lines::reasons(status) {
        for line in reason.lines(width) {
            text.push_str(&line);
            text.push('\n');
        }
    }
    if !text.is_empty() {
        text.push('\n');
    }
    let mut table = Table::new(lines::HEADINGS);
    for line in lines::of(status) {
        table.row(line.cells);
    }
    text + &table.within(width)
}
