use super::config::{Step, take_residences};
use super::residence::Residences;
use super::{AppError, Config, Graph, Operation, OutputResidence, Residence, Value};
use robocache_device::Placement;
use robocache_ops::ConfigError;
use serde::de::DeserializeOwned;
use std::path::Path;
use std::time::SystemTime;

/// An operation that can be added to an [`App`].
///
/// A plugin is made by the program. When the app is built, its [`build`](Self::build) is called once for each time that
/// it is to run: for every entry of `plugins:` with its name, or once where the configuration has no such list. It reads
/// its configuration and registers an [`Operation`], whose documentation has an example of both. All of that happens
/// before the node joins its dataflow, so that a configuration which can't be used is found out at once.
///
/// By convention a plugin has two constructors: `new(config)` for a program that has its configuration in code, and
/// `default()` for one that leaves it to the YAML file.
pub trait Plugin {
    /// Its name: the key of its section in the configuration.
    fn name(&self) -> &'static str;

    /// What it does, in a sentence for `--help`.
    fn about(&self) -> &'static str {
        ""
    }

    /// Whether it has its configuration from the program. Then it needs no section, and runs whether or not `plugins:`
    /// lists it.
    fn is_configured(&self) -> bool {
        false
    }

    /// What tells it from another plugin of its [`name`](Self::name): see [`with_name`](Self::with_name).
    fn own_name(&self) -> Option<&str> {
        None
    }

    /// Keys of its section that a later version will have. Each is refused as not supported yet.
    fn later(&self) -> &'static [&'static str] {
        &[]
    }

    /// Reads its configuration with [`App::config`] or [`App::config_or`] and registers what it runs with
    /// [`App::add_operation`]. Where [`App::is_check`], it leaves everything as it is, and nothing is wired.
    ///
    /// # Errors
    /// A configuration that can't be used.
    fn build(&self, app: &mut App) -> Result<(), AppError>;

    /// Gives it a name of its own, so that the same operation can run twice in a process. With the name `wrist` the
    /// operation is `wrist` in the log and in live parameters (`wrist.max_wait_ms`), and its output `fused` is
    /// `wrist/fused`: for the dataflow, and for the operations after it. In a YAML file, `name: wrist` in an entry of
    /// `plugins:` does the same.
    fn with_name(self, name: impl Into<String>) -> Named<Self>
    where
        Self: Sized,
    {
        Named {
            plugin: self,
            name: name.into(),
        }
    }
}

/// A plugin with a name of its own: [`Plugin::with_name`].
pub struct Named<P> {
    plugin: P,
    name: String,
}

impl<P: Plugin> Plugin for Named<P> {
    fn name(&self) -> &'static str {
        self.plugin.name()
    }

    fn about(&self) -> &'static str {
        self.plugin.about()
    }

    fn is_configured(&self) -> bool {
        self.plugin.is_configured()
    }

    fn own_name(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn later(&self) -> &'static [&'static str] {
        self.plugin.later()
    }

    fn build(&self, app: &mut App) -> Result<(), AppError> {
        self.plugin.build(app)
    }
}

/// A running operation with what it listens to and what it publishes.
pub struct Registration {
    /// Its name in the log and in live parameters: [`App::name`].
    pub name: String,
    /// The inputs it listens to; [`Operation::input`] gets their indices in this list.
    pub inputs: Vec<String>,
    /// The outputs it publishes; [`Outbox::send`](super::Outbox::send) takes their indices in this list.
    pub outputs: Vec<String>,
    /// The operation itself.
    pub operation: Box<dyn Operation>,
}

/// Operations being put together from plugins and a configuration.
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
pub struct App {
    config: Config,
    /// From the program, in place of the configuration's.
    given_placement: Option<Placement>,
    plugins: Vec<Box<dyn Plugin>>,
    wired: Vec<String>,
    run: Option<Run>,
    limit: Option<Box<MessageLimit>>,
    is_check: bool,
    /// The plugin that is being built, and its devices.
    at: Option<Building>,
    placement: Placement,
    operations: Vec<Registration>,
    /// The outputs whose payloads are to be in a ring.
    residences: Vec<(String, OutputResidence)>,
    /// What was wrong with an operation as it was added.
    refused: Option<AppError>,
}

