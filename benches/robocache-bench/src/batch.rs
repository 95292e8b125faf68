//! Random batches of trajectories for the benchmarks. Samples have a fixed rate, with a random delay of up to half a period.
//! Targets ascend, at random times between the first and the last sample. The same seed always gives the same batch.

use crate::random::Random;
use half::{bf16, f16};
use robocache::device::{Dtype, HostMemory};
use robocache::ops::resample::{ChannelGroupConfig, ResampleConfig};
use robocache::stream::{Cells, Message};
use robocache::time::Interpolation;
use std::ops::Range;

/// Offset of all times, ns, so that stamps are as large as real stamps since 1970.
pub const EPOCH_NS: i64 = 1_700_000_000_000_000_000;
/// Approximate time from the first to the last sample of a trajectory, ns.
pub const SPAN_NS: i64 = 5_000_000_000;

/// Number of random values that are generated for a batch. Larger batches repeat them, since generating random values is slow.
const DIFFERENT_VALUES: usize = 1 << 20;

/// Maximum number of channel groups in a sample. The remaining channels are interpolated linearly.
const MOST_GROUPS: usize = 8;

/// Divides the `dim` channels of a sample into groups of the size that the mode needs, such as 4 for slerp. The remaining
/// channels are a linear group at the end.
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

/// Makes the configuration of `resample` that interpolates samples of `dim` values by `mode`, in the channel groups
/// of [`groups`].
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

/// Sizes of a batch: number of trajectories (`rows`), of samples and targets in each, and of values in a sample (`dim`).
#[derive(Clone, Copy)]
pub struct Shape {
    pub rows: usize,
    pub samples: usize,
    pub targets: usize,
    pub dim: usize,
    pub dtype: Dtype,
}

impl Shape {
    /// Size of all inputs and outputs of a batch, bytes, including samples that no target needs.
    pub fn held_bytes(&self) -> usize {
        let row = self.dim * self.dtype.size();
        self.rows * (self.samples * (8 + row) + self.targets * (8 + row + 1))
    }

    /// Name of the batch in the output rows, such as `64x4096->1024x32 float32`.
    pub fn config(&self) -> String {
        format!(
            "{}x{}->{}x{} {}",
            self.rows, self.samples, self.targets, self.dim, self.dtype
        )
    }
}

/// Random stamps of `samples` samples of one trajectory, ns, ascending.
pub fn stamps(random: &mut Random, samples: usize) -> impl Iterator<Item = i64> {
    let period = SPAN_NS / samples as i64;
    (0..samples as i64).map(move |i| EPOCH_NS + i * period + random.below(period / 2))
}

/// Random targets from `first` to `last`, ns, ascending.
pub fn targets(random: &mut Random, count: usize, first: i64, last: i64) -> Vec<i64> {
    let mut targets: Vec<i64> = (0..count).map(|_| first + random.below(last - first + 1)).collect();
    targets.sort_unstable();
    targets
}

/// Makes `count` random values in -1..1, as bytes of the type `dtype`. They repeat after [`DIFFERENT_VALUES`] values.
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

/// Collects elements as bytes, in the byte order of this machine.
pub fn bytes<T: bytemuck::Pod>(values: impl Iterator<Item = T>) -> Vec<u8> {
    bytemuck::cast_slice(&values.collect::<Vec<T>>()).to_vec()
}

/// Makes a random batch as the message that a node `resample` receives, with columns in the host memory `memory`.
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

/// Makes the message of a batch from times `[B, S]`, ns, bytes of values `[B, S, D]` and targets `[B, T]`, ns.
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

/// Number of bytes that a call on a batch reads or writes, each counted once: needed samples and their times, and all targets,
/// resampled values and masks.
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

/// Number of samples that at least one of the ascending targets needs.
pub fn needed_samples(times: &[i64], targets: &[i64]) -> usize {
    let (mut needed, mut counted) = (0, 0);
    for &target in targets {
        // A target needs the sample at or before it, and the sample after it.
        let until = times.partition_point(|&time| time <= target);
        let (first, end) = (until.saturating_sub(1).max(counted), (until + 1).min(times.len()));
        needed += end.saturating_sub(first);
        counted = counted.max(end);
    }
    needed
}
