//! Resampling on the CPU. It is the specification: GPUs compute the same bits.

use super::spec::Spec;
use super::{ResampleConfig, Trajectories, trajectories};
use crate::ConfigError;
use half::{bf16, f16};
use robocache_device::{Dtype, Float};
use robocache_time::blend::{self, Rows, Written};
use robocache_time::pick;

/// Counts of the rows and targets of a batch, and of samples that were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResampleCounters {
    /// Number of trajectories, one for each row of the batch.
    pub rows: u64,
    /// Number of targets of all rows.
    pub targets: u64,
    /// Number of targets without a valid value.
    pub invalid: u64,
    /// Number of samples that were dropped because they have a NaN or an infinity, or are not the rotation that their group of
    /// channels needs.
    pub dropped_nonfinite: u64,
    /// Number of targets without a valid value because the batch's type can't hold the result; `invalid` counts these targets, too.
    pub dropped_overflow: u64,
}

impl std::ops::AddAssign for ResampleCounters {
    fn add_assign(&mut self, other: Self) {
        self.rows += other.rows;
        self.targets += other.targets;
        self.invalid += other.invalid;
        self.dropped_nonfinite += other.dropped_nonfinite;
        self.dropped_overflow += other.dropped_overflow;
    }
}

/// Resamples batches of trajectories on the CPU. Scratch memory is kept, so that in steady state a batch allocates nothing.
pub struct CpuResampler {
    spec: Spec,
    /// Scratch memory, one element for each part into which a large batch is divided.
    scratch: Vec<UsableSamples>,
}

/// Smallest size of a batch's values, bytes, for which all cores share the batch. For a smaller batch, waking the cores costs
/// more than it saves.
const PARALLEL_BYTES: usize = 1 << 20;

/// Number of parts per core into which a large batch is divided. Cores then finish together even if trajectories differ
/// in length.
const PARTS_PER_CORE: usize = 4;

/// Times and indices of a trajectory's usable samples. Samples with a NaN or an infinity are left out, and of samples with the
/// same time all but the last.
#[derive(Default)]
struct UsableSamples {
    times: Vec<i64>,
    indices: Vec<usize>,
}

impl CpuResampler {
    /// Checks a configuration, and makes a resampler for it.
    ///
    /// # Errors
    /// The key whose value is not allowed, the value, and the allowed values.
    pub fn new(config: &ResampleConfig) -> Result<Self, ConfigError> {
        Ok(Self::from_spec(Spec::new(config)?))
    }

    pub(super) fn from_spec(spec: Spec) -> Self {
        let parts = PARTS_PER_CORE * rayon::current_num_threads();
        Self {
            spec,
            scratch: (0..parts).map(|_| UsableSamples::default()).collect(),
        }
    }

    /// Resamples a batch. For each row, writes the values at its T targets to `values`, `[T, D]` in the batch's type, and their
    /// validity, 0 or 1, to `valid`.
    ///
    /// # Panics
    /// If `values` does not have [`Trajectories::output_bytes`] bytes, aligned for the batch's type, or `valid` not one
    /// byte for each target.
    pub fn run(&mut self, batch: &Trajectories<'_>, values: &mut [u8], valid: &mut [u8]) -> ResampleCounters {
        assert_eq!(
            values.len(),
            batch.output_bytes(),
            "one value for each target and channel"
        );
        assert_eq!(valid.len(), batch.targets(), "one byte for each target");
        let rows = batch.rows();
        let parts = if rows.values.bytes().len() < PARALLEL_BYTES {
            1
        } else {
            self.scratch.len()
        };
        let part = Part { spec: &self.spec, rows };
        let scratch = &mut self.scratch[..parts];
        match batch.dtype() {
            Dtype::Float64 => part.share::<f64>(scratch, bytemuck::cast_slice_mut(values), valid),
            Dtype::Float16 => part.share::<f16>(scratch, bytemuck::cast_slice_mut(values), valid),
            Dtype::BFloat16 => part.share::<bf16>(scratch, bytemuck::cast_slice_mut(values), valid),
            _ => part.share::<f32>(scratch, bytemuck::cast_slice_mut(values), valid),
        }
    }
}

/// Rows of a batch that one core resamples, and the configuration.
struct Part<'a> {
    spec: &'a Spec,
    rows: trajectories::Rows<'a>,
}

