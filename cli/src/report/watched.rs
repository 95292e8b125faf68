//! Values of an output or a recorded stream over time, ready to be drawn. A value that is not valid is drawn as missing, never
//! as a number.

use super::histogram::Histogram;
use crate::channel::{self, newest_row};
use crate::track::{MOST_POINTS, Tracks};
use crate::trial::tally::{compute_ns, delay_ns};
use robocache::ops::{self, align, align::AlignConfig};
use robocache::stream::{Header, Message, form};
use robocache::time::ns_to_ms;
use std::ops::Range;

/// Maximum number of channels of a stream that are drawn; further channels are left out.
const MOST_CHANNELS: usize = 8;

/// Maximum number of changes of the epoch that are marked on the time axis.
const MOST_MARKS: usize = 1000;

/// Values to draw of an output of observations, or of a recorded stream.
pub struct Watched {
    pub name: String,
    /// True if a configuration made the output for this report; false if it was recorded.
    pub is_computed: bool,
    pub lanes: Vec<Lane>,
    /// Points to draw, with the columns of all `lanes` side by side; `None` before the first message.
    pub tracks: Option<Tracks>,
    /// Times at which the epoch goes up, ns, each with the new epoch.
    pub epochs: Vec<(i64, i64)>,
    pub waits: Histogram,
    pub delays: Histogram,
    pub computes: Histogram,
    row: Vec<f64>,
    sample: Vec<f64>,
}

/// Lane of a drawing: a stream of an observation, or a recorded stream by itself.
pub struct Lane {
    pub name: String,
    pub max_age_ms: Option<f64>,
    /// Names of the channels that are drawn.
    pub channels: Vec<String>,
    /// Number of channels that the stream has.
    pub all_channels: usize,
    /// True if the validity, 0 or 1, and the age, ms, of the stream are drawn before its channels.
    pub is_observed: bool,
    /// Range of the lane's drawn channels in a sample.
    values: Range<usize>,
}

impl Lane {
    pub fn columns(&self) -> usize {
        self.channels.len() + if self.is_observed { 2 } else { 0 }
    }

    /// Creates the lane of the range `values` of a sample, of which the first `MOST_CHANNELS` channels are drawn.
    fn new(name: &str, message: &Message, values: Range<usize>, is_observed: bool) -> Self {
        let drawn = values.start..values.end.min(values.start + MOST_CHANNELS);
        let strip = |channel: String| match channel.strip_prefix(&format!(".{name}")) {
            Some("") | None => channel,
            Some(rest) => rest.to_owned(),
        };
        Self {
            name: name.to_owned(),
            max_age_ms: None,
            channels: channel::names(message, drawn.clone()).map(strip).collect(),
            all_channels: values.len(),
            is_observed,
            values: drawn,
        }
    }
}

impl Watched {
    pub fn new(name: &str, is_computed: bool) -> Self {
        Self {
            name: name.to_owned(),
            is_computed,
            lanes: Vec::new(),
            tracks: None,
            epochs: Vec::new(),
            waits: Histogram::default(),
            delays: Histogram::default(),
            computes: Histogram::default(),
            row: Vec::new(),
            sample: Vec::new(),
        }
    }

    /// True if there was no message that can be drawn.
    pub fn is_empty(&self) -> bool {
        self.tracks.is_none()
    }

    /// Sets the `max_age_ms` of each lane to the smallest one that `config` gives its stream, above which the stream is not valid.
    pub fn limit_ages(&mut self, config: Option<&AlignConfig>) {
        for lane in &mut self.lanes {
            let modality = config.and_then(|config| config.modalities.iter().find(|of| of.input == lane.name));
            let attached = config.and_then(|config| config.attach.iter().find(|of| of.output == lane.name));
            let own = modality
                .and_then(|of| of.max_age_ms)
                .or(attached.and_then(|of| of.max_age_ms));
            // The strictest group makes the stream invalid.
            let groups = modality
                .into_iter()
                .flat_map(|of| &of.groups)
                .filter_map(|group| group.max_age_ms);
            lane.max_age_ms = groups.chain(own).min_by(f64::total_cmp);
        }
    }

    /// Adds an observation; other messages are ignored.
    pub fn observation(&mut self, message: &Message) {
        let header = &message.header;
        if form::modalities.get(header).is_none() || align::key::error.get(header).is_some() {
            return;
        }
        let stamp_ns = message.timestamp_ns();
        let mut sample = std::mem::take(&mut self.sample);
        // A value that can't be read is drawn as not valid.
        let mut values = Vec::new();
        let _ = channel::samples(message, &mut sample, |_, came| values.extend_from_slice(came));
        self.sample = sample;
        let attached = align::key::attached.get(header).unwrap_or_default();
        let tracks = self.tracks.get_or_insert_with(|| {
            let fields = channel::fields(message).into_iter();
            self.lanes = fields
                .map(|(name, columns)| Lane::new(name, message, columns, true))
                .collect();
            self.lanes
                .extend(attached.iter().map(|name| Lane::new(name, message, 0..0, true)));
            Tracks::new(self.lanes.iter().map(Lane::columns).sum(), MOST_POINTS)
        });
        let epoch = ops::key::epoch.get(header).unwrap_or(0);
        if self.epochs.last().map_or(0, |&(_, epoch)| epoch) < epoch && self.epochs.len() < MOST_MARKS {
            self.epochs.push((stamp_ns, epoch));
        }
        self.delays.add_some(delay_ns(message));
        self.waits.add_some(align::key::wait_ns.get(header));
        self.computes.add_some(compute_ns(header));
        self.row.clear();
        for (lane, (valid, age_ns)) in self.lanes.iter().zip(newest(header)) {
            let age_ms = if age_ns < 0 { f64::NAN } else { ns_to_ms(age_ns) };
            self.row.extend([f64::from(u8::from(valid)), age_ms]);
            let channels = lane.values.clone();
            self.row
                .extend(channels.map(|i| values.get(i).copied().unwrap_or(f64::NAN)));
        }
        tracks.push(stamp_ns, &self.row);
    }

    /// Adds the samples of a message of a recorded stream. `sample` is a scratch buffer.
    pub fn samples(&mut self, message: &Message, sample: &mut Vec<f64>) -> Result<(), String> {
        if self.tracks.is_none() {
            let all = 0..channel::sample_len(message)?;
            self.lanes = vec![Lane::new(&self.name, message, all, false)];
        }
        let drawn = self.lanes[0].values.clone();
        let tracks = self.tracks.get_or_insert_with(|| Tracks::new(drawn.len(), MOST_POINTS));
        channel::samples(message, sample, |stamp_ns, values| {
            tracks.push(stamp_ns, &values[..drawn.end.min(values.len())]);
        })
    }
}

/// Returns the validity and the age, ns, of each stream in the newest row of an observation; an unknown age is negative.
fn newest(header: &Header) -> impl Iterator<Item = (bool, i64)> {
    let (modalities, attached) = (form::modalities.get(header), align::key::attached.get(header));
    let valid = newest_row(header.valid.get(), modalities);
    let ages = newest_row(form::age_ns.get(header), modalities);
    let grids = newest_row(align::key::grid_index.get(header), attached);
    let grid_ages = newest_row(align::key::grid_age_ns.get(header), attached);
    let of_modalities = valid.iter().zip(ages).map(|(&valid, &age_ns)| (valid == 1, age_ns));
    let of_attached = grids
        .iter()
        .zip(grid_ages)
        .map(|(&index, &age_ns)| (index >= 0, age_ns));
    of_modalities.chain(of_attached)
}
