//! Messages to a dataset: the operations of a configuration make observations of them, and each observation becomes a frame.

use super::config::{FeatureConfig, LerobotConfig, OnInvalid};
use super::counts::Counts;
use super::observed::{Observation, Observed};
use super::origin;
use super::plan::{Plan, measured_rate};
use super::settings::{Settings, longest};
use super::stream::{Found, Stream, What};
use crate::convert::{Refused, Told};
use eyre::{OptionExt, bail};
use robocache::app::{Change, Graph};
use robocache::formats::lerobot::{Dataset, Feature, Kind, Version, Writer, Written};
use robocache::ops::align::AlignConfig;
use robocache::prelude::Dtype;
use robocache::stream::{Message, MetadataValue};
use robocache::time::Interpolation;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A stream that has been silent for so many seconds of frames is not waited for.
const SILENT_S: usize = 10;

/// So many targets are waited for where their rate has to be measured.
const MEASURED: usize = 100;

/// The key of a message's metadata that says what is done.
pub const TASK: &str = "task";

pub struct Sink {
    folder: PathBuf,
    version: Version,
    config: LerobotConfig,
    fuse: AlignConfig,
    /// Frames a second, once that is known.
    fps: Option<u32>,
    gap_ns: i64,
    /// The period of the grid; `None` where samples are the targets.
    grid_ns: Option<i64>,
    graph: Graph,
    inputs: Vec<String>,
    observed: Observed,
    plan: Vec<Plan>,
    streams: Vec<Stream>,
    /// Names of elements by modality, as its first message has them.
    names: HashMap<String, Vec<String>>,
    begun: Vec<i64>,
    tasks: Vec<(i64, String)>,
    /// The stamp of the last message.
    now_ns: i64,
    /// Made with the first frame: only then the features are known.
    writer: Option<Writer>,
    last: Option<Last>,
    counts: Counts,
    /// Why messages are no samples, the first of each stream.
    refused: Vec<String>,
    /// How many messages came of streams that the dataset has no use for.
    unused: BTreeMap<String, u64>,
    /// The frame at hand, a part after the other.
    bytes: Vec<u8>,
}

/// The frame before.
struct Last {
    target_ns: i64,
    epoch: i64,
    begun: usize,
    /// Of each modality, then of each stream: the last valid value of this episode, with its times where it is a window.
    held: Vec<Option<(Vec<u8>, Vec<i64>)>>,
}

impl Sink {
    /// `streams` are those that there will be, where that is known.
    pub fn create(
        folder: &Path,
        version: Version,
        config: Option<&Path>,
        streams: Option<&[String]>,
    ) -> eyre::Result<Self> {
        let file = config.ok_or_eyre(
            "a dataset of LeRobot is made by a configuration: --config FILE with a section `fuse:`, which makes the frames, and \
             optionally `lerobot:`",
        )?;
        let Settings {
            config,
            fuse,
            fused,
            fps,
            gap_ns,
            grid_ns,
            mut graph,
            plan,
            streams: mut own,
        } = Settings::read(file)?;
        own.iter_mut()
            .for_each(|stream| stream.keeps_nonfinite = config.on_invalid == OnInvalid::Fill);
        let inputs: Vec<String> = graph.external_inputs().map(|(input, _)| input.to_owned()).collect();
        let mut observed = Observed::new(fused);
        graph.gather_diagnostics();
        graph.wake(Instant::now(), true, &mut observed)?;
        for (i, input) in inputs.iter().enumerate() {
            if streams.is_some_and(|streams| !streams.contains(input)) {
                graph.changed(i, Change::Closed, &mut observed);
            }
        }
        Ok(Self {
            folder: folder.to_owned(),
            version,
            fps,
            gap_ns,
            grid_ns,
            graph,
            inputs,
            observed,
            plan,
            streams: own,
            names: HashMap::new(),
            begun: Vec::new(),
            tasks: Vec::new(),
            now_ns: i64::MIN,
            writer: None,
            last: None,
            counts: Counts::default(),
            refused: Vec::new(),
            unused: BTreeMap::new(),
            bytes: Vec::new(),
            config,
            fuse,
        })
    }

