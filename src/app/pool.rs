//! Pools that reuse the memory of messages.
//!
//! A pool never grows past its bound: a message that does not fit is freed, or handed back to be freed.

use robocache_device::HostMemory;
use robocache_stream::Message;

/// Bounded pool of delivered messages whose memory is reused: page-locked memory and device memory are scarce.
///
/// Each stream has a pool of its own, as its messages have one size.
#[derive(Default)]
pub(crate) struct MessagePool {
    messages: Vec<Message>,
    bytes: usize,
    min_messages: usize,
    memory: HostMemory,
}

/// Largest number of messages in a [`MessagePool`], and largest number of their bytes. The first `min_messages` are kept in
/// any case.
const MOST_MESSAGES: usize = 1024;
const MOST_BYTES: usize = 64 << 20;

impl MessagePool {
    /// Makes an empty pool that keeps `min_messages` messages however large they are. New messages get their memory from `memory`.
    pub(crate) fn new(min_messages: usize, memory: &HostMemory) -> Self {
        Self {
            min_messages,
            memory: memory.clone(),
            ..Self::default()
        }
    }

    /// Raises `min_messages` by one: the number of messages that are kept however large they are.
    pub(crate) fn keep_one_more(&mut self) {
        self.min_messages += 1;
    }

    /// Number of messages in the pool.
    #[cfg(all(test, feature = "dora"))]
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Takes a message from the pool, or makes a new one.
    pub(crate) fn take(&mut self) -> Message {
        self.pop().unwrap_or_else(|| Message::new(&self.memory))
    }

    /// Puts a message back. Returns the message if the pool is full: the caller frees it after it has released its locks.
    pub(crate) fn put(&mut self, message: Message) -> Option<Message> {
        let has_room = self.messages.len() < MOST_MESSAGES && self.bytes + message.capacity() <= MOST_BYTES;
        if !has_room && self.messages.len() >= self.min_messages {
            return Some(message);
        }
        self.push(message);
        None
    }

    fn push(&mut self, message: Message) {
        self.bytes += message.capacity();
        self.messages.push(message);
    }

    fn pop(&mut self) -> Option<Message> {
        self.messages.pop().inspect(|message| self.bytes -= message.capacity())
    }
}

/// The pools of an operation that holds messages of its inputs. One bound covers the pools and the held messages.
pub(crate) struct HeldPools {
    pools: Vec<MessagePool>,
    max_bytes: usize,
}

/// Margin for reused memory, bytes: memory that exceeds twice the new message's size plus this margin is not reused.
const SMALL: usize = 1 << 16;

impl HeldPools {
    /// Makes an empty pool for each input. `max_bytes` is the bound of all pools and held messages together.
    pub(crate) fn new(inputs: usize, max_bytes: usize) -> Self {
        Self {
            pools: (0..inputs).map(|_| MessagePool::default()).collect(),
            max_bytes,
        }
    }

    /// Takes a pooled message of this input for a message of `bytes` bytes; `None` if none has a suitable size. Frees pooled
    /// memory that is over the bound. `held` is the size of the messages that the operation holds, bytes.
    pub(crate) fn take(&mut self, input: usize, bytes: usize, held: usize) -> Option<Message> {
        let own = self.pools[input].pop();
        while held + bytes + self.bytes() > self.max_bytes && self.pools.iter_mut().any(|pool| pool.pop().is_some()) {}
        // Small messages do not keep the memory of large ones.
        own.filter(|message| message.capacity() <= 2 * bytes + SMALL)
    }

    /// Puts the memory of a message into the pool of its input. Frees it instead if the bound leaves no room. `held` is the size of
    /// the messages that the operation holds, bytes.
    pub(crate) fn give_back(&mut self, input: usize, message: Message, held: usize) {
        if held + self.bytes() + message.capacity() <= self.max_bytes {
            self.pools[input].push(message);
        }
    }

    /// Size of the messages in all pools, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.pools.iter().map(|pool| pool.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use robocache_device::Dtype;
    use robocache_stream::Layout;

    fn message(bytes: usize) -> Message {
        let mut message = Message::default();
        message.lay_out(&Layout::flat(Dtype::UInt8, bytes));
        message
    }

    #[test]
    fn a_burst_is_not_kept_but_what_one_message_takes_always_is() {
        let mut free = MessagePool::new(2, &HostMemory::pageable());
        for i in 0..2 * MOST_MESSAGES {
            assert_eq!(free.put(message(256)).is_some(), i >= MOST_MESSAGES, "{i}");
        }
        while free.bytes > 0 {
            assert_eq!(free.take().capacity(), 256);
        }
        for kept in [true, true, false] {
            assert_eq!(free.put(message(MOST_BYTES)).is_none(), kept);
        }
        assert_eq!(free.take().capacity(), MOST_BYTES);
        assert!(free.put(message(1)).is_none());
        assert!(free.put(message(1)).is_some());
    }
}
