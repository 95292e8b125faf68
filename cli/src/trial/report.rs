//! Results of a trial, and the verdict on the configuration. The verdict is `no` if `fuse`, `voxelize` or `kinematics`
//! published no message.

use super::tally::{self, Counts, Coverage};
use super::{Args, Leap, Replayed, asked_by, has_clock, period_ns};
use crate::config::{Operation, Section};
use crate::interpolated;
use crate::offsets::{self, StreamOffset};
use crate::output::{Table, figure, figure_or_dash, path, plain};
use crate::stats::Spread;
use robocache::app::Graph;
use robocache::ops::align::{AlignConfig, FUSED, TriggerConfig};
use robocache::ops::kinematics::{KinematicsEntry, Product};
use robocache::stream::recording::Order;
use robocache::time::ns_to_s;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Serialize)]
pub struct Report {
    config: PathBuf,
    recording: PathBuf,
    /// Order in which messages were replayed, `arrival` or `stamp`.
    order: &'static str,
    messages: u64,
    recorded_s: f64,
    took_s: f64,
    observations: Vec<Observations>,
    grids: Vec<Grids>,
    others: Vec<OtherOutput>,
    /// Warnings about interpolation modes that give wrong values for poses and joints.
    warnings: Vec<String>,
    /// Faults and warnings, by the place where they were counted.
    faults: Vec<Faults>,
    /// Inputs of the configuration that the recording lacks.
    missing: Vec<String>,
    /// Streams of the recording that no operation takes.
    unused: Vec<String>,
    /// Errors of the parts of the recording that can't be read, one line each.
    problems: Vec<String>,
    /// Streams whose stamps are ahead of, or behind, those of the other streams.
    pub offsets: Vec<StreamOffset>,
    pub works: bool,
    pub verdict: String,
}

#[derive(Serialize)]
pub struct Observations {
    pub output: String,
    pub count: u64,
    rate_hz: Option<f64>,
    /// Smallest number of observations in a whole second between the first and the last observation; `None` if there is no such
    /// second.
    fewest_in_a_second: Option<u64>,
    /// Number of targets without an observation, between the first and the last observation; `None` if not known. If a stream
    /// triggers, its samples are the targets.
    missed: Option<u64>,
    late_samples: i64,
    epoch: i64,
    refused: u64,
    wait_ms: Option<Spread>,
    /// Time from the target to the arrival of the message that made the observation due; `None` if arrivals are not known.
    delay_ms: Option<Spread>,
    /// Time that the operation took to compute an observation.
    compute_ms: Option<Spread>,
    streams: Vec<Validity>,
}

#[derive(Serialize)]
struct Validity {
    name: String,
    valid: f64,
    age_ms: Option<Spread>,
}

#[derive(Serialize)]
struct Grids {
    output: String,
    count: u64,
    rate_hz: Option<f64>,
    points_in: i64,
    points_kept: i64,
    dropped_nonfinite: i64,
    dropped_outside: i64,
    dropped_overflow: i64,
}

#[derive(Serialize)]
struct OtherOutput {
    output: String,
    count: u64,
    /// Counts of the rows of an output of kinematics; `None` for other outputs.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    rows: Option<Rows>,
    /// Counts of the frames of a map; `None` for other outputs.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    frames: Option<tally::Frames>,
}

/// Counts of the rows of an output of kinematics.
#[derive(Serialize)]
struct Rows {
    rows: u64,
    /// Share of the rows that are valid, 0 to 1.
    valid: f64,
    /// Number of rows with a joint more than a turn beyond its limits.
    implausible: u64,
    /// Number of jumps between solutions of the inverse kinematics, where joints could not follow from the previous joints.
    posture_changes: i64,
    /// Stamp of the first message with a jump between solutions, ns; `None` if there was none.
    first_change_ns: Option<i64>,
}

#[derive(Serialize)]
pub struct Faults {
    at: String,
    count: u64,
    causes: Vec<Cause>,
}

/// A fault: its last line in the log, and the number of times it occurred.
#[derive(Serialize)]
struct Cause {
    count: u64,
    such_as: String,
}

/// Operations that ran in the trial, their inputs, the replayed messages, and the trial's settings.
pub struct Run<'a> {
    pub operations: &'a [Operation],
    pub inputs: &'a [String],
    pub replayed: &'a Replayed,
    /// The stamp far ahead of all streams at which the trial ended, and the operation whose targets became due. `None` if the
    /// trial ran to the end.
    pub leap: Option<(Leap, &'a Operation)>,
    pub took: Duration,
    pub order: Order,
    pub min_valid: f64,
    /// Streams whose stamps are ahead of, or behind, those of the other streams.
    pub offsets: Vec<StreamOffset>,
}

