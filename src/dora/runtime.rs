//! dora's event loop.
//!
//! Two threads. The [drain](super::drain) takes dora's events in order of arrival and copies each payload out at once, into a
//! bounded queue. The node's own thread takes messages from the queue, runs the operations and publishes.

use super::drain::{Drain, LOOK_EVERY};
use super::limits::Limits;
use super::queue::{Bound, Item, Level, Losses, Note, Queue};
use super::sender::Sender;
use super::status::{self, Status};
use super::transport::wait_until_read;
use super::{NODE_CONFIG, NodeError};
use crate::app::{App, AppError, DIAGNOSTICS, Graph, Report, Run, Sink};
use dora_node_api::DoraNode;
use dora_node_api::futures::channel::oneshot;
use robocache_stream::Selector;
use robocache_yaml::did_you_mean;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long an ending node waits for its consumers to read what it sent.
const LINGER: Duration = Duration::from_secs(5);

/// What the dataflow wires to this node, from the environment variable that dora starts it with.
#[derive(Default, Deserialize)]
struct Wiring {
    #[serde(default)]
    dataflow_id: String,
    node_id: String,
    run_config: RunConfig,
}

#[derive(Default, Deserialize)]
struct RunConfig {
    #[serde(default)]
    inputs: BTreeMap<String, InputWiring>,
    #[serde(default)]
    outputs: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum InputWiring {
    WithOptions {
        #[serde(default)]
        queue_size: Option<usize>,
        #[serde(default)]
        queue_policy: Option<String>,
    },
    Source(#[allow(dead_code)] serde_yaml::Value),
}

impl InputWiring {
    fn bound(&self) -> Bound {
        match self {
            Self::WithOptions {
                queue_size,
                queue_policy,
            } => Bound::new(*queue_size, queue_policy.as_deref() == Some("backpressure")),
            Self::Source(_) => Bound::new(None, false),
        }
    }
}

/// `None` outside a dataflow, as in dora's testing mode.
fn wiring() -> Result<Option<Wiring>, NodeError> {
    match std::env::var(NODE_CONFIG) {
        Ok(text) => serde_yaml::from_str(&text)
            .map(Some)
            .map_err(|error| NodeError::Dora(format!("{NODE_CONFIG} can't be read: {error}"))),
        Err(_) => Ok(None),
    }
}

/// The run that a dataflow's number, a UUID, is of. dora's have the time of their start in them (version 7, RFC 9562), so that
/// every node has the same, however often it is started.
fn run_of(dataflow_id: &str) -> Option<Run> {
    let digits: String = dataflow_id.chars().filter(|&digit| digit != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32)?;
    let started = match number >> 76 & 0xf {
        7 => UNIX_EPOCH + Duration::from_millis((number >> 80) as u64),
        _ => SystemTime::now(),
    };
    Some(Run {
        id: dataflow_id.to_owned(),
        started,
    })
}

/// Builds the app, joins the dataflow and runs until it ends.
pub(super) fn run(app: App) -> Result<(), NodeError> {
    let wiring = wiring()?;
    let node_id = wiring
        .as_ref()
        .map_or("node", |wiring| wiring.node_id.as_str())
        .to_owned();
    let run = wiring.as_ref().and_then(|wiring| run_of(&wiring.dataflow_id));
    let wiring = wiring.map(|wiring| wiring.run_config);
    let limits = Limits::from_env();
    let folder = app.status().map(Path::to_owned).or_else(status::folder_of_env);
    let app = app
        .with_run(run)
        .with_wired_inputs(wiring.iter().flat_map(|wiring| wiring.inputs.keys().cloned()))
        .with_message_limit(move |output, bytes| limits.check(output, bytes));
    let mut graph = app.build(|output| wiring.as_ref().is_none_or(|wiring| wiring.outputs.contains(output)))?;
    let names: Vec<String> = graph.external_inputs().map(|(name, _)| name.to_owned()).collect();
    let mut bounds = Vec::with_capacity(names.len());
    for (name, operation) in graph.external_inputs() {
        let bound = match &wiring {
            Some(wiring) => wiring.inputs.get(name).map(InputWiring::bound),
            None => Some(Bound::new(None, false)),
        };
        bounds.push(bound.ok_or_else(|| {
            let wired = wiring.iter().flat_map(|wiring| wiring.inputs.keys());
            let wired: Vec<&str> = wired.map(String::as_str).collect();
            NodeError::NotWired {
                operation: operation.to_owned(),
                input: name.to_owned(),
                hint: did_you_mean(name, &wired),
                wired: wired.join(", "),
            }
        })?);
    }
    if let Some(wiring) = &wiring {
        warn_of_unknown_outputs(wiring, &graph);
    }
    let status = folder.map(|folder| Status::new(&folder, &node_id)).transpose()?;
    // An operation may have an output of that name, such as the replay of a recording.
    let is_own = !graph.outputs().any(|output| output == DIAGNOSTICS);
    let is_wanted = wiring
        .as_ref()
        .is_some_and(|wiring| wiring.outputs.contains(DIAGNOSTICS));
    let diagnostics = Diagnostics {
        node: node_id,
        is_published: is_own && is_wanted,
        status,
    };
    if diagnostics.are_wanted() {
        graph.gather_diagnostics();
    }
    let (node, events) = DoraNode::init_from_env().map_err(why_not_joined)?;
    let queue = Arc::new(Queue::new(&bounds, graph.host_memory()));
    let (stop, stopped) = oneshot::channel();
    let drain = std::thread::Builder::new().name("drain".into()).spawn({
        let takes_any = (0..names.len()).map(|input| graph.takes_any(input)).collect();
        let readings = (0..names.len()).map(|input| graph.reading(input).unwrap_or_default());
        let selectors = readings.map(Selector::new).collect();
        let drain = Drain::new(names.clone(), takes_any, selectors, queue.clone());
        move || drain.run(events, stopped)
    });
    let drain = drain.map_err(|error| NodeError::Dora(format!("the drain thread can't be started: {error}")))?;
    let mut sender = Sender::new(node, graph.residences());
    let result = work(&mut graph, &queue, names, &diagnostics, &mut sender);
    diagnostics.end(result.is_ok(), &mut graph, &queue, &mut sender);
    queue.end();
    // If dora ended the node, the drain has ended already and nobody listens.
    let _ = stop.send(());
    let events = drain.join();
    wait_until_read(LINGER);
    drop(events);
    drop(sender);
    Ok(result?)
}

/// Warns of outputs in the dataflow that no operation publishes.
fn warn_of_unknown_outputs(wiring: &RunConfig, graph: &Graph) {
    for output in &wiring.outputs {
        if output != DIAGNOSTICS && !graph.outputs().any(|known| known == output) {
            let known: Vec<&str> = graph.outputs().collect();
            tracing::warn!(
                "output `{output}` stands in the dataflow, but no operation of this node publishes it{} (published: {})",
                did_you_mean(output, &known),
                if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                }
            );
        }
    }
}

/// Where the diagnostics of the node go.
struct Diagnostics {
    node: String,
    is_published: bool,
    status: Option<Status>,
}

impl Diagnostics {
    fn are_wanted(&self) -> bool {
        self.is_published || self.status.is_some()
    }

