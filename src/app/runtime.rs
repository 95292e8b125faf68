//! dora's event loop.
//!
//! A thread of its own drains dora's events in the order in which they arrive and copies the payloads out at once, into
//! a bounded queue; the thread of the node takes them from there, runs the operations and publishes.

use super::operation::Change;
use super::queue::{Bound, Item, Queue};
use super::sender::Sender;
use super::transport::wait_until_read;
use super::{App, AppError, Graph, read_message};
use dora_node_api::futures::channel::oneshot;
use dora_node_api::futures::future::{Either, select};
use dora_node_api::futures::{StreamExt, executor::block_on};
use dora_node_api::{DoraNode, Event, EventStream, Metadata, StopCause};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For how long an ending node waits for its consumers to read what it sent.
const LINGER: Duration = Duration::from_secs(5);

/// How often the drops are looked at.
const CHECK_DROPS_EVERY: Duration = Duration::from_secs(1);

/// What the dataflow wires to this node, from the environment variable that dora starts it with.
#[derive(Default, Deserialize)]
struct Wiring {
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
fn wiring() -> Result<Option<RunConfig>, AppError> {
    match std::env::var("DORA_NODE_CONFIG") {
        Ok(text) => serde_yaml::from_str::<Wiring>(&text)
            .map(|wiring| Some(wiring.run_config))
            .map_err(|error| AppError::Dora(format!("DORA_NODE_CONFIG can't be read: {error}"))),
        Err(_) => Ok(None),
    }
}

pub(super) fn run(app: App) -> Result<(), AppError> {
    let wiring = wiring()?;
    let app = app.with_wired_inputs(wiring.iter().flat_map(|wiring| wiring.inputs.keys().cloned()));
    let mut graph = app.build(|output| wiring.as_ref().is_none_or(|wiring| wiring.outputs.contains(output)))?;
    let names: Vec<String> = graph.external_inputs().map(|(name, _)| name.to_owned()).collect();
    let mut bounds = Vec::with_capacity(names.len());
    for (name, operation) in graph.external_inputs() {
        let bound = match &wiring {
            Some(wiring) => wiring.inputs.get(name).map(InputWiring::bound),
            None => Some(Bound::new(None, false)),
        };
        bounds.push(bound.ok_or_else(|| {
            AppError::NotWired {
                operation: operation.to_owned(),
                input: name.to_owned(),
                wired: wiring
                    .iter()
                    .flat_map(|wiring| wiring.inputs.keys().cloned())
                    .collect::<Vec<_>>()
                    .join(", "),
            }
        })?);
    }
    let (node, events) = DoraNode::init_from_env().map_err(|error| AppError::Dora(error.to_string()))?;
    let queue = Arc::new(Queue::new(&bounds));
    let inputs = names.len();
    let (stop, stopped) = oneshot::channel();
    let drain = std::thread::Builder::new().name("drain".into()).spawn({
        let queue = queue.clone();
        move || Drain::new(names, queue).run(events, stopped)
    });
    let drain = drain.map_err(|error| AppError::Dora(format!("the drain thread can't be started: {error}")))?;
    let mut sender = Sender::new(node);
    let result = work(&mut graph, &queue, inputs, &mut sender);
    queue.end();
    // The drain has ended by itself where dora ended the node; then nobody listens.
    let _ = stop.send(());
    let events = drain.join();
    wait_until_read(LINGER);
    drop(events);
    drop(sender);
    result
}

fn work(graph: &mut Graph, queue: &Queue, inputs: usize, sender: &mut Sender) -> Result<(), AppError> {
    graph.wake(Instant::now(), true, sender)?;
    let mut check_drops = Instant::now() + CHECK_DROPS_EVERY;
    let mut unstamped = 0u64;
    loop {
        if graph.is_done() {
            break;
        }
        let deadline = graph.next_wake().map_or(check_drops, |wake| wake.min(check_drops));
        let item = queue.pop(Some(deadline));
        let now = Instant::now();
        if now >= check_drops {
            check_drops = now + CHECK_DROPS_EVERY;
            count_drops(graph, queue, inputs);
            graph.say_unsaid(now);
        }
        match item {
            None => {}
            Some(Item::Message { input, message }) => {
                graph.message(input, &message, sender);
                queue.give_back(input, message);
            }
            Some(Item::Unreadable { input, error }) => graph.external_fault(input, 1, error),
            Some(Item::Unstamped) => {
                if unstamped == 0 {
                    tracing::warn!("a message has no `timestamp_ns`: it gets the time of its publication instead");
                }
                unstamped += 1;
            }
            Some(Item::Closed { input }) => graph.changed(input, Change::Closed, sender),
            Some(Item::Opened { input }) => graph.changed(input, Change::Opened, sender),
            Some(Item::Parameter { key, value }) => graph.parameter(&key, &value, sender),
            Some(Item::Log { is_error: true, text }) => tracing::error!("{text}"),
            Some(Item::Log { is_error: false, text }) => tracing::warn!("{text}"),
            Some(Item::LostByDora { input, count }) => {
                graph.external_warning(input, "lost by dora", count, "dora dropped messages");
            }
            Some(Item::End { inputs_closed }) => {
                if inputs_closed {
                    graph.close_all(sender);
                }
                break;
            }
        }
        graph.wake(now, false, sender)?;
    }
    count_drops(graph, queue, inputs);
    if unstamped > 0 {
        tracing::info!("messages without `timestamp_ns`: {unstamped} in all");
    }
    graph.finish(sender)
}

fn count_drops(graph: &mut Graph, queue: &Queue, inputs: usize) {
    for input in 0..inputs {
        let dropped = queue.take_dropped(input);
        if dropped > 0 {
            graph.external_warning(
                input,
                "overload",
                dropped,
                "overloaded: the oldest messages were dropped",
            );
        }
    }
}

/// The thread that drains dora's events.
struct Drain {
    names: Vec<String>,
    queue: Arc<Queue>,
    ignored: BTreeSet<String>,
    check_drops: Instant,
}

impl Drain {
    fn new(names: Vec<String>, queue: Arc<Queue>) -> Self {
        Self {
            names,
            queue,
            ignored: BTreeSet::new(),
            check_drops: Instant::now() + CHECK_DROPS_EVERY,
        }
    }

