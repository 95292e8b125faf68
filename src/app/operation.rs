use super::Outbox;
use crate::stream::Message;
use dora_node_api::serde_json::Value;
use std::fmt;
use std::time::Instant;

/// A running operation: what a plugin registers.
///
/// All calls come from one thread, in the order in which the events arrived.
pub trait Operation {
    /// A message came on one of the inputs (by its place in the registration). An error is one of whoever sent it: it is
    /// counted and logged as an error at a limited rate, and the node lives on. What is no error of the sender goes to
    /// [`Outbox::warn`].
    fn input(&mut self, input: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault>;

    /// The CUDA device at which it takes the flat tensors of an input where they lie, from operations of this process
    /// that have them there: [`Message::on_device`]. On any other input messages are on the host.
    ///
    /// It is asked before and after each message, so that the answer may change: an operation whose device has no memory
    /// left goes back to the host. What is on its way meanwhile is brought there.
    fn device_of_input(&self, _input: usize) -> Option<usize> {
        None
    }

    /// Whether the last call left something to do, so that what it published is taken before there is more of it:
    /// [`go_on`](Self::go_on) is called until this is false, and nothing else before.
    fn has_more(&self) -> bool {
        false
    }

    /// Goes on with what the last call left to do; `message` is still that of the call, where it had one.
    fn go_on(&mut self, _message: Option<&Message>, _out: &mut Outbox<'_>) -> Result<(), Fault> {
        Ok(())
    }

    /// The state of an input changed.
    fn changed(&mut self, _input: usize, _change: Change, _out: &mut Outbox<'_>) {}

    /// A parameter was set while the node runs; `Ok(false)` where it is not one of this operation.
    fn parameter(&mut self, _key: &str, _value: &Value) -> Result<bool, Fault> {
        Ok(false)
    }

    /// Called at start and whenever the time it last asked for has come, and says when it wants to be called again.
    /// An error ends the node.
    fn wake(&mut self, _now: Instant, _out: &mut Outbox<'_>) -> Result<Wake, Fault> {
        Ok(Wake::Never)
    }

    /// The node ends. An error makes it end with exit code 1.
    fn finish(&mut self, _out: &mut Outbox<'_>) -> Result<(), Fault> {
        Ok(())
    }
}

/// How the state of an input changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing will come any more, unless it opens again.
    Closed,
    /// It is back.
    Opened,
}

/// When an operation wants to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Not of itself.
    Never,
    /// At this time.
    At(Instant),
    /// As a source it has nothing more to publish: a node whose sources are all done ends.
    Done,
}

/// Something that went wrong with a message, a parameter or an operation: any error, for the log.
pub struct Fault(Box<dyn std::error::Error + Send + Sync>);

impl Fault {
    /// The error within.
    pub fn into_inner(self) -> Box<dyn std::error::Error + Send + Sync> {
        self.0
    }
}

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for Fault {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