impl Report {
    /// True if a part of the recording can't be read.
    pub fn is_partial(&self) -> bool {
        !self.problems.is_empty()
    }

    pub fn new(
        args: &Args,
        outputs: Vec<(String, Counts)>,
        graph: &Graph,
        run: Run<'_>,
        (missing, unused, problems): (Vec<String>, Vec<String>, Vec<String>),
    ) -> Self {
        let (mut observations, mut grids, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for (output, counts) in outputs {
            if counts.is_observation || counts.refused > 0 {
                let config = section_of(&output, run.operations);
                let missed = config.and_then(|config| missed(config, &counts, &run));
                observations.push(Observations::new(output, counts, missed));
            } else if counts.is_grid {
                grids.push(Grids::new(output, &counts));
            } else {
                others.push(OtherOutput {
                    rows: product_of(&output, run.operations).map(|_| Rows::new(&counts.rows)),
                    count: counts.messages,
                    frames: counts.frames,
                    output,
                });
            }
        }
        let faults = graph.faults().filter(|(_, count)| *count > 0);
        let faults = faults
            .map(|(at, count)| Faults {
                at: at.to_owned(),
                count,
                causes: graph
                    .causes()
                    .filter(|(of, ..)| *of == at)
                    .map(|(_, count, words)| Cause {
                        count,
                        such_as: words.to_owned(),
                    })
                    .collect(),
            })
            .collect();
        let (works, verdict) = verdict((&observations, &grids, &others), &missing, &run);
        Self {
            config: args.config.clone(),
            recording: args.recording.clone(),
            order: if run.order == Order::Arrival {
                "arrival"
            } else {
                "stamp"
            },
            messages: run.replayed.messages,
            recorded_s: run.replayed.seconds(),
            took_s: run.took.as_secs_f64(),
            observations,
            grids,
            others,
            warnings: warnings(run.operations),
            faults,
            missing,
            unused,
            problems,
            offsets: run.offsets,
            works,
            verdict,
        }
    }
}

/// Returns what an output of kinematics holds, such as poses; `None` for other outputs.
fn product_of(output: &str, operations: &[Operation]) -> Option<Product> {
    let of_entry = |operation: &Operation, entry: &KinematicsEntry| {
        let mut made = entry.outputs().zip(&entry.make);
        made.find_map(|(name, &product)| (operation.output(&name) == output).then_some(product))
    };
    operations.iter().find_map(|operation| match &operation.section {
        Section::Kinematics(config) => config.entries.iter().find_map(|entry| of_entry(operation, entry)),
        _ => None,
    })
}

/// Lists the warnings about the interpolation of poses and joints from `kinematics:`, as `robocache check` gives them.
fn warnings(operations: &[Operation]) -> Vec<String> {
    let of_operation = |operation: &Operation| {
        let Section::Observe(config) = &operation.section else {
            return Vec::new();
        };
        let found = interpolated::warnings(config, |input| product_of(input, operations)).into_iter();
        found
            .map(|(key, problem)| format!("{}.{key}: {problem}", operation.label()))
            .collect()
    };
    operations.iter().flat_map(of_operation).collect()
}

/// Returns the messages a second, from the oldest to the newest stamp; `None` if these are the same.
fn rate(counts: &Counts) -> Option<f64> {
    let (first, last) = counts.span_ns?;
    let span = ns_to_s(last.saturating_sub(first));
    (span > 0.0).then(|| (counts.messages - 1) as f64 / span)
}

/// Finds the section of the operation that publishes an output of observations; `None` for other outputs.
pub fn section_of<'a>(output: &str, operations: &'a [Operation]) -> Option<&'a AlignConfig> {
    operations.iter().find_map(|operation| match &operation.section {
        Section::Observe(config) => {
            let names = config
                .modalities
                .iter()
                .map(|modality| modality.input.as_str())
                .chain([FUSED]);
            names
                .into_iter()
                .any(|name| operation.output(name) == output)
                .then_some(config)
        }
        _ => None,
    })
}

