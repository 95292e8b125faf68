//! Facts about the streams of a dataflow that are known before anything runs: from configurations, declared types and recordings. A
//! fact that can't be derived from these is `None`.

use super::dataflow::{Dataflow, Node, parts_of_type, tidy};
use crate::config::{Operation, Section};
use robocache::app::plugins::Speed;
use robocache::device::Dtype;
use robocache::ops::align;
use robocache::ops::align::{AlignConfig, FUSED, OBSERVATION, TriggerConfig};
use robocache::ops::kinematics::{KinematicsConfig, Product};
use robocache::ops::map::MapProduct;
use robocache::ops::voxelize::{VoxelLayout, VoxelizeConfig};
use robocache::stream::recording::Reader;
use robocache::stream::{Message, form};
use robocache::time::{ns_to_ms, ns_to_s};
use robocache_sim::config::{SimConfig, StreamConfig};
use robocache_sim::lidar::{COLUMNS, RINGS};
use robocache_sim::signals::{CAMERA_DIM, PROPRIO_DIM, WRENCH_DIM};
use robocache_sim::table::{DEPTH_HEIGHT, DEPTH_WIDTH, POSE_DIM};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Maximum number of messages that are read from the start of a recording, to learn facts about its streams.
const MESSAGES: usize = 20_000;
/// Maximum bytes that metadata and framing add to a message's payload.
const FRAMING: u64 = 4096;

/// Facts about a stream; a fact that is not known is `None`.
#[derive(Clone, Debug, Default)]
pub struct StreamFacts {
    pub kind: Option<Kind>,
    /// Quantity that `kinematics:` computes for the stream, such as a pose; `None` if the stream is not an output of `kinematics:`.
    pub product: Option<Product>,
    /// Names of the values of a recorded sample, in their order; empty if the recording does not name them.
    pub fields: Vec<String>,
    /// Smallest and largest recorded number of each value of a sample, `[min, max]`; empty if no sample of floats was read.
    pub extremes: Vec<[f64; 2]>,
    pub rate_hz: Option<f64>,
    /// Size of the stream's largest message, bytes.
    pub bytes: Option<u64>,
    /// Longest time from a message's stamp until it is published, or arrives at the recorder, ms.
    pub delay_ms: Option<f64>,
    /// True if the stream comes from a recording, whose replay can wait for slow readers.
    pub is_replayed: bool,
    /// The reason why the stream will never have a message; `None` if messages are expected.
    pub silent: Option<String>,
    /// The setting, such as `replay.speed`, that makes the sender send as fast as its consumers take the messages. `None` if the
    /// sender keeps a rate of its own.
    pub unpaced: Option<String>,
}

/// Kind of a stream's messages, as far as the checks distinguish kinds.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Samples with this number of values each.
    Samples(usize),
    /// Observations whose rows have this number of values, if the number is known.
    Window(Option<usize>),
    /// Point clouds with these fields, if the fields are known.
    Cloud(Option<Vec<String>>),
    Grid(VoxelLayout),
    Tick,
}

impl Kind {
    /// The number of values in a sample, or in a row of an observation; `None` for other kinds, or if it is not known.
    pub fn width(&self) -> Option<usize> {
        match self {
            Self::Samples(width) => Some(*width),
            Self::Window(width) => *width,
            _ => None,
        }
    }

    pub fn in_words(&self) -> String {
        match self {
            Self::Samples(width) => format!("samples of {width} values"),
            Self::Window(_) => "observations".to_owned(),
            Self::Cloud(_) => "point clouds".to_owned(),
            Self::Grid(layout) => format!("voxel grids, {layout}"),
            Self::Tick => "ticks of a timer".to_owned(),
        }
    }

