//! The operations of a node, and the messages between them.
//!
//! A message reaches every operation that takes it, in the order of the operations, before the graph handles the next event. A
//! message that can't be used is counted, and never stops the graph.

mod delivery;
mod wiring;

use super::diagnostics::{Diagnostics, InputState};
#[cfg(feature = "dora")]
use super::faults::Dropped;
use super::faults::Faults;
use super::input_message::InputMessage;
use super::operation::{Change, Operation, Wake};
use super::outbox::{InputRoute, InternalMessages, MessageTimes, Outbox, OutputRoute, Sink};
use super::{AppError, OutputResidence, Registration, Report, Value};
use robocache_device::{Device, HostMemory};
use robocache_stream::{Message, Selection};
use robocache_yaml::Json;
use std::time::Instant;

/// Largest number of calls of one operation's `wake` in a row, before the next operation gets its turn.
const WAKES_AT_ONCE: usize = 64;

/// The operations of a node in order, wired to one another and to the inputs and outputs of the dataflow. A graph has no event
/// loop: its owner feeds it messages, and a [`Sink`] takes the messages that it publishes.
///
/// ```
/// use robocache::prelude::*;
/// use std::{path::Path, time::Instant};
///
/// /// Keeps the stamps of what is published.
/// #[derive(Default)]
/// struct Stamps(Vec<(String, i64)>);
///
/// impl Sink for Stamps {
///     fn send(
///         &mut self,
///         output: &str,
///         layout: &Layout,
///         fill: &mut dyn FnMut(&mut Payload<'_>, &mut Header),
///     ) -> Result<(), Fault> {
///         let mut message = Message::default();
///         message.write(layout, fill);
///         self.0.push((output.to_owned(), message.timestamp_ns()));
///         Ok(())
///     }
/// }
///
/// let text = "plugins: [fuse: { rate_hz: 100, modalities: [{ input: force, dim: 1, interpolation: linear }] }]";
/// let mut graph = App::new()
///     .with_config(Config::parse(Path::new("robot.yml"), text)?)
///     .add_plugins(plugins::all())
///     .build(|_output| true)?;
/// // Inputs have the index that they have here.
/// assert_eq!(graph.external_inputs().collect::<Vec<_>>(), [("force", "fuse")]);
///
/// let (mut sink, mut message) = (Stamps::default(), Message::default());
/// graph.wake(Instant::now(), true, &mut sink)?;
/// for ms in [4, 11, 22] {
///     message.write(&Layout::flat(Dtype::Float32, 1), |payload, header| {
///         payload.column(0)[0] = ms as f32;
///         header.timestamp_ns.set(ms * 1_000_000);
///     });
///     graph.message(0, &message, &mut sink);
/// }
/// graph.close_all(&mut sink);
/// graph.finish(&mut sink)?;
/// assert_eq!(sink.0, [("fused".to_owned(), 10_000_000), ("fused".to_owned(), 20_000_000)]);
/// # Ok::<(), AppError>(())
/// ```
pub struct Graph {
    nodes: Vec<Node>,
    /// Names of the inputs that come from the dataflow, each with its consumers: index of the operation, index of the operation's
    /// input.
    externals: Vec<(String, Vec<(usize, usize)>)>,
    /// Indices of the sites in `Faults` at which the inputs in `externals` count their faults, in the same order.
    external_sites: Vec<usize>,
    shared: Shared,
    memory: HostMemory,
    residences: Vec<(String, OutputResidence)>,
    warnings: Vec<String>,
}

/// State that all operations of a graph share.
#[derive(Default)]
struct Shared {
    internal: InternalMessages,
    faults: Faults,
    /// Error that ends the node, from an operation that can't go on; `None` while the node runs.
    ended: Option<AppError>,
    /// Reused buffer for the host copy of a message on a device, made for a consumer that reads on the host.
    on_host: Option<Message>,
    /// Collector of the diagnostics; `None` if nobody wants them.
    diagnostics: Option<Diagnostics>,
}

struct Node {
    index: usize,
    name: String,
    operation: Box<dyn Operation>,
    inputs: Vec<InputRoute>,
    outputs: Vec<OutputRoute>,
    /// Inputs of this operation that are outputs of earlier operations.
    internals: Vec<InternalInput>,
    wake: Wake,
    is_source: bool,
}

struct InternalInput {
    input: usize,
    /// Index of the operation that the input comes from, and index of that operation's output.
    from: (usize, usize),
    /// Device that `Operation::device_of_input` returned last for this input.
    device: Option<Device>,
}

