//! Metrics for Prometheus, as a file that its node exporter reads (`--collector.textfile.directory`). The format is
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>. A value that is not known has no series.

use super::files::{Node, Status};
use crate::output;
use robocache::app::key::diagnostics;
use robocache::app::{Report, Row};
use robocache::ops::{self, clock};
use std::fmt::{Display, Write as _};
use std::path::Path;

/// Beginning of the file of metrics, by which a file of an earlier run is recognised.
const START: &str = "# HELP robocache_up";

/// Writes the metrics of all nodes to a file, and replaces the file of an earlier run.
pub fn write(file: &Path, status: &Status) -> eyre::Result<()> {
    let text = text_of(status);
    output::write(file, START, text.strip_prefix(START).unwrap_or(&text))
}

/// Text of the metrics so far. All series of a metric follow one another, as the format demands.
#[derive(Default)]
struct Metrics(String);

/// Labels of a series, each a name and a text.
type Labels<'a> = &'a [(&'a str, &'a str)];

impl Metrics {
    fn metric(&mut self, name: &str, kind: &str, about: &str) {
        // Writing to a string can't fail.
        let _ = writeln!(
            self.0,
            "# HELP robocache_{name} {about}\n# TYPE robocache_{name} {kind}"
        );
    }

    fn series(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        let _ = write!(self.0, "robocache_{name}");
        for (i, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{label}=\"{text}\"", if i == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.0, "}} {value}");
    }

    /// Appends a series about an input of a node, with the additional label `more` if it is given.
    fn of_input(&mut self, name: &str, (node, row): (&str, &Row), more: Option<(&str, &str)>, value: f64) {
        let own = [("node", node), ("operation", &row.operation), ("input", &row.input)];
        match more {
            None => self.series(name, &own, value),
            Some(more) => {
                let [node, operation, input] = own;
                self.series(name, &[node, operation, input, more], value);
            }
        }
    }
}

fn text_of(status: &Status) -> String {
    let mut metrics = Metrics::default();
    metrics.metric("up", "gauge", "Whether the node keeps its status file up to date.");
    for node in &status.nodes {
        let is_up = node.problem.is_none() && !node.is_ended();
        metrics.series("up", &[("node", &node.name)], u8::from(is_up));
    }
    of_nodes(status, &mut metrics);
    of_inputs(status, &mut metrics);
    metrics.0
}

fn seconds(ns: Option<i64>) -> Option<f64> {
    ns.map(|ns| ns as f64 / 1e9)
}

