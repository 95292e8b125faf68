//! Delivers messages to the operations, and tells them when inputs close or open again.
//!
//! Before an operation gets its next message, it finishes its work on the last one, and what it published is delivered.

use super::Graph;
use crate::app::input_message::InputMessage;
use crate::app::operation::Change;
use crate::app::outbox::{MessageTimes, Sink};
use robocache_device::gpu::Gpu;
use robocache_stream::Message;
use std::collections::VecDeque;

impl Graph {
    pub(super) fn deliver(&mut self, to: usize, input: usize, message: InputMessage<'_>, sink: &mut dyn Sink) {
        let node = &mut self.nodes[to];
        node.inputs[input].open = true;
        let at = message.data().gpu().map(Gpu::device);
        if at.is_none() || node.operation.device_of_input(input) == at {
            self.dispatch(to, input, message, sink);
            return;
        }
        // The message was sent before its consumer went back to the host.
        let mut on_host = self.shared.on_host.take().unwrap_or_default();
        match on_host.fetch(&message) {
            Ok(()) => self.dispatch(to, input, InputMessage::Owned(&mut on_host), sink),
            Err(error) => {
                let site = self.nodes[to].inputs[input].fault_site;
                self.shared.faults.count(site, 1, error);
            }
        }
        self.shared.on_host = Some(on_host);
    }

    fn dispatch(&mut self, to: usize, input: usize, mut message: InputMessage<'_>, sink: &mut dyn Sink) {
        if let Some(diagnostics) = &mut self.shared.diagnostics {
            diagnostics.count_message(to, input, &message);
        }
        let (operation, mut out) = self.nodes[to].parts(&mut self.shared, sink);
        let times = MessageTimes::of(&message);
        out.times = times;
        let taken = match &mut message {
            InputMessage::Borrowed(message) => operation.input(input, message, &mut out),
            InputMessage::Owned(message) => operation.input_owned(input, message, &mut out),
        };
        if let Err(error) = taken {
            out.fault(input, error);
        }
        self.ask_for_devices(to);
        self.resume(to, input, Some(&message), times, sink);
    }

    /// Calls `resume` of the operation `of` as long as work of its last call is left. Before each step, pending messages to
    /// later operations are delivered. Pending messages to `of` and to earlier operations wait.
    pub(super) fn resume(
        &mut self,
        of: usize,
        input: usize,
        message: Option<&Message>,
        times: MessageTimes,
        sink: &mut dyn Sink,
    ) {
        if !self.nodes[of].operation.has_more() {
            return;
        }
        let pending = std::mem::take(&mut self.shared.internal.pending);
        let (mut waiting, after): (VecDeque<_>, _) = pending.into_iter().partition(|message| message.operation <= of);
        self.shared.internal.pending = after;
        while self.nodes[of].operation.has_more() {
            self.settle(sink);
            let (operation, mut out) = self.nodes[of].parts(&mut self.shared, sink);
            out.times = times;
            if let Err(error) = operation.resume(message, &mut out) {
                out.fault(input, error);
            }
            self.ask_for_devices(of);
        }
        waiting.append(&mut self.shared.internal.pending);
        self.shared.internal.pending = waiting;
    }

    pub(super) fn change(&mut self, of: usize, input: usize, change: Change, sink: &mut dyn Sink) {
        let node = &mut self.nodes[of];
        node.inputs[input].open = change == Change::Opened;
        let (operation, mut out) = node.parts(&mut self.shared, sink);
        operation.changed(input, change, &mut out);
        self.ask_for_devices(of);
        self.resume(of, input, None, MessageTimes::default(), sink);
        self.settle(sink);
        if self.nodes[of].inputs.iter().all(|input| !input.open) {
            self.close_outputs(of, sink);
        }
    }

    pub(super) fn close_outputs(&mut self, operation: usize, sink: &mut dyn Sink) {
        for output in 0..self.nodes[operation].outputs.len() {
            for i in 0..self.nodes[operation].outputs[output].consumers.len() {
                let (consumer, input) = self.nodes[operation].outputs[output].consumers[i];
                self.change(consumer, input, Change::Closed, sink);
            }
        }
    }

    /// Delivers the pending messages between operations, and those published meanwhile, until none is left.
    pub(super) fn settle(&mut self, sink: &mut dyn Sink) {
        while let Some(mut on_its_way) = self.shared.internal.pending.pop_front() {
            let message = InputMessage::Owned(&mut on_its_way.message);
            self.deliver(on_its_way.operation, on_its_way.input, message, sink);
            self.shared.internal.give_back(on_its_way.from, on_its_way.message);
        }
    }
}
