use super::faults::Faults;
use super::{AppError, Fault};
use crate::device::Dtype;
use crate::device::cuda::{CudaError, DeviceBuf, Gpu};
use crate::stream::{Column, Layout, Message};
use bytemuck::Pod;
use dora_node_api::MetadataParameters;
use std::ops::Range;

/// The memory of a message that is being published: fill every element of every column.
///
/// It is the message's final place, in shared memory where dora uses that.
pub struct Payload<'a>(Memory<'a>);

enum Memory<'a> {
    /// Of a message that stays in this process.
    Message(&'a mut [Column]),
    /// The body of an Arrow IPC message, in which the columns lie one after the other.
    Body(&'a mut [u8], &'a [ColumnPlace]),
}

/// Where a column lies in the body of a message: its offsets, then its data.
pub(super) struct ColumnPlace {
    pub offsets: Range<usize>,
    pub data: Range<usize>,
}

impl<'a> Payload<'a> {
    /// The memory of `message`, which is given this layout: for a [`Sink`] that keeps messages in this process.
    pub fn in_message(message: &'a mut Message, layout: &Layout) -> Self {
        Self(Memory::Message(message.lay_out(layout)))
    }

    pub(super) fn in_body(body: &'a mut [u8], places: &'a [ColumnPlace]) -> Self {
        Self(Memory::Body(body, places))
    }

    /// The elements of column `i`, of type `T` by the layout.
    pub fn column<T: Pod>(&mut self, i: usize) -> &mut [T] {
        bytemuck::cast_slice_mut(match &mut self.0 {
            Memory::Message(columns) => columns[i].data.bytes_mut(),
            Memory::Body(body, places) => &mut body[places[i].data.clone()],
        })
    }

    /// The elements of the first two columns.
    pub fn columns<T: Pod, U: Pod>(&mut self) -> (&mut [T], &mut [U]) {
        let (first, second) = match &mut self.0 {
            Memory::Message(columns) => {
                let (first, others) = columns.split_at_mut(1);
                (first[0].data.bytes_mut(), others[0].data.bytes_mut())
            }
            Memory::Body(body, places) => two_of(body, &places[0].data, &places[1].data),
        };
        (bytemuck::cast_slice_mut(first), bytemuck::cast_slice_mut(second))
    }

    /// The offsets of the rows of the first two columns.
    pub fn both_offsets(&mut self) -> (&mut [i32], &mut [i32]) {
        match &mut self.0 {
            Memory::Message(columns) => {
                let (first, others) = columns.split_at_mut(1);
                (&mut first[0].offsets, &mut others[0].offsets)
            }
            Memory::Body(body, places) => {
                let (first, second) = two_of(body, &places[0].offsets, &places[1].offsets);
                (bytemuck::cast_slice_mut(first), bytemuck::cast_slice_mut(second))
            }
        }
    }

    /// The offsets of the rows of column `i`, one more than there are rows, from 0; empty where it is not ragged.
    pub fn offsets(&mut self, i: usize) -> &mut [i32] {
        match &mut self.0 {
            Memory::Message(columns) => &mut columns[i].offsets,
            Memory::Body(body, places) => bytemuck::cast_slice_mut(&mut body[places[i].offsets.clone()]),
        }
    }
}

/// Two ranges of a body, the first of which ends before the second begins.
fn two_of<'a>(body: &'a mut [u8], first: &Range<usize>, second: &Range<usize>) -> (&'a mut [u8], &'a mut [u8]) {
    let (before, after) = body.split_at_mut(second.start);
    (&mut before[first.clone()], &mut after[..second.len()])
}

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
}

/// Messages between operations: those on their way, and the memory of those that arrived.
#[derive(Default)]
pub(super) struct Internal {
    pub pending: std::collections::VecDeque<Delivery>,
    pub free: Vec<Message>,
}

