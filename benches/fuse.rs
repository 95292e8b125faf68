//! Benchmark of the time to make an observation: `cargo bench --profile release --bench fuse`, one JSON line per row.
//!
//! The input is twenty seconds of a robot: camera features at 30 Hz, proprioception at 500 Hz and a wrench at 1 kHz. They are
//! fused at 50 Hz into windows of 16 rows. The measured time begins when the sample that makes the observation due arrives. It
//! ends when the last value and mask are in the caller's buffers.

use robocache::device::{Dtype, Element, Values};
use robocache::ops::align::{AlignConfig, Masks, Timeline, cpu};
use std::hint::black_box;
use std::time::Instant;

const DURATION_NS: i64 = 20_000_000_000;
const WARM_UP_NS: i64 = 2_000_000_000;
/// Number of different samples of a stream, which are sent again and again. They make the values differ from sample to sample.
const DIFFERENT_ROWS: usize = 97;

struct SampleRows {
    period_ns: i64,
    dim: usize,
    rows: Vec<f32>,
}

impl SampleRows {
    fn new(period_ns: i64, dim: usize) -> Self {
        let rows = (0..DIFFERENT_ROWS * dim).map(|i| (i as f32 * 0.37).sin()).collect();
        Self { period_ns, dim, rows }
    }

    fn row(&self, sample: i64) -> &[f32] {
        let row = sample as usize % DIFFERENT_ROWS;
        &self.rows[row * self.dim..(row + 1) * self.dim]
    }
}

fn main() {
    for (window, dtype) in [(16, Dtype::Float32), (16, Dtype::BFloat16), (64, Dtype::Float32)] {
        let config = format!(
            "{{ rate_hz: 50, window: {window}, max_wait_ms: 40, dtype: {dtype}, modalities: [
                {{ input: camera, dim: 128, interpolation: previous, max_age_ms: 100 }},
                {{ input: proprio, dim: 15, interpolation: linear, max_gap_ms: 50 }},
                {{ input: force, dim: 6, interpolation: linear, max_gap_ms: 50, extrapolate_ms: 5 }}] }}"
        );
        let config: AlignConfig = match serde_yaml::from_str(&config) {
            Ok(config) => config,
            Err(error) => panic!("{config}: {error}"),
        };
        match dtype {
            Dtype::BFloat16 => measure::<half::bf16>(&config),
            _ => measure::<f32>(&config),
        }
    }
}

fn measure<E: Element>(config: &AlignConfig) {
    let mut timeline = match Timeline::new(config) {
        Ok(timeline) => timeline,
        Err(error) => panic!("{error}"),
    };
    let streams = [
        SampleRows::new(33_333_333, 128),
        SampleRows::new(2_000_000, 15),
        SampleRows::new(1_000_000, 6),
    ];
    let mut arrivals: Vec<(i64, usize, i64)> = streams
        .iter()
        .enumerate()
        .flat_map(|(i, stream)| (0..DURATION_NS / stream.period_ns).map(move |k| (k * stream.period_ns, i, k)))
        .collect();
    arrivals.sort_unstable();
    let columns = config.columns();
    let mut out = vec![E::from_f32(0.0); config.window * columns];
    let mut masks = Masks::default();
    let (mut pushes, mut observations) = (Vec::with_capacity(arrivals.len()), Vec::with_capacity(2048));
    for &(stamp, modality, sample) in &arrivals {
        let warm = stamp >= WARM_UP_NS;
        let values = Values::from_f32(streams[modality].row(sample));
        let mut start = Instant::now();
        let pushed = timeline.push(modality, stamp, black_box(values));
        assert!(pushed.is_ok_and(|pushed| !pushed.late && pushed.jumped_ns.is_none()));
        let mut is_due = false;
        while let Some(target) = timeline.due() {
            is_due = true;
            cpu::window(
                &timeline,
                &target,
                0..streams.len(),
                black_box(&mut out[..]),
                &mut masks,
            );
            if warm {
                observations.push(start.elapsed().as_nanos() as f64 / 1e3);
                assert!(masks.valid.iter().all(|&valid| valid == 1));
            }
            // Two observations may be due at once: the second is measured by itself.
            start = Instant::now();
        }
        if warm && !is_due {
            pushes.push(start.elapsed().as_nanos() as f64 / 1e3);
        }
    }
    let name = format!("T = {}, 128 + 15 + 6 columns, {}", config.window, config.dtype);
    report(&format!("{name}, one observation"), observations);
    report(&format!("{name}, a sample that makes none due"), pushes);
}

fn report(config: &str, mut us: Vec<f64>) {
    us.sort_by(f64::total_cmp);
    let at = |part: f64| us[(part * (us.len() - 1) as f64).round() as usize];
    println!(
        "{{\"op\":\"fuse\",\"config\":\"{config}\",\"us_p50\":{:.2},\"us_p99\":{:.2}}}",
        at(0.5),
        at(0.99)
    );
}
