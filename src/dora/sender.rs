//! Publishing through dora.

use super::ipc::Framing;
use super::message::parameters;
use crate::app::{Fault, Sink};
use crate::stream::{Header, Layout, Payload};
use dora_node_api::{DoraNode, SampleAllocator, dora_core::config::DataId};
use std::collections::HashMap;

/// Lets operations write payloads straight into dora's samples, which are shared memory if the message is large enough.
pub(crate) struct Sender {
    node: DoraNode,
    allocator: SampleAllocator,
    framings: HashMap<String, (DataId, Framing)>,
    header: Header,
}

impl Sender {
    pub fn new(node: DoraNode) -> Self {
        Self {
            allocator: node.sample_allocator(),
            node,
            framings: HashMap::new(),
            header: Header::default(),
        }
    }
}

impl Sink for Sender {
    fn send(
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
        self.header.clear();
        fill(&mut framing.write(&mut sample), &mut self.header);
        self.node
            .send_output_sample(id.clone(), parameters(&self.header), Some(sample))
            .map_err(|error| error.to_string())?;
        Ok(())
    }
}
