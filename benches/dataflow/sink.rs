//! Sink of the benchmark dataflows, which logs the arrival time of each message.

use crate::now_ns;
use dora_node_api::{DoraNode, Event, Parameter};
use robocache::ops;
use robocache::stream::key;
use std::error::Error;
use std::fmt::Write;

/// Records the arrival time of every message. The CSV file `log` is written after the inputs have ended, so that writing does
/// not disturb the measurement.
pub fn run(log: &str) -> Result<(), Box<dyn Error>> {
    let (_node, mut events) = DoraNode::init_from_env()?;
    let mut lines = String::with_capacity(1 << 22);
    writeln!(lines, "input,stamp_ns,arrived_ns,compute_us,bytes")?;
    while let Some(event) = events.recv() {
        let arrived = now_ns();
        let Event::Input { id, metadata, data } = event else {
            continue;
        };
        let stamp = match metadata.parameters.get(key::timestamp_ns) {
            Some(Parameter::Integer(stamp)) => *stamp,
            other => return Err(format!("input `{id}`: `timestamp_ns` is {other:?}").into()),
        };
        let compute_us = match metadata.parameters.get(ops::key::compute_us.name) {
            Some(Parameter::Float(us)) => *us,
            _ => 0.0,
        };
        let bytes = data.as_array().to_data().get_slice_memory_size()?;
        writeln!(lines, "{id},{stamp},{arrived},{compute_us},{bytes}")?;
    }
    std::fs::write(log, lines)?;
    Ok(())
}
