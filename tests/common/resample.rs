//! Test cases of resampling, run on the CPU and on devices: timelines that can be checked by hand, and a simple oracle.

// Each test uses some of the helpers.
#![allow(clippy::unwrap_used, dead_code)]

use bytemuck::Pod;
use half::{bf16, f16};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use robocache::device::{Device, Dtype, Placement};
use robocache::ops::resample::{ResampleConfig, ResampleCounters, Resampler, Trajectories};
use robocache::stream::{Cells, Layout, Message, Payload};
use robocache::time::Interpolation::{self, Linear, Nearest, Previous};

/// Function that chooses the backend of a case: the CPU or a device.
pub type Place = fn() -> Placement;

#[derive(Clone, Debug)]
pub struct Row {
    pub times: Vec<i64>,
    pub values: Vec<f64>,
    pub targets: Vec<i64>,
}

pub fn row(times: &[i64], values: &[f64], targets: &[i64]) -> Row {
    Row {
        times: times.to_vec(),
        values: values.to_vec(),
        targets: targets.to_vec(),
    }
}

pub trait Kind: Pod + PartialEq + std::fmt::Debug {
    const DTYPE: Dtype;
    fn from_f64(value: f64) -> Self;
    fn lerp(self, after: Self, weight: f64) -> Self;
    fn finite(self) -> bool;
    fn bits(self) -> u64;
}

macro_rules! kind {
    ($T:ty, $dtype:ident, $from:expr, $lerp:expr) => {
        impl Kind for $T {
            const DTYPE: Dtype = Dtype::$dtype;
            fn from_f64(value: f64) -> Self {
                $from(value)
            }
            fn lerp(self, after: Self, weight: f64) -> Self {
                $lerp(self, after, weight)
            }
            fn finite(self) -> bool {
                self.is_finite()
            }
            fn bits(self) -> u64 {
                self.to_bits().into()
            }
        }
    };
}

fn lerp32(a: f32, b: f32, w: f64) -> f32 {
    a + w as f32 * (b - a)
}
kind!(f32, Float32, |v| v as f32, lerp32);
kind!(f64, Float64, |v| v, |a: f64, b: f64, w| a + w * (b - a));
kind!(f16, Float16, f16::from_f64, |a: f16, b: f16, w| f16::from_f32(lerp32(
    a.to_f32(),
    b.to_f32(),
    w
)));
kind!(bf16, BFloat16, bf16::from_f64, |a: bf16, b: bf16, w| bf16::from_f32(
    lerp32(a.to_f32(), b.to_f32(), w)
));

fn add<T: Pod>(message: &mut Message, name: &str, dtype: Dtype, rows: &[Vec<T>]) {
    let all = rows.concat();
    let column = message.add_column(name, dtype, Cells::Ragged(all.len()));
    column.data.copy_from(bytemuck::cast_slice(&all));
    column.offsets.push(0);
    let mut end = 0;
    for row in rows {
        end += row.len() as i32;
        column.offsets.push(end);
    }
}

pub fn message<T: Kind>(rows: &[Row], dim: usize) -> Message {
    let mut message = Message::default();
    message.rows = rows.len();
    message.header.dim.set(dim as i64);
    let column = |of: fn(&Row) -> &Vec<i64>| rows.iter().map(|row| of(row).clone()).collect::<Vec<_>>();
    add(&mut message, "timestamps_ns", Dtype::Int64, &column(|row| &row.times));
    let values: Vec<Vec<T>> = rows
        .iter()
        .map(|row| row.values.iter().map(|&v| T::from_f64(v)).collect())
        .collect();
    add(&mut message, "values", T::DTYPE, &values);
    add(&mut message, "targets_ns", Dtype::Int64, &column(|row| &row.targets));
    message
}

/// Resamples the trajectories `rows`. Returns the values and the validity flags at all targets, and the counters.
fn resample<T: Kind>(
    place: Place,
    config: &ResampleConfig,
    rows: &[Row],
    dim: usize,
) -> (Vec<T>, Vec<u8>, ResampleCounters) {
    let message = message::<T>(rows, dim);
    let placement = place();
    let mut resampler = Resampler::new(config, &placement).unwrap();
    let batch = resampler.read(&message).unwrap();
    let (answer, counters, device) = run(&mut resampler, &batch);
    let expected = placement.gpu().map_or(Device::Cpu, |gpu| gpu.device());
    assert_eq!(device, expected, "{:?}", resampler.take_lost());
    let (values, valid) = (answer.column("values").unwrap(), answer.column("valid").unwrap());
    let targets = rows.iter().scan(0, |end, row| {
        *end += row.targets.len() as i32;
        Some(*end)
    });
    assert_eq!(valid.offsets, std::iter::once(0).chain(targets).collect::<Vec<_>>());
    let elements: Vec<i32> = valid.offsets.iter().map(|end| end * dim as i32).collect();
    assert_eq!(values.offsets, elements);
    (
        values.data.as_slice().to_vec(),
        valid.data.as_slice().to_vec(),
        counters,
    )
}

