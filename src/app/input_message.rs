use robocache_stream::Message;
use std::ops::Deref;

/// A message that comes to an operation.
pub(crate) enum InputMessage<'a> {
    /// Others need it, too.
    Borrowed(&'a Message),
    /// Nobody else does.
    Owned(&'a mut Message),
}

/// Memory that is larger than a message is kept for it up to twice its size, and this, bytes.
const SMALL: usize = 4096;

impl InputMessage<'_> {
    /// Puts the message into memory that is no longer used, if there is any: exchanges the two if nobody else needs
    /// the message and it takes little more memory than it has to, and copies it otherwise.
    pub(super) fn keep(self, memory: Option<Message>) -> Message {
        match self {
            Self::Owned(message) if message.capacity() <= 2 * message.bytes() + SMALL => {
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

impl Deref for InputMessage<'_> {
    type Target = Message;

    fn deref(&self) -> &Message {
        match self {
            Self::Borrowed(message) => message,
            Self::Owned(message) => message,
        }
    }
}
