//! Nodes of a dataflow file and their wiring, as far as the checks need them. Other keys are ignored: `dora validate`
//! checks them.

use eyre::WrapErr;
use robocache::app::{Value, read_yaml};
use robocache::dora::POOL_BYTES;
use serde::{Deserialize, Deserializer, de};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
pub struct Dataflow {
    pub nodes: Vec<Node>,
}

#[derive(Deserialize)]
pub struct Node {
    #[serde(deserialize_with = "text")]
    pub id: String,
    #[serde(default)]
    path: Option<Value>,
    #[serde(default)]
    hub: Option<Value>,
    #[serde(default)]
    args: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, Value>,
    #[serde(default)]
    inputs: BTreeMap<String, Input>,
    #[serde(default)]
    pub outputs: Vec<String>,
    #[serde(default)]
    pub input_types: BTreeMap<String, String>,
    #[serde(default)]
    pub output_types: BTreeMap<String, String>,
    #[serde(default)]
    shared_memory_pool_size: Option<Value>,
    #[serde(default)]
    deploy: Option<Deploy>,
}

/// Placement of a node: the name of its machine, or labels that the machine must have.
#[derive(Default, PartialEq, Deserialize)]
struct Deploy {
    #[serde(default)]
    machine: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, Value>,
}

/// Deserializes a name. A bare number or boolean in YAML is read as text.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(yes) => Ok(yes.to_string()),
        _ => Err(de::Error::custom("it is not a name (allowed: text)")),
    }
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "it is not an input (allowed: NODE/OUTPUT, or a map with `source: NODE/OUTPUT`)"
)]
enum Input {
    Source(String),
    Full(Edge),
}

/// Wiring of an input: the output that it reads, and the settings of its queue.
#[derive(Clone, Deserialize)]
pub struct Edge {
    pub source: String,
    /// Greatest number of messages in the input's queue. If absent, a node of robocache keeps 1,024 messages, or 64 MiB.
    #[serde(default)]
    pub queue_size: Option<usize>,
    #[serde(default)]
    queue_policy: Option<String>,
}

impl Edge {
    /// True if the sender waits while the queue of the input is full, so that no message is lost.
    pub fn is_lossless(&self) -> bool {
        self.queue_policy.as_deref() == Some("backpressure")
    }
}

impl Dataflow {
    pub fn read(file: &Path) -> eyre::Result<Self> {
        let text = std::fs::read_to_string(file).wrap_err_with(|| format!("{}: it can't be read", file.display()))?;
        read_yaml(&text).map_err(|problem| {
            eyre::eyre!(
                "{}: it is not a dataflow (allowed: what `dora validate` takes): {problem}",
                file.display()
            )
        })
    }

    /// Lists the inputs that are wired to `output` of `node`: the reading node, the input's name, and its wiring.
    pub fn takers<'a>(&'a self, node: &'a str, output: &'a str) -> impl Iterator<Item = (&'a Node, &'a str, Edge)> {
        self.nodes.iter().flat_map(move |taker| {
            let edges = taker
                .edges()
                .filter(move |(_, edge)| edge.source.split_once('/') == Some((node, output)));
            edges.map(move |(input, edge)| (taker, input, edge))
        })
    }
}

impl Node {
    /// Lists the node's inputs, sorted by name, each with its wiring.
    pub fn edges(&self) -> impl Iterator<Item = (&str, Edge)> {
        self.inputs.iter().map(|(name, input)| {
            let edge = match input {
                Input::Full(edge) => edge.clone(),
                Input::Source(source) => Edge {
                    source: source.clone(),
                    queue_size: None,
                    queue_policy: None,
                },
            };
            (name.as_str(), edge)
        })
    }

    pub fn edge(&self, input: &str) -> Option<Edge> {
        self.edges().find(|(name, _)| *name == input).map(|(_, edge)| edge)
    }

    /// The name of the node's program without the prefix `robocache-`; `None` if it does not have the prefix.
    pub fn program(&self) -> Option<&str> {
        let path = self.path.as_ref().or(self.hub.as_ref())?.as_str()?;
        let name = path.rsplit('/').next().unwrap_or(path);
        name.split('@').next().unwrap_or(name).strip_prefix("robocache-")
    }