/// Resamples a batch into memory that held other bytes before, so that a value that is not written shows.
pub fn run(resampler: &mut Resampler, batch: &Trajectories<'_>) -> (Message, ResampleCounters, Device) {
    let (mut answer, mut layout) = (Message::default(), Layout::default());
    batch.layout_into(&mut layout);
    let mut payload = Payload::in_message(&mut answer, &layout);
    payload.column::<u8>(0).fill(0x5a);
    payload.column::<u8>(1).fill(0x5a);
    let done = resampler.run(batch, &mut payload);
    (answer, done.counters, done.device)
}

pub fn config(interpolation: Interpolation) -> ResampleConfig {
    ResampleConfig {
        interpolation,
        fill_value: -1.0,
        ..ResampleConfig::default()
    }
}

const MS: i64 = 1_000_000;

pub fn a_line_between_two_samples(place: Place) {
    let rows = [row(&[0, 100], &[0.0, 10.0, 1.0, 20.0], &[0, 25, 100, 101, -1])];
    let (values, valid, counters) = resample::<f32>(place, &config(Linear), &rows, 2);
    assert_eq!(values, [0.0, 10.0, 0.25, 12.5, 1.0, 20.0, -1.0, -1.0, -1.0, -1.0]);
    assert_eq!(valid, [1, 1, 1, 0, 0]);
    let expected = ResampleCounters {
        rows: 1,
        targets: 5,
        invalid: 2,
        ..ResampleCounters::default()
    };
    assert_eq!(counters, expected);
}

pub fn previous_and_nearest_take_a_sample_as_it_is(place: Place) {
    let rows = [row(&[10, 20, 40], &[1.0, 2.0, 4.0], &[9, 10, 30, 31, 99])];
    let (values, valid, _) = resample::<f32>(place, &config(Previous), &rows, 1);
    assert_eq!((values, valid), (vec![-1.0, 1.0, 2.0, 2.0, 4.0], vec![0, 1, 1, 1, 1]));
    let (values, valid, _) = resample::<f32>(place, &config(Nearest), &rows, 1);
    assert_eq!((values, valid), (vec![1.0, 1.0, 2.0, 4.0, 4.0], vec![1, 1, 1, 1, 1]));
}

pub fn limits_are_in_milliseconds_and_inclusive(place: Place) {
    let rows = [row(
        &[0, 50 * MS, 101 * MS],
        &[0.0, 50.0, 101.0],
        &[25 * MS, 75 * MS, 106 * MS, 106 * MS + 1],
    )];
    let limited = ResampleConfig {
        max_gap_ms: Some(50.0),
        extrapolate_ms: Some(5.0),
        ..config(Linear)
    };
    let (values, valid, _) = resample::<f32>(place, &limited, &rows, 1);
    assert_eq!((values, valid), (vec![25.0, -1.0, 101.0, -1.0], vec![1, 0, 1, 0]));
    let limited = ResampleConfig {
        max_age_ms: Some(5.0),
        ..config(Previous)
    };
    let (values, valid, _) = resample::<f32>(place, &limited, &rows, 1);
    assert_eq!((values, valid), (vec![-1.0, -1.0, 101.0, -1.0], vec![0, 0, 1, 0]));
}

pub fn of_samples_with_the_same_time_the_later_one_wins_on_both_sides(place: Place) {
    let rows = [row(&[0, 0, 100, 100, 100], &[7.0, 0.0, 8.0, 9.0, 1.0], &[0, 50, 100])];
    let (values, valid, counters) = resample::<f32>(place, &config(Linear), &rows, 1);
    assert_eq!((values, valid), (vec![0.0, 0.5, 1.0], vec![1, 1, 1]));
    assert_eq!(counters.dropped_nonfinite, 0);
    let (values, ..) = resample::<f32>(place, &config(Nearest), &rows, 1);
    assert_eq!(values, [0.0, 0.0, 1.0]);
}