impl Observations {
    pub fn new(output: String, mut counts: Counts, missed: Option<u64>) -> Self {
        let count = counts.messages;
        let validity = |mut seen: Coverage| Validity {
            name: seen.name,
            valid: seen.valid as f64 / count.max(1) as f64,
            age_ms: Spread::of_ns(&mut seen.ages_ns),
        };
        Self {
            count,
            rate_hz: rate(&counts),
            fewest_in_a_second: fewest(&counts),
            missed,
            late_samples: counts.late,
            epoch: counts.epoch,
            refused: counts.refused,
            wait_ms: Spread::of_ns(&mut counts.waits_ns),
            delay_ms: Spread::of_ns(&mut counts.delays_ns),
            compute_ms: Spread::of_ns(&mut counts.computes_ns),
            streams: counts.streams.into_iter().map(validity).collect(),
            output,
        }
    }

    /// Returns the stream that is valid in the smallest share of observations, and the share, 0 to 1; `None` if there are no
    /// streams.
    pub fn worst(&self) -> Option<(&str, f64)> {
        let streams = self.streams.iter().map(|stream| (stream.name.as_str(), stream.valid));
        streams.min_by(|(_, a), (_, b)| a.total_cmp(b))
    }
}

/// Returns the smallest number of messages in a whole second between the first and the last message; `None` if there is no such
/// second.
fn fewest(counts: &Counts) -> Option<u64> {
    let (&first, _) = counts.seconds.first_key_value()?;
    let (&last, _) = counts.seconds.last_key_value()?;
    let between = Some(last - first - 1).filter(|&seconds| seconds > 0)?;
    let some = counts.seconds.range(first + 1..last).map(|(_, &count)| count);
    // A second without a message has no entry.
    if (some.clone().count() as i64) < between {
        Some(0)
    } else {
        some.min()
    }
}

/// Counts the targets without an observation; `None` after a clock jump, or if the targets are not known.
fn missed(config: &AlignConfig, counts: &Counts, run: &Run<'_>) -> Option<u64> {
    if counts.epoch > 0 {
        return None;
    }
    let expected = match &config.trigger {
        None => {
            let (first, last) = counts.span_ns?;
            (last.saturating_sub(first) / period_ns(config)?) as u64 + 1
        }
        Some(TriggerConfig::Stream {
            stream,
            every,
            min_interval_ms: 0.0,
            ..
        }) => {
            let input = run.inputs.iter().position(|input| input == stream)?;
            run.replayed.streams[input].samples / *every as u64
        }
        Some(_) => return None,
    };
    Some(expected.saturating_sub(counts.messages))
}

impl Grids {
    fn new(output: String, counts: &Counts) -> Self {
        let points = &counts.points;
        Self {
            output,
            count: counts.messages,
            rate_hz: rate(counts),
            points_in: points.came,
            points_kept: points.kept,
            dropped_nonfinite: points.nonfinite,
            dropped_outside: points.outside,
            dropped_overflow: points.overflow,
        }
    }
}

impl Rows {
    fn new(counts: &tally::Rows) -> Self {
        Self {
            rows: counts.came,
            valid: counts.valid as f64 / counts.came.max(1) as f64,
            implausible: counts.implausible,
            posture_changes: counts.changes,
            first_change_ns: counts.first_change_ns,
        }
    }

    /// Returns the reason why an output of kinematics with these counts is not usable; `None` if it is.
    fn refusal(&self, output: &str, min_valid: f64) -> Option<String> {
        let Self {
            rows,
            valid,
            implausible,
            ..
        } = self;
        if *valid < min_valid {
            let (valid, least) = (figure(valid * 100.0), figure(min_valid * 100.0));
            return Some(format!(
                "no: of {rows} rows of `{output}`, {valid} % are valid (asked for: {least} %)"
            ));
        }
        (2 * implausible > *rows).then(|| {
            format!(
                "no: of {rows} rows of `{output}`, {implausible} are of joints more than a turn beyond their limits (allowed: radians; are \
                 these degrees?)"
            )
        })
    }
}

/// Returns the reason why a map with these counts of frames is not usable; `None` if it is.
fn refusal_of_map(output: &str, frames: Option<tally::Frames>, min_valid: f64) -> Option<String> {
    let Some(tally::Frames {
        frames_fused: fused,
        frames_dropped: dropped,
    }) = frames
    else {
        return Some(format!(
            "no: `{output}` has no message: an input is missing, or fewer steps came than `emit_every`"
        ));
    };
    let all = fused + dropped;
    let share = fused as f64 / all.max(1) as f64;
    (share < min_valid || fused == 0).then(|| {
        let (share, least) = (figure(share * 100.0), figure(min_valid * 100.0));
        format!(
            "no: of {all} frames, {share} % are in the map of `{output}` (asked for: {least} %); the others are late, or without a pose"
        )
    })
}

