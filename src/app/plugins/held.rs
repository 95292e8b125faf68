use robocache_stream::Message;

/// Memory of messages that are held no more, to be used again. Together with what is held it is no more than a bound.
pub(super) struct Pool {
    /// For each input its own, as the messages of an input are of one size.
    free: Vec<Vec<Message>>,
    bytes: usize,
    max_bytes: usize,
}

/// Memory that is larger than a message by no more than this is used for it however small it is.
const SMALL: usize = 1 << 16;

impl Pool {
    pub fn new(inputs: usize, max_bytes: usize) -> Self {
        Self {
            free: (0..inputs).map(|_| Vec::new()).collect(),
            bytes: 0,
            max_bytes,
        }
    }

    /// Memory of an earlier message for one of so many bytes, while so many are held.
    pub fn take(&mut self, input: usize, bytes: usize, held: usize) -> Option<Message> {
        let own = self.free[input].pop();
        let own = own.inspect(|message| self.bytes -= message.capacity());
        while held + bytes + self.bytes > self.max_bytes
            && let Some(message) = self.free.iter_mut().find_map(Vec::pop)
        {
            self.bytes -= message.capacity();
        }
        // Small messages don't keep the memory of large ones.
        let fits = |message: &Message| message.capacity() <= 2 * bytes + SMALL;
        own.filter(fits)
    }

    /// Gives the memory of a message back, while so many bytes are held.
    pub fn give_back(&mut self, input: usize, message: Message, held: usize) {
        let bytes = message.capacity();
        if held + self.bytes + bytes <= self.max_bytes {
            self.bytes += bytes;
            self.free[input].push(message);
        }
    }

    /// Bytes that it has.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