pub fn a_sample_with_a_nan_or_an_infinity_is_as_if_it_were_not_there(place: Place) {
    let nan = f64::NAN;
    let values = [0.0, 0.0, 1.0, nan, f64::INFINITY, 1.0, 3.0, 30.0];
    let rows = [row(&[0, 10, 20, 30], &values, &[10, 15, 30])];
    let (values, valid, counters) = resample::<f32>(place, &config(Linear), &rows, 2);
    assert_eq!(values, [1.0, 10.0, 1.5, 15.0, 3.0, 30.0]);
    assert_eq!(valid, [1, 1, 1]);
    assert_eq!(counters.dropped_nonfinite, 2);
    // The later of two samples with the same time is dropped, so that the earlier one counts.
    let rows = [row(&[5, 5], &[2.0, nan], &[5]), row(&[5], &[nan], &[5])];
    let (values, valid, counters) = resample::<f64>(place, &config(Previous), &rows, 1);
    assert_eq!((values, valid), (vec![2.0, -1.0], vec![1, 0]));
    assert_eq!((counters.dropped_nonfinite, counters.invalid), (2, 1));
}

pub fn rows_may_be_of_any_length_and_empty(place: Place) {
    let rows = [
        row(&[], &[], &[1, 2]),
        row(&[5], &[3.0], &[]),
        row(&[], &[], &[]),
        row(&[0, 2], &[0.0, 2.0], &[1]),
    ];
    let (values, valid, counters) = resample::<f32>(place, &config(Linear), &rows, 1);
    assert_eq!((values, valid), (vec![-1.0, -1.0, 1.0], vec![0, 0, 1]));
    assert_eq!((counters.rows, counters.targets, counters.invalid), (4, 3, 2));
    let (values, valid, counters) = resample::<f32>(place, &config(Linear), &[], 1);
    assert!(values.is_empty() && valid.is_empty());
    assert_eq!(counters, ResampleCounters::default());
}

/// Interpolates from `end` to `-end`, and checks the value in the middle: 0 if `holds`; invalid if not,
/// because `-end - end` overflows.
fn a_line_of_ends<T: Kind>(place: Place, end: f64, holds: bool) {
    let rows = [row(&[0, 100], &[end, 1.0, -end, 3.0], &[0, 50, 100])];
    let (values, valid, counters) = resample::<T>(place, &config(Linear), &rows, 2);
    let middle = if holds { [0.0, 2.0] } else { [-1.0, -1.0] };
    assert_eq!(values, [end, 1.0, middle[0], middle[1], -end, 3.0].map(T::from_f64));
    assert_eq!(valid, [1, holds.into(), 1]);
    let invalid = u64::from(!holds);
    assert_eq!(
        (counters.invalid, counters.dropped_overflow, counters.dropped_nonfinite),
        (invalid, invalid, 0)
    );
}

pub fn a_result_that_the_type_cannot_hold_is_filled_and_not_valid(place: Place) {
    a_line_of_ends::<f32>(place, f32::MAX.into(), false);
    a_line_of_ends::<f64>(place, f64::MAX, false);
    a_line_of_ends::<bf16>(place, bf16::MAX.to_f64(), false);
    a_line_of_ends::<f16>(place, f16::MAX.to_f64(), true);
    a_line_of_ends::<f32>(place, 1e38, true);
}

/// Trajectories 1, 2 and 4 of a batch are malformed. The good trajectories have the same values as in a batch without
/// the malformed ones.
pub fn a_row_that_makes_no_sense_is_answered_as_not_valid(place: Place) {
    let good = || row(&[0, 100], &[0.0, 10.0, 1.0, 20.0], &[25, 100]);
    let rows = [
        good(),
        row(&[0, 7, 6], &[5.0; 6], &[0, 6]),
        row(&[0, 1], &[5.0; 3], &[0]),
        row(&[], &[], &[1]),
        row(&[3], &[5.0; 4], &[3]),
        good(),
    ];
    let message = message::<f32>(&rows, 2);
    let batch = Trajectories::from_message(&message).unwrap();
    let said: Vec<String> = batch.refused().iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "row 1: timestamp 2 is 6, but the one before it is 7 (allowed: ascending timestamps, ties too)",
            "row 2: 3 values for 2 timestamps (allowed: 2 times `dim` 2)",
            "row 4: 4 values for 1 timestamps (allowed: 1 times `dim` 2)",
        ]
    );
    let (values, valid, counters) = resample::<f32>(place, &config(Linear), &rows, 2);
    let (own, fill) = ([0.25, 12.5, 1.0, 20.0], [-1.0; 10]);
    assert_eq!(values, [&own[..], &fill, &own].concat());
    assert_eq!(valid, [1, 1, 0, 0, 0, 0, 0, 1, 1]);
    assert_eq!((counters.rows, counters.targets, counters.invalid), (6, 9, 5));
}