    /// The report of the last second, where one is wanted.
    fn report(&self, graph: &mut Graph, queue: &Queue) -> Option<Report> {
        let mut report = graph.report(Instant::now())?;
        report.node.clone_from(&self.node);
        report.queue_depth = queue.take_depth() as u64;
        Some(report)
    }

    fn publish(&self, report: &Report, sender: &mut Sender) {
        if !self.is_published {
            return;
        }
        let sent = sender.send(DIAGNOSTICS, &report.layout(), &mut |payload, header| {
            report.write(payload);
            report.describe(header);
        });
        if let Err(error) = sent {
            tracing::error!("output `{DIAGNOSTICS}`: {error}");
        }
    }

    /// Says how the node is.
    fn say(&self, graph: &mut Graph, queue: &Queue, sender: &mut Sender) {
        if let Some(report) = self.report(graph, queue) {
            self.publish(&report, sender);
            if let Some(status) = &self.status {
                status.put(report);
            }
        }
    }

    /// Says how the node was when it ended, in order or not.
    fn end(self, ended: bool, graph: &mut Graph, queue: &Queue, sender: &mut Sender) {
        if let Some(report) = self.report(graph, queue) {
            self.publish(&report, sender);
            if let Some(status) = self.status {
                status.end(Report { ended, ..report });
            }
        }
    }
}

fn work(
    graph: &mut Graph,
    queue: &Queue,
    names: Vec<String>,
    diagnostics: &Diagnostics,
    sender: &mut Sender,
) -> Result<(), AppError> {
    graph.wake(Instant::now(), true, sender)?;
    let mut look = Instant::now() + LOOK_EVERY;
    let mut unstamped = Unstamped::new(names);
    loop {
        if graph.is_done() {
            break;
        }
        let deadline = graph.next_wake().map_or(look, |wake| wake.min(look));
        let item = queue.pop(Some(deadline));
        let now = Instant::now();
        if now >= look {
            look = now + LOOK_EVERY;
            unstamped.warn();
            graph.say_unsaid(now);
            diagnostics.say(graph, queue, sender);
        }
        match item {
            None => {}
            Some(Item::Message { input, mut message }) => {
                match message.is_unread {
                    false => graph.owned_message(input, &mut message, sender),
                    true => graph.unread_message(input, &message, sender),
                }
                queue.give_back(input, message);
            }
            Some(Item::Losses { input, losses }) => {
                unstamped.count(input, losses.unstamped);
                count_losses(graph, input, &losses);
            }
            Some(Item::Changed { input, change }) => graph.changed(input, change, sender),
            Some(Item::Note(Note::Parameter { key, value })) => graph.parameter(&key, &value, sender),
            Some(Item::Note(Note::Log { level, text })) => match level {
                Level::Error => tracing::error!("{text}"),
                Level::Warning => tracing::warn!("{text}"),
                Level::Info => tracing::info!("{text}"),
            },
            Some(Item::Note(Note::End { inputs_closed })) => {
                if inputs_closed {
                    graph.close_all(sender);
                }
                break;
            }
            Some(Item::NotesLost(count)) => {
                tracing::error!("{count} lines for the log or live parameters came while there was no time for them");
            }
        }
        graph.wake(now, false, sender)?;
    }
    unstamped.summarize();
    graph.finish(sender)
}

fn count_losses(graph: &mut Graph, input: usize, losses: &Losses) {
    if losses.unreadable > 0 {
        graph.external_fault(input, losses.unreadable, &losses.error);
    }
    let warnings = [
        (
            "overload",
            losses.dropped,
            "overloaded: the oldest messages were dropped",
        ),
        ("lost by dora", losses.lost_by_dora, "dora dropped messages"),
    ];
    for (kind, count, message) in warnings {
        if count > 0 {
            graph.external_loss(input, kind, count, message);
        }
    }
}

/// dora's own words for most of what can go wrong are `internal error`.
fn why_not_joined(error: dora_node_api::NodeError) -> NodeError {
    NodeError::Dora(match error {
        dora_node_api::NodeError::Internal(report) => format!("{report:#}"),
        other => other.to_string(),
    })
}

/// Counts messages without a stamp, and warns once of each input that has them.
struct Unstamped {
    names: Vec<String>,
    counts: Vec<u64>,
    warned: Vec<bool>,
}

impl Unstamped {
    fn new(names: Vec<String>) -> Self {
        Self {
            counts: vec![0; names.len()],
            warned: vec![false; names.len()],
            names,
        }
    }

    fn count(&mut self, input: usize, times: u64) {
        self.counts[input] += times;
    }

    /// Names all new inputs in one line, as senders without stamps seldom come alone.
    fn warn(&mut self) {
        let is_new = |input: &usize| self.counts[*input] > 0 && !self.warned[*input];
        let new: Vec<usize> = (0..self.names.len()).filter(is_new).collect();
        if !new.is_empty() {
            tracing::warn!(
                "no `timestamp_ns` in messages of {}: each gets the time of its publication instead",
                self.list(&new, " so far")
            );
        }
        new.into_iter().for_each(|input| self.warned[input] = true);
    }

    fn summarize(&mut self) {
        self.warn();
        let inputs: Vec<usize> = (0..self.names.len()).filter(|&input| self.counts[input] > 0).collect();
        let count: u64 = self.counts.iter().sum();
        if count > 0 {
            tracing::info!(
                "messages without `timestamp_ns`: {count} in all, of {}",
                self.list(&inputs, "")
            );
        }
    }

    fn list(&self, inputs: &[usize], until: &str) -> String {
        let words = inputs
            .iter()
            .map(|&input| format!("input `{}` ({}{until})", self.names[input], self.counts[input]));
        words.collect::<Vec<_>>().join(", ")
    }
}
