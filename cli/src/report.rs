//! `robocache report`: writes an HTML page about a recording, and about the observations that a configuration makes of it. Its
//! numbers are those of `info` and `try`, and the page loads no other file.

mod diagnosed;
mod histogram;
mod page;
mod watched;

use crate::info::{self, Info};
use crate::offsets::{self, Judge, StreamOffset};
use crate::output::{self, Output, bytes, figure};
use crate::track::{MOST_POINTS, Tracks};
use crate::trial::report::{Observations, Report as Trial};
use crate::trial::tally::Counts;
use crate::{channel, trial};
use diagnosed::{Chart, Diagnosed};
use robocache::stream::recording::Reader;
use robocache::stream::{Message, form};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use watched::Watched;

/// Maximum number of lines in the chart of `--channel`.
const MOST_LINES: usize = 32;

/// Maximum number of values in a sample of a stream that is drawn. Larger samples are clouds, grids or images.
const LONGEST_SAMPLE: usize = 1024;

/// Writes a page that shows a recording, and what a configuration makes of it
///
/// One HTML file that needs no network: a verdict, what observations hold over time and where they are not valid, ages, waits,
/// gaps, what was dropped, and the configuration. With --config its operations run over the recording as `robocache try` runs them,
/// and the figures are those of `try --json`. Observations and diagnostics that were recorded are shown as they are; if there are
/// no observations, the streams are.
#[derive(clap::Args)]
#[command(after_help = format!("{}

Exit codes:
  0   it is written
  1   it is written, but for a part of the recording that can't be read
  2   the configuration or the recording can't be used, or the page can't be written", channel::NAMING))]
pub struct Args {
    /// The folder of the recording
    recording: PathBuf,
    /// A configuration that is tried over the recording
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A channel to draw in one chart with all channels that this option names; STREAM alone means all of its channels
    #[arg(long = "channel", value_name = "CHANNEL")]
    channels: Vec<String>,
    /// The page; an older one is written over
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
    #[command(flatten)]
    offsets: offsets::Args,
}

/// Numbers and texts of the page, which are also the result that the command prints.
#[derive(Serialize)]
pub struct Figures {
    recording: PathBuf,
    /// Path of the page that was written.
    page: PathBuf,
    page_bytes: usize,
    verdict: String,
    /// Result of trying the configuration, as in `try --json`; `None` without `--config`.
    trial: Option<Trial>,
    /// Figures of recorded observations, the same as in `try --json`.
    recorded: Vec<Observations>,
    /// Summary of the recording, as in `info --json`.
    info: Info,
    /// Streams whose stamps are ahead of, or behind, those of the other streams.
    offsets: Vec<StreamOffset>,
    /// Streams that are not drawn, by name, each with the reason.
    not_drawn: BTreeMap<String, String>,
    /// Errors of the parts of the recording that can't be read, one line each.
    pub problems: Vec<String>,
}

/// Data of the charts on the page.
struct Drawings {
    /// Lines of the chart of `--channel`: one `Chart` with one line for each channel.
    channels: Vec<Chart>,
    outputs: Vec<Watched>,
    diagnostics: Vec<Diagnosed>,
}

/// Contents of the recording, ready to be drawn.
#[derive(Default)]
struct Recorded {
    observations: Vec<Observations>,
    outputs: Vec<Watched>,
    diagnostics: Vec<Diagnosed>,
    /// Streams that are neither observations nor diagnostics.
    streams: Vec<Watched>,
    offsets: Vec<StreamOffset>,
    not_drawn: BTreeMap<String, String>,
}

pub fn run(args: &Args, output: &Output) -> eyre::Result<ExitCode> {
    let figures = write(args)?;
    output.result(&figures, |figures| {
        let size = bytes(figures.page_bytes as u64);
        let clocks = figures.offsets.iter().map(|found| format!("clocks: {}\n", found.text));
        let clocks: String = clocks.collect();
        let problems = figures
            .problems
            .iter()
            .map(|problem| format!("can't be read: {problem}\n"));
        let problems: String = problems.collect();
        let causes = figures.trial.as_ref().map_or_else(String::new, trial::report::causes);
        format!(
            "{}: {size}\n{causes}{clocks}{}\n{problems}",
            figures.page.display(),
            figures.verdict
        )
    })?;
    Ok(ExitCode::from(u8::from(!figures.problems.is_empty())))
}

/// Writes the page, and returns its numbers and texts.
pub fn write(args: &Args) -> eyre::Result<Figures> {
    // Channels and the configuration are checked first, as reading a long recording takes time.
    let channels = read_channel_charts(&args.recording, &args.channels)?;
    let mut computed: Vec<Watched> = Vec::new();
    let mut trial = None;
    let mut config = None;
    if let Some(file) = &args.config {
        let mut watch = |name: &str, message: &Message| {
            let known = computed.iter().position(|watched| watched.name == name);
            let at = known.unwrap_or_else(|| {
                computed.push(Watched::new(name, true));
                computed.len() - 1
            });
            computed[at].observation(message);
        };
        let (report, operations) = trial::attempt(&trial::Args::new(file, &args.recording, &args.offsets), &mut watch)?;
        for watched in &mut computed {
            watched.limit_ages(trial::report::section_of(&watched.name, &operations));
        }
        computed.retain(|watched| !watched.is_empty());
        trial = Some(report);
        config = Some((file.as_path(), std::fs::read_to_string(file)?));
    }
    let info = info::read(&args.recording)?;
    let mut recorded = read_drawings(&args.recording, &args.offsets)?;
    if let Some(trial) = &mut trial {
        // The offsets of the trial take account of the configuration's latencies.
        recorded.offsets = std::mem::take(&mut trial.offsets);
    }
    computed.extend(recorded.outputs);
    if computed.is_empty() {
        computed.extend(recorded.streams);
    }
    let mut figures = Figures {
        recording: args.recording.clone(),
        page: args.output.clone(),
        page_bytes: 0,
        verdict: verdict(trial.as_ref(), &recorded.observations),
        trial,
        recorded: recorded.observations,
        problems: info.problems.clone(),
        info,
        offsets: recorded.offsets,
        not_drawn: recorded.not_drawn,
    };
    let drawings = Drawings {
        channels,
        outputs: computed,
        diagnostics: recorded.diagnostics,
    };
    let text = page::text(
        &figures,
        &drawings,
        config.as_ref().map(|(file, text)| (*file, text.as_str())),
    )?;
    figures.page_bytes = page::START.len() + text.len();
    output::write(&args.output, page::START, &text)?;
    Ok(figures)
}