impl Internal {
    /// Puts a message on its way to an input of an operation.
    fn put(&mut self, (operation, input): (usize, usize), message: Message) {
        self.pending.push_back(Delivery {
            operation,
            input,
            message,
        });
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
    /// listens. A message that can't be sent is counted and logged.
    pub fn send(&mut self, output: usize, layout: &Layout, fill: impl FnOnce(&mut Payload<'_>) -> MetadataParameters) {
        let route = &self.outputs[output];
        let mut fill = Some(fill);
        let mut fill_once = |payload: &mut Payload<'_>| fill.take().map(|fill| fill(payload)).unwrap_or_default();
        let sent = if route.consumers.is_empty() {
            if !route.published {
                return;
            }
            self.sink.send(&route.name, layout, &mut fill_once)
        } else {
            self.deliver(output, layout, &mut fill_once)
        };
        if let Err(error) = sent {
            self.faults.count(route.fault_place, 1, error);
        }
    }

    /// Whether a tensor that is on this device is wanted there: the operations that take this output take it there, and
    /// there is one. Then [`send_on_device`](Self::send_on_device) saves its way through the host.
    pub fn is_wanted_on_device(&self, output: usize, gpu: &Gpu) -> bool {
        self.outputs[output].device == Some(gpu.ordinal())
    }

    /// Publishes a flat tensor that stays on the device: `fill` writes it there, waits for it, and gives the metadata.
    ///
    /// Where the dataflow wants the output, too, it gets a copy on the host.
    ///
    /// # Errors
    /// That of `fill`, or of the device. Nothing was sent then.
    pub fn send_on_device(
        &mut self,
        output: usize,
        dtype: Dtype,
        len: usize,
        gpu: &Gpu,
        fill: impl FnOnce(&mut DeviceBuf) -> Result<MetadataParameters, CudaError>,
    ) -> Result<(), CudaError> {
        let route = &self.outputs[output];
        let mut message = self.internal.free.pop().unwrap_or_default();
        let memory = message.lay_out_on_device(dtype, len, gpu)?;
        let parameters = fill(memory)?;
        let memory = &*memory;
        // Nothing is sent before all copies are there.
        let copies = route.consumers.iter().skip(1).map(|_| {
            let mut copy = self.internal.free.pop().unwrap_or_default();
            let to = copy.lay_out_on_device(dtype, len, gpu)?;
            to.copy_from(0, memory, 0, len * dtype.size())?;
            Ok(copy)
        });
        let copies = copies.collect::<Result<Vec<_>, CudaError>>()?;
        if !copies.is_empty() {
            gpu.synchronize()?;
        }
        if route.published {
            let layout = Layout::flat(dtype, len);
            let mut on_host = self.internal.free.pop().unwrap_or_default();
            let mut payload = Payload::in_message(&mut on_host, &layout);
            // SAFETY: the stream is synchronized while the message is borrowed.
            let downloaded = unsafe { memory.download(0, payload.column(0)) };
            downloaded.and(gpu.synchronize())?;
            let sent = self.sink.send(&route.name, &layout, &mut |payload| {
                copy(&on_host, payload);
                parameters.clone()
            });
            if let Err(error) = sent {
                self.faults.count(route.fault_place, 1, error);
            }
            self.internal.free.push(on_host);
        }
        for (&consumer, message) in route.consumers.iter().zip(std::iter::once(message).chain(copies)) {
            self.hand_on(output, consumer, message, &parameters);
        }
        Ok(())
    }

    /// Hands a message with this metadata to an operation of this process. What the metadata lacks is counted.
    fn hand_on(
        &mut self,
        output: usize,
        consumer: (usize, usize),
        mut message: Message,
        parameters: &MetadataParameters,
    ) {
        if let Err(error) = super::message::read_parameters(parameters, &mut message) {
            self.faults.count(self.outputs[output].fault_place, 1, error);
        }
        self.internal.put(consumer, message);
    }

    fn deliver(
        &mut self,
        output: usize,
        layout: &Layout,
        fill: &mut dyn FnMut(&mut Payload<'_>) -> MetadataParameters,
    ) -> Result<(), Fault> {
        let route = &self.outputs[output];
        let mut message = self.internal.free.pop().unwrap_or_default();
        let parameters = fill(&mut Payload::in_message(&mut message, layout));
        super::message::read_parameters(&parameters, &mut message)?;
        if route.published {
            self.sink.send(&route.name, layout, &mut |payload| {
                copy(&message, payload);
                parameters.clone()
            })?;
        }
        let Some((&last, others)) = route.consumers.split_last() else {
            return Ok(());
        };
        for &consumer in others {
            let mut copied = self.internal.free.pop().unwrap_or_default();
            copy(&message, &mut Payload::in_message(&mut copied, layout));
            super::message::read_parameters(&parameters, &mut copied)?;
            self.internal.put(consumer, copied);
        }
        self.internal.put(last, message);
        Ok(())
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
