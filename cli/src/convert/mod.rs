//! `robocache convert`: converts between recordings and the files of other software. The output appears complete or not at all,
//! and each part that is left out is reported.

mod csv;
#[cfg(test)]
mod damaged;
pub mod lerobot;
mod mcap;
mod recording;
mod whole;

use crate::config;
use crate::offsets::{self, Judge};
use crate::output::{Output, Table, path, plain};
use clap::ValueEnum;
use eyre::{bail, eyre};
use robocache::formats::Error;
use robocache::formats::lerobot::Version;
use robocache::formats::mcap::{Reader, Writer};
use robocache::stream::recording::streams;
use robocache::stream::{Message, Selection};
use serde::Serialize;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use whole::AtomicOutput;

/// Converts between recordings and the files of other software
#[derive(clap::Args)]
#[command(after_help = "Exit codes:
  0   everything is converted, except for the parts that are reported as left out
  1   a part of it can't be read or written, and the rest is converted
  2   nothing is converted; to LeRobot also where the stamps of a stream are 1 s or more off from those of the others")]
pub struct Args {
    /// Input: a recording, an MCAP file, the folder of a rosbag2 or of a dataset of LeRobot, a CSV file or a folder of
    /// these
    input: PathBuf,
    /// Output: a new file or folder
    output: PathBuf,
    /// Format of the output, if the name of OUTPUT does not tell
    #[arg(long)]
    to: Option<Format>,
    /// Configuration: its inputs say how topics of their names are read from MCAP; for LeRobot, its operations make the
    /// frames
    #[arg(long)]
    config: Option<PathBuf>,
    /// Removes the leftovers of an interrupted run, OUTPUT.robocache-partial
    #[arg(long)]
    discard_partial: bool,
    #[command(flatten)]
    how: InputArgs,
    #[command(flatten)]
    offsets: offsets::Args,
}

/// Options for reading files of other software.
#[derive(clap::Args)]
pub struct InputArgs {
    /// Feature of a LeRobot dataset to leave out, such as a video; may be given several times
    #[arg(long, value_name = "FEATURE")]
    without: Vec<String>,
    #[command(flatten)]
    csv: csv::Args,
}

/// Format of the files that `convert` reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A folder with an Arrow file for each stream
    Recording,
    /// MCAP, with messages of ROS 2
    Mcap,
    /// A folder with a table for each stream
    Csv,
    /// A dataset of LeRobot, version 3.0
    Lerobot,
    /// A dataset of LeRobot, version 2.1
    #[value(name = "lerobot-v2.1")]
    LerobotV2,
}

impl Format {
    /// Detects the format of `path`, which must exist.
    pub fn of_input(path: &Path) -> eyre::Result<Self> {
        let about = fs::metadata(path).map_err(|error| eyre!("{}: {error}", path.display()))?;
        let extension = path
            .extension()
            .and_then(|extension| extension.to_str())
            .unwrap_or_default();
        match (about.is_dir(), extension.to_ascii_lowercase().as_str()) {
            (true, _) if !streams(path)?.is_empty() => Ok(Self::Recording),
            (true, _) if lerobot::is_dataset(path) => Ok(Self::Lerobot),
            (true, _) if Reader::is_bag(path) => Ok(Self::Mcap),
            (true, _) if !csv::files(path).is_empty() => Ok(Self::Csv),
            (true, _) => Ok(Self::Recording),
            (false, _) if !about.is_file() => bail!(
                "{}: a pipe, a socket or a device (allowed: a file or a folder, or a link to one)",
                path.display()
            ),
            (false, "mcap" | "db3" | "zstd") => Ok(Self::Mcap),
            (false, "csv" | "tsv" | "txt") => Ok(Self::Csv),
            (false, _) => bail!(
                "{}: a file of unknown kind (allowed: .mcap, .db3, .csv, .tsv, .txt, or the folder of a recording, a rosbag2, a dataset of LeRobot or tables)",
                path.display()
            ),
        }
    }

