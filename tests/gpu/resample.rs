//! Resampling on devices: the CPU's cases, and the CPU's bytes for random batches.

#[macro_use]
#[path = "../common/resample.rs"]
mod cases;

use crate::support::{Random, gpu, kind, modes, ran, random_cases, say};
use cases::{Row, config, message, run};
use half::{bf16, f16};
use robocache::device::gpu::{Budget, DeviceBuf, DeviceFault, Gpu, device_count};
use robocache::device::{Device, DeviceChoice, Dtype, HostBuf, HostMemory, Placement};
use robocache::ops::resample::gpu::{DeviceBatch, GpuResampler, ShardedResampler};
use robocache::ops::resample::{
    ChannelGroupConfig, CpuResampler, ResampleConfig, ResampleCounters, Resampler, Trajectories,
};
use robocache::stream::{Cells, Message};
use robocache::time::{Interpolation, QuaternionOrder};

/// Placement on the first device, or on the CPU without a device: the cases hold there, too.
fn placement() -> Placement {
    match gpu() {
        Some(_) => Placement::resolve(DeviceChoice::Gpu(kind(), None), None).unwrap(),
        None => Placement::cpu("there is no device"),
    }
}

resample_cases!(placement, random_cases(20).min(2000) as u32);

const DTYPES: [Dtype; 4] = [Dtype::Float32, Dtype::Float64, Dtype::Float16, Dtype::BFloat16];

/// Shape of a random batch of trajectories, and the defects that it is drawn with.
struct Shape {
    dtype: Dtype,
    dim: usize,
    /// Numbers of samples and of targets in each row.
    rows: Vec<(usize, usize)>,
    has_ties: bool,
    /// One sample in this many is not finite; 0: none.
    nonfinite: usize,
    /// One row in this many is malformed; 0: none.
    malformed: usize,
    /// Magnitude of the largest values.
    largest: f64,
    is_sorted: bool,
    start: i64,
}

impl Shape {
    fn random(random: &mut Random) -> Self {
        let dim = match random.below(8) {
            0 => 1,
            1 => 1 + random.below(300),
            2 => 8 * (1 + random.below(8)),
            _ => 1 + random.below(40),
        };
        let length = |random: &mut Random| match random.below(12) {
            0 => 0,
            1 => 1,
            2 => 2,
            3 if dim < 20 => random.below(3000),
            // Near the greatest number of samples that the kernel for short trajectories takes.
            4 => 100 + random.below(56),
            _ => random.below(60),
        };
        let regular = random.once_in(3).then(|| (length(random), length(random)));
        let rows = (0..random.below(6)).map(|_| regular.unwrap_or_else(|| (length(random), length(random))));
        Self {
            rows: rows.collect(),
            dtype: random.pick(&DTYPES),
            dim,
            has_ties: random.once_in(3),
            nonfinite: random.pick(&[0, 0, 3, 20, 500]),
            malformed: random.pick(&[0, 0, 2, 4]),
            largest: random.pick(&[6e4, 6e4, 3.4e38, 1.79e308]),
            is_sorted: !random.once_in(3),
            start: random.pick(&[0, -1_000_000, 1_700_000_000_000_000_000, -(i64::MAX / 4)]),
        }
    }