impl Node {
    /// Returns the operation, and an outbox that publishes on the operation's outputs.
    fn parts<'a>(&'a mut self, shared: &'a mut Shared, sink: &'a mut dyn Sink) -> (&'a mut dyn Operation, Outbox<'a>) {
        let out = Outbox {
            operation: &self.name,
            ended: &mut shared.ended,
            outputs: &self.outputs,
            inputs: &self.inputs,
            internal: &mut shared.internal,
            faults: &mut shared.faults,
            sink,
            times: MessageTimes::default(),
            in_flight_bytes: 0,
            diagnostics: shared.diagnostics.as_mut(),
            index: self.index,
        };
        (self.operation.as_mut(), out)
    }
}

impl Graph {
    /// Wires the operations. An input comes from the nearest earlier operation with an output of its name, else from the
    /// dataflow. The function `is_published` says which outputs the dataflow lists. Messages between operations get their
    /// memory from `memory`.
    pub fn new(operations: Vec<Registration>, is_published: impl Fn(&str) -> bool, memory: &HostMemory) -> Self {
        let mut graph = Self {
            nodes: Vec::with_capacity(operations.len()),
            externals: Vec::new(),
            external_sites: Vec::new(),
            residences: Vec::new(),
            warnings: Vec::new(),
            shared: Shared {
                internal: InternalMessages {
                    on_host: Some(Message::new(memory)),
                    ..InternalMessages::default()
                },
                on_host: Some(Message::new(memory)),
                ..Shared::default()
            },
            memory: memory.clone(),
        };
        for (index, registration) in operations.into_iter().enumerate() {
            graph.add(index, registration, &is_published);
        }
        let names = graph.externals.iter().map(|(name, _)| format!("input `{name}`"));
        graph.external_sites = names.map(|name| graph.shared.faults.add_site(name)).collect();
        graph
    }

    /// Warnings about the configuration: sections that are not used, and operations listed before an operation whose output
    /// they seem to need. They are also logged, unless the configuration is only [checked](super::App::check).
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Names of the outputs whose payloads go into a ring (shared or device memory), each with the ring's settings. The [`Sink`]
    /// makes the rings.
    pub fn residences(&self) -> &[(String, OutputResidence)] {
        &self.residences
    }

