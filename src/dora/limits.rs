//! How large a message dora can carry.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The largest message that goes through dora's daemon, as every message does that doesn't fit in shared memory.
const DAEMON_BYTES: usize = 64 << 20;
/// The largest message that a node of dora decodes, whichever way it came.
pub const MESSAGE_BYTES: usize = 256 << 20;
/// Shared memory of a node, bytes, unless the dataflow says.
pub const POOL_BYTES: usize = 8 << 20;
/// An upper bound of the framing around a payload.
const FRAMING_BYTES: usize = 4096;

/// What dora tells a node about its outputs at the start. Outside a dataflow it is empty.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Limits {
    run_config: RunConfig,
    output_routing: Option<BTreeMap<String, Routing>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RunConfig {
    outputs: BTreeSet<String>,
    shared_memory_pool_size: Option<usize>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Routing {
    /// A consumer has `queue_policy: backpressure`, or runs under another daemon.
    daemon_only: bool,
}

impl Limits {
    /// Those of the dataflow that this process was started by.
    pub fn from_env() -> Self {
        let config = std::env::var("DORA_NODE_CONFIG").unwrap_or_default();
        // The runtime reports what is wrong with it.
        let mut limits = Self::parse(&config).unwrap_or_default();
        let pool = &mut limits.run_config.shared_memory_pool_size;
        if pool.is_none() {
            let of_all = std::env::var("DORA_NODE_SHM_POOL_SIZE").ok();
            *pool = of_all.and_then(|bytes| bytes.parse().ok());
        }
        limits
    }

    fn parse(config: &str) -> Option<Self> {
        serde_yaml::from_str(config).ok()
    }

    /// Whether messages of so many bytes can be sent on an output, where the dataflow wants it.
    pub fn check(&self, output: &str, bytes: usize) -> Result<(), String> {
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
            Limits::parse(&config).unwrap()
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
        // What stays in the process is not carried.
        assert_eq!(daemon.check("other", 257 * MIB), Ok(()));
        assert_eq!(Limits::default().check("voxels", 257 * MIB), Ok(()));
    }
}
