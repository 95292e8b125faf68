//! The bounded queue between the thread that drains dora's events and the one that runs the operations.
//!
//! Each input has a bound, so memory is limited however long the operations are busy. If an input is full, its oldest message
//! is dropped and counted or, with backpressure, the drain waits. Faults are only counted.

use crate::app::pool::MessagePool;
use crate::app::{Change, Severity, Value};
use robocache_device::HostMemory;
use robocache_stream::Message;
use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Largest number of an input's messages that wait in the queue, unless the dataflow sets `queue_size`.
pub(super) const DEFAULT_MESSAGES: usize = 1024;
/// Largest number of bytes of an input's waiting messages, unless the dataflow sets `queue_size`.
pub(super) const DEFAULT_BYTES: usize = 64 << 20;

/// Largest number of log lines and live parameters that wait in the queue.
const MAX_NOTES: usize = 1024;
/// Number of an input's free messages that are kept however large they are: one that the drain fills, one that operations read.
const FREE_MESSAGES: usize = 2;

/// Item of the queue. Items leave the queue in the order in which their events happened.
pub(crate) enum Item {
    /// A message of an input.
    Message { input: usize, message: Message },
    /// A change of an input: it was closed, or opened again.
    Changed { input: usize, change: Change },
    /// Counts of an input's lost or faulty messages since the last such item of that input.
    Losses { input: usize, losses: Losses },
    /// An event that belongs to no input.
    Note(Note),
    /// Number of notes that were dropped because too many waited.
    NotesLost(u64),
}

/// Events that belong to no input.
pub(crate) enum Note {
    /// A live parameter to set.
    Parameter { key: String, value: Value },
    /// A line for the log.
    Log { level: Severity, text: String },
    /// End of dora's events for this node. `inputs_closed` is true if every input was closed: their messages are ahead of this note
    /// in the queue. It is false if the dataflow was stopped.
    End { inputs_closed: bool },
}

/// Counts of an input's messages that were lost or faulty.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    /// Number of messages that can't be read.
    pub unreadable: u64,
    /// Error of the first message that can't be read; empty if there is none.
    pub error: String,
    /// Number of messages without a stamp of their own, which got dora's time of publication.
    pub unstamped: u64,
    /// Number of messages that were dropped because the input's queue was full.
    pub dropped: u64,
    /// Number of messages that dora lost before they reached the drain.
    pub lost_by_dora: u64,
}

/// Bounds of one input's queue: messages, bytes, and what happens when it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub messages: usize,
    pub bytes: usize,
    /// True if the drain waits for room when the queue is full. If false, it drops the oldest message.
    pub waits: bool,
}

impl Bound {
    /// Makes the bounds from the dataflow's `queue_size` and `queue_policy`. If the dataflow sets `queue_size`, there is no bound
    /// in bytes.
    pub(super) fn new(queue_size: Option<usize>, backpressure: bool) -> Self {
        Self {
            messages: queue_size.unwrap_or(DEFAULT_MESSAGES).max(1),
            bytes: queue_size.map_or(DEFAULT_BYTES, |_| usize::MAX),
            waits: backpressure,
        }
    }
}

/// A queue of items in arrival order, bounded for each input; the memory of its messages is reused.
pub(crate) struct Queue {
    state: Mutex<State>,
    arrived: Condvar,
    room: Condvar,
}

struct State {
    inputs: Vec<InputQueue>,
    notes: VecDeque<(u64, Note)>,
    notes_lost: u64,
    /// Newest sequence number that was given; 0 before the first.
    next: u64,
    ended: bool,
}

struct InputQueue {
    bound: Bound,
    /// Entries in order of arrival, with sequence numbers. Two changes of the input's state are never
    /// neighbours: only the later one counts.
    waiting: VecDeque<(u64, Entry)>,
    messages: usize,
    bytes: usize,
    /// Largest number of messages that waited at once since [`Queue::take_depth`] was last called.
    deepest: usize,
    /// Losses that are not yet taken from the queue, with the sequence number of the first loss; `None` if there are none.
    losses: Option<(u64, Losses)>,
    pool: MessagePool,
}

