//! Sink that writes a dataset. The operations of a configuration make observations from the messages, and each observation
//! becomes a frame. It waits until every stream is past its target, unless a stream is silent for too long.

mod features;
mod frames;

use super::config::{LerobotConfig, OnInvalid};
use super::counts::Counts;
use super::observed::ObservationQueue;
use super::plan::{Plan, measured_rate};
use super::settings::Settings;
use super::stream::FeatureStream;
use crate::convert::{Refused, Remarks};
use eyre::{OptionExt, bail};
use robocache::app::{Change, Config, Graph};
use robocache::formats::lerobot::{Version, Writer, Written};
use robocache::ops::align::AlignConfig;
use robocache::stream::{Message, MetadataValue};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Maximum length of the queue of observations that wait for silent streams, as time at the frame rate, s.
const SILENT_S: usize = 10;

/// Number of observations that are queued before the frame rate is measured from their targets.
const MEASURED: usize = 100;

/// The key of a message's metadata that holds the task.
pub const TASK: &str = "task";

pub struct Sink {
    folder: PathBuf,
    version: Version,
    config: LerobotConfig,
    fuse: AlignConfig,
    /// Frames a second; `None` until the rate is given or measured.
    fps: Option<u32>,
    gap_ns: i64,
    /// The period of the time grid, ns; `None` if the samples of a stream are the targets.
    grid_ns: Option<i64>,
    graph: Graph,
    inputs: Vec<String>,
    observed: ObservationQueue,
    plan: Vec<Plan>,
    streams: Vec<FeatureStream>,
    /// Names of the elements of each input's samples, by the input, from its first message.
    names: HashMap<String, Vec<String>>,
    begun: Vec<i64>,
    tasks: Vec<(i64, String)>,
    /// The stamp of the last message, ns.
    now_ns: i64,
    /// Writer of the dataset; `None` before the first frame, when the features are not known yet.
    writer: Option<Writer>,
    last: Option<PreviousFrame>,
    counts: Counts,
    /// Reason for the first refused message of each stream that has any.
    refused: Vec<String>,
    /// Warnings about the kinematic chains that convert values.
    chain_warnings: Vec<String>,
    /// Number of messages of each stream that no input and no feature of the configuration uses, by the stream's name.
    unused: BTreeMap<String, u64>,
    /// Scratch buffer: the bytes of the feature that is being written.
    bytes: Vec<u8>,
}

/// The previous frame, and the values of its episode that `on_invalid: hold` repeats.
struct PreviousFrame {
    target_ns: i64,
    epoch: i64,
    begun: usize,
    /// Last valid bytes of each modality, then of each stream, in this episode; for a window also the times of its samples, ns.
    /// `None` if no value was valid yet.
    held: Vec<Option<(Vec<u8>, Vec<i64>)>>,
}

