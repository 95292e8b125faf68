//! `robocache try`: the operations of a configuration over a recording, without a dataflow.

pub mod report;
pub mod tally;

use crate::config::{self, Operation, Section};
use crate::output::Output;
use report::Report;
use robocache::app::Change;
use robocache::ops::align::{FUSED, TriggerConfig};
use robocache::stream::Message;
use robocache::stream::recording::{Order, Reader};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use tally::Tally;

const MIN_VALID: f64 = 0.9;

/// Runs a configuration over a recording: would it have worked?
///
/// The operations of every section run in one process, on the CPU and as fast as it goes, with the recorded messages in
/// the order in which they came to the recorder, or that of their stamps where it did not keep that. Ages and validity
/// are those of the newest row of each observation. An input that the recording lacks is closed.
#[derive(clap::Args)]
#[command(after_help = "Exit codes:
  0   it would have worked
  1   it would not: no observation or grid, or a stream that is valid in fewer of them than --min-valid
  2   the configuration or the recording can't be used")]
pub struct Args {
    /// The configuration
    config: PathBuf,
    /// The folder of the recording
    recording: PathBuf,
    /// The share of the observations that each stream should be valid in
    #[arg(long, default_value_t = MIN_VALID, value_name = "SHARE", value_parser = share)]
    min_valid: f64,
    /// The order of the messages: `arrival` or `stamp`; absent: arrival, where the recording has it
    #[arg(long, value_parser = order)]
    order: Option<Order>,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "it is no share (allowed: 0 to 1)".to_owned())
}

fn order(text: &str) -> Result<Order, String> {
    match text {
        "stamp" => Ok(Order::Stamp),
        "arrival" => Ok(Order::Arrival),
        _ => Err("it is no order (allowed: stamp, arrival)".to_owned()),
    }
}

impl Args {
    /// What is tried without further words.
    pub fn new(config: &Path, recording: &Path) -> Self {
        Self {
            config: config.to_owned(),
            recording: recording.to_owned(),
            min_valid: MIN_VALID,
            order: None,
        }
    }
}

pub fn run(args: &Args, output: &Output) -> eyre::Result<ExitCode> {
    let (report, _) = attempt(args, &mut |_, _| {})?;
    output.result(&report, report::text)?;
    Ok(ExitCode::from(u8::from(!report.works)))
}

/// Runs the operations, and returns them beside what it comes to. `watch` gets every message that is published, and its
/// output.
pub fn attempt(args: &Args, watch: &mut dyn FnMut(&str, &Message)) -> eyre::Result<(Report, Vec<Operation>)> {
    let (mut graph, operations) = config::graph(&args.config, &config::ORDER, "try", is_counted)?;
    let (mut reader, refused) = Reader::open_readable(&args.recording)?;
    let mut problems: Vec<String> = refused.iter().map(ToString::to_string).collect();
    let inputs: Vec<String> = graph.external_inputs().map(|(input, _)| input.to_owned()).collect();
    let recorded: BTreeSet<String> = reader.streams().map(str::to_owned).collect();
    let unused: Vec<String> = recorded
        .iter()
        .filter(|stream| !inputs.contains(stream))
        .cloned()
        .collect();
    let missing: Vec<String> = inputs
        .iter()
        .filter(|input| !recorded.contains(*input))
        .cloned()
        .collect();
    reader.retain(|stream| inputs.iter().any(|input| input == stream));
    let own = if reader.has_arrivals() {
        Order::Arrival
    } else {
        Order::Stamp
    };
    let order = args.order.unwrap_or(own);
    let mut reader = reader.in_order(order)?;
    // By the index of a stream, that of its input.
    let streams: Vec<usize> = reader
        .streams()
        .filter_map(|name| inputs.iter().position(|input| input == name))
        .collect();

    let start = Instant::now();
    let mut tally = Tally::new(watch);
    let mut fed = Fed::new(inputs.len());
    graph.wake(start, true, &mut tally)?;
    for input in missing
        .iter()
        .filter_map(|missing| inputs.iter().position(|input| input == missing))
    {
        graph.changed(input, Change::Closed, &mut tally);
    }
    let mut message = Message::default();
    loop {
        match reader.next_into(&mut message) {
            Ok(Some(stream)) => {
                fed.message(streams[stream], &message);
                tally.arrival_ns = message.arrival_ns.filter(|_| order == Order::Arrival);
                graph.message(streams[stream], &message, &mut tally);
            }
            Ok(None) => break,
            Err(error) => problems.push(error.to_string()),
        }
    }
    tally.arrival_ns = None;
    graph.close_all(&mut tally);
    graph.finish(&mut tally)?;

    let run = report::Run {
        operations: &operations,
        inputs: &inputs,
        fed: &fed,
        took: start.elapsed(),
        order,
        min_valid: args.min_valid,
    };
    let report = Report::new(args, tally.outputs, &graph, &run, (missing, unused, problems));
    Ok((report, operations))
}

/// What came from the recording.
pub struct Fed {
    messages: u64,
    /// For each input.
    samples: Vec<u64>,
    /// The first and the last stamp.
    span_ns: Option<(i64, i64)>,
}

impl Fed {
    fn new(inputs: usize) -> Self {
        Self {
            messages: 0,
            samples: vec![0; inputs],
            span_ns: None,
        }
    }

    fn message(&mut self, input: usize, message: &Message) {
        self.messages += 1;
        self.samples[input] += message.header.timestamps_ns.len().max(1) as u64;
        let stamp_ns = message.timestamp_ns();
        let (first, last) = self.span_ns.unwrap_or((stamp_ns, stamp_ns));
        self.span_ns = Some((first.min(stamp_ns), last.max(stamp_ns)));
    }

    fn seconds(&self) -> f64 {
        self.span_ns
            .map_or(0.0, |(first, last)| last.saturating_sub(first) as f64 * 1e-9)
    }
}

/// Whether an output is looked at. What is attached is told by what `fused` says of it, and clocks change stamps alone.
fn is_counted(output: &str, operations: &[Operation]) -> bool {
    operations.iter().any(|operation| match &operation.section {
        Section::Observe(config) if operation.plugin == "align" => config
            .modalities
            .iter()
            .any(|modality| operation.output(&modality.input) == output),
        Section::Observe(_) => operation.output(FUSED) == output,
        Section::Voxelize(_) => operation.output("voxels") == output,
        Section::Resample => operation.output("resampled") == output,
        Section::Group(config) => config
            .inputs
            .iter()
            .any(|input| operation.output(&input.input) == output),
        _ => false,
    })
}

/// The input whose messages ask for observations, where a configuration has one.
fn asked_by(operation: &Operation) -> Option<&str> {
    match &operation.section {
        Section::Observe(config) => match &config.trigger {
            Some(TriggerConfig::Request { request: input } | TriggerConfig::Timer { timer: input }) => Some(input),
            _ => None,
        },
        _ => None,
    }
}
