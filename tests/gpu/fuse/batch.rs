//! Windows of many recordings at once, compared with the rules applied to each target by itself.

use crate::support::{Random, gpu, ran, random_cases};
use half::{bf16, f16};
use robocache::device::gpu::{Budget, DeviceBuf, Gpu};
use robocache::device::{Dtype, Float};
use robocache::ops::align::gpu::{BatchGroup, BatchModality, BatchOutput, BatchShape, FuseBatch};
use robocache::time::blend::{Rows, Written};
use robocache::time::{Interpolation, Limits, Pick, QuaternionOrder, Rule, pick};

const DTYPES: [Dtype; 3] = [Dtype::Float32, Dtype::Float16, Dtype::BFloat16];

/// Values of a type, as bytes and converted to float32.
struct Elements {
    bytes: Vec<u8>,
    values: Vec<f32>,
}

impl Elements {
    fn of(dtype: Dtype, values: impl Iterator<Item = f32>) -> Self {
        let mut elements = Self {
            bytes: Vec::new(),
            values: Vec::new(),
        };
        for value in values {
            elements.values.push(match dtype {
                Dtype::Float16 => f16::from_f32(value).to_f32(),
                Dtype::BFloat16 => bf16::from_f32(value).to_f32(),
                _ => value,
            });
            put(dtype, value, &mut elements.bytes);
        }
        elements
    }
}

fn put(dtype: Dtype, value: f32, bytes: &mut Vec<u8>) {
    match dtype {
        Dtype::Float16 => bytes.extend(f16::from_f32(value).to_le_bytes()),
        Dtype::BFloat16 => bytes.extend(bf16::from_f32(value).to_le_bytes()),
        _ => bytes.extend(value.to_le_bytes()),
    }
}

/// Copies bytes to a new buffer of the device, from byte `off` on.
fn on_device(gpu: &Gpu, budget: &Budget, bytes: &[u8], off: usize) -> DeviceBuf {
    let mut memory = DeviceBuf::new(gpu, budget);
    memory.reserve(bytes.len() + off).unwrap();
    // SAFETY: the source is not page-locked, so that it has been read on return.
    unsafe { memory.upload(off, bytes).unwrap() };
    memory
}

struct Modality {
    times: Vec<i64>,
    values: Elements,
    samples: usize,
    dim: usize,
    dtype: Dtype,
    groups: Vec<BatchGroup>,
}

fn any_groups(random: &mut Random, dim: usize, with: Option<Interpolation>) -> Vec<BatchGroup> {
    let mut groups = Vec::new();
    for (channels, mode) in random.groups(dim, with) {
        let mut limit = |absent: i64| {
            if random.once_in(2) {
                absent
            } else {
                random.below(80) as i64
            }
        };
        let limits = Limits {
            max_age: limit(i64::MAX),
            max_gap: limit(i64::MAX),
            extrapolate: limit(0),
        };
        let rule = Rule {
            canonical: random.once_in(2),
            order: random.pick(&[QuaternionOrder::Xyzw, QuaternionOrder::Wxyz]),
            ..Rule::new(mode, limits)
        };
        groups.push(BatchGroup { channels, rule });
    }
    groups
}

fn any_modality(random: &mut Random, entries: usize, with: Option<Interpolation>) -> Modality {
    let samples = match random.below(6) {
        0 => random.below(3),
        1 if with.is_none() => 600 + random.below(3000),
        2 => random.below(6),
        _ => 1 + random.below(if with.is_none() { 120 } else { 30 }),
    };
    let dim = if random.once_in(2) {
        8 * (1 + random.below(5))
    } else {
        1 + random.below(20)
    };
    let dim = dim.max(with.and_then(Interpolation::width).unwrap_or(1));
    let groups = any_groups(random, dim, with);
    let dtype = random.pick(&DTYPES);
    let mut times = Vec::new();
    for _ in 0..entries {
        let mut time = random.below(100) as i64 - 50;
        for _ in 0..samples {
            time += 1 + random.below(if samples > 200 { 3 } else { 20 }) as i64;
            times.push(time);
        }
    }
    let scale = random.pick(&[100.0, 7e4, 3.4e38]);
    let largest = dtype.largest() as f32;
    let mut values = vec![0.0; entries * samples * dim];
    values.fill_with(|| random.signed() * scale);
    for sample in 0..entries * samples {
        let (before, own) = values.split_at_mut(sample * dim);
        let before = before.len().checked_sub(dim).map(|from| &before[from..]);
        for group in &groups {
            let (channels, rule) = (group.channels.clone(), &group.rule);
            let own = &mut own[channels.clone()];
            let before = before.map(|before| &before[channels]);
            random.channels(rule.mode, before, own);
            // A batch takes only valid rotations.
            let in_type = Elements::of(dtype, own.iter().map(|&value| value as f32)).values;
            if !rule.takes(&in_type) {
                own.fill(0.0);
                (own[0], own[own.len() - 2]) = (0.75, -0.5);
            }
        }
    }
    let values = values.iter().map(|&value| (value as f32).clamp(-largest, largest));
    Modality {
        values: Elements::of(dtype, values),
        groups,
        times,
        samples,
        dim,
        dtype,
    }
}

