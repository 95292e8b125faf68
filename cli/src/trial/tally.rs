//! Counts what operations publish.

use robocache::app::{Fault, Sink};
use robocache::stream::{Header, Layout, Message, Payload};
use std::collections::BTreeMap;

const SECOND: i64 = 1_000_000_000;

/// Further from its arrival than this, the stamp of a message is of another clock, ns.
const OTHER_CLOCK_NS: u64 = 3_600_000_000_000;

/// What was published on each output, in the order in which they first did.
pub struct Tally<'a> {
    pub outputs: Vec<(String, Counts)>,
    /// When the message came that is being worked on.
    pub arrival_ns: Option<i64>,
    memory: Message,
    watch: &'a mut dyn FnMut(&str, &Message),
}

/// What came on one output.
#[derive(Default)]
pub struct Counts {
    pub messages: u64,
    /// Messages by the whole second that their stamps lie in.
    pub seconds: BTreeMap<i64, u64>,
    /// The first stamp and the last.
    pub span_ns: Option<(i64, i64)>,
    pub is_observation: bool,
    pub is_grid: bool,
    /// Of observations.
    pub streams: Vec<Seen>,
    pub waits_ns: Vec<i64>,
    /// From their targets to the arrival of the messages that made them due.
    pub delays_ns: Vec<i64>,
    pub computes_ns: Vec<i64>,
    pub late: i64,
    pub epoch: i64,
    /// Requests without an observation.
    pub refused: u64,
    /// Of grids.
    pub points: Points,
}

/// What observations say of one of their streams, in their newest rows.
#[derive(Default)]
pub struct Seen {
    pub name: String,
    pub valid: u64,
    pub ages_ns: Vec<i64>,
}

#[derive(Default)]
pub struct Points {
    pub came: i64,
    pub kept: i64,
    pub nonfinite: i64,
    pub outside: i64,
    pub overflow: i64,
}

impl<'a> Tally<'a> {
    /// `watch` gets every message, and its output.
    pub fn new(watch: &'a mut dyn FnMut(&str, &Message)) -> Self {
        Self {
            outputs: Vec::new(),
            arrival_ns: None,
            memory: Message::default(),
            watch,
        }
    }
}

impl Sink for Tally<'_> {
    fn send(
        &mut self,
        output: &str,
        layout: &Layout,
        fill: &mut dyn FnMut(&mut Payload<'_>, &mut Header),
    ) -> Result<(), Fault> {
        self.memory.write(layout, fill);
        let known = self.outputs.iter().position(|(name, _)| name == output);
        let at = known.unwrap_or_else(|| {
            self.outputs.push((output.to_owned(), Counts::default()));
            self.outputs.len() - 1
        });
        self.memory.arrival_ns = self.arrival_ns;
        self.outputs[at].1.count(&self.memory);
        (self.watch)(output, &self.memory);
        Ok(())
    }
}

impl Counts {
    pub fn count(&mut self, message: &Message) {
        let header = &message.header;
        if header.error.is_present() {
            self.refused += 1;
            return;
        }
        self.messages += 1;
        let stamp_ns = *header.timestamp_ns;
        *self.seconds.entry(stamp_ns.div_euclid(SECOND)).or_default() += 1;
        let (first, last) = self.span_ns.unwrap_or((stamp_ns, stamp_ns));
        self.span_ns = Some((first.min(stamp_ns), last.max(stamp_ns)));
        if header.modalities.is_present() {
            self.delays_ns.extend(delay_ns(message));
            self.observation(header);
        } else if header.grid_shape.is_present() {
            self.is_grid = true;
            self.points.came += *header.points_in;
            self.points.kept += *header.points_kept;
            self.points.nonfinite += *header.dropped_nonfinite;
            self.points.outside += *header.dropped_outside;
            self.points.overflow += *header.dropped_overflow;
        }
    }

    fn observation(&mut self, header: &Header) {
        self.is_observation = true;
        self.waits_ns.extend(header.wait_ns.get());
        self.computes_ns.extend(compute_ns(header));
        self.late = *header.late_samples;
        self.epoch = *header.epoch;
        if self.streams.is_empty() {
            let names = header.modalities.iter().chain(header.attached.iter());
            self.streams = names
                .map(|name| Seen {
                    name: name.clone(),
                    ..Seen::default()
                })
                .collect();
        }
        let (modalities, attached) = self.streams.split_at_mut(header.modalities.len());
        let newest = |list: &[i64], columns: usize| list.len().saturating_sub(columns);
        let masks = newest(&header.valid, modalities.len());
        let rows = header.valid[masks..].iter().zip(&header.age_ns[masks..]);
        for (stream, (&valid, &age_ns)) in modalities.iter_mut().zip(rows) {
            stream.see(valid == 1, age_ns);
        }
        let grids = newest(&header.grid_index, attached.len());
        let rows = header.grid_index[grids..].iter().zip(&header.grid_age_ns[grids..]);
        for (stream, (&index, &age_ns)) in attached.iter_mut().zip(rows) {
            stream.see(index >= 0, age_ns);
        }
    }
}

/// From the stamp of a message to its arrival, where both are of one clock.
pub fn delay_ns(message: &Message) -> Option<i64> {
    let delay_ns = message.arrival_ns?.checked_sub(message.timestamp_ns())?;
    Some(delay_ns).filter(|delay| delay.unsigned_abs() <= OTHER_CLOCK_NS)
}

/// How long an operation took for a result.
pub fn compute_ns(header: &Header) -> Option<i64> {
    header.compute_us.get().map(|us| (us * 1e3).round() as i64)
}

impl Seen {
    fn see(&mut self, is_valid: bool, age_ns: i64) {
        self.valid += u64::from(is_valid);
        if age_ns >= 0 {
            self.ages_ns.push(age_ns);
        }
    }
}
