//! The configuration file: its sections, and the keys that hold for all operations.
//!
//! A section is checked when its plugin is built. Each error names the file, the key and the allowed values.

use super::chains::{ChainProblem, Chains};
use super::residence::Residences;
use super::{AppError, Plugin, Value, folder};
use robocache_device::{DeviceChoice, DeviceError, Placement};
use robocache_ops::ConfigError;
use robocache_ops::kinematics::Chain;
use robocache_yaml as yaml;
use robocache_yaml::{Json, did_you_mean};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Names of the sections that robocache's nodes and command line read. One file may have all of them.
const SECTIONS: [&str; 12] = [
    "align",
    "clock",
    "fuse",
    "group",
    "kinematics",
    "map",
    "resample",
    "voxelize",
    "record",
    "replay",
    "sim",
    "lerobot",
];

/// Top-level keys of the file that hold for all operations.
const COMMON_KEYS: [&str; 6] = [CHAINS, "device", "devices", MAX_DEVICE_MB, "plugins", STATUS];

/// Key of the limit on device memory, MiB. At the top level it limits each operation, in a section the operation of
/// that section.
const MAX_DEVICE_MB: &str = "max_device_mb";

/// Key of the folder of the nodes' status files.
const STATUS: &str = "status";

/// Key of the section with the robot's kinematic chains, to which operations refer by name.
const CHAINS: &str = "chains";

