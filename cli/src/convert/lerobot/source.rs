//! Source that reads a dataset as messages: each feature becomes a stream. A value that was not valid gives no message. A
//! sample that several frames share gives one message.

use super::config::Take;
use super::origin::{AGE_NS, CAPTURE_NS, EPOCH, Origins, TARGET_NS, VALID, times_of};
use super::sink::TASK;
use crate::convert::Remarks;
use crate::output::{path, quoted};
use eyre::bail;
use robocache::device::{Dtype, Values};
use robocache::formats::lerobot::{Feature, Frames, Kind, Reader};
use robocache::stream::{Layout, Message, MetadataRef};
use std::collections::{HashMap, VecDeque};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Pause that is assumed between episodes, ns, if the dataset does not say when each was recorded.
const BETWEEN_NS: i64 = 10_000_000_000;

/// Largest difference between a time and `frame_index / fps` at which the two count as equal, s; LeRobot's `tolerance_s`.
const TOLERANCE_S: f64 = 1e-4;

/// Maximum length of an episode, s.
const LONGEST_S: f64 = 1e9;

/// Name of the stream with a message for each frame.
const FRAME: &str = "frame";
/// Name of the stream with a message at the beginning of each episode.
const EPISODE: &str = "episode";
/// Name of the stream with a message at each change of the task.
const TASK_STREAM: &str = "task";

pub struct Source {
    folder: PathBuf,
    reader: Reader,
    outputs: Vec<Output>,
    /// Index of the feature with the targets of frames; `None` if robocache did not write the dataset.
    target: Option<usize>,
    /// Index of the feature with the validity of values; `None` if the dataset lacks this feature.
    valid: Option<usize>,
    /// Index of the feature with the capture times of values; `None` if the dataset lacks this feature, or has no targets.
    capture: Option<usize>,
    frames: Option<(Frames, usize)>,
    /// Messages of the current frame that are not returned yet, in their order, each with the name of its stream.
    waiting: VecDeque<(String, Message)>,
    free: Vec<Message>,
    /// Source of the frame times; not used if the dataset has targets.
    clock: Clock,
    /// Time that `clock` gives to the current episode's first frame, ns.
    begin_ns: i64,
    /// `timestamp` of the current episode's first frame, s; 0 if `clock` does not use the column `timestamp`.
    begin_s: f64,
    /// Previous frame: the index of its episode, the index of its task, and its time, ns. `None` before the first frame.
    last: Option<(i64, usize, i64)>,
    given: String,
    problems: Vec<String>,
}

/// Source of the frame times in a dataset without targets.
enum Clock {
    /// Times computed as `frame_index / fps`. The text is the reason why the dataset's own times can't be used; `None` if the
    /// dataset has no times.
    Index(Option<String>),
    /// Times from the column `timestamp`. The fields are their largest difference from `frame_index / fps`, s, and the frame
    /// and the episode of this difference.
    Column(f64, i64, i64),
}

/// Units in which times may be by mistake: number of units in a second, and name.
const UNITS: [(f64, &str); 3] = [(1e3, "ms"), (1e6, "us"), (1e9, "ns")];

impl Clock {
    /// Chooses the source of the frame times of a dataset, after reading all of its times.
    fn of(folder: &Path) -> eyre::Result<Self> {
        let mut reader = Reader::open(folder)?;
        reader.retain(|_| false);
        let fps = f64::from(reader.dataset().fps);
        let mut most: Option<(f64, i64, i64)> = None;
        let (mut begin, mut last) = (0.0, f64::NEG_INFINITY);
        let mut shortest = f64::INFINITY;
        loop {
            let frames = match reader.next_frames() {
                Ok(Some(frames)) => frames,
                Ok(None) => break,
                // The error is reported when the frames are read.
                Err(_) => continue,
            };
            let (times, exact) = match frames.times() {
                Ok(Some(times)) => times,
                Ok(None) => return Ok(Self::Index(None)),
                Err(of) => {
                    let why = format!("`timestamp` is {of}, which is not read (allowed: Float32, Float64, in s)");
                    return Ok(Self::Index(Some(why)));
                }
            };
            for (at, &time) in times.iter().enumerate() {
                let (index, episode) = (frames.index(at), frames.episode(at));
                if index == 0 {
                    (begin, last) = (time, f64::NEG_INFINITY);
                }
                let is_time = (time - begin).abs() < LONGEST_S;
                if time <= last || !is_time {
                    let why = match is_time {
                        true => format!("`timestamp` is {time} in frame {index} of episode {episode}, behind {last}"),
                        false => format!("`timestamp` is {time} in frame {index} of episode {episode}"),
                    };
                    return Ok(Self::Index(Some(why)));
                }
                shortest = shortest.min(time - last);
                last = time;
                let differs = (time - begin - index as f64 / fps).abs();
                // The float type rounds a time by up to `exact` of its magnitude.
                let least = most.map_or(TOLERANCE_S, |(most, ..)| most);
                if differs - time.abs() * exact > least {
                    most = Some((differs, index, episode));
                }
            }
        }
        let is_of = |(in_a_second, _): &(f64, &str)| (0.5..2.0).contains(&(shortest * fps / in_a_second));
        if let Some((_, unit)) = UNITS.into_iter().find(is_of) {
            let why = format!(
                "`timestamp` advances by {shortest} or more from frame to frame, which is {unit} at {fps} fps (allowed: s)"
            );
            return Ok(Self::Index(Some(why)));
        }
        Ok(match most {
            None => Self::Index(None),
            Some((differs, index, episode)) => Self::Column(differs, index, episode),
        })
    }