    /// Makes frames of the observations for which everything has come, or that have waited for long.
    fn write_due(&mut self) -> eyre::Result<()> {
        if self.fps.is_none() && self.observed.due.len() <= MEASURED {
            return Ok(());
        }
        let fps = self.know_fps()?;
        while let Some(next) = self.observed.due.front() {
            let target_ns = next.target_ns;
            let is_long = self.observed.due.len() > SILENT_S * fps as usize;
            // What has the time of the target may still come, such as the beginning of an episode.
            let is_past = self.now_ns > target_ns && self.streams.iter().all(|stream| stream.is_past(target_ns));
            if !(is_past || is_long) {
                break;
            }
            self.write_next()?;
        }
        Ok(())
    }

    /// Makes a frame of the observation that has waited longest.
    fn write_next(&mut self) -> eyre::Result<()> {
        let fps = self.know_fps()?;
        if let Some(observation) = self.observed.due.pop_front() {
            self.frame(&observation, fps)?;
            for stream in &mut self.streams {
                stream.end_frame(observation.target_ns);
            }
            self.observed.free.push(observation);
        }
        Ok(())
    }

    /// Measures how many frames a second there are, where nothing else says it.
    fn know_fps(&mut self) -> eyre::Result<u32> {
        if let Some(fps) = self.fps {
            return Ok(fps);
        }
        let due = self.observed.due.iter();
        let targets_ns: Vec<i64> = due.map(|observation| observation.target_ns).collect();
        let (fps, rate_hz) = measured_rate(&targets_ns)?;
        self.counts.measured_hz = Some(rate_hz);
        self.fps = Some(fps);
        Ok(fps)
    }

    /// Makes frames of what waits from before a clock was set, as nothing more of then will come.
    fn write_earlier(&mut self) -> eyre::Result<()> {
        let epochs: Vec<i64> = self.observed.due.iter().map(|observation| observation.epoch).collect();
        let is_set = epochs.first() != epochs.last();
        for _ in epochs.iter().filter(|epoch| !is_set || Some(*epoch) != epochs.last()) {
            self.write_next()?;
        }
        Ok(())
    }

    fn frame(&mut self, observation: &Observation, fps: u32) -> eyre::Result<()> {
        self.counts.observations += 1;
        let target_ns = observation.target_ns;
        let found: Vec<Found> = self.streams.iter().map(|stream| stream.find(target_ns)).collect();
        let begun = self.begun.partition_point(|&time_ns| time_ns <= target_ns);
        let begins = self.last.as_ref().is_none_or(|last| {
            let step = target_ns.saturating_sub(last.target_ns);
            observation.epoch != last.epoch || begun != last.begun || step > self.gap_ns || step <= 0
        });
        let modalities = self.fuse.modalities.len();
        let is_used = |part: usize| {
            self.plan.iter().any(|plan| match plan {
                Plan::Modalities(used) => used.contains(&part),
                Plan::Stream(stream) => part == modalities + stream,
            })
        };
        let parts = modalities + self.streams.len();
        let is_valid = |part: usize| match part.checked_sub(modalities) {
            None => observation.valid[part],
            Some(stream) => found[stream].is_valid,
        };
        let invalid: Vec<usize> = (0..parts).filter(|&part| is_used(part) && !is_valid(part)).collect();
        for &part in &invalid {
            let name = self.part_name(part).to_owned();
            *self.counts.invalid.entry(name).or_default() += 1;
        }
        let held = |part: usize| !begins && self.last.as_ref().is_some_and(|last| last.held[part].is_some());
        let is_kept = match self.config.on_invalid {
            OnInvalid::Refuse => invalid.is_empty(),
            OnInvalid::Hold => invalid.iter().all(|&part| held(part)),
            OnInvalid::Fill => self.streams.iter().all(|stream| stream.feature().is_some()),
        };
        if !is_kept {
            self.counts.left_out += 1;
            return Ok(());
        }
        self.open(fps)?;
        let step_ns = longest(self.grid_ns.unwrap_or(1_000_000_000 / i64::from(fps)));
        self.episode(observation, begins, begun, step_ns)?;
        if !invalid.is_empty() {
            match self.config.on_invalid {
                OnInvalid::Hold => self.counts.held += 1,
                _ => self.counts.filled += 1,
            }
        }
        self.write(observation, &found, &invalid)
    }

