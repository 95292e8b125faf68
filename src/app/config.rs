use crate::device::{DeviceChoice, DeviceError, Placement};
use crate::ops::ConfigError;
use crate::yaml;
use serde::de::DeserializeOwned;
use serde_yaml::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Why a node can't run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppError {
    /// The command line can't be used.
    #[error("{0} (allowed: --config FILE or the environment variable ROBOCACHE_CONFIG; --check, --help, --version)")]
    Arguments(String),
    /// The configuration can't be used.
    #[error("{file}: {section}: {problem}", file = .file.display())]
    Config {
        /// The file it came from.
        file: PathBuf,
        /// The section, such as `fuse`; `configuration` for the file as a whole.
        section: String,
        /// The key, what came and what is allowed.
        problem: String,
    },
    /// The dataflow does not wire what the configuration asks for.
    #[error("{operation}: input `{input}` is not wired in the dataflow (wired: {wired})")]
    NotWired {
        /// The operation that asks for it.
        operation: String,
        /// The input.
        input: String,
        /// The inputs the dataflow wires.
        wired: String,
    },
    /// dora failed.
    #[error("dora: {0}")]
    Dora(String),
    /// An operation can't go on.
    #[error("{operation}: {error}")]
    Operation {
        /// The operation.
        operation: String,
        /// Why.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl AppError {
    /// Whether it is the configuration that is wrong: exit code 2.
    pub fn is_config(&self) -> bool {
        matches!(self, Self::Arguments(_) | Self::Config { .. } | Self::NotWired { .. })
    }
}

/// Sections of robocache's own nodes, which share one file with each other.
const SECTIONS: [&str; 7] = ["align", "fuse", "resample", "voxelize", "record", "replay", "sim"];

/// The limit to the device memory that an operation holds: for all of them at the top of the file, or in the section of
/// one.
const MAX_DEVICE_MB: &str = "max_device_mb";

/// A configuration file: its sections, each of them read by the plugin of that name.
#[derive(Debug)]
pub struct Config {
    file: PathBuf,
    /// `None` where the file lists `plugins:`.
    sections: BTreeMap<String, Value>,
    plugins: Option<Vec<(String, Value)>>,
    placement: Placement,
}

impl Config {
    /// Reads a file. Where it is only to be checked, it may name devices that this machine lacks.
    pub(super) fn read(file: &Path, is_check: bool) -> Result<Self, AppError> {
        let mut text = String::new();
        // One byte past the limit tells a text that is too long, even where it never ends.
        let read =
            std::fs::File::open(file).and_then(|open| open.take(yaml::MAX_BYTES as u64 + 1).read_to_string(&mut text));
        read.map_err(|error| AppError::Config {
            file: file.to_owned(),
            section: "configuration".into(),
            problem: format!("it can't be read: {error}"),
        })?;
        Self::parse_for(file, &text, is_check)
    }

    /// Reads the text of a file; `file` is for messages.
    pub fn parse(file: &Path, text: &str) -> Result<Self, AppError> {
        Self::parse_for(file, text, false)
    }

    fn parse_for(file: &Path, text: &str, is_check: bool) -> Result<Self, AppError> {
        let error = |section: &str, problem: String| AppError::Config {
            file: file.to_owned(),
            section: section.into(),
            problem,
        };
        let whole = |problem: String| error("configuration", problem);
        let mut sections = sections(text).map_err(whole)?;
        let mut take = |key: &str| sections.remove(key).filter(|value| !value.is_null());
        let choice: DeviceChoice = match take("device") {
            Some(value) => serde_yaml::from_value(value).map_err(|problem| error("device", problem.to_string()))?,
            None => DeviceChoice::Auto,
        };
        let devices: Option<Vec<usize>> =
            take("devices")
                .map(serde_yaml::from_value)
                .transpose()
                .map_err(|problem| {
                    error(
                        "devices",
                        format!("{problem} (allowed: a list of ordinals of CUDA devices)"),
                    )
                })?;
        let max_bytes = take(MAX_DEVICE_MB)
            .map(max_bytes)
            .transpose()
            .map_err(|problem| error(MAX_DEVICE_MB, problem))?;
        let key = if devices.is_some() { "devices" } else { "device" };
        let placement = match Placement::resolve(choice, devices.as_deref()) {
            Err(problem @ DeviceError::Cuda { .. }) if is_check => {
                tracing::warn!("{key}: {problem}; the rest is checked without it");
                Placement::cpu("to check the configuration")
            }
            placement => placement.map_err(|problem| error(key, problem.to_string()))?,
        };
        let plugins = match sections.remove("plugins") {
            Some(value) => Some(plugin_list(value).map_err(|problem| error("plugins", problem))?),
            None => None,
        };
        Ok(Self {
            file: file.to_owned(),
            sections,
            plugins,
            placement: placement.with_max_bytes(max_bytes),
        })
    }

