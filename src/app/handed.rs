use robocache_stream::Message;
use std::ops::Deref;

/// A message that comes to an operation.
pub(crate) enum Handed<'a> {
    /// Others need it, too.
    Lent(&'a Message),
    /// Nobody else does.
    Given(&'a mut Message),
}

/// Memory that is larger than a message is kept for it up to twice its size, and this, bytes.
const SMALL: usize = 4096;

impl Handed<'_> {
    /// Puts the message into memory that is no longer used, if there is any: exchanges the two where nobody else needs
    /// the message and it takes little more memory than it has to, and copies it otherwise.
    pub fn keep(self, memory: Option<Message>) -> Message {
        match self {
            Self::Given(message) if message.capacity() <= 2 * message.bytes() + SMALL => {
                let memory = memory.unwrap_or_else(|| message.new_like());
                std::mem::replace(message, memory)
            }
            message => {
                let mut copy = memory.unwrap_or_default();
                copy.copy_from(&message);
                copy
            }
        }
    }
}

impl Deref for Handed<'_> {
    type Target = Message;

    fn deref(&self) -> &Message {
        match self {
            Self::Lent(message) => message,
            Self::Given(message) => message,
        }
    }
}
