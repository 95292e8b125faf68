//! The bounded queue between the thread that drains dora's events and the one that runs the operations.

use super::free::FreeList;
use crate::stream::Message;
use dora_node_api::serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// How much of an input may wait, where the dataflow does not say.
const DEFAULT_MESSAGES: usize = 1024;
const DEFAULT_BYTES: usize = 64 << 20;

/// The memory of so many messages of an input is kept, however large they are: of one that comes and one that is used.
const FREE_MESSAGES: usize = 2;

/// What happened, in the order in which it did.
pub(super) enum Item {
    /// A message came on an input.
    Message { input: usize, message: Message },
    /// A message that can't be read came on an input.
    Unreadable { input: usize, error: String },
    /// A message came without a stamp, and took dora's.
    Unstamped,
    /// An input closed.
    Closed { input: usize },
    /// An input is back.
    Opened { input: usize },
    /// A parameter was set.
    Parameter { key: String, value: Value },
    /// Something to log.
    Log { is_error: bool, text: String },
    /// dora lost messages of an input before they came here.
    LostByDora { input: usize, count: u64 },
    /// Every input is closed, and what came is flushed; or the dataflow stops.
    End { inputs_closed: bool },
}

/// The bound of one input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub messages: usize,
    pub bytes: usize,
    /// Whether the drain waits for room instead of dropping the oldest message.
    pub waits: bool,
}

impl Bound {
    /// The bound from the dataflow's `queue_size` and `queue_policy`.
    pub fn new(queue_size: Option<usize>, backpressure: bool) -> Self {
        Self {
            messages: queue_size.unwrap_or(DEFAULT_MESSAGES).max(1),
            bytes: if queue_size.is_some() {
                usize::MAX
            } else {
                DEFAULT_BYTES
            },
            waits: backpressure,
        }
    }
}

/// A queue of items in arrival order, bounded for each input; the memory of its messages is used again.
pub(super) struct Queue {
    state: Mutex<State>,
    arrived: Condvar,
    room: Condvar,
}

struct State {
    items: VecDeque<Item>,
    inputs: Vec<InputState>,
    ended: bool,
}

struct InputState {
    bound: Bound,
    messages: usize,
    bytes: usize,
    dropped: u64,
    free: FreeList,
}

impl InputState {
    fn is_full(&self, more: usize) -> bool {
        self.messages > 0
            && (self.messages >= self.bound.messages || self.bytes.saturating_add(more) > self.bound.bytes)
    }
}