    /// Ends the episode before a frame that begins another one. A step that is longer than `step_ns` is not that of frames.
    fn episode(&mut self, observation: &Observation, begins: bool, begun: usize, step_ns: i64) -> eyre::Result<()> {
        let Some(writer) = &mut self.writer else {
            return Ok(());
        };
        if begins {
            writer.end_episode()?;
        }
        let parts = self.fuse.modalities.len() + self.streams.len();
        match &mut self.last {
            Some(last) if !begins => {
                let step = observation.target_ns - last.target_ns;
                self.counts.holes += u64::from(step > step_ns);
                last.target_ns = observation.target_ns;
            }
            last => {
                *last = Some(Last {
                    target_ns: observation.target_ns,
                    epoch: observation.epoch,
                    begun,
                    held: (0..parts).map(|_| None).collect(),
                });
            }
        }
        Ok(())
    }

    fn write(&mut self, observation: &Observation, found: &[Found], invalid: &[usize]) -> eyre::Result<()> {
        let (Some(writer), Some(last)) = (&mut self.writer, &mut self.last) else {
            return Ok(());
        };
        let modalities = self.fuse.modalities.len();
        let holds = self.config.on_invalid == OnInvalid::Hold;
        let mut values = |part: usize, out: &mut Vec<u8>| {
            let begin = out.len();
            if holds && invalid.contains(&part) {
                let (bytes, times) = last.held[part].clone().unwrap_or_default();
                out.extend_from_slice(&bytes);
                return times;
            }
            let times = match part.checked_sub(modalities) {
                None => {
                    out.extend_from_slice(observation.of(part));
                    Vec::new()
                }
                Some(stream) => {
                    self.streams[stream].write(&found[stream], out);
                    match self.streams[stream].what {
                        What::Window(_) => self.streams[stream].times(&found[stream]).collect(),
                        _ => Vec::new(),
                    }
                }
            };
            if holds {
                last.held[part] = Some((out[begin..].to_vec(), times.clone()));
            }
            times
        };
        let mut feature = 0;
        let mut windows = Vec::new();
        for plan in &self.plan {
            self.bytes.clear();
            match plan {
                Plan::Modalities(parts) => {
                    for &part in parts {
                        values(part, &mut self.bytes);
                    }
                }
                Plan::Stream(stream) => {
                    let times = values(modalities + stream, &mut self.bytes);
                    if !times.is_empty() {
                        windows.push(times);
                    }
                }
            }
            writer.set_bytes(feature, &self.bytes)?;
            feature += 1;
        }
        if self.config.truth {
            let ages = observation
                .age_ns
                .iter()
                .map(|&age_ns| Some(age_ns).filter(|&age_ns| age_ns >= 0));
            let of_streams = found
                .iter()
                .map(|found| found.time_ns.map(|time_ns| observation.target_ns - time_ns));
            let ages: Vec<Option<i64>> = ages.chain(of_streams).collect();
            let valid: Vec<u8> = observation
                .valid
                .iter()
                .copied()
                .chain(found.iter().map(|found| found.is_valid))
                .map(u8::from)
                .collect();
            let age_ns = ages.iter().map(|age_ns| age_ns.unwrap_or(-1)).collect();
            let capture_ns = ages
                .iter()
                .map(|age_ns| age_ns.map_or(-1, |age_ns| observation.target_ns - age_ns))
                .collect();
            let integers = [vec![observation.target_ns], age_ns, capture_ns, vec![observation.epoch]]
                .into_iter()
                .chain(windows);
            writer.set_bytes(feature, &valid)?;
            for (i, list) in integers.enumerate() {
                let bytes: Vec<u8> = list.iter().flat_map(|number| number.to_le_bytes()).collect();
                writer.set_bytes(feature + 1 + i, &bytes)?;
            }
        }
        let known = self
            .tasks
            .partition_point(|(time_ns, _)| *time_ns <= observation.target_ns);
        let task = known
            .checked_sub(1)
            .map(|i| self.tasks[i].1.as_str())
            .or(self.config.task.as_deref());
        self.counts.without_task |= task.is_none();
        writer.end_frame(task.unwrap_or_default())?;
        Ok(())
    }

    /// Makes the dataset, if it is not there.
    fn open(&mut self, fps: u32) -> eyre::Result<()> {
        if self.writer.is_some() {
            return Ok(());
        }
        let mut features = Vec::new();
        for (plan, config) in self.plan.iter().zip(self.features()) {
            features.push(match plan {
                Plan::Stream(stream) => self.streams[*stream]
                    .feature()
                    .ok_or_eyre("a stream without a sample")?,
                Plan::Modalities(parts) => self.feature_of(parts, config),
            });
        }
        if self.config.truth {
            features.extend(self.truth());
        }
        let dataset = Dataset {
            version: self.version,
            fps,
            robot_type: self.config.robot_type.clone(),
            features,
        };
        self.writer = Some(Writer::create(&self.folder, dataset)?);
        Ok(())
    }

