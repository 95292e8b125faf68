//! Windows of streams that come sample by sample.

use super::{MS, Pairs, config, cuda, push};
use crate::support::{Random, gpu, ran, random_cases};
use bytemuck::Pod;
use half::{bf16, f16};
use robocache::device::{Device, Dtype, HostBuf, Values};
use robocache::ops::align::{AlignConfig, Aligner, SampleError, TriggerKind};
use robocache::time::Interpolation;
use std::fmt::Write;
use std::ops::Range;

/// Draws a configuration with at most these numbers of modalities and of values in each, and a group of the mode `with`.
fn any_config(
    random: &mut Random,
    most_modalities: usize,
    most_values: usize,
    with: Option<Interpolation>,
) -> AlignConfig {
    let window = random.pick(&[1, 2, 7, 16, 64, 65, 130]);
    let max_wait = random.pick(&["null", "0", "15", "60"]);
    let trigger = match random.below(8) {
        0 => "{ stream: s0 }",
        1 => "{ stream: s0, every: 2, min_interval_ms: 7, rows: period }",
        2 | 3 => "{ stream: s0, rows: samples }",
        4 => "{ request: ask }",
        5 => "{ timer: tick }",
        _ => "null",
    };
    let emit_every = if trigger == "null" { 1 + random.below(3) } else { 1 };
    let mut yaml = format!(
        "rate_hz: 100\nwindow: {window}\nstride: {}\nemit_every: {emit_every}\nmax_wait_ms: {max_wait}\ntrigger: {trigger}\n\
         dtype: {}\nfill_value: {}\nmodalities:\n",
        1 + random.below(3),
        random.pick(&["float32", "float16", "bfloat16"]),
        random.pick(&[0.0, -7.5, 0.1]),
    );
    for modality in 0..1 + random.below(most_modalities) {
        let dim = match random.below(3) {
            0 => 1 + random.below(9),
            1 => (8 * (1 + random.below(16))).min(most_values),
            _ => 1 + random.below(most_values),
        };
        let dim = dim.max(with.and_then(Interpolation::width).unwrap_or(1));
        let wait = modality == 0 || !random.once_in(4);
        write!(
            yaml,
            "- {{ input: s{modality}, dim: {dim}, wait: {wait}, latency_ms: {}, reorder_ms: {}, reset_ms: {}, groups: [",
            random.below(9),
            random.pick(&[0, 0, 25]),
            random.pick(&[80, 100_000]),
        )
        .unwrap();
        for (channels, mode) in random.groups(dim, with) {
            let Range { start, end } = channels;
            write!(yaml, "{{ channels: [{start}, {end}], interpolation: {}", mode.name()).unwrap();
            if mode == Interpolation::Slerp && random.once_in(2) {
                write!(yaml, ", canonical: true, order: {}", random.pick(&["xyzw", "wxyz"])).unwrap();
            }
            for key in mode.limits() {
                if random.once_in(2) {
                    write!(yaml, ", {key}: {}", random.below(50)).unwrap();
                }
            }
            yaml += " }, ";
        }
        yaml += "] }\n";
    }
    config(&yaml)
}

/// Writes the values to `bytes` in a random type, and returns that type.
fn any_type(random: &mut Random, values: &[f32], bytes: &mut HostBuf) -> Dtype {
    fn put<T: Pod>(values: &[f32], bytes: &mut HostBuf, cast: impl Fn(f32) -> T) {
        let cast: Vec<T> = values.iter().map(|&value| cast(value)).collect();
        bytes.copy_from(bytemuck::cast_slice(&cast));
    }
    let dtype = if random.once_in(2) {
        Dtype::Float32
    } else {
        random.pick(&Dtype::ALL)
    };
    match dtype {
        Dtype::Float32 => put(values, bytes, |value| value),
        Dtype::Float64 => put(values, bytes, |value| f64::from(value) * 1.000_000_01),
        Dtype::Float16 => put(values, bytes, f16::from_f32),
        Dtype::BFloat16 => put(values, bytes, bf16::from_f32),
        Dtype::Int8 => put(values, bytes, |value| value as i8),
        Dtype::Int16 => put(values, bytes, |value| value as i16),
        Dtype::Int32 => put(values, bytes, |value| (value * 1e5) as i32),
        Dtype::Int64 => put(values, bytes, |value| (value * 1e12) as i64),
        Dtype::UInt8 => put(values, bytes, |value| value as u8),
        Dtype::UInt16 => put(values, bytes, |value| value as u16),
        Dtype::UInt32 => put(values, bytes, |value| (value * 1e5) as u32),
        Dtype::UInt64 => put(values, bytes, |value| (value * 1e12) as u64),
    }
    dtype
}

