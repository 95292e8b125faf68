//! The context in which a plugin is built: its configuration, its devices and facts about its node.
//!
//! If an operation is refused, the whole build fails, so that no node runs with a part of its configuration.

use super::config::{Step, take_residences};
use super::operation::SourceOperation;
use super::residence::Residences;
use super::{AppError, Config, OutputResidence, Plugin, Registration, Residence, Source, Value};
use robocache_device::Placement;
use robocache_ops::ConfigError;
use robocache_ops::kinematics::Chain;
use serde::de::DeserializeOwned;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// Check of a message's size: gets the name of the output and the size, bytes. Its error says why such a message can't be sent.
pub(super) type MessageLimit = dyn Fn(&str, usize) -> Result<(), String>;

/// Run of a dataflow, from its start to its end. A node may be restarted within a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Unique id of the run: the id that dora gives to the dataflow.
    pub id: String,
    /// Start time of the run, the same for all its nodes and for restarts of a node.
    pub started: SystemTime,
}

/// Facts about the node that its configuration lacks: wired inputs, run of the dataflow, limit of messages. The default is a
/// process without a dataflow.
#[derive(Default)]
pub(super) struct Surroundings {
    pub wired: Vec<String>,
    pub run: Option<Run>,
    pub limit: Option<Box<MessageLimit>>,
    pub is_check: bool,
}

/// Interface of [`Plugin::build`]: a plugin reads its configuration, its devices and facts about its node from this context. It
/// registers its operations with it.
pub struct BuildContext<'a> {
    config: &'a Config,
    surroundings: &'a Surroundings,
    plugin: &'static str,
    own_name: Option<String>,
    section: Option<Value>,
    placement: Placement,
    /// Value of the key `residence` of the plugin's section: where each output's payloads are stored. `None` if the key
    /// is absent.
    residences: Option<Residences>,
    operations: &'a mut Vec<Registration>,
    /// Outputs of all plugins whose payloads go into a ring: the name of each, and the ring's settings. Plugins append theirs.
    in_rings: &'a mut Vec<(String, OutputResidence)>,
    /// Error of the first added operation that is refused: the build then fails.
    refused: Option<AppError>,
}

