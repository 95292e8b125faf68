//! Publishing through dora.

use super::ipc::Framing;
use crate::app::{Fault, Sink};
use crate::stream::{Layout, Payload};
use dora_node_api::metadata::{FRAMING, FRAMING_ARROW_IPC};
use dora_node_api::{DoraNode, MetadataParameters, Parameter, SampleAllocator, dora_core::config::DataId};
use std::collections::HashMap;

/// Has payloads written straight into dora's samples, which are shared memory where the message is large enough.
pub(crate) struct Sender {
    node: DoraNode,
    allocator: SampleAllocator,
    framings: HashMap<String, (DataId, Framing)>,
}

impl Sender {
    pub fn new(node: DoraNode) -> Self {
        Self {
            allocator: node.sample_allocator(),
            node,
            framings: HashMap::new(),
        }
    }
}

impl Sink for Sender {
    fn send(
        &mut self,
        output: &str,
        layout: &Layout,
        fill: &mut dyn FnMut(&mut Payload<'_>) -> MetadataParameters,
    ) -> Result<(), Fault> {
        if !self.framings.contains_key(output) {
            let id = DataId::from(output.to_owned());
            self.framings.insert(output.to_owned(), (id, Framing::default()));
        }
        let Some((id, framing)) = self.framings.get_mut(output) else {
            return Ok(());
        };
        let bytes = framing.prepare(layout)?;
        let mut sample = self.allocator.allocate(bytes).map_err(|error| error.to_string())?;
        let mut parameters = fill(&mut framing.write(&mut sample));
        parameters.insert(FRAMING.to_owned(), Parameter::String(FRAMING_ARROW_IPC.to_owned()));
        self.node
            .send_output_sample(id.clone(), parameters, Some(sample))
            .map_err(|error| error.to_string())?;
        Ok(())
    }
}
