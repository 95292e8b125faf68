//! Measures align and fuse: a batch of windows for training, and the single observation of a live robot. If an observation for
//! the device is made on the CPU instead, the benchmark fails.

use crate::batch::{self, EPOCH_NS};
use crate::fuse_batch::{self, BATCH, batch_config};
use crate::random::Random;
use crate::rows::{Rows, Scope};
use crate::timing;
use half::bf16;
use robocache::device::gpu::{Budget, DeviceBuf, Gpu, Kind};
use robocache::device::{Device, DeviceChoice, Placement};
use robocache::device::{Dtype, Values};
use robocache::ops::align::gpu::DeviceSample;
use robocache::ops::align::{AlignConfig, Aligner, Masks, Target, Timeline, cpu};
use std::error::Error;
use std::time::Instant;

/// Numbers of rows in the windows of a live robot: from a short to a long history.
const LIVE_WINDOWS: [usize; 4] = [2, 16, 64, 256];

const LIVE_NS: i64 = 10_000_000_000;
const LIVE_WARM_UP_NS: i64 = 2_000_000_000;
/// Period, ns, and number of values of each stream of a live robot: camera features at 30 Hz, proprioception at 500 Hz, a wrench
/// at 1 kHz.
const LIVE_STREAMS: [(i64, usize); 3] = [(33_333_333, 128), (2_000_000, 15), (1_000_000, 6)];
/// Offset of all stamps, ns, which puts each target between two samples. Without it, targets coincide with samples of the
/// faster streams.
const BETWEEN_NS: i64 = 700_000;
/// Number of different samples of a stream, which are sent again and again. They make the values differ from sample to sample.
const DIFFERENT_SAMPLES: usize = 97;

/// Makes the timeline of one window of the batch, with all of its samples. Also returns the last target that is due.
fn window(seed: u64) -> Result<(Timeline, Target), Box<dyn Error>> {
    let (_, rows, streams) = BATCH;
    let rate_hz = rows as f64 / (batch::SPAN_NS as f64 / 1e9);
    let modalities: Vec<String> = (0..streams.len())
        .map(|i| format!("{{ input: m{i}, dim: {}, interpolation: linear }}", streams[i].1))
        .collect();
    let config: AlignConfig = serde_yaml::from_str(&format!(
        "{{ rate_hz: {rate_hz}, window: {rows}, dtype: bfloat16, modalities: [{}] }}",
        modalities.join(", ")
    ))?;
    let mut aligner = Timeline::new(&config)?;
    let mut random = Random::new(seed);
    for (modality, (samples, dim)) in streams.into_iter().enumerate() {
        let times: Vec<i64> = batch::stamps(&mut random, samples).collect();
        for time in times {
            let sample: Vec<f32> = (0..dim).map(|_| random.unit() * 2.0 - 1.0).collect();
            aligner.push(modality, time - EPOCH_NS, Values::from_f32(&sample))?;
        }
    }
    let last = std::iter::from_fn(|| aligner.due()).last().ok_or("no target is due")?;
    Ok((aligner, last))
}

/// Measures the batch of windows: on the CPU one window after the other, and on the device if there is one.
pub fn batch(rows: &mut Rows, gpu: Option<&Gpu>) -> Result<(), Box<dyn Error>> {
    let (windows, targets, streams) = BATCH;
    let columns: usize = streams.iter().map(|stream| stream.1).sum();
    let count = 8 * windows;
    let batch = (0..count as u64).map(window).collect::<Result<Vec<_>, _>>()?;
    let mut out = vec![vec![bf16::ZERO; targets * columns]; count];
    let mut masks = Masks::default();
    let times = timing::host(count / windows, |set| {
        for at in set * windows..(set + 1) * windows {
            let (timeline, target) = &batch[at];
            cpu::window(timeline, target, 0..streams.len(), &mut out[at][..], &mut masks);
        }
    });
    let bytes = windows * targets * (columns * 2 + streams.len() * 9);
    rows.add("fuse", &batch_config(), "cpu", Scope::Host, times, bytes);
    gpu.map_or(Ok(()), |gpu| fuse_batch::measure(rows, gpu))
}

/// Measures the observation of a live robot on the CPU, and on the device if there is one.
pub fn live(rows: &mut Rows, gpu: Option<&Gpu>) -> Result<(), Box<dyn Error>> {
    let columns: usize = LIVE_STREAMS.iter().map(|stream| stream.1).sum();
    for window in LIVE_WINDOWS {
        let rules = live_rules(window, Dtype::Float32)?;
        let config = live_config(window);
        let bytes = window * columns * 4;
        let times = play(OnCpu::new(&rules)?, &rules, 0, usize::MAX)?;
        rows.add("fuse", &config, "cpu", Scope::Host, times, bytes);
        if gpu.is_none() {
            continue;
        }
        let times = play(on_gpu(&rules)?, &rules, 0, usize::MAX)?;
        rows.add("fuse", &config, "cuda", Scope::Host, times, bytes);
    }
    gpu.map_or(Ok(()), |gpu| take(rows, gpu))
}

