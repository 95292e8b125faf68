//! Finds streams of a configuration whose stamps are ahead of, or behind, those of the other streams, by their arrival times.
//! Messages without arrival times can't be judged, and are never reported.

use crate::config::{Operation, Section};
use robocache::ops::offsets::{Offset, Offsets, Severity};
use robocache::stream::Message;
use robocache::time::ms_to_ns;
use robocache::time::{ns_to_ms, ns_to_s};
use serde::Serialize;
use std::collections::HashMap;

/// The streams that may be off.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Args {
    /// A stream whose stamps may differ from those of the other streams by any amount; may be given several times
    #[arg(long, value_name = "STREAM")]
    pub allow_offset: Vec<String>,
}

/// Stream whose stamps are ahead of, or behind, those of the other streams.
#[derive(Serialize)]
pub struct StreamOffset {
    pub stream: String,
    /// Time by which the stream's stamps are ahead of those of the other streams, beyond `latency_ms`, ms; negative if they are
    /// behind.
    pub ahead_ms: f64,
    /// Time from the first message of the recording to the first one whose stamp is ahead by `ahead_ms`, s.
    pub from_s: f64,
    pub is_refused: bool,
    pub text: String,
}

/// Collector of the stamps and arrival times of streams. It finds the streams whose stamps are ahead of, or behind, those of
/// the other streams.
#[derive(Default)]
pub struct Judge {
    offsets: Offsets,
    by_name: HashMap<String, Option<usize>>,
}

impl Judge {
    /// Creates a judge of `streams`, each with its latency, ns. The streams that `--allow-offset` names are left out.
    pub fn new(streams: impl IntoIterator<Item = (String, i64)>, args: &Args) -> Self {
        let mut judged: Vec<(String, i64)> = Vec::new();
        for (name, latency_ns) in streams {
            match judged.iter_mut().find(|(known, _)| *known == name) {
                // Of a stream that is taken twice, the greater latency counts.
                Some((_, known)) if known.saturating_abs() < latency_ns.saturating_abs() => *known = latency_ns,
                Some(_) => {}
                None if args.allow_offset.contains(&name) => {}
                None => judged.push((name, latency_ns)),
            }
        }
        Self {
            offsets: Offsets::new(judged),
            by_name: HashMap::new(),
        }
    }

    /// Adds a message of a stream; a stream that is not judged is ignored.
    pub fn message(&mut self, stream: &str, message: &Message) {
        let at = match self.by_name.get(stream) {
            Some(&at) => at,
            None => {
                let at = self.offsets.index(stream);
                self.by_name.insert(stream.to_owned(), at);
                at
            }
        };
        if let Some(at) = at {
            self.offsets.message(at, message);
        }
    }

    /// Lists the streams whose stamps are ahead of, or behind, those of the other streams, by the messages so far.
    pub fn offsets(&self) -> Vec<StreamOffset> {
        self.offsets.judge().into_iter().map(StreamOffset::from).collect()
    }
}

impl From<Offset> for StreamOffset {
    fn from(offset: Offset) -> Self {
        let is_refused = offset.severity() == Severity::Refused;
        let allow = format!("; `--allow-offset {}` takes it as it is", offset.stream);
        Self {
            ahead_ms: ns_to_ms(offset.ahead_ns),
            from_s: ns_to_s(offset.from_ns),
            is_refused,
            text: format!("{offset}{allow}"),
            stream: offset.stream,
        }
    }
}

/// Lists the streams whose stamps the operations use, each with its latency, ns. Inputs of `clock` are left out, as `clock`
/// changes their stamps.
pub fn latencies(operations: &[Operation]) -> Vec<(String, i64)> {
    let mut taken: Vec<(String, f64)> = Vec::new();
    let mut stamped: Vec<String> = Vec::new();
    for operation in operations {
        match &operation.section {
            Section::Observe(config) => {
                taken.extend(config.modalities.iter().map(|it| (it.input.clone(), it.latency_ms)));
                taken.extend(config.attach.iter().map(|it| (it.input.clone(), it.latency_ms)));
            }
            Section::Group(config) => taken.extend(config.inputs.iter().map(|it| (it.input.clone(), it.latency_ms))),
            Section::Voxelize(config) => {
                let later_ms = latency_ms(operations, &operation.output("voxels")).unwrap_or(0.0);
                taken.extend(
                    config
                        .inputs
                        .iter()
                        .map(|it| (it.input.clone(), it.latency_ms + later_ms)),
                );
            }
            Section::Map(config) => {
                let mut outputs = config.outputs.iter().map(|product| operation.output(product.name()));
                let later_ms = outputs
                    .find_map(|output| latency_ms(operations, &output))
                    .unwrap_or(0.0);
                let frames = config
                    .inputs
                    .iter()
                    .map(|it| (it.input.clone(), it.latency_ms + later_ms));
                let poses = config
                    .poses
                    .values()
                    .map(|it| (it.input.clone(), it.latency_ms + later_ms));
                taken.extend(frames.chain(poses));
            }
            Section::Kinematics(config) => {
                for entry in &config.entries {
                    let mut outputs = entry.outputs().map(|output| operation.output(&output));
                    let later_ms = outputs
                        .find_map(|output| latency_ms(operations, &output))
                        .unwrap_or(0.0);
                    taken.push((entry.input.clone(), later_ms));
                }
            }
            Section::Clock(config) => stamped.extend(config.inputs.iter().map(|it| it.input.clone())),
            Section::Record(_) | Section::Replay(_) | Section::Resample | Section::Sim(_) => {}
        }
    }
    let made: Vec<String> = operations
        .iter()
        .flat_map(|operation| match &operation.section {
            Section::Voxelize(_) => vec![operation.output("voxels")],
            Section::Map(config) => config
                .outputs
                .iter()
                .map(|product| operation.output(product.name()))
                .collect(),
            Section::Kinematics(config) => config.outputs().map(|output| operation.output(&output)).collect(),
            _ => Vec::new(),
        })
        .collect();
    // Outputs of operations are not in the recording.
    let taken = taken
        .into_iter()
        .filter(|(name, _)| !stamped.contains(name) && !made.contains(name));
    taken.map(|(name, ms)| (name, ms_to_ns(ms))).collect()
}

/// Returns the `latency_ms` of the modality, attached stream or map that reads `made`, an output of another operation; `None`
/// if none of them reads this output.
fn latency_ms(operations: &[Operation], made: &str) -> Option<f64> {
    operations.iter().find_map(|operation| match &operation.section {
        Section::Observe(config) => {
            let attached = config.attach.iter().map(|attach| (&attach.input, attach.latency_ms));
            let modalities = config.modalities.iter().map(|it| (&it.input, it.latency_ms));
            let mut taken = attached.chain(modalities).filter(|(input, _)| *input == made);
            taken.next().map(|(_, ms)| ms)
        }
        Section::Map(config) => {
            let frames = config.inputs.iter().map(|it| (&it.input, it.latency_ms));
            let poses = config.poses.values().map(|it| (&it.input, it.latency_ms));
            let mut taken = frames.chain(poses).filter(|(input, _)| *input == made);
            taken.next().map(|(_, ms)| ms)
        }
        _ => None,
    })
}

/// Describes the streams whose stamps are too far ahead of, or behind, those of the other streams to be used; `None` if there
/// are none.
pub fn refusal(found: &[StreamOffset]) -> Option<String> {
    let refused = found.iter().filter(|found| found.is_refused);
    let texts: Vec<&str> = refused.map(|found| found.text.as_str()).collect();
    (!texts.is_empty()).then(|| texts.join("; and "))
}