    /// Returns the kind that a message type in the dataflow declares; `None` if the type is not robocache's, or lacks
    /// its `dim`.
    pub fn of_type(urn: &str) -> Option<Self> {
        let (name, dim) = parts_of_type(urn)?;
        Some(match name {
            "PointCloud" => Self::Cloud(None),
            "VoxelsDense" => Self::Grid(VoxelLayout::Dense),
            "VoxelsBits" => Self::Grid(VoxelLayout::Bits),
            "VoxelsCoo" => Self::Grid(VoxelLayout::Coo),
            "Fused" | "Observation" | "Aligned" => Self::Window(None),
            _ => Self::Samples(dim?),
        })
    }

    /// Detects the kind of a recorded message; `None` for a struct of unknown meaning.
    fn of_message(message: &Message) -> Option<Self> {
        let header = &message.header;
        if form::modalities.get(header).is_some() {
            let columns = align::key::offsets.get(header).and_then(<[i64]>::last);
            return Some(Self::Window(columns.map(|&columns| columns as usize)));
        }
        if form::grid_shape.get(header).is_some() {
            let layout = match message.flat() {
                None => VoxelLayout::Coo,
                Some(_) if header.shape.get().is_some_and(|shape| shape.len() == 3) => VoxelLayout::Bits,
                Some(_) => VoxelLayout::Dense,
            };
            return Some(Self::Grid(layout));
        }
        let fields: Vec<String> = match message.flat() {
            Some(_) => header.fields.get().unwrap_or_default().to_vec(),
            None => message.columns().iter().map(|column| column.name.clone()).collect(),
        };
        let samples = message.stamps().len();
        let has_point = ["x", "y", "z"]
            .iter()
            .all(|axis| fields.iter().any(|field| field == axis));
        if has_point && !is_rows(message, samples, &fields) {
            return Some(Self::Cloud(Some(fields)));
        }
        message.flat().map(|values| Self::Samples(values.len() / samples))
    }
}

/// True if the rows of a message are samples, one for each of its `samples` stamps; false if they are the points of a cloud.
/// The field names x, y and z alone do not decide, since positions and poses have them, too.
fn is_rows(message: &Message, samples: usize, fields: &[String]) -> bool {
    let Some(values) = message.flat() else { return false };
    let sides = message.header.shape.get().map_or(1, <[i64]>::len);
    let has_stamps = message
        .header
        .timestamps_ns
        .get()
        .is_some_and(|stamps| !stamps.is_empty());
    // A cloud may have a single point, but not the `w` of a quaternion.
    let has_w = fields.iter().any(|field| field.ends_with(['w', 'W']));
    values.len() == samples * fields.len() && (sides == 1 || has_stamps || has_w)
}

impl StreamFacts {
    /// True if the sender can wait for slow readers: the stream is replayed, or a setting makes the sender as fast as its readers.
    fn waits_for_its_takers(&self) -> bool {
        self.is_replayed || self.unpaced.is_some()
    }

    /// True if sensors send the stream, not a timer or a replay. False if the rate of the stream is not known.
    pub fn is_live(&self) -> bool {
        self.rate_hz.is_some() && !self.waits_for_its_takers() && self.kind != Some(Kind::Tick)
    }

    /// Widens `extremes` to include the samples of a recorded message. Messages without floats are skipped.
    fn extend_extremes(&mut self, message: &Message) {
        let (Some(Kind::Samples(width)), Some(values)) = (&self.kind, message.flat()) else {
            return;
        };
        if !matches!(values.dtype(), Dtype::Float32 | Dtype::Float64) {
            return;
        }
        if self.extremes.is_empty() {
            self.fields = message.header.fields.get().unwrap_or_default().to_vec();
            self.extremes = vec![[f64::INFINITY, f64::NEG_INFINITY]; *width];
        }
        let Ok(samples) = message.samples(*width) else { return };
        for sample in samples {
            let mut widen = |at: usize, value: f64| {
                let [least, most] = &mut self.extremes[at];
                (*least, *most) = (least.min(value), most.max(value));
            };
            match values.dtype() {
                Dtype::Float64 => {
                    let values = sample.values.as_slice::<f64>();
                    values.iter().enumerate().for_each(|(at, &value)| widen(at, value));
                }
                _ => {
                    let values = sample.values.as_slice::<f32>();
                    values
                        .iter()
                        .enumerate()
                        .for_each(|(at, &value)| widen(at, f64::from(value)));
                }
            }
        }
    }

