//! Checks the wiring of a node's inputs: their names, queues, back-pressure, types and triggers. Rates and sizes are checked
//! only if they are known.

use super::node::{Checker, RobocacheNode};
use crate::check::dataflow::{Edge, Node, parts_of_type};
use crate::check::facts::{Kind, StreamFacts};
use crate::check::section::least_queue;
use crate::config::{Operation, Section};
use crate::output::{bytes, figure};
use robocache::app::did_you_mean;
use robocache::ops::align::TriggerConfig;

/// Maximum size of the messages in a full queue without a warning, bytes.
const LARGE_QUEUE: u64 = 1 << 30;

/// True if the node waits for every message, as suits recorded data: its `max_wait_ms` is `null`, or it resamples.
fn is_offline(own: &RobocacheNode<'_>) -> bool {
    own.built.operations.iter().any(|operation| match &operation.section {
        Section::Observe(config) => config.max_wait_ms.is_none(),
        // Resample is for training data.
        Section::Resample => true,
        _ => false,
    })
}

impl Checker<'_> {
    pub(super) fn inputs(&mut self, own: &RobocacheNode<'_>, at: &str) {
        let takes_any = own
            .built
            .operations
            .iter()
            .any(|operation| matches!(operation.section, Section::Record(_)));
        let wired: Vec<(&str, Edge)> = own.node.edges().collect();
        for input in &own.built.inputs {
            if !wired.iter().any(|(name, _)| name == input) {
                let names: Vec<&str> = wired.iter().map(|(name, _)| *name).collect();
                let problem = format!(
                    "{} asks for `{input}`, which is not wired{} (wired: {})",
                    own.config.display(),
                    did_you_mean(input, &names),
                    if names.is_empty() {
                        "nothing".to_owned()
                    } else {
                        names.join(", ")
                    }
                );
                self.findings.error(self.file, format!("{at}.inputs"), problem);
            }
        }
        for (i, (input, edge)) in wired.iter().enumerate() {
            let at = format!("{at}.inputs.{input}");
            if !takes_any && !own.built.inputs.iter().any(|name| name == input) {
                let problem = format!(
                    "wired, and {} does not ask for it (it asks for: {})",
                    own.config.display(),
                    own.built.inputs.join(", ")
                );
                self.findings.warn(self.file, &at, problem);
            }
            if let Some((other, _)) = wired[..i].iter().find(|(_, other)| other.source == edge.source) {
                self.findings.warn(
                    self.file,
                    &at,
                    format!(
                        "wired to `{}`, as `{other}` is: each of its messages comes twice",
                        edge.source
                    ),
                );
            }
            self.edge(own, input, edge, &at);
        }
    }

    /// Checks the wiring of one input: the messages that reach it, its queue and its types.
    fn edge(&mut self, own: &RobocacheNode<'_>, input: &str, edge: &Edge, at: &str) {
        let known = self.streams.of(&edge.source);
        if let Some(why) = &known.silent {
            self.findings
                .error(self.file, at, format!("nothing comes from `{}`: {why}", edge.source));
            return;
        }
        if let Some(why) = &known.unpaced
            && !edge.is_lossless()
        {
            let problem = format!(
                "`{}` is sent as fast as it is taken ({why}): messages are lost (allowed: `queue_policy: backpressure`)",
                edge.source
            );
            self.findings.warn(self.file, format!("{at}.queue_policy"), problem);
        }
        if edge.is_lossless() {
            if known.is_live() {
                self.warn_of_holding_up(edge, at);
            } else if known.rate_hz.is_none() && known.unpaced.is_none() && !is_offline(own) {
                let problem = format!(
                    "backpressure, and nothing says that `{}` is a replay: a slow node holds a live sensor up \
                     (allowed for a sensor: `queue_size` without `queue_policy`)",
                    edge.source
                );
                self.findings.warn(self.file, format!("{at}.queue_policy"), problem);
            }
        }
        let typed = own.node.input_types.get(input);
        self.width(typed, &known, &format!("nodes.{}.input_types.{input}", own.node.id));
        let sent = edge.source.split_once('/').and_then(|(id, output)| {
            let sender = self.streams.dataflow.nodes.iter().find(|node| node.id == id)?;
            sender.output_types.get(output)
        });
        self.configured_width(own, input, typed.or(sent));
        if !edge.is_lossless()
            && let Some(queue_size) = edge.queue_size
        {
            let at = format!("{at}.queue_size");
            if !self.queue(queue_size, edge, &known, &at) && known.rate_hz.is_none() {
                self.queue_by_config(own, input, queue_size, &at);
            }
        }
    }

    /// Warns of inputs whose back-pressure may hold up a live sensor. `node` is not one of robocache's.
    pub(super) fn held_up(&mut self, node: &Node) {
        for (input, edge) in node.edges() {
            if edge.is_lossless() && self.streams.of(&edge.source).is_live() {
                self.warn_of_holding_up(&edge, &format!("nodes.{}.inputs.{input}", node.id));
            }
        }
    }

    fn warn_of_holding_up(&mut self, edge: &Edge, at: &str) {
        let problem = format!(
            "backpressure, and `{}` is live: a slow node holds its sensor up (allowed: `queue_size` without `queue_policy`)",
            edge.source
        );
        self.findings.warn(self.file, format!("{at}.queue_policy"), problem);
    }

    /// Checks that an input's queue is long enough for the message rate that the configuration implies. Used if the stream's
    /// rate is not known otherwise.
    fn queue_by_config(&mut self, own: &RobocacheNode<'_>, input: &str, queue_size: usize, at: &str) {
        let said = own
            .built
            .operations
            .iter()
            .filter_map(|operation| match &operation.section {
                Section::Observe(config) => least_queue(config, input),
                _ => None,
            });
        let Some((needed, said)) = said.max() else { return };
        if queue_size < needed {
            let problem = format!(
                "{queue_size}, and messages of `{input}` come {said}: a busy node loses some (allowed: {needed} or more)"
            );
            self.findings.warn(self.file, at, problem);
        }
    }

    /// Checks that a queue is long enough for the messages that arrive while the node is busy. Returns true if it is too short.
    /// Also warns of a queue that may hold too many bytes.
    fn queue(&mut self, queue_size: usize, edge: &Edge, known: &StreamFacts, at: &str) -> bool {
        let is_large = matches!(known.kind, Some(Kind::Cloud(_) | Kind::Grid(_)));
        let needed = match known.rate_hz {
            // One message is processed while one waits.
            _ if is_large => 2,
            Some(rate) => rate.round() as usize,
            None => 0,
        };
        let is_short = queue_size < needed && known.kind != Some(Kind::Tick);
        if is_short {
            let problem = match (is_large, known.rate_hz) {
                (false, Some(rate)) => format!(
                    "{queue_size}, and `{}` has {} messages a second: a busy node loses some (allowed: a second of them, \
                     {needed} or more)",
                    edge.source,
                    figure(rate)
                ),
                _ => format!("{queue_size}: while one is worked on the next is lost (allowed: {needed} or more)"),
            };
            self.findings.warn(self.file, at, problem);
        }
        let held = known.bytes.unwrap_or(0).saturating_mul(queue_size as u64);
        if held > LARGE_QUEUE {
            let problem = format!(
                "{queue_size} messages of `{}` may take {}: a smaller `queue_size` takes less",
                edge.source,
                bytes(held)
            );
            self.findings.warn(self.file, at, problem);
        }
        is_short
    }

    /// Checks that a modality's `dim` equals the `dim` of the type `urn`, which the dataflow declares for the input.
    fn configured_width(&mut self, own: &RobocacheNode<'_>, input: &str, urn: Option<&String>) {
        let Some(dim) = urn.and_then(|urn| parts_of_type(urn)?.1) else {
            return;
        };
        for operation in &own.built.operations {
            let Section::Observe(config) = &operation.section else {
                continue;
            };
            for (m, modality) in config.modalities.iter().enumerate() {
                if modality.input == input && modality.dim != dim {
                    let at = format!("{}.modalities[{m}].dim", operation.label());
                    let problem = format!("{}, and the dataflow's type of `{input}` has dim={dim}", modality.dim);
                    self.findings.error(&own.config, at, problem);
                }
            }
        }
    }

    /// Checks the trigger of an operation's observations. A node that requests observations must read an output of this node, and a
    /// timer must not tick faster than the fastest stream.
    pub(super) fn trigger(&mut self, own: &RobocacheNode<'_>, operation: &Operation) {
        let Section::Observe(config) = &operation.section else {
            return;
        };
        let at = format!("{}.trigger", operation.label());
        match &config.trigger {
            Some(TriggerConfig::Request { request }) => {
                let Some(edge) = own.node.edge(request) else { return };
                let asker = edge.source.split('/').next().unwrap_or_default();
                if asker == "dora" {
                    let problem = format!(
                        "`{request}` is wired to a timer, whose ticks ask for no time (allowed: `timer: {request}`)"
                    );
                    self.findings.error(&own.config, at, problem);
                } else if !own.node.outputs.iter().any(|output| {
                    let mut takers = self.streams.dataflow.takers(&own.node.id, output);
                    takers.any(|(taker, ..)| taker.id == asker)
                }) {
                    let problem = format!(
                        "`{asker}` asks by `{request}`, and reads no output of `{}` (needed: an input of it that takes the answers)",
                        own.node.id
                    );
                    self.findings.error(&own.config, at, problem);
                }
            }
            Some(TriggerConfig::Timer { timer }) => {
                let rate = own
                    .node
                    .edge(timer)
                    .and_then(|edge| self.streams.of(&edge.source).rate_hz);
                let rates = config
                    .modalities
                    .iter()
                    .map(|modality| self.streams.input(own.node, &[], &modality.input).rate_hz);
                let fastest = rates
                    .collect::<Option<Vec<f64>>>()
                    .and_then(|rates| rates.into_iter().reduce(f64::max));
                if let (Some(rate), Some(fastest)) = (rate, fastest)
                    && rate > fastest
                {
                    let problem = format!(
                        "`{timer}` ticks {} times a second, and the fastest stream has {} Hz: other ticks bring nothing new",
                        figure(rate),
                        figure(fastest)
                    );
                    self.findings.warn(&own.config, at, problem);
                }
            }
            _ => {}
        }
    }
}
