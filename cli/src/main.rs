//! The `robocache` command: a module for each subcommand, and shared code in `output`, `stats` and others. Only results go to
//! standard output; remarks and errors go to standard error.

mod channel;
mod check;
mod clock;
mod config;
mod convert;
mod doctor;
mod info;
mod interpolated;
mod latency;
mod new;
mod offsets;
mod output;
mod report;
mod stats;
mod top;
mod track;
mod trial;

use clap::{Parser, Subcommand};
use output::Output;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

const EXIT_CODES: &str = "\
Exit codes:
  0   success: no problem was found
  1   a problem was found: see the help of each command
  2   the command line, or a file that it names, can't be used

Results go to standard output, remarks to standard error. RUST_LOG filters the remarks of the library (default: warn).";

/// Checks, measures and converts recordings, and checks configurations and machines.
#[derive(Parser)]
#[command(name = "robocache", version, after_help = EXIT_CODES)]
struct Cli {
    /// Prints the result as one JSON object
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Info(info::Args),
    Check(check::Args),
    Try(trial::Args),
    Convert(convert::Args),
    Report(report::Args),
    Latency(latency::Args),
    Clock(clock::Args),
    Doctor(doctor::Args),
    New(new::Args),
    Top(top::Args),
}

fn main() -> ExitCode {
    // Without the signal, a write past the limit on the size of files is an error, which is reported.
    // SAFETY: no other thread is there yet, and ignoring a signal runs no code.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let Cli { json, command } = Cli::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false)
        .without_time()
        .init();
    let output = Output::new(json);
    let done = match command {
        Command::Info(args) => info::run(&args, &output),
        Command::Check(args) => check::run(&args, &output),
        Command::Try(args) => trial::run(&args, &output),
        Command::Convert(args) => convert::run(&args, &output),
        Command::Report(args) => report::run(&args, &output),
        Command::Latency(args) => latency::run(&args, &output),
        Command::Clock(args) => clock::run(&args, &output),
        Command::Doctor(args) => doctor::run(&args, &output),
        Command::New(args) => new::run(&args, &output),
        Command::Top(args) => top::run(&args, &output),
    };
    done.unwrap_or_else(|error| {
        output.remark(in_words(&error));
        ExitCode::from(2)
    })
}

/// Formats an error with its causes. A cause that the text contains already is left out.
fn in_words(error: &eyre::Report) -> String {
    let mut words = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !words.contains(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    words
}