/// Compares a random batch on the device with values that are computed for each target by itself. Returns the number of compared
/// entries.
fn check(gpu: &Gpu, random: &mut Random, most_modalities: usize, with: Option<Interpolation>) -> usize {
    let budget = Budget::new(None);
    let entries = 1 + random.below(if with.is_none() { 3 } else { 8 });
    let rows = random.pick(if with.is_none() {
        &[1, 5, 63, 64, 65, 200]
    } else {
        &[1, 5, 16, 33, 65]
    });
    let dtype = random.pick(&DTYPES);
    let shared = random.once_in(2);
    let modalities: Vec<Modality> = (0..1 + random.below(most_modalities))
        .map(|_| any_modality(random, entries, with))
        .collect();
    let columns: usize = modalities.iter().map(|modality| modality.dim).sum();
    let mut targets: Vec<i64> = (0..if shared { rows } else { entries * rows })
        .map(|_| random.below(if with.is_none() { 2000 } else { 400 }) as i64 - 100)
        .collect();
    if random.once_in(2) {
        targets.sort_unstable();
    }

    let mut copy = |modality: &Modality| {
        let off = random.pick(&[0, 4]);
        let times = on_device(gpu, &budget, bytemuck::cast_slice(&modality.times), 0);
        (times, off, on_device(gpu, &budget, &modality.values.bytes, off))
    };
    let copies: Vec<_> = modalities.iter().map(&mut copy).collect();
    let described: Vec<BatchModality<'_>> = modalities
        .iter()
        .zip(&copies)
        .map(|(modality, (times, off, values))| BatchModality {
            times: times.slice(0, Dtype::Int64, modality.times.len()).unwrap(),
            values: values
                .slice(
                    *off,
                    modality.dtype,
                    modality.values.bytes.len() / modality.dtype.size(),
                )
                .unwrap(),
            samples: modality.samples,
            dim: modality.dim,
            groups: modality.groups.clone(),
        })
        .collect();
    let targets_there = on_device(gpu, &budget, bytemuck::cast_slice(&targets), 0);
    let shape = BatchShape {
        entries,
        rows,
        targets: targets_there.slice(0, Dtype::Int64, targets.len()).unwrap(),
    };
    let cells = entries * rows * modalities.len();
    let sizes = [entries * rows * columns * dtype.size(), cells, cells * 8];
    let [values, valid, ages] = sizes.map(|bytes| on_device(gpu, &budget, &vec![0xee; bytes], 0));
    let output = BatchOutput {
        values: values.slice(0, dtype, entries * rows * columns).unwrap(),
        valid: valid.slice(0, Dtype::UInt8, cells).unwrap(),
        age_ns: ages.slice(0, Dtype::Int64, cells).unwrap(),
        fill_value: -3.5,
    };
    let batch = FuseBatch::new(gpu, &budget, &described, &shape, &output).unwrap();
    assert_eq!(batch.columns(), columns);
    let mut came = sizes.map(|bytes| vec![0u8; bytes]);
    // SAFETY: all memory is of this device and as large as the shape says; it lives until the stream is synchronized.
    unsafe {
        batch.launch().unwrap();
        for (memory, came) in [&values, &valid, &ages].into_iter().zip(&mut came) {
            memory.download(0, came).unwrap();
        }
    }
    gpu.synchronize().unwrap();

    let (mut wanted, mut wanted_valid, mut wanted_ages) = (Vec::new(), Vec::new(), Vec::new());
    for row in 0..entries * rows {
        let (entry, target) = (row / rows, targets[if shared { row % rows } else { row }]);
        for modality in &modalities {
            let times = &modality.times[entry * modality.samples..][..modality.samples];
            let value = |sample: usize, channel: usize| {
                modality.values.values[(entry * modality.samples + sample) * modality.dim + channel]
            };
            let until = times.iter().filter(|&&time| time <= target).count();
            let mut all = true;
            for group in &modality.groups {
                if group.rule.mode.code() > Interpolation::Linear.code() {
                    let sample = |sample: usize| {
                        let from = (entry * modality.samples + sample) * modality.dim;
                        &modality.values.values[from..from + modality.dim][group.channels.clone()]
                    };
                    let channels = group.channels.len();
                    all &= of_rule(&group.rule, times, until, target, sample, channels, dtype, &mut wanted);
                    continue;
                }
                let picked = pick(times, until, target, group.rule.mode, &group.rule.limits);
                let element = |channel: usize| match picked {
                    Pick::Invalid => f32::NAN,
                    Pick::Sample(sample) => value(sample, channel),
                    Pick::Between { before, after, weight } => {
                        let before = value(before, channel);
                        before + weight as f32 * (value(after, channel) - before)
                    }
                };
                let valid = group.channels.clone().all(|channel| dtype.holds(element(channel)));
                all &= valid;
                for channel in group.channels.clone() {
                    put(dtype, if valid { element(channel) } else { -3.5 }, &mut wanted);
                }
            }
            wanted_valid.push(u8::from(all));
            wanted_ages.push(until.checked_sub(1).map_or(-1, |sample| target - times[sample]));
        }
    }
    assert!(came[0] == wanted, "values");
    assert_eq!(came[1], wanted_valid);
    assert_eq!(came[2], bytemuck::cast_slice::<i64, u8>(&wanted_ages));
    entries
}

