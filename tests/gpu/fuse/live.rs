//! Windows of streams that come sample by sample.

use super::{MS, Pair, config, push};
use crate::support::{Random, gpu, ran, random_cases};
use half::{bf16, f16};
use robocache::device::cuda::{Budget, DeviceBuf};
use robocache::device::{Dtype, Values};
use robocache::ops::align::cuda::{CudaFuser, DeviceSample, PushError};
use robocache::ops::align::{AlignConfig, Aligner, Masks, SampleError};
use std::fmt::Write;

/// Any configuration of up to so many modalities of up to so many values.
fn any_config(random: &mut Random, most_modalities: usize, most_values: usize) -> AlignConfig {
    let window = random.of(&[1, 2, 7, 16, 64, 65, 130]);
    let max_wait = random.of(&["null", "0", "15", "60"]);
    let mut yaml = format!(
        "rate_hz: 100\nwindow: {window}\nstride: {}\nemit_every: {}\nmax_wait_ms: {max_wait}\ndtype: {}\n\
         fill_value: {}\nmodalities:\n",
        1 + random.below(3),
        1 + random.below(3),
        random.of(&["float32", "float16", "bfloat16"]),
        random.of(&[0.0, -7.5, 0.1]),
    );
    for modality in 0..1 + random.below(most_modalities) {
        let dim = match random.below(3) {
            0 => 1 + random.below(9),
            1 => (8 * (1 + random.below(16))).min(most_values),
            _ => 1 + random.below(most_values),
        };
        let wait = modality == 0 || !random.once_in(4);
        write!(
            yaml,
            "- {{ input: s{modality}, dim: {dim}, wait: {wait}, latency_ms: {}, reorder_ms: {}, reset_ms: {}, groups: [",
            random.below(9),
            random.of(&[0, 0, 25]),
            random.of(&[80, 100_000]),
        )
        .unwrap();
        let mut from = 0;
        while from < dim {
            let whole = random.once_in(2);
            let to = if whole {
                dim
            } else {
                from + 1 + random.below(dim - from)
            };
            let mode = random.of(&["previous", "nearest", "linear"]);
            write!(yaml, "{{ channels: [{from}, {to}], interpolation: {mode}").unwrap();
            for key in ["max_age_ms", "max_gap_ms", "extrapolate_ms"] {
                if random.once_in(2) {
                    write!(yaml, ", {key}: {}", random.below(50)).unwrap();
                }
            }
            yaml += " }, ";
            from = to;
        }
        yaml += "] }\n";
    }
    config(&yaml)
}

/// Plays a random timeline: samples by and large in order, some late, some twice, some jumps back, NaNs, closes.
fn play(pair: &mut Pair, random: &mut Random, events: usize) {
    let modalities = pair.aligner.modalities();
    let dims: Vec<usize> = (0..modalities).map(|modality| pair.aligner.dim(modality)).collect();
    let mut now = 0;
    let mut sample = Vec::new();
    for _ in 0..events {
        let modality = random.below(modalities);
        now += random.below(2 + 12 / modalities) as i64;
        if random.once_in(150) {
            now -= 200;
        }
        match random.below(40) {
            0 => pair.aligner.close(modality),
            1 => pair.aligner.open(modality),
            _ => {
                let late = if random.once_in(6) { random.below(60) as i64 } else { 0 };
                let scale = random.of(&[1.0, 1e-6, 1e4, 3e38]);
                sample.clear();
                sample.extend((0..dims[modality]).map(|_| (random.signed() * scale) as f32));
                if random.once_in(30) {
                    sample[random.below(dims[modality])] = random.of(&[f32::NAN, f32::INFINITY]);
                }
                let off_grid = if random.once_in(2) {
                    random.below(1_000_000) as i64
                } else {
                    0
                };
                // What is not finite is dropped.
                let _ = pair
                    .aligner
                    .push(modality, (now - late) * MS + off_grid, Values::from_f32(&sample));
            }
        }
        pair.check_due(random);
    }
}

#[test]
fn whatever_comes_the_windows_are_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let cases = random_cases(12);
    let mut windows = 0;
    for case in 0..cases {
        let mut random = Random(case as u64);
        let config = any_config(&mut random, 5, 40);
        let mut pair = Pair::new(&config, &gpu);
        play(&mut pair, &mut random, 60);
        windows += pair.windows;
    }
    ran(&gpu, "fuse: windows of random timelines", windows);
}

#[test]
fn many_wide_modalities_are_one_launch() {
    let Some(gpu) = gpu() else { return };
    let mut windows = 0;
    for case in 0..random_cases(3).min(1000) {
        let mut random = Random(1 << 32 | case as u64);
        let config = any_config(&mut random, 20, 300);
        let mut pair = Pair::new(&config, &gpu);
        play(&mut pair, &mut random, 40);
        windows += pair.windows;
    }
    ran(&gpu, "fuse: windows of many wide modalities", windows);
}

#[test]
fn a_long_history_is_searched_and_followed_as_it_grows() {
    let Some(gpu) = gpu() else { return };
    // The second stream is far behind, so that the first one's history grows to thousands before anything is due.
    let mut pair = Pair::new(
        &config(
            "{ rate_hz: 100, window: 3, stride: 2, modalities: [{ input: a, dim: 2, interpolation: linear },\
             { input: b, dim: 1, interpolation: nearest }] }",
        ),
        &gpu,
    );
    let random = &mut Random(1);
    for i in 0..9000 {
        let stamp = i * 1_000_000 + i % 7 * 1000;
        let sample = [i as f32, (i * i % 1001) as f32];
        pair.aligner.push(0, stamp, Values::from_f32(&sample)).unwrap();
    }
    for (i, ms) in [2, 11, 31, 4000, 4030, 8890, 8960].into_iter().enumerate() {
        push(&mut pair, 1, ms, &[i as f32]);
        if let Some(target) = pair.aligner.due() {
            pair.check(&target);
        }
    }
    pair.aligner.close(0);
    pair.aligner.close(1);
    for _ in 0..50 {
        let Some(target) = pair.aligner.due() else { break };
        pair.check(&target);
    }
    assert!(pair.windows > 50);
    pair.check_due(random);
    ran(&gpu, "fuse: windows of a long history", pair.windows);
}