    /// Returns a line that names the files of a folder that are not read because they have another format; `None` if all
    /// are read.
    pub fn not_read(self, folder: &Path) -> Option<String> {
        let of = |path: &Path| {
            let extension = path.extension()?.to_str()?;
            match extension {
                "csv" | "tsv" => Some(Self::Csv),
                "mcap" | "db3" | "zstd" => Some(Self::Mcap),
                _ => path.ends_with("metadata.yaml").then_some(Self::Mcap),
            }
        };
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let others = entries.filter(|entry| of(&entry.path()).is_some_and(|form| form != self));
        let mut names: Vec<String> = others
            .map(|entry| format!("`{}`", entry.file_name().to_string_lossy()))
            .collect();
        names.extend((self == Self::Recording && lerobot::is_dataset(folder)).then(|| "`meta/info.json`".to_owned()));
        names.sort();
        let form = match self {
            Self::Recording => "a recording",
            Self::Mcap => "a bag",
            Self::Csv => "a folder of tables",
            Self::Lerobot | Self::LerobotV2 => "a dataset of LeRobot",
        };
        (!names.is_empty()).then(|| {
            format!(
                "{}: {form}, beside which {} are not read",
                folder.display(),
                names.join(", ")
            )
        })
    }

    /// Chooses the format of an output by the extension of its name; a recording if the extension is unknown.
    fn of_output(path: &Path) -> eyre::Result<Self> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("mcap") => Ok(Self::Mcap),
            Some("csv") => Ok(Self::Csv),
            Some(other @ ("tsv" | "txt" | "db3" | "bag" | "parquet" | "json" | "arrow" | "hdf5" | "h5")) => bail!(
                "{}: no .{other} is written (allowed: .mcap, .csv, and folders; --to says what a folder is to be)",
                path.display()
            ),
            _ => Ok(Self::Recording),
        }
    }
}

/// Opens a file or a folder of this format as a source of messages. `selections` are the columns that a configuration reads of its
/// inputs.
pub fn open(
    path: &Path,
    format: Format,
    how: &InputArgs,
    selections: &[(String, Selection)],
) -> eyre::Result<Box<dyn Source>> {
    Ok(match format {
        Format::Recording => Box::new(recording::RecordingSource::open(path, selections)?),
        Format::Csv => Box::new(csv::CsvSource::open(path, &how.csv)?),
        Format::Mcap => Box::new(mcap::McapSource::open(path, how.csv.unit(), selections)?),
        Format::Lerobot | Format::LerobotV2 => Box::new(lerobot::Source::open(path, &how.without)?),
    })
}

/// Input of a conversion, read message by message.
pub trait Source {
    /// Reads the next message into `message`. Returns the name of its stream, or `None` at the end.
    ///
    /// # Errors
    /// The problem that ends the reading. Parts that can be left out are left out, and reported by
    /// [`remarks`](Self::remarks).
    fn next_into(&mut self, message: &mut Message) -> eyre::Result<Option<&str>>;

    /// Returns the remarks on the input's files, after all messages are read.
    fn remarks(&mut self) -> Remarks;

    /// The names of the input's streams; `None` if they are not known before messages are read.
    fn streams(&self) -> Option<Vec<String>> {
        None
    }

    /// The name and the text of a file to be written into a recording that is made from this source; `None` if there is no such
    /// file.
    fn beside(&self) -> Option<(&'static str, String)> {
        None
    }
}

/// Output of a conversion, written message by message.
trait Sink {
    /// Writes a message of a stream.
    ///
    /// # Errors
    /// The reason why this message, or any further one, can't be written.
    fn append(&mut self, stream: &str, message: &Message) -> Result<(), Refused>;

    /// Writes all messages that are still buffered, and completes the output's files.
    ///
    /// # Errors
    /// The part that can't be written.
    fn finish(&mut self) -> eyre::Result<Remarks>;
}

/// The reason why a message is not written.
enum Refused {
    /// The output can't hold this message; other messages may follow.
    Message(String),
    /// Nothing more can be written.
    All(eyre::Report),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        match error {
            Error::Message { .. } => Self::Message(error.to_string()),
            error => Self::All(error.into()),
        }
    }
}

/// Errors of the parts that can't be read, oldest first. All are counted, and the first `LISTED` are kept as text.
#[derive(Default)]
struct Problems {
    first: Vec<String>,
    more: u64,
}

