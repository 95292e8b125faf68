use robocache_stream::Message;
use std::ops::Deref;

/// A message that comes to an operation.
pub(crate) enum InputMessage<'a> {
    /// A message that other operations need, too.
    Borrowed(&'a Message),
    /// A message that no other operation needs.
    Owned(&'a mut Message),
}

/// Bytes by which the memory of a message that is kept may exceed twice the message's size.
const SMALL: usize = 4096;

impl InputMessage<'_> {
    /// Returns the message, to be kept. If no other operation needs it and its memory is not much too large, `memory` takes its
    /// place; else it is copied into `memory`.
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