/// Appends the value of a group of channels, computed on the CPU from the same samples. Returns false if there is no valid value.
#[expect(
    clippy::too_many_arguments,
    reason = "the samples, the target and the place of its value"
)]
fn of_rule<'a>(
    rule: &Rule,
    times: &[i64],
    until: usize,
    target: i64,
    sample: impl Fn(usize) -> &'a [f32],
    channels: usize,
    dtype: Dtype,
    wanted: &mut Vec<u8>,
) -> bool {
    fn value<'a, T: Float<Real = f32>>(
        rule: &Rule,
        (times, until, target): (&[i64], usize, i64),
        sample: impl Fn(usize) -> &'a [f32],
        channels: usize,
        wanted: &mut Vec<u8>,
    ) -> bool {
        let mut out = vec![T::from_f32(0.0); channels];
        let rows = Rows {
            targets: &[target],
            out: &mut out,
            columns: channels,
            channels: 0..channels,
            fill: T::from_f32(-3.5),
        };
        let groups = std::iter::once((0..channels, *rule));
        let mut is_there = false;
        rows.write(
            times,
            groups,
            |_| until,
            sample,
            |_, written| is_there = written == Written::Value,
        );
        wanted.extend_from_slice(bytemuck::cast_slice(&out));
        is_there
    }
    let at = (times, until, target);
    match dtype {
        Dtype::Float16 => value::<f16>(rule, at, sample, channels, wanted),
        Dtype::BFloat16 => value::<bf16>(rule, at, sample, channels, wanted),
        _ => value::<f32>(rule, at, sample, channels, wanted),
    }
}

/// Checks small batches that contain a group of one mode. Each entry is a case.
fn check_mode(mode: Interpolation) {
    let Some(gpu) = gpu() else { return };
    let wanted = random_cases(40);
    let (mut seed, mut cases) = ((1 + u64::from(mode.code())) << 48, 0);
    while cases < wanted {
        cases += check(&gpu, &mut Random(seed), 2, Some(mode));
        seed += 1;
    }
    ran(&gpu, &format!("fuse: random batches, {}", mode.name()), cases);
}

mod mode {
    crate::support::for_each_mode!(check_mode);
}

#[test]
fn a_batch_is_each_of_its_windows() {
    let Some(gpu) = gpu() else { return };
    let cases = random_cases(40);
    for case in 0..cases {
        check(&gpu, &mut Random(case as u64), 4, None);
    }
    ran(&gpu, "fuse: random batches", cases);
}

#[test]
fn a_batch_of_more_modalities_than_travel_with_the_launch() {
    let Some(gpu) = gpu() else { return };
    let cases = random_cases(4).min(5000);
    for case in 0..cases {
        check(&gpu, &mut Random(1 << 40 | case as u64), 30, None);
    }
    ran(&gpu, "fuse: random batches of many modalities", cases);
}

#[test]
fn a_tensor_of_another_length_or_type_is_refused_by_name() {
    let Some(gpu) = gpu() else { return };
    let budget = Budget::new(None);
    let memory = on_device(&gpu, &budget, &[0; 256], 0);
    let slice = |dtype: Dtype, len: usize| memory.slice(0, dtype, len).unwrap();
    let modality = BatchModality {
        times: slice(Dtype::Int64, 4),
        values: slice(Dtype::Float32, 8),
        samples: 4,
        dim: 2,
        groups: vec![BatchGroup {
            channels: 0..2,
            rule: Rule::new(Interpolation::Linear, Limits::default()),
        }],
    };
    let shape = BatchShape {
        entries: 1,
        rows: 3,
        targets: slice(Dtype::Int64, 3),
    };
    let output = BatchOutput {
        values: slice(Dtype::Float16, 6),
        valid: slice(Dtype::UInt8, 3),
        age_ns: slice(Dtype::Int64, 3),
        fill_value: 0.0,
    };
    let refusal = |modality: &BatchModality, shape: &BatchShape, output: &BatchOutput| {
        let made = FuseBatch::new(&gpu, &budget, std::slice::from_ref(modality), shape, output);
        made.err().map(|error| error.to_string())
    };
    assert_eq!(refusal(&modality, &shape, &output), None);
    let values = slice(Dtype::Float32, 7);
    let short = BatchModality {
        values,
        ..modality.clone()
    };
    let refused = refusal(&short, &shape, &output);
    assert_eq!(refused.unwrap(), "`sample values` has 7 elements, not 8");
    let age_ns = slice(Dtype::Float64, 3);
    let refused = refusal(&modality, &shape, &BatchOutput { age_ns, ..output });
    assert_eq!(refused.unwrap(), "`output ages` is float64, not int64");
    ran(&gpu, "fuse: batches of other tensors", 2);
}
