//! `robocache latency`: measures by how much one channel of a recording lags behind another. If the lag can't be determined,
//! the result is a reason, never a guess.

use crate::channel::{self, Channel};
use crate::output::{Output, Table, figure, figure_or_dash, plain};
use robocache::ops::latency::{self, Correlator, Latency, LatencyConfig};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Length of the parts of a recording that are correlated separately, ns.
const PART_NS: i64 = 60_000_000_000;

/// Number of lines in which the text output shows the correlation, each at one lag of the range.
const CURVE: usize = 21;

/// Finds by how much one channel lags behind another that sees the same movement
///
/// Both channels are differentiated and correlated at every lag of the range; the result is the lag where they correlate best. A
/// lag that can't be known is refused. If the recording has several minutes, each minute is correlated by itself, too: a lag that
/// grows from minute to minute shows clocks that drift apart.
#[derive(clap::Args)]
#[command(after_help = format!("{}

Exit codes:
  0   the latency is known
  1   it can't be known, or a part of the recording can't be read
  2   a channel or the recording can't be used", channel::NAMING))]
pub struct Args {
    /// The folder of the recording
    recording: PathBuf,
    /// Reference channel, from whose stamps the latency is measured
    #[arg(long, value_name = "CHANNEL")]
    a: String,
    /// Channel whose latency is measured
    #[arg(long, value_name = "CHANNEL")]
    b: String,
    /// Range of latencies that are compared, ms
    #[arg(long, value_name = "FROM..TO", default_value = "-500..500", value_parser = range, allow_hyphen_values = true)]
    range: (f64, f64),
    /// Time over which differences are taken, ms: a longer time suits noisier signals
    #[arg(long, value_name = "MS", default_value_t = LatencyConfig::default().smooth_ms)]
    smooth_ms: f64,
}

fn range(text: &str) -> Result<(f64, f64), String> {
    let ends = text
        .split_once("..")
        .and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    ends.ok_or_else(|| "it is not a range (allowed: FROM..TO in ms, such as -500..500)".to_owned())
}

#[derive(Serialize)]
struct Comparison {
    a: String,
    b: String,
    /// Lag of `b` behind `a` over the whole recording; `None` if it can't be determined.
    #[serde(flatten)]
    lag: Option<Lag>,
    /// The reason why the lag can't be determined; `None` if it was.
    refused: Option<String>,
    /// Lag in each minute where both channels have samples; empty if there is only one such minute.
    minutes: Vec<Minute>,
    /// Growth of the lag over the minutes, ppm: by how much the clock of `b` runs faster than the clock of `a`. `None` if fewer
    /// than three lags are known.
    drift_ppm: Option<f64>,
    curve: Option<Curve>,
    /// Errors of the parts of the recording that can't be read, one line each.
    problems: Vec<String>,
}

#[derive(Serialize)]
struct Lag {
    /// Latency of `b` if the latency of `a` is 0, ms.
    latency_ms: f64,
    /// Correlation at `latency_ms`, the highest peak; at most 1.
    peak: f64,
    second_peak: Option<f64>,
    second_ms: Option<f64>,
    /// Standard deviation that the correlation of unrelated channels would have.
    noise: f64,
}

#[derive(Serialize)]
struct Minute {
    /// Index of the minute, 0 for the one that begins with the first sample of `a`.
    minute: i64,
    #[serde(flatten)]
    lag: Option<Lag>,
    refused: Option<String>,
}

#[derive(Serialize)]
struct Curve {
    first_ms: f64,
    step_ms: f64,
    values: Vec<f64>,
}

pub fn run(args: &Args, output: &Output) -> eyre::Result<ExitCode> {
    let config = LatencyConfig {
        range_ms: args.range,
        smooth_ms: args.smooth_ms,
        ..LatencyConfig::default()
    };
    let correlator = Correlator::new(&config)?;
    let (channels, problems) = channel::read(&args.recording, &[&args.a, &args.b], 2)?;
    let Ok([a, b]) = <[Channel; 2]>::try_from(channels) else {
        eyre::bail!(
            "`{}` and `{}` are not one channel each (allowed: such as `force[2]`)",
            args.a,
            args.b
        );
    };
    let (a, b) = (a.in_order(), b.in_order());
    let whole = correlator.latency(all(&a), all(&b));
    let minutes = minutes(&correlator, &a, &b);
    let (latency, refused) = split_result(whole.map_err(|why| why.to_string()));
    let lag = latency.as_ref().map(Lag::of);
    let curve = latency.map(|latency| Curve {
        first_ms: latency.curve.first_ms,
        step_ms: latency.curve.step_ms,
        values: latency.curve.values,
    });
    let found = Comparison {
        a: a.name,
        b: b.name,
        lag,
        refused,
        drift_ppm: drift_ppm(&minutes),
        minutes,
        curve,
        problems,
    };
    output.result(&found, text)?;
    Ok(ExitCode::from(u8::from(
        found.refused.is_some() || !found.problems.is_empty(),
    )))
}

fn split_result<T>(result: Result<T, String>) -> (Option<T>, Option<String>) {
    match result {
        Ok(value) => (Some(value), None),
        Err(why) => (None, Some(why)),
    }
}

fn all(channel: &Channel) -> latency::Channel<'_> {
    latency::Channel {
        times_ns: &channel.times_ns,
        values: &channel.values,
    }
}

