//! Checks the outputs of nodes, their readers, and the shared memory that carries them. Sizes are checked only if they
//! are known.

use super::node::{Checker, RobocacheNode};
use crate::check::dataflow::{Node, parts_of_type};
use crate::check::facts::{Kind, StreamFacts, pooled};
use crate::config::Section;
use crate::output::bytes;
use robocache::app::{DIAGNOSTICS, Residence, did_you_mean};
use robocache::device::ring::MAX_CONSUMERS;
use robocache::dora::MESSAGE_BYTES;
use robocache::ops::voxelize::VoxelLayout;

/// Number of messages per output, of maximum size, for which a node's pool of shared memory should have room.
const IN_POOL: u64 = 4;
/// Folder where dora allocates the nodes' pools of shared memory.
const SHARED_MEMORY: &str = "/dev/shm";

impl Checker<'_> {
    pub(super) fn outputs(&mut self, own: &RobocacheNode<'_>, at: &str, known: &[(String, StreamFacts)]) {
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
            // Every node has the output `diagnostics`.
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
                        "a message has up to {size} bytes (allowed: {MESSAGE_BYTES} with its metadata, what dora carries; \
                         a smaller `shape` of a grid or a smaller `window` helps)"
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

    /// Checks that the pools of all nodes on this machine fit into shared memory.
    pub(super) fn pools(&mut self) {
        let Ok(stat) = rustix::fs::statvfs(SHARED_MEMORY) else {
            return;
        };
        let capacity = stat.f_blocks * stat.f_frsize;
        let nodes = self.streams.dataflow.nodes.iter();
        let senders = nodes.filter(|node| !node.outputs.is_empty() && node.place().is_none());
        let pools = senders.map(Node::pool).fold(0, u64::saturating_add);
        if pools > capacity {
            let problem = format!(
                "their pools are {} in all, and {SHARED_MEMORY} has {}: memory beyond that can't be used (allowed: a \
                 smaller `shared_memory_pool_size`, or a larger {SHARED_MEMORY}; of a container `--shm-size=1g`)",
                bytes(pools),
                bytes(capacity)
            );
            self.findings.warn(self.file, "nodes", problem);
        }
    }

    fn type_of_output(&mut self, urn: Option<&String>, output: &str, known: &StreamFacts, at: &str) {
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

    /// Warns of each attached stream whose messages are in none of the outputs that the dataflow declares for the node.
    fn attached(&mut self, own: &RobocacheNode<'_>, at: &str) {
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

    /// Checks that the rings of a node's outputs match the nodes that read them: as many consumers as configured, on the same
    /// machine.
    pub(super) fn residence(&mut self, own: &RobocacheNode<'_>) {
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
                    "consumers: {}, and {readers} inputs read it: the sender waits for as many as `consumers` says \
                     (allowed: {readers})",
                    lossless.consumers
                );
                self.findings.error(&own.config, &at, problem);
            }
            if readers > MAX_CONSUMERS {
                let problem = format!(
                    "{readers} inputs read it (allowed: {MAX_CONSUMERS} that hold what they use; others must read copies)"
                );
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
}
