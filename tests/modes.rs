//! Every interpolation mode, compared with SciPy's values, with the other operations, and with values worked out by hand.

use crate::common::random::Random;
use crate::resample::cases::{self, Kind, Row, message, run};
use robocache::device::{Placement, Values};
use robocache::ops::align::{AlignConfig, Aligner, PushError, SampleError};
use robocache::ops::resample::{ResampleConfig, Resampler};
use robocache::time::Interpolation;
use std::collections::VecDeque;
use std::fmt::Write;

const MS: i64 = 1_000_000;

fn placement() -> Placement {
    Placement::cpu("a test")
}

/// Resamples one trajectory. Returns the values, the validity flags and the number of dropped samples.
fn resample<T: Kind>(config: &str, dim: usize, row: &Row) -> (Vec<T>, Vec<u8>, u64) {
    let config: ResampleConfig = serde_yaml::from_str(config).unwrap();
    let mut resampler = Resampler::new(&config, &placement()).unwrap();
    let message = message::<T>(std::slice::from_ref(row), dim);
    let batch = resampler.read(&message).unwrap();
    let (answer, counters, _) = run(&mut resampler, &batch);
    let column = |name| &answer.column(name).unwrap().data;
    (
        column("values").as_slice().to_vec(),
        column("valid").as_slice().to_vec(),
        counters.dropped_nonfinite,
    )
}

/// A case of vectors.txt: a trajectory, and SciPy's value at each target.
struct Case {
    mode: String,
    dim: usize,
    gap: i64,
    row: Row,
    expected: Vec<Option<Vec<f64>>>,
}

fn vectors() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in include_str!("modes/vectors.txt").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let numbers = || words[2..].iter().map(|word| word.parse::<f64>().unwrap());
        if words[0] == "case" {
            cases.push(Case {
                mode: words[1].to_owned(),
                dim: words[2].parse().unwrap(),
                gap: words[3].parse().unwrap(),
                row: cases::row(&[], &[], &[]),
                expected: Vec::new(),
            });
            continue;
        }
        let case = cases.last_mut().unwrap();
        let time = words[1].parse().unwrap();
        if words[0] == "sample" {
            case.row.times.push(time);
            case.row.values.extend(numbers());
        } else {
            case.row.targets.push(time);
            case.expected.push((words.len() > 2).then(|| numbers().collect()));
        }
    }
    cases
}

/// Returns the distance of a value from SciPy's: the angle between two quaternions, in rad, else the largest difference
/// of a channel.
fn distance(mode: &str, came: &[f64], expected: &[f64]) -> f64 {
    let differences = came.iter().zip(expected).map(|(a, b)| {
        let d = (a - b).abs();
        if mode == "angle" {
            d.min((d - std::f64::consts::TAU).abs())
        } else {
            d
        }
    });
    match mode {
        "slerp" => 2.0 * (differences.map(|d| d * d).sum::<f64>().sqrt() / 2.0).asin(),
        _ => differences.fold(0.0, f64::max),
    }
}

/// Returns the largest distance from SciPy's values in all cases of a mode, for values of type `T`.
fn farthest<T: Kind + Into<f64>>(mode: &str) -> f64 {
    let mut farthest = 0.0f64;
    let mut compared = 0;
    for case in vectors().iter().filter(|case| case.mode == mode) {
        let config = format!("{{ interpolation: {mode}, max_gap_ms: {} }}", case.gap / MS);
        let (values, valid, dropped) = resample::<T>(&config, case.dim, &case.row);
        assert_eq!(dropped, 0);
        for ((came, &valid), expected) in values.chunks(case.dim).zip(&valid).zip(&case.expected) {
            assert_eq!(valid, u8::from(expected.is_some()), "{mode}");
            let Some(expected) = expected else { continue };
            let came: Vec<f64> = came.iter().map(|&value| value.into()).collect();
            farthest = farthest.max(distance(mode, &came, expected));
            compared += 1;
        }
    }
    assert!(compared > 50, "{mode}: {compared} values");
    println!("{mode}: {compared} values, at most {farthest:e} from SciPy's");
    farthest
}

#[test]
fn every_mode_gives_the_values_of_scipy() {
    // Bounds for float32, then for float64. Values other than rotations span 20. The polynomial for slerp is accurate to 2e-7.
    let bounds = |mode| match mode {
        Interpolation::Angle => (2e-6, 1e-11),
        Interpolation::Slerp => (3e-7, 2e-7),
        mode if mode.is_rotation() => (1e-6, 5e-7),
        _ => (1e-5, 1e-10),
    };
    for mode in Interpolation::ALL.into_iter().filter(|mode| !is_plain(*mode)) {
        let came = (farthest::<f32>(mode.name()), farthest::<f64>(mode.name()));
        let (of_f32, of_f64) = bounds(mode);
        assert!(came.0 <= of_f32 && came.1 <= of_f64, "{mode:?}: {came:?}");
    }
}