/// Says why messages of so many bytes can't be sent on an output.
type MessageLimit = dyn Fn(&str, usize) -> Result<(), String>;

/// Whether each input of the dataflow can be read as its operations want it.
fn check_readings(graph: &Graph) -> Result<(), String> {
    if let Some((operation, input)) = graph.misread() {
        return Err(format!(
            "the input `{input}` of `{operation}` comes from another operation of this process (allowed: an input of the dataflow)"
        ));
    }
    let mut inputs = graph.external_inputs().enumerate();
    match inputs.find(|&(external, _)| graph.reading(external).is_none()) {
        None => Ok(()),
        Some((_, (input, _))) => Err(format!(
            "operations differ about where things stand in the messages of input `{input}` (needed: an input of its own for \
             each, which may have the same source)"
        )),
    }
}

/// A run of a dataflow, from its start to its end. Its nodes may be started several times in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// What no other run has.
    pub id: String,
    /// When it was started, the same for every node and every time it is started.
    pub started: SystemTime,
}

/// A plugin that is being built.
struct Building {
    plugin: &'static str,
    own_name: Option<String>,
    section: Option<Value>,
    residences: Option<Residences>,
    later: &'static [&'static str],
}

impl Default for App {
    fn default() -> Self {
        Self::new()
    }
}

impl App {
    /// An app without plugins and without a configuration file.
    pub fn new() -> Self {
        Self {
            config: Config::default(),
            given_placement: None,
            plugins: Vec::new(),
            wired: Vec::new(),
            run: None,
            limit: None,
            is_check: false,
            at: None,
            placement: Placement::cpu("nothing is being built"),
            operations: Vec::new(),
            residences: Vec::new(),
            refused: None,
        }
    }

    /// Takes the configuration of a file.
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

    /// Makes a plugin available. Without `plugins:` in the configuration it runs, and needs its section there unless it
    /// has its configuration from the program. With `plugins:`, those run that are listed, and before them those that
    /// have theirs from the program and are not.
    #[must_use]
    pub fn add_plugin(mut self, plugin: impl Plugin + 'static) -> Self {
        self.plugins.push(Box::new(plugin));
        self
    }

    /// Makes several plugins available, as [`add_plugin`](Self::add_plugin) does each. With more than one that needs a
    /// section, the configuration has to say by `plugins:` which of them run.
    #[must_use]
    pub fn add_plugins(mut self, plugins: impl IntoIterator<Item = Box<dyn Plugin>>) -> Self {
        self.plugins.extend(plugins);
        self
    }

    /// Says which inputs are wired: [`wired_inputs`](Self::wired_inputs).
    #[must_use]
    pub fn with_wired_inputs(mut self, inputs: impl IntoIterator<Item = String>) -> Self {
        self.wired = inputs.into_iter().collect();
        self
    }

    /// Says which run of a dataflow this is: [`run`](Self::run).
    #[must_use]
    pub fn with_run(mut self, run: Option<Run>) -> Self {
        self.run = run;
        self
    }

    /// Says what messages are too large for the transport: [`check_message_size`](Self::check_message_size).
    #[must_use]
    pub fn with_message_limit(mut self, limit: impl Fn(&str, usize) -> Result<(), String> + 'static) -> Self {
        self.limit = Some(Box::new(limit));
        self
    }

    /// The plugins that were added.
    pub fn plugins(&self) -> impl Iterator<Item = &dyn Plugin> {
        self.plugins.iter().map(Box::as_ref)
    }

    /// The configuration of the plugin that is being built, from its section.
    ///
    /// # Errors
    /// No section; unknown keys, wrong types: the file, the key and what is allowed.
    pub fn config<C: DeserializeOwned>(&self) -> Result<C, AppError> {
        let at = self.at.as_ref();
        let later = at.map_or(&[][..], |at| at.later);
        match at.and_then(|at| at.section.as_ref()) {
            Some(section) => self.config.section(&self.label(), section, later),
            None => {
                let problem = format!("the section `{}:` is missing", self.label());
                Err(self.config.error("configuration", problem))
            }
        }
    }