/// Plays a random timeline: samples mostly in order, some late, some repeated, with jumps back, NaNs, and inputs that close.
fn play(pairs: &mut Pairs, config: &AlignConfig, random: &mut Random, events: usize) {
    let timeline = pairs.fused.oracle.timeline();
    let (modalities, trigger) = (timeline.modalities(), timeline.trigger());
    let dims: Vec<usize> = (0..modalities).map(|modality| timeline.dim(modality)).collect();
    // For each modality n: one sample in n comes on the device, or none if n is 0.
    let on_device: Vec<usize> = (0..modalities).map(|_| random.pick(&[0, 1, 3])).collect();
    let mut newest = vec![Vec::new(); modalities];
    let mut now = 0;
    let (mut sample, mut bytes) = (Vec::new(), HostBuf::default());
    for _ in 0..events {
        let modality = random.below(modalities);
        now += random.below(2 + 12 / modalities) as i64;
        if random.once_in(150) {
            now -= 200;
        }
        match (random.below(40), trigger) {
            (10..20, TriggerKind::Request) => {
                pairs.ask(random.once_in(2).then(|| (now - 300 + random.below(400) as i64) * MS))
            }
            (10..20, TriggerKind::Timer) => pairs.tick(),
            (0, _) => pairs.close(modality),
            (1, _) => pairs.open(modality),
            _ => {
                let late = if random.once_in(6) { random.below(60) as i64 } else { 0 };
                let scale = random.pick(&[1.0, 1e-6, 1e4, 7e4, 3e38]);
                sample.clear();
                sample.extend((0..dims[modality]).map(|_| (random.signed() * scale) as f32));
                let groups = &config.modalities[modality].groups;
                let before = &mut newest[modality];
                let mut channels = vec![0.0; dims[modality]];
                for group in groups {
                    if random.once_in(20) {
                        continue;
                    }
                    let [from, to] = group.channels;
                    let own = &mut channels[from..to];
                    own.iter_mut()
                        .zip(&sample[from..to])
                        .for_each(|(own, &value)| *own = value.into());
                    let before = (!before.is_empty()).then(|| &before[from..to]);
                    random.channels(group.interpolation.unwrap(), before, own);
                    sample[from..to]
                        .iter_mut()
                        .zip(own)
                        .for_each(|(value, own)| *value = *own as f32);
                }
                *before = sample.iter().copied().map(f64::from).collect();
                if random.once_in(10) {
                    // Values that float16 and bfloat16 just can and can't hold, and ends of a line that overflows in float32.
                    let ends = [65504.0, 65519.99, 65520.0, -65536.0, 3.39e38, f32::MAX, -f32::MAX];
                    sample[random.below(dims[modality])] = random.pick(&ends);
                }
                if random.once_in(30) {
                    sample[random.below(dims[modality])] = random.pick(&[f32::NAN, f32::INFINITY]);
                }
                let off_grid = if random.once_in(2) {
                    random.below(1_000_000) as i64
                } else {
                    0
                };
                let stamp = (now - late) * MS + off_grid;
                let values = Values::new(any_type(random, &sample, &mut bytes), bytes.bytes());
                // Ignores the result: a sample that is not finite is refused.
                let _ = match on_device[modality] {
                    often if often > 0 && random.once_in(often) => pairs.push_on_device(modality, stamp, values),
                    _ => pairs.push(modality, stamp, values),
                };
            }
        }
        pairs.check_due(random);
    }
}

#[test]
fn whatever_comes_the_windows_are_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let cases = random_cases(12);
    let mut windows = 0;
    for case in 0..cases {
        let mut random = Random(case as u64);
        let config = any_config(&mut random, 5, 40, None);
        let mut pairs = Pairs::new(&config);
        play(&mut pairs, &config, &mut random, 60);
        windows += pairs.windows;
    }
    ran(&gpu, "fuse: windows of random timelines", windows);
}