/// True for `previous`, `nearest` and `linear`, the plain modes, which other tests cover on all backends.
fn is_plain(mode: Interpolation) -> bool {
    matches!(
        mode,
        Interpolation::Previous | Interpolation::Nearest | Interpolation::Linear
    )
}

/// A stream whose channel groups are random: its configuration without the name, and its samples in order of time.
struct RandomStream {
    dim: usize,
    groups: String,
    rules: String,
    reorder: i64,
    samples: Vec<(i64, Vec<f32>)>,
}

fn any_stream(r: &mut Random) -> RandomStream {
    let (mut dim, mut groups) = (0, String::from("groups: ["));
    // Often there is one group, so that each mode is also the only one that a target waits for.
    for _ in 0..r.pick(&[1, 1, 2, 4]) {
        let mode = r.pick(&Interpolation::ALL);
        let (mode, width) = (mode.name(), mode.width().unwrap_or(r.pick(&[1, 2, 3])));
        let limit = r.pick(&[15, 30, 60]);
        write!(groups, "{{ channels: [{dim}, {}], interpolation: {mode}", dim + width).unwrap();
        let keys: &[&str] = match mode {
            "previous" | "nearest" => &["max_age_ms"],
            _ => &["max_gap_ms", "extrapolate_ms"],
        };
        for key in keys.iter().filter(|_| r.chance(0.5)) {
            write!(groups, ", {key}: {limit}").unwrap();
        }
        if mode == "slerp" && r.chance(0.5) {
            groups += ", canonical: true, order: wxyz";
        }
        groups += " }, ";
        dim += width;
    }
    groups += "]";
    let (period, reorder) = (r.pick(&[7, 20, 33]), r.pick(&[0, 0, 15, 50]));
    let min_period = r.pick(&[0, 1, period * 3 / 4, period]);
    let mut time = r.below(50 * MS as usize) as i64;
    let samples = (0..1 + r.below(25)).map(|_| {
        let sometimes = if r.chance(0.1) { 90 * MS } else { 0 };
        time += min_period.max(1) * MS + r.below((period * MS / 2) as usize) as i64 + sometimes;
        (
            time,
            (0..dim).map(|_| (r.below(4000) as f32 - 1999.5) / 500.0).collect(),
        )
    });
    let samples = samples.collect();
    let rules = match min_period {
        0 => format!("reorder_ms: {reorder}"),
        ms => format!("reorder_ms: {reorder}, min_period_ms: {ms}"),
    };
    RandomStream {
        dim,
        groups,
        rules,
        reorder: reorder * MS,
        samples,
    }
}

/// Target time, ns, validity of each row and modality, and bits of the values row by row, of an observation.
type Observation = (i64, Vec<i64>, Vec<u32>);

/// Fuses the streams in a random order of arrival, each sample less than `reorder_ms` late. Checks that align gives
/// the same values.
fn fused(config: &AlignConfig, streams: &[RandomStream], r: &mut Random) -> Vec<Observation> {
    let mut queues = Vec::new();
    for (i, stream) in streams.iter().enumerate() {
        let mut order: Vec<(i64, &(i64, Vec<f32>))> = stream
            .samples
            .iter()
            .map(|sample| (sample.0 + r.below(stream.reorder.max(1) as usize) as i64, sample))
            .collect();
        order.sort_by_key(|(arrival, sample)| (*arrival, sample.0));
        let samples: VecDeque<&(i64, Vec<f32>)> = order.into_iter().map(|(_, sample)| sample).collect();
        queues.push((i, samples));
    }
    let mut whole = Aligner::fused(config, &placement()).unwrap();
    let mut split = Aligner::aligned(config, &placement()).unwrap();
    let mut observations = Vec::new();
    while !queues.is_empty() {
        let turn = r.below(queues.len());
        let modality = queues[turn].0;
        for aligner in [&mut whole, &mut split] {
            match queues[turn].1.front() {
                Some((time, values)) => {
                    let pushed = aligner.push(modality, *time, Values::from_f32(values)).unwrap();
                    assert!(!pushed.late, "modality {modality} at {time}");
                }
                None => aligner.close(modality),
            }
        }
        if queues[turn].1.pop_front().is_none() {
            queues.remove(turn);
        }
        while let Some(target) = whole.due() {
            let mut window = whole.window(target);
            let mut values = vec![0f32; window.output(0).layout().rows];
            window.write(0, &mut values);
            let bits = values.iter().map(|value| value.to_bits()).collect();
            observations.push((target.time_ns, window.masks().valid.clone(), bits));
            aligned_is_fused(&mut split, streams, observations.last().unwrap());
        }
        assert_eq!(split.due(), None);
    }
    observations
}