/// Function that reads a metric of a node, from its status or its report.
type OfNode = fn(&Node, &Report) -> f64;
/// Function that reads up to three quantiles of a node or of an input, each with its label, s; `None` if a quantile is
/// not known.
type Quantiles<T> = fn(&T) -> [(&'static str, Option<f64>); 3];
/// Function that reads a metric of an input; `None` if it is not known.
type OfInput = fn(&Row) -> Option<f64>;

fn of_nodes(status: &Status, metrics: &mut Metrics) {
    let reports = || {
        status
            .nodes
            .iter()
            .filter_map(|node| Some((node, node.report.as_ref()?)))
    };
    let numbers: [(&str, &str, &str, OfNode); 4] = [
        (
            "level",
            "gauge",
            "How the node is: 0 ok, 1 warn, 2 error, 3 stale.",
            |node, _| f64::from(node.level as u8),
        ),
        (
            "observations_total",
            "counter",
            "Observations, sets, grids and batches published.",
            |_, it| it.observations as f64,
        ),
        (
            diagnostics::queue_depth.name,
            "gauge",
            "The most messages of one input that waited at once.",
            |_, it| it.queue_depth as f64,
        ),
        (
            ops::key::device_bytes.name,
            "gauge",
            "Device memory that the operations hold.",
            |_, it| it.device_bytes as f64,
        ),
    ];
    for (name, kind, about, value) in numbers {
        metrics.metric(name, kind, about);
        for (node, report) in reports() {
            metrics.series(name, &[("node", &node.name)], value(node, report));
        }
    }
    let rate = diagnostics::observation_rate_hz.name;
    metrics.metric(rate, "gauge", "Observations, sets, grids and batches in a second.");
    for (node, report) in reports() {
        if let Some(rate_hz) = report.observation_rate_hz {
            metrics.series(rate, &[("node", &node.name)], rate_hz);
        }
    }
    let quantiles: [(&str, &str, Quantiles<Report>); 2] = [
        (
            "wait_seconds",
            "From a target to the newest stamp seen when it was published.",
            |it| {
                [
                    ("0.5", seconds(it.wait_p50_ns)),
                    ("0.99", seconds(it.wait_p99_ns)),
                    ("", None),
                ]
            },
        ),
        ("compute_seconds", "Time that the operations took for a result.", |it| {
            let seconds = |us: Option<f64>| us.map(|us| us / 1e6);
            [
                ("0.5", seconds(it.compute_p50_us)),
                ("0.99", seconds(it.compute_p99_us)),
                ("", None),
            ]
        }),
    ];
    for (name, about, values) in quantiles {
        metrics.metric(name, "gauge", about);
        for (node, report) in reports() {
            for (quantile, value) in values(report) {
                if let Some(value) = value {
                    metrics.series(name, &[("node", &node.name), ("quantile", quantile)], value);
                }
            }
        }
    }
}

fn of_inputs(status: &Status, metrics: &mut Metrics) {
    let rows = || {
        let reports = status
            .nodes
            .iter()
            .filter_map(|node| Some((node, node.report.as_ref()?)));
        reports.flat_map(|(node, report)| report.inputs.iter().map(move |row| (&*node.name, row)))
    };
    let numbers: [(&str, &str, &str, OfInput); 10] = [
        (
            "input_level",
            "gauge",
            "How the input is: 0 ok, 1 warn, 2 error, 3 stale.",
            |row| Some(f64::from(row.level as u8)),
        ),
        ("messages_total", "counter", "Messages that came.", |row| {
            Some(row.messages as f64)
        }),
        ("rate_hertz", "gauge", "Messages in a second.", |row| Some(row.rate_hz)),
        (
            "valid_ratio",
            "gauge",
            "The share of the observations in which the input is valid.",
            |row| row.valid_share,
        ),
        (
            "late_total",
            "counter",
            "Samples that came after their target was sent.",
            |row| Some(row.late as f64),
        ),
        ("faults_total", "counter", "What was wrong with messages.", |row| {
            Some(row.faults as f64)
        }),
        (
            "out_of_order_total",
            "counter",
            "Messages older than one before them.",
            |row| Some(row.out_of_order as f64),
        ),
        (
            "gaps_total",
            "counter",
            "Steps of capture time of more than 1.5 usual ones.",
            |row| Some(row.gaps as f64),
        ),
        (
            "clock_offset_seconds",
            "gauge",
            "Host time minus the time of the device.",
            |row| seconds(row.clock_offset_ns),
        ),
        (
            clock::key::clock_skew_ppm.name,
            "gauge",
            "How slow the clock of the device is, millionths.",
            |row| row.clock_skew_ppm,
        ),
    ];
    for (name, kind, about, value) in numbers {
        metrics.metric(name, kind, about);
        for (node, row) in rows() {
            if let Some(value) = value(row) {
                metrics.of_input(name, (node, row), None, value);
            }
        }
    }
    let quantiles: [(&str, &str, Quantiles<Row>); 3] = [
        (
            "age_seconds",
            "The age of the newest sample at the observations.",
            |row| {
                [
                    ("0.5", seconds(row.age_p50_ns)),
                    ("0.99", seconds(row.age_p99_ns)),
                    ("1", seconds(row.age_max_ns)),
                ]
            },
        ),
        (
            "period_seconds",
            "From one capture time to the next newer one.",
            |row| {
                [
                    ("0.5", seconds(row.period_p50_ns)),
                    ("0.99", seconds(row.period_p99_ns)),
                    ("", None),
                ]
            },
        ),
        ("delay_seconds", "From the capture time to the publication.", |row| {
            [
                ("0.5", seconds(row.delay_p50_ns)),
                ("0.99", seconds(row.delay_p99_ns)),
                ("", None),
            ]
        }),
    ];
    for (name, about, values) in quantiles {
        metrics.metric(name, "gauge", about);
        for (node, row) in rows() {
            for (quantile, value) in values(row) {
                if let Some(value) = value {
                    metrics.of_input(name, (node, row), Some(("quantile", quantile)), value);
                }
            }
        }
    }
    metrics.metric(
        "dropped_total",
        "counter",
        "Messages and samples that were not used, by the reason.",
    );
    for (node, row) in rows() {
        let reasons = [
            ("overflow", row.dropped_overflow),
            ("nonfinite", row.dropped_nonfinite),
            ("length", row.dropped_length),
            ("stamp", row.dropped_stamp),
            ("range", row.dropped_range),
            ("unreachable", row.dropped_unreachable),
        ];
        for (reason, count) in reasons {
            metrics.of_input("dropped_total", (node, row), Some(("reason", reason)), count as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::tests::{fuse, node};
    use super::*;

    #[test]
    fn every_figure_is_a_series_with_its_labels() {
        let status = Status {
            folder: "/run/robot".into(),
            nodes: vec![node(&fuse(), 1.0)],
        };
        let text = text_of(&status);
        for line in [
            "robocache_up{node=\"fuse\"} 1",
            "robocache_observations_total{node=\"fuse\"} 500",
            "robocache_observation_rate_hz{node=\"fuse\"} 48.5",
            "robocache_wait_seconds{node=\"fuse\",quantile=\"0.99\"} 0.04",
            "robocache_age_seconds{node=\"fuse\",operation=\"fuse\",input=\"camera\",quantile=\"0.99\"} 0.12",
            "robocache_age_seconds{node=\"fuse\",operation=\"fuse\",input=\"force\",quantile=\"1\"} 0.0011",
            "robocache_dropped_total{node=\"fuse\",operation=\"fuse\",input=\"camera\",reason=\"overflow\"} 4",
            "robocache_input_level{node=\"fuse\",operation=\"wrist\",input=\"lidar \\\"top\\\"\"} 3",
            "# TYPE robocache_age_seconds gauge",
            "# TYPE robocache_late_total counter",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        // An unknown value has no series, and no metric comes twice.
        assert!(!text.contains("robocache_age_seconds{node=\"fuse\",operation=\"wrist\""));
        let mut types: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let count = types.len();
        types.sort_unstable();
        types.dedup();
        assert_eq!(types.len(), count);
    }
}