    /// Formats a remark that says where the times of the messages come from.
    fn note(&self) -> String {
        let index = "those of the recording are frame_index / fps, with 10 s between episodes";
        match self {
            Self::Index(None) => format!("the dataset has no times: {index}"),
            Self::Index(Some(why)) => format!("the dataset has no times, as {why}: {index}"),
            Self::Column(differs, index, episode) => format!(
                "the times are those of `timestamp` since each episode began, with 10 s between episodes: they differ from frame_index / fps by up to \
                 {differs:.6} s, in frame {index} of episode {episode}"
            ),
        }
    }
}

/// Stream that is made from a feature, or from some of a feature's elements.
struct Output {
    stream: String,
    feature: usize,
    /// Range of the stream's elements in the feature, `from..to`.
    from: usize,
    to: usize,
    /// Index of the stream in `robocache.valid` and `robocache.capture_ns`. `None` if the dataset has no capture times, or does
    /// not list the stream. Its messages then get the times of frames.
    part: Option<usize>,
    /// True if messages have the capture times of samples, not the times of frames.
    as_it_came: bool,
    /// Rule by which frames selected a sample of a stream that the dataset read directly; `None` for other streams, and
    /// for windows.
    take: Option<Take>,
    /// Index of the feature with the times of a window's samples; `None` if the stream was not a window.
    times: Option<usize>,
    /// Time of the stream's newest sample that became a message, ns.
    newest_ns: Option<i64>,
    /// Number of samples with a value that is not finite.
    nonfinite: u64,
}

impl Source {
    pub fn open(folder: &Path, without: &[String]) -> eyre::Result<Self> {
        let mut reader = Reader::open(folder)?;
        for name in without {
            if !reader.dataset().features.iter().any(|feature| feature.name == *name) {
                let known: Vec<&str> = reader
                    .dataset()
                    .features
                    .iter()
                    .map(|feature| feature.name.as_str())
                    .collect();
                bail!("--without {name}: no such feature (allowed: {})", known.join(", "));
            }
        }
        reader.retain(|feature| !without.contains(&feature.name));
        let features = &reader.dataset().features;
        if let Some(Feature {
            name,
            kind: Kind::Other(kind),
            ..
        }) = features.iter().find(|feature| matches!(feature.kind, Kind::Other(_)))
        {
            bail!(
                "{}: feature `{name}` is {kind}, which is not read (leave it out: --without {name}; or write the dataset with images in \
                 place of video)",
                folder.display()
            );
        }
        let at = |name: &str| features.iter().position(|feature| feature.name == name);
        let is_time = |feature: &Feature| feature.kind == Kind::Numbers(Dtype::Int64);
        let list = |name: &str| at(name).filter(|&at| is_time(&features[at]));
        let target = list(TARGET_NS).filter(|&at| features[at].len() == 1);
        let capture = list(CAPTURE_NS).filter(|_| target.is_some());
        let valid = at(VALID).filter(|&at| features[at].kind == Kind::Bool && capture.is_some());
        let clock = match target {
            Some(_) => Clock::Index(None),
            None => Clock::of(folder)?,
        };
        let outputs = outputs(features, &Origins::read(folder)?, capture.filter(|_| valid.is_some()))?;
        Ok(Self {
            folder: folder.to_owned(),
            outputs,
            target,
            valid,
            capture,
            frames: None,
            waiting: VecDeque::new(),
            free: Vec::new(),
            clock,
            begin_ns: 0,
            begin_s: 0.0,
            last: None,
            given: String::new(),
            problems: Vec::new(),
            reader,
        })
    }