/// Checks that align gives the same values at its next target as fuse in this observation.
fn aligned_is_fused(split: &mut Aligner, streams: &[RandomStream], (time, _, bits): &Observation) {
    let target = split.due().unwrap();
    assert_eq!(target.time_ns, *time);
    let columns: usize = streams.iter().map(|stream| stream.dim).sum();
    let mut window = split.window(target);
    let mut from = 0;
    for (output, stream) in streams.iter().enumerate() {
        let mut values = vec![0f32; window.output(output).layout().rows];
        window.write(output, &mut values);
        for (row, values) in values.chunks(stream.dim).enumerate() {
            let of_fused = &bits[row * columns + from..][..stream.dim];
            assert!(values.iter().map(|value| value.to_bits()).eq(of_fused.iter().copied()));
        }
        from += stream.dim;
    }
}

/// Each value equals the value that resample computes from the complete stream, in any order of arrival. So a replay gives the
/// values of the live run.
#[test]
fn every_value_of_a_stream_is_that_of_the_whole_of_it() {
    let mut compared = 0;
    for seed in 0..1500 {
        let r = &mut Random(seed);
        let streams: Vec<RandomStream> = (0..1 + r.below(3)).map(|_| any_stream(r)).collect();
        let mut yaml = format!(
            "{{ rate_hz: 100, window: {}, stride: {}, emit_every: {}, fill_value: -7, modalities: [",
            1 + r.below(4),
            1 + r.below(3),
            1 + r.below(3)
        );
        for (i, RandomStream { dim, groups, rules, .. }) in streams.iter().enumerate() {
            write!(yaml, "{{ input: s{i}, dim: {dim}, {rules}, {groups} }}, ").unwrap();
        }
        yaml += "] }";
        let config: AlignConfig = serde_yaml::from_str(&yaml).unwrap();
        let (once, again) = (fused(&config, &streams, r), fused(&config, &streams, r));
        let newest = streams
            .iter()
            .flat_map(|stream| &stream.samples)
            .map(|sample| sample.0)
            .max();
        // Past the newest sample, `min_period_ms` makes targets due, unless the stream was closed before.
        let until_newest = |seen: &[Observation]| -> Vec<Observation> {
            seen.iter().filter(|seen| Some(seen.0) <= newest).cloned().collect()
        };
        assert_eq!(until_newest(&once), until_newest(&again), "seed {seed}: {yaml}");
        let columns: usize = streams.iter().map(|stream| stream.dim).sum();
        let mut from = 0;
        for (m, stream) in streams.iter().enumerate() {
            let rows = || 0..config.window as i64;
            let row_times = |time: i64| {
                rows()
                    .rev()
                    .map(move |back| time - back * config.stride as i64 * 10 * MS)
            };
            let whole = Row {
                times: stream.samples.iter().map(|sample| sample.0).collect(),
                values: stream
                    .samples
                    .iter()
                    .flat_map(|sample| &sample.1)
                    .map(|&value| value.into())
                    .collect(),
                targets: once.iter().flat_map(|seen| row_times(seen.0)).collect(),
            };
            let section = format!("{{ fill_value: -7, {} }}", stream.groups);
            let (values, valid, _) = resample::<f32>(&section, stream.dim, &whole);
            for (i, (values, valid)) in values.chunks(stream.dim).zip(valid).enumerate() {
                let (seen, row) = (&once[i / config.window], i % config.window);
                let came = &seen.2[row * columns + from..][..stream.dim];
                let of = format!("seed {seed}, modality {m}, row {row} of {}: {yaml}", seen.0);
                assert!(
                    values.iter().map(|value| value.to_bits()).eq(came.iter().copied()),
                    "{of}"
                );
                assert_eq!(seen.1[row * streams.len() + m], i64::from(valid), "{of}");
                compared += 1;
            }
            from += stream.dim;
        }
    }
    println!("{compared} values");
    assert!(compared > 100_000);
}

fn one(config: &str, dim: usize, times: &[i64], values: &[f64], target: i64) -> Vec<f32> {
    let times: Vec<i64> = times.iter().map(|ms| ms * MS).collect();
    let (values, valid, _) = resample::<f32>(config, dim, &cases::row(&times, values, &[target * MS]));
    assert_eq!(valid, [1]);
    values
}