    fn of_sim(stream: &'static str, config: &SimConfig) -> Self {
        let streams = &config.streams;
        let (settings, kind, bytes): (&Option<StreamConfig>, Kind, usize) = match stream {
            "camera" => (&streams.camera, Kind::Samples(CAMERA_DIM), 4 * CAMERA_DIM),
            "force" => (&streams.force, Kind::Samples(WRENCH_DIM), 4 * WRENCH_DIM),
            "proprio" => (&streams.proprio, Kind::Samples(PROPRIO_DIM), 4 * PROPRIO_DIM),
            "depth" => (
                &streams.depth,
                Kind::Samples(DEPTH_HEIGHT * DEPTH_WIDTH),
                2 * DEPTH_HEIGHT * DEPTH_WIDTH,
            ),
            "camera_pose" => (&streams.camera_pose, Kind::Samples(POSE_DIM), 8 * POSE_DIM),
            _ => {
                let fields = ["x", "y", "z", "intensity", "ring", "t_ns"].map(str::to_owned).into();
                (&streams.lidar, Kind::Cloud(Some(fields)), 22 * COLUMNS * RINGS)
            }
        };
        let Some(settings) = settings else {
            let silent = Some(format!("sim.streams.{stream} is null"));
            return Self {
                silent,
                kind: Some(kind),
                ..Self::default()
            };
        };
        let unpaced = (!config.real_time).then(|| "sim.real_time is false".to_owned());
        Self {
            kind: Some(kind),
            rate_hz: Some(settings.rate_hz),
            bytes: Some(bytes as u64),
            delay_ms: Some(settings.latency_ms + 3.0 * settings.latency_jitter_ms - settings.clock_offset_ms),
            unpaced,
            ..Self::default()
        }
    }

    /// Derives the facts about a stream of voxel grids from the facts about its point clouds.
    fn of_grid(config: &VoxelizeConfig, clouds: &[Self]) -> Self {
        let features = 4 * (3 + config.channels.len());
        let rows = config.max_voxels.map(|most| most.saturating_mul(features));
        let slowest = clouds.iter().map(|cloud| cloud.rate_hz).collect::<Option<Vec<f64>>>();
        Self {
            kind: Some(Kind::Grid(config.layout)),
            rate_hz: slowest.and_then(|rates| rates.into_iter().reduce(f64::min)),
            bytes: config.message_bytes().or(rows).map(|bytes| bytes as u64),
            delay_ms: clouds.iter().filter_map(|cloud| cloud.delay_ms).reduce(f64::max),
            is_replayed: clouds.iter().any(Self::waits_for_its_takers),
            ..Self::default()
        }
    }
}

/// Returns the number of observations a second; `None` if the rate of their trigger is not known.
fn observation_rate(config: &AlignConfig, input: &dyn Fn(&str) -> StreamFacts) -> Option<f64> {
    match &config.trigger {
        None => Some(config.rate_hz / config.emit_every as f64),
        Some(TriggerConfig::Stream { stream, every, .. }) => Some(input(stream).rate_hz? / *every as f64),
        Some(TriggerConfig::Timer { timer: asked } | TriggerConfig::Request { request: asked }) => input(asked).rate_hz,
    }
}

