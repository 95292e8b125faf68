//! Policy `exact`: a set is messages of the same time, one of each input, as in message_filters' ExactTime. Sets are published
//! in the order of their times: a complete set drops all older incomplete sets.

use super::{DropReason, Entry, Ledger};
use std::collections::VecDeque;

/// Incomplete set: the messages with this time that have arrived, at most one of each input.
struct Set<M> {
    time: i64,
    members: Vec<Option<Entry<M>>>,
}

pub(super) struct Exact<M> {
    /// Incomplete sets, in the order of their times.
    sets: VecDeque<Set<M>>,
    /// Emptied member lists of earlier sets, whose memory new sets reuse.
    free: Vec<Vec<Option<Entry<M>>>>,
    inputs: usize,
    queue_size: usize,
}

impl<M> Exact<M> {
    pub(super) fn new(inputs: usize, queue_size: usize) -> Self {
        Self {
            sets: VecDeque::new(),
            free: Vec::new(),
            inputs,
            queue_size,
        }
    }

    pub(super) fn push(&mut self, input: usize, entry: Entry<M>, ledger: &mut Ledger<M>) {
        let time = entry.time;
        let at = self.sets.partition_point(|set| set.time < time);
        if self.sets.get(at).is_none_or(|set| set.time != time) {
            let mut members = self.free.pop().unwrap_or_default();
            members.resize_with(self.inputs, || None);
            self.sets.insert(at, Set { time, members });
        }
        if let Some(earlier) = self.sets[at].members[input].replace(entry) {
            ledger.drop(input, earlier, DropReason::Displaced);
        }
        if self.sets[at].members.iter().all(Option::is_some) {
            for _ in 0..at {
                self.drop_first(DropReason::Displaced, ledger);
            }
            if let Some(mut set) = self.sets.pop_front() {
                ledger.emit(time, 0, set.members.drain(..).flatten());
                self.free.push(set.members);
            }
        }
        while self.sets.len() > self.queue_size {
            self.drop_first(DropReason::Overflow, ledger);
        }
    }

    /// Drops all messages of the oldest incomplete set, if there is one.
    pub(super) fn drop_first(&mut self, reason: DropReason, ledger: &mut Ledger<M>) {
        if let Some(mut set) = self.sets.pop_front() {
            for (input, member) in set.members.drain(..).enumerate() {
                if let Some(entry) = member {
                    ledger.drop(input, entry, reason);
                }
            }
            self.free.push(set.members);
        }
    }

    pub(super) fn clear(&mut self, reason: DropReason, ledger: &mut Ledger<M>) {
        while !self.sets.is_empty() {
            self.drop_first(reason, ledger);
        }
    }
}
