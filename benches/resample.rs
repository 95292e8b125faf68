//! How long a batch of trajectories takes: one JSON line for each configuration.
//!
//! The inputs are rotated through more memory than the caches hold, as batches of a data loader are.

use robocache::device::{Dtype, HostBuf};
use robocache::ops::resample::{ResampleConfig, Resampler, Trajectories};
use robocache::stream::{Cells, Message};
use std::time::Instant;

const WARM_UP: usize = 20;
const RUNS: usize = 200;
/// Bytes of inputs and outputs together that are gone through before one is seen again.
const WORKING_SET: usize = 512 << 20;

struct Case {
    rows: usize,
    samples: usize,
    targets: usize,
    dim: usize,
    dtype: Dtype,
}

fn main() {
    let case = |rows, samples, targets, dim, dtype| Case {
        rows,
        samples,
        targets,
        dim,
        dtype,
    };
    for case in [
        case(64, 4096, 1024, 32, Dtype::Float32),
        case(64, 4096, 1024, 32, Dtype::Float64),
        case(64, 4096, 1024, 32, Dtype::Float16),
        case(64, 4096, 1024, 32, Dtype::BFloat16),
        case(64, 4096, 1024, 7, Dtype::Float32),
        case(1, 4096, 1024, 32, Dtype::Float32),
    ] {
        measure(&case);
    }
}

fn measure(case: &Case) {
    let mut batches = Vec::new();
    let mut bytes = 0;
    while bytes < WORKING_SET && batches.len() < 64 {
        let message = batch(case, batches.len() as u64);
        let values = case.rows * case.targets * case.dim * case.dtype.size();
        bytes += message.bytes() + values;
        let (mut out, mut valid) = (HostBuf::default(), HostBuf::default());
        out.resize(values);
        valid.resize(case.rows * case.targets);
        batches.push((message, out, valid));
    }
    let mut resampler = Resampler::new(&ResampleConfig::default()).expect("the default is allowed");
    let mut taken = Vec::with_capacity(RUNS);
    for run in 0..WARM_UP + RUNS {
        let at = run % batches.len();
        let (message, out, valid) = &mut batches[at];
        let start = Instant::now();
        let trajectories = Trajectories::from_message(message).expect("the batch is well formed");
        let counters = resampler.run(&trajectories, out.bytes_mut(), valid.bytes_mut());
        let elapsed = start.elapsed();
        assert_eq!(counters.invalid, 0);
        std::hint::black_box((&*out, &*valid));
        if run >= WARM_UP {
            taken.push(elapsed.as_secs_f64() * 1e6);
        }
    }
    taken.sort_by(f64::total_cmp);
    let Case {
        rows,
        samples,
        targets,
        dim,
        dtype,
    } = case;
    println!(
        r#"{{"op":"resample","config":"{rows}x{samples}->{targets}x{dim} {dtype}","us_p50":{:.1},"us_p99":{:.1}}}"#,
        taken[taken.len() / 2],
        taken[taken.len() * 99 / 100],
    );
}

/// Samples about a millisecond apart, targets evenly from the first to the last of them.
fn batch(case: &Case, seed: u64) -> Message {
    let mut state = seed;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    let mut message = Message::default();
    message.rows = case.rows;
    message.dim = case.dim;
    let (mut times, mut targets) = (Vec::new(), Vec::new());
    for _ in 0..case.rows {
        let first = times.len();
        times.extend((0..case.samples as i64).map(|i| i * 1_000_000 + (random() * 500_000.0) as i64));
        let (from, to) = (times[first], times[times.len() - 1]);
        let steps = case.targets as i64 - 1;
        targets.extend((0..=steps).map(|i| from + (to - from) * i / steps));
    }
    let values: Vec<f32> = (0..case.rows * case.samples * case.dim)
        .map(|_| random() * 2.0 - 1.0)
        .collect();
    add(
        &mut message,
        "timestamps_ns",
        Dtype::Int64,
        bytemuck::cast_slice(&times),
    );
    match case.dtype {
        Dtype::Float64 => {
            let values: Vec<f64> = values.iter().map(|&v| v.into()).collect();
            add(&mut message, "values", case.dtype, bytemuck::cast_slice(&values));
        }
        Dtype::Float16 => {
            let values: Vec<half::f16> = values.iter().map(|&v| half::f16::from_f32(v)).collect();
            add(&mut message, "values", case.dtype, bytemuck::cast_slice(&values));
        }
        Dtype::BFloat16 => {
            let values: Vec<half::bf16> = values.iter().map(|&v| half::bf16::from_f32(v)).collect();
            add(&mut message, "values", case.dtype, bytemuck::cast_slice(&values));
        }
        _ => add(&mut message, "values", case.dtype, bytemuck::cast_slice(&values)),
    }
    add(&mut message, "targets_ns", Dtype::Int64, bytemuck::cast_slice(&targets));
    message
}

fn add(message: &mut Message, name: &str, dtype: Dtype, bytes: &[u8]) {
    let (rows, len) = (message.rows, bytes.len() / dtype.size());
    let column = message.add_column(name, dtype, Cells::Ragged(len));
    column.data.copy_from(bytes);
    column.offsets.extend((0..=rows).map(|row| (row * len / rows) as i32));
}