/// Configuration file, in sections that plugins read by their names. The default has neither a file nor sections, for an app
/// that the program configures.
#[derive(Debug)]
pub struct Config {
    file: PathBuf,
    sections: BTreeMap<String, Value>,
    /// Entries of `plugins:`, each with its plugin's name and section, in order; `None` if the file does not have the key.
    plugins: Option<Vec<(String, Value)>>,
    device: DeviceChoice,
    devices: Option<Vec<usize>>,
    max_bytes: Option<usize>,
    /// Folder of the nodes' status files; `None` if the file does not have the key `status`.
    status: Option<PathBuf>,
    chains: Chains,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            file: "the program".into(),
            sections: BTreeMap::new(),
            plugins: None,
            device: DeviceChoice::Auto,
            devices: None,
            max_bytes: None,
            status: None,
            chains: Chains::default(),
        }
    }
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// The file can't be read, or is not a configuration. Its sections are checked when the app is built.
    pub fn read(file: &Path) -> Result<Self, AppError> {
        let mut text = String::new();
        // One byte past the limit shows that a text is too long, even if it never ends.
        let read =
            std::fs::File::open(file).and_then(|open| open.take(yaml::MAX_BYTES as u64 + 1).read_to_string(&mut text));
        read.map_err(|error| Self::of(file).error("configuration", format!("it can't be read: {error}")))?;
        Self::parse(file, &text)
    }

    /// Parses the text of a configuration file. `file` names it in errors.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    pub fn parse(file: &Path, text: &str) -> Result<Self, AppError> {
        let mut config = Self::of(file);
        let mut sections = sections(text).map_err(|problem| config.error("configuration", problem))?;
        let mut take = |key: &str| sections.remove(key).filter(|value| !value.is_null());
        if let Some(device) = take("device") {
            config.device = config.section("device", &device)?;
        }
        if let Some(value) = take("devices") {
            let devices = yaml::from_value(&value).map_err(|_| {
                let came = Json(&value);
                let problem = format!("{came} is not allowed (allowed: a list of ordinals of GPUs)");
                config.error("devices", problem)
            });
            config.devices = Some(devices?);
        }
        let max_bytes = take(MAX_DEVICE_MB).map(max_bytes).transpose();
        config.max_bytes = max_bytes.map_err(|problem| config.error(MAX_DEVICE_MB, problem))?;
        config.status = match take(STATUS) {
            None => None,
            Some(Value::String(folder)) if !folder.is_empty() => Some(folder.into()),
            Some(other) => {
                let problem = format!("{} is not a folder (allowed: the path of one)", Json(&other));
                return Err(config.error(STATUS, problem));
            }
        };
        if let Some(chains) = take(CHAINS) {
            config.chains = Chains::new(config.section(CHAINS, &chains)?);
        }
        let plugins = sections.remove("plugins").map(plugin_list).transpose();
        config.plugins = plugins.map_err(|problem| config.error("plugins", problem))?;
        config.sections = sections;
        Ok(config)
    }

    /// Makes a configuration without sections. `file` names it in errors.
    fn of(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            ..Self::default()
        }
    }

    /// Replaces the list `plugins:` by its entry for one plugin: this entry, without its key `name`, becomes the section of the
    /// plugin. If the list lacks the plugin, its section in the file stays.
    ///
    /// # Errors
    /// Several entries of `plugins:` with this name.
    pub fn only(mut self, plugin: &str) -> Result<Self, AppError> {
        let listed = self.plugins.take().unwrap_or_default().into_iter().enumerate();
        let mut found = Vec::new();
        for (i, (_, mut section)) in listed.filter(|(_, (name, _))| name == plugin) {
            let name = take_name(&mut section).map_err(|problem| self.error(plugin, problem))?;
            found.push((i, name, section));
        }
        if found.len() > 1 {
            let entries = found.iter().map(|(i, name, _)| match name {
                Some(name) => format!("[{i}] named `{name}`"),
                None => format!("[{i}] without a name"),
            });
            let entries = entries.collect::<Vec<_>>().join(", ");
            let problem = format!("`{plugin}` is listed several times: {entries} (allowed here: once)");
            return Err(self.error("plugins", problem));
        }
        if let Some((_, _, section)) = found.pop() {
            self.sections.insert(plugin.to_owned(), section);
        }
        Ok(self)
    }

    /// Names of the sections at the top level of the file, sorted.
    pub fn sections(&self) -> impl Iterator<Item = &str> {
        self.sections.keys().map(String::as_str)
    }

    /// Reads a section that belongs to no plugin; `None` if the file does not have it.
    ///
    /// # Errors
    /// Unknown keys or wrong types, with the file, the key and what is allowed.
    pub fn read_section<C: DeserializeOwned>(&self, name: &str) -> Result<Option<C>, AppError> {
        let section = self.sections.get(name);
        section.map(|section| self.section(name, section)).transpose()
    }

    /// Returns the kinematic chain `name` of the section `chains:`; the first call reads its URDF. `section` and `key` say
    /// where the configuration refers to the chain, for errors.
    ///
    /// # Errors
    /// No chain of this name, reported at `key`. A URDF that can't be read, or does not have the chain, reported at the chain.
    pub fn chain(&self, section: &str, key: &str, name: &str) -> Result<Arc<Chain>, AppError> {
        let folder = self.file.parent().unwrap_or(Path::new(""));
        self.chains.get(name, folder).map_err(|problem| match problem {
            ChainProblem::Unknown(problem) => self.error(section, ConfigError::new(key, problem).to_string()),
            ChainProblem::Unusable(problem) => self.error(CHAINS, format!("{name}: {problem}")),
        })
    }

    /// Warnings about the kinematic chain `name` of the section `chains:`, such as limits that seem to be degrees. Empty if the
    /// chain can't be read. A node logs the warnings about the chains that its operations use.
    pub fn chain_warnings(&self, name: &str) -> Vec<String> {
        self.chains.warnings(name, self.file.parent().unwrap_or(Path::new("")))
    }

    /// True if the file has the key `plugins:`, which lists the plugins that run.
    pub fn has_plugins(&self) -> bool {
        self.plugins.is_some()
    }

    /// Checks that status files can be written, if the configuration names a folder for them. A relative folder starts at
    /// `base`.
    ///
    /// # Errors
    /// The reason why they can't be written, and what is allowed.
    pub fn check_status(&self, base: &Path) -> Result<(), AppError> {
        let Some(folder) = &self.status else { return Ok(()) };
        folder::check(&base.join(folder)).map_err(|problem| self.error(STATUS, problem))
    }

    /// Folder of the nodes' status files; `None` if the file does not have the key `status`.
    pub(super) fn status(&self) -> Option<&Path> {
        self.status.as_deref()
    }

    /// Path of the configuration file, which errors name.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Finds the devices that `device:`, `devices:` and `max_device_mb:` select. If `is_check`, the CPU replaces a GPU that
    /// this machine lacks, with a warning.
    pub(super) fn placement(&self, is_check: bool) -> Result<Placement, AppError> {
        let key = if self.devices.is_some() { "devices" } else { "device" };
        let placement = match Placement::resolve(self.device, self.devices.as_deref()) {
            Err(problem @ DeviceError::Gpu { .. }) if is_check => {
                tracing::warn!("{key}: {problem}; the rest is checked without it");
                Placement::cpu("to check the configuration")
            }
            placement => placement.map_err(|problem| self.error(key, problem.to_string()))?,
        };
        Ok(placement.with_max_bytes(self.max_bytes))
    }

    /// Returns a warning for each plugin's section at the top level if the file has the list `plugins:`. The list replaces
    /// these sections.
    pub(super) fn unused_sections(&self, plugins: &[Box<dyn Plugin>]) -> Vec<String> {
        let is_plugin = |key: &&String| plugins.iter().any(|plugin| plugin.name() == key.as_str());
        let unused = self.sections.keys().filter(|key| self.has_plugins() && is_plugin(key));
        unused
            .map(|name| {
                format!("the section `{name}:` is not used: `plugins:` lists what runs, with its configuration")
            })
            .collect()
    }

    /// Returns the warnings about all kinematic chains that have been read so far, each with the chain's name.
    pub(super) fn read_chain_warnings(&self) -> Vec<String> {
        self.chains.read_warnings()
    }

    /// Returns the plugins to build, in order, each with its section: those listed under `plugins:`, or all plugins if the file
    /// does not have the key. Plugins that the program configures and the list lacks come first.
    pub(super) fn steps(&self, plugins: &[Box<dyn Plugin>]) -> Result<Vec<Step>, AppError> {
        let names: Vec<&'static str> = plugins.iter().map(|plugin| plugin.name()).collect();
        let mut known: Vec<&str> = SECTIONS.to_vec();
        known.extend(names.iter().filter(|name| !SECTIONS.contains(name)));
        if let Some(key) = self.sections.keys().find(|key| !known.contains(&key.as_str())) {
            let allowed = [&COMMON_KEYS[..], &known].concat();
            let (hint, allowed) = (did_you_mean(key, &allowed), allowed.join(", "));
            let problem = format!("unknown key `{key}`{hint} (allowed: {allowed})");
            return Err(self.error("configuration", problem));
        }
        let Some(listed) = &self.plugins else {
            return self.all_steps(plugins, &names);
        };
        let mut steps = Vec::with_capacity(listed.len());
        for (name, section) in listed {
            let named = || (0..plugins.len()).filter(|&plugin| names[plugin] == name);
            let from_file = named().find(|&plugin| !plugins[plugin].is_configured());
            let Some(plugin) = from_file.or_else(|| named().next()) else {
                let (hint, allowed) = (did_you_mean(name, &names), names.join(", "));
                let problem = format!("`{name}` is not a plugin of this node{hint} (allowed: {allowed})");
                return Err(self.error("plugins", problem));
            };
            let mut section = section.clone();
            let name = take_name(&mut section).map_err(|problem| self.error(name, problem))?;
            steps.push(Step {
                plugin,
                section: Some(section),
                name,
            });
        }
        let is_listed = |plugin: usize| steps.iter().any(|step| step.plugin == plugin);
        let others = (0..plugins.len()).filter(|&plugin| plugins[plugin].is_configured() && !is_listed(plugin));
        let others: Vec<Step> = others.map(Step::of).collect();
        steps.splice(0..0, others);
        Ok(steps)
    }

    fn all_steps(&self, plugins: &[Box<dyn Plugin>], names: &[&'static str]) -> Result<Vec<Step>, AppError> {
        let in_file = names.iter().find(|name| self.sections.contains_key(**name));
        let mut steps = Vec::with_capacity(plugins.len());
        for (i, plugin) in plugins.iter().enumerate() {
            let section = self.sections.get(plugin.name());
            let problem = match section {
                Some(_) => None,
                None if plugin.is_configured() => None,
                None if plugins.len() == 1 => Some(format!("the section `{}:` is missing", plugin.name())),
                None => Some(format!(
                    "the key `plugins:` is missing: a list of what this node is to run, in order, such as `plugins: \
                     [{}: {{ ... }}]` (allowed: {})",
                    in_file.copied().unwrap_or(plugin.name()),
                    names.join(", ")
                )),
            };
            if let Some(problem) = problem {
                return Err(self.error("configuration", problem));
            }
            steps.push(Step {
                section: section.cloned(),
                ..Step::of(i)
            });
        }
        Ok(steps)
    }

    /// Removes `max_device_mb` from a section, and returns it in bytes; `None` if the key is absent. `label` names the section
    /// in errors.
    pub(super) fn take_max_bytes(&self, label: &str, section: &mut Value) -> Result<Option<usize>, AppError> {
        let own = take_key(section, MAX_DEVICE_MB).map(max_bytes).transpose();
        own.map_err(|problem| self.error(label, format!("{MAX_DEVICE_MB}: {problem}")))
    }

    /// Deserializes a section to a plugin's configuration. `label` names the section in errors.
    pub(super) fn section<C: DeserializeOwned>(&self, label: &str, section: &Value) -> Result<C, AppError> {
        yaml::from_value(section).map_err(|misread| self.error(label, misread.to_string()))
    }

    /// Makes an error that names this file and a section.
    pub(super) fn error(&self, section: &str, problem: String) -> AppError {
        AppError::Config {
            file: self.file.clone(),
            section: section.into(),
            problem,
        }
    }
}