    fn message(&self, random: &mut Random, config: &ResampleConfig) -> Message {
        let groups = config.groups.iter().map(|group| {
            let mode = group.interpolation.unwrap_or(config.interpolation);
            (group.channels[0]..group.channels[1], mode)
        });
        let groups: Vec<_> = match config.groups.is_empty() {
            true => vec![(0..self.dim, config.interpolation)],
            false => groups.collect(),
        };
        let (mut times, mut values, mut targets) = (Vec::new(), Vec::new(), Vec::new());
        let (mut time_offsets, mut value_offsets, mut target_offsets) = (vec![0], vec![0], vec![0]);
        let mut has_good = false;
        for &(samples, row_targets) in &self.rows {
            let mut time = self.start;
            let first = times.len();
            for _ in 0..samples {
                let is_tie = self.has_ties && random.once_in(3);
                time += if is_tie { 0 } else { 1 + random.below(1_000_000) as i64 };
                times.push(time);
                let is_finite = self.nonfinite == 0 || !random.once_in(self.nonfinite);
                let bad = if is_finite { self.dim } else { random.below(self.dim) };
                values.extend((0..self.dim).map(|i| match i == bad {
                    true => random.pick(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY]),
                    false => random.signed() * random.pick(&[1.0, 100.0, 1e-3, 0.0, -0.0, 1e-40, self.largest]),
                }));
                let at = values.len() - self.dim;
                let (before, own) = values.split_at_mut(at);
                let before = before.len().checked_sub(self.dim).map(|from| &before[from..]);
                for (channels, mode) in groups.iter().filter(|(channels, _)| !channels.contains(&bad)) {
                    let before = before.map(|before| &before[channels.clone()]);
                    random.channels(*mode, before, &mut own[channels.clone()]);
                }
            }
            // One row with samples stays good: if all had the wrong length, the message would be refused.
            let is_senseless = has_good && self.malformed > 0 && random.once_in(self.malformed);
            has_good |= samples > 0;
            if is_senseless {
                match random.below(3) {
                    0 => times[first..].reverse(),
                    1 => values.push(0.0),
                    _ => values.truncate(value_offsets[value_offsets.len() - 1] as usize),
                }
            }
            let own = &times[first..];
            let span = own.last().map_or(1, |last| last - self.start) as usize + 2_000_000;
            let mut row: Vec<i64> = (0..row_targets)
                .map(|_| match own.is_empty() || !random.once_in(5) {
                    true => self
                        .start
                        .saturating_sub(1_000_000)
                        .saturating_add(random.below(span) as i64),
                    false => own[random.below(own.len())],
                })
                .collect();
            if self.is_sorted {
                row.sort_unstable();
            }
            targets.extend(row);
            time_offsets.push(times.len() as i32);
            value_offsets.push(values.len() as i32);
            target_offsets.push(targets.len() as i32);
        }
        let mut message = Message::default();
        message.rows = self.rows.len();
        message.header.dim.set(self.dim as i64);
        let mut add = |name, dtype, bytes: &[u8], len, offsets: Vec<i32>| {
            let column = message.add_column(name, dtype, Cells::Ragged(len));
            column.data.copy_from(bytes);
            column.offsets.extend(offsets);
        };
        add(
            "timestamps_ns",
            Dtype::Int64,
            bytemuck::cast_slice(&times),
            times.len(),
            time_offsets,
        );
        add(
            "values",
            self.dtype,
            &encode(self.dtype, &values),
            values.len(),
            value_offsets,
        );
        add(
            "targets_ns",
            Dtype::Int64,
            bytemuck::cast_slice(&targets),
            targets.len(),
            target_offsets,
        );
        message
    }
}

fn encode(dtype: Dtype, values: &[f64]) -> Vec<u8> {
    let values = values.iter();
    match dtype {
        Dtype::Float64 => values.flat_map(|v| v.to_ne_bytes()).collect(),
        Dtype::Float16 => values.flat_map(|&v| f16::from_f64(v).to_bits().to_ne_bytes()).collect(),
        Dtype::BFloat16 => values
            .flat_map(|&v| bf16::from_f64(v).to_bits().to_ne_bytes())
            .collect(),
        _ => values.flat_map(|&v| (v as f32).to_ne_bytes()).collect(),
    }
}

/// Draws a configuration for samples of `dim` values: one rule or several groups, one of them of the mode `with`.
fn random_config(random: &mut Random, dim: usize, with: Option<Interpolation>) -> ResampleConfig {
    let mut config = ResampleConfig {
        fill_value: random.pick(&[0.0, -7.25, f32::NAN]),
        ..ResampleConfig::default()
    };
    let limits = |random: &mut Random| [0; 3].map(|_| random.once_in(3).then(|| random.below(3_000_000) as f64 / 1e6));
    let mut groups = random.groups(dim, with);
    if let [(channels, mode), ..] = &groups[..]
        && random.once_in(2)
        && with.is_none_or(|with| with == *mode)
        && mode.width().is_none_or(|_| channels.end == dim)
    {
        config.interpolation = *mode;
        return limited(limits(random), config);
    }
    groups.truncate(MOST_GROUPS);
    groups[..].last_mut().unwrap().0.end = dim;
    for (channels, mode) in groups {
        let used = |key, ms: Option<f64>| ms.filter(|_| mode.limits().contains(&key));
        let [max_gap_ms, max_age_ms, extrapolate_ms] = limits(random);
        let has_option = mode == Interpolation::Slerp && random.once_in(2);
        config.groups.push(ChannelGroupConfig {
            channels: [channels.start, channels.end],
            interpolation: Some(mode),
            max_gap_ms: used("max_gap_ms", max_gap_ms),
            max_age_ms: used("max_age_ms", max_age_ms),
            extrapolate_ms: used("extrapolate_ms", extrapolate_ms),
            canonical: has_option.then_some(true),
            order: has_option.then(|| random.pick(&[QuaternionOrder::Xyzw, QuaternionOrder::Wxyz])),
        });
    }
    config
}

