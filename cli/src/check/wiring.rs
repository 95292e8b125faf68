//! What is wrong between the nodes of a dataflow.

use super::dataflow::{Dataflow, Edge, Node, parts_of_type, tidy};
use super::known::{Kind, Known, Streams, pooled};
use super::{Findings, PROGRAMS, section};
use crate::config::{self, Built, Operation, Section};
use crate::convert::lerobot::streams_of;
use crate::output::{bytes, figure};
use eyre::WrapErr;
use robocache::app::plugins::RecordConfig;
use robocache::app::{DIAGNOSTICS, Residence, did_you_mean};
use robocache::device::ring::MAX_CONSUMERS;
use robocache::dora::MESSAGE_BYTES;
use robocache::ops::align::TriggerConfig;
use robocache::ops::voxelize::VoxelLayout;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The node that reads no configuration.
const VIEWER: &str = "view";
/// Messages that a pool should hold of the largest.
const IN_POOL: u64 = 4;
/// Where the pools of dora's nodes lie.
const SHARED_MEMORY: &str = "/dev/shm";
/// The most memory that a queue should be able to hold.
const LARGE_QUEUE: u64 = 1 << 30;

/// A node that is one of robocache's, and what its configuration comes to.
struct Own<'a> {
    node: &'a Node,
    config: PathBuf,
    built: Built,
}

struct Checker<'a> {
    file: &'a Path,
    folder: &'a Path,
    streams: Streams<'a>,
    findings: &'a mut Findings,
}

/// Checks the nodes of a dataflow that are robocache's. One of them should read `config`, if that is given.
pub fn check(file: &Path, config: Option<&Path>, findings: &mut Findings) -> eyre::Result<()> {
    let dataflow = Dataflow::read(file)?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let own: Vec<Own<'_>> = dataflow
        .nodes
        .iter()
        .filter_map(|node| read(file, folder, node, findings))
        .collect();
    if let Some(config) = config {
        let real = |path: &Path| {
            path.canonicalize()
                .wrap_err_with(|| format!("{}: it can't be read", path.display()))
        };
        let asked = real(config)?;
        let mut named = dataflow.nodes.iter().filter_map(|node| node.config(folder));
        if !named.any(|file| real(&file).is_ok_and(|file| file == asked)) {
            findings.error(
                file,
                "nodes",
                format!(
                    "none of them reads {} (allowed: `args: --config FILE`)",
                    config.display()
                ),
            );
            super::alone(config, findings);
        }
    }
    let operations: BTreeMap<String, Vec<Operation>> = own
        .iter()
        .map(|own| (own.node.id.clone(), own.built.operations.clone()))
        .collect();
    let mut checker = Checker {
        file,
        folder,
        streams: Streams::new(&dataflow, &operations, folder),
        findings,
    };
    for own in &own {
        checker.node(own);
    }
    for node in &dataflow.nodes {
        if !own.iter().any(|own| own.node.id == node.id) {
            checker.held_up(node);
        }
    }
    checker.recordings(&own);
    checker.pools();
    let mut configs: Vec<&Path> = own.iter().map(|own| own.config.as_path()).collect();
    configs.sort();
    configs.dedup();
    for config in configs {
        // Sections that no node of this dataflow reads, too.
        super::read_sections(config, checker.findings);
        super::datasets(config, checker.findings);
        checker.recorded(config, &own);
    }
    for own in own.iter().filter(|own| own.node.place().is_none()) {
        super::status(&own.config, folder, checker.findings);
    }
    Ok(())
}

/// What the configuration of a node of robocache's comes to.
fn read<'a>(file: &Path, folder: &Path, node: &'a Node, findings: &mut Findings) -> Option<Own<'a>> {
    let at = format!("nodes.{}", node.id);
    let Some(program) = node.program() else {
        if let Some(config) = node.config(folder) {
            let problem = format!(
                "not a program of robocache's: `PROGRAM --check {}` says what it makes of it",
                config.display()
            );
            findings.note(file, at, problem);
        }
        return None;
    };
    if program == VIEWER {
        return None;
    }
    if !PROGRAMS.contains(&program) {
        let hint = did_you_mean(program, &PROGRAMS);
        let programs = PROGRAMS.map(|program| format!("robocache-{program}")).join(", ");
        let problem = format!("`robocache-{program}` is no node{hint} (allowed: {programs}, robocache-{VIEWER})");
        findings.error(file, format!("{at}.path"), problem);
        return None;
    }
    let Some(config) = node.config(folder) else {
        let problem = "no configuration is given (allowed: `--config FILE`, or ROBOCACHE_CONFIG in `env`)";
        findings.error(file, format!("{at}.args"), problem);
        return None;
    };
    let plugins = config::plugins(Some(program).filter(|&program| program != "node"));
    match config::check(&config, plugins) {
        Ok(built) => Some(Own { node, config, built }),
        Err(error) => {
            findings.refused(error);
            None
        }
    }
}