#[test]
fn an_angle_takes_the_shorter_way_and_is_wrapped_where_it_is_a_sample() {
    let pi = std::f32::consts::PI;
    let near = |came: &[f32], expected: f32| assert!((came[0] - expected).abs() < 1e-6, "{came:?}");
    let angle = "interpolation: angle";
    near(&one(angle, 1, &[0, 10], &[3.0, -3.0], 5), pi);
    near(&one(angle, 1, &[0, 10], &[6.9, 7.1], 0), 6.9 - 2.0 * pi);
    near(
        &one(angle, 1, &[0, 10], &[0.5, 0.5 + 4.0 * std::f64::consts::PI], 5),
        0.5,
    );
    // A half turn goes the way of its sign, and -pi is wrapped to pi.
    near(&one(angle, 1, &[0, 10], &[0.0, f64::from(pi)], 5), pi / 2.0);
    near(&one(angle, 1, &[0, 10], &[0.0, f64::from(-pi)], 5), -pi / 2.0);
    assert_eq!(one(angle, 1, &[0, 10], &[f64::from(-pi), 0.0], 0), [pi]);
}

#[test]
fn a_quaternion_is_in_the_hemisphere_of_the_sample_before_or_canonical() {
    let (times, values) = ([0, 10], [0.0, 0.0, 0.0, -2.0, 0.0, 0.0, 3.0, 3.0]);
    let half = (std::f32::consts::FRAC_PI_8).sin_cos();
    let near = |came: Vec<f32>, expected: [f32; 4]| {
        assert!(came.iter().zip(expected).all(|(a, b)| (a - b).abs() < 2e-7), "{came:?}");
    };
    near(
        one("interpolation: slerp", 4, &times, &values, 0),
        [0.0, 0.0, 0.0, -1.0],
    );
    near(
        one("interpolation: slerp", 4, &times, &values, 5),
        [0.0, 0.0, -half.0, -half.1],
    );
    let canonical = "{ interpolation: slerp, canonical: true }";
    near(one(canonical, 4, &times, &values, 0), [0.0, 0.0, 0.0, 1.0]);
    near(one(canonical, 4, &times, &values, 5), [0.0, 0.0, half.0, half.1]);
    let first = "{ interpolation: slerp, canonical: true, order: wxyz }";
    near(
        one(first, 4, &times, &[-2.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 3.0], 5),
        [half.1, 0.0, 0.0, half.0],
    );
}

#[test]
fn a_sample_that_is_no_rotation_is_dropped_and_counted() {
    for (mode, bad) in [
        ("slerp", vec![0.0, 0.0, 0.0, 9e-7]),
        ("slerp", vec![0.0, 0.0, 0.0, 1e19]),
        ("rot6d", vec![1.0, 0.0, 0.0, 2.0, 0.0, 0.0]),
        ("rot6d_columns", vec![0.0, 0.0, 0.0, 0.0, 1.0, 0.0]),
        ("rotvec", vec![1e19, 0.0, 0.0]),
    ] {
        let dim = bad.len();
        let mut good = vec![0.0; dim];
        (good[0], good[dim - 2]) = (1.0, 1.0);
        let row = Row {
            times: vec![0, 5, 10],
            values: [good.clone(), bad.clone(), good.clone()].concat(),
            targets: vec![5],
        };
        let (_, valid, dropped) = resample::<f32>(&format!("interpolation: {mode}"), dim, &row);
        assert_eq!((valid, dropped), (vec![1], 1), "{mode}");
        let text = format!("{{ rate_hz: 100, modalities: [{{ input: a, dim: {dim}, interpolation: {mode} }}] }}");
        let mut aligner = Aligner::fused(&serde_yaml::from_str(&text).unwrap(), &placement()).unwrap();
        let values = |values: &[f64]| values.iter().map(|&value| value as f32).collect::<Vec<f32>>();
        let refused = aligner.push(0, 0, Values::from_f32(&values(&bad))).unwrap_err();
        assert!(
            matches!(refused, PushError::Sample(SampleError::NoRotation { .. })),
            "{mode}: {refused}"
        );
        aligner.push(0, 0, Values::from_f32(&values(&good))).unwrap();
    }
}