    /// Names of the inputs that have to come from the dataflow, each with the first operation that takes it. Other methods take the
    /// index in this list as `external`.
    ///
    /// A misspelt input of an operation is one of these names, too, and the operation waits for it: compare the names with the
    /// streams that you have.
    pub fn external_inputs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.externals.iter().map(|(name, consumers)| {
            let first = consumers.first().map(|&(operation, _)| &self.nodes[operation]);
            (name.as_str(), first.map_or("", |node| &node.name))
        })
    }

    /// One line of text for each operation: its name, its inputs and its outputs.
    pub fn operations(&self) -> impl Iterator<Item = String> {
        self.nodes.iter().map(|node| {
            let list = |names: Vec<&str>| match names.as_slice() {
                [] => "nothing".to_owned(),
                names => names.join(", "),
            };
            let inputs = list(node.inputs.iter().map(|input| input.name.as_str()).collect());
            let outputs = list(node.outputs.iter().map(|output| output.name.as_str()).collect());
            format!("{}: takes {inputs}; publishes {outputs}", node.name)
        })
    }

    /// Names of the outputs of all operations, in the order of the operations, whether the dataflow wants them or not.
    pub fn outputs(&self) -> impl Iterator<Item = &str> {
        let outputs = self.nodes.iter().flat_map(|node| &node.outputs);
        outputs.map(|output| output.name.as_str())
    }

    /// Inputs and outputs, such as "fuse: input `force`", each with its number of faults and warnings since the start, which
    /// may be 0.
    pub fn faults(&self) -> impl Iterator<Item = (&str, u64)> {
        self.shared.faults.counts()
    }

    /// Faults and warnings of each kind at each input or output: its name, the number of events, and their last line in
    /// the log.
    pub fn causes(&self) -> impl Iterator<Item = (&str, u64, &str)> {
        self.shared.faults.causes()
    }

    /// Returns which fields operations read of the payloads of an input of the dataflow, to make a
    /// [`Selector`](robocache_stream::Selector). `None` if operations with this input read different fields.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn selection(&self, external: usize) -> Option<Selection> {
        let consumers = self.externals[external].1.iter();
        let mut selections = consumers.map(|&(operation, input)| self.nodes[operation].operation.selection(input));
        let first = selections.next().unwrap_or_default();
        selections.try_fold(first, Selection::and)
    }

    /// Delivers a message of an input of the dataflow (by its index in [`external_inputs`](Self::external_inputs)) to the
    /// operations. If its header contradicts its payload ([`Message::check`]), it counts as a fault, and only operations that
    /// [take any](Operation::takes_any) message get it. Each operation checks the stamp and the payload's form itself.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn message(&mut self, external: usize, message: &Message, sink: &mut dyn Sink) {
        let checked = message.check_unchanged();
        let is_unread = checked.is_err();
        if let Err(error) = checked {
            self.external_fault(external, 1, error);
        }
        self.hand_on(external, InputMessage::Borrowed(message), is_unread, sink);
    }

    /// Delivers a message to the operations with this input of the dataflow. If `is_unread`, the message can't be read, and
    /// only operations that [take any](Operation::takes_any) message get it.
    fn hand_on(&mut self, external: usize, mut message: InputMessage<'_>, is_unread: bool, sink: &mut dyn Sink) {
        let takers = self.externals[external].1.len();
        for i in 0..takers {
            let (operation, input) = self.externals[external].1[i];
            let handed = match &mut message {
                InputMessage::Owned(message) if i + 1 == takers => InputMessage::Owned(message),
                message => InputMessage::Borrowed(message),
            };
            if !is_unread || self.nodes[operation].operation.takes_any(input) {
                self.deliver(operation, input, handed, sink);
            }
        }
        self.settle(sink);
    }

    /// Tells the operations that an input of the dataflow (by its index in [`external_inputs`](Self::external_inputs)) was closed,
    /// or opened again.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn changed(&mut self, external: usize, change: Change, sink: &mut dyn Sink) {
        for i in 0..self.externals[external].1.len() {
            let (operation, input) = self.externals[external].1[i];
            self.change(operation, input, change, sink);
        }
        self.settle(sink);
    }

    /// Tells the operations that every input of the dataflow is closed.
    pub fn close_all(&mut self, sink: &mut dyn Sink) {
        for external in 0..self.externals.len() {
            self.changed(external, Change::Closed, sink);
        }
    }

    /// Sets a live parameter. The key `name.key` sets it in the operation `name`, and `key` alone in every operation that has it. A
    /// parameter that is refused or unknown is logged, and changes nothing.
    pub fn parameter(&mut self, key: &str, value: &Value, sink: &mut dyn Sink) {
        let mut is_known = false;
        let json = Json(value);
        for i in 0..self.nodes.len() {
            let node = &mut self.nodes[i];
            let own = key.strip_prefix(&node.name).and_then(|key| key.strip_prefix('.'));
            match node.operation.parameter(own.unwrap_or(key), value) {
                Ok(is_own) => {
                    if is_own {
                        tracing::info!("{}: parameter `{key}` is now {json}", node.name);
                    }
                    is_known |= is_own;
                }
                Err(error) => {
                    is_known = true;
                    tracing::warn!("{}: parameter `{key}` = {json} is refused: {error}", node.name);
                }
            }
            self.resume(i, 0, None, MessageTimes::default(), sink);
        }
        if !is_known {
            tracing::warn!("parameter `{key}` = {json}: no operation of this node has it");
        }
        self.settle(sink);
    }

    /// Calls the operations whose time has come. Call it with `starting` true once before the first message:
    /// it then calls every operation, so that sources begin. From then on call it with `starting` false at
    /// each [`next_wake`](Self::next_wake).
    ///
    /// # Errors
    /// The error of an operation that can't go on, now or since the last call.
    pub fn wake(&mut self, now: Instant, starting: bool, sink: &mut dyn Sink) -> Result<(), AppError> {
        for i in 0..self.nodes.len() {
            let mut starting = starting;
            for _ in 0..WAKES_AT_ONCE {
                let node = &mut self.nodes[i];
                let is_due = match node.wake {
                    Wake::At(time) => time <= now,
                    Wake::Never => std::mem::take(&mut starting),
                    Wake::Done => false,
                };
                if !is_due {
                    break;
                }
                let (operation, mut out) = node.parts(&mut self.shared, sink);
                let wake = operation.wake(now, &mut out);
                node.wake = wake.map_err(|error| AppError::of(&node.name, error))?;
                self.settle(sink);
                if self.nodes[i].wake == Wake::Done {
                    self.close_outputs(i, sink);
                    self.settle(sink);
                }
            }
        }
        self.shared.ended.take().map_or(Ok(()), Err)
    }

    /// Earliest time at which an operation wants to be called; `None` if no operation does. It is the present time if an operation
    /// can't go on: [`wake`](Self::wake) then returns its error.
    pub fn next_wake(&self) -> Option<Instant> {
        if self.shared.ended.is_some() {
            return Some(Instant::now());
        }
        let times = self.nodes.iter().filter_map(|node| match node.wake {
            Wake::At(time) => Some(time),
            _ => None,
        });
        times.min()
    }

    /// True if no input comes from the dataflow, and all sources are done: nothing more will be published.
    pub fn is_done(&self) -> bool {
        let mut sources = self.nodes.iter().filter(|node| node.is_source);
        self.externals.is_empty() && sources.all(|node| node.wake == Wake::Done)
    }

    /// Ends the node: finishes every operation, and logs the counts of the run.
    ///
    /// # Errors
    /// The error of the first operation that could not go on, or can't finish.
    pub fn finish(&mut self, sink: &mut dyn Sink) -> Result<(), AppError> {
        let mut result = self.shared.ended.take().map_or(Ok(()), Err);
        for i in 0..self.nodes.len() {
            let node = &mut self.nodes[i];
            let (operation, mut out) = node.parts(&mut self.shared, sink);
            if let Err(error) = operation.finish(&mut out) {
                result = result.and(Err(AppError::of(&node.name, error)));
            }
            self.settle(sink);
        }
        self.shared.faults.summarize();
        result
    }

    /// Counts messages of an input of the dataflow that can't be read, and tells the operations that take the input.
    pub(crate) fn external_fault(&mut self, external: usize, times: u64, message: impl std::fmt::Display) {
        self.shared.faults.count(self.external_sites[external], times, message);
        for &(operation, input) in &self.externals[external].1 {
            self.nodes[operation].operation.unreadable(input, times);
        }
    }

    /// Starts to collect diagnostics for [`report`](Self::report). Before this call nothing is collected.
    pub fn gather_diagnostics(&mut self) {
        let operations = self.nodes.iter().map(|node| {
            let inputs = node.inputs.iter().map(|input| input.name.as_str());
            (node.name.as_str(), inputs)
        });
        self.shared.diagnostics = Some(Diagnostics::new(operations));
    }

    /// Makes the report of the operations; `None` unless [`gather_diagnostics`](Self::gather_diagnostics) was called. A report
    /// covers the faults and losses since the last one, so an event loop calls this once a second. The event loop adds the
    /// node's id and the depth of its queue.
    pub fn report(&mut self, now: Instant) -> Option<Report> {
        let Self { nodes, externals, .. } = self;
        let faults = &self.shared.faults;
        let report = self.shared.diagnostics.as_mut()?.report(now, |operation, input| {
            let node = &nodes[operation];
            let route = &node.inputs[input];
            let takes = |(_, takers): &(String, Vec<_>)| takers.contains(&(operation, input));
            let of_dataflow = externals.iter().position(takes);
            let sites = of_dataflow.map(|external| self.external_sites[external]);
            InputState {
                diagnosis: node.operation.diagnosis(input),
                health_issue: node.operation.health_issue(input),
                faulty: faults.faulty(sites.into_iter().chain([route.fault_site])),
                is_open: route.open,
                may_be_silent: node.operation.takes_any(input),
            }
        });
        Some(report)
    }
}

