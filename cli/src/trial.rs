//! `robocache try`: runs the operations of a configuration over a recording, without a dataflow. Recorders do not run, so that
//! nothing is written.

pub mod report;
pub mod tally;

use crate::config::{self, Operation, Section};
use crate::convert::lerobot::{self, LerobotConfig};
use crate::offsets::{self, Judge};
use crate::output::Output;
use report::Report;
use robocache::app::{Change, Config};
use robocache::ops::align::{AlignConfig, FUSED, TriggerConfig};
use robocache::stream::recording::{Order, Reader};
use robocache::stream::{Message, Selection};
use robocache::time::ns_to_s;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use tally::Tally;

const MIN_VALID: f64 = 0.9;

/// Numbers of targets that become due at once only by a clock jump, and that operations without `max_wait_ms` would all
/// publish. Above this range, the operations report the clock jump.
const TOO_MANY_TARGETS: RangeInclusive<i64> = (1 << 20) + 1..=1 << 32;

/// Runs a configuration over a recording: would it have worked?
///
/// The operations of every section run in one process, on the CPU, as fast as possible. Messages come in the order of
/// their arrivals at the recorder, or of their stamps if the recording has no arrivals. Ages and validity are those of
/// the newest row of each observation. An input that the recording lacks is closed.
#[derive(clap::Args)]
#[command(after_help = "Exit codes:
  0   it would have worked
  1   it would not: no observation or grid, a stream or rows of kinematics that are valid in fewer than --min-valid, joints in
      degrees, or a stream whose stamps are 1 s or more off from those of the others; or a part of the recording can't be
      read
  2   the configuration or the recording can't be used")]
pub struct Args {
    /// The configuration
    config: PathBuf,
    /// The folder of the recording
    recording: PathBuf,
    /// The least share of the observations in which each stream must be valid, 0 to 1
    #[arg(long, default_value_t = MIN_VALID, value_name = "SHARE", value_parser = share)]
    min_valid: f64,
    /// The order of the messages: `arrival` or `stamp`; absent: arrival, if the recording has it
    #[arg(long, value_parser = order)]
    order: Option<Order>,
    #[command(flatten)]
    offsets: offsets::Args,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "it is not a share (allowed: 0 to 1)".to_owned())
}

fn order(text: &str) -> Result<Order, String> {
    match text {
        "stamp" => Ok(Order::Stamp),
        "arrival" => Ok(Order::Arrival),
        _ => Err("it is not an order (allowed: stamp, arrival)".to_owned()),
    }
}