    /// A configuration that nothing is to be run with.
    pub(super) fn none() -> Self {
        Self {
            file: PathBuf::new(),
            sections: BTreeMap::new(),
            plugins: None,
            placement: Placement::cpu("nothing runs"),
        }
    }

    /// The file it came from.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// What `device:`, `devices:` and `max_device_mb:` come to on this machine.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The operations to run, in order, each with its section: those that `plugins:` lists, else those of `available`.
    pub(super) fn operations(&self, available: &[&'static str]) -> Result<Vec<(&'static str, Value)>, AppError> {
        let mut known: Vec<&str> = SECTIONS.to_vec();
        known.extend(available.iter().filter(|name| !SECTIONS.contains(name)));
        if let Some(key) = self.sections.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(self.error(
                "configuration",
                format!(
                    "unknown key `{key}` (allowed: device, devices, max_device_mb, plugins, {})",
                    known.join(", ")
                ),
            ));
        }
        let find = |name: &str| available.iter().copied().find(|known| *known == name);
        match &self.plugins {
            Some(listed) => listed
                .iter()
                .map(|(name, section)| match find(name) {
                    Some(name) => Ok((name, section.clone())),
                    None => Err(self.error(
                        "plugins",
                        format!("`{name}` is no plugin of this node (allowed: {})", available.join(", ")),
                    )),
                })
                .collect(),
            None => available
                .iter()
                .map(|&name| match self.sections.get(name) {
                    Some(section) => Ok((name, section.clone())),
                    None if available.len() == 1 => {
                        Err(self.error("configuration", format!("the section `{name}:` is missing")))
                    }
                    None => Err(self.error(
                        "configuration",
                        format!(
                            "the key `plugins:` is missing: a list of what this node is to run, in order, such as \
                             `plugins: [{name}: {{ ... }}]` (allowed: {})",
                            available.join(", ")
                        ),
                    )),
                })
                .collect(),
        }
    }

    /// Takes the limit to device memory out of a section. Without one there, that of the file holds.
    pub(super) fn take_max_bytes(&self, name: &str, section: &mut Value) -> Result<Option<usize>, AppError> {
        let own = section
            .as_mapping_mut()
            .and_then(|section| section.remove(MAX_DEVICE_MB));
        match own.filter(|value| !value.is_null()).map(max_bytes) {
            None => Ok(self.placement.max_bytes()),
            Some(own) => own
                .map(Some)
                .map_err(|problem| self.error(name, format!("{MAX_DEVICE_MB}: {problem}"))),
        }
    }

    /// Reads a section into its typed configuration.
    pub(super) fn section<C: DeserializeOwned>(&self, name: &str, section: &Value) -> Result<C, AppError> {
        serde_path_to_error::deserialize(section.clone()).map_err(|error| {
            let path = error.path().to_string();
            let place = if path == "." {
                String::new()
            } else {
                format!("{path}: ")
            };
            self.error(name, format!("{place}{}", error.into_inner()))
        })
    }

    /// An error at a section of this file.
    pub(super) fn error(&self, section: &str, problem: String) -> AppError {
        AppError::Config {
            file: self.file.clone(),
            section: section.into(),
            problem,
        }
    }

    /// A checked configuration was refused.
    pub(super) fn refused(&self, section: &str, refused: &ConfigError) -> AppError {
        self.error(section, refused.to_string())
    }
}

/// Bytes of a number of MiB.
fn max_bytes(value: Value) -> Result<usize, String> {
    match value.as_f64() {
        Some(mb) if mb > 0.0 && mb <= 1e9 => Ok((mb * f64::from(1 << 20)) as usize),
        _ => {
            let came = serde_yaml::to_string(&value).unwrap_or_default();
            Err(format!(
                "`{}` is not allowed (a number of MiB above 0, up to 1e9)",
                came.trim()
            ))
        }
    }
}

/// The sections of a text by their keys, each of which stands there once.
fn sections(text: &str) -> Result<BTreeMap<String, Value>, String> {
    let mapping: serde_yaml::Mapping = yaml::from_str(text).map_err(|problem| problem.to_string())?;
    let named = |(key, section): (Value, Value)| match key {
        Value::String(name) => Ok((name, section)),
        other => Err(format!("the key {other:?} is no name of a section")),
    };
    mapping.into_iter().map(named).collect()
}