impl Part<'_> {
    /// Resamples the rows on several cores: halves the rows and the scratch memory recursively, until one row or one scratch
    /// element is left. Rows are independent, so the result does not depend on the division.
    fn share<T: Float>(self, scratch: &mut [UsableSamples], values: &mut [T], valid: &mut [u8]) -> ResampleCounters {
        let Self { spec, rows } = self;
        if let ([kept], _) | ([kept, ..], 0 | 1) = (&mut *scratch, rows.len()) {
            return self.dispatch(kept, values, valid);
        }
        let [first, last] = [0..rows.len() / 2, rows.len() / 2..rows.len()].map(|half| rows.range(half));
        let (scratch, other_scratch) = scratch.split_at_mut(scratch.len() / 2);
        let (values, other_values) = values.split_at_mut(first.targets.len() * rows.dim);
        let (valid, other_valid) = valid.split_at_mut(first.targets.len());
        let (mut counters, other_counters) = rayon::join(
            || Self { spec, rows: first }.share(scratch, values, valid),
            || Self { spec, rows: last }.share(other_scratch, other_values, other_valid),
        );
        counters += other_counters;
        counters
    }

    /// Resamples the rows with code compiled for AVX2, if the CPU has AVX2. The result is the same: each lane computes what
    /// scalar code would.
    fn dispatch<T: Float>(&self, kept: &mut UsableSamples, values: &mut [T], valid: &mut [u8]) -> ResampleCounters {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has AVX2.
            return unsafe { self.run_avx2(kept, values, valid) };
        }
        self.run_typed(kept, values, valid)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn run_avx2<T: Float>(&self, kept: &mut UsableSamples, values: &mut [T], valid: &mut [u8]) -> ResampleCounters {
        self.run_typed(kept, values, valid)
    }

    #[inline(always)]
    fn run_typed<T: Float>(&self, kept: &mut UsableSamples, values: &mut [T], valid: &mut [u8]) -> ResampleCounters {
        let Self { spec, rows } = self;
        let dim = rows.dim;
        let mut counters = ResampleCounters {
            rows: rows.len() as u64,
            targets: valid.len() as u64,
            ..ResampleCounters::default()
        };
        for row in 0..rows.len() {
            let times = rows.times_of(row);
            let samples: &[T] = rows.values_of(row);
            let span = rows.targets_of(row);
            let targets = &rows.targets[span.clone()];
            let out = &mut values[span.start * dim..span.end * dim];
            let valid = &mut valid[span];
            if spec.is_grouped {
                counters.dropped_nonfinite += kept.choose(times, samples, dim, |sample| spec.takes(sample));
                spec.grouped_row(kept, samples, dim, targets, out, valid, &mut counters);
            } else if !rows.has_ties && all_moderate_ahead(samples) {
                let sample = |i: usize| &samples[i * dim..][..dim];
                spec.row::<T, true>(times, sample, targets, out, valid, &mut counters);
            } else {
                counters.dropped_nonfinite += kept.choose(times, samples, dim, |_| true);
                let sample = |i: usize| &samples[kept.indices[i] * dim..][..dim];
                spec.row::<T, false>(&kept.times, sample, targets, out, valid, &mut counters);
            }
        }
        counters
    }
}