/// Selects the samples of a sorted channel from `from_ns` up to `to_ns`, which is excluded.
fn between(channel: &Channel, from_ns: i64, to_ns: i64) -> latency::Channel<'_> {
    let before = |end_ns: i64| channel.times_ns.partition_point(|&ns| ns < end_ns);
    let (from, to) = (before(from_ns), before(to_ns));
    latency::Channel {
        times_ns: &channel.times_ns[from..to],
        values: &channel.values[from..to],
    }
}

/// Finds the lag in each minute where both channels have samples; empty if there is only one such minute.
fn minutes(correlator: &Correlator, a: &Channel, b: &Channel) -> Vec<Minute> {
    let Some(&from) = a.times_ns.first() else {
        return Vec::new();
    };
    // If a clock was set, a recording may have years without a sample, which are skipped.
    let minute = |ns: i64| (i128::from(ns) - i128::from(from)) / i128::from(PART_NS);
    let mut numbers: Vec<i128> = a.times_ns.iter().map(|&ns| minute(ns)).collect();
    numbers.dedup();
    let numbers = numbers.into_iter().filter_map(|index| i64::try_from(index).ok());
    let parts = numbers.filter_map(|index| {
        let start = from.checked_add(index.checked_mul(PART_NS)?)?;
        let end = start.saturating_add(PART_NS);
        let (a, b) = (between(a, start, end), between(b, start, end));
        let has_both = !a.times_ns.is_empty() && !b.times_ns.is_empty();
        has_both.then_some((index, a, b))
    });
    let found = parts.map(|(index, a, b)| {
        let (latency, refused) = split_result(correlator.latency(a, b).map_err(|why| why.to_string()));
        Minute {
            minute: index,
            lag: latency.as_ref().map(Lag::of),
            refused,
        }
    });
    let found: Vec<Minute> = found.collect();
    if found.len() > 1 { found } else { Vec::new() }
}

/// Fits the slope of the lags over the minutes, ppm, by least squares; `None` if fewer than three lags are known.
fn drift_ppm(minutes: &[Minute]) -> Option<f64> {
    let known = minutes
        .iter()
        .filter_map(|minute| Some((minute.minute as f64 * 60.0, minute.lag.as_ref()?.latency_ms)));
    let known: Vec<(f64, f64)> = known.collect();
    if known.len() < 3 {
        return None;
    }
    let count = known.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| known.iter().map(of).sum::<f64>() / count;
    let (s, ms) = (mean(|(s, _)| *s), mean(|(_, ms)| *ms));
    let products: f64 = known.iter().map(|(at, lag)| (at - s) * (lag - ms)).sum();
    let squares: f64 = known.iter().map(|(at, _)| (at - s) * (at - s)).sum();
    // 1 ms a second is 1000 ppm.
    Some(products / squares * 1000.0)
}

impl Lag {
    fn of(latency: &Latency) -> Self {
        Self {
            latency_ms: latency.lag_ms,
            peak: latency.peak,
            second_peak: latency.second.map(|(_, peak)| peak),
            second_ms: latency.second.map(|(ms, _)| ms),
            noise: latency.noise,
        }
    }
}

fn text(found: &Comparison) -> String {
    let mut text = String::new();
    // Writing to a string can't fail.
    match (&found.lag, &found.refused) {
        (Some(lag), _) => {
            let second = match (lag.second_peak, lag.second_ms) {
                (Some(peak), Some(ms)) => format!("{peak:.2} at {ms:.1} ms"),
                _ => "none".to_owned(),
            };
            let _ = writeln!(
                text,
                "`{}` is {} ms later than `{}`: correlation {:.2}, the next peak {second}, by chance {:.2}",
                plain(&found.b),
                figure(lag.latency_ms),
                plain(&found.a),
                lag.peak,
                lag.noise
            );
            let _ = writeln!(
                text,
                "if the latency of `{}` is 0: `latency_ms: {:.1}`",
                plain(&found.a),
                lag.latency_ms
            );
        }
        (None, why) => {
            let why = why.as_deref().unwrap_or_default();
            let _ = writeln!(
                text,
                "the latency of `{}` behind `{}` can't be known: {}",
                plain(&found.b),
                plain(&found.a),
                plain(why)
            );
        }
    }
    if !found.minutes.is_empty() {
        let mut table = Table::new(["minute", "latency ms", "correlation", "<refused"]);
        for minute in &found.minutes {
            let lag = minute.lag.as_ref();
            table.row([
                minute.minute.to_string(),
                figure_or_dash(lag.map(|lag| lag.latency_ms)),
                figure_or_dash(lag.map(|lag| lag.peak)),
                minute.refused.clone().unwrap_or_default(),
            ]);
        }
        let _ = write!(text, "\n{table}");
    }
    if let Some(drift) = found.drift_ppm {
        let _ = writeln!(
            text,
            "drift: the clock of `{}` goes {} ppm faster than that of `{}`",
            plain(&found.b),
            figure(drift),
            plain(&found.a)
        );
    }
    if let Some(curve) = &found.curve {
        let _ = writeln!(text, "\n{:>9}  correlation", "lag ms");
        let last = curve.values.len() - 1;
        for row in 0..CURVE {
            let i = row * last / (CURVE - 1);
            let (lag_ms, value) = (curve.first_ms + i as f64 * curve.step_ms, curve.values[i]);
            let bar = "#".repeat((value.max(0.0) * 50.0).round() as usize);
            let _ = writeln!(text, "{lag_ms:>9.1}  {value:>5.2}  {bar}");
        }
    }
    for problem in &found.problems {
        let _ = writeln!(text, "can't be read: {}", plain(problem));
    }
    text
}