/// Reads the channels that `words` name, each as a chart with one line. Parts that can't be read are skipped.
fn read_channel_charts(folder: &Path, words: &[String]) -> eyre::Result<Vec<Chart>> {
    if words.is_empty() {
        return Ok(Vec::new());
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // `info` reports the parts that can't be read.
    let (channels, _) = channel::read(folder, &words, MOST_LINES)?;
    let chart = |channel: channel::Channel| {
        let mut tracks = Tracks::new(1, MOST_POINTS);
        for (&time_ns, &value) in channel.times_ns.iter().zip(&channel.values) {
            tracks.push(time_ns, &[value]);
        }
        Chart {
            lines: vec![channel.name.clone()],
            name: channel.name,
            tracks,
        }
    };
    Ok(channels.into_iter().map(chart).collect())
}

fn verdict(trial: Option<&Trial>, recorded: &[Observations]) -> String {
    if let Some(trial) = trial {
        return trial.verdict.clone();
    }
    let worst = recorded.iter().filter_map(|of| Some((of, of.worst()?)));
    match worst.min_by(|(_, (_, a)), (_, (_, b))| a.total_cmp(b)) {
        Some((of, (stream, valid))) => format!(
            "as recorded: of {} observations on `{}`, the worst stream, `{stream}`, is valid in {} %",
            of.count,
            of.output,
            figure(valid * 100.0)
        ),
        None => {
            "the recording holds no observations; --config FILE shows those that a configuration makes of it".to_owned()
        }
    }
}

/// Reads the recording, and collects the data that is drawn of its streams. Parts that can't be read are skipped.
fn read_drawings(folder: &Path, args: &offsets::Args) -> eyre::Result<Recorded> {
    let (mut reader, _) = Reader::open_readable(folder)?;
    let names: Vec<String> = reader.streams().map(str::to_owned).collect();
    let mut seen: Vec<StreamContent> = names.iter().map(|_| StreamContent::Nothing).collect();
    let mut judge = Judge::new(names.iter().map(|name| (name.clone(), 0)), args);
    let (mut message, mut sample) = (Message::default(), Vec::new());
    loop {
        match reader.next_into(&mut message) {
            Ok(Some(stream)) => {
                judge.message(&names[stream], &message);
                seen[stream].message(&names[stream], &message, &mut sample);
            }
            Ok(None) => break,
            // `info` reports the error.
            Err(_) => {}
        }
    }
    let mut recorded = Recorded {
        offsets: judge.offsets(),
        ..Recorded::default()
    };
    for (name, seen) in names.into_iter().zip(seen) {
        match seen {
            StreamContent::Nothing => {}
            StreamContent::Observations(watched, counts) => {
                recorded.observations.push(Observations::new(name, *counts, None));
                recorded.outputs.push(watched);
            }
            StreamContent::Diagnostics(diagnosed) => recorded.diagnostics.push(diagnosed),
            StreamContent::Stream(watched) => recorded.streams.push(watched),
            StreamContent::Undrawn(why) => {
                recorded.not_drawn.insert(name, why);
            }
        }
    }
    Ok(recorded)
}

/// Kind of a recorded stream, with the data that is drawn of it.
enum StreamContent {
    Nothing,
    Observations(Watched, Box<Counts>),
    Diagnostics(Diagnosed),
    Stream(Watched),
    Undrawn(String),
}

impl StreamContent {
    fn message(&mut self, name: &str, message: &Message, sample: &mut Vec<f64>) {
        if let Self::Nothing = self {
            *self = Self::of(name, message);
        }
        match self {
            Self::Observations(watched, counts) => {
                counts.count(message);
                watched.observation(message);
            }
            Self::Diagnostics(diagnosed) => diagnosed.message(message),
            Self::Stream(watched) => {
                if let Err(problem) = watched.samples(message, sample) {
                    *self = Self::Undrawn(problem);
                }
            }
            Self::Nothing | Self::Undrawn(_) => {}
        }
    }

    /// Chooses the kind of a stream by its first message.
    fn of(name: &str, message: &Message) -> Self {
        if form::modalities.get(&message.header).is_some() {
            return Self::Observations(Watched::new(name, false), Box::default());
        }
        if let Some(diagnosed) = Diagnosed::of(name, message) {
            return Self::Diagnostics(diagnosed);
        }
        match channel::sample_len(message) {
            Ok(len) if len <= LONGEST_SAMPLE => Self::Stream(Watched::new(name, false)),
            Ok(len) => Self::Undrawn(format!("{len} values a sample (drawn: up to {LONGEST_SAMPLE})")),
            Err(problem) => Self::Undrawn(problem),
        }
    }
}