/// A full turn of a rotation vector changes nothing, and the angle of the result is in 0 to pi.
#[test]
fn a_rotation_vector_goes_around() {
    let rotvec = "interpolation: rotvec";
    let tau = std::f64::consts::TAU;
    let came = one(rotvec, 3, &[0, 10], &[0.0, 0.0, 3.0, 0.0, 0.0, tau - 3.0], 0);
    assert!((came[2] - 3.0).abs() < 1e-6, "{came:?}");
    let came = one(rotvec, 3, &[0, 10], &[0.0, 0.0, tau + 0.5, 0.0, 0.0, 1.0], 5);
    assert!((came[2] - 0.75).abs() < 1e-6, "{came:?}");
}

/// A curve ends at a gap: the sample after the gap does not change the curve before it.
#[test]
fn a_neighbour_beyond_a_gap_bends_no_curve() {
    for mode in ["cubic", "pchip"] {
        let limited = format!("{{ interpolation: {mode}, max_gap_ms: 20 }}");
        let (times, values) = ([0, 10, 20, 500, 510], [0.0, 1.0, 4.0, 900.0, 0.0]);
        let with = one(&limited, 1, &times, &values, 15);
        assert_eq!(with, one(&limited, 1, &times[..3], &values[..3], 15), "{mode}");
        assert_ne!(
            with,
            one(&format!("interpolation: {mode}"), 1, &times, &values, 15),
            "{mode}"
        );
        // Two samples without neighbours give a line.
        assert_eq!(one(&limited, 1, &times, &values, 505), [450.0], "{mode}");
    }
}

#[test]
fn a_result_that_the_type_cannot_hold_is_filled() {
    let row = cases::row(&[0, 10], &[3e38, -3e38], &[5]);
    for mode in Interpolation::ALL
        .into_iter()
        .filter(|mode| !is_plain(*mode) && !mode.is_rotation())
    {
        let mode = mode.name();
        let (values, valid, _) = resample::<f32>(&format!("{{ interpolation: {mode}, fill_value: -1 }}"), 1, &row);
        assert_eq!((values, valid), (vec![-1.0], vec![0]), "{mode}");
    }
}

#[test]
fn what_a_configuration_has_wrong_is_refused_by_its_key() {
    for (text, expected) in [
        (
            "interpolation: euler",
            "`euler` is not an interpolation: what lies between",
        ),
        (
            "{ interpolation: slerp, order: zyxw }",
            "`zyxw` is not an order of a quaternion (allowed: xyzw, wxyz)",
        ),
        ("{ interpolation: slerp, shortest: true }", "unknown field `shortest`"),
    ] {
        let refused = serde_yaml::from_str::<ResampleConfig>(text).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
    for (text, expected) in [
        (
            "groups: [{ channels: [0, 3], interpolation: slerp }]",
            "groups[0].channels: 3 channels (allowed with `slerp`: 4)",
        ),
        (
            "groups: [{ channels: [0, 4] }, { channels: [3, 5] }]",
            "groups[1].channels: [3, 5] overlaps the group before it, which ends at 4 (each channel is in one group)",
        ),
        (
            "groups: [{ channels: [1, 4] }]",
            "groups[0].channels: [1, 4] leaves a hole before it, which ends at 0 (each channel is in one group)",
        ),
        (
            "groups: [{ channels: [4, 4] }]",
            "groups[0].channels: [4, 4] (allowed: [from, to] with from < to)",
        ),
        (
            "canonical: true",
            "canonical: `linear` does not use this key (allowed with: slerp)",
        ),
        (
            "groups: [{ channels: [0, 4], interpolation: angle, order: xyzw }]",
            "groups[0].order: `angle` does not use this key (allowed with: slerp)",
        ),
        (
            "{ interpolation: pchip, max_age_ms: 5 }",
            "max_age_ms: `pchip` does not use this key (allowed with it: max_gap_ms, extrapolate_ms)",
        ),
    ] {
        let config: ResampleConfig = serde_yaml::from_str(text).unwrap();
        let refused = Resampler::new(&config, &placement()).err().unwrap().to_string();
        assert_eq!(refused, expected);
    }
    for (text, expected) in [
        (
            "interpolation: slerp",
            "dim of the batch: 3 channels (allowed with `slerp`: 4)",
        ),
        (
            "groups: [{ channels: [0, 2] }]",
            "groups: they end at channel 2, but the batch has `dim` 3 (needed: groups up to 3)",
        ),
    ] {
        let config: ResampleConfig = serde_yaml::from_str(text).unwrap();
        let resampler = Resampler::new(&config, &placement()).unwrap();
        let message = message::<f32>(&[cases::row(&[0], &[0.0; 3], &[0])], 3);
        assert_eq!(resampler.read(&message).err().unwrap().to_string(), expected);
    }
}