/// Whether a node is set up to wait for whatever comes, as over a recording.
fn is_offline(own: &Own<'_>) -> bool {
    own.built.operations.iter().any(|operation| match &operation.section {
        Section::Observe(config) => config.max_wait_ms.is_none(),
        // It is for training data.
        Section::Resample => true,
        _ => false,
    })
}

impl Checker<'_> {
    fn node(&mut self, own: &Own<'_>) {
        let at = format!("nodes.{}", own.node.id);
        let mut inside: Vec<(String, Known)> = Vec::new();
        for operation in &own.built.operations {
            let streams = &self.streams;
            let input = |name: &str| streams.input(own.node, &inside, name);
            section::check(&own.config, operation, &input, self.findings);
            let found = self.streams.outputs(operation, &input);
            inside.extend(found);
            self.trigger(own, operation);
            if let Section::Record(RecordConfig {
                inputs: Some(inputs), ..
            }) = &operation.section
            {
                let before = inside.iter().map(|(output, _)| output.clone());
                let known: Vec<String> = before
                    .chain(own.node.edges().map(|(input, _)| input.to_owned()))
                    .collect();
                self.record_inputs(own, operation, inputs, &known);
            }
        }
        self.inputs(own, &at);
        self.outputs(own, &at, &inside);
        self.residence(own);
    }

    fn inputs(&mut self, own: &Own<'_>, at: &str) {
        let takes_any = own
            .built
            .operations
            .iter()
            .any(|operation| matches!(operation.section, Section::Record(_)));
        let wired: Vec<(&str, Edge)> = own.node.edges().collect();
        for input in &own.built.inputs {
            if !wired.iter().any(|(name, _)| name == input) {
                let names: Vec<&str> = wired.iter().map(|(name, _)| *name).collect();
                let problem = format!(
                    "{} asks for `{input}`, which is not wired{} (wired: {})",
                    own.config.display(),
                    did_you_mean(input, &names),
                    if names.is_empty() {
                        "nothing".to_owned()
                    } else {
                        names.join(", ")
                    }
                );
                self.findings.error(self.file, format!("{at}.inputs"), problem);
            }
        }
        for (i, (input, edge)) in wired.iter().enumerate() {
            let at = format!("{at}.inputs.{input}");
            if !takes_any && !own.built.inputs.iter().any(|name| name == input) {
                let problem = format!(
                    "wired, and {} does not ask for it (it asks for: {})",
                    own.config.display(),
                    own.built.inputs.join(", ")
                );
                self.findings.warn(self.file, &at, problem);
            }
            if let Some((other, _)) = wired[..i].iter().find(|(_, other)| other.source == edge.source) {
                self.findings
                    .warn(self.file, &at, format!("wired to `{}`, as `{other}` is", edge.source));
            }
            self.edge(own, input, edge, &at);
        }
    }

    /// One edge: whether anything comes, and whether there is room for it.
    fn edge(&mut self, own: &Own<'_>, input: &str, edge: &Edge, at: &str) {
        let known = self.streams.of(&edge.source);
        if let Some(why) = &known.silent {
            self.findings
                .error(self.file, at, format!("nothing comes from `{}`: {why}", edge.source));
            return;
        }
        if let Some(why) = &known.unpaced
            && !edge.is_lossless()
        {
            let problem = format!(
                "`{}` is sent as fast as it is taken ({why}): messages are lost (allowed: `queue_policy: backpressure`)",
                edge.source
            );
            self.findings.warn(self.file, format!("{at}.queue_policy"), problem);
        }
        if edge.is_lossless() {
            if known.is_live() {
                self.is_held_up(edge, at);
            } else if known.rate_hz.is_none() && known.unpaced.is_none() && !is_offline(own) {
                let problem = format!(
                    "backpressure, and nothing says that `{}` is a replay: a slow node holds a live sensor up",
                    edge.source
                );
                self.findings.warn(self.file, format!("{at}.queue_policy"), problem);
            }
        }
        let typed = own.node.input_types.get(input);
        self.width(typed, &known, &format!("nodes.{}.input_types.{input}", own.node.id));
        let sent = edge.source.split_once('/').and_then(|(id, output)| {
            let sender = self.streams.dataflow.nodes.iter().find(|node| node.id == id)?;
            sender.output_types.get(output)
        });
        self.configured_width(own, input, typed.or(sent));
        if !edge.is_lossless()
            && let Some(queue_size) = edge.queue_size
        {
            let at = format!("{at}.queue_size");
            if !self.queue(queue_size, edge, &known, &at) && known.rate_hz.is_none() {
                self.queue_by_config(own, input, queue_size, &at);
            }
        }
    }

    /// What a node that is none of robocache's holds up.
    fn held_up(&mut self, node: &Node) {
        for (input, edge) in node.edges() {
            if edge.is_lossless() && self.streams.of(&edge.source).is_live() {
                self.is_held_up(&edge, &format!("nodes.{}.inputs.{input}", node.id));
            }
        }
    }

    fn is_held_up(&mut self, edge: &Edge, at: &str) {
        let problem = format!(
            "backpressure, and `{}` is live: a slow node holds its sensor up",
            edge.source
        );
        self.findings.warn(self.file, format!("{at}.queue_policy"), problem);
    }

    /// Whether a queue holds what the configuration says of the rate of a stream, where nothing else does.
    fn queue_by_config(&mut self, own: &Own<'_>, input: &str, queue_size: usize, at: &str) {
        let said = own
            .built
            .operations
            .iter()
            .filter_map(|operation| match &operation.section {
                Section::Observe(config) => section::least_queue(config, input),
                _ => None,
            });
        let Some((needed, said)) = said.max() else { return };
        if queue_size < needed {
            let problem = format!(
                "{queue_size}, and messages of `{input}` come {said}: a busy node loses some (allowed: {needed} or more)"
            );
            self.findings.warn(self.file, at, problem);
        }
    }

    /// Whether a queue is too short for what comes while the node is busy. Also warns of one that may hold more than the
    /// machine can.
    fn queue(&mut self, queue_size: usize, edge: &Edge, known: &Known, at: &str) -> bool {
        let is_large = matches!(known.kind, Some(Kind::Cloud(_) | Kind::Grid(_)));
        let needed = match known.rate_hz {
            // One in work, and one that waits.
            _ if is_large => 2,
            Some(rate) => rate.round() as usize,
            None => 0,
        };
        let is_short = queue_size < needed && known.kind != Some(Kind::Tick);
        if is_short {
            let problem = match (is_large, known.rate_hz) {
                (false, Some(rate)) => format!(
                    "{queue_size}, and `{}` has {} messages a second: a busy node loses some (allowed: a second of them, \
                     {needed} or more)",
                    edge.source,
                    figure(rate)
                ),
                _ => format!("{queue_size}: while one is worked on the next is lost (allowed: {needed} or more)"),
            };
            self.findings.warn(self.file, at, problem);
        }
        let held = known.bytes.unwrap_or(0).saturating_mul(queue_size as u64);
        if held > LARGE_QUEUE {
            let problem = format!("{queue_size} messages of `{}` may take {}", edge.source, bytes(held));
            self.findings.warn(self.file, at, problem);
        }
        is_short
    }

    /// A type's `dim` against what comes.
    fn width(&mut self, urn: Option<&String>, known: &Known, at: &str) {
        let dim = urn.and_then(|urn| parts_of_type(urn)?.1);
        if let (Some(dim), Some(width)) = (dim, known.kind.as_ref().and_then(Kind::width))
            && dim != width
        {
            self.findings
                .error(self.file, at, format!("dim={dim}, and a sample has {width} values"));
        }
    }

    /// The `dim` of a modality against the type of its edge.
    fn configured_width(&mut self, own: &Own<'_>, input: &str, urn: Option<&String>) {
        let Some(dim) = urn.and_then(|urn| parts_of_type(urn)?.1) else {
            return;
        };
        for operation in &own.built.operations {
            let Section::Observe(config) = &operation.section else {
                continue;
            };
            for (m, modality) in config.modalities.iter().enumerate() {
                if modality.input == input && modality.dim != dim {
                    let at = format!("{}.modalities[{m}].dim", operation.label());
                    let problem = format!("{}, and the dataflow's type of `{input}` has dim={dim}", modality.dim);
                    self.findings.error(&own.config, at, problem);
                }
            }
        }
    }

    fn outputs(&mut self, own: &Own<'_>, at: &str, known: &[(String, Known)]) {
        let node = own.node;
        let has_replay = own
            .built
            .operations
            .iter()
            .any(|operation| matches!(operation.section, Section::Replay(_)));
        let mut in_pool: Vec<(&str, u64)> = Vec::new();
        for output in &node.outputs {
            let at = format!("{at}.outputs.{output}");
            let found = known.iter().find(|(name, _)| name == output).map(|(_, known)| known);
            // Every node has that one.
            let is_own = output == DIAGNOSTICS;
            if found.is_none() && !is_own && !(has_replay && known.is_empty()) {
                let names = known.iter().map(|(name, _)| name.as_str());
                let names: Vec<&str> = names.chain([DIAGNOSTICS]).collect();
                let hint = did_you_mean(output, &names);
                let problem = format!("the node has no such output{hint} (allowed: {})", names.join(", "));
                self.findings.error(self.file, &at, problem);
            }
            if self.streams.dataflow.takers(&node.id, output).next().is_none() {
                self.findings.warn(
                    self.file,
                    &at,
                    "declared, and nobody reads it: it is computed and sent for nothing",
                );
            }
            let Some(found) = found else { continue };
            if let Some(why) = &found.silent {
                self.findings.error(self.file, &at, format!("nothing is sent: {why}"));
            }
            let urn = node.output_types.get(output);
            let at_type = format!("nodes.{}.output_types.{output}", node.id);
            self.width(urn, found, &at_type);
            self.type_of_output(urn, output, found, &at_type);
            let is_in_ring = own.built.residences.iter().any(|(name, _)| name == output);
            match found.bytes.unwrap_or(0) {
                size if pooled(size) > MESSAGE_BYTES as u64 => {
                    let problem = format!(
                        "a message has up to {size} bytes (allowed: {MESSAGE_BYTES} with its metadata, what dora carries)"
                    );
                    self.findings.error(self.file, &at, problem);
                }
                0 => {}
                size if !is_in_ring => in_pool.push((output, size)),
                _ => {}
            }
        }
        if node.outputs.is_empty() && !known.is_empty() {
            let names: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
            let problem = format!(
                "none is declared, so that nothing is sent (allowed: {})",
                names.join(", ")
            );
            self.findings.warn(self.file, format!("{at}.outputs"), problem);
        }
        self.attached(own, at);
        let needed: u64 = in_pool.iter().map(|&(_, size)| pooled(size) * IN_POOL).sum();
        if let Some((output, size)) = in_pool.iter().max_by_key(|(_, size)| size)
            && needed > node.pool()
        {
            let others = match in_pool.len() {
                1 => String::new(),
                _ => format!(", one of every output {}", bytes(needed / IN_POOL)),
            };
            let problem = format!(
                "{}, and a message of `{output}` has up to {}{others}: what does not fit goes over TCP, at 20 ms a message \
                 (allowed: {IN_POOL} of each output, {} or more)",
                bytes(node.pool()),
                bytes(*size),
                bytes(needed)
            );
            self.findings
                .warn(self.file, format!("{at}.shared_memory_pool_size"), problem);
        }
    }

    /// Whether the pools of all nodes that run here have room.
    fn pools(&mut self) {
        let Ok(stat) = rustix::fs::statvfs(SHARED_MEMORY) else {
            return;
        };
        let there = stat.f_blocks * stat.f_frsize;
        let nodes = self.streams.dataflow.nodes.iter();
        let senders = nodes.filter(|node| !node.outputs.is_empty() && node.place().is_none());
        let pools = senders.map(Node::pool).fold(0, u64::saturating_add);
        if pools > there {
            let problem = format!(
                "their pools are {} in all, and {SHARED_MEMORY} has {}: what is past that fails (allowed: a smaller \
                 `shared_memory_pool_size`, or a larger {SHARED_MEMORY}; of a container `--shm-size=1g`)",
                bytes(pools),
                bytes(there)
            );
            self.findings.warn(self.file, "nodes", problem);
        }
    }

    fn type_of_output(&mut self, urn: Option<&String>, output: &str, known: &Known, at: &str) {
        let Some((name, _)) = urn.and_then(|urn| parts_of_type(urn)) else {
            return;
        };
        let own_name = output.rsplit('/').next().unwrap_or(output);
        let expected = match &known.kind {
            Some(Kind::Grid(VoxelLayout::Dense)) => "VoxelsDense",
            Some(Kind::Grid(VoxelLayout::Bits)) => "VoxelsBits",
            Some(Kind::Grid(VoxelLayout::Coo)) => "VoxelsCoo",
            Some(Kind::Window(_)) if own_name == "fused" => "Fused",
            Some(Kind::Window(_)) if own_name == "observation" => "Observation",
            Some(Kind::Cloud(_)) => "PointCloud",
            _ => return,
        };
        if name != expected {
            self.findings.error(
                self.file,
                at,
                format!("{name}, and what is sent is of the type {expected}"),
            );
        }
    }

    /// What is attached, and goes to nobody.
    fn attached(&mut self, own: &Own<'_>, at: &str) {
        for operation in &own.built.operations {
            let Section::Observe(config) = &operation.section else {
                continue;
            };
            for (a, attach) in config.attach.iter().enumerate() {
                let published = [operation.output(&attach.output), operation.output("observation")];
                if !own.node.outputs.is_empty() && !published.iter().any(|output| own.node.outputs.contains(output)) {
                    let problem = format!(
                        "`{}` is attached, and the node {at} declares none of {} (it declares: {})",
                        attach.input,
                        published.join(", "),
                        own.node.outputs.join(", ")
                    );
                    self.findings
                        .warn(&own.config, format!("{}.attach[{a}]", operation.label()), problem);
                }
            }
        }
    }

    /// Whether somebody asks, and hears the answer.
    fn trigger(&mut self, own: &Own<'_>, operation: &Operation) {
        let Section::Observe(config) = &operation.section else {
            return;
        };
        let at = format!("{}.trigger", operation.label());
        match &config.trigger {
            Some(TriggerConfig::Request { request }) => {
                let Some(edge) = own.node.edge(request) else { return };
                let asker = edge.source.split('/').next().unwrap_or_default();
                if asker == "dora" {
                    let problem = format!(
                        "`{request}` is wired to a timer, whose ticks ask for no time (allowed: `timer: {request}`)"
                    );
                    self.findings.error(&own.config, at, problem);
                } else if !own.node.outputs.iter().any(|output| {
                    let mut takers = self.streams.dataflow.takers(&own.node.id, output);
                    takers.any(|(taker, ..)| taker.id == asker)
                }) {
                    let problem = format!(
                        "`{asker}` asks by `{request}`, and reads no output of `{}`",
                        own.node.id
                    );
                    self.findings.error(&own.config, at, problem);
                }
            }
            Some(TriggerConfig::Timer { timer }) => {
                let rate = own
                    .node
                    .edge(timer)
                    .and_then(|edge| self.streams.of(&edge.source).rate_hz);
                let rates = config
                    .modalities
                    .iter()
                    .map(|modality| self.streams.input(own.node, &[], &modality.input).rate_hz);
                let fastest = rates
                    .collect::<Option<Vec<f64>>>()
                    .and_then(|rates| rates.into_iter().reduce(f64::max));
                if let (Some(rate), Some(fastest)) = (rate, fastest)
                    && rate > fastest
                {
                    let problem = format!(
                        "`{timer}` ticks {} times a second, and the fastest stream has {} Hz: other ticks bring nothing new",
                        figure(rate),
                        figure(fastest)
                    );
                    self.findings.warn(&own.config, at, problem);
                }
            }
            _ => {}
        }
    }

    /// Rings against those who read them.
    fn residence(&mut self, own: &Own<'_>) {
        for (output, residence) in &own.built.residences {
            let takers: Vec<&Node> = self
                .streams
                .dataflow
                .takers(&own.node.id, output)
                .map(|(taker, ..)| taker)
                .collect();
            let at = format!("residence of `{output}`");
            let readers = takers.len();
            if readers == 0 {
                self.findings
                    .warn(&own.config, &at, format!("no node reads `{}/{output}`", own.node.id));
                continue;
            }
            for taker in takers.iter().filter(|taker| taker.place() != own.node.place()) {
                let place = |node: &Node| node.place().unwrap_or_else(|| "no machine by name".to_owned());
                let problem = format!(
                    "a ring is of one host, and `{}` runs on {}, its consumer `{}` on {} (allowed: the same `deploy`, or \
                     `residence: host`)",
                    own.node.id,
                    place(own.node),
                    taker.id,
                    place(taker)
                );
                self.findings.error(&own.config, &at, problem);
            }
            if let Some(lossless) = residence.ring.lossless
                && lossless.consumers != readers
            {
                let problem = format!(
                    "consumers: {}, and {readers} inputs read it: the sender waits for as many",
                    lossless.consumers
                );
                self.findings.error(&own.config, &at, problem);
            }
            if readers > MAX_CONSUMERS {
                let problem = format!("{readers} inputs read it (allowed: {MAX_CONSUMERS} that hold what they use)");
                self.findings.warn(&own.config, &at, problem);
            }
            if residence.ring.slots < readers + 2 {
                let problem = format!(
                    "slots: {}, and {readers} inputs read it (allowed: two, and one for each of them: {} or more)",
                    residence.ring.slots,
                    readers + 2
                );
                self.findings.warn(&own.config, &at, problem);
            }
            if residence.residence == Residence::Cuda && takers.iter().all(|taker| taker.program() == Some("record")) {
                let problem = "cuda, and only a recorder reads it, which brings it to the host again (allowed: host)";
                self.findings.warn(&own.config, &at, problem);
            }
            for taker in takers.iter().filter(|taker| taker.program().is_none()) {
                let problem = format!("`{}` must read it with `open_tensor` or a reader of rings", taker.id);
                self.findings.note(&own.config, &at, problem);
            }
        }
    }

    /// Whether what a recorder names is there.
    fn record_inputs(&mut self, own: &Own<'_>, operation: &Operation, inputs: &[String], known: &[String]) {
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        for (i, input) in inputs
            .iter()
            .enumerate()
            .filter(|(_, input)| !known.contains(&input.as_str()))
        {
            let problem = format!(
                "`{input}` is neither wired nor an output of an operation before it{} (allowed: {})",
                did_you_mean(input, &known),
                known.join(", ")
            );
            let at = format!("{}.inputs[{i}]", operation.label());
            self.findings.error(&own.config, at, problem);
        }
    }

    /// Whether the recorders of the dataflow, where there are any, record the streams that a dataset takes.
    fn recorded(&mut self, config: &Path, own: &[Own<'_>]) {
        let mut recorded = Vec::new();
        for own in own {
            for operation in &own.built.operations {
                if let Section::Record(RecordConfig { inputs, .. }) = &operation.section {
                    let wired = || own.node.edges().map(|(input, _)| input.to_owned()).collect();
                    recorded.extend(inputs.clone().unwrap_or_else(wired));
                }
            }
        }
        let streams: Vec<String> = recorded.iter().map(|input| input.replace('/', ".")).collect();
        let Ok(needed) = streams_of(config) else { return };
        let streams: Vec<&str> = streams.iter().map(String::as_str).collect();
        for stream in needed
            .iter()
            .filter(|stream| !streams.is_empty() && !streams.contains(&stream.as_str()))
        {
            let problem = format!(
                "`{stream}` is recorded by no node of {}{} (recorded: {})",
                self.file.display(),
                did_you_mean(stream, &streams),
                streams.join(", ")
            );
            self.findings.error(config, "lerobot", problem);
        }
    }

    /// Recordings that are read and written.
    fn recordings(&mut self, own: &[Own<'_>]) {
        let operations = || {
            own.iter()
                .flat_map(|own| own.built.operations.iter().map(move |it| (own, &it.section)))
        };
        let records = || {
            operations().filter_map(|(own, section)| match section {
                Section::Record(config) => Some((own, config)),
                _ => None,
            })
        };
        let replays = operations().filter_map(|(own, section)| match section {
            Section::Replay(config) => Some((own, &config.path)),
            _ => None,
        });
        for (replay, path) in replays {
            let folder = tidy(&self.folder.join(path));
            if self.streams.recording(path).is_none() {
                self.findings.note(
                    &replay.config,
                    "replay.path",
                    format!("no recording is in {} yet", folder.display()),
                );
            }
            if records().any(|(_, written)| tidy(&self.folder.join(&written.path)) == folder) {
                let problem = format!("`{}` is recorded to by the same dataflow", path.display());
                self.findings.error(&replay.config, "replay.path", problem);
            }
        }
        for (own, config) in records() {
            if own.node.place().is_none()
                && let Err(error) = config.check_new_run(self.folder)
            {
                let at = format!("record.{}", error.key);
                self.findings.error(&own.config, at, error.problem);
            }
        }
    }
}