    /// The configuration of the plugin that is being built: what the program gave it, else from its section.
    ///
    /// # Errors
    /// As [`config`](Self::config).
    pub fn config_or<C: DeserializeOwned + Clone>(&self, given: &Option<C>) -> Result<C, AppError> {
        let Some(given) = given else {
            return self.config();
        };
        let section = self.at.as_ref().and_then(|at| at.section.as_ref());
        let is_empty = |section: &Value| section.is_null() || section.as_mapping().is_some_and(|map| map.is_empty());
        if section.is_some_and(|section| !is_empty(section)) {
            let (file, label) = (self.config.file().display(), self.label());
            tracing::warn!("{file}: {label}: not used: the program has a configuration of its own");
        }
        Ok(given.clone())
    }

    /// The name of the operation that is being built: its own, or that of its plugin.
    pub fn name(&self) -> &str {
        let at = self.at.as_ref();
        at.map_or("", |at| at.own_name.as_deref().unwrap_or(at.plugin))
    }

    /// What errors call the plugin that is being built.
    fn label(&self) -> String {
        match &self.at {
            None => String::new(),
            Some(at) => match &at.own_name {
                None => at.plugin.to_owned(),
                Some(name) => format!("{} `{name}`", at.plugin),
            },
        }
    }

    /// Makes the refusal of a configuration an error that names the file and the section.
    pub fn refused(&self, error: &ConfigError) -> AppError {
        self.config.error(&self.label(), error.to_string())
    }

    /// The devices of the plugin that is being built, and how much of their memory its operation may hold.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Whether the configuration is only checked: nothing is to run, and no dataflow is there.
    pub fn is_check(&self) -> bool {
        self.is_check
    }

    /// The folder in which each node keeps a file that says how it is, where the configuration names one.
    pub fn status(&self) -> Option<&Path> {
        self.config.status()
    }

    /// The inputs that the dataflow wires, for an operation that takes whatever comes.
    pub fn wired_inputs(&self) -> &[String] {
        &self.wired
    }

    /// The run of the dataflow; `None` outside of one.
    pub fn run(&self) -> Option<&Run> {
        self.run.as_ref()
    }

    /// Whether messages of so many bytes can be made, and sent on an output where the dataflow wants it.
    ///
    /// # Errors
    /// What they are too large for.
    pub fn check_message_size(&self, output: &str, bytes: usize) -> Result<(), String> {
        if host_memory().is_some_and(|memory| bytes > memory) {
            return Err("more than this machine has memory".to_owned());
        }
        match &self.limit {
            Some(limit) => limit(&self.output_name(output), bytes),
            None => Ok(()),
        }
    }

    /// Registers an operation. Where it has a name of its own, that stands before its outputs.
    pub fn add_operation(&mut self, mut registration: Registration) {
        if let Some(residences) = self.at.as_ref().and_then(|at| at.residences.as_ref()) {
            match residences.of(&registration.outputs, &self.placement) {
                Ok(residences) => {
                    for (output, residence) in registration.outputs.iter().zip(residences) {
                        if residence.residence != Residence::Host {
                            self.residences.push((self.output_name(output), residence));
                        }
                    }
                }
                Err(problem) => {
                    let refused = self.config.error(&self.label(), problem);
                    self.refused.get_or_insert(refused);
                }
            }
        }
        for output in &mut registration.outputs {
            *output = self.output_name(output);
        }
        self.operations.push(registration);
    }

    fn output_name(&self, output: &str) -> String {
        match self.at.as_ref().and_then(|at| at.own_name.as_ref()) {
            Some(name) => format!("{name}/{output}"),
            None => output.to_owned(),
        }
    }