/// Methods for dora's event loop, which has checked its messages when it read them.
#[cfg(feature = "dora")]
impl Graph {
    /// Allocator for the memory of messages that are fed to this graph.
    pub(crate) fn host_memory(&self) -> &HostMemory {
        &self.memory
    }

    /// True if an operation takes every message of an input of the dataflow: [`Operation::takes_any`].
    pub(crate) fn takes_any(&self, external: usize) -> bool {
        let mut consumers = self.externals[external].1.iter();
        consumers.any(|&(operation, input)| self.nodes[operation].operation.takes_any(input))
    }

    /// Does the same as [`message`](Self::message) with a message that the caller does not need any more. An operation may
    /// exchange it for another message, whose memory the caller can reuse.
    pub(crate) fn owned_message(&mut self, external: usize, message: &mut Message, sink: &mut dyn Sink) {
        match message.is_unread {
            true => self.hand_on(external, InputMessage::Borrowed(message), true, sink),
            false => self.hand_on(external, InputMessage::Owned(message), false, sink),
        }
    }

    /// Counts `times` messages of an input of the dataflow that were lost before they reached the graph. The log calls the loss
    /// `kind` and has `message` as the text.
    pub(crate) fn external_loss(&mut self, external: usize, kind: &'static str, times: u64, message: &str) {
        let site = self.external_sites[external];
        self.shared.faults.drop(site, Dropped::Overflow, times);
        self.shared.faults.warn(site, kind, times, message);
    }

    /// Logs the counts that the rate limit has suppressed for ten seconds. The event loop calls it every second.
    pub(crate) fn log_suppressed(&mut self, now: Instant) {
        self.shared.faults.log_suppressed(now);
    }
}
