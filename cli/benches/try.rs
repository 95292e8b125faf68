//! Benchmark of `robocache try`: its speed as a multiple of real time, over an hour of 1 kHz x 6, 500 Hz x 15 and 30 Hz x
//! 128 values.
//!
//! Run with `cargo bench --workspace --bench try`; a number of seconds after `--` replaces the hour.

#![allow(clippy::unwrap_used)]

use robocache::prelude::*;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const CONFIG: &str = "
fuse:
  rate_hz: 50
  window: 16
  max_wait_ms: 100
  modalities:
    - { input: camera, dim: 128, interpolation: previous, max_age_ms: 100 }
    - { input: force, dim: 6, interpolation: linear, max_gap_ms: 50 }
    - { input: proprio, dim: 15, interpolation: linear, max_gap_ms: 50 }
";

fn main() {
    let seconds = std::env::args()
        .skip(1)
        .find_map(|word| word.parse().ok())
        .unwrap_or(3600);
    let folder = std::env::temp_dir().join(format!("robocache-bench-try-{}", std::process::id()));
    let recording = folder.join("recording");
    record(&recording, seconds);
    let config = folder.join("robocache.yml");
    std::fs::write(&config, CONFIG).unwrap();
    let start = Instant::now();
    let status = Command::new(env!("CARGO_BIN_EXE_robocache"))
        .arg("try")
        .args([&config, &recording])
        .status()
        .unwrap();
    let took = start.elapsed().as_secs_f64();
    println!(
        "{seconds} s in {took:.2} s: {:.0} times real time, {status}",
        seconds as f64 / took
    );
    std::fs::remove_dir_all(folder).unwrap();
}

/// Writes a recording with `seconds` seconds of each stream, with equally spaced stamps.
fn record(folder: &Path, seconds: i64) {
    let streams = [("force", 6, 1000), ("proprio", 15, 500), ("camera", 128, 30)];
    let mut writer = recording::Writer::create(folder).unwrap();
    let now = Instant::now();
    let mut message = Message::default();
    for (name, dim, rate) in streams {
        for i in 0..seconds * rate {
            message.write(&Layout::flat(Dtype::Float32, dim), |payload, header| {
                payload.column(0).fill((i % 1000) as f32 * 1e-3);
                header.timestamp_ns.set(i * 1_000_000_000 / rate);
            });
            writer.append(name, &message, now).unwrap();
        }
    }
    writer.finish().unwrap();
}
