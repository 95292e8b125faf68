use super::faults::Faults;
use super::free::FreeList;
use super::{AppError, Fault};
use crate::device::Dtype;
use crate::device::cuda::{Budget, CudaError, DeviceBuf, Gpu};
use crate::stream::{Layout, Message, Payload};
use dora_node_api::MetadataParameters;

/// Where published messages go: dora, or a test.
pub trait Sink {
    /// Makes room for a payload of this layout, has `fill` write it and say its metadata, and sends it.
    fn send(
        &mut self,
        output: &str,
        layout: &Layout,
        fill: &mut dyn FnMut(&mut Payload<'_>) -> MetadataParameters,
    ) -> Result<(), Fault>;
}

pub(super) struct OutputRoute {
    pub name: String,
    pub published: bool,
    pub consumers: Vec<(usize, usize)>,
    /// The device at which every one of the consumers takes tensors.
    pub device: Option<usize>,
    pub fault_place: usize,
    /// Its place among the outputs of all operations.
    pub place: usize,
}

pub(super) struct InputRoute {
    pub name: String,
    pub open: bool,
    pub fault_place: usize,
}

/// A message on its way from one operation to another in the same process.
pub(super) struct Delivery {
    pub operation: usize,
    pub input: usize,
    pub message: Message,
    /// The place of the output that it came from.
    pub from: usize,
}

/// Messages between operations: those on their way, and the memory of those that arrived.
#[derive(Default)]
pub(super) struct Internal {
    pub pending: std::collections::VecDeque<Delivery>,
    /// For each output its own, as the memory on a device counts in the budget of the operation that sends.
    pub free: Vec<FreeList>,
    /// A copy on the host of what is on a device.
    pub on_host: Message,
}

impl Internal {
    fn take(&mut self, route: &OutputRoute) -> Message {
        self.free[route.place].take()
    }

    /// Memory for a message on the host. What it has on a device is given back once nobody wants it there.
    fn take_for_host(&mut self, route: &OutputRoute) -> Message {
        let mut message = self.take(route);
        if route.device.is_none() {
            message.release_device();
        }
        message
    }

    /// Gives the memory of a message of an output back.
    pub fn give_back(&mut self, place: usize, message: Message) {
        self.free[place].put(message);
    }
}

/// What an operation publishes through, and where it reports what went wrong.
pub struct Outbox<'a> {
    pub(super) operation: &'a str,
    pub(super) ended: &'a mut Option<AppError>,
    pub(super) outputs: &'a [OutputRoute],
    pub(super) inputs: &'a [InputRoute],
    pub(super) internal: &'a mut Internal,
    pub(super) faults: &'a mut Faults,
    pub(super) sink: &'a mut dyn Sink,
}

