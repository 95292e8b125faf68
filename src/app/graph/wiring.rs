//! Wires the operations' inputs and outputs to each other, and tracks the device on which each output is wanted.
//!
//! An input is wired to the nearest earlier output of its name, else to the dataflow: messages never go back to an earlier
//! operation.

use super::{Graph, InternalInput, Node, Shared};
use crate::app::operation::Wake;
use crate::app::outbox::{InputRoute, OutputRoute};
use crate::app::pool::MessagePool;
use crate::app::{OutputResidence, Registration};
use robocache_device::Device;
use robocache_device::gpu::Gpu;

impl Graph {
    pub(super) fn add(&mut self, index: usize, registration: Registration, is_published: impl Fn(&str) -> bool) {
        let mut inputs = Vec::with_capacity(registration.inputs.len());
        let mut internals = Vec::new();
        for (i, input) in registration.inputs.iter().enumerate() {
            let site = format!("{}: input `{input}`", registration.name);
            inputs.push(InputRoute {
                name: input.clone(),
                open: true,
                fault_site: self.shared.faults.add_site(site),
            });
            let earlier = self.nodes.iter().enumerate().rev().find_map(|(from, node)| {
                let output = node.outputs.iter().position(|output| output.name == *input)?;
                Some((from, output))
            });
            match earlier {
                Some(from) => {
                    let output = &mut self.nodes[from.0].outputs[from.1];
                    output.consumers.push((index, i));
                    self.shared.internal.pools[output.index].keep_one_more();
                    internals.push(InternalInput {
                        input: i,
                        from,
                        device: None,
                    });
                }
                None => match self.externals.iter_mut().find(|(name, _)| name == input) {
                    Some((_, consumers)) => consumers.push((index, i)),
                    None => self.externals.push((input.clone(), vec![(index, i)])),
                },
            }
        }
        let Shared { internal, faults, .. } = &mut self.shared;
        let outputs = registration.outputs.into_iter().map(|name| {
            internal.pools.push(MessagePool::new(1, &self.memory));
            OutputRoute {
                published: is_published(&name),
                consumers: Vec::new(),
                device: None,
                published_at: None,
                fault_site: faults.add_site(format!("{}: output `{name}`", registration.name)),
                index: internal.pools.len() - 1,
                name,
            }
        });
        self.nodes.push(Node {
            index,
            outputs: outputs.collect(),
            is_source: inputs.is_empty(),
            inputs,
            internals,
            name: registration.name,
            operation: registration.operation,
            wake: Wake::Never,
        });
        self.ask_for_devices(index);
    }

    /// Asks an operation on which device it wants each input from other operations, and tells the outputs that feed these
    /// inputs. The answer may change from message to message.
    pub(super) fn ask_for_devices(&mut self, of: usize) {
        for i in 0..self.nodes[of].internals.len() {
            let InternalInput { input, from, device } = self.nodes[of].internals[i];
            let now = self.nodes[of].operation.device_of_input(input);
            if now != device {
                self.nodes[of].internals[i].device = now;
                let wanted = self.device_of_output(from);
                self.nodes[from.0].outputs[from.1].device = wanted;
            }
        }
    }

    /// Device on which all operations that take an output want it. If no operation takes the output, the device on which the
    /// dataflow wants it. `None` for the host.
    fn device_of_output(&self, (operation, output): (usize, usize)) -> Option<Device> {
        let consumers = self.nodes[operation].outputs[output].consumers.iter();
        // A consumer that is being added may not be among the nodes yet.
        let takers = consumers.filter_map(|&(taker, input)| Some((self.nodes.get(taker)?, input)));
        let mut devices = takers.map(|(taker, input)| taker.operation.device_of_input(input));
        let Some(first) = devices.next() else {
            return self.nodes[operation].outputs[output].published_at;
        };
        first.filter(|_| devices.all(|device| device == first))
    }

    /// Sets the warnings about the configuration, which diagnostics repeat.
    pub(in crate::app) fn set_warnings(&mut self, warnings: Vec<String>) {
        self.warnings = warnings;
    }

    /// Sets the published outputs whose payloads go into a ring, each with the ring's settings.
    pub(in crate::app) fn set_residences(&mut self, residences: Vec<(String, OutputResidence)>) {
        for (name, residence) in &residences {
            let nodes = self.nodes.iter_mut().flat_map(|node| &mut node.outputs);
            for output in nodes.filter(|output| output.name == *name && output.published) {
                output.published_at = residence.gpu().map(Gpu::device);
                if output.consumers.is_empty() {
                    output.device = output.published_at;
                }
            }
        }
        self.residences = residences;
    }

    /// Finds an input with the key `from` that another operation of this process publishes: the key is for payloads of other
    /// software. Returns the names of the operation and the input.
    pub(in crate::app) fn misread(&self) -> Option<(&str, &str)> {
        self.nodes.iter().find_map(|node| {
            let mut inputs = node.internals.iter().map(|internal| internal.input);
            let misread = inputs.find(|&input| node.operation.selection(input).from.is_some())?;
            Some((node.name.as_str(), node.inputs[misread].name.as_str()))
        })
    }
}
