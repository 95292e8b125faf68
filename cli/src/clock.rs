//! `robocache clock`: compares the clocks that stamp the streams of a recording with the recorder's clock. If a clock can't be
//! estimated, the result is a reason, never numbers.

use crate::output::{Output, Table, figure, figure_or_dash, plain};
use robocache::ops::clock::{ClockConfig, ClockInput, DeviceClock, Notice, Stamp};
use robocache::stream::recording::Reader;
use robocache::stream::{Message, form};
use robocache::time::{ns_to_ms, ns_to_s};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Time between two listed estimates of a stream, ns of the device's clock.
const EVERY_NS: i64 = 10_000_000_000;

/// Maximum number of notices, such as clock jumps, that are listed for a stream.
const MOST_NOTICES: usize = 20;

/// Estimates offset and skew of the clocks that stamp a recording, from when messages arrived
///
/// The offset is the recorder's time minus the stamp, at the last message. A clock with a skew above 0 is slow. After the skew
/// come its uncertainty, and the least and the greatest skew among the estimates of every ten seconds.
///
/// Jitter only makes a message late, so the estimate of `robocache-clock` lies along the earliest messages. The estimate covers the
/// last --window-s seconds of a stream, and is refused if the messages span less than --lock-s seconds. The least delay of a stream
/// can't be told from an offset of its clock: the offset includes this delay. A stream that the recorder's own clock stamps has its
/// least delay as the offset, and no skew. Observations are left out: their stamps are targets.
#[derive(clap::Args)]
#[command(after_help = "Exit codes:
  0   the clock of each stream is known
  1   that of a stream can't be known, or a part of the recording can't be read
  2   the recording can't be used, or does not say when messages arrived")]
pub struct Args {
    /// The folder of the recording
    recording: PathBuf,
    /// Stream to estimate, in place of all; may be given several times
    #[arg(long, value_name = "STREAM")]
    stream: Vec<String>,
    /// Length of the window of an estimate, s
    #[arg(long, value_name = "S", default_value_t = ClockInput::default().window_s)]
    window_s: f64,
    /// Time that messages span before the first estimate, s
    #[arg(long, value_name = "S", default_value_t = ClockInput::default().lock_s)]
    lock_s: f64,
}

#[derive(Serialize)]
struct Clocks {
    recording: PathBuf,
    streams: Vec<Clock>,
    /// Errors of the parts of the recording that can't be read, one line each.
    problems: Vec<String>,
}

#[derive(Serialize)]
struct Clock {
    stream: String,
    messages: u64,
    /// Time from the stream's first stamp to its newest, s.
    span_s: f64,
    /// Recorder's time minus stamp at the last message, without jitter, ms; `None` if there is no estimate.
    offset_ms: Option<f64>,
    /// Time that passes on the recorder's clock in a second of the stream's clock, less one second, ppm.
    skew_ppm: Option<f64>,
    /// Root mean square distance of the earliest messages above the line that is fitted to their arrivals, ms.
    sigma_ms: Option<f64>,
    /// Uncertainty of the skew, ppm: `sigma_ms` divided by the standard deviation of stamps that are spread evenly over the window.
    skew_sigma_ppm: Option<f64>,
    /// Smallest and largest skew of `estimates`, ppm; `None` if there are fewer than two. A narrow range means a steady clock.
    skew_range_ppm: Option<(f64, f64)>,
    /// The reason why the clock can't be estimated; `None` if it was.
    refused: Option<String>,
    estimates: Vec<Estimate>,
    /// Clock jumps, silences and implausible clock rates that were noticed, oldest first, at most `MOST_NOTICES`.
    notices: Vec<TimedNotice>,
    notices_left_out: u64,
}

#[derive(Serialize)]
struct Estimate {
    /// Stamp of the message at which the estimate was made, s after the stream's first stamp.
    at_s: f64,
    offset_ms: f64,
    skew_ppm: f64,
    sigma_ms: f64,
}

#[derive(Serialize)]
struct TimedNotice {
    at_s: f64,
    text: String,
}

/// Estimator of one stream's clock, with the counts and estimates so far, while the recording is read.
struct StreamClock {
    name: String,
    clock: DeviceClock,
    /// True if the stream holds observations, whose stamps are targets and not readings of a clock.
    is_observation: bool,
    messages: u64,
    arrived: u64,
    first_ns: Option<i64>,
    newest_ns: i64,
    /// Stamp at which the current estimate begins, ns. It is the stamp of the first message with an arrival. After a notice, such
    /// as a clock jump, it is the stamp of the message that caused the last notice.
    since_ns: i64,
    last: Option<Stamp>,
    next_note_ns: i64,
    estimates: Vec<Estimate>,
    notices: Vec<TimedNotice>,
    notices_left_out: u64,
}