/// A plugin to build, with its section of the configuration.
pub(super) struct Step {
    /// Index of the plugin among the plugins of the app.
    pub plugin: usize,
    /// Section of the plugin; `None` if the file does not have one.
    pub section: Option<Value>,
    /// Name of the operation, from the key `name` of its entry in the file; `None` if the entry does not have the key.
    pub name: Option<String>,
}

impl Step {
    fn of(plugin: usize) -> Self {
        Self {
            plugin,
            section: None,
            name: None,
        }
    }
}

/// Removes a key from a section, and returns its value; `None` if the key is absent or null.
fn take_key(section: &mut Value, key: &str) -> Option<Value> {
    let value = section.as_mapping_mut()?.remove(key)?;
    (!value.is_null()).then_some(value)
}

/// Removes the key `residence` from a section, and parses it: the memory in which outputs publish payloads. `None` if the key
/// is absent.
pub(super) fn take_residences(section: &mut Value) -> Result<Option<Residences>, String> {
    take_key(section, "residence")
        .map(|value| Residences::parse(&value))
        .transpose()
}

/// Removes the key `name` from an entry of `plugins:`, and returns its value; `None` if the key is absent.
fn take_name(section: &mut Value) -> Result<Option<String>, String> {
    match take_key(section, "name") {
        None => Ok(None),
        Some(Value::String(name)) => Ok(Some(name)),
        Some(other) => Err(format!("name: {} is not a name (allowed: text)", Json(&other))),
    }
}

