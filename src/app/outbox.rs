//! The outbox, through which an operation publishes messages and reports faults, and the trait of the sinks that send them.
//!
//! Messages to operations of this process are queued, and delivered after the call that published them. A message that can't be
//! sent is counted, and never holds up another consumer.

use super::diagnostics::{Diagnostics, Figures};
use super::faults::{Dropped, Faults};
use super::pool::MessagePool;
use super::{AppError, Fault};
use robocache_device::Device;
use robocache_device::gpu::{Budget, DeviceFault, Gpu};
use robocache_stream::{DeviceColumn, Header, Layout, Message, Payload};

/// Bytes that one call may publish to operations of this process before [`Outbox::is_full`] is true.
const MAX_IN_FLIGHT_BYTES: usize = 16 << 20;

/// A destination of published messages: a dataflow, or a test.
pub trait Sink {
    /// Allocates a payload of this layout, calls `fill` to write the payload and the header, and sends both. The header is
    /// empty before `fill`.
    ///
    /// A sink that keeps messages in this process can call [`Message::write`], which allocates and calls `fill`.
    ///
    /// # Errors
    /// The message can't be sent. The caller counts the error and goes on.
    fn send(
        &mut self,
        output: &str,
        layout: &Layout,
        fill: &mut dyn FnMut(&mut Payload<'_>, &mut Header),
    ) -> Result<(), Fault>;

    /// The GPU from whose memory the sink sends tensors of an output; `None`, the default, if it sends the output from the host
    /// only.
    fn gpu(&self, _output: &str) -> Option<&Gpu> {
        None
    }

    /// Sends a payload of this layout in the memory of [the sink's GPU](Self::gpu), with a header. `columns` are the parts of the
    /// payload, in the order of the layout.
    ///
    /// # Errors
    /// Says why the payload can't be sent from the GPU's memory, such as a lack of room. The caller then [sends](Self::send) it
    /// from the host.
    fn send_on_device(
        &mut self,
        output: &str,
        _layout: &Layout,
        _columns: &[DeviceColumn],
        _header: &Header,
    ) -> Result<(), Fault> {
        Err(format!("`{output}` can't be sent from a device").into())
    }
}

pub(super) struct OutputRoute {
    pub name: String,
    pub published: bool,
    pub consumers: Vec<(usize, usize)>,
    /// Device on which all consumers in this process take tensors of the output; `None` for the host.
    pub device: Option<Device>,
    /// Device on which the dataflow takes tensors of the output, in a ring; `None` for the host.
    pub published_at: Option<Device>,
    pub fault_site: usize,
    /// Index of the output among the outputs of all operations.
    pub index: usize,
}

pub(super) struct InputRoute {
    pub name: String,
    pub open: bool,
    pub fault_site: usize,
}

/// Times of a message's arrival at this host and of its publication, if they are known.
#[derive(Clone, Copy, Default)]
pub(super) struct MessageTimes {
    pub arrival_ns: Option<i64>,
    published_ns: Option<i64>,
}

impl MessageTimes {
    pub(super) fn of(message: &Message) -> Self {
        Self {
            arrival_ns: message.arrival_ns,
            published_ns: message.published_ns,
        }
    }
}

/// A message from one operation to another in the same process, not yet delivered.
pub(super) struct Delivery {
    pub operation: usize,
    pub input: usize,
    pub message: Message,
    /// Index of the output that published the message, among the outputs of all operations.
    pub from: usize,
}

/// Queue of the messages in flight between operations of this process, and the reusable memory of delivered messages.
#[derive(Default)]
pub(super) struct InternalMessages {
    pub pending: std::collections::VecDeque<Delivery>,
    /// Pools of messages, by the index of the output. Device memory in a pool counts in the budget of the operation that sends.
    pub pools: Vec<MessagePool>,
    /// Reused buffer for the host copy of a payload on a device.
    pub on_host: Option<Message>,
}

impl InternalMessages {
    fn take(&mut self, route: &OutputRoute) -> Message {
        self.pools[route.index].take()
    }

    /// Takes a pooled message for a payload on the host. Its device memory is released if no consumer wants the output on a
    /// device now.
    fn take_for_host(&mut self, route: &OutputRoute) -> Message {
        let mut message = self.take(route);
        if route.device.is_none() {
            message.release_device();
        }
        message
    }