pub fn run(args: &Args, output: &Output) -> eyre::Result<ExitCode> {
    let (mut reader, refused) = Reader::open_readable(&args.recording)?;
    let mut problems: Vec<String> = refused.iter().map(ToString::to_string).collect();
    let names: Vec<String> = reader.streams().map(str::to_owned).collect();
    if let Some(unknown) = args.stream.iter().find(|stream| !names.contains(stream)) {
        eyre::bail!("`{unknown}`: no such stream (allowed: {})", names.join(", "));
    }
    reader.retain(|name| args.stream.is_empty() || args.stream.iter().any(|stream| stream == name));
    let mut seen: Vec<StreamClock> = Vec::new();
    for name in reader.streams() {
        let input = ClockInput {
            input: name.to_owned(),
            window_s: args.window_s,
            lock_s: args.lock_s,
            ..ClockInput::default()
        };
        let inputs = ClockConfig { inputs: vec![input] }.checked()?;
        seen.extend(
            inputs
                .iter()
                .map(|input| StreamClock::new(name, DeviceClock::new(input))),
        );
    }
    let mut message = Message::default();
    loop {
        match reader.next_into(&mut message) {
            Ok(Some(stream)) => seen[stream].message(&message),
            Ok(None) => break,
            Err(error) => problems.push(error.to_string()),
        }
    }
    seen.retain(|seen| !seen.is_observation);
    if seen.iter().all(|seen| seen.arrived == 0) {
        eyre::bail!(
            "{}: no message of a sensor says when it arrived (allowed: a recording with `arrival_ns`, as `robocache-record` makes it)",
            args.recording.display()
        );
    }
    let clocks = Clocks {
        recording: args.recording.clone(),
        streams: seen.into_iter().map(|seen| seen.into_clock(args)).collect(),
        problems,
    };
    output.result(&clocks, text)?;
    let is_known = clocks.streams.iter().all(|clock| clock.refused.is_none());
    Ok(ExitCode::from(u8::from(!is_known || !clocks.problems.is_empty())))
}

impl StreamClock {
    fn new(name: &str, clock: DeviceClock) -> Self {
        Self {
            name: name.to_owned(),
            clock,
            is_observation: false,
            messages: 0,
            arrived: 0,
            first_ns: None,
            newest_ns: i64::MIN,
            since_ns: 0,
            last: None,
            next_note_ns: i64::MIN,
            estimates: Vec::new(),
            notices: Vec::new(),
            notices_left_out: 0,
        }
    }

    fn message(&mut self, message: &Message) {
        self.is_observation |= form::modalities.get(&message.header).is_some();
        self.messages += 1;
        let stamp_ns = message.timestamp_ns();
        let first_ns = *self.first_ns.get_or_insert(stamp_ns);
        self.newest_ns = self.newest_ns.max(stamp_ns);
        let Some(arrival_ns) = message.arrival_ns else { return };
        if self.arrived == 0 {
            self.since_ns = stamp_ns;
        }
        self.arrived += 1;
        let at_s = (i128::from(stamp_ns) - i128::from(first_ns)) as f64 / 1e9;
        let (stamp, notice) = self.clock.push(stamp_ns, arrival_ns);
        self.last = Some(stamp);
        // A lock is expected, and not listed.
        if let Some(notice) = notice.filter(|notice| *notice != Notice::Locked) {
            // The clock may have been set, so later stamps may be of another time.
            (self.next_note_ns, self.since_ns) = (i64::MIN, stamp_ns);
            if self.notices.len() < MOST_NOTICES {
                let text = in_words(&notice);
                self.notices.push(TimedNotice { at_s, text });
            } else {
                self.notices_left_out += 1;
            }
        }
        if stamp.is_locked && stamp_ns >= self.next_note_ns {
            self.next_note_ns = stamp_ns.saturating_add(EVERY_NS);
            self.estimates.push(Estimate {
                at_s,
                offset_ms: ns_to_ms(stamp.offset_ns),
                skew_ppm: stamp.skew * 1e6,
                sigma_ms: ns_to_ms(stamp.sigma_ns),
            });
        }
    }