impl Args {
    /// Creates the arguments of a trial with default options.
    pub fn new(config: &Path, recording: &Path, offsets: &offsets::Args) -> Self {
        Self {
            offsets: offsets.clone(),
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
    Ok(ExitCode::from(u8::from(!report.works || report.is_partial())))
}

/// Runs the operations over the recording, and returns the report and the operations. `watch` gets every published message with the
/// name of its output.
pub fn attempt(args: &Args, watch: &mut dyn FnMut(&str, &Message)) -> eyre::Result<(Report, Vec<Operation>)> {
    let (mut graph, operations) = config::graph(&args.config, &config::ORDER, "try", is_counted)?;
    let (mut reader, refused) = Reader::open_readable(&args.recording).map_err(|error| {
        let (path, there) = (args.recording.display(), args.recording.exists());
        let how = format!(
            " (a bag, a table or a dataset of LeRobot becomes a recording by `robocache convert {path} RECORDING`)"
        );
        eyre::eyre!("{error}{}", if there { &how } else { "" })
    })?;
    let mut problems: Vec<String> = refused.iter().map(ToString::to_string).collect();
    let inputs: Vec<String> = graph.external_inputs().map(|(input, _)| input.to_owned()).collect();
    let recorded: BTreeSet<String> = reader.streams().map(str::to_owned).collect();
    // Mistakes in this section are reported by `check` and `convert`.
    let lerobot = Config::read(&args.config)?.read_section::<LerobotConfig>("lerobot");
    let lerobot = lerobot.ok().flatten().unwrap_or_default();
    let is_used = |stream: &String| inputs.contains(stream) || lerobot.streams().any(|taken| taken == stream);
    let unused: Vec<String> = recorded.iter().filter(|stream| !is_used(stream)).cloned().collect();
    let missing: Vec<String> = inputs
        .iter()
        .filter(|input| !recorded.contains(*input))
        .cloned()
        .collect();
    reader.retain(|stream| inputs.iter().any(|input| input == stream));
    let order = args.order.unwrap_or_else(|| reader.own_order());
    let mut reader = reader.in_order(order)?;
    // Index of the input, by the index of the stream.
    let streams: Vec<usize> = reader
        .streams()
        .filter_map(|name| inputs.iter().position(|input| input == name))
        .collect();

    let start = Instant::now();
    let mut tally = Tally::new(watch);
    let mut replayed = Replayed::new(inputs.len());
    let mut latencies = offsets::latencies(&operations);
    // A section `lerobot:` with mistakes counts as absent, as above.
    latencies.extend(lerobot::latencies(&args.config, &latencies).unwrap_or_default());
    let mut judge = Judge::new(latencies.clone(), &args.offsets);
    judge_others(&args.recording, &latencies, &inputs, &mut judge)?;
    graph.wake(start, true, &mut tally)?;
    for input in missing
        .iter()
        .filter_map(|missing| inputs.iter().position(|input| input == missing))
    {
        graph.changed(input, Change::Closed, &mut tally);
    }
    let selections: Vec<Selection> = streams
        .iter()
        .map(|&input| graph.selection(input).unwrap_or_default())
        .collect();
    let mut message = Message::default();
    let finest = finest(&operations);
    let mut leap = None;
    loop {
        match reader.next_into(&mut message) {
            Ok(Some(stream)) => {
                if let Err(error) = selections[stream].restamp(&mut message.header) {
                    problems.push(format!("stream `{}`: {error}", inputs[streams[stream]]));
                    continue;
                }
                leap = finest.and_then(|(_, period_ns)| replayed.leap(streams[stream], &message, period_ns));
                if leap.is_some() {
                    break;
                }
                replayed.message(streams[stream], &message);
                judge.message(&inputs[streams[stream]], &message);
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
        replayed: &replayed,
        leap: leap.zip(finest.map(|(operation, _)| operation)),
        took: start.elapsed(),
        order,
        min_valid: args.min_valid,
        offsets: judge.offsets(),
    };
    let report = Report::new(args, tally.outputs, &graph, run, (missing, unused, problems));
    Ok((report, operations))
}

/// Adds to `judge` the messages of the streams in `taken` that are not among `inputs`, since only a dataset uses them.
fn judge_others(folder: &Path, taken: &[(String, i64)], inputs: &[String], judge: &mut Judge) -> eyre::Result<()> {
    let is_other = |stream: &str| taken.iter().any(|(name, _)| name == stream) && inputs.iter().all(|it| it != stream);
    let (mut reader, _) = Reader::open_readable(folder)?;
    reader.retain(is_other);
    let names: Vec<String> = reader.streams().map(str::to_owned).collect();
    let mut message = Message::default();
    loop {
        match reader.next_into(&mut message) {
            Ok(Some(stream)) => judge.message(&names[stream], &message),
            Ok(None) => return Ok(()),
            // `convert` reports the error.
            Err(_) => {}
        }
    }
}

/// Counts of the messages that were read from the recording.
pub struct Replayed {
    messages: u64,
    /// Counts and stamps of each input, in the order of the inputs.
    streams: Vec<StampTally>,
    /// Smallest and largest stamp of all messages, ns; `None` before the first message.
    span_ns: Option<(i64, i64)>,
}

/// Counts and stamps of the messages of an input.
#[derive(Clone, Default)]
struct StampTally {
    samples: u64,
    last_ns: Option<i64>,
    newest_ns: Option<i64>,
    /// Steps from the newest stamp so far to the next newer stamp, ns.
    steps_ns: Vec<i64>,
}

/// Stamp far ahead of all streams, at which a trial ends: an operation without `max_wait_ms` would publish observations at
/// millions of targets before it.
pub struct Leap {
    input: usize,
    ahead_ns: i64,
    targets: i64,
}

/// True if one of the operations is `clock`, which changes the stamps of streams.
fn has_clock(operations: &[Operation]) -> bool {
    let mut sections = operations.iter().map(|operation| &operation.section);
    sections.any(|section| matches!(section, Section::Clock(_)))
}

/// Finds the operation with the shortest period among those without `max_wait_ms` and trigger, and the period, ns. The result is
/// `None` if there is no such operation, or if one of the operations is `clock`.
fn finest(operations: &[Operation]) -> Option<(&Operation, i64)> {
    if has_clock(operations) {
        return None;
    }
    let grids = operations.iter().filter_map(|operation| match &operation.section {
        Section::Observe(config) if config.max_wait_ms.is_none() => Some((operation, period_ns(config)?)),
        _ => None,
    });
    grids.min_by_key(|(_, period_ns)| *period_ns)
}

/// Returns the time from one observation to the next, ns; `None` if a trigger sets the times of observations.
fn period_ns(config: &AlignConfig) -> Option<i64> {
    let period_ns = (1e9 / config.rate_hz).round() as i64 * config.emit_every as i64;
    config.trigger.is_none().then_some(period_ns)
}

impl Replayed {
    fn new(inputs: usize) -> Self {
        Self {
            messages: 0,
            streams: vec![StampTally::default(); inputs],
            span_ns: None,
        }
    }

    fn message(&mut self, input: usize, message: &Message) {
        self.messages += 1;
        let stamp_ns = message.timestamp_ns();
        self.streams[input].message(message.header.timestamps_ns.get().map_or(0, <[i64]>::len), stamp_ns);
        let (first, last) = self.span_ns.unwrap_or((stamp_ns, stamp_ns));
        self.span_ns = Some((first.min(stamp_ns), last.max(stamp_ns)));
    }

    /// Detects a message that would make [`TOO_MANY_TARGETS`] due at once; `None` for any other message.
    fn leap(&self, input: usize, message: &Message, period_ns: i64) -> Option<Leap> {
        // The last stamps count, not the newest, as a clock may have been set back before.
        let before_ns = self.streams.iter().filter_map(|stream| stream.last_ns).max()?;
        let ahead_ns = message.timestamp_ns().saturating_sub(before_ns);
        let targets = ahead_ns / period_ns;
        TOO_MANY_TARGETS.contains(&targets).then_some(Leap {
            input,
            ahead_ns,
            targets,
        })
    }

    fn seconds(&self) -> f64 {
        self.span_ns
            .map_or(0.0, |(first, last)| ns_to_s(last.saturating_sub(first)))
    }
}

impl StampTally {
    fn message(&mut self, samples: usize, stamp_ns: i64) {
        self.samples += samples.max(1) as u64;
        self.last_ns = Some(stamp_ns);
        let newest_ns = *self.newest_ns.get_or_insert(stamp_ns);
        if stamp_ns > newest_ns {
            self.steps_ns.push(stamp_ns.saturating_sub(newest_ns));
            self.newest_ns = Some(stamp_ns);
        }
    }

    /// Estimates for how long the stream sent messages, ns: the median step times the number of steps. So gaps and stamps far
    /// ahead do not count.
    fn lasted_ns(&self) -> i64 {
        let mut steps_ns = self.steps_ns.clone();
        let middle = steps_ns.len() / 2;
        if steps_ns.is_empty() {
            return 0;
        }
        let median_ns = *steps_ns.select_nth_unstable(middle).1;
        let all_ns = steps_ns
            .iter()
            .fold(0, |sum: i64, &step_ns| sum.saturating_add(step_ns));
        median_ns.saturating_mul(self.steps_ns.len() as i64).min(all_ns)
    }
}

/// True if the messages of an output are counted. Attached outputs are left out because `fused` is counted, and outputs of
/// `clock` because they differ from its inputs only in their stamps.
fn is_counted(output: &str, operations: &[Operation]) -> bool {
    operations.iter().any(|operation| match &operation.section {
        Section::Observe(config) if operation.plugin == "align" => config
            .modalities
            .iter()
            .any(|modality| operation.output(&modality.input) == output),
        Section::Observe(_) => operation.output(FUSED) == output,
        Section::Voxelize(_) => operation.output("voxels") == output,
        Section::Resample => operation.output("resampled") == output,
        Section::Kinematics(config) => config.outputs().any(|made| operation.output(&made) == output),
        Section::Map(config) => config
            .outputs
            .iter()
            .any(|product| operation.output(product.name()) == output),
        Section::Group(config) => config
            .inputs
            .iter()
            .any(|input| operation.output(&input.input) == output),
        _ => false,
    })
}

/// Returns the input whose messages, from a node or a timer, request the operation's observations; `None` if there is no
/// such input.
fn asked_by(operation: &Operation) -> Option<&str> {
    match &operation.section {
        Section::Observe(config) => match &config.trigger {
            Some(TriggerConfig::Request { request: input } | TriggerConfig::Timer { timer: input }) => Some(input),
            _ => None,
        },
        _ => None,
    }
}