impl<'a> BuildContext<'a> {
    /// Makes the context in which the plugin of `step` is built. Operations that the plugin adds are appended to `operations`,
    /// and the rings of their outputs to `in_rings`.
    pub(super) fn new(
        step: Step,
        plugin: &dyn Plugin,
        config: &'a Config,
        placement: &Placement,
        surroundings: &'a Surroundings,
        (operations, in_rings): (&'a mut Vec<Registration>, &'a mut Vec<(String, OutputResidence)>),
    ) -> Result<Self, AppError> {
        let mut context = Self {
            config,
            surroundings,
            plugin: plugin.name(),
            own_name: step.name.or_else(|| plugin.own_name().map(str::to_owned)),
            section: step.section,
            placement: placement.clone(),
            residences: None,
            operations,
            in_rings,
            refused: None,
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if let Some(name) = context.own_name.as_deref()
            && (name.is_empty() || !name.chars().all(is_name))
        {
            let problem = format!("name: `{name}` is not a name (allowed: letters a to z, digits, `_` and `-`)");
            return Err(config.error(plugin.name(), problem));
        }
        let label = context.label();
        if let Some(section) = &mut context.section {
            let max_bytes = config.take_max_bytes(&label, section)?.or(placement.max_bytes());
            context.placement = placement.clone().with_max_bytes(max_bytes);
            context.residences = take_residences(section).map_err(|problem| config.error(&label, problem))?;
        }
        Ok(context)
    }

    /// Builds the plugin in this context. Fails if the plugin fails, or if an operation that it added is refused.
    pub(super) fn build(mut self, plugin: &dyn Plugin) -> Result<(), AppError> {
        plugin.build(&mut self)?;
        self.refused.map_or(Ok(()), Err)
    }

    /// Reads the configuration of the plugin that is being built from its section.
    ///
    /// # Errors
    /// No section; unknown keys or wrong types, with the file, the key and what is allowed.
    pub fn config<C: DeserializeOwned>(&self) -> Result<C, AppError> {
        match &self.section {
            Some(section) => self.config.section(&self.label(), section),
            None => {
                let problem = format!("the section `{}:` is missing", self.label());
                Err(self.config.error("configuration", problem))
            }
        }
    }

    /// Returns the configuration of the plugin that is being built: `given` by the program, else read from its section.
    ///
    /// # Errors
    /// The errors of [`config`](Self::config).
    pub fn config_or<C: DeserializeOwned + Clone>(&self, given: &Option<C>) -> Result<C, AppError> {
        let Some(given) = given else {
            return self.config();
        };
        let section = self.section.as_ref();
        let is_empty = |section: &Value| section.is_null() || section.as_mapping().is_some_and(|map| map.is_empty());
        if section.is_some_and(|section| !is_empty(section)) {
            let (file, label) = (self.config.file().display(), self.label());
            tracing::warn!("{file}: {label}: not used: the program has a configuration of its own");
        }
        Ok(given.clone())
    }

    /// The name of the operation that is being built: its own name, or the name of its plugin.
    pub fn name(&self) -> &str {
        self.own_name.as_deref().unwrap_or(self.plugin)
    }

    /// Text that names the plugin in errors, with its own name if it has one.
    fn label(&self) -> String {
        match &self.own_name {
            None => self.plugin.to_owned(),
            Some(name) => format!("{} `{name}`", self.plugin),
        }
    }

    /// Converts the error of a refused configuration to an error that also names the file and the section.
    pub fn refused(&self, error: &ConfigError) -> AppError {
        self.config.error(&self.label(), error.to_string())
    }

    /// Returns the kinematic chain `name` of the section `chains:`. For errors, `key` is the key of the plugin's section that
    /// has this name.
    ///
    /// # Errors
    /// No chain of this name, reported at `key`. A URDF that can't be read, or does not have the chain, reported at the chain.
    pub fn chain(&self, key: &str, name: &str) -> Result<Arc<Chain>, AppError> {
        self.config.chain(&self.label(), key, name)
    }

    /// The devices of the plugin that is being built, and the limit to the device memory of its operation.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// True if the configuration is only checked: nothing will run, and there is no dataflow.
    pub fn is_check(&self) -> bool {
        self.surroundings.is_check
    }

    /// Folder of the nodes' status files; `None` if the configuration does not have the key `status`.
    pub fn status(&self) -> Option<&Path> {
        self.config.status()
    }

    /// Names of the node's inputs in the dataflow, for an operation that has all of them as inputs. Empty during a check.
    pub fn wired_inputs(&self) -> &[String] {
        &self.surroundings.wired
    }

    /// Id and start time of the running dataflow; `None` if the process is not a node of one.
    pub fn run(&self) -> Option<&Run> {
        self.surroundings.run.as_ref()
    }

    /// Checks that a message of `bytes` bytes fits in this machine's memory, and that it can be sent if the dataflow lists
    /// the output.
    ///
    /// # Errors
    /// The limit that a message exceeds, as text.
    pub fn check_message_size(&self, output: &str, bytes: usize) -> Result<(), String> {
        if host_memory().is_some_and(|memory| bytes > memory) {
            return Err("more than the memory of this machine".to_owned());
        }
        match &self.surroundings.limit {
            Some(limit) => limit(&self.output_name(output), bytes),
            None => Ok(()),
        }
    }

    /// Registers a source. If the plugin has a name of its own, its outputs are called `name/output`.
    pub fn add_source(&mut self, outputs: Vec<String>, source: impl Source + 'static) {
        self.add_operation(Registration {
            name: self.name().to_owned(),
            inputs: Vec::new(),
            outputs,
            operation: Box::new(SourceOperation(source)),
        });
    }

    /// Registers an operation. If the plugin has a name of its own, its outputs are called `name/output`.
    pub fn add_operation(&mut self, mut registration: Registration) {
        if let Some(residences) = &self.residences {
            match residences.of(&registration.outputs, &self.placement) {
                Ok(residences) => {
                    for (output, residence) in registration.outputs.iter().zip(residences) {
                        if residence.residence != Residence::Host {
                            self.in_rings.push((self.output_name(output), residence));
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
        match &self.own_name {
            Some(name) => format!("{name}/{output}"),
            None => output.to_owned(),
        }
    }
}

/// Size of this machine's memory, bytes; `None` if the system does not report it.
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
        let check = |surroundings: &Surroundings, bytes| {
            let context = BuildContext {
                config: &Config::default(),
                surroundings,
                plugin: "voxelize",
                own_name: None,
                section: None,
                placement: Placement::cpu("a test"),
                residences: None,
                operations: &mut Vec::new(),
                in_rings: &mut Vec::new(),
                refused: None,
            };
            context.check_message_size("voxels", bytes)
        };
        let memory = host_memory().unwrap();
        assert!(memory > 64 << 20);
        let mut surroundings = Surroundings::default();
        assert!(check(&surroundings, memory + 1).is_err());
        assert!(check(&surroundings, 1 << 20).is_ok());
        surroundings.limit = Some(Box::new(|output, _| Err(output.to_owned())));
        assert_eq!(check(&surroundings, 1), Err("voxels".to_owned()));
    }
}