pub fn times_at_the_ends_of_int64_do_not_overflow(place: Place) {
    const END: i64 = 1 << 61;
    let targets = [i64::MIN, 0, i64::MAX];
    let rows = [row(&[-END, END], &[0.0, 1.0], &targets)];
    let (values, valid, _) = resample::<f64>(place, &config(Nearest), &rows, 1);
    assert_eq!((values, valid), (vec![0.0, 0.0, 1.0], vec![1, 1, 1]));
    let (values, valid, _) = resample::<f64>(place, &config(Linear), &rows, 1);
    assert_eq!((values[1], valid), (0.5, vec![0, 1, 0]));
    // Further from 1970, differences of times would overflow.
    for times in [[-END - 1, 0], [0, END + 1], [i64::MIN, i64::MAX]] {
        let (_, valid, counters) = resample::<f64>(place, &config(Linear), &[row(&times, &[0.0, 1.0], &targets)], 1);
        assert_eq!((valid, counters.invalid), (vec![0; 3], 3), "{times:?}");
    }
}

/// Finds the value at a target in the mode `previous`, `nearest` or `linear`, by looking at every sample. Returns `None` if the
/// value is invalid. tests/modes.rs covers the other modes.
fn oracle<T: Kind>(row: &Row, dim: usize, config: &ResampleConfig, target: i64) -> Option<Vec<T>> {
    let samples: Vec<(i64, Vec<T>)> = row
        .times
        .iter()
        .zip(row.values.chunks(dim))
        .map(|(&time, values)| (time, values.iter().map(|&v| T::from_f64(v)).collect()))
        .filter(|(_, values): &(i64, Vec<T>)| values.iter().all(|v| v.finite()))
        .collect();
    let before = samples.iter().rfind(|s| s.0 <= target);
    let first_after = samples.iter().map(|s| s.0).find(|&time| time > target);
    let after = first_after.and_then(|first| samples.iter().rfind(|s| s.0 == first));
    let within = |distance: i64, limit_ms: Option<f64>| limit_ms.is_none_or(|ms| distance as f64 <= ms * 1e6);
    let (values, distance) = match (config.interpolation, before, after) {
        (_, Some(l), _) if l.0 == target => return Some(l.1.clone()),
        (Previous, Some(l), _) | (Nearest, Some(l), None) => (&l.1, target - l.0),
        (Previous, None, _) | (_, None, None) => return None,
        (Nearest, None, Some(r)) => (&r.1, r.0 - target),
        (Nearest, Some(l), Some(r)) if target - l.0 <= r.0 - target => (&l.1, target - l.0),
        (Nearest, Some(_), Some(r)) => (&r.1, r.0 - target),
        (_, Some(l), Some(r)) => {
            let weight = (target - l.0) as f64 / (r.0 - l.0) as f64;
            let lerp = || {
                l.1.iter()
                    .zip(&r.1)
                    .map(|(&a, &b)| a.lerp(b, weight))
                    .collect::<Vec<T>>()
            };
            let line = within(r.0 - l.0, config.max_gap_ms).then(lerp);
            return line.filter(|values| values.iter().all(|value| value.finite()));
        }
        (_, Some(l), None) => {
            let hold = (target - l.0) as f64 <= config.extrapolate_ms.unwrap_or(0.0) * 1e6;
            return hold.then(|| l.1.clone());
        }
        (_, None, Some(_)) => return None,
    };
    within(distance, config.max_age_ms).then(|| values.clone())
}

fn agrees_with_the_oracle<T: Kind>(place: Place, rows: &[Row], dim: usize, config: &ResampleConfig) {
    let (values, valid, counters) = resample::<T>(place, config, rows, dim);
    let mut at = 0;
    for (i, row) in rows.iter().enumerate() {
        for &target in &row.targets {
            let expected = oracle::<T>(row, dim, config, target);
            assert_eq!(valid[at], u8::from(expected.is_some()), "row {i} target {target}");
            let expected = expected.unwrap_or_else(|| vec![T::from_f64(config.fill_value.into()); dim]);
            let came = &values[at * dim..][..dim];
            let bits = |values: &[T]| values.iter().map(|v| v.bits()).collect::<Vec<_>>();
            assert_eq!(
                bits(came),
                bits(&expected),
                "row {i} target {target}: {came:?}, not {expected:?}"
            );
            at += 1;
        }
    }
    assert_eq!(valid.len(), at);
    assert_eq!(counters.invalid, valid.iter().filter(|&&v| v == 0).count() as u64);
    let nonfinite = |row: &Row| {
        row.values
            .chunks(dim)
            .filter(|s| s.iter().any(|&v| !T::from_f64(v).finite()))
            .count()
    };
    assert_eq!(
        counters.dropped_nonfinite,
        rows.iter().map(nonfinite).sum::<usize>() as u64
    );
}