    fn into_clock(self, args: &Args) -> Clock {
        let span_s = self.first_ns.map_or(0.0, |first| {
            (i128::from(self.newest_ns) - i128::from(first)) as f64 / 1e9
        });
        let last = self.last.filter(|stamp| stamp.is_locked);
        let refused = match (self.arrived, last) {
            (_, Some(_)) => None,
            (0, None) => Some("its messages do not say when they arrived".to_owned()),
            (_, None) if self.estimates.is_empty() => Some(format!(
                "{} messages in {span_s:.3} s are too little (needed: 8 messages and {} s, of a clock that goes on)",
                self.messages, args.lock_s
            )),
            (_, None) => Some(format!("less than {} s before the end it was set", args.lock_s)),
        };
        let seconds = |from: i64, to: i64| (i128::from(to) - i128::from(from)) as f64 / 1e9;
        let window_s = seconds(self.since_ns, self.newest_ns).min(args.window_s);
        // Stamps spread evenly over a window have a standard deviation of its length / sqrt(12).
        let sigma = |stamp: Stamp| stamp.sigma_ns as f64 / 1e9 * 12f64.sqrt() / window_s * 1e6;
        let skews = || self.estimates.iter().map(|estimate| estimate.skew_ppm);
        let ends = skews().min_by(f64::total_cmp).zip(skews().max_by(f64::total_cmp));
        Clock {
            messages: self.messages,
            span_s,
            offset_ms: last.map(|stamp| ns_to_ms(stamp.offset_ns)),
            skew_ppm: last.map(|stamp| stamp.skew * 1e6),
            sigma_ms: last.map(|stamp| ns_to_ms(stamp.sigma_ns)),
            skew_sigma_ppm: last.filter(|_| window_s > 0.0).map(sigma),
            skew_range_ppm: ends.filter(|_| self.estimates.len() > 1),
            refused,
            estimates: self.estimates,
            notices: self.notices,
            notices_left_out: self.notices_left_out,
            stream: self.name,
        }
    }
}

impl Clock {
    /// Describes the skew in words, or the reason why there is no estimate.
    fn verdict(&self) -> String {
        match (&self.refused, self.skew_ppm.zip(self.skew_sigma_ppm)) {
            (Some(why), _) => why.clone(),
            (None, Some((skew, sigma))) if skew.abs() <= 2.0 * sigma => {
                "no skew that could be told from jitter".to_owned()
            }
            (None, Some((skew, _))) if skew > 0.0 => "slower than the recorder's clock".to_owned(),
            _ => "faster than the recorder's clock".to_owned(),
        }
    }
}

/// Formats a notice about a clock, such as that it was set, for the report on a recording.
fn in_words(notice: &Notice) -> String {
    match *notice {
        Notice::Reset { ns } => format!("it was set by {:+.3} s against the recorder's", ns_to_s(ns)),
        Notice::Silence { ns } => format!("nothing came for {:.0} s: the estimate begins anew", ns_to_s(ns)),
        Notice::Pace { ratio } => format!("its stamps advance by {ratio:.3e} ns per nanosecond: no clock in ns"),
        Notice::Locked | Notice::HostClock { .. } => notice.to_string(),
    }
}

fn text(clocks: &Clocks) -> String {
    let mut table = Table::new([
        "<stream",
        "messages",
        "span s",
        "offset ms",
        "sigma ms",
        "skew ppm",
        "+-",
        "from",
        "to",
        "<",
    ]);
    for clock in &clocks.streams {
        let ends = clock.skew_range_ppm;
        table.row([
            clock.stream.clone(),
            clock.messages.to_string(),
            figure(clock.span_s),
            clock.offset_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.3}")),
            figure_or_dash(clock.sigma_ms),
            clock.skew_ppm.map_or_else(|| "-".to_owned(), |ppm| format!("{ppm:.1}")),
            figure_or_dash(clock.skew_sigma_ppm),
            figure_or_dash(ends.map(|(from, _)| from)),
            figure_or_dash(ends.map(|(_, to)| to)),
            clock.verdict(),
        ]);
    }
    let mut text = table.to_string();
    // Writing to a string can't fail.
    for clock in &clocks.streams {
        for notice in &clock.notices {
            let stream = plain(&clock.stream);
            let _ = writeln!(text, "{stream}, at {} s: {}", figure(notice.at_s), plain(&notice.text));
        }
        if clock.notices_left_out > 0 {
            let _ = writeln!(
                text,
                "{}: {} more such lines",
                plain(&clock.stream),
                clock.notices_left_out
            );
        }
    }
    for problem in &clocks.problems {
        let _ = writeln!(text, "can't be read: {}", plain(problem));
    }
    text
}
