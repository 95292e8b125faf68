//! Benchmark of resampling batches of trajectories: one JSON line for each configuration.
//!
//! Calls use different batches in turn, more than the caches hold, as a data loader does.

#[path = "robocache-bench/src/batch.rs"]
#[allow(dead_code)]
mod batch;
#[path = "robocache-bench/src/random.rs"]
#[allow(dead_code)]
mod random;

use batch::Shape;
use robocache::device::{Dtype, HostBuf, HostMemory};
use robocache::ops::resample::{CpuResampler, ResampleConfig, Trajectories};
use robocache::stream::Message;
use std::time::Instant;

const WARM_UP: usize = 20;
const RUNS: usize = 200;
/// Size of all batches that calls use in turn, inputs and outputs, bytes. It exceeds the caches, so that a batch is read from
/// main memory.
const WORKING_SET: usize = 512 << 20;

fn main() {
    let case = |rows, samples, targets, dim, dtype| Shape {
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

fn measure(case: &Shape) {
    let mut batches = Vec::new();
    let mut bytes = 0;
    while bytes < WORKING_SET && batches.len() < 64 {
        let message = message(case, batches.len() as u64);
        let values = case.rows * case.targets * case.dim * case.dtype.size();
        bytes += message.bytes() + values;
        let (mut out, mut valid) = (HostBuf::default(), HostBuf::default());
        out.resize(values);
        valid.resize(case.rows * case.targets);
        batches.push((message, out, valid));
    }
    let mut resampler = CpuResampler::new(&ResampleConfig::default()).expect("the default is allowed");
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
    println!(
        r#"{{"op":"resample","config":"{}","us_p50":{:.1},"us_p99":{:.1}}}"#,
        case.config(),
        taken[taken.len() / 2],
        taken[taken.len() * 99 / 100],
    );
}

/// Makes a batch of samples about a millisecond apart, with targets evenly from the first sample to the last.
fn message(case: &Shape, seed: u64) -> Message {
    let mut state = seed;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    let (mut times, mut targets) = (Vec::new(), Vec::new());
    for _ in 0..case.rows {
        let first = times.len();
        times.extend((0..case.samples as i64).map(|i| i * 1_000_000 + (random() * 500_000.0) as i64));
        let (from, to) = (times[first], times[times.len() - 1]);
        let steps = case.targets as i64 - 1;
        targets.extend((0..=steps).map(|i| from + (to - from) * i / steps));
    }
    let values = (0..case.rows * case.samples * case.dim).map(|_| random() * 2.0 - 1.0);
    let values = match case.dtype {
        Dtype::Float64 => batch::bytes(values.map(f64::from)),
        Dtype::Float16 => batch::bytes(values.map(half::f16::from_f32)),
        Dtype::BFloat16 => batch::bytes(values.map(half::bf16::from_f32)),
        _ => batch::bytes(values),
    };
    batch::message_of(case, (&times, &values, &targets), &HostMemory::pageable())
}
