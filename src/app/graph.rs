//! The operations of a node, and the messages between them.

use super::diagnostics::{Diagnostics, InputState};
use super::faults::{Dropped, Faults};
use super::free::FreeList;
use super::handed::Handed;
use super::operation::{Change, Operation, Wake};
use super::outbox::{Delivery, InputRoute, Internal, MessageTimes, Outbox, OutputRoute, Sink};
use super::{AppError, OutputResidence, Registration, Report, Value};
use robocache_device::HostMemory;
use robocache_stream::{Message, Reading};
use robocache_yaml::Json;
use std::time::Instant;

/// The operations of a node in order, wired to one another and to the inputs and outputs of the dataflow. It has no event
/// loop: whoever owns it feeds it messages, and a [`Sink`] gets what it publishes.
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
    /// The inputs that come from the dataflow, each with the operations and inputs that take it.
    externals: Vec<(String, Vec<(usize, usize)>)>,
    external_sites: Vec<usize>,
    shared: Shared,
    memory: HostMemory,
    residences: Vec<(String, OutputResidence)>,
}

/// What every operation of a node uses.
#[derive(Default)]
struct Shared {
    internal: Internal,
    faults: Faults,
    /// Why the node has to end.
    ended: Option<AppError>,
    /// Memory for a copy on the host of a message whose taker does not take it on its device any more.
    on_host: Option<Message>,
    /// What is gathered where somebody wants to know.
    diagnostics: Option<Diagnostics>,
}

struct Node {
    index: usize,
    name: String,
    operation: Box<dyn Operation>,
    inputs: Vec<InputRoute>,
    outputs: Vec<OutputRoute>,
    /// The inputs that are outputs of earlier operations.
    internals: Vec<InternalInput>,
    wake: Wake,
    is_source: bool,
}

struct InternalInput {
    input: usize,
    /// The operation that it comes from, and which of its outputs it is.
    from: (usize, usize),
    /// The device at which it was wanted when that was last asked.
    device: Option<usize>,
}

impl Node {
    /// The operation, and what it publishes through.
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
            handed_on: 0,
            diagnostics: shared.diagnostics.as_mut(),
            index: self.index,
        };
        (self.operation.as_mut(), out)
    }
}

impl Graph {
    /// Wires the operations: an input is taken from an earlier operation's output of that name, else from the
    /// dataflow. `is_published` says which outputs the dataflow wants. Messages between operations get their memory from
    /// `memory`.
    pub fn new(operations: Vec<Registration>, is_published: impl Fn(&str) -> bool, memory: &HostMemory) -> Self {
        let mut graph = Self {
            nodes: Vec::with_capacity(operations.len()),
            externals: Vec::new(),
            external_sites: Vec::new(),
            residences: Vec::new(),
            shared: Shared {
                internal: Internal {
                    on_host: Some(Message::new(memory)),
                    ..Internal::default()
                },
                on_host: Some(Message::new(memory)),
                ..Shared::default()
            },
            memory: memory.clone(),
        };
        for (index, registration) in operations.into_iter().enumerate() {
            graph.add(index, registration, &is_published);
        }
        for (name, _) in &graph.externals {
            graph
                .external_sites
                .push(graph.shared.faults.add_site(format!("input `{name}`")));
        }
        graph
    }

    /// Where messages to this graph should have their memory.
    pub fn host_memory(&self) -> &HostMemory {
        &self.memory
    }