/// Measures modes of interpolation: the observation of a live robot on the CPU and the device, and the batch on the device.
pub fn modes(rows: &mut Rows, gpu: Option<&Gpu>) -> Result<(), Box<dyn Error>> {
    let columns: usize = LIVE_STREAMS.iter().map(|stream| stream.1).sum();
    let groups = "groups: [{ channels: [0, 7], interpolation: angle }, { channels: [7, 11], interpolation: slerp }, \
                  { channels: [11, 15], interpolation: linear }]";
    for (name, proprio) in [
        ("linear", "interpolation: linear"),
        ("angle + slerp + linear", groups),
        ("cubic", "interpolation: cubic"),
        ("pchip", "interpolation: pchip"),
    ] {
        for window in LIVE_WINDOWS {
            let rules = live_rules_with(window, Dtype::Float32, proprio)?;
            for (offset_ns, between) in [(0, ""), (BETWEEN_NS, ", between samples")] {
                let config = format!("{}, {name}{between}", live_config(window));
                let bytes = window * columns * 4;
                let times = play(OnCpu::new(&rules)?, &rules, offset_ns, usize::MAX)?;
                rows.add("fuse", &config, "cpu", Scope::Host, times, bytes);
                if gpu.is_some() {
                    let times = play(on_gpu(&rules)?, &rules, offset_ns, usize::MAX)?;
                    rows.add("fuse", &config, "cuda", Scope::Host, times, bytes);
                }
            }
        }
    }
    gpu.map_or(Ok(()), |gpu| fuse_batch::modes(rows, gpu))
}

/// Element types and numbers of values of large samples that are in device memory already, such as outputs of another
/// operation. They are the bits of a voxel grid of 512 x 512 x 40, and 2 M floats.
const LARGE_SAMPLES: [(Dtype, usize); 2] = [(Dtype::UInt8, 512 * 512 * 40 / 8), (Dtype::Float32, 1 << 21)];

/// Measures the push of a sample that is in device memory already: a copy within the device, to the history of its stream.
fn take(rows: &mut Rows, gpu: &Gpu) -> Result<(), Box<dyn Error>> {
    const SETS: usize = 8;
    for (dtype, dim) in LARGE_SAMPLES {
        if !timing::is_wanted(dim) {
            continue;
        }
        let config: AlignConfig = serde_yaml::from_str(&format!(
            "{{ rate_hz: 10, modalities: [{{ input: voxels, dim: {dim}, interpolation: previous }}] }}"
        ))?;
        let mut aligner = on_gpu(&config)?;
        let bytes = dim * dtype.size();
        let mut memory = DeviceBuf::new(gpu, &Budget::new(None));
        memory.reserve(SETS * bytes)?;
        memory.clear(0, SETS * bytes)?;
        gpu.synchronize()?;
        let (mut stamp, mut failed) = (0, None);
        let times = timing::host(SETS, |set| {
            stamp += 100_000_000;
            let pushed = match DeviceSample::new(&memory, set * bytes, dtype, dim) {
                Ok(sample) => aligner
                    .push_on_device(0, stamp, sample)
                    .map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            failed = pushed.err().or(failed.take());
            while aligner.due().is_some() {}
        });
        failed.map_or(Ok(()), Err)?;
        let config = format!("take of a sample on the device, {dim} {dtype}");
        rows.add(
            "fuse",
            &config,
            "cuda",
            Scope::Host,
            times,
            bytes + dim * size_of::<f32>(),
        );
    }
    Ok(())
}

/// Launches the kernels of `fuse` a few times for a profiler. They make the shortest window in float32 and float16 and the
/// longest window, and copy samples that are in device memory already.
pub fn launch(gpu: &Gpu) -> Result<(), Box<dyn Error>> {
    const OBSERVATIONS: usize = 4;
    let [shortest, .., longest] = LIVE_WINDOWS;
    for (window, dtype) in [
        (shortest, Dtype::Float32),
        (shortest, Dtype::Float16),
        (longest, Dtype::Float32),
    ] {
        let rules = live_rules(window, dtype)?;
        play(on_gpu(&rules)?, &rules, 0, OBSERVATIONS)?;
    }
    let mut aligner = on_gpu(&live_rules(shortest, Dtype::Float32)?)?;
    let (period, dim) = LIVE_STREAMS[0];
    let mut memory = DeviceBuf::new(gpu, &Budget::new(None));
    memory.reserve(dim * size_of::<f32>())?;
    memory.clear(0, dim * size_of::<f32>())?;
    gpu.synchronize()?;
    for k in 0..OBSERVATIONS as i64 {
        let sample = DeviceSample::new(&memory, 0, Dtype::Float32, dim)?;
        aligner.push_on_device(0, k * period, sample)?;
    }
    Ok(())
}

/// Implementation that makes the observations of a live robot: the CPU code alone, or an aligner.
trait Fuser {
    fn push(&mut self, modality: usize, stamp_ns: i64, sample: Values<'_>) -> Result<(), Box<dyn Error>>;

    /// Writes the next observation to `out`, and returns true; returns false if no observation is due.
    fn observe(&mut self, out: &mut [f32]) -> Result<bool, Box<dyn Error>>;
}

/// The CPU implementation without the layer that chooses a backend.
struct OnCpu {
    timeline: Timeline,
    masks: Masks,
}

impl OnCpu {
    fn new(config: &AlignConfig) -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            timeline: Timeline::new(config)?,
            masks: Masks::default(),
        })
    }
}