    fn period_ns(&self) -> i64 {
        (1e9 / f64::from(self.reader.dataset().fps)).round() as i64
    }

    /// Queues the messages of the next frame in `waiting`. Returns false at the end of the dataset.
    fn frame(&mut self) -> eyre::Result<bool> {
        let (frames, at) = loop {
            match self.frames.take() {
                Some((frames, at)) if at < frames.len() => break (frames, at),
                _ => {}
            }
            match self.reader.next_frames() {
                Ok(Some(frames)) => self.frames = Some((frames, 0)),
                Ok(None) => return Ok(false),
                Err(error) => self.problems.push(error.to_string()),
            }
        };
        let (episode, task) = (frames.episode(at), frames.task(at));
        let begins = self.last.is_none_or(|(last, ..)| last != episode);
        let time_ns = match self.target {
            Some(target) => frames.values(target, at).as_slice::<i64>()[0],
            None => {
                let period_ns = self.period_ns();
                if let Some((.., last_ns)) = self.last.filter(|_| begins) {
                    // A whole number of periods, so that frames of all episodes lie on one grid.
                    self.begin_ns = ((last_ns + BETWEEN_NS) / period_ns + 1) * period_ns;
                }
                let own_s = frames.time_s(at).filter(|_| matches!(self.clock, Clock::Column(..)));
                if begins {
                    self.begin_s = own_s.unwrap_or(0.0);
                }
                self.begin_ns
                    + match own_s {
                        Some(time_s) => ((time_s - self.begin_s) * 1e9).round() as i64,
                        None => frames.index(at) * period_ns,
                    }
            }
        };
        if begins {
            self.give(EPISODE, time_ns, |message| write_integers(message, &[episode]));
        }
        if begins || self.last.is_some_and(|(_, last, _)| last != task) {
            let text = self.reader.tasks()[task].clone();
            self.give(TASK_STREAM, time_ns, |message| {
                write_integers(message, &[task as i64]);
                message.header.set(TASK, MetadataRef::String(&text));
            });
        }
        self.give(FRAME, time_ns, |message| {
            write_integers(message, &[episode, frames.index(at)])
        });
        for i in 0..self.outputs.len() {
            self.output(i, &frames, at, time_ns)?;
        }
        self.last = Some((episode, task, time_ns));
        self.frames = Some((frames, at + 1));
        Ok(true)
    }

    /// Queues a message of the stream `output` for each sample in frame `at` of `frames` that no earlier frame had. `frame_ns` is
    /// the time of the frame.
    fn output(&mut self, output: usize, frames: &Frames, at: usize, frame_ns: i64) -> eyre::Result<()> {
        let Output {
            feature,
            from,
            to,
            part,
            as_it_came,
            times,
            newest_ns,
            ..
        } = self.outputs[output];
        let of = |list: Option<usize>| list.map(|list| frames.values(list, at));
        let is_valid = part.is_none_or(|part| of(self.valid).is_none_or(|valid| valid.bytes().get(part) == Some(&1)));
        let about = self.reader.dataset().features[feature].clone();
        if let Some(times) = times {
            let times = frames.values(times, at).as_slice::<i64>();
            let values = frames.values(feature, at);
            let dim = about.len() / times.len();
            for (row, &time_ns) in times.iter().enumerate() {
                if time_ns >= 0 && self.outputs[output].newest_ns.is_none_or(|newest| time_ns > newest) {
                    self.outputs[output].newest_ns = Some(time_ns);
                    let sample = values.slice(row * dim, (row + 1) * dim);
                    let stream = self.outputs[output].stream.clone();
                    self.give(&stream, time_ns, |message| {
                        write(message, sample.dtype(), sample.bytes(), &about.shape[1..], &[])
                    });
                }
            }
            return Ok(());
        }
        let captured = part
            .filter(|_| as_it_came)
            .and_then(|part| of(self.capture).map(|list| list.as_slice::<i64>()[part]));
        let time_ns = captured.unwrap_or(frame_ns);
        if !is_valid || (captured.is_some() && newest_ns == Some(time_ns)) {
            return Ok(());
        }
        self.outputs[output].newest_ns = Some(time_ns);
        let stream = self.outputs[output].stream.clone();
        if about.kind == Kind::Image {
            let pixels = match frames.image(feature, at) {
                Ok(pixels) => pixels,
                Err(error) => {
                    self.problems.push(error.to_string());
                    return Ok(());
                }
            };
            let encoding = if about.shape[2] == 1 { "mono8" } else { "rgb8" };
            self.give(&stream, time_ns, |message| {
                write(message, Dtype::UInt8, &pixels, &about.shape, &[]);
                message.header.set("encoding", MetadataRef::String(encoding));
            });
            return Ok(());
        }
        let values = frames.values(feature, at).slice(from, to);
        self.outputs[output].nonfinite += u64::from(!is_finite(&values));
        let is_whole = to - from == about.len();
        let shape = if is_whole { about.shape.clone() } else { vec![to - from] };
        let names = if about.names.len() == about.len() {
            &about.names[from..to]
        } else {
            &[]
        };
        self.give(&stream, time_ns, |message| {
            write(message, values.dtype(), values.bytes(), &shape, names)
        });
        Ok(())
    }