/// Checks that an output has at least half of the observations that it should have: one per target in the time that the
/// shortest stream with `wait: true` spans. Returns the problem if there are fewer, or if all stamps of that stream are equal.
/// `None` if there are enough, or if their number is not known.
fn too_few(of: &Observations, run: &Run<'_>) -> Option<String> {
    let config = section_of(&of.output, run.operations).filter(|_| !has_clock(run.operations))?;
    let period_ns = period_ns(config)?;
    let modalities = config.modalities.iter().map(|it| (it.wait, &it.input));
    let attached = config.attach.iter().map(|it| (it.wait, &it.input));
    let waited = modalities.chain(attached).filter(|(wait, _)| *wait);
    let came = waited.filter_map(|(_, input)| {
        let at = run.inputs.iter().position(|it| it == input)?;
        let stream = &run.replayed.streams[at];
        (stream.samples > 1).then(|| (stream.lasted_ns() / period_ns, input, stream))
    });
    let (targets, input, stream) = came.min_by_key(|(targets, ..)| *targets)?;
    let (count, output) = (of.count, &of.output);
    if stream.steps_ns.is_empty() {
        let samples = stream.samples;
        return Some(format!(
            "no: none of the {samples} samples of `{input}` has a stamp past that of the first (needed: `timestamp_ns`, the \
             capture time of each)"
        ));
    }
    (2 * count < targets as u64).then(|| {
        format!(
            "no: {count} observations on `{output}`, where the stamps of `{input}` have room for {targets}: `robocache info` shows what is \
             wrong with stamps"
        )
    })
}

/// Judges the configuration. Returns true if it works, and the verdict with its reason.
fn verdict(
    (observations, grids, others): (&[Observations], &[Grids], &[OtherOutput]),
    missing: &[String],
    run: &Run<'_>,
) -> (bool, String) {
    if let Some((leap, operation)) = &run.leap {
        let days = ns_to_s(leap.ahead_ns) / 86400.0;
        let (input, targets, of) = (&run.inputs[leap.input], leap.targets, operation.label());
        let text = format!(
            "no: a stamp of `{input}` is {} days ahead of where all streams are, and {of} has {targets} targets until then: it was tried up to \
             there",
            figure(days)
        );
        return (false, text);
    }
    if let Some(refused) = offsets::refusal(&run.offsets) {
        return (false, format!("no: {refused}"));
    }
    for operation in run.operations {
        if let Some(input) = asked_by(operation).filter(|input| missing.iter().any(|missing| missing == input)) {
            return (
                false,
                format!(
                    "no: `{input}` asks for the observations, and the recording lacks it (allowed: one with it, or another `trigger`)"
                ),
            );
        }
        if let Section::Kinematics(config) = &operation.section {
            for output in config.outputs().map(|output| operation.output(&output)) {
                let Some(came) = others.iter().find(|came| came.output == output) else {
                    return (
                        false,
                        format!("no: `{output}` has no message: its input is missing, or none of it can be used"),
                    );
                };
                let rows = came.rows.as_ref();
                if let Some(refusal) = rows.and_then(|rows| rows.refusal(&output, run.min_valid)) {
                    return (false, refusal);
                }
            }
        }
        if let Section::Map(config) = &operation.section {
            for output in config.outputs.iter().map(|product| operation.output(product.name())) {
                let frames = others
                    .iter()
                    .find(|came| came.output == output)
                    .and_then(|came| came.frames);
                if let Some(refusal) = refusal_of_map(&output, frames, run.min_valid) {
                    return (false, refusal);
                }
            }
        }
        let output = match &operation.section {
            Section::Observe(_) if operation.plugin == "fuse" => operation.output(FUSED),
            Section::Voxelize(_) => operation.output("voxels"),
            _ => continue,
        };
        let observed = observations
            .iter()
            .find(|came| came.output == output)
            .map(|came| came.count);
        let kept = grids
            .iter()
            .find(|came| came.output == output)
            .map(|came| came.points_kept.max(0) as u64);
        match (&operation.section, observed.or(kept).unwrap_or(0)) {
            (Section::Voxelize(_), 0) => return (false, format!("no: `{output}` has no grid with a point in it")),
            (_, 0) => return (false, format!("no: `{output}` has no observation")),
            _ => {}
        }
    }
    if let Some(why) = observations.iter().find_map(|of| too_few(of, run)) {
        return (false, why);
    }
    let streams = observations.iter().filter_map(|of| Some((of, of.worst()?)));
    let worst = streams.min_by(|(_, (_, a)), (_, (_, b))| a.total_cmp(b));
    let least = figure(run.min_valid * 100.0);
    match worst {
        None => (true, "yes".to_owned()),
        Some((of, (name, valid))) => {
            let works = valid >= run.min_valid;
            let (word, count, output) = (if works { "yes" } else { "no" }, of.count, &of.output);
            let valid = figure(valid * 100.0);
            let text = format!(
                "{word}: of {count} observations on `{output}`, the worst stream, `{name}`, is valid in {valid} % (asked for: \
                 {least} %)"
            );
            (works, text)
        }
    }
}

