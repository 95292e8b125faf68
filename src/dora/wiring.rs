//! Wiring of a node in its dataflow, and limits of the messages that dora can carry.
//!
//! If the message size of an output is known beforehand, a size that dora can't carry is refused before the node joins
//! the dataflow.

use super::queue::Bound;
use super::{NODE_CONFIG, NodeError};
use crate::app::{Run, Value};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Largest message that dora's daemon carries, bytes. Every message that does not fit in shared memory goes through the daemon.
const DAEMON_BYTES: usize = 64 << 20;
/// Largest message that a node of dora decodes, bytes with framing, through the daemon or through shared memory.
pub const MESSAGE_BYTES: usize = 256 << 20;
/// Size of a node's shared memory, bytes, unless the dataflow sets `shared_memory_pool_size`.
pub const POOL_BYTES: usize = 8 << 20;
/// Upper bound of the framing around a payload, bytes.
const FRAMING_BYTES: usize = 4096;

/// Wiring of a node in its dataflow, from the environment variable that dora starts it with.
#[derive(Clone, Deserialize)]
pub(crate) struct Wiring {
    #[serde(default)]
    dataflow_id: String,
    pub node_id: String,
    run_config: RunConfig,
    #[serde(default)]
    output_routing: Option<BTreeMap<String, Routing>>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct RunConfig {
    /// Source of each input by the input's name, or a map of the source and the input's options.
    inputs: BTreeMap<String, Value>,
    outputs: BTreeSet<String>,
    shared_memory_pool_size: Option<usize>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Routing {
    /// True if the daemon carries all messages of the output: a consumer has `queue_policy: backpressure`, or runs under another
    /// daemon.
    daemon_only: bool,
}

impl Wiring {
    /// Reads the wiring of this process; `None` outside a dataflow, as in dora's testing mode.
    pub(super) fn from_env() -> Result<Option<Self>, NodeError> {
        let Ok(config) = std::env::var(NODE_CONFIG) else {
            return Ok(None);
        };
        let refused = |error| NodeError::Dora(format!("{NODE_CONFIG} can't be read: {error}"));
        let mut wiring: Self = serde_yaml::from_str(&config).map_err(refused)?;
        let pool = &mut wiring.run_config.shared_memory_pool_size;
        if pool.is_none() {
            let default_size = std::env::var("DORA_NODE_SHM_POOL_SIZE").ok();
            *pool = default_size.and_then(|bytes| bytes.parse().ok());
        }
        Ok(Some(wiring))
    }

    /// Returns the run of the dataflow, whose id is a UUID; `None` if the id is not a UUID. A UUID of version 7 (RFC 9562) has the
    /// time of the start in it, so every node of the run gets the same time. For any other UUID the start is the present time.
    pub(super) fn run(&self) -> Option<Run> {
        let digits = self.dataflow_id.replace('-', "");
        let number = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32)?;
        let started = match number >> 76 & 0xf {
            7 => UNIX_EPOCH + Duration::from_millis((number >> 80) as u64),
            _ => SystemTime::now(),
        };
        let id = self.dataflow_id.clone();
        Some(Run { id, started })
    }

    /// Names of the node's inputs in the dataflow.
    pub(super) fn inputs(&self) -> impl Iterator<Item = &str> {
        self.run_config.inputs.keys().map(String::as_str)
    }

    /// Bounds of an input's queue; `None` if the dataflow does not wire the input.
    pub(super) fn bound(&self, input: &str) -> Option<Bound> {
        let options = self.run_config.inputs.get(input)?;
        let size = options.get("queue_size").and_then(Value::as_u64);
        let waits = options.get("queue_policy").and_then(Value::as_str) == Some("backpressure");
        Some(Bound::new(size.map(|size| size as usize), waits))
    }

    /// Names of the node's outputs in the dataflow.
    pub(super) fn outputs(&self) -> &BTreeSet<String> {
        &self.run_config.outputs
    }

    /// Checks that messages of `bytes` bytes can be sent on an output, if the dataflow lists the output.
    pub(super) fn check(&self, output: &str, bytes: usize) -> Result<(), String> {
        if !self.run_config.outputs.contains(output) {
            return Ok(());
        }
        let bytes = bytes.saturating_add(FRAMING_BYTES);
        if bytes > MESSAGE_BYTES {
            return Err(format!("dora carries at most {MESSAGE_BYTES}"));
        }
        let routing = self.output_routing.as_ref().and_then(|outputs| outputs.get(output));
        let pool = self.run_config.shared_memory_pool_size.unwrap_or(POOL_BYTES);
        if bytes > DAEMON_BYTES && routing.is_some_and(|routing| routing.daemon_only) {
            return Err(format!(
                "dora carries at most {DAEMON_BYTES} to a consumer with `queue_policy: backpressure` or on another machine"
            ));
        }
        if bytes > DAEMON_BYTES && bytes > pool {
            return Err(format!(
                "dora carries at most {DAEMON_BYTES} outside shared memory, of which this node has {pool}: set its \
                 `shared_memory_pool_size` in the dataflow to several times the size of a message"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn what_dora_can_not_carry_is_refused_with_the_reason() {
        let limits = |pool: &str, daemon_only: bool| {
            let config = format!(
                "{{ node_id: a, run_config: {{ outputs: [voxels], inputs: {{}}, {pool} }}, dynamic: false,
                    output_routing: {{ voxels: {{ daemon_only: {daemon_only}, ackers: [] }} }} }}"
            );
            serde_yaml::from_str::<Wiring>(&config).unwrap()
        };
        let (small, large) = (limits("", false), limits("shared_memory_pool_size: 536870912", false));
        assert_eq!(small.check("voxels", 63 * MIB), Ok(()));
        assert!(
            small
                .check("voxels", 64 * MIB)
                .unwrap_err()
                .contains("has 8388608: set its")
        );
        assert_eq!(large.check("voxels", 255 * MIB), Ok(()));
        assert!(
            large
                .check("voxels", 256 * MIB)
                .unwrap_err()
                .contains("at most 268435456")
        );
        let daemon = limits("shared_memory_pool_size: 536870912", true);
        assert_eq!(daemon.check("voxels", 63 * MIB), Ok(()));
        assert!(daemon.check("voxels", 64 * MIB).unwrap_err().contains("backpressure"));
        // Messages that stay in the process are not carried.
        assert_eq!(daemon.check("other", 257 * MIB), Ok(()));
    }
}