    fn give(&mut self, stream: &str, time_ns: i64, fill: impl FnOnce(&mut Message)) {
        let mut message = self.free.pop().unwrap_or_default();
        message.header.clear();
        fill(&mut message);
        message.header.timestamp_ns.set(time_ns);
        self.waiting.push_back((stream.to_owned(), message));
    }
}

fn is_finite(values: &Values<'_>) -> bool {
    match values.dtype() {
        Dtype::Float32 => values.as_slice::<f32>().iter().all(|value| value.is_finite()),
        Dtype::Float64 => values.as_slice::<f64>().iter().all(|value| value.is_finite()),
        _ => true,
    }
}

fn write(message: &mut Message, dtype: Dtype, bytes: &[u8], shape: &[usize], names: &[String]) {
    message.write(&Layout::flat(dtype, bytes.len() / dtype.size()), |payload, header| {
        payload.column::<u8>(0).copy_from_slice(bytes);
        header.shape.set(shape.iter().map(|&n| n as i64));
        if !names.is_empty() {
            header.fields.set(names);
        }
    });
}

fn write_integers(message: &mut Message, values: &[i64]) {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    write(message, Dtype::Int64, &bytes, &[values.len()], &[]);
}

/// Lists the streams that are made from the features. Features that hold the validity, ages or times of other features do not
/// become streams.
fn outputs(features: &[Feature], origins: &Origins, capture: Option<usize>) -> eyre::Result<Vec<Output>> {
    let mut outputs: Vec<Output> = Vec::new();
    let at = |name: &str| features.iter().position(|feature| feature.name == name);
    let known: HashMap<&str, _> = origins
        .features
        .iter()
        .map(|origin| (origin.feature.as_str(), &origin.streams))
        .collect();
    let times_of_windows: Vec<String> = known.keys().map(|feature| times_of(feature)).collect();
    let own = [VALID, AGE_NS, CAPTURE_NS, TARGET_NS, EPOCH];
    for (i, feature) in features.iter().enumerate() {
        if times_of_windows.contains(&feature.name) || (capture.is_some() && own.contains(&feature.name.as_str())) {
            continue;
        }
        let whole = |stream: &str| Output {
            stream: stream.to_owned(),
            feature: i,
            from: 0,
            to: feature.len(),
            part: None,
            as_it_came: false,
            take: None,
            times: None,
            newest_ns: None,
            nonfinite: 0,
        };
        let parts = capture.and_then(|list| {
            known
                .get(feature.name.as_str())
                .map(|parts| (parts, features[list].len()))
        });
        let Some((parts, places)) = parts else {
            outputs.push(whole(&feature.name));
            continue;
        };
        let mut from = 0;
        for part in *parts {
            let times = part.samples.and_then(|_| at(&times_of(&feature.name)));
            let dim = part.dim.unwrap_or(feature.len());
            let is_there = part.part < places && from + dim <= feature.len();
            let is_window = times.is_none_or(|times| {
                let (Feature { kind, shape, .. }, rows) = (&features[times], feature.shape.first());
                *kind == Kind::Numbers(Dtype::Int64) && shape.first() == rows && feature.shape.len() > 1
            });
            if !is_there || !is_window {
                bail!(
                    "meta/robocache.json: feature `{}` has no part `{}` as it says (it fits another dataset; without this file \
                     each feature becomes one stream)",
                    feature.name,
                    part.stream
                );
            }
            outputs.push(Output {
                from,
                to: from + dim,
                part: Some(part.part),
                as_it_came: part.as_it_came,
                take: part.take,
                times,
                ..whole(&part.stream)
            });
            from += dim;
        }
    }
    // If two outputs have the same stream, such as values at targets and the samples themselves, the feature's name is put before
    // it.
    let names: Vec<String> = outputs.iter().map(|output| output.stream.clone()).collect();
    for (i, output) in outputs.iter_mut().enumerate() {
        let is_beside = [FRAME, EPISODE, TASK_STREAM].contains(&names[i].as_str());
        if is_beside || names.iter().filter(|name| **name == names[i]).count() > 1 {
            output.stream = format!("{}.{}", features[output.feature].name, output.stream);
        }
    }
    Ok(outputs)
}