/// Greatest number of channel groups in a sample that a device takes.
const MOST_GROUPS: usize = 32;

/// Draws a configuration, and a batch for it.
fn random_case(random: &mut Random) -> (ResampleConfig, Shape) {
    let shape = Shape::random(random);
    (random_config(random, shape.dim, None), shape)
}

/// Sets the limits that the interpolation uses: `max_gap_ms`, `max_age_ms`, `extrapolate_ms`.
fn limited([max_gap_ms, max_age_ms, extrapolate_ms]: [Option<f64>; 3], config: ResampleConfig) -> ResampleConfig {
    let used = |key, ms: Option<f64>| ms.filter(|_| config.interpolation.limits().contains(&key));
    ResampleConfig {
        max_gap_ms: used("max_gap_ms", max_gap_ms),
        max_age_ms: used("max_age_ms", max_age_ms),
        extrapolate_ms: used("extrapolate_ms", extrapolate_ms),
        ..config
    }
}

/// Results of one batch from the CPU or a device: bytes of the values, masks, and counters.
#[derive(PartialEq, Debug)]
struct Answer {
    values: Vec<u8>,
    valid: Vec<u8>,
    counters: ResampleCounters,
}

fn answer(batch: &Trajectories<'_>, run: impl FnOnce(&mut [u8], &mut [u8]) -> ResampleCounters) -> Answer {
    answer_in(&HostMemory::pageable(), batch, run)
}

fn answer_in(
    memory: &HostMemory,
    batch: &Trajectories<'_>,
    run: impl FnOnce(&mut [u8], &mut [u8]) -> ResampleCounters,
) -> Answer {
    let mut values = HostBuf::new(memory);
    values.resize(batch.output_bytes());
    values.bytes_mut().fill(0x5a);
    let mut valid = vec![0x5a; batch.targets()];
    let counters = run(values.bytes_mut(), &mut valid);
    Answer {
        values: values.bytes().to_vec(),
        valid,
        counters,
    }
}

/// Runs the operation, which must compute on `device`, and returns its answer.
fn operation(resampler: &mut Resampler, batch: &Trajectories<'_>, device: Device) -> Answer {
    let (answer, counters, on) = run(resampler, batch);
    assert_eq!(on, device);
    let bytes = |name| answer.column(name).unwrap().data.bytes().to_vec();
    Answer {
        values: bytes("values"),
        valid: bytes("valid"),
        counters,
    }
}

fn cpu(config: &ResampleConfig, batch: &Trajectories<'_>) -> Answer {
    answer(batch, |values, valid| {
        CpuResampler::new(config).unwrap().run(batch, values, valid)
    })
}

#[track_caller]
fn assert_same(came: &Answer, expected: &Answer, dim: usize, seed: u64) {
    assert_eq!(came.counters, expected.counters, "seed {seed}");
    let valid = came.valid.iter().zip(&expected.valid).position(|(a, b)| a != b);
    assert_eq!(valid, None, "seed {seed}: valid of that target");
    let byte = came.values.iter().zip(&expected.values).position(|(a, b)| a != b);
    let row = came.values.len() / came.valid.len().max(1);
    let place = byte.map(|at| (at / row.max(1), at % row.max(1) / (row / dim).max(1)));
    assert_eq!(place, None, "seed {seed}: that target and channel");
}

#[test]
fn random_batches_have_the_bytes_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let cases = random_cases(150);
    for seed in 0..cases as u64 {
        let random = &mut Random(seed);
        let (config, shape) = random_case(random);
        let message = shape.message(random, &config);
        let batch = Trajectories::from_message(&message).unwrap();
        let mut resampler = Resampler::new(&config, &placement()).unwrap();
        let expected = cpu(&config, &batch);
        for _ in 0..2 {
            let came = operation(&mut resampler, &batch, gpu.device());
            assert_same(&came, &expected, shape.dim, seed);
        }
    }
    ran(&gpu, "resample, random batches", cases);
}