impl Sink {
    /// Creates the sink. `streams` are the streams of the source, `None` if they are not known. An input that is not among them is
    /// closed, so that no observation waits for it.
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
        let of_file = Config::read(file)?;
        let of_chain = |name: &str| {
            let warnings = of_file.chain_warnings(name).into_iter();
            warnings
                .map(|warning| format!("chain `{name}`: {warning}"))
                .collect::<Vec<_>>()
        };
        let mut chain_warnings: Vec<String> = config.chains().flat_map(of_chain).collect();
        chain_warnings.dedup();
        own.iter_mut()
            .for_each(|stream| stream.keeps_nonfinite = config.on_invalid == OnInvalid::Fill);
        let inputs: Vec<String> = graph.external_inputs().map(|(input, _)| input.to_owned()).collect();
        let mut observed = ObservationQueue::new(fused);
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
            chain_warnings,
            unused: BTreeMap::new(),
            bytes: Vec::new(),
            config,
            fuse,
        })
    }

    /// Makes frames of the queued observations whose samples have all arrived, or that have waited too long.
    fn write_due(&mut self) -> eyre::Result<()> {
        if self.fps.is_none() && self.observed.due.len() <= MEASURED {
            return Ok(());
        }
        let fps = self.know_fps()?;
        while let Some(next) = self.observed.due.front() {
            let target_ns = next.target_ns;
            let is_long = self.observed.due.len() > SILENT_S * fps as usize;
            // A sample with the time of the target may still come, such as the beginning of an episode.
            let is_past = self.now_ns > target_ns && self.streams.iter().all(|stream| stream.is_past(target_ns));
            if !(is_past || is_long) {
                break;
            }
            self.write_next()?;
        }
        Ok(())
    }

    /// Makes a frame of the oldest queued observation, or leaves it out.
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

    /// Returns the number of frames a second. If the configuration does not give it, it is measured once, from the
    /// queued observations.
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

    /// Makes frames of the queued observations of earlier epochs: the clock was set, so no more samples for them will arrive.
    fn write_earlier(&mut self) -> eyre::Result<()> {
        let epochs: Vec<i64> = self.observed.due.iter().map(|observation| observation.epoch).collect();
        let is_set = epochs.first() != epochs.last();
        for _ in epochs.iter().filter(|epoch| !is_set || Some(*epoch) != epochs.last()) {
            self.write_next()?;
        }
        Ok(())
    }

    fn notes(&self, written: &Written) -> Vec<String> {
        let mut notes = self.counts.notes(written, self.fps, self.grid_ns.is_some());
        for stream in &self.streams {
            for (count, what) in [
                match stream.keeps_nonfinite {
                    false => (stream.nonfinite, "dropped that are not finite"),
                    true => (stream.nonfinite, "are not finite, and stand as they came"),
                },
                (stream.late, "came after later frames were written, which lack them"),
            ] {
                if count > 0 {
                    notes.push(format!("`{}`: {count} samples {what}", stream.name));
                }
            }
        }
        for stream in &self.streams {
            if let Some(by_chain) = &stream.by_chain
                && let Some((refused, why)) = by_chain.lost()
            {
                notes.push(format!(
                    "`{}`: {refused} samples left out that `{}` could not convert, such as {why}",
                    stream.feature,
                    by_chain.key()
                ));
            }
        }
        for stream in &self.streams {
            let Some(by_chain) = &stream.by_chain else { continue };
            let doubts = by_chain.implausible().into_iter().chain(by_chain.unnamed());
            notes.extend(doubts.map(|doubt| format!("`{}`: {doubt}", stream.feature)));
            if let Some((changes, stamp_ns)) = by_chain.changes() {
                let frame = match stream.changed_frame {
                    Some(frame) => format!("in frame {frame}"),
                    None => "in no frame".to_owned(),
                };
                notes.push(format!(
                    "`{}`: {changes} changes of posture, where `{}` can't follow from the joints before; the first is at {stamp_ns} ns, {frame}",
                    stream.feature,
                    by_chain.key()
                ));
            }
        }
        notes.extend_from_slice(&self.chain_warnings);
        for (name, messages) in &self.unused {
            notes.push(format!(
                "`{name}`: {messages} messages are not part of the dataset: nothing in the configuration takes them"
            ));
        }
        for (at, count) in self.graph.faults().filter(|(_, count)| *count > 0) {
            notes.push(format!("{at}: {count} faults and warnings"));
        }
        notes
    }

    /// Lists the inputs whose messages or samples were refused for their length, one line each.
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
                let fields = message.header.fields.get().unwrap_or_default();
                self.names.insert(name.to_owned(), fields.to_vec());
            }
            self.graph.message(input, message, &mut self.observed);
        }
        if self.config.episodes.as_deref() == Some(name) {
            for &stamp_ns in message.stamps() {
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

    fn finish(&mut self) -> eyre::Result<Remarks> {
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
        Ok(Remarks {
            problems: self.problems(),
            notes: self.notes(&written),
        })
    }
}