impl Problems {
    /// Maximum number of problems that are kept as text; more are only counted.
    const LISTED: usize = 20;

    fn push(&mut self, problem: impl ToString) {
        if self.first.len() < Self::LISTED {
            self.first.push(problem.to_string());
        } else {
            self.more += 1;
        }
    }

    fn take(&mut self) -> Vec<String> {
        let more = std::mem::take(&mut self.more);
        self.first.extend((more > 0).then(|| format!("and {more} more")));
        std::mem::take(&mut self.first)
    }
}

/// Remarks for the user about the files that were read or written, such as streams that were left out.
#[derive(Default)]
pub struct Remarks {
    /// Errors of the parts that can't be read or written, one line each.
    pub problems: Vec<String>,
    /// Lines about parts that were left out, and about values that replace missing parts.
    pub notes: Vec<String>,
}

#[derive(Serialize)]
struct Converted {
    input: PathBuf,
    output: PathBuf,
    streams: Vec<StreamCounts>,
    /// Lines about parts that are left out, and about values that replace missing parts.
    notes: Vec<String>,
    /// Errors of the parts that can't be read or written, one line each.
    problems: Vec<String>,
}

#[derive(Serialize)]
struct StreamCounts {
    name: String,
    messages: u64,
    /// Number of the stream's messages that can't be written.
    #[serde(skip_serializing_if = "is_zero")]
    refused: u64,
}