fn plugin_list(value: Value) -> Result<Vec<(String, Value)>, String> {
    let Value::Sequence(entries) = value else {
        return Err("it must be a list of one-key maps, such as `- fuse: {...}`".into());
    };
    if entries.is_empty() {
        return Err("it is empty".into());
    }
    entries
        .into_iter()
        .enumerate()
        .map(|(i, entry)| match entry {
            Value::Mapping(map) if map.len() == 1 => match map.into_iter().next() {
                Some((Value::String(name), section)) => Ok((name, section)),
                _ => Err(format!("[{i}]: the key must be the name of a plugin")),
            },
            _ => Err(format!("[{i}]: it must be a map of one key, such as `fuse: {{...}}`")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::align::AlignConfig;

    fn parse(text: &str) -> Result<Config, AppError> {
        Config::parse(Path::new("robot.yml"), text)
    }

    fn refusal(text: &str) -> String {
        let config = match parse(text) {
            Ok(config) => config,
            Err(error) => return error.to_string(),
        };
        let operations = match config.operations(&["fuse"]) {
            Ok(operations) => operations,
            Err(error) => return error.to_string(),
        };
        let error = config.section::<AlignConfig>("fuse", &operations[0].1).unwrap_err();
        assert!(error.is_config());
        error.to_string()
    }

    #[test]
    fn an_error_names_the_file_the_key_and_what_is_allowed() {
        let cases = [
            (
                "fuse: {}\nfuze: {}",
                "robot.yml: configuration: unknown key `fuze` (allowed: device, devices, max_device_mb, plugins, align, fuse",
            ),
            (
                "device: gpu\nfuse: {}",
                "robot.yml: device: `gpu` is no device (allowed: auto",
            ),
            ("devices: []\nfuse: {}", "devices: [] is not allowed"),
            ("devices: [0, 1, 0]\nfuse: {}", "devices: [0, 1, 0] is not allowed"),
            ("devices: 1\nfuse: {}", "devices: invalid type: integer `1`"),
            (
                "device: cpu\ndevices: [0]\nfuse: {}",
                "[0] does not go with `device: cpu` (allowed with it: auto, cuda)",
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
            ("voxelize: {}", "the section `fuse:` is missing"),
            ("plugins: {fuse: {}}", "robot.yml: plugins: it must be a list"),
            (
                "plugins: [{fuse: {}, align: {}}]",
                "plugins: [0]: it must be a map of one key",
            ),
            (
                "plugins: [{warp: {}}]",
                "`warp` is no plugin of this node (allowed: fuse)",
            ),
            (
                "fuse: {rate_hz: fast, modalities: []}",
                "robot.yml: fuse: rate_hz: invalid type: string \"fast\"",
            ),
            ("fuse: {rate_hz: 50}", "fuse: missing field `modalities`"),
            (
                "fuse: {rate_hz: 50, modalities: [{input: a, dim: 1, latency: 3}]}",
                "fuse: modalities[0].latency: unknown field `latency`, expected one of `input`",
            ),
            (
                "fuse: {rate_hz: 50, modalities: [{input: a, dim: 1, interpolation: slerp}]}",
                "fuse: modalities[0].interpolation: interpolation `slerp` is not supported yet",
            ),
            (
                "fuse: {rate_hz: 50, trigger: camera, modalities: []}",
                "fuse: trigger: not supported yet",
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
        for (text, key) in [
            ("fuse: {}\nvoxelize: {}\nfuse: {rate_hz: 50}", "fuse"),
            ("fuse:\n  rate_hz: 50\n  rate_hz: 100", "rate_hz"),
            ("plugins: [{fuse: {window: 1, window: 2}}]", "window"),
            ("fuse: {modalities: [{input: a, dim: 1, dim: 2}]}", "dim"),
            ("device: cpu\ndevice: cuda\nfuse: {}", "device"),
        ] {
            let refused = parse(text).unwrap_err();
            assert!(refused.is_config());
            let words = refused.to_string();
            assert!(words.contains("duplicate") && words.contains(key), "{words}");
        }
    }

    #[test]
    fn a_node_of_several_operations_says_that_it_wants_a_list() {
        let words = parse("voxelize: {}")
            .unwrap()
            .operations(&["fuse", "voxelize"])
            .unwrap_err()
            .to_string();
        for word in [
            "robot.yml",
            "`plugins:` is missing",
            "plugins: [fuse: { ... }]",
            "allowed: fuse, voxelize",
        ] {
            assert!(words.contains(word), "{words}");
        }
        assert!(
            parse("voxelize: {}\nfuse: {}")
                .unwrap()
                .operations(&["fuse", "voxelize"])
                .is_ok()
        );
    }

    #[test]
    fn devices_that_are_not_there_keep_nobody_from_checking_the_rest() {
        let text = "device: cuda:4711\nfuse: {}";
        assert!(Config::parse_for(Path::new("robot.yml"), text, true).is_ok());
        assert!(Config::parse_for(Path::new("robot.yml"), "device: gpu\nfuse: {}", true).is_err());
    }

    #[test]
    fn plugins_are_listed_in_order_and_may_repeat() {
        let config = parse("plugins: [{voxelize: {}}, {fuse: {}}, {voxelize: {}}]").unwrap();
        let names: Vec<_> = config
            .operations(&["fuse", "voxelize"])
            .unwrap()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["voxelize", "fuse", "voxelize"]);
    }
}