pub fn text(report: &Report) -> String {
    let mut text = format!(
        "{} over {}: {} messages in order of {}, {} s in {} s, {} times real time\n",
        path(&report.config),
        path(&report.recording),
        report.messages,
        report.order,
        figure(report.recorded_s),
        figure(report.took_s),
        figure(report.recorded_s / report.took_s)
    );
    // Writing to a string can't fail.
    for of in &report.observations {
        let count = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
        let wait = of.wait_ms.map_or_else(String::new, |wait| {
            format!(", wait p50 {} p99 {} ms", figure(wait.p50), figure(wait.p99))
        });
        let _ = writeln!(
            text,
            "\n{}: {} observations, {} Hz, {} in the emptiest second, {} missed, {} late samples, epoch {}{wait}{}",
            plain(&of.output),
            of.count,
            figure_or_dash(of.rate_hz),
            count(of.fewest_in_a_second),
            count(of.missed),
            of.late_samples,
            of.epoch,
            if of.refused > 0 {
                format!(", {} requests refused", of.refused)
            } else {
                String::new()
            }
        );
        let mut table = Table::new(["<stream", "valid %", "age p50", "p99", "max ms"]);
        for stream in &of.streams {
            let age = |of: fn(&Spread) -> f64| figure_or_dash(stream.age_ms.as_ref().map(of));
            table.row([
                stream.name.clone(),
                figure(stream.valid * 100.0),
                age(|age| age.p50),
                age(|age| age.p99),
                age(|age| age.max),
            ]);
        }
        let _ = write!(text, "{table}");
    }
    for grid in &report.grids {
        let _ = writeln!(
            text,
            "\n{}: {} grids, {} Hz; of {} points {} kept; dropped: {} outside, {} not finite, {} past max_voxels",
            plain(&grid.output),
            grid.count,
            figure_or_dash(grid.rate_hz),
            grid.points_in,
            grid.points_kept,
            grid.dropped_outside,
            grid.dropped_nonfinite,
            grid.dropped_overflow
        );
    }
    for other in &report.others {
        let _ = write!(text, "\n{}: {} messages", plain(&other.output), other.count);
        if let Some(of) = &other.rows {
            let _ = write!(text, ", {} % of {} rows valid", figure(of.valid * 100.0), of.rows);
            if let Some(first_ns) = of.first_change_ns {
                let changes = of.posture_changes;
                let _ = write!(text, ", {changes} changes of posture, the first at {first_ns} ns");
            }
        }
        if let Some(of) = &other.frames {
            let _ = write!(
                text,
                ", {} frames fused, {} dropped",
                of.frames_fused, of.frames_dropped
            );
        }
        text.push('\n');
    }
    text.push('\n');
    for warning in &report.warnings {
        let _ = writeln!(text, "warning: {}", plain(warning));
    }
    text.push_str(&causes(report));
    for problem in &report.problems {
        let _ = writeln!(text, "can't be read: {}", plain(problem));
    }
    for found in &report.offsets {
        let _ = writeln!(text, "clocks: {}", plain(&found.text));
    }
    let _ = writeln!(text, "{}", plain(&report.verdict.to_string()));
    text
}

/// Formats the faults with their places and causes, and the streams that are missing or not used.
pub fn causes(report: &Report) -> String {
    let mut text = String::new();
    for fault in &report.faults {
        let _ = writeln!(text, "{}: {} faults and warnings", plain(&fault.at), fault.count);
        for Cause { count, such_as } in &fault.causes {
            let _ = writeln!(text, "  {count}, such as: {}", plain(such_as));
        }
    }
    for (what, names) in [("not in the recording", &report.missing), ("not used", &report.unused)] {
        if !names.is_empty() {
            let _ = writeln!(text, "{what}: {}", plain(&names.join(", ")));
        }
    }
    text
}
