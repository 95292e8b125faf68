//! HTML page of `robocache report`: one file that loads no other. No text of a recording or a configuration can become markup.

use super::diagnosed::{Chart, Input};
use super::histogram::Histogram;
use super::watched::Watched;
use super::{Drawings, Figures};
use crate::track::Tracks;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

// uPlot, which draws the lines, and its licence, which all copies must contain.
const UPLOT: &str = include_str!("../../vendor/uplot/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("../../vendor/uplot/uPlot.min.css");
const UPLOT_LICENCE: &str = include_str!("../../vendor/uplot/LICENSE");
const SCRIPT: &str = include_str!("page.js");
const STYLE: &str = include_str!("page.css");

/// Data for the script of the page.
#[derive(Serialize)]
struct Data<'a> {
    figures: &'a Figures,
    /// The first stamp of the recording, from which times are counted; as text, as JavaScript's numbers can't hold it.
    origin_ns: String,
    channels: Vec<Drawn<'a>>,
    outputs: Vec<Output<'a>>,
    diagnostics: Vec<Diagnostics<'a>>,
    config: Option<ConfigFile<'a>>,
    made: Provenance,
}

#[derive(Serialize)]
struct Output<'a> {
    name: &'a str,
    is_computed: bool,
    lanes: Vec<Lane<'a>>,
    stretches: Vec<Stretch>,
    stretches_left_out: u64,
    epochs: Vec<Epoch>,
    wait: &'a Histogram,
    delay: &'a Histogram,
    compute: &'a Histogram,
}

#[derive(Serialize)]
struct Lane<'a> {
    name: &'a str,
    max_age_ms: Option<f64>,
    channels: &'a [String],
    all_channels: usize,
    is_observed: bool,
    /// Index of this stream's first column in the `columns` of each `Stretch`.
    column: usize,
}

#[derive(Serialize)]
struct Stretch {
    times_s: Vec<f64>,
    columns: Vec<Vec<Option<f32>>>,
    /// Time whose values are drawn as two points, their smallest and their largest value, s; 0 if each value is drawn.
    width_s: f64,
}

#[derive(Serialize)]
struct Epoch {
    at_s: f64,
    epoch: i64,
}

#[derive(Serialize)]
struct Diagnostics<'a> {
    stream: &'a str,
    charts: Vec<Drawn<'a>>,
    inputs: &'a BTreeMap<String, Input>,
}

#[derive(Serialize)]
struct Drawn<'a> {
    name: &'a str,
    lines: &'a [String],
    stretches: Vec<Stretch>,
}

#[derive(Serialize)]
struct ConfigFile<'a> {
    file: String,
    text: &'a str,
}

#[derive(Serialize)]
struct Provenance {
    /// Version of robocache that made the page.
    version: &'static str,
    /// Time at which the page was made, ms since 1970.
    at_ms: u64,
    machine: String,
}

/// First line of the HTML of a report. A file that begins with it is an older report, and may be overwritten.
pub const START: &str = "<!doctype html>";

/// Formats the page of these figures and drawings, without `START`.
pub fn text(figures: &Figures, drawings: &Drawings, config: Option<(&Path, &str)>) -> eyre::Result<String> {
    let origin_ns = figures
        .info
        .streams
        .iter()
        .filter_map(|stream| stream.first_ns)
        .min()
        .unwrap_or(0);
    let data = Data {
        figures,
        origin_ns: origin_ns.to_string(),
        channels: drawings.channels.iter().map(|chart| drawn(chart, origin_ns)).collect(),
        outputs: drawings
            .outputs
            .iter()
            .map(|watched| output(watched, origin_ns))
            .collect(),
        diagnostics: drawings
            .diagnostics
            .iter()
            .map(|of| Diagnostics {
                stream: &of.stream,
                charts: of.charts.iter().map(|chart| drawn(chart, origin_ns)).collect(),
                inputs: &of.inputs,
            })
            .collect(),
        config: config.map(|(file, text)| ConfigFile {
            file: file.display().to_string(),
            text,
        }),
        made: Provenance {
            version: env!("CARGO_PKG_VERSION"),
            at_ms: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_millis() as u64),
            machine: machine(),
        },
    };
    // In JSON, `<` occurs only in texts, and may be escaped there: so no text can end the element.
    let data = serde_json::to_string(&data)?.replace('<', "\\u003c");
    Ok(format!(
        "
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<title>robocache report</title>
<style>
{UPLOT_STYLE}
{STYLE}
</style>
</head>
<body>
<main></main>
<footer><details><summary>uPlot 1.6.32, which draws the lines</summary><pre>{UPLOT_LICENCE}</pre></details></footer>
<script type=\"application/json\" id=\"data\">{data}</script>
<script>
{UPLOT}
</script>
<script>
{SCRIPT}
</script>
</body>
</html>
"
    ))
}

fn output(watched: &Watched, origin_ns: i64) -> Output<'_> {
    let mut column = 0;
    let lanes = watched.lanes.iter().map(|lane| {
        let first = column;
        column += lane.columns();
        Lane {
            name: &lane.name,
            max_age_ms: lane.max_age_ms,
            channels: &lane.channels,
            all_channels: lane.all_channels,
            is_observed: lane.is_observed,
            column: first,
        }
    });
    Output {
        name: &watched.name,
        is_computed: watched.is_computed,
        lanes: lanes.collect(),
        stretches: watched
            .tracks
            .as_ref()
            .map(|tracks| stretches(tracks, origin_ns))
            .unwrap_or_default(),
        stretches_left_out: watched.tracks.as_ref().map_or(0, |tracks| tracks.left_out),
        epochs: watched
            .epochs
            .iter()
            .map(|&(at_ns, epoch)| Epoch {
                at_s: seconds(at_ns, origin_ns),
                epoch,
            })
            .collect(),
        wait: &watched.waits,
        delay: &watched.delays,
        compute: &watched.computes,
    }
}

fn drawn(chart: &Chart, origin_ns: i64) -> Drawn<'_> {
    Drawn {
        name: &chart.name,
        lines: &chart.lines,
        stretches: stretches(&chart.tracks, origin_ns),
    }
}

fn stretches(tracks: &Tracks, origin_ns: i64) -> Vec<Stretch> {
    let stretch = |track: &crate::track::Track| {
        let lines = track.lines();
        // A value beyond float32 is drawn at the end of float32's range.
        let single = |value: f64| value.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32;
        Stretch {
            times_s: lines.times_ns.iter().map(|&ns| seconds(ns, origin_ns)).collect(),
            columns: lines
                .columns
                .into_iter()
                .map(|column| column.into_iter().map(|value| value.map(single)).collect())
                .collect(),
            width_s: seconds(track.width_ns(), 0),
        }
    };
    tracks.stretches.iter().map(stretch).collect()
}

/// Returns the time from `origin_ns` to `ns`, s, rounded to a microsecond.
fn seconds(ns: i64, origin_ns: i64) -> f64 {
    ((i128::from(ns) - i128::from(origin_ns)) as f64 / 1e3).round() / 1e6
}

/// Describes the machine that makes the page: its processor, its cores and its operating system.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or(std::env::consts::ARCH, |(_, name)| name.trim());
    format!("{model}, {cores} cores, {}", std::env::consts::OS)
}