#[test]
fn a_full_history_that_gives_up_its_oldest_samples_is_followed() {
    let Some(gpu) = gpu() else { return };
    // Samples of 1 MiB: a history holds 64 of them.
    let dim = 1 << 18;
    let mut pair = Pair::new(
        &config(&format!(
            "{{ rate_hz: 100, window: 2, max_wait_ms: null, modalities: [\
             {{ input: a, dim: {dim}, interpolation: linear, reorder_ms: 500 }}, {{ input: b, dim: 1, interpolation: previous }}] }}"
        )),
        &gpu,
    );
    let mut sample = vec![0f32; dim];
    push(&mut pair, 1, 0, &[1.0]);
    let mut overflowed = 0;
    for (i, ms) in (0..70i64).map(|i| i * 10).chain([655, 651, 700]).enumerate() {
        sample[i] = ms as f32;
        sample[dim - 1] = i as f32;
        let pushed = pair.aligner.push(0, ms * MS + 1, Values::from_f32(&sample)).unwrap();
        overflowed += usize::from(pushed.overflowed);
        if i % 24 == 3 {
            push(&mut pair, 1, ms + 1, &[ms as f32]);
            if let Some(target) = pair.aligner.due() {
                pair.check(&target);
            }
        }
    }
    assert!(overflowed > 0, "it was not full");
    pair.aligner.close(0);
    push(&mut pair, 1, 700, &[2.0]);
    let last = std::iter::from_fn(|| pair.aligner.due()).last().unwrap();
    pair.check(&last);
    ran(&gpu, "fuse: windows of a full history", pair.windows);
}

#[test]
fn samples_that_are_on_the_device_are_taken_and_dropped_as_those_of_the_host() {
    let Some(gpu) = gpu() else { return };
    let mut pair = Pair::new(
        &config("{ rate_hz: 100, modalities: [{ input: a, dim: 3, interpolation: linear }] }"),
        &gpu,
    );
    let mut memory = DeviceBuf::new(&gpu, &Budget::new(None));
    memory.reserve(64).unwrap();
    let place = |bytes: &[u8]| {
        // SAFETY: the source stays until the stream is synchronized, right here.
        unsafe { memory.upload(16, bytes).unwrap() };
        gpu.synchronize().unwrap();
    };
    let mut push_all = |stamp_ms: i64, dtype: Dtype, bytes: &[u8], len: usize| {
        place(bytes);
        let sample = DeviceSample {
            memory: &memory,
            at: 16,
            dtype,
            len,
        };
        pair.fuser.push(&mut pair.aligner, 0, stamp_ms * MS, sample)
    };
    push_all(4, Dtype::Float32, bytemuck::cast_slice(&[1f32, 2.0, 3.0]), 3).unwrap();
    push_all(
        5,
        Dtype::Float16,
        bytemuck::cast_slice(&[5.0, 6.0, 7.0].map(f16::from_f32)),
        3,
    )
    .unwrap();
    let nan = [5.0, f32::NAN, 7.0].map(bf16::from_f32);
    let refused = push_all(9, Dtype::BFloat16, bytemuck::cast_slice(&nan), 3).unwrap_err();
    assert!(matches!(
        refused,
        PushError::Sample(SampleError::NonFinite { channel: 1, .. })
    ));
    let refused = push_all(9, Dtype::Float32, bytemuck::cast_slice(&[1f32, 2.0]), 2).unwrap_err();
    assert!(matches!(
        refused,
        PushError::Sample(SampleError::WrongLength { expected: 3, came: 2 })
    ));
    push_all(15, Dtype::Float64, bytemuck::cast_slice(&[5f64, 16.0, 27.0]), 3).unwrap();
    let target = pair.aligner.due().unwrap();
    pair.check(&target);
    assert_eq!(super::cast::<f32>(&mut pair.memory[1]), [5.0, 11.0, 17.0]);
    ran(&gpu, "fuse: samples on the device", 5);
}

#[test]
fn without_memory_it_says_so_and_the_cpu_goes_on() {
    let Some(gpu) = gpu() else { return };
    let config = config("{ rate_hz: 100, modalities: [{ input: a, dim: 100, interpolation: previous }] }");
    let mut aligner = Aligner::new(&config).unwrap();
    let budget = Budget::new(Some(4096));
    let mut fuser = CudaFuser::new(&aligner, &gpu, &budget);
    let (mut out, mut masks) = (vec![0; 400], Masks::default());
    aligner.push(0, 0, Values::from_f32(&[1.5; 100])).unwrap();
    let target = aligner.due().unwrap();
    for _ in 0..2 {
        let error = fuser.window(&aligner, &target, 0..1, &mut out, &mut masks).unwrap_err();
        assert!(error.is_memory(), "{error}");
        assert!(budget.used() <= 4096);
    }
    let mut values = [0f32; 100];
    robocache::ops::fuse::cpu::fuse(&aligner, &target, &mut values, &mut masks);
    assert_eq!(values, [1.5; 100]);
    ran(&gpu, "fuse: out of memory", 1);
}
