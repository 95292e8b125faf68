//! `robocache info`: summarizes a recording, stream by stream. Parts that can't be read are reported, and all other parts
//! are summarized.

use crate::convert::{self, Format, InputArgs};
use crate::output::{Output, Table, bytes, figure, figure_or_dash, path, plain};
use crate::stats::Spread;
use robocache::device::{Dtype, Values};
use robocache::stream::recording::Reader;
use robocache::stream::{Column, Message, SamplesError, form};
use robocache::time::ns_to_s;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Multiple of the median step between samples. A longer step counts as a gap, in which samples were lost.
const GAP: f64 = 1.5;

/// Shows the contents of a recording, or of another input of `convert`: rates, gaps, order, payloads
///
/// A step is the time from the newest sample so far to the next newer one. A gap is a step of more than 1.5 times the
/// median step. A gap of n median steps counts as n - 1 lost samples. Each sample of a message counts.
#[derive(clap::Args)]
#[command(after_help = "Exit codes:
  0   all of it can be read
  1   a part of it can't be read, and the rest is told
  2   it is not a recording")]
pub struct Args {
    /// The folder of the recording, or another input of `convert`
    recording: PathBuf,
    #[command(flatten)]
    how: InputArgs,
}

#[derive(Serialize)]
pub struct Info {
    recording: PathBuf,
    /// Time from the first stamp of any stream to the newest stamp of any stream, s.
    duration_s: f64,
    bytes: u64,
    pub streams: Vec<StreamSummary>,
    /// Lines about parts that are not read, and, for files of other software, about values that replace missing parts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    /// Errors of the parts of the recording that can't be read, one line each.
    pub problems: Vec<String>,
}

#[derive(Serialize)]
pub struct StreamSummary {
    name: String,
    messages: u64,
    samples: u64,
    rate_hz: Option<f64>,
    step_ms: Option<Spread>,
    /// Time from the first stamp of any stream to the start of this stream's longest step, s.
    longest_step_at_s: Option<f64>,
    gaps: u64,
    lost: u64,
    out_of_order: u64,
    duplicates: u64,
    pub first_ns: Option<i64>,
    last_ns: Option<i64>,
    /// Time from the first stamp of any stream to the first stamp of this stream, s.
    start_s: Option<f64>,
    /// Time from the newest stamp of this stream to the newest stamp of any stream, s.
    end_s: Option<f64>,
    /// Number of values that are NaN or infinite.
    nonfinite: u64,
    /// Time from the stamp of a message to its arrival at the recorder; `None` if arrivals were not recorded.
    delay_ms: Option<Spread>,
    bytes: u64,
    payload: Option<String>,
    frame_id: Option<String>,
    /// True if the stream's file was completed, not cut off by the end of its recorder.
    is_finished: bool,
}

/// Counts and times of a stream so far, while a recording is read.
#[derive(Default)]
struct StreamStatistics {
    messages: u64,
    samples: u64,
    out_of_order: u64,
    duplicates: u64,
    first_ns: Option<i64>,
    newest_ns: Option<i64>,
    steps_ns: Vec<i64>,
    /// The longest time between a stamp and the next newer stamp, and the stamp at its start, ns.
    longest_ns: (i64, i64),
    delays_ns: Vec<i64>,
    nonfinite: u64,
    payload: Option<String>,
    frame_id: Option<String>,
    /// Size of all payloads, bytes.
    bytes: u64,
}

pub fn run(args: &Args, output: &Output) -> eyre::Result<ExitCode> {
    let info = match Format::of_input(&args.recording)? {
        Format::Recording => read(&args.recording)?,
        format => read_other(&args.recording, format, &args.how)?,
    };
    output.result(&info, text)?;
    Ok(ExitCode::from(u8::from(!info.problems.is_empty())))
}

/// Reads a recording and summarizes its streams.
pub fn read(folder: &Path) -> eyre::Result<Info> {
    let (mut reader, refused) = Reader::open_readable(folder)?;
    let mut problems: Vec<String> = refused.iter().map(ToString::to_string).collect();
    let names: Vec<String> = reader.streams().map(str::to_owned).collect();
    let about = (0..names.len()).map(|stream| (reader.files(stream).to_vec(), reader.is_finished(stream)));
    let about: Vec<(Vec<PathBuf>, bool)> = about.collect();
    let mut seen: Vec<StreamStatistics> = names.iter().map(|_| StreamStatistics::default()).collect();
    let mut misfit_messages: Vec<MisfitMessages> = names.iter().map(|_| MisfitMessages::default()).collect();
    let (mut message, mut scratch) = (Message::default(), Vec::new());
    loop {
        match reader.next_into(&mut message) {
            Ok(Some(stream)) => {
                seen[stream].message(&message, &mut scratch);
                if let Err(error) = samples(&message) {
                    misfit_messages[stream].add(error);
                }
            }
            Ok(None) => break,
            Err(error) => problems.push(error.to_string()),
        }
    }
    for ((name, seen), MisfitMessages { messages, first }) in names.iter().zip(&seen).zip(misfit_messages) {
        let of = seen.messages;
        let words = |first| format!("stream `{name}`: of {of} messages {messages} are not samples, the first: {first}");
        problems.extend(first.map(words));
    }
    let (first, last) = span(&seen);
    let mut streams = Vec::with_capacity(names.len());
    for ((name, seen), (files, is_finished)) in names.into_iter().zip(seen).zip(about) {
        let bytes = files.iter().map(|file| Ok(std::fs::metadata(file)?.len()));
        let bytes = bytes.sum::<std::io::Result<u64>>()?;
        streams.push(seen.into_stream(name, (first, last), bytes, is_finished));
    }
    Ok(Info {
        recording: folder.to_owned(),
        duration_s: seconds(first, last).unwrap_or(0.0),
        bytes: streams.iter().map(|stream| stream.bytes).sum(),
        streams,
        notes: Format::Recording.not_read(folder).into_iter().collect(),
        problems,
    })
}