impl StreamCounts {
    fn new(name: String) -> Self {
        Self {
            name,
            messages: 0,
            refused: 0,
        }
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

pub fn run(args: &Args, output: &Output) -> eyre::Result<ExitCode> {
    let converted = convert(args)?;
    output.result(&converted, text)?;
    Ok(ExitCode::from(u8::from(!converted.problems.is_empty())))
}

fn convert(args: &Args) -> eyre::Result<Converted> {
    let from = Format::of_input(&args.input)?;
    let to = match args.to {
        Some(to) => to,
        None => Format::of_output(&args.output)?,
    };
    let is_dataset = matches!(to, Format::Lerobot | Format::LerobotV2);
    let (selections, mut judge) = match &args.config {
        None => Default::default(),
        Some(file) => {
            let (mut selections, operations) = config::selections(file)?;
            for (stream, selection) in if is_dataset {
                lerobot::selections(file)?
            } else {
                Vec::new()
            } {
                // A stream that an operation takes, too, is read as the operation takes it.
                if !selections.iter().any(|(input, _)| *input == stream) {
                    selections.push((stream, selection));
                }
            }
            let mut streams = offsets::latencies(&operations);
            streams.extend(lerobot::latencies(file, &streams)?);
            (selections, Judge::new(streams, &args.offsets))
        }
    };
    let whole = AtomicOutput::begin(&args.output, args.discard_partial)?;
    let made = whole.path();
    let mut source = open(&args.input, from, &args.how, &selections)?;
    let is_table = to == Format::Csv && args.output.extension().is_some_and(|extension| extension == "csv");
    if let (true, Some(streams)) = (is_table, source.streams())
        && streams.len() != 1
    {
        bail!("{}: {}", args.output.display(), csv::one_table(&streams));
    }
    let mut sink: Box<dyn Sink> = match to {
        Format::Recording => Box::new(recording::RecordingSink::create(&made)?),
        Format::Csv if is_table => Box::new(csv::Table::create(&made, &args.output)),
        Format::Csv => Box::new(robocache::formats::csv::Writer::create(&made)?),
        Format::Mcap => Box::new(Writer::create(&made)?),
        Format::Lerobot | Format::LerobotV2 => {
            let version = match to {
                Format::Lerobot => Version::V3_0,
                _ => Version::V2_1,
            };
            let (streams, config) = (source.streams(), args.config.as_deref());
            Box::new(lerobot::Sink::create(&made, version, config, streams.as_deref())?)
        }
    };
    let (streams, refusals) = copy(source.as_mut(), sink.as_mut(), &mut judge)?;
    let found = judge.offsets();
    if let Some(refused) = offsets::refusal(&found).filter(|_| is_dataset) {
        bail!("{}: {refused}", args.input.display());
    }
    let written = sink.finish()?;
    let Remarks {
        mut problems,
        mut notes,
    } = source.remarks();
    problems.extend(refusals.into_iter().chain(written.problems));
    notes.extend(written.notes);
    notes.extend(from.not_read(&args.input));
    if let Some(file) = &args.config {
        let inputs = selections.iter().map(|(input, _)| input.as_str());
        notes.extend(unmatched(file, inputs, &streams));
    }
    notes.extend(found.into_iter().map(|found| format!("clocks: {}", found.text)));
    if streams.iter().all(|stream| stream.messages == 0) {
        let mut why: Vec<String> = problems.into_iter().chain(notes).collect();
        why.extend(streams.is_empty().then(|| "there is no stream".to_owned()));
        bail!("{}: no message is converted: {}", args.input.display(), why.join("; "));
    }
    if let (Format::Recording, Some((name, text))) = (to, source.beside()) {
        fs::write(made.join(name), text)?;
    }
    drop(sink);
    whole.finish()?;
    Ok(Converted {
        input: args.input.clone(),
        output: args.output.clone(),
        streams,
        notes,
        problems,
    })
}

/// Returns a line that names the inputs of a configuration for which no stream has messages; `None` if all inputs have some.
fn unmatched<'a>(file: &Path, inputs: impl Iterator<Item = &'a str>, streams: &[StreamCounts]) -> Option<String> {
    let is_there = |input: &str| {
        let name = robocache::formats::file_name(input);
        let mut there = streams.iter().filter(|stream| stream.messages + stream.refused > 0);
        there.any(|stream| stream.name == name)
    };
    let missing: Vec<String> = inputs
        .filter(|input| !is_there(input))
        .map(|input| format!("`{input}`"))
        .collect();
    let names: Vec<&str> = streams.iter().map(|stream| stream.name.as_str()).collect();
    let words = || {
        let (file, missing, names) = (file.display(), missing.join(", "), names.join(", "));
        format!(
            "{file}: nothing came for its inputs {missing}: no stream or topic with messages has that name (there are: {names})"
        )
    };
    (!missing.is_empty()).then(words)
}

/// Copies every message. Returns the counts of each stream, sorted by name, and a reason for the first refused message of each
/// stream.
fn copy(
    source: &mut dyn Source,
    sink: &mut dyn Sink,
    judge: &mut Judge,
) -> eyre::Result<(Vec<StreamCounts>, Vec<String>)> {
    let known = source.streams().unwrap_or_default().into_iter();
    let (mut streams, mut refusals) = (known.map(StreamCounts::new).collect::<Vec<_>>(), Vec::new());
    let mut message = Message::default();
    while let Some(name) = source.next_into(&mut message)? {
        let at = streams
            .iter()
            .position(|stream| stream.name == name)
            .unwrap_or_else(|| {
                streams.push(StreamCounts::new(name.to_owned()));
                streams.len() - 1
            });
        let stream = &mut streams[at];
        judge.message(name, &message);
        match sink.append(name, &message) {
            Ok(()) => stream.messages += 1,
            Err(Refused::All(error)) => return Err(error),
            Err(Refused::Message(why)) => {
                if stream.refused == 0 {
                    refusals.push(why);
                }
                stream.refused += 1;
            }
        }
    }
    streams.sort_by(|a, b| a.name.cmp(&b.name));
    Ok((streams, refusals))
}

fn text(converted: &Converted) -> String {
    let mut text = format!("{} to {}\n\n", path(&converted.input), path(&converted.output));
    let mut table = Table::new(["<stream", "messages", "refused"]);
    for stream in &converted.streams {
        table.row([
            stream.name.clone(),
            stream.messages.to_string(),
            stream.refused.to_string(),
        ]);
    }
    // Writing to a string can't fail.
    let _ = write!(text, "{table}");
    for (heading, lines) in [
        ("left out or stood in for", &converted.notes),
        ("problems", &converted.problems),
    ] {
        if !lines.is_empty() {
            let _ = writeln!(text, "\n{heading}:");
            lines.iter().for_each(|line| {
                let _ = writeln!(text, "  {}", plain(line));
            });
        }
    }
    text
}
