//! Batches of trajectories: samples at a fixed rate, each up to half a period late, and ascending targets anywhere between the
//! first sample and the last.

use crate::random::Random;
use half::{bf16, f16};
use robocache::device::{Dtype, HostMemory};
use robocache::ops::resample::{ChannelGroupConfig, ResampleConfig};
use robocache::stream::{Cells, Message};
use robocache::time::Interpolation;
use std::ops::Range;

/// Start of all times, so that they are as large as present times.
pub const EPOCH_NS: i64 = 1_700_000_000_000_000_000;
/// Time span of the samples of a trajectory.
pub const SPAN_NS: i64 = 5_000_000_000;

/// Number of different values: enough to look random, and soon made.
const DIFFERENT_VALUES: usize = 1 << 20;

/// Most groups of a sample. The channels left over are interpolated linearly.
const MOST_GROUPS: usize = 8;

/// The groups of a sample of `dim` values in a mode, each with as many channels as the mode takes.
pub fn groups(mode: Interpolation, dim: usize) -> Vec<(Range<usize>, Interpolation)> {
    let Some(width) = mode.width() else {
        return vec![(0..dim, mode)];
    };
    let count = (dim / width).min(MOST_GROUPS);
    let mut groups: Vec<_> = (0..count).map(|i| (i * width..(i + 1) * width, mode)).collect();
    if count * width < dim {
        groups.push((count * width..dim, Interpolation::Linear));
    }
    groups
}

/// The configuration with these [`groups`].
pub fn rules(mode: Interpolation, dim: usize) -> ResampleConfig {
    let group = |(channels, mode): (Range<usize>, Interpolation)| ChannelGroupConfig {
        channels: [channels.start, channels.end],
        interpolation: Some(mode),
        ..ChannelGroupConfig::default()
    };
    match mode.width() {
        None => ResampleConfig {
            interpolation: mode,
            ..ResampleConfig::default()
        },
        Some(_) => ResampleConfig {
            groups: groups(mode, dim).into_iter().map(group).collect(),
            ..ResampleConfig::default()
        },
    }
}

/// The shape of a batch: trajectories, samples and targets of each, values of a sample.
#[derive(Clone, Copy)]
pub struct Shape {
    pub rows: usize,
    pub samples: usize,
    pub targets: usize,
    pub dim: usize,
    pub dtype: Dtype,
}

impl Shape {
    /// Bytes of all inputs and outputs, whether or not a call needs them.
    pub fn held_bytes(&self) -> usize {
        let row = self.dim * self.dtype.size();
        self.rows * (self.samples * (8 + row) + self.targets * (8 + row + 1))
    }

    /// The name of the batch in the rows.
    pub fn config(&self) -> String {
        format!(
            "{}x{}->{}x{} {}",
            self.rows, self.samples, self.targets, self.dim, self.dtype
        )
    }
}

/// Times of samples, ascending.
pub fn stamps(random: &mut Random, samples: usize) -> impl Iterator<Item = i64> {
    let period = SPAN_NS / samples as i64;
    (0..samples as i64).map(move |i| EPOCH_NS + i * period + random.below(period / 2))
}

/// Times of targets from `first` to `last`, ascending.
pub fn targets(random: &mut Random, count: usize, first: i64, last: i64) -> Vec<i64> {
    let mut targets: Vec<i64> = (0..count).map(|_| first + random.below(last - first + 1)).collect();
    targets.sort_unstable();
    targets
}

/// Values in -1..1 of a type, as bytes; they repeat after [`DIFFERENT_VALUES`].
pub fn values(random: &mut Random, count: usize, dtype: Dtype) -> Vec<u8> {
    let different = count.min(DIFFERENT_VALUES);
    let mut next = || random.unit() * 2.0 - 1.0;
    let some = match dtype {
        Dtype::Float64 => bytes((0..different).map(|_| f64::from(next()))),
        Dtype::Float16 => bytes((0..different).map(|_| f16::from_f32(next()))),
        Dtype::BFloat16 => bytes((0..different).map(|_| bf16::from_f32(next()))),
        _ => bytes((0..different).map(|_| next())),
    };
    let mut all = Vec::with_capacity(count * dtype.size());
    while all.len() < count * dtype.size() {
        let missing = count * dtype.size() - all.len();
        all.extend_from_slice(&some[..missing.min(some.len())]);
    }
    all
}

/// Elements as bytes.
pub fn bytes<T: bytemuck::Pod>(values: impl Iterator<Item = T>) -> Vec<u8> {
    bytemuck::cast_slice(&values.collect::<Vec<T>>()).to_vec()
}

/// A batch as the message that a node gets.
pub fn message(shape: &Shape, seed: u64, memory: &HostMemory) -> Message {
    let mut random = Random::new(seed);
    let (mut times, mut wanted) = (Vec::new(), Vec::new());
    for _ in 0..shape.rows {
        let first = times.len();
        times.extend(stamps(&mut random, shape.samples));
        wanted.extend(targets(
            &mut random,
            shape.targets,
            times[first],
            times[times.len() - 1],
        ));
    }
    let values = values(&mut random, shape.rows * shape.samples * shape.dim, shape.dtype);
    message_of(shape, (&times, &values, &wanted), memory)
}

/// The message of times `[B, S]`, values `[B, S, D]` and targets `[B, T]`.
pub fn message_of(shape: &Shape, (times, values, targets): (&[i64], &[u8], &[i64]), memory: &HostMemory) -> Message {
    let mut message = Message::new(memory);
    message.rows = shape.rows;
    message.header.dim.set(shape.dim as i64);
    add(&mut message, "timestamps_ns", Dtype::Int64, bytemuck::cast_slice(times));
    add(&mut message, "values", shape.dtype, values);
    add(&mut message, "targets_ns", Dtype::Int64, bytemuck::cast_slice(targets));
    message
}

fn add(message: &mut Message, name: &str, dtype: Dtype, bytes: &[u8]) {
    let (rows, len) = (message.rows, bytes.len() / dtype.size());
    let column = message.add_column(name, dtype, Cells::Ragged(len));
    column.data.copy_from(bytes);
    column.offsets.extend((0..=rows).map(|row| (row * len / rows) as i32));
}

/// Bytes that a call on a batch of this shape touches, each once: samples that a target needs, with their times, targets, values
/// and validity.
pub fn touched_bytes(shape: &Shape, times: &[i64], targets: &[i64]) -> usize {
    let row = shape.dim * shape.dtype.size();
    let needed: usize = (0..shape.rows)
        .map(|i| {
            let times = &times[i * shape.samples..][..shape.samples];
            needed_samples(times, &targets[i * shape.targets..][..shape.targets])
        })
        .sum();
    needed * (8 + row) + shape.rows * shape.targets * (8 + row + 1)
}

/// Number of samples from which at least one of the ascending targets is computed.
pub fn needed_samples(times: &[i64], targets: &[i64]) -> usize {
    let (mut needed, mut counted) = (0, 0);
    for &target in targets {
        // The sample at or before the target and the one after it.
        let until = times.partition_point(|&time| time <= target);
        let (first, end) = (until.saturating_sub(1).max(counted), (until + 1).min(times.len()));
        needed += end.saturating_sub(first);
        counted = counted.max(end);
    }
    needed
}
