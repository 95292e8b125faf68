//! Counts of the messages that operations publish. An answer that refuses a request is counted separately, never as
//! an observation.

use crate::channel::newest_row;
use robocache::app::{Fault, Sink};
use robocache::ops::{self, align, kinematics, map, voxelize};
use robocache::stream::{Header, Key, Layout, Message, Payload, form};
use serde::Serialize;
use std::collections::BTreeMap;

const SECOND: i64 = 1_000_000_000;

/// Difference between a message's stamp and its arrival, ns, beyond which the two are taken to be from different clocks.
const OTHER_CLOCK_NS: u64 = 3_600_000_000_000;

/// Counts of the messages of each output, with outputs in the order of their first message.
pub struct Tally<'a> {
    pub outputs: Vec<(String, Counts)>,
    /// Arrival of the recorded message that is being processed, ns. `None` if it was not recorded, or if messages are replayed
    /// by stamp.
    pub arrival_ns: Option<i64>,
    memory: Message,
    watch: &'a mut dyn FnMut(&str, &Message),
}

/// Counts of the messages of one output.
#[derive(Default)]
pub struct Counts {
    pub messages: u64,
    /// Number of messages by the whole second of their stamps.
    pub seconds: BTreeMap<i64, u64>,
    /// Smallest and largest stamp, ns; `None` before the first message.
    pub span_ns: Option<(i64, i64)>,
    pub is_observation: bool,
    pub is_grid: bool,
    /// Counts of the frames of maps; `None` for outputs that are not of maps.
    pub frames: Option<Frames>,
    /// Validity and ages of each stream of the observations; empty for other outputs.
    pub streams: Vec<Coverage>,
    pub waits_ns: Vec<i64>,
    /// Times from targets to the arrivals of the messages that made the observations due, ns.
    pub delays_ns: Vec<i64>,
    pub computes_ns: Vec<i64>,
    pub late: i64,
    pub epoch: i64,
    /// Number of requests that were answered by an error, not by an observation.
    pub refused: u64,
    /// Counts of the points that went into voxel grids; zeros for other outputs.
    pub points: Points,
    /// Counts of the rows of an output of kinematics; not used for other outputs.
    pub rows: Rows,
}

/// Validity and ages of a stream in the newest rows of observations.
#[derive(Default)]
pub struct Coverage {
    pub name: String,
    pub valid: u64,
    pub ages_ns: Vec<i64>,
}

/// Counts of the frames of a map.
#[derive(Clone, Copy, Default, Serialize)]
pub struct Frames {
    /// Number of frames that are in the map.
    pub frames_fused: i64,
    /// Number of frames that are late, or without a pose.
    pub frames_dropped: i64,
}

#[derive(Default)]
pub struct Rows {
    pub came: u64,
    pub valid: u64,
    /// Number of rows with a joint more than a turn beyond its limits.
    pub implausible: u64,
    /// Number of jumps between solutions of the inverse kinematics.
    pub changes: i64,
    /// Stamp of the first message with a jump between solutions, ns; `None` if there was none.
    pub first_change_ns: Option<i64>,
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
    /// Creates a tally. `watch` gets every message with the name of its output.
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
        if align::key::error.get(header).is_some() {
            self.refused += 1;
            return;
        }
        self.messages += 1;
        let stamp_ns = message.timestamp_ns();
        *self.seconds.entry(stamp_ns.div_euclid(SECOND)).or_default() += 1;
        let (first, last) = self.span_ns.unwrap_or((stamp_ns, stamp_ns));
        self.span_ns = Some((first.min(stamp_ns), last.max(stamp_ns)));
        if form::modalities.get(header).is_some() {
            self.delays_ns.extend(delay_ns(message));
            self.observation(header);
        } else if let Some(fused) = map::key::frames_fused.get(header) {
            let frames = self.frames.get_or_insert_default();
            frames.frames_fused += fused;
            let dropped = [map::key::late_frames, map::key::dropped_unposed];
            frames.frames_dropped += dropped.map(|key| key.get(header).unwrap_or(0)).iter().sum::<i64>();
        } else if form::grid_shape.get(header).is_some() {
            self.is_grid = true;
            let count = |key: Key<i64>| key.get(header).unwrap_or(0);
            self.points.came += count(voxelize::key::points_in);
            self.points.kept += count(voxelize::key::points_kept);
            self.points.nonfinite += count(ops::key::dropped_nonfinite);
            self.points.outside += count(voxelize::key::dropped_outside);
            self.points.overflow += count(ops::key::dropped_overflow);
        } else {
            self.rows.count(header, stamp_ns);
        }
    }

    fn observation(&mut self, header: &Header) {
        self.is_observation = true;
        self.waits_ns.extend(align::key::wait_ns.get(header));
        self.computes_ns.extend(compute_ns(header));
        self.late = align::key::late_samples.get(header).unwrap_or(0);
        self.epoch = ops::key::epoch.get(header).unwrap_or(0);
        let (modalities, attached) = (form::modalities.get(header), align::key::attached.get(header));
        if self.streams.is_empty() {
            let names = [modalities, attached].into_iter();
            self.streams = names
                .flat_map(Option::unwrap_or_default)
                .map(|name| Coverage {
                    name: name.clone(),
                    ..Coverage::default()
                })
                .collect();
        }
        let (of_modalities, of_attached) = self.streams.split_at_mut(modalities.map_or(0, <[String]>::len));
        let valid = newest_row(header.valid.get(), modalities).iter();
        let rows = valid.zip(newest_row(form::age_ns.get(header), modalities));
        for (stream, (&valid, &age_ns)) in of_modalities.iter_mut().zip(rows) {
            stream.count(valid == 1, age_ns);
        }
        let index = newest_row(align::key::grid_index.get(header), attached).iter();
        let rows = index.zip(newest_row(align::key::grid_age_ns.get(header), attached));
        for (stream, (&index, &age_ns)) in of_attached.iter_mut().zip(rows) {
            stream.count(index >= 0, age_ns);
        }
    }
}

impl Rows {
    fn count(&mut self, header: &Header, stamp_ns: i64) {
        let valid = header.valid.get().unwrap_or_default();
        self.came += valid.len() as u64;
        self.valid += valid.iter().filter(|&&mask| mask == 1).count() as u64;
        self.implausible += kinematics::key::implausible.get(header).unwrap_or(0) as u64;
        let changes = kinematics::key::branch.get(header).unwrap_or(0);
        if changes > 0 {
            self.first_change_ns.get_or_insert(stamp_ns);
        }
        self.changes = changes;
    }
}

/// Returns the time from the stamp of a message to its arrival, ns; `None` if the arrival is not known, or if the two are from
/// different clocks.
pub fn delay_ns(message: &Message) -> Option<i64> {
    let delay_ns = message.arrival_ns?.checked_sub(message.timestamp_ns())?;
    Some(delay_ns).filter(|delay| delay.unsigned_abs() <= OTHER_CLOCK_NS)
}

/// Returns the time that an operation took to compute a message, ns; `None` if the header does not contain it.
pub fn compute_ns(header: &Header) -> Option<i64> {
    ops::key::compute_us.get(header).map(|us| (us * 1e3).round() as i64)
}

impl Coverage {
    fn count(&mut self, is_valid: bool, age_ns: i64) {
        self.valid += u64::from(is_valid);
        if age_ns >= 0 {
            self.ages_ns.push(age_ns);
        }
    }
}
