use robocache_device::HostMemory;
use robocache_stream::Message;

/// A bounded free list of messages, whose memory is used again. The bound is there for bursts: page-locked memory and a
/// device's are scarce.
#[derive(Default)]
pub(crate) struct FreeList {
    messages: Vec<Message>,
    bytes: usize,
    always: usize,
    memory: HostMemory,
}

/// The most messages and bytes that a list keeps.
const MOST_MESSAGES: usize = 1024;
const MOST_BYTES: usize = 64 << 20;

impl FreeList {
    /// An empty list that keeps so many messages however large they are. New ones get their memory from `memory`.
    pub fn new(always: usize, memory: &HostMemory) -> Self {
        Self {
            always,
            memory: memory.clone(),
            ..Self::default()
        }
    }

    /// Keeps one more message however large it is.
    pub fn keep_one_more(&mut self) {
        self.always += 1;
    }

    /// How many messages it has the memory of.
    #[cfg(all(test, feature = "dora"))]
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Memory for a message.
    pub fn take(&mut self) -> Message {
        let message = self.messages.pop().unwrap_or_else(|| Message::new(&self.memory));
        self.bytes -= message.capacity();
        message
    }

    /// Gives memory back. What is over the bound is returned, for the caller to drop where that holds nothing up.
    pub fn put(&mut self, message: Message) -> Option<Message> {
        let bytes = message.capacity();
        let has_room = self.messages.len() < MOST_MESSAGES && self.bytes + bytes <= MOST_BYTES;
        if !has_room && self.messages.len() >= self.always {
            return Some(message);
        }
        self.bytes += bytes;
        self.messages.push(message);
        None
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
        let mut free = FreeList::new(2, &HostMemory::pageable());
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
