//! Charts of recorded `diagnostics` outputs, in which a node reports its state once a second. A number that is not known is
//! left out and never drawn.

use crate::track::{MOST_POINTS, Tracks};
use robocache::app::key::diagnostics;
use robocache::stream::{Column, Message, MetadataRef};
use serde::Serialize;
use std::collections::BTreeMap;

/// Columns of a report of diagnostics that are drawn for each input, each with the name of its line in the chart.
const OF_AN_INPUT: [(&str, &str); 4] = [
    ("delay_p50_ns", "capture to publication p50"),
    ("delay_p99_ns", "capture to publication p99"),
    ("age_p50_ns", "age p50"),
    ("age_p99_ns", "age p99"),
];

/// Reads a percentile, ms, from a metadata entry whose key ends with `_p50` or `_p99` and a unit, `_ns` or `_us`. `None` for
/// other entries.
fn percentile(key: &str, value: MetadataRef<'_>) -> Option<f64> {
    let (name, in_a_ms) = match key.rsplit_once('_')? {
        (name, "ns") => (name, 1e6),
        (name, "us") => (name, 1e3),
        _ => return None,
    };
    if !["_p50", "_p99"].iter().any(|end| name.ends_with(end)) {
        return None;
    }
    match value {
        MetadataRef::Integer(value) => Some(value as f64 / in_a_ms),
        MetadataRef::Float(value) => Some(value / in_a_ms),
        _ => None,
    }
}

/// Charts and last reports of a recorded stream of diagnostics.
pub struct Diagnosed {
    pub stream: String,
    /// Charts of the percentiles of the whole node and of each input, ms.
    pub charts: Vec<Chart>,
    pub inputs: BTreeMap<String, Input>,
}

/// Lines over time that are drawn in one chart.
pub struct Chart {
    pub name: String,
    pub lines: Vec<String>,
    pub tracks: Tracks,
}

/// The last report on an input.
#[derive(Default, Serialize)]
pub struct Input {
    message: String,
    /// Known numbers of the report, by the names of their columns.
    numbers: BTreeMap<String, f64>,
}

impl Diagnosed {
    /// Creates the charts, still empty, of a stream that begins with `message`; `None` if `message` is not a report of diagnostics.
    pub fn of(stream: &str, message: &Message) -> Option<Self> {
        let is_one = ["level", "messages", "rate_hz"]
            .iter()
            .all(|name| message.column(name).is_some());
        is_one.then(|| Self {
            stream: stream.to_owned(),
            charts: Vec::new(),
            inputs: BTreeMap::new(),
        })
    }

    pub fn message(&mut self, message: &Message) {
        let stamp_ns = message.timestamp_ns();
        // Keys are put in the order of their declaration, which a recording does not keep.
        let place = |key: &str| diagnostics::ALL.iter().position(|(known, _)| *known == key);
        let mut entries: Vec<_> = message.header.iter().collect();
        entries.sort_by_key(|(key, _)| place(key).unwrap_or(usize::MAX));
        for (key, value) in entries {
            if let Some(ms) = percentile(key, value) {
                let name = key.rsplit_once('_').map_or(key, |(name, _)| name).replace('_', " ");
                self.chart(&name, || vec![name.clone()]).tracks.push(stamp_ns, &[ms]);
            }
        }
        for row in 0..message.rows {
            let text = |name: &str| {
                message
                    .column(name)
                    .and_then(|column| text(column, row))
                    .unwrap_or_default()
            };
            let (operation, input) = (text("operation"), text("input"));
            let name = match (operation.as_str(), input.as_str()) {
                ("", "") => format!("row {row}"),
                ("", name) | (name, "") => name.to_owned(),
                (operation, input) => format!("{operation}: {input}"),
            };
            let numbers = message.columns().iter();
            let numbers = numbers.filter_map(|column| Some((column.name.clone(), number(column, row)?)));
            // An unknown value is recorded as -1; figures of a clock may be negative.
            let numbers: BTreeMap<String, f64> = numbers
                .filter(|(name, value)| *value >= 0.0 || name.starts_with("clock"))
                .collect();
            let drawn = OF_AN_INPUT.map(|(column, _)| numbers.get(column).map_or(f64::NAN, |ns| ns / 1e6));
            let lines = || OF_AN_INPUT.map(|(_, line)| line.to_owned()).to_vec();
            self.chart(&name, lines).tracks.push(stamp_ns, &drawn);
            let message = text("message");
            self.inputs.insert(name, Input { message, numbers });
        }
    }

    fn chart(&mut self, name: &str, lines: impl FnOnce() -> Vec<String>) -> &mut Chart {
        let known = self.charts.iter().position(|chart| chart.name == name);
        let at = known.unwrap_or_else(|| {
            self.charts.push(Chart::new(name, lines()));
            self.charts.len() - 1
        });
        &mut self.charts[at]
    }
}

impl Chart {
    fn new(name: &str, lines: Vec<String>) -> Self {
        Self {
            name: name.to_owned(),
            tracks: Tracks::new(lines.len(), MOST_POINTS),
            lines,
        }
    }
}

/// Reads the text in a row of a column; `None` if the column does not hold text.
fn text(column: &Column, row: usize) -> Option<String> {
    Some(column.texts()?.nth(row)?.to_owned())
}

/// Reads the number in a row of a column; `None` if the column does not hold numbers.
fn number(column: &Column, row: usize) -> Option<f64> {
    if !column.offsets.is_empty() || row >= column.values().len() {
        return None;
    }
    let mut value = Vec::with_capacity(1);
    column.values().slice(row, row + 1).to_f64(&mut value);
    value.pop().filter(|value| value.is_finite())
}
