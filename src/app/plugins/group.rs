//! The plugin group: messages of several streams in sets, which go on unchanged.

mod silence;

use super::held::Pool;
use super::{report_losses, warn_of_jump};
use crate::app::{
    Ailment, AppError, BuildContext, Change, Diagnosis, Dropped, Fault, Operation, Outbox, Plugin, Registration, Wake,
};
use robocache_ops::group::{Arrival, DropReason, Grouper, GroupingConfig, Outcome, SetInfo};
use robocache_stream::{Header, Layout, Message, key};
use robocache_time::ns_to_ms;
use silence::Silence;
use std::time::Instant;

/// Publishes the messages of `group:` in sets, one of each input, each on the output of its input's name.
#[derive(Default)]
pub struct GroupPlugin {
    config: Option<GroupingConfig>,
}

impl GroupPlugin {
    /// With a configuration from the program. [`default`](Self::default) takes it from the file.
    pub fn new(config: GroupingConfig) -> Self {
        Self { config: Some(config) }
    }
}

impl Plugin for GroupPlugin {
    fn name(&self) -> &'static str {
        "group"
    }

    fn about(&self) -> &'static str {
        "Publishes messages that belong together in sets, each on an output of its input's name."
    }

    fn is_configured(&self) -> bool {
        self.config.is_some()
    }

    fn build(&self, context: &mut BuildContext<'_>) -> Result<(), AppError> {
        let config: GroupingConfig = context.config_or(&self.config)?;
        let grouper = Grouper::new(&config).map_err(|error| context.refused(&error))?;
        let inputs: Vec<String> = grouper.inputs().map(str::to_owned).collect();
        let operation = Group {
            silence: Silence::new(context.name(), &inputs),
            pool: Pool::new(inputs.len(), grouper.max_held_bytes()),
            layout: vec![Layout::default(); inputs.len()],
            epoch: 0,
            grouper,
        };
        context.add_operation(Registration {
            name: context.name().into(),
            outputs: inputs.clone(),
            inputs,
            operation: Box::new(operation),
        });
        Ok(())
    }
}

struct Group {
    grouper: Grouper<Message>,
    pool: Pool,
    /// Of the last message of each input.
    layout: Vec<Layout>,
    silence: Silence,
    /// That of the last set.
    epoch: i64,
}

impl Group {
    /// Publishes the sets that are known, and counts what is in none.
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
            self.pool.give_back(input, message, self.grouper.held_bytes());
        }
    }
}

/// Writes the header of a message that is a member of a set.
fn describe(header: &mut Header, own: &Header, set: SetInfo) {
    header.copy_from(own);
    // Whatever type they had.
    for key in [key::group, key::group_timestamp_ns, key::group_span_ns] {
        header.remove(key);
    }
    header.group.set(set.number);
    header.group_timestamp_ns.set(set.newest_ns);
    header.group_span_ns.set(set.span_ns);
    // An observation has one of its own, by which its consumers know that its grid has started anew.
    if header.get(key::epoch).is_none() {
        header.epoch.set(set.epoch);
    }
}

/// Counts a message that is in no set.
fn report(input: usize, reason: DropReason, out: &mut Outbox<'_>) {
    match reason {
        DropReason::Overflow | DropReason::Memory | DropReason::Left => out.dropped(input, Dropped::Overflow),
        DropReason::OutOfOrder => out.dropped(input, Dropped::Stamp),
        DropReason::Displaced | DropReason::Span | DropReason::Jump => {}
    }
    match reason {
        DropReason::Displaced => out.tally(input, "displaced"),
        DropReason::Span => out.tally(input, "further than max_span_ms"),
        DropReason::Jump => out.tally(input, "waited at a clock jump"),
        DropReason::Left => out.tally(input, "left waiting at the end"),
        DropReason::Overflow => out.warn_seldom(
            input,
            "overflow",
            "`queue_size` messages waited for the other inputs: the oldest was dropped",
        ),
        DropReason::Memory => out.warn_seldom(
            input,
            "max_held_mb",
            "more than `max_held_mb` waited for the other inputs: a message was dropped",
        ),
        DropReason::OutOfOrder => out.warn_seldom(
            input,
            "out of order",
            "a message is older than the one before it, and was dropped",
        ),
    }
}

/// Warns of what the arrival of a message did, beside what became of it.
fn warn(input: usize, arrival: Arrival, out: &mut Outbox<'_>) {
    if let Some(jump) = arrival.jumped_ns {
        warn_of_jump(input, jump, "what waited was dropped", out);
    }
    if let Some(ns) = arrival.too_close_ns {
        let ms = ns_to_ms(ns);
        let text = format_args!("a message is {ms} ms after the one before it: sets may not be the best");
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
        let stamp_ns = *message
            .header
            .timestamp_ns
            .get()
            .ok_or("no `timestamp_ns` (needed: the capture time, ns)")?;
        let words = ("is not passed on", "which are not passed on as such");
        report_losses(input, message, words, out);
        let (bytes, held) = (message.bytes(), self.grouper.held_bytes());
        let pool = &mut self.pool;
        let copy = || {
            let mut copy = pool.take(input, bytes, held).unwrap_or_default();
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

    fn ailment(&self, input: usize) -> Option<&Ailment> {
        self.silence.ailment(input)
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