impl Fuser for OnCpu {
    fn push(&mut self, modality: usize, stamp_ns: i64, sample: Values<'_>) -> Result<(), Box<dyn Error>> {
        self.timeline.push(modality, stamp_ns, sample)?;
        Ok(())
    }

    fn observe(&mut self, out: &mut [f32]) -> Result<bool, Box<dyn Error>> {
        let Some(target) = self.timeline.due() else {
            return Ok(false);
        };
        let all = 0..self.timeline.modalities();
        cpu::window(&self.timeline, &target, all, out, &mut self.masks);
        Ok(true)
    }
}

/// Makes an aligner that makes all windows on the first CUDA device.
fn on_gpu(config: &AlignConfig) -> Result<Aligner, Box<dyn Error>> {
    Ok(Aligner::fused(
        config,
        &Placement::resolve(DeviceChoice::Gpu(Kind::Cuda, None), None)?,
    )?)
}

impl Fuser for Aligner {
    fn push(&mut self, modality: usize, stamp_ns: i64, sample: Values<'_>) -> Result<(), Box<dyn Error>> {
        Aligner::push(self, modality, stamp_ns, sample)?;
        Ok(())
    }

    fn observe(&mut self, out: &mut [f32]) -> Result<bool, Box<dyn Error>> {
        let Some(target) = self.due() else { return Ok(false) };
        let bytes = self.outputs()[0].bytes();
        let mut window = self.window(target);
        window.write(0, &mut bytemuck::cast_slice_mut::<f32, u8>(out)[..bytes]);
        match window.device() {
            Device::Cpu => Err("the device failed".into()),
            Device::Gpu(..) => Ok(true),
        }
    }
}

/// Name of a live robot's observation in the output rows.
fn live_config(window: usize) -> String {
    format!("live, T = {window}, 128+15+6 columns, float32, one observation")
}

/// Makes the configuration of a live robot's observation with linear interpolation.
fn live_rules(window: usize, dtype: Dtype) -> Result<AlignConfig, serde_yaml::Error> {
    live_rules_with(window, dtype, "interpolation: linear")
}

/// Makes the configuration of a live robot's observation; `proprio` is the YAML of the proprioception's modes.
fn live_rules_with(window: usize, dtype: Dtype, proprio: &str) -> Result<AlignConfig, serde_yaml::Error> {
    serde_yaml::from_str(&format!(
        "{{ rate_hz: 50, window: {window}, max_wait_ms: 40, dtype: {dtype}, modalities: [
            {{ input: camera, dim: 128, interpolation: previous, max_age_ms: 100 }},
            {{ input: proprio, dim: 15, max_gap_ms: 50, {proprio} }},
            {{ input: force, dim: 6, interpolation: linear, max_gap_ms: 50, extrapolate_ms: 5 }}] }}"
    ))
}

/// Feeds ten seconds of a live robot to `fuser`, with all stamps shifted by `offset_ns`, until there are `most` observations.
/// Returns the time of each observation after the warm-up, us, from the arrival of the sample that makes the observation due.
fn play(mut fuser: impl Fuser, config: &AlignConfig, offset_ns: i64, most: usize) -> Result<Vec<f64>, Box<dyn Error>> {
    let samples = LIVE_STREAMS.map(|(_, dim)| {
        let values = (0..DIFFERENT_SAMPLES * dim).map(|i| (i as f32 * 0.37).sin());
        values.collect::<Vec<f32>>()
    });
    let mut arrivals: Vec<(i64, usize, usize)> = LIVE_STREAMS
        .iter()
        .enumerate()
        .flat_map(|(i, (period, _))| (0..LIVE_NS / period).map(move |k| (k * period, i, k as usize)))
        .collect();
    arrivals.sort_unstable();
    let mut out = vec![0f32; config.window * config.columns()];
    let mut times = Vec::with_capacity(1024);
    let mut made = 0;
    for (stamp, modality, k) in arrivals {
        if made >= most {
            break;
        }
        let dim = LIVE_STREAMS[modality].1;
        let sample = &samples[modality][k % DIFFERENT_SAMPLES * dim..][..dim];
        let mut start = Instant::now();
        fuser.push(modality, stamp + offset_ns, Values::from_f32(sample))?;
        while fuser.observe(&mut out)? {
            made += 1;
            if stamp >= LIVE_WARM_UP_NS {
                times.push(start.elapsed().as_secs_f64() * 1e6);
            }
            // Two observations may be due at once: the second is measured by itself.
            start = Instant::now();
        }
    }
    Ok(times)
}