/// Number of messages whose values do not fit their `timestamps_ns`, and the first error.
#[derive(Default)]
struct MisfitMessages {
    messages: u64,
    first: Option<SamplesError>,
}

impl MisfitMessages {
    fn add(&mut self, error: SamplesError) {
        self.messages += 1;
        self.first.get_or_insert(error);
    }
}

/// Refuses a message whose values can't be divided evenly among its `timestamps_ns`, at least one for each.
fn samples(message: &Message) -> Result<(), SamplesError> {
    let stamps = message.header.timestamps_ns.get().map_or(0, <[i64]>::len);
    let values = message.flat().map_or(0, |values| values.len());
    let dim = (values / stamps.max(1)).max(1);
    match message.flat() {
        // The window of an observation is not checked: its rows have a shape of their own.
        Some(_) if stamps > 0 && stamps * dim != values && form::modalities.get(&message.header).is_none() => {
            Err(SamplesError::Stamps { stamps, values, dim })
        }
        _ => Ok(()),
    }
}

/// Reads a file or folder in a format of other software, and summarizes its streams.
fn read_other(path: &Path, format: Format, how: &InputArgs) -> eyre::Result<Info> {
    let mut source = convert::open(path, format, how, &[])?;
    let mut seen: BTreeMap<String, StreamStatistics> = BTreeMap::new();
    let (mut message, mut scratch) = (Message::default(), Vec::new());
    while let Some(name) = source.next_into(&mut message)? {
        match seen.get_mut(name) {
            Some(seen) => seen.message(&message, &mut scratch),
            None => seen.entry(name.to_owned()).or_default().message(&message, &mut scratch),
        }
    }
    let (first, last) = span(seen.values());
    let streams = seen.into_iter().map(|(name, seen)| {
        let bytes = seen.bytes;
        seen.into_stream(name, (first, last), bytes, true)
    });
    let streams: Vec<StreamSummary> = streams.collect();
    let mut told = source.remarks();
    told.notes.extend(format.not_read(path));
    Ok(Info {
        recording: path.to_owned(),
        duration_s: seconds(first, last).unwrap_or(0.0),
        bytes: streams.iter().map(|stream| stream.bytes).sum(),
        streams,
        notes: told.notes,
        problems: told.problems,
    })
}

/// Returns the oldest and the newest stamp of all streams, ns; `None` if there are no messages.
fn span<'a>(seen: impl IntoIterator<Item = &'a StreamStatistics, IntoIter: Clone>) -> (Option<i64>, Option<i64>) {
    let seen = seen.into_iter();
    let first = seen.clone().filter_map(|seen| seen.first_ns).min();
    (first, seen.filter_map(|seen| seen.newest_ns).max())
}

fn seconds(from: Option<i64>, to: Option<i64>) -> Option<f64> {
    Some(ns_to_s(to?.saturating_sub(from?)))
}

impl StreamStatistics {
    fn message(&mut self, message: &Message, scratch: &mut Vec<f32>) {
        let header = &message.header;
        self.messages += 1;
        // Only the newest row of an observation's window is new: the other rows repeat earlier ones.
        if form::modalities.get(header).is_some() {
            self.sample(message.timestamp_ns());
        } else {
            message.stamps().iter().for_each(|&stamp_ns| self.sample(stamp_ns));
        }
        if let Some(arrival_ns) = message.arrival_ns {
            self.delays_ns.push(arrival_ns.saturating_sub(message.timestamp_ns()));
        }
        self.nonfinite += message
            .columns()
            .iter()
            .map(|column| nonfinite(column.values(), scratch))
            .sum::<u64>();
        let bytes = |column: &Column| column.values().bytes().len() + size_of_val(&column.offsets[..]);
        self.bytes += message.columns().iter().map(bytes).sum::<usize>() as u64;
        if self.payload.is_none() {
            self.payload = Some(payload(message));
            self.frame_id = header.frame_id.get().map(str::to_owned);
        }
    }

    fn sample(&mut self, stamp_ns: i64) {
        self.samples += 1;
        self.first_ns = Some(self.first_ns.map_or(stamp_ns, |first| first.min(stamp_ns)));
        let newest = *self.newest_ns.get_or_insert(stamp_ns);
        match stamp_ns.saturating_sub(newest) {
            ..0 => self.out_of_order += 1,
            0 => self.duplicates += u64::from(self.samples > 1),
            step => {
                self.steps_ns.push(step);
                if step > self.longest_ns.0 {
                    self.longest_ns = (step, newest);
                }
                self.newest_ns = Some(stamp_ns);
            }
        }
    }

