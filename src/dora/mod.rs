//! dora's event loop, queue, transport and wire format.

pub(crate) mod arguments;
mod ipc;
pub(crate) mod limits;
pub(crate) mod log;
mod queue;
pub(crate) mod runtime;
mod sender;
pub(crate) mod transport;
