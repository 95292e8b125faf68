//! The traits of running operations and sources, and the values that they exchange with the graph that calls them.
//!
//! One thread makes all calls, one at a time. An error of [`Operation::input`] never ends the node; an error of
//! [`Operation::wake`] or [`Operation::finish`] does.

use super::{Diagnosis, HealthIssue, Outbox, Value};
use robocache_device::Device;
use robocache_stream::{Message, Selection};
use std::fmt;
use std::time::Instant;

/// A running operation, which a plugin registers and a [`Graph`](super::Graph) calls.
///
/// # Lifecycle
///
/// 1. [`wake`](Self::wake) is called once at the start, before any message.
/// 2. [`input`](Self::input) is called for each message, [`changed`](Self::changed) when an input closes or opens again,
///    [`parameter`](Self::parameter) when a parameter is set, and [`wake`](Self::wake) at the time that it last asked for.
///    Calls come in the order in which these events happened. Messages that it publishes in a call reach the operations after
///    it before the next event does.
/// 3. [`finish`](Self::finish) is called once at the end: no more messages come, and work that it holds must be completed. If every
///    input closes, [`changed`](Self::changed) is called for each input before `finish`.
///
/// All calls come from one thread, which need not be the one that built the operation's plugin but never changes. A call may
/// take as long as the work takes: meanwhile messages wait in a bounded queue, which drops the oldest of each input. It should
/// not wait for anything else, such as a network or a sleep: other operations of the process wait with it.
///
/// # Errors
///
/// An error of [`input`](Self::input) or [`resume`](Self::resume) is the sender's fault: it is counted and logged at a limited
/// rate, and the node lives on. So is a parameter that is refused. An error of [`wake`](Self::wake) or
/// [`finish`](Self::finish), and one given to [`Outbox::end`], ends the node with exit code 1.
///
/// # Example
///
/// An operation that doubles the values of its input, in a graph without a dataflow:
///
/// ```
/// use robocache::prelude::*;
///
/// struct Double;
///
/// impl Operation for Double {
///     fn input(&mut self, _input: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
///         let values = message.flat().ok_or("a struct came (allowed: a flat array)")?;
///         // An output's layout comes first: the payload is written where it is sent from.
///         out.send(0, &Layout::flat(Dtype::Float32, values.len()), |payload, header| {
///             values.to_f32(payload.column(0));
///             payload.column::<f32>(0).iter_mut().for_each(|value| *value *= 2.0);
///             // Stamps, shape and mask are those that came. The element type is float32 now.
///             header.copy_from(&message.header);
///             header.dtype.clear();
///         });
///         Ok(())
///     }
/// }
///
/// struct DoublePlugin;
///
/// impl Plugin for DoublePlugin {
///     fn name(&self) -> &'static str {
///         "double"
///     }
///
///     fn is_configured(&self) -> bool {
///         true // it has nothing to configure
///     }
///
///     fn build(&self, context: &mut BuildContext<'_>) -> Result<(), AppError> {
///         context.add_operation(Registration {
///             name: context.name().to_owned(),
///             inputs: vec!["force".into()],
///             outputs: vec!["doubled".into()],
///             operation: Box::new(Double),
///         });
///         Ok(())
///     }
/// }
///
/// /// Keeps the last message that was published.
/// #[derive(Default)]
/// struct Last(Message);
///
/// impl Sink for Last {
///     fn send(
///         &mut self,
///         _output: &str,
///         layout: &Layout,
///         fill: &mut dyn FnMut(&mut Payload<'_>, &mut Header),
///     ) -> Result<(), Fault> {
///         self.0.write(layout, fill);
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), AppError> {
/// let mut graph: Graph = App::new().add_plugin(DoublePlugin).build(|_output| true)?;
/// let mut last = Last::default();
///
/// let mut message = Message::default();
/// message.write(&Layout::flat(Dtype::Float32, 2), |payload, header| {
///     payload.column(0).copy_from_slice(&[1.0f32, 2.5]);
///     header.timestamp_ns.set(1_000_000);
/// });
/// graph.message(0, &message, &mut last);
///
/// assert_eq!(last.0.timestamp_ns(), 1_000_000);
/// assert_eq!(last.0.columns()[0].values().as_slice::<f32>(), [2.0, 5.0]);
/// # Ok(())
/// # }
/// ```
pub trait Operation {
    /// Handles a message of an input; `input` is its index in the registration. [`Message::samples`] iterates over its samples.
    /// An error counts as the sender's fault; report other events with [`Outbox::warn`].
    fn input(&mut self, input: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault>;

    /// Handles a message that no other operation needs; the default calls [`input`](Self::input). An operation that keeps
    /// messages may swap this message with an old one ([`std::mem::swap`]) and copy nothing. The graph then reuses the memory
    /// of the old message.
    fn input_owned(&mut self, input: usize, message: &mut Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        self.input(input, message, out)
    }

    /// Device whose memory may hold the flat tensors of an input: [`Data::Device`](robocache_stream::Data::Device). Only operations
    /// of this process send such tensors. With `None`, the default, the input's messages are on the host.
    ///
    /// The graph asks before and after each message, so the answer may change. An operation whose device has no memory left returns
    /// `None` from then on. Messages in flight are then copied to the host.
    fn device_of_input(&self, _input: usize) -> Option<Device> {
        None
    }

    /// Fields that the operation reads of an input's payloads, if these are structs of other software: [`Selection`]. It
    /// applies to inputs from the dataflow, and the default reads payloads unchanged. Messages from operations of this process
    /// are always unchanged.
    fn selection(&self, _input: usize) -> Selection {
        Selection::default()
    }

    /// True if the operation takes every message of an input, such as requests and ticks, whatever its payload and metadata,
    /// and with or without a stamp. A message that can't be read comes without its payload.
    fn takes_any(&self, _input: usize) -> bool {
        false
    }

    /// True if the last call left work to do. The graph delivers the messages published so far, and calls [`resume`](Self::resume)
    /// until this is false, before any other event.
    fn has_more(&self) -> bool {
        false
    }

    /// Continues the work that the last call left. `message` is the message of that call, if it had one. After
    /// [`input_owned`](Self::input_owned) it is the message that the operation left in its place.
    fn resume(&mut self, _message: Option<&Message>, _out: &mut Outbox<'_>) -> Result<(), Fault> {
        Ok(())
    }

    /// Handles that an input of the operation was closed, or opened again. The default does nothing.
    fn changed(&mut self, _input: usize, _change: Change, _out: &mut Outbox<'_>) {}

    /// Handles that `messages` messages of an input could not be decoded. The graph has counted them as faults, and does not pass
    /// them to [`input`](Self::input).
    fn unreadable(&mut self, _input: usize, _messages: u64) {}

    /// Current problem of an input, for the diagnostics, with the text of the operation's log; `None` if there is no problem.
    fn health_issue(&self, _input: usize) -> Option<&HealthIssue> {
        None
    }

    /// Values of an input for the diagnostics that the operation supplies, such as its late samples. The graph asks once a
    /// second while diagnostics are wanted. Ages and validity in observations go to [`Outbox::figures`] instead.
    fn diagnosis(&self, _input: usize) -> Diagnosis {
        Diagnosis::default()
    }

    /// Sets a parameter while the node runs; `Ok(false)` if the operation does not have it. The key comes without the
    /// operation's name before it: both `fuse.max_wait_ms` and `max_wait_ms` come as `max_wait_ms`. Results that become due are
    /// published by [`resume`](Self::resume).
    fn parameter(&mut self, _key: &str, _value: &Value) -> Result<bool, Fault> {
        Ok(false)
    }

    /// Does the work that is due at `now`, and returns the time of the next call. The first call is at the start of the node. An
    /// error ends the node.
    fn wake(&mut self, _now: Instant, _out: &mut Outbox<'_>) -> Result<Wake, Fault> {
        Ok(Wake::Never)
    }

    /// Finishes the work that the operation still holds, at the end of the node. No more messages come. An error makes the node
    /// end with exit code 1.
    fn finish(&mut self, _out: &mut Outbox<'_>) -> Result<(), Fault> {
        Ok(())
    }
}

/// A running operation without inputs, such as a sensor or a replay. [`BuildContext::add_source`](super::BuildContext)
/// registers it.
pub trait Source {
    /// Publishes the next message that is due. It is called at the start, and then at the time that it returns, until it
    /// returns [`Wake::Done`]. Other operations of the process have handled the message before the next call. An error ends the
    /// node.
    fn wake(&mut self, now: Instant, out: &mut Outbox<'_>) -> Result<Wake, Fault>;
}

/// Adapter that makes a source an operation of a graph.
pub(super) struct SourceOperation<S>(pub S);

impl<S: Source> Operation for SourceOperation<S> {
    fn input(&mut self, _: usize, _: &Message, _: &mut Outbox<'_>) -> Result<(), Fault> {
        Err("a source has no inputs".into())
    }

    fn wake(&mut self, now: Instant, out: &mut Outbox<'_>) -> Result<Wake, Fault> {
        self.0.wake(now, out)
    }
}

/// A change of an input's state, passed to [`Operation::changed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The input is closed: no more messages come, unless it opens again.
    Closed,
    /// The input is open again.
    Opened,
}

/// Time of the next call of [`Operation::wake`] or [`Source::wake`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// No set time: only messages and other events call the operation.
    Never,
    /// Next call at this time, or at once if it has passed.
    At(Instant),
    /// No further call: the source has published everything. A node ends when all its sources are done.
    Done,
}

/// An error of a message, a parameter or an operation, for the log.
pub struct Fault(Box<dyn std::error::Error + Send + Sync>);

impl Fault {
    /// Unwraps the boxed error, whose text the log shows.
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