/// Checks small timelines that contain a group of one mode. Each window is a case.
fn check_mode(mode: Interpolation) {
    let Some(gpu) = gpu() else { return };
    let wanted = random_cases(40);
    let (mut seed, mut windows) = ((1 + u64::from(mode.code())) << 48, 0);
    while windows < wanted {
        let random = &mut Random(seed);
        let config = any_config(random, 2, 20, Some(mode));
        let mut pairs = Pairs::new(&config);
        play(&mut pairs, &config, random, 120);
        windows += pairs.windows;
        seed += 1;
    }
    ran(
        &gpu,
        &format!("fuse: windows of random timelines, {}", mode.name()),
        windows,
    );
}

mod mode {
    crate::support::for_each_mode!(check_mode);
}

#[test]
fn many_wide_modalities_are_one_launch() {
    let Some(gpu) = gpu() else { return };
    let mut windows = 0;
    for case in 0..random_cases(3).min(1000) {
        let mut random = Random(1 << 32 | case as u64);
        let config = any_config(&mut random, 20, 300, None);
        let mut pairs = Pairs::new(&config);
        play(&mut pairs, &config, &mut random, 40);
        windows += pairs.windows;
    }
    ran(&gpu, "fuse: windows of many wide modalities", windows);
}

#[test]
fn a_long_history_is_searched_and_followed_as_it_grows() {
    let Some(gpu) = gpu() else { return };
    // The second stream is far behind, so that the first one's history grows to thousands before anything is due.
    let mut pairs = Pairs::new(&config(
        "{ rate_hz: 100, window: 3, stride: 2, modalities: [{ input: a, dim: 2, interpolation: linear },\
             { input: b, dim: 1, interpolation: nearest }] }",
    ));
    let random = &mut Random(1);
    for i in 0..9000 {
        let stamp = i * 1_000_000 + i % 7 * 1000;
        let sample = [i as f32, (i * i % 1001) as f32];
        pairs.push(0, stamp, Values::from_f32(&sample)).unwrap();
    }
    for (i, ms) in [2, 11, 31, 4000, 4030, 8890, 8960].into_iter().enumerate() {
        push(&mut pairs, 1, ms, &[i as f32]);
        if let Some(target) = pairs.due() {
            pairs.check(&target);
        }
    }
    pairs.close(0);
    pairs.close(1);
    for _ in 0..50 {
        let Some(target) = pairs.due() else { break };
        pairs.check(&target);
    }
    assert!(pairs.windows > 50);
    pairs.check_due(random);
    ran(&gpu, "fuse: windows of a long history", pairs.windows);
}

#[test]
fn rows_that_are_on_the_device_alone_go_along_when_their_ring_grows() {
    let Some(gpu) = gpu() else { return };
    let mut pairs = Pairs::new(&config(
        "{ rate_hz: 100, window: 2, stride: 3, modalities: [\
             { input: a, dim: 5, interpolation: linear, reorder_ms: 30 }, { input: b, dim: 1, interpolation: nearest }] }",
    ));
    let random = &mut Random(3);
    for i in 0..800 {
        // The second stream is behind by up to 240 samples, and the first one's ring wraps around.
        if i % 240 == 0 {
            push(&mut pairs, 1, i, &[i as f32]);
        }
        let late = if i % 7 == 0 { 20 } else { 0 };
        let sample = [i as f32, -i as f32, 0.5, (i * i % 101) as f32, 1e-3 * i as f32];
        let stamp = (i - late) * MS + 1000 * (i % 3);
        pairs.push_on_device(0, stamp, Values::from_f32(&sample)).unwrap();
        pairs.check_due(random);
    }
    assert!(pairs.windows > 60, "{} windows", pairs.windows);
    ran(&gpu, "fuse: windows of rows on the device alone", pairs.windows);
}

#[test]
fn a_full_history_that_gives_up_its_oldest_samples_is_followed() {
    let Some(gpu) = gpu() else { return };
    for on_device in [false, true] {
        ran(&gpu, "fuse: windows of a full history", full_history(on_device));
    }
}