fn observations(
    is_fuse: bool,
    config: &AlignConfig,
    input: &dyn Fn(&str) -> StreamFacts,
) -> Vec<(String, StreamFacts)> {
    let rate_hz = observation_rate(config, input);
    let modalities = config.modalities.iter();
    let is_replayed = modalities
        .map(|modality| input(&modality.input))
        .any(|known| known.waits_for_its_takers());
    // Observations without a limit to their wait are meant for a recording.
    let is_replayed = is_replayed || config.max_wait_ms.is_none();
    let window = |columns: usize| StreamFacts {
        kind: Some(Kind::Window(Some(columns))),
        rate_hz,
        bytes: Some((config.window * columns * config.dtype.size()) as u64),
        is_replayed,
        ..StreamFacts::default()
    };
    if !is_fuse {
        let modalities = config.modalities.iter();
        return modalities
            .map(|modality| (modality.input.clone(), window(modality.dim)))
            .collect();
    }
    let fused = window(config.columns());
    let mut found = vec![(FUSED.to_owned(), fused.clone())];
    if config.attach.is_empty() {
        return found;
    }
    let mut whole = fused.bytes;
    for attach in &config.attach {
        let rows = attach.rows.unwrap_or(config.window) as u64;
        let bytes = input(&attach.input).bytes.map(|bytes| bytes * rows);
        whole = whole.zip(bytes).map(|(whole, bytes)| whole + bytes);
        found.push((
            attach.output.clone(),
            StreamFacts {
                kind: None,
                bytes,
                ..fused.clone()
            },
        ));
    }
    found.push((OBSERVATION.to_owned(), StreamFacts { bytes: whole, ..fused }));
    found
}

/// Lists the outputs of a section `kinematics:` with their facts. An output has the rate of its input. Its number of values is not
/// known if that depends on a URDF.
fn kinematics(config: &KinematicsConfig, input: &dyn Fn(&str) -> StreamFacts) -> Vec<(String, StreamFacts)> {
    let mut found: Vec<(String, StreamFacts)> = Vec::new();
    for entry in &config.entries {
        let earlier = found.iter().find(|(name, _)| *name == entry.input);
        let input_facts = earlier.map_or_else(|| input(&entry.input), |(_, known)| known.clone());
        let kind = |product| match product {
            Product::Pose => Some(Kind::Samples(7)),
            Product::Twist => Some(Kind::Samples(6)),
            Product::Jacobian | Product::Joints => None,
        };
        let made = entry.outputs().zip(&entry.make).map(|(name, &product)| {
            let known = StreamFacts {
                kind: kind(product),
                product: Some(product),
                bytes: None,
                fields: Vec::new(),
                extremes: Vec::new(),
                ..input_facts.clone()
            };
            (name, known)
        });
        let made: Vec<_> = made.collect();
        found.extend(made);
    }
    found
}

/// Lists the outputs of a `kinematics:` operation with the facts that do not depend on its inputs; empty for other operations.
pub fn of_chains(operation: &Operation) -> Vec<(String, StreamFacts)> {
    let Section::Kinematics(config) = &operation.section else {
        return Vec::new();
    };
    let made = kinematics(config, &|_| StreamFacts::default()).into_iter();
    made.map(|(name, known)| (operation.output(&name), known)).collect()
}

/// Streams of a recording and the facts about each.
type Recording = Vec<(String, StreamFacts)>;

