//! Plugin `group`: publishes messages of several streams, unchanged, in sets with the same or nearly the same stamp.
//!
//! Each message is published in one set, or counted with the reason why it is in no set.

mod silence;

use super::{add, report_losses, warn_of_jump};
use crate::app::pool::HeldPools;
use crate::app::{AppError, BuildContext, Change, Diagnosis, Dropped, Fault, HealthIssue, Operation, Outbox, Wake};
use robocache_ops::group::{Arrival, DropReason, Grouper, GroupingConfig, Outcome, SetInfo};
use robocache_ops::{self as ops, group};
use robocache_stream::{Header, Layout, Message};
use robocache_time::ns_to_ms;
use silence::Silence;
use std::time::Instant;

plugin! {
    /// Plugin that publishes sets of messages, one of each input of `group:`, each on the output of its input's name.
    GroupPlugin(GroupingConfig), "group": "Publishes messages that belong together in sets, each on an output of its input's name."
}

fn build(config: GroupingConfig, context: &mut BuildContext<'_>) -> Result<(), AppError> {
    let grouper = Grouper::new(&config).map_err(|error| context.refused(&error))?;
    let inputs: Vec<String> = grouper.inputs().map(str::to_owned).collect();
    let operation = Group {
        silence: Silence::new(context.name(), &inputs),
        pools: HeldPools::new(inputs.len(), grouper.max_held_bytes()),
        layout: vec![Layout::default(); inputs.len()],
        epoch: 0,
        grouper,
    };
    add(context, inputs.clone(), inputs, operation)
}

struct Group {
    grouper: Grouper<Message>,
    pools: HeldPools,
    /// Layout of the last published message of each input.
    layout: Vec<Layout>,
    silence: Silence,
    /// Epoch of the last set: it goes up at each clock jump.
    epoch: i64,
}

impl Group {
    /// Publishes the sets that the grouper has completed, and counts the messages that it has dropped.
    fn settle(&mut self, out: &mut Outbox<'_>) {
        while let Some(outcome) = self.grouper.next_outcome() {
            let (input, message) = match outcome {
                Outcome::Member { input, item, set } => {
                    if self.silence.set(set.number)
                        && let Some(mut figures) = out.figures()
                    {
                        figures.observation(None);
                    }
                    self.epoch = set.epoch;
                    let layout = &mut self.layout[input];
                    item.layout_into(layout);
                    out.send(input, layout, |payload, header| {
                        payload.copy_from(&item);
                        describe(header, &item.header, set);
                    });
                    (input, item)
                }
                Outcome::Dropped { input, item, reason } => {
                    report(input, reason, out);
                    (input, item)
                }
            };
            self.pools.give_back(input, message, self.grouper.held_bytes());
        }
    }
}

/// Writes the header of a message in a set: the message's own metadata, and the metadata of the set.
fn describe(header: &mut Header, own: &Header, set: SetInfo) {
    header.copy_from(own);
    group::key::group.set(header, set.number);
    group::key::group_timestamp_ns.set(header, set.newest_ns);
    group::key::group_span_ns.set(header, set.span_ns);
    // An observation has an epoch of its own, by which its consumers know that its time grid has started anew.
    if header.get(ops::key::epoch.name).is_none() {
        ops::key::epoch.set(header, set.epoch);
    }
}

/// Counts a message of an input that is in no set, by the reason why the grouper dropped it.
fn report(input: usize, reason: DropReason, out: &mut Outbox<'_>) {
    match reason {
        DropReason::Overflow | DropReason::Memory | DropReason::Left => out.dropped(input, Dropped::Overflow),
        DropReason::OutOfOrder => out.dropped(input, Dropped::Stamp),
        DropReason::Displaced | DropReason::Span | DropReason::Jump => {}
    }
    let (kind, text) = match reason {
        DropReason::Displaced => return out.tally(input, "displaced"),
        DropReason::Span => return out.tally(input, "further than max_span_ms"),
        DropReason::Jump => return out.tally(input, "waited at a clock jump"),
        DropReason::Left => return out.tally(input, "left waiting at the end"),
        DropReason::Overflow => (
            "overflow",
            "`queue_size` messages waited for the other inputs: the oldest was dropped (one of them is silent or slow, or the queue too short)",
        ),
        DropReason::Memory => (
            "max_held_mb",
            "more than `max_held_mb` waited for the other inputs: a message was dropped (one of them is silent or slow, or that is too little)",
        ),
        DropReason::OutOfOrder => (
            "out of order",
            "a message is older than the one before it, and was dropped (needed: ascending stamps)",
        ),
    };
    out.warn_seldom(input, kind, text);
}

/// Warns of a clock jump, or of messages less than `min_period_ms` apart, when a message arrives. Counts the message that the
/// grouper drops, if any.
fn warn(input: usize, arrival: Arrival, out: &mut Outbox<'_>) {
    if let Some(jump) = arrival.jumped_ns {
        warn_of_jump(input, jump, "what waited was dropped", out);
    }
    if let Some(ns) = arrival.too_close_ns {
        let ms = ns_to_ms(ns);
        let text = format_args!(
            "a message is {ms} ms after the one before it, less than `min_period_ms`: sets may not be the best"
        );
        out.warn_seldom(input, "closer than min_period_ms", text);
    }
    if let Some(reason) = arrival.dropped {
        report(input, reason, out);
    }
}

impl Operation for Group {
    fn input(&mut self, input: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        if message.columns().is_empty() && !message.skipped().is_empty() {
            return Err("no column of it can be passed on".into());
        }
        let stamp_ns = message
            .header
            .timestamp_ns
            .get()
            .ok_or("no `timestamp_ns` (needed: the capture time, ns)")?;
        let words = ("is not passed on", "which are not passed on as such");
        report_losses(input, message, words, out);
        let (bytes, held) = (message.bytes(), self.grouper.held_bytes());
        let pools = &mut self.pools;
        let copy = || {
            let mut copy = pools.take(input, bytes, held).unwrap_or_default();
            copy.copy_from(message);
            copy
        };
        let arrival = self.grouper.push(input, stamp_ns, bytes, copy);
        let arrival = arrival.inspect_err(|_| out.dropped(input, Dropped::Stamp))?;
        self.silence.message(input);
        warn(input, arrival, out);
        self.settle(out);
        Ok(())
    }

    fn changed(&mut self, input: usize, to: Change, out: &mut Outbox<'_>) {
        match to {
            Change::Closed => self.grouper.close(input),
            Change::Opened => self.grouper.open(input),
        }
        self.silence.changed(input, to);
        self.settle(out);
    }

    fn health_issue(&self, input: usize) -> Option<&HealthIssue> {
        self.silence.health_issue(input)
    }

    fn diagnosis(&self, _: usize) -> Diagnosis {
        Diagnosis {
            epoch: self.epoch,
            ..Diagnosis::default()
        }
    }

    fn wake(&mut self, now: Instant, _: &mut Outbox<'_>) -> Result<Wake, Fault> {
        Ok(Wake::At(self.silence.check(now, &self.grouper)))
    }

    fn finish(&mut self, out: &mut Outbox<'_>) -> Result<(), Fault> {
        self.grouper.finish();
        self.settle(out);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