fn full_history(on_device: bool) -> usize {
    // Samples of 4 MiB: a history holds 64 of them.
    let dim = 1 << 20;
    let mut pairs = Pairs::new(&config(&format!(
        "{{ rate_hz: 100, window: 2, max_wait_ms: null, modalities: [\
             {{ input: a, dim: {dim}, interpolation: linear, reorder_ms: 500 }}, {{ input: b, dim: 1, interpolation: previous }}] }}"
    )));
    let mut sample = vec![0f32; dim];
    push(&mut pairs, 1, 0, &[1.0]);
    let mut overflowed = 0;
    for (i, ms) in (0..70i64).map(|i| i * 10).chain([655, 651, 700]).enumerate() {
        sample[i] = ms as f32;
        sample[dim - 1] = i as f32;
        let values = Values::from_f32(&sample);
        let pushed = match on_device {
            true => pairs.push_on_device(0, ms * MS + 1, values),
            false => pairs.push(0, ms * MS + 1, values),
        };
        overflowed += usize::from(pushed.unwrap().overflowed);
        if i % 24 == 3 {
            push(&mut pairs, 1, ms + 1, &[ms as f32]);
            if let Some(target) = pairs.due() {
                pairs.check(&target);
            }
        }
    }
    assert!(overflowed > 0, "it was not full");
    pairs.close(0);
    push(&mut pairs, 1, 700, &[2.0]);
    let last = std::iter::from_fn(|| pairs.due()).last().unwrap();
    pairs.check(&last);
    pairs.windows
}

#[test]
fn samples_that_are_on_the_device_are_taken_and_dropped_as_those_of_the_host() {
    let Some(gpu) = gpu() else { return };
    let modality = "{ input: a, dim: 3, interpolation: linear, reorder_ms: 5 }";
    let mut pairs = Pairs::new(&config(&format!("{{ rate_hz: 100, modalities: [{modality}] }}")));
    let mut push = |ms: i64, values: Values<'_>| pairs.push_on_device(0, ms * MS, values);
    push(4, Values::from_f32(&[1.0, 2.0, 3.0])).unwrap();
    let halves = [5.0, 6.0, 7.0].map(f16::from_f32);
    push(8, Values::new(Dtype::Float16, bytemuck::cast_slice(&halves))).unwrap();
    let nan = [5.0, f32::NAN, 7.0].map(bf16::from_f32);
    let refused = push(9, Values::new(Dtype::BFloat16, bytemuck::cast_slice(&nan))).unwrap_err();
    assert!(matches!(refused, SampleError::NonFinite { channel: 1, value } if value.is_nan()));
    // The value is infinite in float32.
    let large = [5.0, 6.0, -1e300];
    let refused = push(9, Values::new(Dtype::Float64, bytemuck::cast_slice(&large))).unwrap_err();
    assert_eq!(
        refused,
        SampleError::NonFinite {
            channel: 2,
            value: f32::NEG_INFINITY
        }
    );
    let refused = push(9, Values::from_f32(&[1.0, 2.0])).unwrap_err();
    assert_eq!(refused, SampleError::WrongLength { expected: 3, came: 2 });
    assert_eq!(
        push(i64::MAX / MS, Values::from_f32(&[0.0; 3]))
            .unwrap_err()
            .to_string()[..5],
        *"stamp"
    );
    push(16, Values::from_f32(&[1.0, 1.0, 1.0])).unwrap();
    push(16, Values::from_f32(&[5.0, 16.0, 27.0])).unwrap(); // replaces the sample before
    push(5, Values::from_f32(&[5.0, 6.0, 7.0])).unwrap(); // older than the last two
    push(25, Values::from_f32(&[9.0, 9.0, 9.0])).unwrap();
    let target = pairs.due().unwrap();
    pairs.check(&target);
    // A quarter of the way from 8 to 16.
    assert_eq!(pairs.values::<f32>(), [5.0, 8.5, 12.0]);
    ran(&gpu, "fuse: samples on the device", 10);
}

#[test]
fn without_memory_the_cpu_goes_on() {
    let Some(gpu) = gpu() else { return };
    let config = config("{ rate_hz: 100, modalities: [{ input: a, dim: 100, interpolation: previous }] }");
    let mut aligner = Aligner::fused(&config, &cuda().with_max_bytes(Some(4096))).unwrap();
    for (stamp, value) in [(0, 1.5), (10 * MS, 2.5)] {
        aligner.push(0, stamp, Values::from_f32(&[value; 100])).unwrap();
        let target = aligner.due().unwrap();
        let mut values = [0f32; 100];
        let mut window = aligner.window(target);
        window.write(0, &mut values);
        assert_eq!((window.device(), values), (Device::Cpu, [value; 100]));
        assert!(window.device_bytes() <= 4096);
    }
    assert!(aligner.take_lost().is_none());
    ran(&gpu, "fuse: out of memory", 2);
}
