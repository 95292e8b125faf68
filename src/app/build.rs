use super::{AppError, Config, Graph, Operation};
use crate::device::Placement;
use crate::dora::arguments::{self, Arguments, Task};
use crate::dora::limits::Limits;
use crate::dora::runtime;
use crate::ops::ConfigError;
use serde::de::DeserializeOwned;
use serde_yaml::Value;
use std::io::Write;

/// An operation that can be added to an [`App`].
pub trait Plugin {
    /// Its name: the key of its section in the configuration.
    fn name(&self) -> &'static str;

    /// What it does, in a sentence for `--help`.
    fn about(&self) -> &'static str {
        ""
    }

    /// Reads its section with [`App::config`] and registers what it runs with [`App::add_operation`]. Where
    /// [`App::is_check`], it leaves everything as it is, and nothing is wired.
    ///
    /// # Errors
    /// A configuration that can't be used ends the node before it joins the dataflow.
    fn build(&self, app: &mut App) -> Result<(), AppError>;
}

/// A running operation with what it listens to and what it publishes.
pub struct Registration {
    /// Its name in the log.
    pub name: String,
    /// The inputs it listens to; [`Operation::input`] gets their places in this list.
    pub inputs: Vec<String>,
    /// The outputs it publishes; [`Outbox::send`](super::Outbox::send) takes their places in this list.
    pub outputs: Vec<String>,
    /// The operation itself.
    pub operation: Box<dyn Operation>,
}

/// A node being put together from plugins and a configuration.
pub struct App {
    config: Config,
    plugins: Vec<Box<dyn Plugin>>,
    section: (&'static str, Value),
    placement: Placement,
    wired: Vec<String>,
    limits: Limits,
    operations: Vec<Registration>,
    task: Task,
}

impl App {
    /// An app with the configuration that the command line (`--config FILE`) or `ROBOCACHE_CONFIG` names. With `--check`,
    /// `--help` or `--version` that is all that [`run`](Self::run) does.
    ///
    /// # Errors
    /// Without a configuration, or where it can't be read.
    pub fn from_env() -> Result<Self, AppError> {
        let arguments = Arguments::parse(std::env::args_os().skip(1))?;
        let task = arguments.task;
        let config = match task {
            Task::Help | Task::Version => Config::none(),
            Task::Run | Task::Check => Config::read(&arguments.config_file()?, task == Task::Check)?,
        };
        Ok(Self {
            task,
            ..Self::new(config)
        })
    }

    /// An app with this configuration.
    pub fn new(config: Config) -> Self {
        Self {
            placement: config.placement().clone(),
            config,
            plugins: Vec::new(),
            section: ("", Value::Null),
            wired: Vec::new(),
            limits: Limits::from_env(),
            operations: Vec::new(),
            task: Task::Run,
        }
    }

    /// Makes a plugin available. Without `plugins:` in the configuration it runs, and its section is required; with
    /// it, those run that are listed there.
    #[must_use]
    pub fn add_plugin(mut self, plugin: impl Plugin + 'static) -> Self {
        self.plugins.push(Box::new(plugin));
        self
    }

    /// Makes several plugins available.
    #[must_use]
    pub fn add_plugins(mut self, plugins: impl IntoIterator<Item = Box<dyn Plugin>>) -> Self {
        self.plugins.extend(plugins);
        self
    }

    /// The section of the plugin that is being built.
    ///
    /// # Errors
    /// Unknown keys, wrong types: the file, the key and what is allowed.
    pub fn config<C: DeserializeOwned>(&self) -> Result<C, AppError> {
        self.config.section(self.section.0, &self.section.1)
    }

    /// Makes the refusal of a configuration an error that names the file and the section.
    pub fn refused(&self, error: &ConfigError) -> AppError {
        self.config.refused(self.section.0, error)
    }

    /// The devices of the plugin that is being built, and how much of their memory its operation may hold.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Whether the configuration is only checked: nothing is to run, and no dataflow is there.
    pub fn is_check(&self) -> bool {
        self.task == Task::Check
    }

    /// The inputs that the dataflow wires to this node, for an operation that takes whatever comes.
    pub fn wired_inputs(&self) -> &[String] {
        &self.wired
    }

    /// Says what [`wired_inputs`](Self::wired_inputs) are.
    #[must_use]
    pub fn with_wired_inputs(mut self, inputs: impl IntoIterator<Item = String>) -> Self {
        self.wired = inputs.into_iter().collect();
        self
    }

    /// Whether messages of so many bytes can be made, and sent on an output where the dataflow wants it.
    ///
    /// # Errors
    /// What they are too large for.
    pub fn check_message_size(&self, output: &str, bytes: usize) -> Result<(), String> {
        self.limits.check(output, bytes)
    }

    /// Registers an operation.
    pub fn add_operation(&mut self, registration: Registration) {
        self.operations.push(registration);
    }

    /// Builds the plugins that the configuration asks for, without running them.
    ///
    /// # Errors
    /// A configuration that can't be used; two operations with an output of the same name.
    pub fn build(mut self, is_published: impl Fn(&str) -> bool) -> Result<Graph, AppError> {
        tracing::info!("device {}", self.placement());
        let memory = self.placement().host_memory();
        let plugins = std::mem::take(&mut self.plugins);
        let available: Vec<&'static str> = plugins.iter().map(|plugin| plugin.name()).collect();
        for (name, mut section) in self.config.operations(&available)? {
            let max_bytes = self.config.take_max_bytes(name, &mut section)?;
            self.placement = self.config.placement().clone().with_max_bytes(max_bytes);
            self.section = (name, section);
            if let Some(plugin) = plugins.iter().find(|plugin| plugin.name() == name) {
                plugin.build(&mut self)?;
            }
        }
        let outputs = || self.operations.iter().flat_map(|operation| &operation.outputs);
        for (i, output) in outputs().enumerate() {
            if outputs().take(i).any(|earlier| earlier == output) {
                return Err(self.config.error("plugins", format!("two of them publish `{output}`")));
            }
        }
        Ok(Graph::new(self.operations, is_published, &memory))
    }

    /// Builds the plugins, joins the dataflow and runs until it ends; or does what else the command line asks for.
    ///
    /// # Errors
    /// A configuration that can't be used, before the dataflow is joined; afterwards only what ends the node.
    pub fn run(self) -> Result<(), AppError> {
        match self.task {
            Task::Run => runtime::run(self),
            Task::Check => self.check(),
            Task::Help => {
                let plugins: Vec<_> = self
                    .plugins
                    .iter()
                    .map(|plugin| (plugin.name(), plugin.about()))
                    .collect();
                print(&arguments::help(&plugins));
                Ok(())
            }
            Task::Version => {
                print(&format!("{}\n", arguments::version()));
                Ok(())
            }
        }
    }

    /// Builds the plugins and says what they take and publish.
    fn check(self) -> Result<(), AppError> {
        let mut text = format!("{} can be used\n", self.config.file().display());
        let graph = self.build(|_| true)?;
        for operation in graph.operations() {
            text.push_str(&format!("  {operation}\n"));
        }
        print(&text);
        Ok(())
    }
}

/// Writes to standard output, which whoever asked may have closed.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
