//! Builds the operations of a node from plugins and a configuration.
//!
//! Every mistake in the configuration is found here, before the node joins its dataflow.

#[cfg(feature = "dora")]
use super::context::Run;
use super::context::{BuildContext, Surroundings};
use super::{AppError, Config, Graph, Plugin, Registration};
use robocache_device::Placement;
use std::path::Path;

/// Builder of a [`Graph`] from plugins and a configuration.
///
/// ```
/// use robocache::app::{App, AppError, Config, plugins::FusePlugin};
/// use std::path::Path;
///
/// # fn main() -> Result<(), AppError> {
/// let text = "fuse: { rate_hz: 50, modalities: [{ input: force, dim: 6, interpolation: linear }] }";
/// let config = Config::parse(Path::new("robot.yml"), text)?;
/// let graph = App::new()
///     .with_config(config)
///     .add_plugin(FusePlugin::default())
///     .build(|_output| true)?;
/// let inputs: Vec<_> = graph.external_inputs().map(|(input, _operation)| input).collect();
/// assert_eq!(inputs, ["force"]);
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct App {
    config: Config,
    /// Devices of all operations, if the program sets them; `None` if the configuration selects them.
    given_placement: Option<Placement>,
    plugins: Vec<Box<dyn Plugin>>,
    surroundings: Surroundings,
}

/// Checks that operations with a common input of the dataflow read the same fields of its payloads (`Selection`). Also checks
/// that no input with the key `from:` comes from an operation of this process.
fn check_readings(graph: &Graph) -> Result<(), String> {
    if let Some((operation, input)) = graph.misread() {
        return Err(format!(
            "the input `{input}` of `{operation}` comes from another operation of this process (allowed: an input of the dataflow)"
        ));
    }
    let mut inputs = graph.external_inputs().enumerate();
    match inputs.find(|&(external, _)| graph.selection(external).is_none()) {
        None => Ok(()),
        Some((_, (input, _))) => Err(format!(
            "operations read the messages of input `{input}` in different ways (needed: an input of its own for \
             each, which may have the same source)"
        )),
    }
}

impl App {
    /// Makes an app without plugins and without a configuration file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the configuration. Without this call every plugin needs its configuration from the program.
    #[must_use]
    pub fn with_config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Sets the devices of all operations, whatever the configuration says.
    #[must_use]
    pub fn with_placement(mut self, placement: Placement) -> Self {
        self.given_placement = Some(placement);
        self
    }

    /// Makes a plugin available. It runs if the configuration lists it under `plugins:`, if the program configures it, or if
    /// the configuration does not have the key `plugins:`. Plugins that only the program configures run before the listed ones.
    ///
    /// Without that key, a plugin that the program does not configure needs a section of its name.
    #[must_use]
    pub fn add_plugin(mut self, plugin: impl Plugin + 'static) -> Self {
        self.plugins.push(Box::new(plugin));
        self
    }

    /// Makes several plugins available, as [`add_plugin`](Self::add_plugin) does for one. If neither the program nor a section
    /// configures one of them, the configuration has to list under `plugins:` which of them run.
    #[must_use]
    pub fn add_plugins(mut self, plugins: impl IntoIterator<Item = Box<dyn Plugin>>) -> Self {
        self.plugins.extend(plugins);
        self
    }

    /// Sets the names of the inputs that the dataflow wires to the node, for [`wired_inputs`](BuildContext::wired_inputs).
    #[must_use]
    pub fn with_wired_inputs(mut self, inputs: impl IntoIterator<Item = String>) -> Self {
        self.surroundings.wired = inputs.into_iter().collect();
        self
    }

    /// Sets the id and the start time of the running dataflow, for [`run`](BuildContext::run); `None` outside of a dataflow.
    #[must_use]
    #[cfg(feature = "dora")]
    pub(crate) fn with_run(mut self, run: Option<Run>) -> Self {
        self.surroundings.run = run;
        self
    }

    /// Sets the check that refuses messages too large for the transport, for
    /// [`check_message_size`](BuildContext::check_message_size).
    #[must_use]
    pub fn with_message_limit(mut self, limit: impl Fn(&str, usize) -> Result<(), String> + 'static) -> Self {
        self.surroundings.limit = Some(Box::new(limit));
        self
    }

    /// Returns the added plugins, in the order in which they were added.
    pub fn plugins(&self) -> impl Iterator<Item = &dyn Plugin> {
        self.plugins.iter().map(Box::as_ref)
    }

    /// Folder of the nodes' status files; `None` if the configuration does not have the key `status`.
    pub fn status(&self) -> Option<&Path> {
        self.config.status()
    }

    /// Builds the operations. `is_published` returns true for the name of each output that the dataflow lists for this node.
    ///
    /// # Errors
    /// Devices or a configuration that can't be used; two operations with an output of the same name.
    pub fn build(self, is_published: impl Fn(&str) -> bool) -> Result<Graph, AppError> {
        let placement = match self.given_placement {
            Some(placement) => placement,
            None => self.config.placement(self.surroundings.is_check)?,
        };
        tracing::info!("device {placement}");
        let memory = placement.host_memory();
        let (mut operations, mut in_rings) = (Vec::new(), Vec::new());
        for step in self.config.steps(&self.plugins)? {
            let plugin = self.plugins[step.plugin].as_ref();
            let registered = (&mut operations, &mut in_rings);
            BuildContext::new(step, plugin, &self.config, &placement, &self.surroundings, registered)?.build(plugin)?;
        }
        let outputs = || operations.iter().flat_map(|operation| &operation.outputs);
        for (i, output) in outputs().enumerate() {
            if outputs().take(i).any(|earlier| earlier == output) {
                let problem = format!("two of them publish `{output}` (a `name:` in an entry tells them apart)");
                return Err(self.config.error("plugins", problem));
            }
        }
        let mut warnings = self.config.unused_sections(&self.plugins);
        warnings.extend(order_warnings(&operations));
        if !self.surroundings.is_check {
            let file = self.config.file().display();
            warnings.iter().for_each(|warning| tracing::warn!("{file}: {warning}"));
            // Warnings of chains name their own file.
            let of_chains = self.config.read_chain_warnings();
            of_chains.iter().for_each(|warning| tracing::warn!("{warning}"));
        }
        let mut graph = Graph::new(operations, is_published, &memory);
        graph.set_warnings(warnings);
        graph.set_residences(in_rings);
        check_readings(&graph).map_err(|problem| self.config.error("from", problem))?;
        Ok(graph)
    }

    /// Builds the operations only to check the configuration, which may name devices that this machine lacks. The check changes
    /// nothing outside the process.
    ///
    /// # Errors
    /// The errors of [`build`](Self::build).
    pub fn check(mut self) -> Result<Graph, AppError> {
        self.surroundings.is_check = true;
        self.build(|_| true)
    }
}

/// Returns a warning for each input that comes from the dataflow although a later operation publishes an output of its name.
/// Only an earlier operation can feed an input.
fn order_warnings(operations: &[Registration]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (i, taker) in operations.iter().enumerate() {
        for input in &taker.inputs {
            let publishes = |operation: &&Registration| operation.outputs.contains(input);
            let is_earlier = operations[..i].iter().any(|operation| publishes(&operation));
            let later = operations[i + 1..].iter().find(publishes);
            if let (false, Some(later)) = (is_earlier, later) {
                let (taker, later) = (&taker.name, &later.name);
                warnings.push(format!(
                    "{taker}: its input `{input}` comes from the dataflow: `{later}`, which publishes one of that name, is \
                     after it (an operation takes what those before it publish)"
                ));
            }
        }
    }
    warnings
}
