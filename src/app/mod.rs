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
//! With `plugins:` in its configuration an app runs several operations in one process, and an input is taken from an
//! earlier operation's output of that name where there is one: such messages never leave the process.

mod build;
mod columns;
mod config;
mod faults;
mod graph;
mod ipc;
mod limits;
mod message;
mod operation;
mod outbox;
pub mod plugins;
mod queue;
mod runtime;
mod sender;
mod transport;

pub use build::{App, Plugin, Registration};
pub use config::{AppError, Config};
pub use dora_node_api::{MetadataParameters as Parameters, Parameter, serde_json::Value};
pub use graph::Graph;
pub use message::{MessageError, read_message};
pub use operation::{Change, Fault, Operation, Wake};
pub use outbox::{Outbox, Payload, Sink};

use std::process::ExitCode;

/// What is logged where `RUST_LOG` does not say: dora's node API warns of every large message that it sends, and the
/// runtime says itself what is lost.
const LOG_FILTER: &str = "info,dora_node_api=error,zenoh=error,zenoh_shm=error,zenoh_transport=error";

/// Runs a node: sets up its log (standard error, filtered by `RUST_LOG`) and turns the result into an exit code: 0, 2
/// for a configuration that can't be used, 1 for anything else.
pub fn main(run: impl FnOnce() -> Result<(), AppError>) -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(LOG_FILTER));
    // A logger that the process has set already stays.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false)
        .without_time()
        .try_init();
    let _overlay = transport::Overlay::set();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::from(if error.is_config() { 2 } else { 1 })
        }
    }
}