enum Entry {
    Message(Message),
    Change(Change),
}

impl InputQueue {
    fn is_full(&self, more: usize) -> bool {
        self.messages > 0
            && (self.messages >= self.bound.messages || self.bytes.saturating_add(more) > self.bound.bytes)
    }

    /// Sequence number of the input's oldest item; `None` if no item waits.
    fn first(&self) -> Option<u64> {
        let waiting = self.waiting.front().map(|(number, _)| *number);
        let losses = self.losses.as_ref().map(|(number, _)| *number);
        waiting.into_iter().chain(losses).min()
    }

    fn count_taken(&mut self, message: &Message) {
        self.messages -= 1;
        self.bytes -= message.bytes();
    }

    /// Drops the input's oldest message. If changes of the input's state were on both sides of the message, the earlier change
    /// is dropped, too.
    fn drop_oldest(&mut self) {
        let at = usize::from(matches!(self.waiting.front(), Some((_, Entry::Change(_)))));
        if let Some((_, Entry::Message(message))) = self.waiting.remove(at) {
            self.count_taken(&message);
            // The next message takes this memory, so the free list is seldom full here.
            drop(self.pool.put(message));
        }
        if let Some((_, Entry::Change(_))) = self.waiting.get(1)
            && at == 1
        {
            self.waiting.pop_front();
        }
    }

    /// Takes the first item, whose sequence number is `first`.
    fn pop(&mut self, input: usize, first: u64) -> Option<Item> {
        if let Some((_, losses)) = self.losses.take_if(|(number, _)| *number == first) {
            return Some(Item::Losses { input, losses });
        }
        Some(match self.waiting.pop_front()?.1 {
            Entry::Change(change) => Item::Changed { input, change },
            Entry::Message(message) => {
                self.count_taken(&message);
                Item::Message { input, message }
            }
        })
    }
}

impl State {
    fn sequence_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn losses(&mut self, input: usize) -> &mut Losses {
        let number = self.sequence_number();
        let losses = &mut self.inputs[input].losses;
        &mut losses.get_or_insert_with(|| (number, Losses::default())).1
    }

    /// Takes the oldest item of all inputs and notes; `None` if no item waits.
    fn pop(&mut self) -> Option<Item> {
        let firsts = self.inputs.iter().map(InputQueue::first).enumerate();
        let of_inputs = firsts.filter_map(|(input, first)| Some((first?, input))).min();
        let note = self.notes.front().map(|(number, _)| *number);
        match of_inputs {
            Some((first, input)) if note.is_none_or(|note| first < note) => self.inputs[input].pop(input, first),
            _ if self.notes_lost > 0 => Some(Item::NotesLost(std::mem::take(&mut self.notes_lost))),
            _ => self.notes.pop_front().map(|(_, note)| Item::Note(note)),
        }
    }
}