    fn add(&mut self, index: usize, registration: Registration, is_published: impl Fn(&str) -> bool) {
        let mut inputs = Vec::with_capacity(registration.inputs.len());
        let mut internals = Vec::new();
        for (i, input) in registration.inputs.iter().enumerate() {
            let fault_site = self
                .shared
                .faults
                .add_site(format!("{}: input `{input}`", registration.name));
            inputs.push(InputRoute {
                name: input.clone(),
                open: true,
                fault_site,
            });
            let earlier = self.nodes.iter().enumerate().rev().find_map(|(from, node)| {
                let output = node.outputs.iter().position(|output| output.name == *input)?;
                Some((from, output))
            });
            match earlier {
                Some(from) => {
                    let output = &mut self.nodes[from.0].outputs[from.1];
                    output.consumers.push((index, i));
                    self.shared.internal.free[output.index].keep_one_more();
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
            internal.free.push(FreeList::new(1, &self.memory));
            OutputRoute {
                published: is_published(&name),
                consumers: Vec::new(),
                device: None,
                published_at: None,
                fault_site: faults.add_site(format!("{}: output `{name}`", registration.name)),
                index: internal.free.len() - 1,
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

    /// Asks an operation on which device it wants its inputs, which may change with every call, and tells the operations
    /// before it.
    fn ask_for_devices(&mut self, of: usize) {
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

    /// The device at which everybody who takes an output wants it.
    fn device_of_output(&self, (operation, output): (usize, usize)) -> Option<usize> {
        let consumers = self.nodes[operation].outputs[output].consumers.iter();
        // The one that is being added is not there yet, and is asked last.
        let takers = consumers.filter_map(|&(taker, input)| Some((self.nodes.get(taker)?, input)));
        let mut devices = takers.map(|(taker, input)| taker.operation.device_of_input(input));
        let Some(first) = devices.next() else {
            return self.nodes[operation].outputs[output].published_at;
        };
        first.filter(|_| devices.all(|device| device == first))
    }

    /// Sets where the payloads of published outputs are to be.
    pub(super) fn set_residences(&mut self, residences: Vec<(String, OutputResidence)>) {
        for (name, residence) in &residences {
            let nodes = self.nodes.iter_mut().flat_map(|node| &mut node.outputs);
            for output in nodes.filter(|output| output.name == *name && output.published) {
                output.published_at = residence.gpu().map(|gpu| gpu.ordinal());
                if output.consumers.is_empty() {
                    output.device = output.published_at;
                }
            }
        }
        self.residences = residences;
    }

    /// The outputs whose payloads are to be in a ring, which whoever sends them makes.
    pub fn residences(&self) -> &[(String, OutputResidence)] {
        &self.residences
    }

    /// The inputs that have to come from the dataflow, and the operation that takes each first.
    ///
    /// A misspelt input of an operation is one of these, too, and the operation waits for it: compare them with the streams
    /// that you have.
    pub fn external_inputs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.externals.iter().map(|(name, consumers)| {
            let operation = consumers
                .first()
                .map_or("", |&(operation, _)| self.nodes[operation].name.as_str());
            (name.as_str(), operation)
        })
    }

    /// What each operation takes and publishes, in words.
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

    /// The outputs of all operations.
    pub fn outputs(&self) -> impl Iterator<Item = &str> {
        let outputs = self.nodes.iter().flat_map(|node| &node.outputs);
        outputs.map(|output| output.name.as_str())
    }

    /// The inputs and outputs at which something can go wrong, such as "fuse: input `force`", and how often it did: faults
    /// and warnings together, also where that is 0.
    pub fn faults(&self) -> impl Iterator<Item = (&str, u64)> {
        self.shared.faults.counts()
    }

    /// The same by what happened: where, how often, and what the log said of it last.
    pub fn causes(&self) -> impl Iterator<Item = (&str, u64, &str)> {
        self.shared.faults.causes()
    }

    /// How the payloads of an input of the dataflow are read: a [`Selector`](robocache_stream::Selector) does so. `None` where
    /// its operations differ about that.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn reading(&self, external: usize) -> Option<Reading> {
        let consumers = self.externals[external].1.iter();
        let mut readings = consumers.map(|&(operation, input)| self.nodes[operation].operation.reading(input));
        let first = readings.next().unwrap_or_default();
        readings.try_fold(first, Reading::and)
    }

    /// An input of an operation that says where things stand in the payload, though another operation of this process makes
    /// the messages.
    pub(super) fn misread(&self) -> Option<(&str, &str)> {
        self.nodes.iter().find_map(|node| {
            let mut inputs = node.internals.iter().map(|internal| internal.input);
            let misread = inputs.find(|&input| node.operation.reading(input).from.is_some())?;
            Some((node.name.as_str(), node.inputs[misread].name.as_str()))
        })
    }

    /// Whether an operation takes every message of an input of the dataflow: [`Operation::takes_any`].
    ///
    /// # Panics
    /// If there is no such input.
    pub fn takes_any(&self, external: usize) -> bool {
        let mut consumers = self.externals[external].1.iter();
        consumers.any(|&(operation, input)| self.nodes[operation].operation.takes_any(input))
    }

    /// A message came on an input of the dataflow (by its index in [`external_inputs`](Self::external_inputs)). It is
    /// checked as by [`Message::check`]. One whose header contradicts its payload is counted as a fault, and goes no further
    /// than to operations that [take any](Operation::takes_any). Whether it has a stamp and is of the form that an operation
    /// needs, the operation itself checks.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn message(&mut self, external: usize, message: &Message, sink: &mut dyn Sink) {
        match message.check_unchanged() {
            Ok(()) => self.checked_message(external, message, sink),
            Err(error) => {
                self.external_fault(external, 1, error);
                self.unread_message(external, message, sink);
            }
        }
    }

    /// A message came that can't be read: only operations that [take any](Operation::takes_any) get it.
    pub(crate) fn unread_message(&mut self, external: usize, message: &Message, sink: &mut dyn Sink) {
        for i in 0..self.externals[external].1.len() {
            let (operation, input) = self.externals[external].1[i];
            if self.nodes[operation].operation.takes_any(input) {
                self.hand_over(operation, input, Handed::Lent(message), sink);
            }
        }
        self.settle(sink);
    }

    /// [`message`](Self::message) for a message that was checked when it was read.
    fn checked_message(&mut self, external: usize, message: &Message, sink: &mut dyn Sink) {
        for i in 0..self.externals[external].1.len() {
            let (operation, input) = self.externals[external].1[i];
            self.hand_over(operation, input, Handed::Lent(message), sink);
        }
        self.settle(sink);
    }

    /// [`message`](Self::message) for a message that was checked when it was read, and is not needed any more: an
    /// operation may have exchanged it for another one, whose memory is to be used again.
    #[cfg_attr(not(feature = "dora"), allow(dead_code))]
    pub(crate) fn owned_message(&mut self, external: usize, message: &mut Message, sink: &mut dyn Sink) {
        let takers = self.externals[external].1.len();
        for i in 0..takers {
            let (operation, input) = self.externals[external].1[i];
            let handed = match i + 1 == takers {
                true => Handed::Given(message),
                false => Handed::Lent(message),
            };
            self.hand_over(operation, input, handed, sink);
        }
        self.settle(sink);
    }

    /// The state of an input of the dataflow changed.
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

    /// Every input of the dataflow is closed.
    pub fn close_all(&mut self, sink: &mut dyn Sink) {
        for external in 0..self.externals.len() {
            self.changed(external, Change::Closed, sink);
        }
    }

    /// A parameter was set: of the operation whose name stands before it, or of every operation that has it.
    pub fn parameter(&mut self, key: &str, value: &Value, sink: &mut dyn Sink) {
        let mut known = false;
        let json = Json(value);
        for i in 0..self.nodes.len() {
            let node = &mut self.nodes[i];
            let own = key.strip_prefix(&node.name).and_then(|key| key.strip_prefix('.'));
            match node.operation.parameter(own.unwrap_or(key), value) {
                Ok(mine) => {
                    if mine {
                        tracing::info!("{}: parameter `{key}` is now {json}", node.name);
                    }
                    known |= mine;
                }
                Err(error) => {
                    known = true;
                    tracing::warn!("{}: parameter `{key}` = {json} is refused: {error}", node.name);
                }
            }
            let before = self.shared.internal.pending.len();
            self.go_on(i, 0, None, MessageTimes::default(), before, sink);
        }
        if !known {
            tracing::warn!("parameter `{key}` = {json}: no operation of this node has it");
        }
        self.settle(sink);
    }

    /// Calls the operations whose time has come: at [`next_wake`](Self::next_wake), with `starting` false. With `starting`
    /// it calls every operation, which is to happen once, before the first message: sources begin then, and operations ask
    /// for the time at which they want to be called next.
    ///
    /// # Errors
    /// That of an operation that can't go on, now or since the last call.
    pub fn wake(&mut self, now: Instant, starting: bool, sink: &mut dyn Sink) -> Result<(), AppError> {
        for i in 0..self.nodes.len() {
            let due = match self.nodes[i].wake {
                Wake::At(time) => time <= now,
                Wake::Never => starting,
                Wake::Done => false,
            };
            if !due {
                continue;
            }
            let node = &mut self.nodes[i];
            let (operation, mut out) = node.parts(&mut self.shared, sink);
            let wake = operation.wake(now, &mut out);
            node.wake = wake.map_err(|error| AppError::Operation {
                operation: node.name.clone(),
                error: error.into_inner(),
            })?;
            self.settle(sink);
            if self.nodes[i].wake == Wake::Done {
                self.close_outputs(i, sink);
                self.settle(sink);
            }
        }
        self.shared.ended.take().map_or(Ok(()), Err)
    }

    /// When an operation next wants to be called. At once where one has said that it can't go on: [`wake`](Self::wake) has
    /// its error.
    pub fn next_wake(&self) -> Option<Instant> {
        if self.shared.ended.is_some() {
            return Some(Instant::now());
        }
        self.nodes
            .iter()
            .filter_map(|node| match node.wake {
                Wake::At(time) => Some(time),
                _ => None,
            })
            .min()
    }

    /// Whether the node has sources of its own only, and all of them are done.
    pub fn is_done(&self) -> bool {
        self.externals.is_empty()
            && self
                .nodes
                .iter()
                .filter(|node| node.is_source)
                .all(|node| node.wake == Wake::Done)
    }

    /// The node ends.
    ///
    /// # Errors
    /// That of the first operation that could not go on, or can't finish.
    pub fn finish(&mut self, sink: &mut dyn Sink) -> Result<(), AppError> {
        let mut result = self.shared.ended.take().map_or(Ok(()), Err);
        for node in &mut self.nodes {
            let (operation, mut out) = node.parts(&mut self.shared, sink);
            if let Err(error) = operation.finish(&mut out) {
                result = result.and(Err(AppError::Operation {
                    operation: node.name.clone(),
                    error: error.into_inner(),
                }));
            }
        }
        self.settle(sink);
        self.shared.faults.summarize();
        result
    }

    /// Counts a fault of an input of the dataflow: messages that its event loop could not read.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn external_fault(&mut self, external: usize, times: u64, message: impl std::fmt::Display) {
        self.shared.faults.count(self.external_sites[external], times, message);
        for &(operation, input) in &self.externals[external].1 {
            self.nodes[operation].operation.unreadable(input, times);
        }
    }

    /// Counts messages at an input of the dataflow that were dropped, as too many waited.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn external_loss(&mut self, external: usize, kind: &'static str, times: u64, message: impl std::fmt::Display) {
        let site = self.external_sites[external];
        self.shared.faults.drop(site, Dropped::Overflow, times);
        self.shared.faults.warn(site, kind, times, message);
    }

    /// Gathers from now on what [`report`](Self::report) says. Until then nothing is gathered.
    pub fn gather_diagnostics(&mut self) {
        let operations = self.nodes.iter().map(|node| {
            let inputs = node.inputs.iter().map(|input| input.name.as_str());
            (node.name.as_str(), inputs)
        });
        self.shared.diagnostics = Some(Diagnostics::new(operations));
    }

    /// The diagnostics of the operations, where they are [gathered](Self::gather_diagnostics). What they were dropping or
    /// refusing counts from one call to the next: an event loop calls it once a second. It knows neither the node nor its
    /// queue.
    pub fn report(&mut self, now: Instant) -> Option<Report> {
        let Self { nodes, externals, .. } = self;
        let faults = &self.shared.faults;
        let report = self.shared.diagnostics.as_mut()?.report(now, |operation, input| {
            let node = &nodes[operation];
            let route = &node.inputs[input];
            let of_dataflow = externals
                .iter()
                .position(|(_, consumers)| consumers.contains(&(operation, input)));
            let sites = of_dataflow.map(|external| self.external_sites[external]);
            InputState {
                diagnosis: node.operation.diagnosis(input),
                ailment: node.operation.ailment(input),
                faulty: faults.faulty(sites.into_iter().chain([route.fault_site])),
                is_open: route.open,
                may_be_silent: node.operation.takes_any(input),
            }
        });
        Some(report)
    }

    /// Logs what the limited rate of the log has held back for a while. An event loop calls it every few seconds.
    pub fn say_unsaid(&mut self, now: Instant) {
        self.shared.faults.say_unsaid(now);
    }

    fn hand_over(&mut self, to: usize, input: usize, message: Handed<'_>, sink: &mut dyn Sink) {
        let node = &mut self.nodes[to];
        node.inputs[input].open = true;
        let at = message.on_device().map(|tensor| tensor.memory.gpu().ordinal());
        if at.is_none() || node.operation.device_of_input(input) == at {
            self.put_in(to, input, message, sink);
            return;
        }
        // It was sent before its taker went back to the host.
        let mut on_host = self.shared.on_host.take().unwrap_or_default();
        match on_host.fetch(&message) {
            Ok(()) => self.put_in(to, input, Handed::Given(&mut on_host), sink),
            Err(error) => self
                .shared
                .faults
                .count(self.nodes[to].inputs[input].fault_site, 1, error),
        }
        self.shared.on_host = Some(on_host);
    }

    fn put_in(&mut self, to: usize, input: usize, mut message: Handed<'_>, sink: &mut dyn Sink) {
        let before = self.shared.internal.pending.len();
        if let Some(diagnostics) = &mut self.shared.diagnostics {
            diagnostics.came(to, input, &message);
        }
        let (operation, mut out) = self.nodes[to].parts(&mut self.shared, sink);
        let times = MessageTimes::of(&message);
        out.times = times;
        let taken = match &mut message {
            Handed::Lent(message) => operation.input(input, message, &mut out),
            Handed::Given(message) => operation.input_owned(input, message, &mut out),
        };
        if let Err(error) = taken {
            out.fault(input, error);
        }
        self.ask_for_devices(to);
        self.go_on(to, input, Some(&message), times, before, sink);
    }

    /// Lets an operation finish what its last call left, and delivers what it published after each step. The first
    /// `before` messages of the queue were there before the call, and wait.
    fn go_on(
        &mut self,
        of: usize,
        input: usize,
        message: Option<&Message>,
        times: MessageTimes,
        before: usize,
        sink: &mut dyn Sink,
    ) {
        if !self.nodes[of].operation.has_more() {
            return;
        }
        let published = self.shared.internal.pending.split_off(before);
        let mut before = std::mem::replace(&mut self.shared.internal.pending, published);
        while self.nodes[of].operation.has_more() {
            self.settle(sink);
            let (operation, mut out) = self.nodes[of].parts(&mut self.shared, sink);
            out.times = times;
            if let Err(error) = operation.go_on(message, &mut out) {
                out.fault(input, error);
            }
            self.ask_for_devices(of);
        }
        before.append(&mut self.shared.internal.pending);
        self.shared.internal.pending = before;
    }

    fn change(&mut self, of: usize, input: usize, change: Change, sink: &mut dyn Sink) {
        let node = &mut self.nodes[of];
        node.inputs[input].open = change == Change::Opened;
        let (operation, mut out) = node.parts(&mut self.shared, sink);
        let before = out.internal.pending.len();
        operation.changed(input, change, &mut out);
        self.ask_for_devices(of);
        self.go_on(of, input, None, MessageTimes::default(), before, sink);
        self.settle(sink);
        if self.nodes[of].inputs.iter().all(|input| !input.open) {
            self.close_outputs(of, sink);
        }
    }

    fn close_outputs(&mut self, operation: usize, sink: &mut dyn Sink) {
        for output in 0..self.nodes[operation].outputs.len() {
            for i in 0..self.nodes[operation].outputs[output].consumers.len() {
                let (consumer, input) = self.nodes[operation].outputs[output].consumers[i];
                self.change(consumer, input, Change::Closed, sink);
            }
        }
    }

    /// Delivers what the operations published to one another, until nothing is on its way.
    fn settle(&mut self, sink: &mut dyn Sink) {
        while let Some(Delivery {
            operation,
            input,
            mut message,
            from,
        }) = self.shared.internal.pending.pop_front()
        {
            self.hand_over(operation, input, Handed::Given(&mut message), sink);
            self.shared.internal.give_back(from, message);
        }
    }
}