    /// Builds the operations. `is_published` says which outputs the dataflow wants.
    ///
    /// # Errors
    /// Devices or a configuration that can't be used; two operations with an output of the same name.
    pub fn build(mut self, is_published: impl Fn(&str) -> bool) -> Result<Graph, AppError> {
        let placement = match self.given_placement.take() {
            Some(placement) => placement,
            None => self.config.placement(self.is_check)?,
        };
        tracing::info!("device {placement}");
        let memory = placement.host_memory();
        let plugins = std::mem::take(&mut self.plugins);
        for step in self.config.steps(&plugins)? {
            let plugin = plugins[step.plugin].as_ref();
            self.begin(step, plugin, &placement)?;
            plugin.build(&mut self)?;
            self.refused.take().map_or(Ok(()), Err)?;
        }
        let outputs = || self.operations.iter().flat_map(|operation| &operation.outputs);
        for (i, output) in outputs().enumerate() {
            if outputs().take(i).any(|earlier| earlier == output) {
                let problem = format!("two of them publish `{output}` (a `name:` in an entry tells them apart)");
                return Err(self.config.error("plugins", problem));
            }
        }
        self.warn_of_order();
        let mut graph = Graph::new(self.operations, is_published, &memory);
        graph.set_residences(self.residences);
        check_readings(&graph).map_err(|problem| self.config.error("from", problem))?;
        Ok(graph)
    }

    /// Warns of inputs that come from the dataflow though an operation publishes them, as it comes later.
    fn warn_of_order(&self) {
        for (i, taker) in self.operations.iter().enumerate() {
            for input in &taker.inputs {
                let publishes = |operation: &&Registration| operation.outputs.contains(input);
                let is_earlier = self.operations[..i].iter().any(|operation| publishes(&operation));
                let later = self.operations[i + 1..].iter().find(publishes);
                if let (false, Some(later)) = (is_earlier, later) {
                    let (file, taker, later) = (self.config.file().display(), &taker.name, &later.name);
                    tracing::warn!(
                        "{file}: {taker}: its input `{input}` comes from the dataflow: `{later}`, which publishes one of \
                         that name, is after it (an operation takes what those before it publish)"
                    );
                }
            }
        }
    }

    /// Makes a plugin the one that is being built.
    fn begin(&mut self, step: Step, plugin: &dyn Plugin, placement: &Placement) -> Result<(), AppError> {
        let mut section = step.section;
        let at = self.at.insert(Building {
            plugin: plugin.name(),
            own_name: step.name.or_else(|| plugin.own_name().map(str::to_owned)),
            section: None,
            residences: None,
            later: plugin.later(),
        });
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if let Some(name) = at.own_name.as_deref()
            && (name.is_empty() || !name.chars().all(is_name))
        {
            let problem = format!("name: `{name}` is no name (allowed: letters a to z, digits, `_` and `-`)");
            return Err(self.config.error(plugin.name(), problem));
        }
        let label = self.label();
        let own = section
            .as_mut()
            .map(|section| self.config.take_max_bytes(&label, section));
        let max_bytes = own.transpose()?.flatten().or(placement.max_bytes());
        self.placement = placement.clone().with_max_bytes(max_bytes);
        let residences = section.as_mut().map_or(Ok(None), take_residences);
        let residences = residences.map_err(|problem| self.config.error(&label, problem))?;
        if let Some(at) = &mut self.at {
            (at.section, at.residences) = (section, residences);
        }
        Ok(())
    }

    /// Builds the operations only to see that the configuration can be used: it may name devices that this machine lacks,
    /// and nothing outside the process is touched.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn check(mut self) -> Result<Graph, AppError> {
        self.is_check = true;
        self.build(|_| true)
    }
}

/// Bytes of memory that this machine has, where it says.
fn host_memory() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_more_than_all_memory_is_refused() {
        let memory = host_memory().unwrap();
        assert!(memory > 64 << 20);
        let app = App::new();
        assert!(app.check_message_size("voxels", memory + 1).is_err());
        assert!(app.check_message_size("voxels", 1 << 20).is_ok());
        let app = app.with_message_limit(|output, _| Err(output.to_owned()));
        assert_eq!(app.check_message_size("voxels", 1), Err("voxels".to_owned()));
    }
}