/// Converts a number of MiB, above 0 and up to 1e9, to bytes.
fn max_bytes(value: Value) -> Result<usize, String> {
    match value.as_f64() {
        Some(mb) if mb > 0.0 && mb <= 1e9 => Ok((mb * f64::from(1 << 20)) as usize),
        _ => {
            let came = serde_yaml::to_string(&value).unwrap_or_default();
            let came = came.trim();
            Err(format!("`{came}` is not allowed (a number of MiB above 0, up to 1e9)"))
        }
    }
}

/// Parses the text of a configuration file to its top-level sections, by key. A key that occurs twice is an error.
fn sections(text: &str) -> Result<BTreeMap<String, Value>, String> {
    let mapping = match yaml::value(text).map_err(|problem| problem.to_string())? {
        Value::Mapping(mapping) => mapping,
        Value::Null => serde_yaml::Mapping::new(),
        _ => return Err("it is not a map (allowed: sections such as `fuse: { ... }`)".to_owned()),
    };
    let named = |(key, section): (Value, Value)| match key {
        Value::String(name) => Ok((name, section)),
        other => Err(format!("the key {} is not a name of a section", Json(&other))),
    };
    mapping.into_iter().map(named).collect()
}

fn plugin_list(value: Value) -> Result<Vec<(String, Value)>, String> {
    let Value::Sequence(entries) = value else {
        return Err("it must be a list of one-key maps, such as `- fuse: {...}`".into());
    };
    if entries.is_empty() {
        return Err("it is empty (needed: one entry or more, such as `- fuse: {...}`)".into());
    }
    let named = |(i, entry)| match entry {
        Value::Mapping(map) if map.len() == 1 => match map.into_iter().next() {
            Some((Value::String(name), section)) => Ok((name, section)),
            _ => Err(format!("[{i}]: the key must be the name of a plugin")),
        },
        _ => Err(format!("[{i}]: it must be a map of one key, such as `fuse: {{...}}`")),
    };
    entries.into_iter().enumerate().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::BuildContext;
    use robocache_ops::align::AlignConfig;

    struct Bare(&'static str);

    impl Plugin for Bare {
        fn name(&self) -> &'static str {
            self.0
        }

        fn build(&self, _: &mut BuildContext<'_>) -> Result<(), AppError> {
            Ok(())
        }
    }

    fn plugins(names: &[&'static str]) -> Vec<Box<dyn Plugin>> {
        names
            .iter()
            .map(|&name| Box::new(Bare(name)) as Box<dyn Plugin>)
            .collect()
    }

    fn parse(text: &str) -> Result<Config, AppError> {
        Config::parse(Path::new("robot.yml"), text)
    }

    fn refusal(text: &str) -> String {
        let section = || {
            let config = parse(text)?;
            config.placement(false)?;
            let steps = config.steps(&plugins(&["fuse"]))?;
            let section = steps[0].section.clone().unwrap_or_default();
            config.section::<AlignConfig>("fuse", &section)
        };
        let error = section().unwrap_err();
        assert!(error.is_config());
        error.to_string()
    }

    #[test]
    fn an_error_names_the_file_the_key_and_what_is_allowed() {
        let cases = [
            (
                "fuse: {}\nfuze: {}",
                "robot.yml: configuration: unknown key `fuze`, did you mean `fuse`? (allowed: chains, device, devices, max_device_mb, plugins, status, align, clock, fuse",
            ),
            (
                "device: gpu\nfuse: {}",
                "robot.yml: device: `gpu` is not a device (allowed: auto",
            ),
            ("devices: []\nfuse: {}", "devices: [] is not allowed"),
            ("devices: [0, 1, 0]\nfuse: {}", "devices: [0, 1, 0] is not allowed"),
            (
                "devices: 1\nfuse: {}",
                "devices: 1 is not allowed (allowed: a list of ordinals of GPUs)",
            ),
            (
                "device: cpu\ndevices: [0]\nfuse: {}",
                "[0] does not go with `device: cpu` (allowed for `device` beside it: auto, cuda, hip)",
            ),
            (
                "device: cuda:4711\nfuse: {}",
                "robot.yml: device: `cuda:4711` can't be used: ",
            ),
            (
                "max_device_mb: lots\nfuse: {}",
                "max_device_mb: `lots` is not allowed (a number of MiB above 0, up to 1e9)",
            ),
            ("max_device_mb: 0\nfuse: {}", "`0` is not allowed"),
            ("status: [a]\nfuse: {}", "robot.yml: status: [\"a\"] is not a folder"),
            (
                "status: ''\nfuse: {}",
                "status: \"\" is not a folder (allowed: the path of one)",
            ),
            ("voxelize: {}", "the section `fuse:` is missing"),
            ("plugins: {fuse: {}}", "robot.yml: plugins: it must be a list"),
            (
                "plugins: [{fuse: {}, align: {}}]",
                "plugins: [0]: it must be a map of one key",
            ),
            (
                "plugins: [{warp: {}}]",
                "`warp` is not a plugin of this node (allowed: fuse)",
            ),
            (
                "fuse: {rate_hz: fast, modalities: []}",
                "robot.yml: fuse: rate_hz: \"fast\" is not allowed (allowed: a number)",
            ),
            ("fuse: {rate_hz: 50}", "fuse: the key `modalities` is missing"),
            (
                "fuse: {rate_hz: 50, modalities: [{input: a, dim: 1, latency: 3}]}",
                "fuse: modalities[0].latency: unknown key `latency`, did you mean `latency_ms`? (allowed: input, dim",
            ),
            (
                "fuse: {rate_hz: 50, modalities: [{input: a, dim: 1, interpolation: euler}]}",
                "fuse: modalities[0].interpolation: `euler` is not an interpolation: what lies between",
            ),
        ];
        for (text, expected) in cases {
            let message = refusal(text);
            assert!(
                message.contains(expected),
                "{text}\n  gives: {message}\n  not:   {expected}"
            );
        }
    }

    #[test]
    fn a_key_that_is_given_twice_is_refused_by_name() {
        for (text, key, place) in [
            ("fuse: {}\nvoxelize: {}\nfuse: {rate_hz: 50}", "fuse", "line 3 column 1"),
            ("fuse:\n  rate_hz: 50\n  rate_hz: 100", "rate_hz", "line 3 column 3"),
            (
                "plugins: [{fuse: {window: 1, window: 2}}]",
                "window",
                "line 1 column 30",
            ),
            (
                "fuse: {modalities: [{input: a, dim: 1, dim: 2}]}",
                "dim",
                "line 1 column 40",
            ),
            ("device: cpu\ndevice: cuda\nfuse: {}", "device", "line 2 column 1"),
            (
                "fuse:\n  rate_hz: 50\n  # so it is\n  modalities:\n    - input: a\n      dim: 1\n\n      dim: 2\n",
                "dim",
                "line 8 column 7",
            ),
        ] {
            let refused = parse(text).unwrap_err();
            assert!(refused.is_config());
            let words = refused.to_string();
            let expected = format!("the key `{key}` is given twice (allowed: once) at {place}");
            assert!(words.contains(&expected), "{words}, not {expected}");
        }
    }

    #[test]
    fn a_node_of_several_operations_says_that_it_wants_a_list() {
        let words = parse("voxelize: {}")
            .unwrap()
            .steps(&plugins(&["fuse", "voxelize"]))
            .err()
            .unwrap()
            .to_string();
        for word in [
            "robot.yml",
            "`plugins:` is missing",
            "plugins: [voxelize: { ... }]",
            "allowed: fuse, voxelize",
        ] {
            assert!(words.contains(word), "{words}");
        }
        assert!(
            parse("voxelize: {}\nfuse: {}")
                .unwrap()
                .steps(&plugins(&["fuse", "voxelize"]))
                .is_ok()
        );
    }

    #[test]
    fn devices_that_are_not_there_keep_nobody_from_checking_the_rest() {
        let config = parse("device: cuda:4711\nfuse: {}").unwrap();
        assert!(config.placement(true).is_ok() && config.placement(false).is_err());
        assert!(parse("device: gpu\nfuse: {}").is_err());
    }

    #[test]
    fn one_operation_is_taken_of_a_list_of_plugins() {
        let section_of = |text: &str| {
            let steps = parse(text)?.only("fuse")?.steps(&plugins(&["fuse"]))?;
            Ok::<_, AppError>(serde_yaml::to_string(&steps[0].section).unwrap())
        };
        let listed = "plugins: [{mine: {}}, {fuse: {name: wrist, window: 2}}]\nfuse: {window: 3}";
        assert_eq!(section_of(listed).unwrap(), "window: 2\n");
        assert_eq!(section_of("fuse: {window: 3}").unwrap(), "window: 3\n");
        let words = |text: &str| section_of(text).unwrap_err().to_string();
        assert_eq!(
            words("plugins: [{voxelize: {}}, {fuse: {}}, {fuse: {name: wrist}}]"),
            "robot.yml: plugins: `fuse` is listed several times: [1] without a name, [2] named `wrist` (allowed here: once)"
        );
        assert!(words("plugins: [{voxelize: {}}]").contains("the section `fuse:` is missing"));
    }

    #[test]
    fn plugins_are_listed_in_order_and_may_repeat() {
        let config = parse("plugins: [{voxelize: {}}, {fuse: {name: wrist}}, {voxelize: {}}]").unwrap();
        let steps = config.steps(&plugins(&["fuse", "voxelize"])).unwrap();
        let steps: Vec<_> = steps.iter().map(|step| (step.plugin, step.name.as_deref())).collect();
        assert_eq!(steps, [(1, None), (0, Some("wrist")), (1, None)]);
    }
}
