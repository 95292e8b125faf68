use robocache_stream::Message;
use std::ops::Deref;

/// A message on its way into an operation, which may keep its memory if no other operation needs it.
pub(crate) enum InputMessage<'a> {
    /// A message that other operations need, too.
    Borrowed(&'a Message),
    /// A message that no other operation needs.
    Owned(&'a mut Message),
}

/// Bytes by which the memory of a message may exceed twice the message's size, if an operation holds it without a copy.
const SMALL: usize = 4096;

impl InputMessage<'_> {
    /// Returns the message for an operation to hold. If no other operation needs the message and its memory is not much too
    /// large, it is moved out, and `memory` is left in its place. Otherwise the message is copied into `memory`.
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