fn rows(dim: usize) -> impl Strategy<Value = Vec<Row>> {
    let value = prop_oneof![
        20 => -100.0..100.0f64,
        1 => Just(f64::NAN),
        1 => Just(f64::NEG_INFINITY),
        1 => Just(1e300),
        1 => Just(-0.0),
        1 => Just(f32::MAX.into()),
        1 => Just(f32::MIN.into()),
        1 => Just(f64::MIN),
    ];
    // Half of the rows are finite and without ties, for the fast path.
    let sample = (
        prop_oneof![1 => Just(0i64), 6 => 1..3 * MS],
        prop::collection::vec(value, dim),
    );
    let clean = (1..3 * MS, prop::collection::vec(-100.0..100.0f64, dim));
    let samples = prop_oneof![
        prop::collection::vec(sample, 0..40),
        prop::collection::vec(clean, 0..40)
    ];
    let targets = (prop::collection::vec(-5 * MS..80 * MS, 0..40), any::<bool>());
    let row = (
        samples,
        targets,
        prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    )
        .prop_map(move |(samples, (mut targets, sorted), exact)| {
            let mut time = 0;
            let times: Vec<i64> = samples
                .iter()
                .map(|(step, _)| {
                    time += step;
                    time
                })
                .collect();
            if !times.is_empty() {
                targets.extend(exact.iter().map(|index| times[index.index(times.len())]));
            }
            if sorted {
                targets.sort_unstable();
            }
            Row {
                times,
                values: samples.into_iter().flat_map(|(_, values)| values).collect(),
                targets,
            }
        });
    prop::collection::vec(row, 0..6)
}

/// Compares random batches of every type with the oracle.
pub fn every_type_agrees_with_a_linear_scan(place: Place, cases: u32) {
    let settings = (
        prop::sample::select(vec![Previous, Nearest, Linear]),
        prop::option::of(0.0..4.0f64),
        prop::option::of(0.0..4.0f64),
        prop::option::of(0.0..40.0f64),
    );
    let batch = (1..70usize).prop_flat_map(|dim| (Just(dim), rows(dim)));
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    };
    let checked = TestRunner::new(config).run(&(batch, settings), |((dim, rows), settings)| {
        let (interpolation, max_gap_ms, max_age_ms, extrapolate_ms) = settings;
        // Rounds to whole nanoseconds, so that the oracle compares the same number.
        let whole = |ms: Option<f64>| ms.map(|ms| (ms * 1e6).round() / 1e6);
        let used = |key, ms| whole(ms).filter(|_| interpolation.limits().contains(&key));
        let config = ResampleConfig {
            interpolation,
            max_gap_ms: used("max_gap_ms", max_gap_ms),
            max_age_ms: used("max_age_ms", max_age_ms),
            extrapolate_ms: used("extrapolate_ms", extrapolate_ms),
            fill_value: -0.5,
            ..ResampleConfig::default()
        };
        agrees_with_the_oracle::<f32>(place, &rows, dim, &config);
        agrees_with_the_oracle::<f64>(place, &rows, dim, &config);
        agrees_with_the_oracle::<f16>(place, &rows, dim, &config);
        agrees_with_the_oracle::<bf16>(place, &rows, dim, &config);
        Ok(())
    });
    checked.unwrap();
}

/// Defines a `#[test]` for each case of this file, on the placement that the function `$place` returns.
macro_rules! resample_cases {
    ($place:expr, $random:expr) => {
        resample_cases!($place;
            a_line_between_two_samples,
            previous_and_nearest_take_a_sample_as_it_is,
            limits_are_in_milliseconds_and_inclusive,
            of_samples_with_the_same_time_the_later_one_wins_on_both_sides,
            a_sample_with_a_nan_or_an_infinity_is_as_if_it_were_not_there,
            rows_may_be_of_any_length_and_empty,
            a_result_that_the_type_cannot_hold_is_filled_and_not_valid,
            a_row_that_makes_no_sense_is_answered_as_not_valid,
            times_at_the_ends_of_int64_do_not_overflow);
        #[test]
        fn every_type_agrees_with_a_linear_scan() {
            cases::every_type_agrees_with_a_linear_scan($place, $random);
        }
    };
    ($place:expr; $($case:ident),*) => {$(
        #[test]
        fn $case() {
            cases::$case($place);
        }
    )*};
}
