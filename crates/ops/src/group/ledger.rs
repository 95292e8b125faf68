//! Records the outcome of each message: published as a member of a set, or dropped.
//!
//! Each policy records here, once, every message that it publishes or drops. The counts of dropped messages and the sizes of
//! waiting messages are therefore right for all policies.

use std::collections::VecDeque;

/// A waiting message: its time, ns, the size of its payload, and the item that represents it to the caller.
pub(super) struct Entry<M> {
    pub time: i64,
    pub bytes: usize,
    pub item: M,
}

/// Outcome of a message that was added to a [`Grouper`](super::Grouper): member of a set, or dropped.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome<M> {
    /// The message is a member of a set. The members of a set are returned one after the other, in the order of the inputs.
    Member {
        /// Index of the input on which the message came.
        input: usize,
        /// Item that the caller's function made for the message in [`Grouper::push`](super::Grouper::push).
        item: M,
        /// Set that the message belongs to.
        set: SetInfo,
    },
    /// The message was dropped, and is in no set.
    Dropped {
        /// Index of the input on which the message came.
        input: usize,
        /// Item that the caller's function made for the message in [`Grouper::push`](super::Grouper::push).
        item: M,
        /// Reason why the message was dropped.
        reason: DropReason,
    },
}

/// Index, time and span of a set, which has one message of each input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetInfo {
    /// Index of the set, counted from 0.
    pub number: i64,
    /// Time of the newest message of the set, ns.
    pub newest_ns: i64,
    /// Time from the oldest to the newest message of the set, ns.
    pub span_ns: i64,
    /// Number of clock jumps before this set.
    pub epoch: i64,
}

/// Reason why a message is in no set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// A better set was found without the message, or a newer set was complete. This is normal if streams have different rates.
    Displaced,
    /// More than `queue_size` messages of the input waited, and this was the oldest. With `exact`: more than `queue_size`
    /// incomplete sets waited, and the message was in the oldest.
    Overflow,
    /// More than `max_held_mb` of payload waited, and this was the oldest message of the input with the most bytes (`exact`: it
    /// was in the oldest set). Or the message alone is larger than `max_held_mb`.
    Memory,
    /// The messages of other inputs that could form a set with this one are more than `max_span_ms` away in time.
    Span,
    /// The message is older than one of its input that arrived before it.
    OutOfOrder,
    /// The clock of a stream jumped while the message waited.
    Jump,
    /// The message still waited when [`Grouper::finish`](super::Grouper::finish) was called.
    Left,
}

impl DropReason {
    /// All reasons, in the order of the enum.
    pub const ALL: [Self; 7] = [
        Self::Displaced,
        Self::Overflow,
        Self::Memory,
        Self::Span,
        Self::OutOfOrder,
        Self::Jump,
        Self::Left,
    ];
}

/// Outcomes that `Grouper::next_outcome` has not returned yet, counts of dropped messages, and sizes of waiting payloads.
pub(super) struct Ledger<M> {
    outcomes: VecDeque<Outcome<M>>,
    /// Payload size of the waiting messages of each input, bytes.
    held: Vec<usize>,
    dropped: Vec<[u64; DropReason::ALL.len()]>,
    sets: i64,
    pub epoch: i64,
}

impl<M> Ledger<M> {
    pub(super) fn new(inputs: usize) -> Self {
        Self {
            outcomes: VecDeque::new(),
            held: vec![0; inputs],
            dropped: vec![[0; DropReason::ALL.len()]; inputs],
            sets: 0,
            epoch: 0,
        }
    }

    /// Counts the payload bytes of a message that starts to wait.
    pub(super) fn hold(&mut self, input: usize, bytes: usize) {
        self.held[input] += bytes;
    }

    /// Records that a waiting message is dropped: counts it and queues its outcome.
    pub(super) fn drop(&mut self, input: usize, entry: Entry<M>, reason: DropReason) {
        self.held[input] -= entry.bytes;
        self.count(input, reason);
        let item = entry.item;
        self.outcomes.push_back(Outcome::Dropped { input, item, reason });
    }

    /// Counts a message that is dropped.
    pub(super) fn count(&mut self, input: usize, reason: DropReason) {
        self.dropped[input][reason as usize] += 1;
    }

    /// Records a published set: queues its messages as outcomes. `members` gives them in the order of the inputs.
    pub(super) fn emit(&mut self, newest_ns: i64, span_ns: i64, members: impl Iterator<Item = Entry<M>>) {
        let set = SetInfo {
            number: self.sets,
            newest_ns,
            span_ns,
            epoch: self.epoch,
        };
        self.sets += 1;
        for (input, Entry { bytes, item, .. }) in members.enumerate() {
            self.held[input] -= bytes;
            self.outcomes.push_back(Outcome::Member { input, item, set });
        }
    }

    pub(super) fn next(&mut self) -> Option<Outcome<M>> {
        self.outcomes.pop_front()
    }

    pub(super) fn dropped(&self, input: usize, reason: DropReason) -> u64 {
        self.dropped[input][reason as usize]
    }

    pub(super) fn held(&self) -> usize {
        self.held.iter().sum()
    }

    /// Returns the index of the input whose waiting messages have the most bytes; the first such input if several have as many.
    pub(super) fn greatest(&self) -> usize {
        let inputs = (0..self.held.len()).rev();
        inputs.max_by_key(|&input| self.held[input]).unwrap_or(0)
    }
}