    fn features(&self) -> &[FeatureConfig] {
        &self.config.features
    }

    fn feature_of(&self, parts: &[usize], config: &FeatureConfig) -> Feature {
        let dim = parts.iter().map(|&part| self.fuse.modalities[part].dim).sum::<usize>();
        let names = config.names.clone().unwrap_or_else(|| {
            let of = parts
                .iter()
                .map(|&part| self.names.get(&self.fuse.modalities[part].input));
            let known: Option<Vec<&Vec<String>>> = of.collect();
            let names: Vec<String> = known.into_iter().flatten().flatten().cloned().collect();
            if names.len() == dim { names } else { Vec::new() }
        });
        Feature::new(&config.name, Kind::Numbers(Dtype::Float32), [dim]).with_names(names)
    }

    /// The features that say how true the others are.
    fn truth(&self) -> Vec<Feature> {
        let parts = self.fuse.modalities.len() + self.streams.len();
        let names: Vec<&str> = (0..parts).map(|part| self.part_name(part)).collect();
        let of = |name: &str, kind: Kind, shape: usize| Feature::new(name, kind, [shape]);
        let whole = Kind::Numbers(Dtype::Int64);
        let mut features = vec![
            of(origin::VALID, Kind::Bool, parts).with_names(names.clone()),
            of(origin::TARGET_NS, whole.clone(), 1),
            of(origin::AGE_NS, whole.clone(), parts).with_names(names.clone()),
            of(origin::CAPTURE_NS, whole.clone(), parts).with_names(names),
            of(origin::EPOCH, whole.clone(), 1),
        ];
        for stream in &self.streams {
            if let What::Window(samples) = stream.what {
                features.push(Feature::new(
                    origin::times_of(&stream.feature),
                    whole.clone(),
                    [samples],
                ));
            }
        }
        features
    }

    /// A modality's input, or the feature of a stream.
    fn part_name(&self, part: usize) -> &str {
        match part.checked_sub(self.fuse.modalities.len()) {
            None => &self.fuse.modalities[part].input,
            Some(stream) => &self.streams[stream].feature,
        }
    }

    /// Where the features come from, for whoever reads the dataset back.
    fn origins(&self) -> origin::Origins {
        let of = |(plan, config): (&Plan, &FeatureConfig)| {
            let parts = match plan {
                Plan::Modalities(parts) => parts.clone(),
                Plan::Stream(stream) => vec![self.fuse.modalities.len() + stream],
            };
            origin::Origin {
                feature: config.name.clone(),
                streams: parts.into_iter().map(|part| self.origin_of(part)).collect(),
            }
        };
        origin::Origins {
            features: self.plan.iter().zip(self.features()).map(of).collect(),
        }
    }

    fn origin_of(&self, part: usize) -> origin::Part {
        match part.checked_sub(self.fuse.modalities.len()) {
            None => {
                let modality = &self.fuse.modalities[part];
                let is_previous =
                    |of: Option<Interpolation>| of.or(modality.interpolation) == Some(Interpolation::Previous);
                origin::Part {
                    stream: modality.input.clone(),
                    part,
                    dim: Some(modality.dim),
                    as_it_came: match modality.groups.as_slice() {
                        [] => is_previous(None),
                        groups => groups.iter().all(|group| is_previous(group.interpolation)),
                    },
                    take: None,
                    samples: None,
                }
            }
            Some(stream) => {
                let stream = &self.streams[stream];
                let samples = if let What::Window(samples) = stream.what {
                    Some(samples)
                } else {
                    None
                };
                origin::Part {
                    stream: stream.name.clone(),
                    part,
                    dim: None,
                    as_it_came: true,
                    take: samples.is_none().then_some(stream.take),
                    samples,
                }
            }
        }
    }

