//! The event loop of a node: two threads, with a bounded queue between them.
//!
//! The [drain](super::drain) takes dora's events in order of arrival, and copies each payload out at once, into the queue. The
//! node's own thread takes messages from the queue, runs the operations and publishes.

use super::NodeError;
use super::drain::{Drain, LOOK_EVERY};
use super::queue::{Bound, Item, Losses, Note, Queue};
use super::sender::Sender;
use super::status::{self, Status};
use super::transport::wait_until_read;
use super::wiring::Wiring;
use crate::app::{App, AppError, DIAGNOSTICS, Graph, Report, Severity, Sink};
use dora_node_api::DoraNode;
use dora_node_api::futures::channel::oneshot;
use robocache_stream::Selector;
use robocache_yaml::{did_you_mean, listed};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time that an ending node gives its consumers to read its last messages.
const LINGER: Duration = Duration::from_secs(5);

/// Builds the app, joins the dataflow and runs until the dataflow ends, all inputs are closed or an operation fails.
pub(super) fn run(app: App) -> Result<(), NodeError> {
    let wiring = Wiring::from_env()?;
    let wired: Vec<String> = wiring.iter().flat_map(Wiring::inputs).map(str::to_owned).collect();
    let folder = app.status().map(Path::to_owned).or_else(status::folder_of_env);
    let limits = wiring.clone();
    let app = app
        .with_run(wiring.as_ref().and_then(Wiring::run))
        .with_wired_inputs(wired.iter().cloned())
        .with_message_limit(move |output, bytes| limits.as_ref().map_or(Ok(()), |of| of.check(output, bytes)));
    let mut graph = app.build(|output| wiring.as_ref().is_none_or(|wiring| wiring.outputs().contains(output)))?;
    let names: Vec<String> = graph.external_inputs().map(|(name, _)| name.to_owned()).collect();
    let mut bounds = Vec::with_capacity(names.len());
    for (name, operation) in graph.external_inputs() {
        let bound = match &wiring {
            Some(wiring) => wiring.bound(name),
            None => Some(Bound::new(None, false)),
        };
        bounds.push(bound.ok_or_else(|| {
            let (hint, wired) = (did_you_mean(name, &wired), wired.join(", "));
            let problem = format!("input `{name}` is not wired in the dataflow{hint} (wired: {wired})");
            NodeError::Config(format!("{operation}: {problem}"))
        })?);
    }
    if let Some(wiring) = &wiring {
        warn_of_unknown_outputs(wiring, &graph);
    }
    let node_id = wiring.as_ref().map_or("node", |wiring| &wiring.node_id).to_owned();
    let status = folder.map(|folder| Status::new(&folder, &node_id)).transpose()?;
    // An operation may have an output of that name, such as the replay of a recording.
    let is_own = !graph.outputs().any(|output| output == DIAGNOSTICS);
    let is_wanted = wiring.is_some_and(|wiring| wiring.outputs().contains(DIAGNOSTICS));
    let diagnostics = Diagnostics {
        node: node_id,
        is_published: is_own && is_wanted,
        status,
    };
    if diagnostics.is_published || diagnostics.status.is_some() {
        graph.gather_diagnostics();
    }
    let (node, events) = DoraNode::init_from_env().map_err(why_not_joined)?;
    let queue = Arc::new(Queue::new(&bounds, graph.host_memory()));
    let (stop, stopped) = oneshot::channel();
    let drain = std::thread::Builder::new().name("drain".into()).spawn({
        let takes_any = (0..names.len()).map(|input| graph.takes_any(input)).collect();
        let selections = (0..names.len()).map(|input| graph.selection(input).unwrap_or_default());
        let selectors = selections.map(Selector::new).collect();
        let drain = Drain::new(names.clone(), takes_any, selectors, queue.clone());
        move || drain.run(events, stopped)
    });
    let drain = drain.map_err(|error| NodeError::Dora(format!("the drain thread can't be started: {error}")))?;
    let mut sender = Sender::new(node, graph.residences());
    let result = work(&mut graph, &queue, names, &diagnostics, &mut sender);
    let report = diagnostics.report(&mut graph, &queue, &mut sender);
    if let (Some(report), Some(status)) = (report, diagnostics.status) {
        let ended = result.is_ok();
        status.end(Report { ended, ..report });
    }
    // The queue ends first, so that the drain does not wait for room in it. Dropping the sender closes the outputs, so it lives
    // until consumers have read the last messages.
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
fn warn_of_unknown_outputs(wiring: &Wiring, graph: &Graph) {
    for output in wiring.outputs() {
        if output != DIAGNOSTICS && !graph.outputs().any(|known| known == output) {
            let known: Vec<&str> = graph.outputs().collect();
            tracing::warn!(
                "output `{output}` stands in the dataflow, but no operation of this node publishes it{} (published: {})",
                did_you_mean(output, &known),
                listed(&known)
            );
        }
    }
}

/// Destinations of the node's diagnostics: an output, a status file, or neither.
struct Diagnostics {
    node: String,
    is_published: bool,
    status: Option<Status>,
}

impl Diagnostics {
    /// Makes the report of the last second, and publishes it if the dataflow wants it. `None` if no report is wanted.
    fn report(&self, graph: &mut Graph, queue: &Queue, sender: &mut Sender) -> Option<Report> {
        let mut report = graph.report(Instant::now())?;
        report.node.clone_from(&self.node);
        report.queue_depth = queue.take_depth() as u64;
        if self.is_published {
            let sent = sender.send(DIAGNOSTICS, &report.layout(), &mut |payload, header| {
                report.write(payload);
                report.describe(header);
            });
            sent.unwrap_or_else(|error| tracing::error!("output `{DIAGNOSTICS}`: {error}"));
        }
        Some(report)
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
    let mut next_look = Instant::now() + LOOK_EVERY;
    let mut unstamped = Unstamped(names.into_iter().map(|name| (name, 0, false)).collect());
    while !graph.is_done() {
        let deadline = graph.next_wake().map_or(next_look, |wake| wake.min(next_look));
        let item = queue.pop(Some(deadline));
        let now = Instant::now();
        if now >= next_look {
            next_look = now + LOOK_EVERY;
            unstamped.warn();
            graph.log_suppressed(now);
            let report = diagnostics.report(graph, queue, sender);
            if let (Some(report), Some(status)) = (report, &diagnostics.status) {
                status.put(report);
            }
        }
        match item {
            None => {}
            Some(Item::Message { input, mut message }) => {
                graph.owned_message(input, &mut message, sender);
                queue.give_back(input, message);
            }
            Some(Item::Losses { input, losses }) => {
                unstamped.0[input].1 += losses.unstamped;
                count_losses(graph, input, &losses);
            }
            Some(Item::Changed { input, change }) => graph.changed(input, change, sender),
            Some(Item::Note(Note::Parameter { key, value })) => graph.parameter(&key, &value, sender),
            Some(Item::Note(Note::Log { level, text })) => match level {
                Severity::Error => tracing::error!("{text}"),
                Severity::Warning => tracing::warn!("{text}"),
                Severity::Info => tracing::info!("{text}"),
            },
            Some(Item::Note(Note::End { inputs_closed })) => {
                if inputs_closed {
                    graph.close_all(sender);
                }
                break;
            }
            Some(Item::NotesLost(count)) => {
                tracing::error!("{count} log lines or live parameters were dropped: more than 1024 waited");
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
    if losses.dropped > 0 {
        graph.external_loss(
            input,
            "overload",
            losses.dropped,
            "overloaded: the oldest messages were dropped",
        );
    }
    if losses.lost_by_dora > 0 {
        graph.external_loss(
            input,
            "lost by dora",
            losses.lost_by_dora,
            "dora dropped messages (a longer `queue_size` of the input keeps more)",
        );
    }
}

/// Converts dora's error of joining a dataflow. For most errors dora's own text is `internal error`, so it is replaced by
/// the causes.
fn why_not_joined(error: dora_node_api::NodeError) -> NodeError {
    NodeError::Dora(match error {
        dora_node_api::NodeError::Internal(report) => format!("{report:#}"),
        other => other.to_string(),
    })
}

/// Inputs with unstamped messages: the name, the number of these messages, and true once a warning has named the input.
struct Unstamped(Vec<(String, u64, bool)>);

impl Unstamped {
    /// Warns, in one line, of all inputs with unstamped messages that no line has named yet, because several inputs often have
    /// the same problem.
    fn warn(&mut self) {
        let new = self.list(|is_warned| !is_warned, " so far");
        if !new.is_empty() {
            tracing::warn!("no `timestamp_ns` in messages of {new}: each gets the time of its publication instead");
        }
        self.0
            .iter_mut()
            .for_each(|(_, count, is_warned)| *is_warned = *count > 0);
    }

    fn summarize(&mut self) {
        self.warn();
        let count: u64 = self.0.iter().map(|(_, count, _)| count).sum();
        if count > 0 {
            let inputs = self.list(|_| true, "");
            tracing::info!("messages without `timestamp_ns`: {count} in all, of {inputs}");
        }
    }

    fn list(&self, is_meant: impl Fn(bool) -> bool, until: &str) -> String {
        let inputs = self
            .0
            .iter()
            .filter(|(_, count, is_warned)| *count > 0 && is_meant(*is_warned));
        let words = inputs.map(|(name, count, _)| format!("input `{name}` ({count}{until})"));
        words.collect::<Vec<_>>().join(", ")
    }
}