/// Each type and vector width has a kernel for short trajectories, and one for long ones.
#[test]
fn batches_of_every_type_and_width_have_the_bytes_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let mut cases = 0;
    for dtype in DTYPES {
        for dim in [1, 2, 4, 8] {
            for rows in [vec![(50, 16); 3], vec![(50, 16), (1000, 40)]] {
                let random = &mut Random(dim as u64);
                let shape = Shape {
                    rows,
                    dtype,
                    dim,
                    has_ties: false,
                    malformed: 0,
                    nonfinite: 20,
                    largest: 6e4,
                    ..Shape::random(random)
                };
                let config = limited([None; 3], config(Interpolation::Linear));
                let message = shape.message(random, &config);
                let batch = Trajectories::from_message(&message).unwrap();
                let mut resampler = GpuResampler::new(&config, &gpu, None).unwrap();
                let came = answer(&batch, |values, valid| resampler.run(&batch, values, valid).unwrap());
                assert_same(&came, &cpu(&config, &batch), dim, dim as u64);
                cases += 1;
            }
        }
    }
    ran(&gpu, "resample, every type and width", cases);
}

/// The CPU computes what no kernel does, even if the device is asked for by name.
#[test]
fn what_is_not_on_cuda_is_done_on_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let wide = Row {
        values: vec![1.0; 3400],
        ..row(100)
    };
    let message = message::<f32>(&[wide], 34);
    let each_channel: Vec<String> = (0..34).map(|i| format!("{{ channels: [{i}, {}] }}", i + 1)).collect();
    for section in [
        "groups: [{ channels: [0, 31] }, { channels: [31, 34], interpolation: rotvec }]".to_owned(),
        format!("groups: [{}]", each_channel.join(", ")),
    ] {
        let config: ResampleConfig = serde_yaml::from_str(&section).unwrap();
        assert!(GpuResampler::new(&config, &gpu, None).is_err());
        let mut resampler = Resampler::new(&config, &placement()).unwrap();
        let batch = resampler.read(&message).unwrap();
        let came = operation(&mut resampler, &batch, Device::Cpu);
        assert_same(&came, &cpu(&config, &batch), 34, 0);
        assert!(resampler.take_lost().is_none());
    }
    ran(&gpu, "resample, what is not on GPUs", 2);
}

/// Checks small batches that contain a group of one mode. Each trajectory is a case.
fn check_mode(mode: Interpolation) {
    let Some(gpu) = gpu() else { return };
    let wanted = random_cases(40);
    let (mut seed, mut cases) = ((1 + u64::from(mode.code())) << 48, 0);
    while cases < wanted {
        let random = &mut Random(seed);
        let rows = 1 + random.below(8);
        let mut length = |most: usize| match random.below(3) {
            0 => 1 + random.below(6),
            _ => 1 + random.below(most),
        };
        let regular = (length(40), length(70));
        let lengths: Vec<_> = (0..rows).map(|_| (length(40), length(70))).collect();
        let shape = Shape {
            rows: if random.once_in(2) {
                vec![regular; rows]
            } else {
                lengths
            },
            dim: (1 + random.below(20)).max(mode.width().unwrap_or(1)),
            malformed: 0,
            nonfinite: random.pick(&[0, 0, 3, 20]),
            ..Shape::random(random)
        };
        let config = random_config(random, shape.dim, Some(mode));
        let message = shape.message(random, &config);
        let batch = Trajectories::from_message(&message).unwrap();
        let mut resampler = GpuResampler::new(&config, &gpu, None).unwrap();
        let came = answer(&batch, |values, valid| resampler.run(&batch, values, valid).unwrap());
        assert_same(&came, &cpu(&config, &batch), shape.dim, seed);
        cases += rows;
        seed += 1;
    }
    ran(&gpu, &format!("resample, random batches, {}", mode.name()), cases);
}

mod mode {
    crate::support::for_each_mode!(check_mode);
}

/// Makes a trajectory of `samples` samples of one value, and a target at each.
fn row(samples: i64) -> Row {
    Row {
        times: (0..samples).collect(),
        values: vec![1.0; samples as usize],
        targets: (0..samples).collect(),
    }
}

