//! Plugins, the [`App`] that they are built into, and the [`Graph`] of operations that results. A graph has no transport: it is
//! fed by hand, by a test, or by a dataflow (the module `dora`).
//!
//! An operation becomes part of an app as a [`Plugin`]. The plugin takes its configuration from the program or from its section
//! of a YAML file. It registers an [`Operation`] with the inputs it listens to and the outputs it publishes.
//!
//! An app may run several operations, and the same one several times. An input is taken from an earlier operation's
//! output of that name if there is one. Such messages never leave the process, and a tensor stays on its device.

mod build;
mod chains;
mod config;
mod context;
pub(crate) mod diagnostics;
mod error;
mod faults;
mod folder;
mod graph;
mod input_message;
pub mod key;
mod operation;
mod outbox;
mod plugin;
pub mod plugins;
pub(crate) mod pool;
pub(crate) mod rate_limit;
mod residence;

pub use build::App;
pub use config::Config;
pub use context::{BuildContext, Run};
pub use diagnostics::{DIAGNOSTICS, Diagnosis, Figures, HealthIssue, Level, Report, Row};
pub use error::AppError;
pub use faults::Dropped;
#[cfg(feature = "dora")]
pub(crate) use faults::Severity;
pub use graph::Graph;
pub use operation::{Change, Fault, Operation, Source, Wake};
pub use outbox::{Outbox, Sink};
pub use plugin::{Named, Plugin, Registration};
pub use residence::{OutputResidence, Residence};
pub use robocache_yaml::{did_you_mean, read_yaml};
/// The value of a live parameter, or of a key of a configuration.
pub use serde_yaml::Value;
