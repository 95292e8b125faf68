//! Nodes of the benchmark dataflows that `benches/run.py` runs: sources, sinks, and the nodes that robocache is compared with.
//!
//! A source logs the time of each message that it sends, and a sink the time of each arrival. Both write CSV files, which are
//! joined by the stamps of the messages. The comparison nodes are a relay, which forwards messages unchanged, and a node that
//! publishes a dense grid by `send_output`. The dataflow files in this folder wire the nodes.

mod dense;
mod sink;
mod source;

use dora_node_api::dora_core::config::DataId;
use dora_node_api::{DoraNode, Event};
use std::error::Error;
use std::time::{SystemTime, UNIX_EPOCH};

const USAGE: &str =
    "bench_node streams TICKS LOG | clouds MESSAGES PERIOD_MS FOLDER LOG | relay | dense CONFIG | sink LOG";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["streams", ticks, log] => source::streams(ticks.parse()?, log),
        ["clouds", messages, period_ms, folder, log] => {
            source::clouds(messages.parse()?, period_ms.parse()?, folder, log)
        }
        ["relay"] => relay(),
        ["dense", config] => dense::run(config),
        ["sink", log] => sink::run(log),
        _ => Err(USAGE.into()),
    }
}

/// Runs the relay, which forwards each message unchanged. Its latency is the baseline that robocache's nodes are compared with.
fn relay() -> Result<(), Box<dyn Error>> {
    let output = DataId::from("relayed".to_owned());
    let (mut node, mut events) = DoraNode::init_from_env()?;
    while let Some(event) = events.recv() {
        if let Event::Input { metadata, data, .. } = event {
            node.send_output(output.clone(), metadata.parameters, data)?;
        }
    }
    Ok(())
}

/// Reads the wall clock, ns since 1970, which all processes of a machine share.
fn now_ns() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos() as i64)
}
