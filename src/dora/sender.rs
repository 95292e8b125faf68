//! Publishes messages through dora.
//!
//! An operation writes each payload once, directly into dora's shared-memory buffer or into a ring.

use super::ipc::Framing;
use super::message::parameters;
use super::rings::{OutputRing, SendOutcome};
use crate::app::{Fault, OutputResidence, Sink};
use dora_node_api::{DoraNode, SampleAllocator, dora_core::config::DataId};
use robocache_device::Dtype;
use robocache_device::gpu::Gpu;
use robocache_stream::{DeviceColumn, Header, Layout, MetadataRef, Payload, key};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Sink that lets operations write payloads directly into the buffers that dora sends. The buffer of a large message is in
/// shared memory.
pub(crate) struct Sender {
    node: DoraNode,
    allocator: SampleAllocator,
    framings: HashMap<String, (DataId, Framing)>,
    rings: HashMap<String, OutputRing>,
    header: Header,
    /// Random number that distinguishes this process from other senders, such as the same node before a restart.
    id: i64,
    /// Layout of the empty payload that a message carries if the real payload is in a ring.
    empty_layout: Layout,
}

impl Sender {
    /// Makes the sender of a node. `residences` names the outputs whose payloads are to be in a ring. If a ring can't be made,
    /// a warning says so, and the payloads are sent in their messages.
    pub(super) fn new(node: DoraNode, residences: &[(String, OutputResidence)]) -> Self {
        let mut rings = HashMap::new();
        for (output, asked) in residences {
            match OutputRing::new(output, asked) {
                Ok(ring) => drop(rings.insert(output.clone(), ring)),
                Err(problem) => tracing::warn!("output `{output}`: no ring: {problem}; its payloads go by the host"),
            }
        }
        Self {
            allocator: node.sample_allocator(),
            node,
            framings: HashMap::new(),
            rings,
            header: Header::default(),
            id: random_id(),
            empty_layout: Layout::flat(Dtype::UInt8, 0),
        }
    }

    /// Sends a message, whose payload and header `fill` writes.
    fn send_message(
        &mut self,
        output: &str,
        layout: &Layout,
        fill: &mut dyn FnMut(&mut Payload<'_>, &mut Header),
    ) -> Result<(), Fault> {
        if !self.framings.contains_key(output) {
            let id: DataId = output.parse().map_err(|error| format!("{error}"))?;
            self.framings.insert(output.to_owned(), (id, Framing::default()));
        }
        let Some((id, framing)) = self.framings.get_mut(output) else {
            return Ok(());
        };
        let bytes = framing.prepare(layout)?;
        let mut sample = self.allocator.allocate(bytes).map_err(|error| error.to_string())?;
        fill(&mut framing.write(&mut sample), &mut self.header);
        // A message that is passed on gets the id of this sender, not of the first sender.
        self.header.set(key::sender, MetadataRef::Integer(self.id));
        self.node
            .send_output_sample(id.clone(), parameters(&self.header), Some(sample))
            .map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Sends the header with an empty payload: the payload itself is in a ring.
    fn send_header(&mut self, output: &str) -> Result<(), Fault> {
        let empty_layout = std::mem::take(&mut self.empty_layout);
        let sent = self.send_message(output, &empty_layout, &mut |_, _| {});
        self.empty_layout = empty_layout;
        sent
    }
}

/// Draws a random number, from the keys that the system gives to hash maps. It is below 2^53, so that JSON and Lua hold it,
/// too.
fn random_id() -> i64 {
    (RandomState::new().hash_one(std::process::id()) >> 11) as i64
}

impl Sink for Sender {
    fn send(
        &mut self,
        output: &str,
        layout: &Layout,
        fill: &mut dyn FnMut(&mut Payload<'_>, &mut Header),
    ) -> Result<(), Fault> {
        self.header.clear();
        let ring = self.rings.get_mut(output);
        match ring.map_or(SendOutcome::ByHost, |ring| ring.send(layout, fill, &mut self.header)) {
            SendOutcome::ByHost => self.send_message(output, layout, fill),
            SendOutcome::InRing => self.send_header(output),
            SendOutcome::Staged => {
                let Some(ring) = self.rings.remove(output) else {
                    return Ok(());
                };
                let sent = self.send_message(output, layout, &mut |payload, header| {
                    payload.copy_from(ring.staged());
                    header.copy_from(&ring.staged().header);
                });
                self.rings.insert(output.to_owned(), ring);
                sent
            }
        }
    }

    fn gpu(&self, output: &str) -> Option<&Gpu> {
        self.rings.get(output)?.gpu()
    }

    fn send_on_device(
        &mut self,
        output: &str,
        layout: &Layout,
        columns: &[DeviceColumn],
        header: &Header,
    ) -> Result<(), Fault> {
        self.header.clear();
        self.header.copy_from(header);
        let Some(ring) = self.rings.get_mut(output) else {
            return Err(format!("`{output}` has no ring").into());
        };
        ring.send_on_device(layout, columns, &mut self.header)?;
        self.send_header(output)
    }
}
