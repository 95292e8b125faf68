//! Where the payloads of an output are published: in the message, or in a ring beside it.

use crate::device::Placement;
use crate::device::cuda::Gpu;
use crate::device::ring::{Lossless, MAX_CONSUMERS, MAX_SLOTS, RingConfig};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Where the payloads of an output are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Residence {
    /// In the message.
    #[default]
    Host,
    /// In a ring of shared memory, which other processes of this host map.
    Shared,
    /// In a ring on the operation's device.
    Cuda,
}

/// The residence of an output, and the ring for it.
#[derive(Clone)]
pub struct OutputResidence {
    /// Where its payloads are.
    pub residence: Residence,
    /// What the ring is to be.
    pub ring: RingConfig,
    /// The devices of the operation.
    pub placement: Placement,
}

impl OutputResidence {
    /// The device of the ring, where it is to be on one and the operation has one.
    pub fn gpu(&self) -> Option<&Gpu> {
        self.placement.gpu().filter(|_| self.residence == Residence::Cuda)
    }
}

/// The key `residence` of a section: one for all outputs, or one each.
#[derive(Deserialize)]
#[serde(untagged)]
enum Section {
    All(Residence),
    Each(BTreeMap<String, Entry>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Entry {
    Kind(Residence),
    Full(Full),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Full {
    kind: Residence,
    #[serde(default = "default_slots")]
    slots: usize,
    #[serde(default)]
    backpressure: bool,
    #[serde(default = "default_consumers")]
    consumers: usize,
    #[serde(default = "default_timeout_ms")]
    lease_timeout_ms: f64,
}

fn default_slots() -> usize {
    RingConfig::default().slots
}

fn default_consumers() -> usize {
    1
}

fn default_timeout_ms() -> f64 {
    1000.0
}

const ALLOWED: &str = "allowed: host, shared or cuda for all outputs; or for each output one of them, or { kind, slots, \
                       backpressure, consumers, lease_timeout_ms }";

/// Reads the key: for each of `outputs`, where its payloads are to be.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(
    value: super::Value,
    outputs: &[String],
    placement: &Placement,
) -> Result<Vec<OutputResidence>, String> {
    let came = super::value::Json(&value).to_string();
    let section: Section =
        serde_yaml::from_value(value).map_err(|_| format!("residence: {came} is not allowed ({ALLOWED})"))?;
    let of = |residence, ring| OutputResidence {
        residence,
        ring,
        placement: placement.clone(),
    };
    let mut each = match section {
        Section::All(residence) => {
            return Ok(outputs.iter().map(|_| of(residence, RingConfig::default())).collect());
        }
        Section::Each(each) => each,
    };
    if let Some(unknown) = each.keys().find(|name| !outputs.contains(name)) {
        let outputs = outputs.join(", ");
        return Err(format!("residence: `{unknown}` is no output (allowed: {outputs})"));
    }
    let mut residences = Vec::with_capacity(outputs.len());
    for output in outputs {
        residences.push(match each.remove(output) {
            None => of(Residence::Host, RingConfig::default()),
            Some(Entry::Kind(residence)) => of(residence, RingConfig::default()),
            Some(Entry::Full(full)) => of(
                full.kind,
                full.ring().map_err(|error| format!("residence.{output}.{error}"))?,
            ),
        });
    }
    Ok(residences)
}

impl Full {
    fn ring(&self) -> Result<RingConfig, String> {
        let bounded = |key: &str, value: usize, least: usize, most: usize| match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err(format!("{key}: {value} is not allowed (allowed: {least} to {most})")),
        };
        bounded("slots", self.slots, 2, MAX_SLOTS)?;
        bounded("consumers", self.consumers, 1, MAX_CONSUMERS)?;
        if !(self.lease_timeout_ms > 0.0 && self.lease_timeout_ms <= 1e9) {
            let came = self.lease_timeout_ms;
            return Err(format!(
                "lease_timeout_ms: {came} is not allowed (allowed: above 0, up to 1e9 ms)"
            ));
        }
        Ok(RingConfig {
            slots: self.slots,
            lossless: self.backpressure.then(|| Lossless {
                consumers: self.consumers,
                timeout: Duration::from_secs_f64(self.lease_timeout_ms / 1e3),
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(Residence, RingConfig)>, String> {
        let outputs = ["fused".to_owned(), "observation".to_owned()];
        let value = serde_yaml::from_str(text).unwrap();
        let read = super::read(value, &outputs, &Placement::cpu("a test"))?;
        Ok(read.into_iter().map(|output| (output.residence, output.ring)).collect())
    }

    #[test]
    fn a_word_is_for_all_outputs_and_a_map_for_each() {
        let ring = RingConfig::default();
        assert_eq!(read("shared").unwrap(), [(Residence::Shared, ring); 2]);
        assert_eq!(
            read("{ observation: cuda }").unwrap(),
            [(Residence::Host, ring), (Residence::Cuda, ring)]
        );
        let full = read("{ fused: { kind: shared, slots: 9, backpressure: true, lease_timeout_ms: 250 } }").unwrap();
        let lossless = Lossless {
            consumers: 1,
            timeout: Duration::from_millis(250),
        };
        let ring = RingConfig {
            slots: 9,
            lossless: Some(lossless),
        };
        assert_eq!(full[0], (Residence::Shared, ring));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, expected) in [
            (
                "gpu",
                "residence: \"gpu\" is not allowed (allowed: host, shared or cuda",
            ),
            (
                "{ voxels: cuda }",
                "residence: `voxels` is no output (allowed: fused, observation)",
            ),
            (
                "{ fused: { kind: cuda, slots: 1 } }",
                "residence.fused.slots: 1 is not allowed (allowed: 2 to 60)",
            ),
            ("{ fused: { kind: cuda, slot: 4 } }", "is not allowed (allowed: host"),
            (
                "{ fused: { kind: cuda, consumers: 5 } }",
                "residence.fused.consumers: 5 is not allowed (allowed: 1 to 4)",
            ),
            (
                "{ fused: { kind: cuda, lease_timeout_ms: 0 } }",
                "residence.fused.lease_timeout_ms: 0 is not allowed",
            ),
        ] {
            let refused = read(text).unwrap_err();
            assert!(refused.contains(expected), "{refused}, not {expected}");
        }
    }
}