/// Reads facts about the streams of a recording from its first messages; `None` if there is no recording.
fn recorded(folder: &Path) -> Option<Recording> {
    /// Number of a stream's messages, stamp of the first, and stamp of the last that was read, ns.
    type Stamps = (u64, i64, i64);
    let (mut reader, _) = Reader::open_readable(folder).ok()?;
    let names: Vec<String> = reader.streams().map(str::to_owned).collect();
    let mut found: Vec<(StreamFacts, Option<Stamps>)> = names.iter().map(|_| Default::default()).collect();
    let mut message = Message::default();
    for _ in 0..MESSAGES {
        let Ok(Some(stream)) = reader.next_into(&mut message) else {
            break;
        };
        let (known, seen) = &mut found[stream];
        let stamp = message.timestamp_ns();
        let (messages, first, _) = seen.unwrap_or((0, stamp, stamp));
        *seen = Some((messages + 1, first, stamp));
        known.bytes = known.bytes.max(Some(message.bytes() as u64));
        if known.kind.is_none() {
            known.kind = Kind::of_message(&message);
        }
        known.extend_extremes(&message);
        if let Some(arrival_ns) = message.arrival_ns {
            let delay = ns_to_ms(arrival_ns.saturating_sub(stamp));
            known.delay_ms = Some(known.delay_ms.map_or(delay, |most| most.max(delay)));
        }
    }
    let streams = names.into_iter().zip(found).map(|(name, (mut known, seen))| {
        known.is_replayed = true;
        known.rate_hz = seen.and_then(|(messages, first, last)| {
            let span = ns_to_s(last.saturating_sub(first));
            (messages > 1 && span > 0.0).then(|| (messages - 1) as f64 / span)
        });
        (name, known)
    });
    Some(streams.collect())
}

/// Facts about the outputs of a dataflow's nodes. The facts about each output and each recording are derived once and cached.
pub struct Streams<'a> {
    pub dataflow: &'a Dataflow,
    /// Operations of each node of robocache, by the node's id.
    operations: &'a BTreeMap<String, Vec<Operation>>,
    folder: &'a Path,
    found: RefCell<BTreeMap<String, StreamFacts>>,
    recordings: RefCell<BTreeMap<PathBuf, Option<Recording>>>,
}

impl<'a> Streams<'a> {
    pub fn new(dataflow: &'a Dataflow, operations: &'a BTreeMap<String, Vec<Operation>>, folder: &'a Path) -> Self {
        Self {
            dataflow,
            operations,
            folder,
            found: RefCell::default(),
            recordings: RefCell::default(),
        }
    }

    /// Returns the facts about the output `source`, such as `robot/camera`. If no node has the output, no fact is known.
    pub fn of(&self, source: &str) -> StreamFacts {
        if let Some(known) = self.found.borrow().get(source) {
            return known.clone();
        }
        // In a loop of the dataflow, the search ends at this entry.
        self.found
            .borrow_mut()
            .insert(source.to_owned(), StreamFacts::default());
        let known = self.find(source);
        self.found.borrow_mut().insert(source.to_owned(), known.clone());
        known
    }

    fn find(&self, source: &str) -> StreamFacts {
        if let Some(timer) = source.strip_prefix("dora/timer/") {
            return StreamFacts {
                kind: Some(Kind::Tick),
                rate_hz: timer_hz(timer),
                bytes: Some(0),
                ..StreamFacts::default()
            };
        }
        let Some((id, output)) = source.split_once('/') else {
            return StreamFacts::default();
        };
        let Some(node) = self.dataflow.nodes.iter().find(|node| node.id == id) else {
            return StreamFacts::default();
        };
        let outputs = self.outputs_of(node);
        let declared_kind = node.output_types.get(output).and_then(|urn| Kind::of_type(urn));
        match outputs.into_iter().find(|(name, _)| name == output) {
            Some((_, known)) => known,
            None => StreamFacts {
                kind: declared_kind,
                // The recording to be replayed may not exist yet.
                is_replayed: node.program() == Some("replay"),
                ..StreamFacts::default()
            },
        }
    }

    /// Returns the streams of the recording at `path`; `None` if there is no recording.
    pub fn recording(&self, path: &Path) -> Option<Recording> {
        let folder = tidy(&self.folder.join(path));
        let mut recordings = self.recordings.borrow_mut();
        recordings
            .entry(folder)
            .or_insert_with_key(|folder| recorded(folder))
            .clone()
    }