impl Queue {
    pub fn new(bounds: &[Bound]) -> Self {
        let inputs = bounds.iter().map(|&bound| InputState {
            bound,
            messages: 0,
            bytes: 0,
            dropped: 0,
            free: FreeList::new(FREE_MESSAGES),
        });
        Self {
            state: Mutex::new(State {
                items: VecDeque::with_capacity(256),
                inputs: inputs.collect(),
                ended: false,
            }),
            arrived: Condvar::new(),
            room: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory for a message of this input.
    pub fn take_free(&self, input: usize) -> Message {
        self.lock().inputs[input].free.take()
    }

    /// Gives the memory of a message back.
    pub fn give_back(&self, input: usize, message: Message) {
        let mut state = self.lock();
        let over = state.inputs[input].free.put(message);
        drop(state);
        // To free it may take a while.
        drop(over);
    }

    /// Appends a message. Where its input is full, the oldest one of that input is dropped and counted; an input that
    /// waits is waited for.
    pub fn push_message(&self, input: usize, message: Message) {
        let bytes = message.bytes();
        let mut state = self.lock();
        while state.inputs[input].is_full(bytes) && !state.ended {
            if state.inputs[input].bound.waits {
                state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else {
                state.drop_oldest(input);
            }
        }
        state.inputs[input].messages += 1;
        state.inputs[input].bytes += bytes;
        state.items.push_back(Item::Message { input, message });
        drop(state);
        self.arrived.notify_one();
    }

    /// Appends anything but a message.
    pub fn push(&self, item: Item) {
        self.lock().items.push_back(item);
        self.arrived.notify_one();
    }

    /// The next item; `None` where there is none by `deadline`.
    pub fn pop(&self, deadline: Option<Instant>) -> Option<Item> {
        let mut state = self.lock();
        loop {
            if let Some(item) = state.items.pop_front() {
                if let Item::Message { input, message } = &item {
                    let of = &mut state.inputs[*input];
                    of.messages -= 1;
                    of.bytes -= message.bytes();
                    if of.bound.waits {
                        self.room.notify_one();
                    }
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

    /// How many messages of the input were dropped since the last call.
    pub fn take_dropped(&self, input: usize) -> u64 {
        std::mem::take(&mut self.lock().inputs[input].dropped)
    }

    /// Nobody takes items any more: nothing waits for room.
    pub fn end(&self) {
        self.lock().ended = true;
        self.room.notify_all();
    }
}

impl State {
    fn drop_oldest(&mut self, input: usize) {
        let is_oldest = |item: &Item| matches!(item, Item::Message { input: of, .. } if *of == input);
        let Some(place) = self.items.iter().position(is_oldest) else {
            return;
        };
        if let Some(Item::Message { message, .. }) = self.items.remove(place) {
            let of = &mut self.inputs[input];
            of.messages -= 1;
            of.bytes -= message.bytes();
            of.dropped += 1;
            of.free.put(message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Dtype;
    use crate::stream::Cells;
    use std::sync::Arc;
    use std::time::Duration;

    fn message(stamp: i64) -> Message {
        let mut message = Message::default();
        message.timestamp_ns = stamp;
        message
            .add_column("", Dtype::UInt8, Cells::One)
            .data
            .copy_from(&[0; 10]);
        message
    }

    fn stamps(queue: &Queue) -> Vec<(usize, i64)> {
        let now = Some(Instant::now());
        std::iter::from_fn(|| match queue.pop(now) {
            Some(Item::Message { input, message }) => Some((input, message.timestamp_ns)),
            _ => None,
        })
        .collect()
    }

    #[test]
    fn an_overload_drops_the_oldest_of_that_input_and_counts_it() {
        let queue = Queue::new(&[Bound::new(Some(2), false), Bound::new(None, false)]);
        for (input, stamp) in [(0, 1), (1, 2), (0, 3), (1, 4), (0, 5), (0, 6)] {
            queue.push_message(input, message(stamp));
        }
        assert_eq!(queue.take_dropped(0), 2);
        assert_eq!(queue.take_dropped(0), 0);
        assert_eq!(queue.take_dropped(1), 0);
        assert_eq!(stamps(&queue), [(1, 2), (1, 4), (0, 5), (0, 6)]);
    }

    #[test]
    fn an_undeclared_bound_is_one_of_bytes_too_but_a_single_message_always_fits() {
        let mut bound = Bound::new(None, false);
        bound.bytes = 25;
        let queue = Queue::new(&[bound]);
        for stamp in 0..4 {
            queue.push_message(0, message(stamp));
        }
        assert_eq!(stamps(&queue), [(0, 2), (0, 3)]);
        bound.bytes = 1;
        let queue = Queue::new(&[bound]);
        queue.push_message(0, message(7));
        assert_eq!(stamps(&queue), [(0, 7)]);
    }

    #[test]
    fn a_lossless_input_waits_for_room() {
        let queue = Arc::new(Queue::new(&[Bound::new(Some(3), true)]));
        let pusher = {
            let queue = queue.clone();
            std::thread::spawn(move || (0..100).for_each(|stamp| queue.push_message(0, message(stamp))))
        };
        let mut got = Vec::new();
        while got.len() < 100 {
            std::thread::sleep(Duration::from_micros(200));
            match queue.pop(None) {
                Some(Item::Message { message, .. }) => got.push(message.timestamp_ns),
                _ => panic!("only messages were pushed"),
            }
        }
        pusher.join().unwrap();
        assert_eq!(got, (0..100).collect::<Vec<_>>());
        assert_eq!(queue.take_dropped(0), 0);
    }
}