/// The CPU computes a batch that does not fit the device, and for a while all batches of its size.
#[test]
fn a_device_without_memory_leaves_a_batch_to_the_cpu() {
    let Some(gpu) = gpu() else { return };
    // The times of the first message alone take 8000 bytes.
    let messages = [1000, 10].map(|samples| message::<f32>(&[row(samples)], 1));
    let config = ResampleConfig::default();
    let mut resampler = Resampler::new(&config, &placement().with_max_bytes(Some(4096))).unwrap();
    let on_device = gpu.device();
    for (message, device) in [
        (&messages[0], Device::Cpu),
        (&messages[1], on_device),
        (&messages[0], Device::Cpu),
    ] {
        let batch = resampler.read(message).unwrap();
        let came = operation(&mut resampler, &batch, device);
        assert_same(&came, &cpu(&config, &batch), 1, 0);
        assert!(resampler.take_lost().is_none());
        assert!(resampler.device_bytes() <= 4096);
    }
    ran(&gpu, "resample, batches that do not fit", 3);
}

#[test]
fn a_batch_fits_its_memory_or_is_refused() {
    let Some(gpu) = gpu() else { return };
    let cases = random_cases(100).max(20);
    let mut refused = 0;
    for seed in 0..cases as u64 {
        let random = &mut Random(seed + 1_000_000_000);
        let (config, shape) = random_case(random);
        let message = shape.message(random, &config);
        let batch = Trajectories::from_message(&message).unwrap();
        let limit = 2048 + random.below(2 * message.bytes() + 4096);
        let mut resampler = GpuResampler::new(&config, &gpu, Some(limit)).unwrap();
        let mut result = Ok(());
        let came = answer(&batch, |values, valid| {
            let counters = resampler.run(&batch, values, valid);
            result = counters.as_ref().map(|_| ()).map_err(Clone::clone);
            counters.unwrap_or_default()
        });
        assert!(resampler.bytes_in_use() <= limit);
        match result {
            Ok(()) => assert_same(&came, &cpu(&config, &batch), shape.dim, seed),
            Err(error) => {
                assert!(matches!(error, DeviceFault::OutOfBudget { .. }), "seed {seed}: {error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0 && refused < cases, "{refused} of {cases} did not fit");
    ran(&gpu, "resample, limited memory", cases);
}

#[test]
fn large_batches_come_from_any_memory() {
    let Some(gpu) = gpu() else { return };
    let ragged = (0..40).map(|i| (700 + 11 * i, 400 - 9 * i));
    let one_large = (0..3).map(|i| if i == 1 { (40_000, 300) } else { (500, 300) });
    for rows in [ragged.collect::<Vec<_>>(), vec![(800, 100); 40], one_large.collect()] {
        let shape = Shape {
            dtype: Dtype::Float32,
            dim: 256,
            rows,
            has_ties: false,
            nonfinite: 900,
            malformed: 0,
            largest: 6e4,
            is_sorted: true,
            start: 0,
        };
        let config = ResampleConfig::default();
        let made = shape.message(&mut Random(5), &config);
        let expected = cpu(&config, &Trajectories::from_message(&made).unwrap());
        let [pageable, page_locked] = [HostMemory::pageable(), HostMemory::page_locked(&gpu)];
        for (from, to) in [
            (&pageable, &pageable),
            (&page_locked, &pageable),
            (&page_locked, &page_locked),
        ] {
            let mut message = Message::new(from);
            message.copy_from(&made);
            let batch = Trajectories::from_message(&message).unwrap();
            let mut resampler = GpuResampler::new(&config, &gpu, None).unwrap();
            for _ in 0..2 {
                let came = answer_in(to, &batch, |values, valid| {
                    resampler.run(&batch, values, valid).unwrap()
                });
                assert_same(&came, &expected, shape.dim, 0);
            }
        }
    }
    ran(&gpu, "resample, large batches", 18);
}

#[test]
fn several_devices_have_the_bytes_of_one() {
    let Some(first) = gpu() else { return };
    // Takes three devices or more, repeated if there are fewer: shards on the same device run side by side.
    let count = device_count(kind()).unwrap();
    let gpus: Vec<Gpu> = (0..count.max(3))
        .map(|i| Gpu::open(kind(), i % count).unwrap())
        .collect();
    let cases = random_cases(40).min(20_000);
    for seed in 0..cases as u64 {
        let random = &mut Random(seed + 2_000_000_000);
        let (config, shape) = random_case(random);
        let message = shape.message(random, &config);
        let batch = Trajectories::from_message(&message).unwrap();
        let gpus = &gpus[..1 + random.below(gpus.len())];
        let mut resampler = ShardedResampler::new(&config, gpus, None).unwrap();
        let came = answer(&batch, |values, valid| resampler.run(&batch, values, valid).unwrap());
        assert_same(&came, &cpu(&config, &batch), shape.dim, seed);
    }
    ran(&first, &format!("resample, shards on {count} devices"), cases);
}

/// The addresses are aligned for the elements and no more.
#[test]
fn batches_on_the_device_may_lie_anywhere() {
    let Some(gpu) = gpu() else { return };
    let cases = random_cases(60).min(20_000);
    for seed in 0..cases as u64 {
        let random = &mut Random(seed + 3_000_000_000);
        let (config, mut shape) = random_case(random);
        let alike = shape.rows.first().copied().unwrap_or((9, 9));
        shape.malformed = 0;
        shape.rows.iter_mut().for_each(|row| *row = alike);
        let message = shape.message(random, &config);
        let batch = Trajectories::from_message(&message).unwrap();
        let expected = cpu(&config, &batch);

        let budget = Budget::new(None);
        let put = |bytes: &[u8], shift: usize| {
            let mut buffer = DeviceBuf::new(&gpu, &budget);
            buffer.reserve(shift + bytes.len().max(1)).unwrap();
            // SAFETY: the memory is not page-locked.
            unsafe { buffer.upload(shift, bytes) }.unwrap();
            buffer
        };
        let column = |name: &str| message.column(name).unwrap().data.bytes();
        let element = shape.dtype.size();
        let shift = |random: &mut Random| random.below(16 / element) * element;
        let times_shift = 8 * random.below(2);
        let times = put(column("timestamps_ns"), times_shift);
        let values_shift = shift(random);
        let values = put(column("values"), values_shift);
        let targets_shift = 8 * random.below(2);
        let targets = put(column("targets_ns"), targets_shift);
        let out_shift = shift(random);
        let out = put(&vec![0x5a; batch.output_bytes()], out_shift);
        let valid_shift = random.below(16);
        let valid = put(&vec![0x5a; batch.targets()], valid_shift);

        let (sample_count, target_count) = (shape.rows.len() * alike.0, shape.rows.len() * alike.1);
        let on_device = DeviceBatch {
            rows: shape.rows.len(),
            samples: alike.0,
            targets: alike.1,
            dim: shape.dim,
            times: times.slice(times_shift, Dtype::Int64, sample_count).unwrap(),
            values: values
                .slice(values_shift, shape.dtype, sample_count * shape.dim)
                .unwrap(),
            targets_ns: targets.slice(targets_shift, Dtype::Int64, target_count).unwrap(),
            out: out.slice(out_shift, shape.dtype, target_count * shape.dim).unwrap(),
            valid: valid.slice(valid_shift, Dtype::UInt8, target_count).unwrap(),
        };
        let resampler = GpuResampler::new(&config, &gpu, None).unwrap();
        // SAFETY: the buffers live until after the stream was synchronized.
        unsafe { resampler.launch(&on_device) }.unwrap();
        let mut came = answer(&batch, |_, _| expected.counters);
        // SAFETY: as above.
        unsafe { out.download(out_shift, &mut came.values) }.unwrap();
        // SAFETY: as above.
        unsafe { valid.download(valid_shift, &mut came.valid) }.unwrap();
        gpu.synchronize().unwrap();
        assert_same(&came, &expected, shape.dim, seed);
    }
    ran(&gpu, "resample, batches on the device", cases);
}

#[test]
fn a_batch_on_the_device_whose_slices_do_not_fit_is_refused() {
    let Some(gpu) = gpu() else { return };
    let mut buffer = DeviceBuf::new(&gpu, &Budget::new(None));
    buffer.reserve(4096).unwrap();
    let slice = |dtype, len| buffer.slice(0, dtype, len).unwrap();
    let good = DeviceBatch {
        rows: 2,
        samples: 3,
        targets: 4,
        dim: 5,
        times: slice(Dtype::Int64, 6),
        values: slice(Dtype::BFloat16, 30),
        targets_ns: slice(Dtype::Int64, 8),
        out: slice(Dtype::BFloat16, 40),
        valid: slice(Dtype::UInt8, 8),
    };
    let resampler = GpuResampler::new(&ResampleConfig::default(), &gpu, None).unwrap();
    let refused = |batch: DeviceBatch| {
        // SAFETY: it is refused before anything is launched.
        let DeviceFault::Slice(error) = unsafe { resampler.launch(&batch) }.unwrap_err() else {
            panic!("another error")
        };
        error.to_string()
    };
    let cases = [
        (DeviceBatch { samples: 4, ..good }, "`times` has 6 elements, not 8"),
        (DeviceBatch { dim: 6, ..good }, "`values` has 30 elements, not 36"),
        (DeviceBatch { targets: 3, ..good }, "`targets_ns` has 8 elements, not 6"),
        (
            DeviceBatch {
                out: slice(Dtype::Float16, 40),
                ..good
            },
            "`out` is float16, not bfloat16",
        ),
        (
            DeviceBatch {
                valid: slice(Dtype::Int8, 8),
                ..good
            },
            "`valid` is int8, not uint8",
        ),
        (
            DeviceBatch {
                values: slice(Dtype::Int32, 30),
                ..good
            },
            "`values` is int32, not bfloat16",
        ),
        (
            DeviceBatch {
                times: slice(Dtype::UInt64, 6),
                ..good
            },
            "`times` is uint64, not int64",
        ),
    ];
    for (batch, expected) in &cases {
        assert_eq!(refused(*batch), *expected);
    }
    ran(&gpu, "resample, slices that do not fit", cases.len());
}

/// Reads the numbers of a table of text, row by row. Rows with anything but numbers are left out.
fn table(path: &std::path::Path) -> Vec<Vec<f64>> {
    let text = std::fs::read_to_string(path).unwrap();
    let row = |line: &str| {
        line.split(',')
            .map(|cell| cell.trim().parse().ok())
            .collect::<Option<Vec<f64>>>()
    };
    text.lines().filter_map(row).collect()
}

/// Recordings of arms and IMUs are cut into trajectories of different lengths, with the targets of a 50 Hz policy.
#[test]
fn recordings_have_the_bytes_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["../shared/data", "../../shared/data"].map(|folder| root.join(folder));
    let Some(folder) = folders.iter().find(|folder| folder.is_dir()) else {
        return say("gpu: skipped the recordings: ../shared/data is absent");
    };
    let mut cases = 0;
    for (file, unit_ns) in [
        ("arm_wrench_vision_screwdriving/sensor_data.csv", 1e6),
        ("broad_imu_mocap_40s/broad_07_fast_rotation_B_40s.csv", 1e9),
        ("imu_xio_fusion/sensor_data.csv", 1e9),
    ] {
        let samples = table(&folder.join(file));
        let dim = samples[0].len() - 1;
        let mut rows = Vec::new();
        for (i, part) in samples.chunks(samples.len() / 9).enumerate() {
            let part = &part[..part.len() - part.len().min(7 * i)];
            let times: Vec<i64> = part.iter().map(|row| (row[0] * unit_ns) as i64).collect();
            let (Some(first), Some(last)) = (times.first(), times.last()) else {
                continue;
            };
            let targets = (first / 20_000_000 - 2..last / 20_000_000 + 3)
                .map(|k| k * 20_000_000)
                .collect();
            let values = part.iter().flat_map(|row| row[1..].iter().copied()).collect();
            rows.push(Row { times, values, targets });
        }
        let messages = [
            message::<f32>(&rows, dim),
            message::<f64>(&rows, dim),
            message::<f16>(&rows, dim),
            message::<bf16>(&rows, dim),
        ];
        for (message, mode) in messages
            .iter()
            .flat_map(|message| modes().into_iter().map(move |mode| (message, mode)))
        {
            if mode.is_rotation() {
                continue;
            }
            let config = limited([30.0, 12.0, 25.0].map(Some), config(mode));
            let batch = Trajectories::from_message(message).unwrap();
            let expected = cpu(&config, &batch);
            assert!(expected.counters.invalid < expected.counters.targets);
            let mut resampler = GpuResampler::new(&config, &gpu, None).unwrap();
            let came = answer(&batch, |values, valid| resampler.run(&batch, values, valid).unwrap());
            assert_same(&came, &expected, dim, 0);
            cases += 1;
        }
    }
    ran(&gpu, "resample, recordings", cases);
}