    /// Returns the memory of a message to the pool of its output.
    pub(super) fn give_back(&mut self, output: usize, message: Message) {
        self.pools[output].put(message);
    }
}

/// Interface through which an operation publishes messages, reports faults and counts events.
pub struct Outbox<'a> {
    pub(super) operation: &'a str,
    pub(super) ended: &'a mut Option<AppError>,
    pub(super) outputs: &'a [OutputRoute],
    pub(super) inputs: &'a [InputRoute],
    pub(super) internal: &'a mut InternalMessages,
    pub(super) faults: &'a mut Faults,
    pub(super) sink: &'a mut dyn Sink,
    /// Times of the message that the operation works on.
    pub(super) times: MessageTimes,
    /// Bytes that this call has published to operations of this process.
    pub(super) in_flight_bytes: usize,
    /// Collector of the node's diagnostics; `None` if nobody wants them.
    pub(super) diagnostics: Option<&'a mut Diagnostics>,
    /// Index of the operation in the graph.
    pub(super) index: usize,
}

impl Outbox<'_> {
    /// True if the dataflow or an operation of this process takes the messages of this output (by its index in the registration).
    pub fn is_wanted(&self, output: usize) -> bool {
        let route = &self.outputs[output];
        route.published || !route.consumers.is_empty()
    }

    /// True if this call has published 16 MiB or more to operations of this process, which read it after the call returns. An
    /// operation with more to publish then returns, with [`has_more`](super::Operation::has_more) true, and is called again.
    pub fn is_full(&self) -> bool {
        self.in_flight_bytes >= MAX_IN_FLIGHT_BYTES
    }

    /// Publishes a message: `fill` writes the payload and the header, once. `fill` is not called if nobody takes the output.
    ///
    /// Faults are counted and logged, and hold up nobody else. A message that can't be sent to the dataflow still reaches the
    /// operations of this process. A message whose header contradicts its payload reaches the dataflow alone.
    pub fn send(&mut self, output: usize, layout: &Layout, fill: impl FnOnce(&mut Payload<'_>, &mut Header)) {
        let outputs = self.outputs;
        let route = &outputs[output];
        let Some((&last, others)) = route.consumers.split_last() else {
            if route.published {
                let mut fill = Some(fill);
                // The payload is written straight into the memory that it is sent from.
                self.publish(route, layout, &mut |payload, header| {
                    if let Some(fill) = fill.take() {
                        fill(payload, header);
                    }
                });
            }
            return;
        };
        let mut message = self.internal.take_for_host(route);
        message.write(layout, fill);
        self.publish_copy(route, layout, &message);
        if !self.check(route, &mut message) {
            return self.internal.give_back(route.index, message);
        }
        for &consumer in others {
            let mut copy = self.internal.take_for_host(route);
            copy.copy_from(&message);
            self.enqueue(route, consumer, copy);
        }
        self.enqueue(route, last, message);
    }

    /// True if all operations of this process with this output as an input read its payloads in this GPU's memory. If there
    /// is no such operation, true if the dataflow does. [`send_on_device`](Self::send_on_device) then avoids a copy through
    /// the host.
    pub fn is_wanted_on_device(&self, output: usize, gpu: &Gpu) -> bool {
        self.outputs[output].device == Some(gpu.device())
    }

    /// Publishes a payload that stays on the device, in memory that counts in `budget`. `fill` writes its columns there, waits
    /// until they are written, and writes the header.
    ///
    /// If the dataflow wants the output, too, it gets a copy on the host, unless it takes payloads on this device. Faults of
    /// that copy or of the header are handled as in [`send`](Self::send).
    ///
    /// # Errors
    /// The error of `fill`, or of the device. After an error nothing was sent.
    pub fn send_on_device(
        &mut self,
        output: usize,
        layout: &Layout,
        (gpu, budget): (&Gpu, &Budget),
        fill: impl FnOnce(&mut [DeviceColumn], &mut Header) -> Result<(), DeviceFault>,
    ) -> Result<(), DeviceFault> {
        let outputs = self.outputs;
        let route = &outputs[output];
        let mut message = self.internal.take(route);
        let (columns, header) = message.lay_out_on_device(layout, gpu, budget)?;
        fill(columns, header)?;
        let columns = &*columns;
        // Nothing is sent before all copies are made.
        let copies = route.consumers.iter().skip(1).map(|_| {
            let mut copy = self.internal.take(route);
            let (copies, to_header) = copy.lay_out_on_device(layout, gpu, budget)?;
            for (to, from) in copies.iter().zip(columns) {
                to.memory.copy_from(0, &from.memory, 0, from.bytes())?;
            }
            to_header.copy_from(header);
            Ok(copy)
        });
        let copies = copies.collect::<Result<Vec<_>, DeviceFault>>()?;
        if !copies.is_empty() {
            gpu.synchronize()?;
        }
        let takes_it_there = |at: &Gpu| at.device() == gpu.device();
        let mut is_sent = !route.published;
        if route.published && self.sink.gpu(&route.name).is_some_and(takes_it_there) {
            match self.sink.send_on_device(&route.name, layout, columns, header) {
                Ok(()) => is_sent = true,
                Err(error) => self.faults.warn(
                    route.fault_site,
                    "residence",
                    1,
                    format_args!("{error}; the payload goes by the host"),
                ),
            }
        }
        if !is_sent {
            let mut on_host = self.internal.on_host.take().unwrap_or_default();
            for (to, from) in on_host.lay_out(layout).iter_mut().zip(columns) {
                from.memory.fetch(0, to.data.bytes_mut())?;
            }
            on_host.header.copy_from(header);
            self.publish_copy(route, layout, &on_host);
            self.internal.on_host = Some(on_host);
        }
        let is_used = !route.consumers.is_empty() && self.check(route, &mut message);
        for (i, message) in std::iter::once(message).chain(copies).enumerate() {
            match is_used {
                true => self.enqueue(route, route.consumers[i], message),
                false => self.internal.give_back(route.index, message),
            }
        }
        Ok(())
    }

    /// Sends a message to the dataflow. A message that can't be sent is counted.
    fn publish(&mut self, route: &OutputRoute, layout: &Layout, fill: &mut dyn FnMut(&mut Payload<'_>, &mut Header)) {
        if let Err(error) = self.sink.send(&route.name, layout, fill) {
            self.faults.count(route.fault_site, 1, error);
        }
    }

    /// Sends a copy of a message to the dataflow, if it wants the output.
    fn publish_copy(&mut self, route: &OutputRoute, layout: &Layout, message: &Message) {
        if route.published {
            self.publish(route, layout, &mut |payload, header| {
                payload.copy_from(message);
                header.copy_from(&message.header);
            });
        }
    }

    /// True if the header of a message fits its payload. If not, operations of this process do not get the message, and a fault
    /// is counted.
    fn check(&mut self, route: &OutputRoute, message: &mut Message) -> bool {
        let checked = message.check();
        let count = |error| self.faults.count(route.fault_site, 1, error);
        checked.map_err(count).is_ok()
    }

    /// Enqueues a message for an input of an operation.
    fn enqueue(&mut self, route: &OutputRoute, (operation, input): (usize, usize), mut message: Message) {
        message.arrival_ns = self.times.arrival_ns;
        message.published_ns = self.times.published_ns;
        self.in_flight_bytes += message.capacity();
        self.internal.pending.push_back(Delivery {
            operation,
            input,
            message,
            from: route.index,
        });
    }

    /// Ends the node with exit code 1 after the operation's present call: the operation can't go on.
    pub fn end(&mut self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) {
        self.ended.get_or_insert_with(|| AppError::of(self.operation, error));
    }

    /// Counts a fault of one of the operation's inputs, such as a message of the wrong length, and logs it as an error,
    /// at a limited rate.
    pub fn fault(&mut self, input: usize, error: impl std::fmt::Display) {
        self.faults.count(self.inputs[input].fault_site, 1, error);
    }

    /// Counts an event at one of the operation's inputs that is not the sender's fault, such as a clock jump, and logs it as a
    /// warning. Each kind has a rate limit of its own, so that other kinds do not suppress its lines.
    pub fn warn(&mut self, input: usize, kind: &'static str, message: impl std::fmt::Display) {
        self.faults.warn(self.inputs[input].fault_site, kind, 1, message);
    }

    /// Does the same as [`warn`](Self::warn) for events that may go on all the time: it logs a line every 10 s at most.
    pub fn warn_seldom(&mut self, input: usize, kind: &'static str, message: impl std::fmt::Display) {
        self.faults.warn_seldom(self.inputs[input].fault_site, kind, 1, message);
    }

    /// Counts an event at one of the operation's inputs that is neither a fault nor worth a warning, such as a tick
    /// without anything new. The log gives the count at the end.
    pub fn tally(&mut self, input: usize, kind: &'static str) {
        self.faults.tally(self.inputs[input].fault_site, kind);
    }

    /// Counts a sample or a message of one of the operation's inputs as dropped for the reason `why`, for the diagnostics. The
    /// operation logs the drop itself.
    pub fn dropped(&mut self, input: usize, why: Dropped) {
        self.faults.drop(self.inputs[input].fault_site, why, 1);
    }

    /// Returns the collector of the operation's diagnostics; `None` if nobody wants them.
    pub fn figures(&mut self) -> Option<Figures<'_>> {
        let diagnostics = self.diagnostics.as_deref_mut()?;
        Some(diagnostics.of(self.index))
    }

    /// Counts `times` faults of one of the operation's inputs and logs them at a limited rate.
    pub(crate) fn fault_of_input(&mut self, input: usize, times: u64, error: impl std::fmt::Display) {
        self.faults.count(self.inputs[input].fault_site, times, error);
    }

    /// Counts `times` faults of one of the operation's outputs and logs them at a limited rate.
    pub fn fault_of_output(&mut self, output: usize, times: u64, error: impl std::fmt::Display) {
        self.faults.count(self.outputs[output].fault_site, times, error);
    }
}
