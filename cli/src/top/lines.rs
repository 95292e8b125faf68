//! Lines of the table of `robocache top`: one for each node, and below it one for each of its inputs. A node that has ended is
//! never listed as a problem.

use super::files::{Node, Status};
use crate::output::{bytes, figure, figure_or_dash, plain};
use robocache::app::{Level, Report, Row};
use robocache::time::ns_to_ms;

/// Headings of the columns; `<` marks a column of text. In the line of an input, times are the ages of its samples. In the line
/// of a node, they are the waits of its observations.
pub const HEADINGS: [&str; 10] = [
    "<node, input",
    "<level",
    "Hz",
    "age p50",
    "p99 ms",
    "valid %",
    "late",
    "dropped",
    "faults",
    "<device",
];

pub struct Line {
    pub cells: [String; 10],
    pub level: Level,
    pub is_node: bool,
    /// True if the node has ended, so that its level is of no interest.
    pub is_ended: bool,
}

/// Makes the lines of the table, in the order of the nodes.
pub fn of(status: &Status) -> Vec<Line> {
    let lines = |node: &Node| {
        let rows = node.report.iter().flat_map(|report| &report.inputs);
        let inputs = rows.map(|row| of_input(row, node)).collect::<Vec<_>>();
        std::iter::once(of_node(node)).chain(inputs)
    };
    status.nodes.iter().flat_map(lines).collect()
}

fn ms(ns: Option<i64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| figure(ns_to_ms(ns)))
}

fn of_node(node: &Node) -> Line {
    let none = || "-".to_owned();
    let report = node.report.as_ref();
    let device = |report: &Report| match report.device_bytes {
        0 => report.device.clone(),
        held => format!("{}, {}", report.device, bytes(held)),
    };
    Line {
        cells: [
            node.name.clone(),
            if node.is_ended() {
                "ended".to_owned()
            } else {
                node.level.to_string()
            },
            report.map_or_else(none, |report| figure_or_dash(report.observation_rate_hz)),
            report.map_or_else(none, |report| ms(report.wait_p50_ns)),
            report.map_or_else(none, |report| ms(report.wait_p99_ns)),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
            report.map_or_else(none, device),
        ],
        level: node.level,
        is_node: true,
        is_ended: node.is_ended(),
    }
}

fn of_input(row: &Row, node: &Node) -> Line {
    let of_messages = row.dropped_overflow + row.dropped_nonfinite + row.dropped_length + row.dropped_stamp;
    let dropped = of_messages + row.dropped_range + row.dropped_unreachable;
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
        ],
        level: row.level,
        is_node: false,
        is_ended: node.is_ended(),
    }
}

/// Problem of a node or an input, with its level.
pub struct Reason {
    pub level: Level,
    text: String,
}

/// Lists the problems of the nodes that have not ended, the worst first.
pub fn reasons(status: &Status) -> Vec<Reason> {
    let running = status.nodes.iter().filter(|node| !node.is_ended());
    let mut reasons: Vec<Reason> = running.flat_map(of).collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.level));
    return reasons;

    fn of(node: &Node) -> Vec<Reason> {
        let reason = |level, why: &str| Reason {
            level,
            text: plain(&format!("{}: {why}", node.name)).into_owned(),
        };
        let report = match (&node.problem, &node.report) {
            (Some(problem), _) => return vec![reason(node.level, problem)],
            (None, None) => return Vec::new(),
            (None, Some(report)) => report,
        };
        let bad = report.inputs.iter().filter(|row| row.level > Level::Ok);
        let reasons: Vec<Reason> = bad
            .map(|row| match row.operation == node.name {
                true => reason(row.level, &format!("`{}`: {}", row.input, row.message)),
                false => reason(
                    row.level,
                    &format!("{}: `{}`: {}", row.operation, row.input, row.message),
                ),
            })
            .collect();
        match reasons.is_empty() && report.level > Level::Ok {
            true => vec![reason(report.level, &report.message)],
            false => reasons,
        }
    }
}

impl Reason {
    /// Wraps the reason into lines of at most `width` characters. The level is written before the first line, and further lines
    /// are indented.
    pub fn lines(&self, width: usize) -> Vec<String> {
        const INDENT: usize = 7;
        let room = width.saturating_sub(INDENT).max(1);
        let mut lines: Vec<String> = Vec::new();
        let mut line = String::new();
        for word in self.text.split(' ') {
            let mut rest: Vec<char> = word.chars().collect();
            let used = line.chars().count();
            if used > 0 && used + 1 + rest.len() > room {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            // A word that is longer than a line is split.
            while rest.len() > room {
                lines.push(rest.drain(..room).collect());
            }
            line.extend(rest);
        }
        lines.push(line);
        let level = self.level.to_string();
        let first = |i: usize| if i == 0 { level.as_str() } else { "" };
        let lines = lines.into_iter().enumerate();
        lines.map(|(i, line)| format!("{:<INDENT$}{line}", first(i))).collect()
    }
}