    /// Runs until the stream ends or the node does, and gives it back so that it is closed after the last output.
    fn run(mut self, mut events: EventStream, mut stopped: oneshot::Receiver<()>) -> EventStream {
        loop {
            // The `Stream` implementation keeps the order of arrival; `recv` does not.
            let event = match block_on(select(events.next(), &mut stopped)) {
                Either::Left((event, _)) => event,
                Either::Right(_) => return events,
            };
            match event {
                Some(Event::Stop(cause)) => {
                    self.count_losses(&mut events);
                    self.queue.push(Item::End {
                        inputs_closed: matches!(cause, StopCause::AllInputsClosed),
                    });
                    return events;
                }
                Some(event) => self.handle(event),
                None => {
                    self.queue.push(Item::End { inputs_closed: true });
                    return events;
                }
            }
            if Instant::now() >= self.check_drops {
                self.count_losses(&mut events);
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Input { id, metadata, data } => match self.place(id.as_ref()) {
                Some(input) => self.input(input, &metadata, data.as_array()),
                None => {
                    if self.ignored.insert(id.to_string()) {
                        let text = format!("input `{id}` is wired, but no operation listens to it");
                        self.queue.push(Item::Log { is_error: false, text });
                    }
                }
            },
            Event::InputClosed { id } => {
                if let Some(input) = self.place(id.as_ref()) {
                    self.queue.push(Item::Closed { input });
                }
            }
            Event::InputRecovered { id } => {
                if let Some(input) = self.place(id.as_ref()) {
                    self.queue.push(Item::Opened { input });
                }
            }
            Event::NodeFailed {
                affected_input_ids,
                error,
                source_node_id,
            } => {
                let inputs: Vec<String> = affected_input_ids.iter().map(ToString::to_string).collect();
                let text = format!("node `{source_node_id}` failed (inputs {}): {error}", inputs.join(", "));
                self.queue.push(Item::Log { is_error: true, text });
            }
            Event::NodeRestarted { id } => {
                let text = format!("node `{id}` is back");
                self.queue.push(Item::Log { is_error: false, text });
            }
            Event::ParamUpdate { key, value } => self.queue.push(Item::Parameter { key, value }),
            Event::ParamDeleted { key } => {
                let text = format!("parameter `{key}` was deleted: its last value stays");
                self.queue.push(Item::Log { is_error: false, text });
            }
            Event::Error(text) => self.queue.push(Item::Log { is_error: true, text }),
            _ => {}
        }
    }

    fn place(&self, id: &str) -> Option<usize> {
        self.names.iter().position(|name| name == id)
    }

    fn input(&self, input: usize, metadata: &Metadata, array: &arrow::array::ArrayRef) {
        let mut message = self.queue.take_free(input);
        message.timestamp_ns = unix_ns(metadata);
        match read_message(&metadata.parameters, array, &mut message) {
            Ok(stamped) => {
                if !stamped {
                    self.queue.push(Item::Unstamped);
                }
                self.queue.push_message(input, message);
            }
            Err(error) => {
                self.queue.give_back(input, message);
                self.queue.push(Item::Unreadable {
                    input,
                    error: error.to_string(),
                });
            }
        }
    }

    fn count_losses(&mut self, events: &mut EventStream) {
        self.check_drops = Instant::now() + CHECK_DROPS_EVERY;
        for (id, count) in events.drain_drop_counts() {
            if let Some(input) = self.place(id.as_ref()).filter(|_| count > 0) {
                self.queue.push(Item::LostByDora { input, count });
            }
        }
    }
}

/// The time at which dora published the message, ns since the Unix epoch.
fn unix_ns(metadata: &Metadata) -> i64 {
    let since_epoch = metadata.timestamp().get_time().to_duration();
    i64::try_from(since_epoch.as_nanos()).unwrap_or(i64::MAX)
}