    fn into_stream(
        mut self,
        name: String,
        (first, last): (Option<i64>, Option<i64>),
        bytes: u64,
        is_finished: bool,
    ) -> StreamSummary {
        let steps = Spread::of_ns(&mut self.steps_ns);
        let median_ns = steps.map_or(f64::INFINITY, |steps| steps.p50 * 1e6);
        let gaps = self
            .steps_ns
            .iter()
            .map(|&step| step as f64 / median_ns)
            .filter(|&steps| steps > GAP);
        let (gaps, lost) = gaps.fold((0, 0), |(gaps, lost), steps| {
            (gaps + 1, lost + steps.round() as u64 - 1)
        });
        let span = seconds(self.first_ns, self.newest_ns).filter(|&span| span > 0.0);
        StreamSummary {
            name,
            messages: self.messages,
            samples: self.samples,
            rate_hz: span.map(|span| self.steps_ns.len() as f64 / span),
            step_ms: steps,
            longest_step_at_s: steps.and(seconds(first, Some(self.longest_ns.1))),
            gaps,
            lost,
            out_of_order: self.out_of_order,
            duplicates: self.duplicates,
            first_ns: self.first_ns,
            last_ns: self.newest_ns,
            start_s: seconds(first, self.first_ns),
            end_s: seconds(self.newest_ns, last),
            nonfinite: self.nonfinite,
            delay_ms: Spread::of_ns(&mut self.delays_ns),
            bytes,
            payload: self.payload,
            frame_id: self.frame_id,
            is_finished,
        }
    }
}

/// Counts the values that are NaN or infinite.
fn nonfinite(values: Values<'_>, scratch: &mut Vec<f32>) -> u64 {
    let count = match values.dtype() {
        Dtype::Float32 => values
            .as_slice::<f32>()
            .iter()
            .filter(|value| !value.is_finite())
            .count(),
        Dtype::Float64 => values
            .as_slice::<f64>()
            .iter()
            .filter(|value| !value.is_finite())
            .count(),
        Dtype::Float16 | Dtype::BFloat16 => {
            scratch.resize(values.len(), 0.0);
            values.to_f32(scratch);
            scratch.iter().filter(|value| !value.is_finite()).count()
        }
        _ => 0,
    };
    count as u64
}

/// Describes the payload of a message, such as `float32 [16, 149]` or `{x: float32, ring: uint16}`.
fn payload(message: &Message) -> String {
    if let Some(values) = message.flat() {
        let shape = match message.header.shape.get() {
            None | Some([]) => vec![values.len() as i64],
            Some(shape) => shape.to_vec(),
        };
        let fields = match message.header.fields.get() {
            None | Some([]) => String::new(),
            Some(fields) => format!(" {}", fields.join(" ")),
        };
        return format!("{} {shape:?}{fields}", values.dtype());
    }
    let columns = message.columns().iter();
    let columns: Vec<String> = columns
        .map(|column| format!("{}: {}", column.name, column.type_name()))
        .collect();
    format!("{{{}}}", columns.join(", "))
}

fn text(info: &Info) -> String {
    let streams = info.streams.len();
    let mut text = format!(
        "{}: {streams} {}, {} s, {}\n",
        path(&info.recording),
        if streams == 1 { "stream" } else { "streams" },
        figure(info.duration_s),
        bytes(info.bytes)
    );
    let mut table = Table::new([
        "<stream",
        "messages",
        "rate Hz",
        "step p50",
        "p99",
        "max ms",
        "gaps",
        "lost",
        "disorder",
        "twice",
        "starts at s",
        "ends before s",
        "NaN, inf",
        "delay p50 ms",
        "size",
        "<payload of the first",
    ]);
    for stream in &info.streams {
        let step = |of: fn(&Spread) -> f64| figure_or_dash(stream.step_ms.as_ref().map(of));
        table.row([
            stream.name.clone(),
            stream.messages.to_string(),
            figure_or_dash(stream.rate_hz),
            step(|spread| spread.p50),
            step(|spread| spread.p99),
            step(|spread| spread.max),
            stream.gaps.to_string(),
            stream.lost.to_string(),
            stream.out_of_order.to_string(),
            stream.duplicates.to_string(),
            figure_or_dash(stream.start_s),
            figure_or_dash(stream.end_s),
            stream.nonfinite.to_string(),
            figure_or_dash(stream.delay_ms.map(|delay| delay.p50)),
            bytes(stream.bytes),
            stream.payload.clone().unwrap_or_else(|| "-".into()),
        ]);
    }
    // Writing to a string can't fail.
    let _ = write!(text, "{table}");
    for note in &info.notes {
        let _ = writeln!(text, "left out or stood in for: {}", plain(note));
    }
    for problem in &info.problems {
        let _ = writeln!(text, "can't be read: {}", plain(problem));
    }
    text
}
