//! Benchmark of the cost of diagnostics: `cargo bench --profile release --bench diagnostics`, one JSON line per row.
//!
//! A graph, as a node runs it, processes one minute of messages with and without diagnostics. The messages are a wrench at 1
//! kHz and camera features at 30 Hz, fused at 50 Hz. The time to make one diagnostics report is measured, too.

use robocache::prelude::*;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

const CONFIG: &str = "device: cpu\nplugins: [fuse: { rate_hz: 50, window: 16, max_wait_ms: 40, modalities: [
    { input: force, dim: 6, interpolation: linear, max_gap_ms: 50 },
    { input: camera, dim: 128, interpolation: previous, max_age_ms: 100 }] }]";
const MESSAGES: i64 = 60_000;
const RUNS: usize = 11;

/// Sink that keeps only the newest message: each message overwrites the one before.
#[derive(Default)]
struct Overwrite(Message);

impl Sink for Overwrite {
    fn send(
        &mut self,
        _: &str,
        layout: &Layout,
        fill: &mut dyn FnMut(&mut Payload<'_>, &mut Header),
    ) -> Result<(), Fault> {
        self.0.write(layout, fill);
        Ok(())
    }
}

fn message(values: usize) -> Message {
    let mut message = Message::default();
    message.write(&Layout::flat(Dtype::Float32, values), |payload, _| {
        payload.column(0).fill(0.5f32);
    });
    message
}

/// Processes the minute of messages, with diagnostics if `is_gathered` is true. Returns the mean time per wrench message,
/// including the observations that it makes due, and the time to make one report, both in ns.
fn measure(is_gathered: bool) -> Result<(f64, f64), AppError> {
    let config = Config::parse(Path::new("robot.yml"), CONFIG)?;
    let app = App::new().with_config(config).add_plugins(plugins::all());
    let mut graph = app.build(|_| true)?;
    if is_gathered {
        graph.gather_diagnostics();
    }
    let (mut sink, mut force, mut camera) = (Overwrite::default(), message(6), message(128));
    let start = Instant::now();
    for ms in 0..MESSAGES {
        let stamp = ms * 1_000_000;
        if ms % 33 == 0 {
            camera.header.timestamp_ns.set(stamp);
            graph.message(1, &camera, &mut sink);
        }
        force.header.timestamp_ns.set(stamp);
        force.arrival_ns = Some(stamp + 200_000);
        graph.message(0, black_box(&force), &mut sink);
    }
    let of_messages = start.elapsed().as_nanos() as f64 / MESSAGES as f64;
    let start = Instant::now();
    black_box(graph.report(Instant::now()));
    Ok((of_messages, start.elapsed().as_nanos() as f64))
}

fn main() -> Result<(), AppError> {
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..RUNS {
        let ((without, _), (with, report)) = (measure(false)?, measure(true)?);
        for (times, time) in times.iter_mut().zip([without, with, report]) {
            times.push(time);
        }
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[RUNS / 2] * 1e-3
    };
    for (what, times) in ["a message without", "a message with", "a report"]
        .iter()
        .zip(&mut times)
    {
        println!(
            "{{\"op\":\"diagnostics\",\"config\":\"{what}\",\"us_p50\":{:.3}}}",
            median(times)
        );
    }
    Ok(())
}