impl Spec {
    /// Resamples one trajectory with strictly ascending times, all channels as one group. `IS_MODERATE` is true only if all
    /// samples are [moderate](Float::all_moderate): finite, and too small to overflow.
    #[inline(always)]
    fn row<'a, T: Float, const IS_MODERATE: bool>(
        &self,
        times: &[i64],
        sample: impl Fn(usize) -> &'a [T],
        targets: &[i64],
        out: &mut [T],
        valid: &mut [u8],
        counters: &mut ResampleCounters,
    ) {
        let mut until = 0;
        let fill = T::from_f32(self.fill);
        let dim = out.len() / targets.len().max(1);
        for (i, (&target, valid)) in targets.iter().zip(valid).enumerate() {
            let out = &mut out[i * dim..][..dim];
            until = at_or_before(times, until, target);
            let picked = pick(times, until, target, self.mode, &self.limits);
            let written = blend::write(picked, &sample, IS_MODERATE, fill, out);
            counters.invalid += u64::from(written != Written::Value);
            counters.dropped_overflow += u64::from(written == Written::Overflow);
            *valid = u8::from(written == Written::Value);
        }
    }

    /// True if every group of channels can use its part of `sample`, such as a quaternion. All values of `sample` are finite.
    fn takes<T: Float>(&self, sample: &[T]) -> bool {
        self.groups(sample.len())
            .all(|group| group.rule.takes(&sample[group.from..group.to]))
    }

    /// Resamples one trajectory, with a separate interpolation for each group of channels.
    #[expect(clippy::too_many_arguments, reason = "the samples, the targets and the answer")]
    fn grouped_row<T: Float>(
        &self,
        kept: &UsableSamples,
        samples: &[T],
        dim: usize,
        targets: &[i64],
        out: &mut [T],
        valid: &mut [u8],
        counters: &mut ResampleCounters,
    ) {
        let mut found = 0;
        let until = |row: usize| {
            found = at_or_before(&kept.times, found, targets[row]);
            found
        };
        let rows = Rows {
            targets,
            out,
            columns: dim,
            channels: 0..dim,
            fill: T::from_f32(self.fill),
        };
        let groups = self.groups(dim).map(|group| (group.from..group.to, group.rule));
        let sample = |i: usize| &samples[kept.indices[i] * dim..][..dim];
        rows.write(&kept.times, groups, until, sample, |row, written| {
            counters.invalid += u64::from(written != Written::Value);
            counters.dropped_overflow += u64::from(written == Written::Overflow);
            valid[row] = u8::from(written == Written::Value);
        });
    }
}

/// True if all samples of a trajectory are [moderate](Float::all_moderate): finite, and too small to overflow.
///
/// This first read of the samples takes most of a batch's time. The function therefore prefetches a few kilobytes ahead,
/// further than the CPU does by itself.
#[inline(always)]
fn all_moderate_ahead<T: Float>(samples: &[T]) -> bool {
    const PIECE_BYTES: usize = 2048;
    const PIECES_AHEAD: usize = 4;
    let pieces = samples.chunks(PIECE_BYTES / size_of::<T>());
    let mut ahead = pieces.clone().skip(PIECES_AHEAD);
    let mut moderate = true;
    for piece in pieces {
        if let Some(later) = ahead.next() {
            prefetch(later);
        }
        moderate &= T::all_moderate(piece);
    }
    moderate
}

/// Prefetches `values` into the second-level cache.
#[inline(always)]
fn prefetch<T: Float>(values: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in values.chunks(64 / size_of::<T>()) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch is a hint that reads nothing, and every x86-64 has SSE.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = values;
}

impl UsableSamples {
    /// Keeps the samples that are finite and that `takes` accepts; of several with the same time, only the last. Returns the
    /// number of samples that are not finite or not accepted.
    #[inline(always)]
    fn choose<T: Float>(&mut self, times: &[i64], samples: &[T], dim: usize, takes: impl Fn(&[T]) -> bool) -> u64 {
        self.times.clear();
        self.indices.clear();
        let mut dropped = 0;
        for (i, (&time, sample)) in times.iter().zip(samples.chunks_exact(dim)).enumerate() {
            if !T::all_finite(sample) || !takes(sample) {
                dropped += 1;
                continue;
            }
            if self.times.last() == Some(&time) {
                self.times.pop();
                self.indices.pop();
            }
            self.times.push(time);
            self.indices.push(i);
        }
        dropped
    }
}

/// Counts the ascending `times` that are at or before `target`. The search starts at `guess`, the count for the
/// previous target.
#[inline(always)]
fn at_or_before(times: &[i64], guess: usize, target: i64) -> usize {
    let mut until = guess;
    if until > 0 && times[until - 1] > target {
        return times[..until].partition_point(|&t| t <= target);
    }
    // From one ascending target to the next, few times are passed. They are counted without a branch that depends on
    // data.
    const STEP: usize = 8;
    for _ in 0..2 {
        let Some(next) = times[until..].first_chunk::<STEP>() else {
            break;
        };
        let passed: usize = next.iter().map(|&t| usize::from(t <= target)).sum();
        until += passed;
        if passed < STEP {
            return until;
        }
    }
    until + times[until..].partition_point(|&t| t <= target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bracket_is_found_from_any_guess() {
        for len in [0, 1, 7, 8, 9, 40] {
            let times: Vec<i64> = (0..len).map(|i| i * 10).collect();
            for target in -11..len * 10 + 11 {
                let expected = times.partition_point(|&t| t <= target);
                for guess in 0..=times.len() {
                    assert_eq!(at_or_before(&times, guess, target), expected, "{len} {target} {guess}");
                }
            }
        }
    }
}
