//! Policy `epsilon`: a set is the oldest message of each input, if these messages are at most `max_span_ms` apart. Otherwise
//! those of them within `max_span_ms` of the oldest are dropped. This is message_filters' ApproximateEpsilonTime.

use super::{DropReason, Entry, Ledger};
use std::collections::VecDeque;

pub(super) struct Epsilon<M> {
    queues: Vec<VecDeque<Entry<M>>>,
    queue_size: usize,
    max_span: i64,
}

impl<M> Epsilon<M> {
    pub(super) fn new(inputs: usize, queue_size: usize, max_span: i64) -> Self {
        Self {
            queues: (0..inputs).map(|_| VecDeque::new()).collect(),
            queue_size,
            max_span,
        }
    }

    pub(super) fn push(&mut self, input: usize, entry: Entry<M>, ledger: &mut Ledger<M>) {
        self.queues[input].push_back(entry);
        self.process(ledger);
        if self.queues[input].len() > self.queue_size {
            self.drop_oldest(input, DropReason::Overflow, ledger);
        }
    }

    pub(super) fn drop_oldest(&mut self, input: usize, reason: DropReason, ledger: &mut Ledger<M>) {
        if let Some(entry) = self.queues[input].pop_front() {
            ledger.drop(input, entry, reason);
        }
    }

    pub(super) fn clear(&mut self, reason: DropReason, ledger: &mut Ledger<M>) {
        for (input, queue) in self.queues.iter_mut().enumerate() {
            for entry in queue.drain(..) {
                ledger.drop(input, entry, reason);
            }
        }
    }

    fn process(&mut self, ledger: &mut Ledger<M>) {
        while self.queues.iter().all(|queue| !queue.is_empty()) {
            let times = || self.queues.iter().filter_map(|queue| Some(queue.front()?.time));
            let (Some(oldest), Some(newest)) = (times().min(), times().max()) else {
                return;
            };
            if newest.saturating_sub(oldest) <= self.max_span {
                let members = self.queues.iter_mut().filter_map(VecDeque::pop_front);
                ledger.emit(newest, newest - oldest, members);
                continue;
            }
            for (input, queue) in self.queues.iter_mut().enumerate() {
                if let Some(entry) = queue.pop_front_if(|head| head.time.saturating_sub(oldest) <= self.max_span) {
                    ledger.drop(input, entry, DropReason::Span);
                }
            }
        }
    }
}