impl crate::convert::Source for Source {
    fn next_into(&mut self, message: &mut Message) -> eyre::Result<Option<&str>> {
        while self.waiting.is_empty() {
            if !self.frame()? {
                return Ok(None);
            }
        }
        let Some((stream, mut next)) = self.waiting.pop_front() else {
            return Ok(None);
        };
        std::mem::swap(message, &mut next);
        self.free.push(next);
        self.given = stream;
        Ok(Some(&self.given))
    }

    fn remarks(&mut self) -> Remarks {
        let mut notes = Vec::new();
        if self.target.is_none() {
            notes.push(self.clock.note());
        }
        for output in self.outputs.iter().filter(|output| output.nonfinite > 0) {
            notes.push(format!(
                "`{}`: {} frames have values that are not finite; they are kept",
                output.stream, output.nonfinite
            ));
        }
        Remarks {
            problems: std::mem::take(&mut self.problems),
            notes,
        }
    }

    fn streams(&self) -> Option<Vec<String>> {
        let beside = [FRAME, EPISODE, TASK_STREAM].map(str::to_owned);
        let outputs = self.outputs.iter().map(|output| output.stream.clone());
        Some(outputs.chain(beside).collect())
    }

    /// Returns the name and the text of a configuration that makes the dataset from the recording again.
    fn beside(&self) -> Option<(&'static str, String)> {
        let dataset = self.reader.dataset();
        let text = quoted;
        let mut modalities = format!("    - {{ input: {FRAME}, dim: 2, interpolation: previous, max_age_ms: 0 }}\n");
        let mut features = String::new();
        for output in &self.outputs {
            let (about, stream) = (&dataset.features[output.feature], text(&output.stream));
            let age = match (output.as_it_came, output.take) {
                (false, _) => ", max_age_ms: 0",
                (true, Some(Take::Next)) => ", take: next",
                (true, _) => "",
            };
            // Fuse drops a sample with a NaN, so the feature is taken as a stream, which keeps the sample.
            let is_finite = output.nonfinite == 0 || output.to - output.from < about.len();
            let is_number = about.kind == Kind::Numbers(Dtype::Float32) && about.shape.len() == 1;
            let is_modality = is_number && is_finite && output.times.is_none() && output.take.is_none();
            // Writing to a string can't fail.
            if is_modality {
                let dim = output.to - output.from;
                let _ = writeln!(
                    modalities,
                    "    - {{ input: {stream}, dim: {dim}, interpolation: previous{age} }}"
                );
            }
            if output.from > 0 {
                continue;
            }
            let name = text(&about.name);
            let origin = match (&about.kind, output.times) {
                (Kind::Image, _) => format!("images: {stream}{age}"),
                (_, Some(_)) => format!("window: {stream}, samples: {}", about.shape[0]),
                (Kind::Bool, _) => format!("stream: {stream}, dtype: bool{age}"),
                _ if is_modality => {
                    let parts = self.outputs.iter().filter(|part| part.feature == output.feature);
                    let parts: Vec<String> = parts.map(|part| text(&part.stream)).collect();
                    format!("modalities: [{}]", parts.join(", "))
                }
                _ => format!("stream: {stream}{age}"),
            };
            let _ = writeln!(features, "    - {{ name: {name}, {origin} }}");
        }
        let robot = dataset
            .robot_type
            .as_ref()
            .map_or(String::new(), |robot| format!("  robot_type: {}\n", text(robot)));
        let truth = self.target.is_some();
        let on_invalid = match self.outputs.iter().all(|output| output.nonfinite == 0) {
            true => "",
            false => "  on_invalid: fill\n",
        };
        let fps = dataset.fps;
        let folder = path(&self.folder);
        let config = format!(
            "# Makes the dataset {folder} again: robocache convert RECORDING DATASET --to lerobot --config THIS\n\
             fuse:\n  rate_hz: {fps}\n  trigger: {{ stream: {FRAME} }}\n  modalities:\n{modalities}\
             lerobot:\n  fps: {fps}\n{robot}  episodes: {EPISODE}\n  tasks: {TASK_STREAM}\n  episode_gap_ms: 1.0e+12\n  truth: {truth}\n{on_invalid}\
             \x20 features:\n{features}"
        );
        Some(("robocache.yml", config))
    }
}
