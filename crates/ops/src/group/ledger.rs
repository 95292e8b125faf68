//! Fate of messages: members of sets, and messages that are in none.
//!
//! Every policy records here each message that it lets go, once. So the counts of dropped messages and the sizes of held messages
//! are right for each policy.

use std::collections::VecDeque;

/// A message that is held: its time, ns, the size of its payload, and the item of the caller.
pub(super) struct Entry<M> {
    pub time: i64,
    pub bytes: usize,
    pub item: M,
}

/// Fate of a message of a [`Grouper`](super::Grouper): member of a set, or dropped.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome<M> {
    /// A member of a set. The members of a set come one after the other, in the order of the inputs.
    Member {
        /// Index of the input of the message.
        input: usize,
        /// Item that the caller gave for the message.
        item: M,
        /// Set that the message is a member of.
        set: SetInfo,
    },
    /// A message in no set.
    Dropped {
        /// Index of the input of the message.
        input: usize,
        /// Item that the caller gave for the message.
        item: M,
        /// The reason why the message is in no set.
        reason: DropReason,
    },
}

/// Number, time and span of a set of messages, one of each input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetInfo {
    /// Number of sets before this set: 0 for the first.
    pub number: i64,
    /// Time of the newest message of the set, ns.
    pub newest_ns: i64,
    /// Distance from the oldest to the newest message of the set, ns.
    pub span_ns: i64,
    /// Number of clock jumps before this set.
    pub epoch: i64,
}

/// The reason why a message is in no set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// A set was better, or complete, without the message. This is normal if streams have different rates.
    Displaced,
    /// The message was the oldest of its input when more than `queue_size` waited. With `exact`, the set of the message was the
    /// oldest of more than `queue_size` incomplete sets.
    Overflow,
    /// The message was the oldest of the input that holds most, when more than `max_held_mb` was held. Or the message alone is
    /// larger than `max_held_mb`.
    Memory,
    /// The messages of other inputs that the message could be in a set with are more than `max_span_ms` away.
    Span,
    /// The message is older than an earlier message of its input.
    OutOfOrder,
    /// The clock of a stream jumped while the message waited.
    Jump,
    /// The message still waited for other inputs at the end: [`Grouper::finish`](super::Grouper::finish).
    Left,
}

impl DropReason {
    /// All reasons, in the order of their codes.
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

/// Outcomes that the caller has not taken yet, counts of dropped messages, and sizes of held payloads.
pub(super) struct Ledger<M> {
    outcomes: VecDeque<Outcome<M>>,
    /// Size of the payloads that each input holds, bytes.
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

    /// Counts the bytes of a message that is held from now on.
    pub(super) fn hold(&mut self, input: usize, bytes: usize) {
        self.held[input] += bytes;
    }

    /// Records that a message that was held is in no set.
    pub(super) fn drop(&mut self, input: usize, entry: Entry<M>, reason: DropReason) {
        self.held[input] -= entry.bytes;
        self.count(input, reason);
        let item = entry.item;
        self.outcomes.push_back(Outcome::Dropped { input, item, reason });
    }

    /// Counts a message that is in no set.
    pub(super) fn count(&mut self, input: usize, reason: DropReason) {
        self.dropped[input][reason as usize] += 1;
    }

    /// Records a complete set. `members` gives its messages in the order of the inputs.
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

    /// Index of the input that holds the most bytes; the first one if several do.
    pub(super) fn greatest(&self) -> usize {
        let inputs = (0..self.held.len()).rev();
        inputs.max_by_key(|&input| self.held[input]).unwrap_or(0)
    }
}