    fn notes(&self, written: &Written) -> Vec<String> {
        let mut notes = self.counts.notes(written, self.fps, self.grid_ns.is_some());
        for stream in &self.streams {
            for (count, what) in [
                match stream.keeps_nonfinite {
                    false => (stream.nonfinite, "dropped that are not finite"),
                    true => (stream.nonfinite, "are not finite, and stand as they came"),
                },
                (stream.late, "came behind frames that are later, which lack them"),
            ] {
                if count > 0 {
                    notes.push(format!("`{}`: {count} samples {what}", stream.name));
                }
            }
        }
        for (name, messages) in &self.unused {
            notes.push(format!(
                "`{name}`: {messages} messages are no part of the dataset: nothing in the configuration takes them"
            ));
        }
        for (at, count) in self.graph.faults().filter(|(_, count)| *count > 0) {
            notes.push(format!("{at}: {count} faults and warnings"));
        }
        notes
    }

    /// The inputs of which samples were refused for their length.
    fn problems(&mut self) -> Vec<String> {
        let report = self.graph.report(Instant::now());
        let rows = report.into_iter().flat_map(|report| report.inputs);
        let refused = rows.filter(|row| row.dropped_length > 0).map(|row| {
            let (input, count) = (row.input, row.dropped_length);
            format!("`{input}`: {count} messages or samples are refused: they do not have the length or the shape that the configuration says")
        });
        refused.collect()
    }
}

impl crate::convert::Sink for Sink {
    fn append(&mut self, name: &str, message: &Message) -> Result<(), Refused> {
        let stamp_ns = message.timestamp_ns();
        if let Some(input) = self.inputs.iter().position(|input| input == name) {
            if !self.names.contains_key(name) {
                self.names.insert(name.to_owned(), message.header.fields.to_vec());
            }
            self.graph.message(input, message, &mut self.observed);
        }
        if self.config.episodes.as_deref() == Some(name) {
            let stamps: &[i64] = match message.header.timestamps_ns.as_slice() {
                [] => &[stamp_ns],
                stamps => stamps,
            };
            for &stamp_ns in stamps {
                let is_late = self.last.as_ref().is_some_and(|last| stamp_ns <= last.target_ns);
                self.counts.late_begins += u64::from(is_late);
                let at = self.begun.partition_point(|&time_ns| time_ns <= stamp_ns);
                self.begun.insert(at, stamp_ns);
            }
        }
        if self.config.tasks.as_deref() == Some(name) {
            let Some(MetadataValue::String(task)) = message.header.other.get(TASK) else {
                return Err(Refused::Message(format!(
                    "stream `{name}`: a message without the text `{TASK}` in its metadata"
                )));
            };
            let at = self.tasks.partition_point(|(time_ns, _)| *time_ns <= stamp_ns);
            self.tasks.insert(at, (stamp_ns, task.clone()));
        }
        let mut is_used = [&self.config.episodes, &self.config.tasks]
            .into_iter()
            .any(|of| of.as_deref() == Some(name));
        is_used |= self.inputs.iter().any(|input| input == name);
        is_used |= self.streams.iter().any(|stream| stream.name == name);
        if !is_used {
            *self.unused.entry(name.to_owned()).or_default() += 1;
        }
        let mut refused = None;
        for i in 0..self.streams.len() {
            if self.streams[i].name != name {
                continue;
            }
            if self.streams[i].is_reset(message) {
                self.write_earlier().map_err(Refused::All)?;
                self.streams[i].clear();
            }
            if let Err(error) = self.streams[i].push(message) {
                let why = format!("stream `{name}`: {error}");
                if !self
                    .refused
                    .iter()
                    .any(|known| known.starts_with(&format!("stream `{name}`:")))
                {
                    self.refused.push(why.clone());
                }
                refused = Some(Refused::Message(why));
            }
        }
        self.now_ns = stamp_ns;
        self.write_due().map_err(Refused::All)?;
        refused.map_or(Ok(()), Err)
    }

    fn finish(&mut self) -> eyre::Result<Told> {
        self.graph.close_all(&mut self.observed);
        self.graph.finish(&mut self.observed)?;
        while !self.observed.due.is_empty() {
            self.write_next()?;
        }
        let Some(writer) = self.writer.take() else {
            let silent = self.streams.iter().filter(|stream| stream.feature().is_none());
            let silent = silent.map(|stream| format!("no sample came of `{}`", stream.name));
            let reasons = self
                .refused
                .iter()
                .cloned()
                .chain(silent)
                .chain(self.notes(&Written::default()));
            let reasons: Vec<String> = reasons.collect();
            bail!("no frame can be made: {}", reasons.join("; "));
        };
        let written = writer.finish()?;
        if self.config.truth {
            self.origins().write(&self.folder)?;
        }
        Ok(Told {
            problems: self.problems(),
            notes: self.notes(&written),
        })
    }
}
