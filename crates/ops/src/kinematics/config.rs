//! Configuration of kinematics, and the check that no two of its entries publish the same output.

use super::spec::check_name;
use crate::{ConfigError, refused};
use robocache_kinematics::{Frame, InverseConfig};
use robocache_stream::FromConfig;
use serde::de::value::{SeqAccessDeserializer, StrDeserializer};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// Configuration of kinematics: the section `kinematics:`, a list of entries.
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
    /// Entries of the list, each an operation of its own. An entry may take the output of an earlier entry as its input.
    pub entries: Vec<KinematicsEntry>,
}

/// One entry of the section `kinematics:`: which products (poses, Jacobians, twists, or joints) to compute from the messages of
/// one input.
///
/// The default has no input, no chain and no products. Its other fields are as if a configuration file left them out.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KinematicsEntry {
    /// Name of the dataflow input with joints or poses.
    pub input: String,
    /// Paths of the values and of the stamp inside messages that are structs. `None`: well-known paths are recognised.
    pub from: Option<FromConfig>,
    /// Range `[first, end)` of each sample's values to read. They are joint positions, with joint velocities for a twist, or a
    /// pose. `None`: all values, or the values with the names of the chain's joints.
    pub channels: Option<[usize; 2]>,
    /// Name of the kinematic chain in the section `chains:`.
    pub chain: String,
    /// Products to compute (poses, Jacobians, twists, or joints), each published on an output of its own. A configuration file
    /// gives one product, or a list.
    #[serde(deserialize_with = "one_or_several")]
    pub make: Vec<Product>,
    /// Prefix of the outputs' names. `None`: the name of the chain.
    pub name: Option<String>,
    /// Reference point and axes of Jacobians and twists. `None`: [`Frame::Base`].
    pub frame: Option<Frame>,
    /// Settings of inverse kinematics, for [`Product::Joints`]. `None`: the defaults.
    pub inverse: Option<InverseConfig>,
}

/// Quantity that is computed for each row of a message, and published as an output of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Product {
    /// Pose of the tool, computed from joints.
    Pose,
    /// Jacobian of the tool, computed from joints.
    Jacobian,
    /// Velocity of the tool, computed from joints and their velocities.
    Twist,
    /// Joint positions, found for poses of the tool by inverse kinematics.
    Joints,
}

impl Product {
    /// Name of the product in configurations and in the names of outputs.
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
    /// Prefix of the names of the entry's outputs: `name`, or the name of the chain.
    pub fn own_name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.chain)
    }

    /// Names of the entry's outputs, one for each product, such as `arm_pose`.
    pub fn outputs(&self) -> impl Iterator<Item = String> + '_ {
        self.make
            .iter()
            .map(|product| format!("{}_{}", self.own_name(), product.name()))
    }
}

impl KinematicsConfig {
    /// Names of the outputs of all entries, in their order.
    pub fn outputs(&self) -> impl Iterator<Item = String> + '_ {
        self.entries.iter().flat_map(KinematicsEntry::outputs)
    }

    /// Checks the entries against one another. Each entry by itself is checked when it is [built](super::Kinematics::new).
    ///
    /// # Errors
    /// No entry; a name that can't be the prefix of an output; an output of two entries.
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

/// Deserializes one product, or a list of products.
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