impl Queue {
    /// Makes an empty queue for inputs with these bounds. Their messages get their memory from `memory`.
    pub(super) fn new(bounds: &[Bound], memory: &HostMemory) -> Self {
        let inputs = bounds.iter().map(|&bound| InputQueue {
            bound,
            waiting: VecDeque::with_capacity(bound.messages.min(DEFAULT_MESSAGES)),
            messages: 0,
            bytes: 0,
            deepest: 0,
            losses: None,
            pool: MessagePool::new(FREE_MESSAGES, memory),
        });
        Self {
            state: Mutex::new(State {
                inputs: inputs.collect(),
                notes: VecDeque::new(),
                notes_lost: 0,
                next: 0,
                ended: false,
            }),
            arrived: Condvar::new(),
            room: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an empty message of this input from its pool, or a new one.
    pub(super) fn take_free(&self, input: usize) -> Message {
        self.lock().inputs[input].pool.take()
    }

    /// Returns the memory of a message to the pool of its input.
    pub(super) fn give_back(&self, input: usize, message: Message) {
        let mut state = self.lock();
        let over = state.inputs[input].pool.put(message);
        drop(state);
        // Freeing memory may take a while, so the lock is released first.
        drop(over);
    }

    /// Appends a message. If its input is full, that input's oldest message is dropped and counted; with backpressure
    /// the call blocks until there is room.
    pub(super) fn push_message(&self, input: usize, message: Message) {
        let bytes = message.bytes();
        let mut state = self.lock();
        // Once the queue has ended nobody makes room, so the message goes past the bounds.
        while state.inputs[input].is_full(bytes) && !state.ended {
            if state.inputs[input].bound.waits {
                state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else {
                state.inputs[input].drop_oldest();
                state.losses(input).dropped += 1;
            }
        }
        let number = state.sequence_number();
        let queue = &mut state.inputs[input];
        queue.messages += 1;
        queue.deepest = queue.deepest.max(queue.messages);
        queue.bytes += bytes;
        queue.waiting.push_back((number, Entry::Message(message)));
        drop(state);
        self.arrived.notify_one();
    }

    /// Largest number of messages of one input that waited at once since the last call.
    pub(super) fn take_depth(&self) -> usize {
        let mut state = self.lock();
        let inputs = state.inputs.iter_mut();
        let depths = inputs.map(|queue| std::mem::replace(&mut queue.deepest, queue.messages));
        depths.max().unwrap_or(0)
    }

    /// Appends a change of an input: closed, or opened again. It replaces a change that is the input's last entry.
    pub(super) fn push_change(&self, input: usize, change: Change) {
        let mut state = self.lock();
        let number = state.sequence_number();
        let waiting = &mut state.inputs[input].waiting;
        if let Some((_, Entry::Change(_))) = waiting.back() {
            waiting.pop_back();
        }
        waiting.push_back((number, Entry::Change(change)));
        drop(state);
        self.arrived.notify_one();
    }

    /// Counts a message of an input that can't be read.
    pub(super) fn count_unreadable(&self, input: usize, error: impl Display) {
        self.count(input, |losses| {
            if losses.unreadable == 0 {
                losses.error = error.to_string();
            }
            losses.unreadable += 1;
        });
    }

    /// Updates the counts of an input's losses with `count`.
    pub(super) fn count(&self, input: usize, count: impl FnOnce(&mut Losses)) {
        count(self.lock().losses(input));
        self.arrived.notify_one();
    }

    /// Appends a note. If too many wait, the oldest is dropped and counted.
    pub(super) fn push(&self, note: Note) {
        let mut state = self.lock();
        if state.notes.len() >= MAX_NOTES {
            state.notes.pop_front();
            state.notes_lost += 1;
        }
        let number = state.sequence_number();
        state.notes.push_back((number, note));
        drop(state);
        self.arrived.notify_one();
    }

    /// Waits for the next item; `None` if there is none by `deadline`. Without a deadline it waits for ever.
    pub(super) fn pop(&self, deadline: Option<Instant>) -> Option<Item> {
        let mut state = self.lock();
        loop {
            if let Some(item) = state.pop() {
                if let Item::Message { input, .. } = &item
                    && state.inputs[*input].bound.waits
                {
                    self.room.notify_one();
                }
                return Some(item);
            }
            state = match deadline {
                None => self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    self.arrived
                        .wait_timeout(state, left)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
    }

    /// Ends the queue: no more items are taken from it, so that no call waits for room.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.room.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use robocache_device::Dtype;
    use robocache_stream::Cells;
    use std::sync::Arc;
    use std::time::Duration;

    fn message(stamp: i64) -> Message {
        let mut message = Message::default();
        message.header.timestamp_ns.set(stamp);
        message
            .add_column("", Dtype::UInt8, Cells::One)
            .data
            .copy_from(&[0; 10]);
        message
    }

    fn items(queue: &Queue) -> Vec<Item> {
        let now = Some(Instant::now());
        std::iter::from_fn(|| queue.pop(now)).collect()
    }

    /// Empties the queue. Returns input and stamp of each message, and the number of dropped messages.
    fn stamps(queue: &Queue) -> (Vec<(usize, i64)>, u64) {
        let mut dropped = 0;
        let mut stamps = Vec::new();
        for item in items(queue) {
            match item {
                Item::Message { input, message } => stamps.push((input, message.timestamp_ns())),
                Item::Losses { losses, .. } => dropped += losses.dropped,
                _ => panic!("only messages were pushed"),
            }
        }
        (stamps, dropped)
    }

    #[test]
    fn an_overload_drops_the_oldest_of_that_input_and_counts_it() {
        let queue = Queue::new(
            &[Bound::new(Some(2), false), Bound::new(None, false)],
            &HostMemory::pageable(),
        );
        for (input, stamp) in [(0, 1), (1, 2), (0, 3), (1, 4), (0, 5), (0, 6)] {
            queue.push_message(input, message(stamp));
        }
        assert_eq!(stamps(&queue), (vec![(1, 2), (1, 4), (0, 5), (0, 6)], 2));
        assert_eq!(stamps(&queue), (vec![], 0));
    }

    #[test]
    fn an_undeclared_bound_is_one_of_bytes_too_but_a_single_message_always_fits() {
        let mut bound = Bound::new(None, false);
        bound.bytes = 25;
        let queue = Queue::new(&[bound], &HostMemory::pageable());
        for stamp in 0..4 {
            queue.push_message(0, message(stamp));
        }
        assert_eq!(stamps(&queue), (vec![(0, 2), (0, 3)], 2));
        bound.bytes = 1;
        let queue = Queue::new(&[bound], &HostMemory::pageable());
        queue.push_message(0, message(7));
        assert_eq!(stamps(&queue), (vec![(0, 7)], 0));
    }

    #[test]
    fn a_lossless_input_waits_for_room() {
        let queue = Arc::new(Queue::new(&[Bound::new(Some(3), true)], &HostMemory::pageable()));
        let pusher = {
            let queue = queue.clone();
            std::thread::spawn(move || (0..100).for_each(|stamp| queue.push_message(0, message(stamp))))
        };
        let mut got = Vec::new();
        while got.len() < 100 {
            std::thread::sleep(Duration::from_micros(200));
            match queue.pop(None) {
                Some(Item::Message { message, .. }) => got.push(message.timestamp_ns()),
                _ => panic!("only messages were pushed"),
            }
        }
        pusher.join().unwrap();
        assert_eq!(got, (0..100).collect::<Vec<_>>());
        assert_eq!(stamps(&queue), (vec![], 0));
    }

    #[test]
    fn what_needs_a_count_only_is_counted_by_input_with_the_first_words() {
        let queue = Queue::new(
            &[Bound::new(Some(4), false), Bound::new(Some(4), false)],
            &HostMemory::pageable(),
        );
        queue.push_message(1, message(1));
        queue.count_unreadable(0, "the first");
        queue.count_unreadable(0, "the second");
        queue.push_message(1, message(2));
        queue.count(0, |losses| losses.unstamped += 3);
        queue.count(1, |losses| losses.lost_by_dora += 5);
        let mut items = items(&queue).into_iter();
        assert!(matches!(items.next(), Some(Item::Message { input: 1, message }) if message.timestamp_ns() == 1));
        let expected = Losses {
            unreadable: 2,
            error: "the first".into(),
            unstamped: 3,
            ..Losses::default()
        };
        assert!(matches!(items.next(), Some(Item::Losses { input: 0, losses }) if losses == expected));
        assert!(matches!(items.next(), Some(Item::Message { input: 1, message }) if message.timestamp_ns() == 2));
        assert!(matches!(items.next(), Some(Item::Losses { input: 1, losses }) if losses.lost_by_dora == 5));
        assert!(items.next().is_none());
    }

    /// Checks that between two messages of an input at most one change of its state is kept.
    #[test]
    fn an_input_that_closes_and_opens_takes_no_more_room_than_its_messages() {
        let queue = Queue::new(&[Bound::new(Some(2), false)], &HostMemory::pageable());
        for stamp in 0..1000 {
            queue.push_message(0, message(stamp));
            for change in [Change::Opened, Change::Closed] {
                queue.push_change(0, change);
            }
        }
        assert!(queue.lock().inputs[0].waiting.len() <= 5);
        let words: Vec<_> = items(&queue)
            .iter()
            .map(|item| match item {
                Item::Message { message, .. } => message.timestamp_ns().to_string(),
                Item::Changed { change, .. } => format!("{change:?}"),
                Item::Losses { losses, .. } => format!("{} dropped", losses.dropped),
                _ => panic!("neither notes nor losses of them"),
            })
            .collect();
        assert_eq!(words, ["998 dropped", "Closed", "998", "Closed", "999", "Closed"]);
    }

    #[test]
    fn notes_keep_their_order_and_the_oldest_go_where_they_are_too_many() {
        let queue = Queue::new(&[Bound::new(None, false)], &HostMemory::pageable());
        let log = |text: String| Note::Log {
            level: Severity::Warning,
            text,
        };
        queue.push(log("before".into()));
        queue.push_message(0, message(1));
        queue.push(Note::End { inputs_closed: true });
        let mut came = items(&queue).into_iter();
        assert!(matches!(came.next(), Some(Item::Note(Note::Log { text, .. })) if text == "before"));
        assert!(matches!(came.next(), Some(Item::Message { .. })));
        assert!(matches!(came.next(), Some(Item::Note(Note::End { .. }))));
        for i in 0..MAX_NOTES + 7 {
            queue.push(log(i.to_string()));
        }
        let mut came = items(&queue).into_iter();
        assert!(matches!(came.next(), Some(Item::NotesLost(7))));
        assert!(matches!(came.next(), Some(Item::Note(Note::Log { text, .. })) if text == "7"));
        assert_eq!(came.count(), MAX_NOTES - 1);
    }

    /// Pushes messages and faults of every kind while no item is taken: neither memory nor time grows.
    #[test]
    fn a_flood_while_nobody_takes_anything_costs_neither_memory_nor_time() {
        const FLOOD: u64 = 200_000;
        let queue = Queue::new(
            &[Bound::new(Some(10_000), false), Bound::new(Some(10), false)],
            &HostMemory::pageable(),
        );
        for stamp in 0..10_000 {
            queue.push_message(0, message(stamp));
        }
        let start = Instant::now();
        for stamp in 0..FLOOD {
            queue.count_unreadable(1, "no number");
            queue.count(1, |losses| losses.unstamped += 1);
            for input in [0, 1] {
                let mut memory = queue.take_free(input);
                memory.clear();
                memory.header.timestamp_ns.set(stamp as i64);
                memory.add_column("", Dtype::UInt8, Cells::One).data.copy_from(&[0; 10]);
                queue.push_message(input, memory);
            }
        }
        // A quarter of what a look at every waiting message takes, as the machine may be busy.
        let most = Duration::from_secs(if cfg!(debug_assertions) { 50 } else { 5 });
        assert!(start.elapsed() < most, "{:?}", start.elapsed());
        let state = queue.lock();
        let kept: usize = state
            .inputs
            .iter()
            .map(|input| input.waiting.len() + input.pool.len())
            .sum();
        assert!(kept <= 10_000 + 10 + 4, "{kept}");
        drop(state);
        let items = items(&queue);
        assert_eq!(items.len(), 10_010 + 2);
        let counted = items.iter().map(|item| match item {
            Item::Losses { losses, .. } => losses.unreadable + losses.unstamped + losses.dropped,
            _ => 1,
        });
        assert_eq!(counted.sum::<u64>(), 10_000 + 4 * FLOOD);
    }
}
