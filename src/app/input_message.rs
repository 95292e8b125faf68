use robocache_stream::Message;
use std::ops::Deref;

/// A message for one operation. The operation may keep the message's memory if no other operation needs the message.
pub(crate) enum InputMessage<'a> {
    /// A message that other operations need, too.
    Borrowed(&'a Message),
    /// A message that no other operation needs.
    Owned(&'a mut Message),
}

/// Margin for held messages, bytes: a message whose memory exceeds twice its size plus this margin is copied.
const SMALL: usize = 4096;

impl InputMessage<'_> {
    /// Returns the message for an operation to hold. An owned message is moved out if its memory is at most twice its size plus
    /// [`SMALL`] bytes, and `memory` is left in its place. Otherwise the message is copied into `memory`.
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