impl Outbox<'_> {
    /// Whether anybody gets what is published on this output (by its place in the registration).
    pub fn is_wanted(&self, output: usize) -> bool {
        let route = &self.outputs[output];
        route.published || !route.consumers.is_empty()
    }

    /// Publishes a message: `fill` writes the payload, once, and gives the metadata. Nothing is done where nobody
    /// listens.
    ///
    /// What goes wrong is counted and logged, and holds up nobody else: a message that can't be sent to the dataflow
    /// still comes to the operations of this process; one whose metadata they can't read comes to none of them, and
    /// still to the dataflow.
    pub fn send(&mut self, output: usize, layout: &Layout, fill: impl FnOnce(&mut Payload<'_>) -> MetadataParameters) {
        let outputs = self.outputs;
        let route = &outputs[output];
        let Some((&last, others)) = route.consumers.split_last() else {
            if route.published {
                let mut fill = Some(fill);
                // Straight to its final place.
                self.publish(route, layout, &mut |payload| {
                    fill.take().map(|fill| fill(payload)).unwrap_or_default()
                });
            }
            return;
        };
        let mut message = self.internal.take_for_host(route);
        let parameters = fill(&mut Payload::in_message(&mut message, layout));
        self.publish_copy(route, layout, &message, &parameters);
        if !self.read(route, &parameters, &mut message) {
            return self.internal.give_back(route.place, message);
        }
        for &consumer in others {
            let mut copied = self.internal.take_for_host(route);
            copy(&message, &mut Payload::in_message(&mut copied, layout));
            self.read(route, &parameters, &mut copied);
            self.hand_on(route, consumer, copied);
        }
        self.hand_on(route, last, message);
    }

    /// Whether a tensor that is on this device is wanted there: the operations that take this output take it there, and
    /// there is one. Then [`send_on_device`](Self::send_on_device) saves its way through the host.
    pub fn is_wanted_on_device(&self, output: usize, gpu: &Gpu) -> bool {
        self.outputs[output].device == Some(gpu.ordinal())
    }

    /// Publishes a flat tensor that stays on the device, in memory that counts in `budget`: `fill` writes it there,
    /// waits for it, and gives the metadata.
    ///
    /// Where the dataflow wants the output, too, it gets a copy on the host. What goes wrong with that, or the metadata,
    /// is as in [`send`](Self::send).
    ///
    /// # Errors
    /// That of `fill`, or of the device. Nothing was sent then.
    pub fn send_on_device(
        &mut self,
        output: usize,
        (dtype, len): (Dtype, usize),
        (gpu, budget): (&Gpu, &Budget),
        fill: impl FnOnce(&mut DeviceBuf) -> Result<MetadataParameters, CudaError>,
    ) -> Result<(), CudaError> {
        let outputs = self.outputs;
        let route = &outputs[output];
        let mut message = self.internal.take(route);
        let memory = message.lay_out_on_device(dtype, len, gpu, budget)?;
        let parameters = fill(memory)?;
        let memory = &*memory;
        // Nothing is sent before all copies are there.
        let copies = route.consumers.iter().skip(1).map(|_| {
            let mut copy = self.internal.take(route);
            let to = copy.lay_out_on_device(dtype, len, gpu, budget)?;
            to.copy_from(0, memory, 0, len * dtype.size())?;
            Ok(copy)
        });
        let mut copies = copies.collect::<Result<Vec<_>, CudaError>>()?;
        if !copies.is_empty() {
            gpu.synchronize()?;
        }
        if route.published {
            let layout = Layout::flat(dtype, len);
            let mut on_host = std::mem::take(&mut self.internal.on_host);
            memory.fetch(0, Payload::in_message(&mut on_host, &layout).column(0))?;
            self.publish_copy(route, &layout, &on_host, &parameters);
            self.internal.on_host = on_host;
        }
        if !self.read(route, &parameters, &mut message) {
            for message in std::iter::once(message).chain(copies) {
                self.internal.give_back(route.place, message);
            }
            return Ok(());
        }
        for copy in &mut copies {
            self.read(route, &parameters, copy);
        }
        for (message, &consumer) in std::iter::once(message).chain(copies).zip(&route.consumers) {
            self.hand_on(route, consumer, message);
        }
        Ok(())
    }

    /// Sends a message to the dataflow. One that can't be sent is counted.
    fn publish(
        &mut self,
        route: &OutputRoute,
        layout: &Layout,
        fill: &mut dyn FnMut(&mut Payload<'_>) -> MetadataParameters,
    ) {
        if let Err(error) = self.sink.send(&route.name, layout, fill) {
            self.faults.count(route.fault_place, 1, error);
        }
    }

    /// Sends a copy of a message to the dataflow, where it wants the output.
    fn publish_copy(
        &mut self,
        route: &OutputRoute,
        layout: &Layout,
        message: &Message,
        parameters: &MetadataParameters,
    ) {
        if route.published {
            self.publish(route, layout, &mut |payload| {
                copy(message, payload);
                parameters.clone()
            });
        }
    }

    /// Reads the metadata of a message for the operations of this process. What can't be read is counted.
    fn read(&mut self, route: &OutputRoute, parameters: &MetadataParameters, message: &mut Message) -> bool {
        let read = super::message::read_parameters(parameters, message);
        read.map_err(|error| self.faults.count(route.fault_place, 1, error))
            .is_ok()
    }

    /// Puts a message on its way to an input of an operation.
    fn hand_on(&mut self, route: &OutputRoute, (operation, input): (usize, usize), message: Message) {
        self.internal.pending.push_back(Delivery {
            operation,
            input,
            message,
            from: route.place,
        });
    }

    /// Ends the node, with exit code 1, after the call that this is called from: the operation can't go on.
    pub fn end(&mut self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) {
        self.ended.get_or_insert_with(|| AppError::Operation {
            operation: self.operation.to_owned(),
            error: error.into(),
        });
    }

    /// Counts a fault of one of the operation's inputs, such as a message of the wrong length, and logs it as an error,
    /// at a limited rate.
    pub fn fault(&mut self, input: usize, error: impl std::fmt::Display) {
        self.faults.count(self.inputs[input].fault_place, 1, error);
    }

    /// Counts what happened at one of the operation's inputs that nobody did wrong, such as a clock jump, and logs it as
    /// a warning. Each kind has a rate limit of its own, so that no other line swallows it.
    pub fn warn(&mut self, input: usize, kind: &'static str, message: impl std::fmt::Display) {
        self.faults.warn(self.inputs[input].fault_place, kind, 1, message);
    }

    /// As [`warn`](Self::warn), for what may go on all the time: a line every 10 s at most.
    pub fn warn_seldom(&mut self, input: usize, kind: &'static str, message: impl std::fmt::Display) {
        self.faults
            .warn_seldom(self.inputs[input].fault_place, kind, 1, message);
    }

    /// Counts so many faults of one of the operation's outputs and logs them at a limited rate.
    pub fn fault_of_output(&mut self, output: usize, times: u64, error: impl std::fmt::Display) {
        self.faults.count(self.outputs[output].fault_place, times, error);
    }
}

fn copy(message: &Message, payload: &mut Payload<'_>) {
    for (i, column) in message.columns().iter().enumerate() {
        payload.column::<u8>(i).copy_from_slice(column.data.bytes());
        payload.offsets(i).copy_from_slice(&column.offsets);
    }
}
