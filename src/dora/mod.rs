//! Runs an app as a node of a dora dataflow: command line, log, event loop, queue, transport and wire format.
//!
//! A node is a few lines:
//!
//! ```no_run
//! use robocache::app::{App, plugins::FusePlugin};
//! use robocache::dora;
//! use std::process::ExitCode;
//!
//! fn main() -> ExitCode {
//!     dora::main(|| Ok(dora::run(App::new().add_plugin(FusePlugin::default()))?))
//! }
//! ```

mod arguments;
mod drain;
mod ipc;
mod log;
mod message;
mod queue;
mod rings;
mod runtime;
mod sender;
mod status;
mod transport;
mod wiring;

pub use message::read_message;
pub use wiring::{MESSAGE_BYTES, POOL_BYTES};

use crate::app::{App, AppError, Config, Plugin};
use arguments::{Arguments, Task};
use std::io::Write;
use std::process::ExitCode;

/// Version of dora that these nodes are built for. The daemon and the command line must have the same version.
pub const VERSION: &str = "1.1.0";

/// Environment variable in which dora's daemon describes the node's place in its dataflow.
const NODE_CONFIG: &str = "DORA_NODE_CONFIG";

/// True if dora's daemon has started this process.
fn is_under_a_daemon() -> bool {
    std::env::var_os(NODE_CONFIG).is_some()
}

/// The reason why a node can't run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The command line can't be used.
    #[error("{0} (allowed: --config FILE or the environment variable ROBOCACHE_CONFIG; --check, --help, --version)")]
    Arguments(String),
    /// The dataflow does not wire what the configuration asks for, or the status of the node can't be written.
    #[error("{0}")]
    Config(String),
    /// The node can't join dora's dataflow, its description by dora can't be read, or the thread that drains dora's events can't be
    /// started.
    #[error("dora: {0}")]
    Dora(String),
    /// The app can't be built, or can't go on.
    #[error(transparent)]
    App(#[from] AppError),
}

impl NodeError {
    /// True if the configuration or the command line is wrong: exit code 2.
    pub fn is_config(&self) -> bool {
        match self {
            Self::Arguments(_) | Self::Config(_) => true,
            Self::App(error) => error.is_config(),
            Self::Dora(_) => false,
        }
    }
}

/// Runs the `main` of a node: sets up its log, on standard error, and dora's transport, and turns the result of `run` into an
/// exit code. The code is 0, 2 for a configuration or a command line that can't be used, or 1 for anything else. An error is
/// logged with its causes.
///
/// It must be the first thing that `main` does, while there is one thread, as it may set an environment variable. Under dora's
/// daemon it sets `DORA_ZENOH_CONFIG_OVERLAY`, so that bursts lose nothing, unless that or `ZENOH_CONFIG` is set.
pub fn main(run: impl FnOnce() -> eyre::Result<()>) -> ExitCode {
    log::set_up();
    let _overlay = is_under_a_daemon().then(transport::Overlay::set);
    let Err(report) = run() else {
        return ExitCode::SUCCESS;
    };
    tracing::error!("{report:#}");
    let is_config = report.downcast_ref().is_some_and(NodeError::is_config)
        || report.downcast_ref().is_some_and(AppError::is_config);
    ExitCode::from(if is_config { 2 } else { 1 })
}

/// Runs an app as the command line asks. It reads the configuration that `--config FILE` or `ROBOCACHE_CONFIG` names, joins the
/// dataflow and runs until it ends. With `--check` it only checks the configuration. With `--help` or `--version` it only prints
/// the requested text.
///
/// An app whose plugins all have their configuration from the program needs no file.
///
/// # Errors
/// A command line or a configuration that can't be used, before the dataflow is joined; afterwards the error that ends the
/// node.
pub fn run(app: App) -> Result<(), NodeError> {
    let arguments = Arguments::parse(std::env::args_os().skip(1))?;
    let task = arguments.task;
    if task == Task::Help {
        let plugins: Vec<_> = app.plugins().map(|plugin| (plugin.name(), plugin.about())).collect();
        return print(&arguments::help(&plugins));
    }
    if task == Task::Version {
        return print(&format!("{}\n", arguments::version()));
    }
    let file = arguments.config_file();
    let app = match &file {
        Some(file) => app.with_config(Config::read(file)?),
        None if app.plugins().all(Plugin::is_configured) => app,
        None => return Err(NodeError::Arguments("no configuration is given".into())),
    };
    if task == Task::Run {
        return runtime::run(app);
    }
    let graph = app.check()?;
    let file = file.map_or_else(|| "the configuration".to_owned(), |file| file.display().to_string());
    let mut text = format!("{file} can be used\n");
    for operation in graph.operations() {
        text.push_str(&format!("  {operation}\n"));
    }
    print(&text)
}

/// Writes to standard output. Errors are ignored, as the reader may have closed it.
fn print(text: &str) -> Result<(), NodeError> {
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}
