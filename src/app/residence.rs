//! Residence of the payloads of an output: in the message, or in a ring of shared or GPU memory beside it.
//!
//! A key or an output that does not exist is refused when the operation is built, with the allowed names.

use super::Value;
use robocache_device::Placement;
use robocache_device::gpu::Gpu;
use robocache_device::ring::{Lossless, MAX_CONSUMERS, MAX_SLOTS, RingConfig};
use robocache_yaml as yaml;
use robocache_yaml::{Json, Misread, did_you_mean};
use serde::Deserialize;
use std::time::Duration;

/// Memory in which an output's payloads are published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Residence {
    /// The message itself, in host memory.
    #[default]
    Host,
    /// A ring of shared memory, which other processes of this host map.
    Shared,
    /// A ring in the memory of the operation's GPU.
    Cuda,
}

/// The residence of an output, and the ring for it.
#[derive(Clone)]
pub struct OutputResidence {
    /// Memory in which the output's payloads are published.
    pub residence: Residence,
    /// Settings of the ring: its slots, and whether it waits for consumers. Not used for [`Residence::Host`].
    pub ring: RingConfig,
    /// Devices of the operation that publishes the output.
    pub placement: Placement,
}

impl OutputResidence {
    /// The GPU whose memory holds the ring; `None` for host memory, or if the operation runs on the CPU.
    pub fn gpu(&self) -> Option<&Gpu> {
        self.placement.gpu().filter(|_| self.residence == Residence::Cuda)
    }
}

/// The key `residence` of a section: one residence for all outputs, or one for each output.
#[derive(Clone)]
pub(super) enum Residences {
    All(Residence),
    Each(Vec<(String, Residence, RingConfig)>),
}

/// Keys in the entry of one output under `residence`, as the file has them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RingKeys {
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

const KEYS: [&str; 5] = ["kind", "slots", "backpressure", "consumers", "lease_timeout_ms"];

impl Residences {
    /// Parses the value of the key `residence`. The names of the outputs are not known yet, so [`of`](Self::of) checks them.
    ///
    /// # Errors
    /// The first mistake in the value.
    pub(super) fn parse(value: &Value) -> Result<Self, String> {
        let keys = KEYS.join(", ");
        let Value::Mapping(entries) = value else {
            let all = format!("host, shared or cuda for all outputs; or for each output one of them, or {{ {keys} }}");
            return Ok(Self::All(kind("residence", value, &all)?));
        };
        let each = entries.iter().map(|(key, value)| {
            let output = Json(key).bare();
            let at = format!("residence.{output}");
            Ok(match value {
                Value::Mapping(_) => {
                    let (residence, ring) = RingKeys::read(value).map_err(|misread| misread.within(&at).to_string())?;
                    (output, residence, ring)
                }
                _ if KEYS.contains(&output.as_str()) => {
                    return Err(format!(
                        "residence: `{output}` is not an output: put it under the output's name (allowed: {{ OUTPUT: {{ {keys} }} }})"
                    ));
                }
                word => {
                    let allowed = format!("host, shared or cuda, or {{ {keys} }}");
                    (output, kind(&at, word, &allowed)?, RingConfig::default())
                }
            })
        });
        each.collect::<Result<_, String>>().map(Self::Each)
    }

    /// Returns the residence of each of `outputs`, in the same order.
    ///
    /// # Errors
    /// An output is named that does not exist.
    pub(super) fn of(&self, outputs: &[String], placement: &Placement) -> Result<Vec<OutputResidence>, String> {
        if let Self::Each(each) = self
            && let Some((unknown, ..)) = each.iter().find(|(name, ..)| !outputs.contains(name))
        {
            let (hint, allowed) = (did_you_mean(unknown, outputs), outputs.join(", "));
            let problem = format!("residence: `{unknown}` is not an output{hint} (allowed: {allowed})");
            return Err(problem);
        }
        let of = outputs.iter().map(|output| {
            let (residence, ring) = match self {
                Self::All(residence) => (*residence, RingConfig::default()),
                Self::Each(each) => {
                    let own = each.iter().find(|(name, ..)| name == output);
                    own.map(|(_, residence, ring)| (*residence, *ring)).unwrap_or_default()
                }
            };
            OutputResidence {
                residence,
                ring,
                placement: placement.clone(),
            }
        });
        Ok(of.collect())
    }
}

/// Parses a residence that is a single word, such as `shared`. For the error, `at` is the key and `allowed` lists the values.
fn kind(at: &str, value: &Value, allowed: &str) -> Result<Residence, String> {
    let refused = |_| format!("{at}: {} is not allowed (allowed: {allowed})", Json(value));
    yaml::from_value(value).map_err(refused)
}

impl RingKeys {
    fn read(value: &Value) -> Result<(Residence, RingConfig), Misread> {
        let Self {
            kind,
            slots,
            backpressure,
            consumers,
            lease_timeout_ms,
        } = yaml::from_value(value)?;
        let bounded = |key: &str, value: usize, least: usize, most: usize| {
            let problem = || format!("{value} is not allowed (allowed: {least} to {most})");
            let fits = (least..=most).contains(&value);
            fits.then_some(()).ok_or_else(|| Misread::at(key, problem()))
        };
        bounded("slots", slots, 2, MAX_SLOTS)?;
        bounded("consumers", consumers, 1, MAX_CONSUMERS)?;
        if !(lease_timeout_ms > 0.0 && lease_timeout_ms <= 1e9) {
            let problem = format!("{lease_timeout_ms} is not allowed (allowed: above 0, up to 1e9 ms)");
            return Err(Misread::at("lease_timeout_ms", problem));
        }
        let lossless = backpressure.then(|| Lossless {
            consumers,
            timeout: Duration::from_secs_f64(lease_timeout_ms / 1e3),
        });
        Ok((kind, RingConfig { slots, lossless }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(Residence, RingConfig)>, String> {
        let outputs = ["fused".to_owned(), "observation".to_owned()];
        let value = serde_yaml::from_str(text).unwrap();
        let read = Residences::parse(&value)?.of(&outputs, &Placement::cpu("a test"))?;
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
                "residence: `voxels` is not an output (allowed: fused, observation)",
            ),
            (
                "{ fused: { kind: cuda, slots: 1 } }",
                "residence.fused.slots: 1 is not allowed (allowed: 2 to 60)",
            ),
            (
                "{ fused: { kind: cuda, slot: 4 } }",
                "residence.fused.slot: unknown key `slot`, did you mean `slots`? (allowed: kind, slots, backpressure, consumers",
            ),
            (
                "{ fused: { kind: gpu } }",
                "residence.fused.kind: `gpu` is not allowed (allowed: host, shared, cuda)",
            ),
            (
                "{ fused: { kind: cuda, slots: many } }",
                "residence.fused.slots: \"many\" is not allowed (allowed: a whole number, 0 or more)",
            ),
            ("{ fused: { slots: 4 } }", "residence.fused: the key `kind` is missing"),
            (
                "{ fused: [cuda] }",
                "residence.fused: [\"cuda\"] is not allowed (allowed: host, shared or cuda, or { kind, slots",
            ),
            (
                "{ kind: cuda, slots: 4 }",
                "residence: `kind` is not an output: put it under the output's name (allowed: { OUTPUT: { kind, slots",
            ),
            (
                "[cuda]",
                "residence: [\"cuda\"] is not allowed (allowed: host, shared or cuda for all",
            ),
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
