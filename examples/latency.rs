//! Says what the stamps of a recording's streams are like, and by how much one channel lags behind another:
//!
//! ```text
//! cargo run --release --example latency -- out/recording 'proprio[0]' 'camera[3]' [--curve]
//! ```
//!
//! With `--curve`, the correlation at every lag follows: look at it before you trust the number.

use robocache::ops::latency::{Channel, Correlator, LatencyConfig};
use robocache::ops::stamps::StampStatistics;
use robocache::stream::Message;
use robocache::stream::recording::Reader;
use std::error::Error;

/// One element of the messages of a stream.
#[derive(Default)]
struct Samples {
    times_ns: Vec<i64>,
    values: Vec<f64>,
    arrivals_ns: Vec<i64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, a, b, rest @ ..] = arguments.as_slice() else {
        return Err("usage: latency RECORDING 'STREAM[INDEX]' 'STREAM[INDEX]' [--curve]".into());
    };
    let (a, b) = (read(folder, a)?, read(folder, b)?);
    for (name, samples) in [("a", &a), ("b", &b)] {
        let arrivals = (samples.arrivals_ns.len() == samples.times_ns.len()).then_some(samples.arrivals_ns.as_slice());
        let statistics = StampStatistics::of(&samples.times_ns, arrivals);
        let ms = |ns: i64| ns as f64 * 1e-6;
        let gap = statistics.longest_gap.map_or(0, |(_, gap)| gap);
        println!(
            "{name}: {} messages, {:.2} Hz, jitter p50 {:.3} p99 {:.3} ms, longest gap {:.1} ms, {} lost, {} out of order",
            statistics.messages,
            statistics.rate_hz,
            ms(statistics.jitter.p50_ns),
            ms(statistics.jitter.p99_ns),
            ms(gap),
            statistics.lost,
            statistics.out_of_order
        );
    }
    let (a, b) = (in_order(a), in_order(b));
    let latency = Correlator::new(&LatencyConfig::default())?.latency(channel(&a), channel(&b))?;
    let second = latency
        .second
        .map_or(String::from("none"), |(lag, peak)| format!("{peak:.3} at {lag:.1} ms"));
    println!(
        "b lags by {:.3} ms: peak {:.3}, second peak {second}, chance {:.3}",
        latency.lag_ms, latency.peak, latency.noise
    );
    if rest.iter().any(|argument| argument == "--curve") {
        for (i, value) in latency.curve.values.iter().enumerate() {
            println!("{:.3} {value:.6}", latency.curve.lag_ms(i as f64));
        }
    }
    Ok(())
}

/// The channel that `place` names, such as `force[2]`.
fn read(folder: &str, place: &str) -> Result<Samples, Box<dyn Error>> {
    let parts = place.strip_suffix(']').and_then(|place| place.split_once('['));
    let (stream, index) = parts.ok_or_else(|| format!("`{place}` is no channel (allowed: such as `force[2]`)"))?;
    let index: usize = index.parse()?;
    let mut reader = Reader::open(folder)?;
    if !reader.streams().any(|name| name == stream) {
        return Err(format!(
            "{folder}: no stream `{stream}` (there: {})",
            reader.streams().collect::<Vec<_>>().join(", ")
        )
        .into());
    }
    reader.retain(|name| name == stream);
    let (mut message, mut samples, mut values) = (Message::default(), Samples::default(), Vec::new());
    while reader.next_into(&mut message)?.is_some() {
        let flat = message.flat().ok_or_else(|| format!("`{stream}` is no tensor"))?;
        values.resize(flat.len(), 0f32);
        flat.to_f32(&mut values);
        let value = values
            .get(index)
            .ok_or_else(|| format!("`{stream}` has {} values, none at {index}", values.len()))?;
        samples.times_ns.push(message.timestamp_ns());
        samples.values.push(f64::from(*value));
        samples.arrivals_ns.extend(message.arrival_ns);
    }
    Ok(samples)
}

fn in_order(samples: Samples) -> Samples {
    let mut rows: Vec<(i64, f64)> = samples.times_ns.into_iter().zip(samples.values).collect();
    rows.sort_by_key(|(time, _)| *time);
    let (times_ns, values) = rows.into_iter().unzip();
    Samples {
        times_ns,
        values,
        arrivals_ns: Vec::new(),
    }
}

fn channel(samples: &Samples) -> Channel<'_> {
    Channel {
        times_ns: &samples.times_ns,
        values: &samples.values,
    }
}