    /// Derives the facts about the outputs of an operation. `input` returns the facts about an input by its name.
    pub fn outputs(&self, operation: &Operation, input: &dyn Fn(&str) -> StreamFacts) -> Vec<(String, StreamFacts)> {
        let mut found: Vec<(String, StreamFacts)> = match &operation.section {
            Section::Sim(config) => {
                let streams = ["camera", "force", "proprio", "lidar", "depth", "camera_pose"];
                streams
                    .map(|stream| (stream.to_owned(), StreamFacts::of_sim(stream, config)))
                    .into()
            }
            Section::Voxelize(config) => {
                let clouds: Vec<StreamFacts> = config.inputs.iter().map(|cloud| input(&cloud.input)).collect();
                vec![("voxels".to_owned(), StreamFacts::of_grid(config, &clouds))]
            }
            Section::Map(config) => {
                let of = |product: &MapProduct| {
                    let layout = match product {
                        MapProduct::Bits => VoxelLayout::Bits,
                        _ => VoxelLayout::Dense,
                    };
                    let (values, dtype) = product.values(config.shape);
                    let facts = StreamFacts {
                        kind: Some(Kind::Grid(layout)),
                        bytes: Some((values * dtype.size()) as u64),
                        ..StreamFacts::default()
                    };
                    (product.name().to_owned(), facts)
                };
                config.outputs.iter().map(of).collect()
            }
            Section::Observe(config) => observations(operation.plugin == "fuse", config, input),
            Section::Clock(config) => {
                let inputs = config.inputs.iter();
                inputs.map(|clock| (clock.input.clone(), input(&clock.input))).collect()
            }
            Section::Group(config) => {
                let inputs = config.inputs.iter();
                inputs.map(|group| (group.input.clone(), input(&group.input))).collect()
            }
            Section::Kinematics(config) => kinematics(config, input),
            Section::Resample => vec![("resampled".to_owned(), StreamFacts::default())],
            Section::Replay(config) => {
                let unpaced = (config.speed == Speed::Max).then(|| "replay.speed is max".to_owned());
                let mut streams = self.recording(&config.path).unwrap_or_default();
                streams
                    .iter_mut()
                    .for_each(|(_, known)| known.unpaced.clone_from(&unpaced));
                streams
            }
            Section::Record(_) => Vec::new(),
        };
        for (name, _) in &mut found {
            *name = operation.output(name);
        }
        found
    }

    /// Lists the outputs of a node of robocache, each with its facts; empty for other nodes.
    fn outputs_of(&self, node: &Node) -> Vec<(String, StreamFacts)> {
        let mut inside: Vec<(String, StreamFacts)> = Vec::new();
        for operation in self.operations.get(&node.id).into_iter().flatten() {
            let found = self.outputs(operation, &|name| self.input(node, &inside, name));
            inside.extend(found);
        }
        inside
    }

    /// Finds the facts about an input of a node's operation. The input is wired in the dataflow, or is an output of an earlier
    /// operation of the node; `inside` lists these outputs.
    pub fn input(&self, node: &Node, inside: &[(String, StreamFacts)], name: &str) -> StreamFacts {
        let own = inside.iter().rev().find(|(output, _)| output == name);
        match (own, node.edge(name)) {
            (Some((_, known)), _) => known.clone(),
            (None, Some(edge)) => {
                let known = self.of(&edge.source);
                let typed = node.input_types.get(name).and_then(|urn| Kind::of_type(urn));
                StreamFacts {
                    kind: known.kind.clone().or(typed),
                    ..known
                }
            }
            (None, None) => StreamFacts::default(),
        }
    }
}

fn timer_hz(timer: &str) -> Option<f64> {
    let (unit, number) = timer.split_once('/')?;
    let number: f64 = number.parse().ok()?;
    match unit {
        "hz" => Some(number),
        "millis" => Some(1e3 / number),
        "secs" => Some(1.0 / number),
        _ => None,
    }
}

/// Returns the space that a message with a payload of `bytes` bytes takes in a node's pool of shared memory, bytes.
pub fn pooled(bytes: u64) -> u64 {
    bytes + FRAMING
}
