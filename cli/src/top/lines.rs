//! A line for each node, and below it one for each of its inputs.

use super::files::{Node, Status};
use crate::output::{bytes, figure};
use robocache::app::{Level, Report, Row};

/// What stands over the columns; `<` over those of text.
pub const HEADINGS: [&str; 13] = [
    "<node, input",
    "<level",
    "rate Hz",
    "age p50",
    "p99 ms",
    "valid %",
    "late",
    "dropped",
    "faults",
    "wait p50",
    "p99 ms",
    "<device",
    "<why",
];

pub struct Line {
    pub cells: [String; 13],
    pub level: Level,
    pub is_node: bool,
    /// Whether the node has ended, so that its level is of no interest.
    pub is_ended: bool,
}

/// The lines of all nodes.
pub fn of(status: &Status) -> Vec<Line> {
    let lines = |node: &Node| {
        let rows = node.report.iter().flat_map(|report| &report.inputs);
        let inputs = rows.map(|row| of_input(row, node)).collect::<Vec<_>>();
        std::iter::once(of_node(node)).chain(inputs)
    };
    status.nodes.iter().flat_map(lines).collect()
}

fn ms(ns: Option<i64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| figure(ns as f64 * 1e-6))
}

fn of_node(node: &Node) -> Line {
    let none = || "-".to_owned();
    let report = node.report.as_ref();
    let device = |report: &Report| match report.device_bytes {
        0 => report.device.clone(),
        held => format!("{}, {}", report.device, bytes(held)),
    };
    let why = match (&node.problem, report) {
        (Some(problem), _) => problem.clone(),
        (None, Some(report)) => report.message.clone(),
        (None, None) => String::new(),
    };
    Line {
        cells: [
            node.name.clone(),
            if node.is_ended() {
                "ended".to_owned()
            } else {
                node.level.to_string()
            },
            String::new(),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
            report.map_or_else(none, |report| ms(report.wait_p50_ns)),
            report.map_or_else(none, |report| ms(report.wait_p99_ns)),
            report.map_or_else(none, device),
            if node.is_ended() { String::new() } else { why },
        ],
        level: node.level,
        is_node: true,
        is_ended: node.is_ended(),
    }
}

fn of_input(row: &Row, node: &Node) -> Line {
    let dropped = row.dropped_overflow + row.dropped_nonfinite + row.dropped_length + row.dropped_stamp;
    let name = match row.operation == node.name {
        true => format!("  {}", row.input),
        false => format!("  {}: {}", row.operation, row.input),
    };
    Line {
        cells: [
            name,
            if node.is_ended() {
                String::new()
            } else {
                row.level.to_string()
            },
            figure(row.rate_hz),
            ms(row.age_p50_ns),
            ms(row.age_p99_ns),
            row.valid_share
                .map_or_else(|| "-".to_owned(), |share| figure(share * 100.0)),
            row.late.to_string(),
            dropped.to_string(),
            row.faults.to_string(),
            String::new(),
            String::new(),
            String::new(),
            if node.is_ended() {
                String::new()
            } else {
                row.message.clone()
            },
        ],
        level: row.level,
        is_node: false,
        is_ended: node.is_ended(),
    }
}