    /// The path of the configuration that the node reads; `None` if neither `args` nor `env` names a file. A relative path counts
    /// from `folder`, the dataflow's folder.
    pub fn config(&self, folder: &Path) -> Option<PathBuf> {
        let mut words = self.args.as_deref().unwrap_or_default().split_whitespace();
        let mut from_args = None;
        while let Some(word) = words.next() {
            if word == "--config" {
                from_args = words.next();
            } else if let Some(file) = word.strip_prefix("--config=") {
                from_args = Some(file);
            }
        }
        let from_env = self.env.get("ROBOCACHE_CONFIG").and_then(Value::as_str);
        from_args.or(from_env).map(|file| tidy(&folder.join(file)))
    }

    /// Describes the machine where the node runs, such as `machine gpu`; `None` if the dataflow does not name it.
    pub fn place(&self) -> Option<String> {
        let deploy = self.deploy.as_ref()?;
        let machine = deploy.machine.iter().map(|machine| format!("machine {machine}"));
        let name = |value: &Value| serde_yaml::to_string(value).unwrap_or_default().trim().to_owned();
        let labels = deploy
            .labels
            .iter()
            .map(|(key, value)| format!("label {key}: {}", name(value)));
        let place: Vec<String> = machine.chain(labels).collect();
        (!place.is_empty()).then(|| place.join(", "))
    }

    /// The size of the node's pool of shared memory for outputs, bytes; dora's default if the dataflow gives none.
    pub fn pool(&self) -> u64 {
        let Some(value) = &self.shared_memory_pool_size else {
            return POOL_BYTES as u64;
        };
        let of_text = |text: &str| {
            let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
                "GB" => 1 << 30,
                "MB" => 1 << 20,
                "KB" => 1 << 10,
                _ => 1,
            };
            Some((digits.trim().parse::<f64>().ok()? * f64::from(unit)) as u64)
        };
        value
            .as_u64()
            .or_else(|| of_text(value.as_str()?))
            .unwrap_or(POOL_BYTES as u64)
    }
}

/// Removes `.` from a path, and each `..` together with the folder before it. The file system is not read.
pub fn tidy(path: &Path) -> PathBuf {
    use std::path::Component;
    let mut tidy = PathBuf::new();
    for part in path.components() {
        let after_folder = matches!(tidy.components().next_back(), Some(Component::Normal(_)));
        match part {
            Component::CurDir => {}
            Component::ParentDir if after_folder => {
                tidy.pop();
            }
            part => tidy.push(part),
        }
    }
    tidy
}

/// Splits a message type of robocache, as a dataflow declares it, into its name and its `dim`: `robocache/v1/Wrench[dim=6]` gives
/// `Wrench` and 6. `None` if the type is not robocache's.
pub fn parts_of_type(urn: &str) -> Option<(&str, Option<usize>)> {
    let own = urn.strip_prefix("robocache/v1/")?;
    let (name, parameters) = own.split_once('[').unwrap_or((own, ""));
    let parameters = parameters.trim_end_matches(']').split(',');
    let mut dims = parameters.filter_map(|parameter| parameter.trim().strip_prefix("dim="));
    Some((name, dims.next().and_then(|dim| dim.parse().ok())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_says_its_program_its_configuration_and_its_pool() {
        let text =
            "{ id: a, path: ../target/release/robocache-fuse, args: --config ../x.yml, shared_memory_pool_size: 1.5MB,
                      inputs: { a: b/c, d: { source: e/f, queue_size: 3, queue_policy: backpressure } } }";
        let node: Node = serde_yaml::from_str(text).unwrap();
        assert_eq!(node.program(), Some("fuse"));
        assert_eq!(node.config(Path::new("examples")), Some("x.yml".into()));
        assert_eq!(node.pool(), 3 << 19);
        let edges: Vec<_> = node
            .edges()
            .map(|(input, edge)| (input, edge.queue_size, edge.is_lossless()))
            .collect();
        assert_eq!(edges, [("a", None, false), ("d", Some(3), true)]);
        assert_eq!(tidy(Path::new("../a/./b/../c")), Path::new("../a/c"));
        assert_eq!(parts_of_type("robocache/v1/Wrench[dim=6]"), Some(("Wrench", Some(6))));
        assert_eq!(parts_of_type("std/core/v1/Bytes"), None);
    }
}
