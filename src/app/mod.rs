//! Plugins, the [`App`] that runs them, and dora's event loop.
//!
//! An operation becomes part of a node as a [`Plugin`]: it reads its section of the configuration and registers an
//! [`Operation`] with the inputs it listens to and the outputs it publishes. A node is a few lines:
//!
//! ```no_run
//! use robocache::app::{App, plugins::FusePlugin};
//! use std::process::ExitCode;
//!
//! fn main() -> ExitCode {
//!     robocache::app::main(|| App::from_env()?.add_plugin(FusePlugin).run())
//! }
//! ```
//!
//! Its command line is the same as that of every other node: `--config`, `--check`, `--help`, `--version`.
//!
//! With `plugins:` in its configuration an app runs several operations in one process, and an input is taken from an
//! earlier operation's output of that name where there is one: such messages never leave the process.

mod build;
mod columns;
mod config;
mod faults;
pub(crate) mod free;
mod graph;
mod message;
mod operation;
mod outbox;
pub mod plugins;

pub use crate::stream::Payload;
pub use build::{App, Plugin, Registration};
pub use config::{AppError, Config};
pub use dora_node_api::{MetadataParameters as Parameters, Parameter, serde_json::Value};
pub use graph::Graph;
pub use message::{MessageError, read_message};
pub use operation::{Change, Fault, Operation, Wake};
pub use outbox::{Outbox, Sink};

use std::process::ExitCode;

/// Runs a node: sets up its log, on standard error, and turns the result into an exit code: 0, 2 for a configuration or a
/// command line that can't be used, 1 for anything else.
pub fn main(run: impl FnOnce() -> Result<(), AppError>) -> ExitCode {
    crate::dora::log::set_up();
    let _overlay = crate::dora::runtime::is_under_a_daemon().then(crate::dora::transport::Overlay::set);
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::from(if error.is_config() { 2 } else { 1 })
        }
    }
}
