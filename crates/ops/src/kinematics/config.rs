use super::spec::check_name;
use crate::{ConfigError, refused};
use robocache_kinematics::{Frame, InverseConfig};
use robocache_stream::FromConfig;
use serde::de::value::{SeqAccessDeserializer, StrDeserializer};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// Configuration of kinematics: the section `kinematics:`, a list.
///
/// ```
/// use robocache_ops::kinematics::{KinematicsConfig, KinematicsEntry, Product};
///
/// let config = KinematicsConfig {
///     entries: vec![KinematicsEntry {
///         input: "joints".into(),
///         chain: "arm".into(),
///         make: vec![Product::Pose, Product::Jacobian],
///         ..KinematicsEntry::default()
///     }],
/// };
/// assert_eq!(config.entries[0].outputs().collect::<Vec<_>>(), ["arm_pose", "arm_jacobian"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct KinematicsConfig {
    /// Entries, each an operation of its own. One may take what an earlier one publishes.
    pub entries: Vec<KinematicsEntry>,
}

/// The products of the messages of one input.
///
/// `Default` has no input, no chain and nothing to make yet; everything else is as it is where a configuration file leaves it out.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KinematicsEntry {
    /// The input it comes from.
    pub input: String,
    /// Paths of the values and of the stamp in a struct. `None`: those that are recognised.
    pub from: Option<FromConfig>,
    /// The values of a sample that are taken, `[first, end]`: joints, with their velocities behind them for a twist, or a pose. `None`:
    /// all of them, or those with the names of the joints.
    pub channels: Option<[usize; 2]>,
    /// The chain, of the section `chains:`.
    pub chain: String,
    /// Products, each an output: one, or a list of them.
    #[serde(deserialize_with = "one_or_several")]
    pub make: Vec<Product>,
    /// The name that stands before the outputs. `None`: that of the chain.
    pub name: Option<String>,
    /// The point and the axes of a Jacobian and of a twist. `None`: [`Frame::Base`].
    pub frame: Option<Frame>,
    /// Choice of how joints are found for poses. `None`: the default.
    pub inverse: Option<InverseConfig>,
}

/// A product of kinematics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Product {
    /// Pose of the tool, of joints.
    Pose,
    /// Jacobian of the tool, of joints.
    Jacobian,
    /// Velocity of the tool, of joints and their velocities.
    Twist,
    /// Joints, of poses of the tool.
    Joints,
}

impl Product {
    /// Its name in configurations and in the names of outputs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pose => "pose",
            Self::Jacobian => "jacobian",
            Self::Twist => "twist",
            Self::Joints => "joints",
        }
    }
}

impl KinematicsEntry {
    /// The name that stands before its outputs.
    pub fn own_name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.chain)
    }

    /// The outputs, one for each product.
    pub fn outputs(&self) -> impl Iterator<Item = String> + '_ {
        self.make
            .iter()
            .map(|product| format!("{}_{}", self.own_name(), product.name()))
    }
}

impl KinematicsConfig {
    /// The outputs of all entries.
    pub fn outputs(&self) -> impl Iterator<Item = String> + '_ {
        self.entries.iter().flat_map(KinematicsEntry::outputs)
    }

    /// Checks the entries against one another; each by itself is checked when it is [built](super::Kinematics::new).
    ///
    /// # Errors
    /// No entry; a name that can't stand before an output; an output of two entries.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.entries.is_empty() {
            return refused("[]", "the list is empty (allowed: one entry or more)");
        }
        for (i, entry) in self.entries.iter().enumerate() {
            check_name(entry).map_err(|(key, problem)| ConfigError::new(format!("[{i}].{key}"), problem))?;
            let published = |other: &KinematicsEntry, output: &String| other.outputs().any(|known| known == *output);
            for output in entry.outputs() {
                if let Some(other) = self.entries[..i].iter().position(|other| published(other, &output)) {
                    let problem =
                        format!("[{other}] publishes `{output}`, too (needed: another `name` in one of them)");
                    return refused(format!("[{i}].name"), problem);
                }
            }
        }
        Ok(())
    }
}

/// Reads one product, or a list of them.
fn one_or_several<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Product>, D::Error> {
    struct Products;

    impl<'de> Visitor<'de> for Products {
        type Value = Vec<Product>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("pose, jacobian, twist, joints, or a list of these")
        }

        fn visit_str<E: de::Error>(self, name: &str) -> Result<Self::Value, E> {
            Ok(vec![Product::deserialize(StrDeserializer::new(name))?])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(list))
        }
    }

    deserializer.deserialize_any(Products)
}
