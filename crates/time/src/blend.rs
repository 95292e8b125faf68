//! Computes values at target times and writes them to an output buffer, one group of channels at a time: [`Rows`].
//!
//! A [`Rule`] picks the samples of a target by its [mode](super::Interpolation) (`pick.rs`). The plain modes (`previous`,
//! `nearest`, `linear`) blend these samples channel by channel with one weight (`channels.rs`). `curve.rs` interpolates angles
//! and curves through four samples, and `rotation.rs` interpolates rotations.
//!
//! On a device, `kernels/time.cuh` computes the plain modes with the same bits, and `kernels/modes.cuh` the other modes.
//! `make check-layout` compares the mode numbers in the kernels with those of Rust. Only `rotvec` is never computed on a
//! device: [`Interpolation::is_on_gpu`].

pub use super::channels::{Written, write};

use super::channels::{ROWS, write_each};
use super::mode::{Interpolation, Rule};
use super::pick::{Pick, pick};
use super::{curve, rotation};
use robocache_device::{Float, Real, convert};
use std::ops::Range;

impl Rule {
    /// True if the rule can use a sample, whose channels are finite. Modes for rotations also need the channels to be
    /// a rotation.
    pub fn takes<S: Float>(&self, sample: &[S]) -> bool {
        !self.mode.is_rotation() || rotation::is_rotation_sample(self.mode, sample)
    }

    /// True if both rules pick the same samples at every target.
    fn picks_like(&self, other: &Self) -> bool {
        let takes_one_sample = |rule: &Self| matches!(rule.mode, Interpolation::Previous | Interpolation::Nearest);
        let modes_pick_alike = self.mode == other.mode || !takes_one_sample(self) && !takes_one_sample(other);
        modes_pick_alike && self.limits == other.limits
    }

    /// Writes the values of at most [`ROWS`] rows, computed from the samples that `picks` selects. Updates `written`, the worst
    /// outcome of each row so far.
    #[inline(always)]
    fn write<'a, S: Float, T: Float<Real = S::Real>>(
        &self,
        times: &[i64],
        picks: &[Pick],
        sample: impl Fn(usize) -> &'a [S],
        mut rows: Rows<'_, T>,
        written: &mut [Written],
    ) {
        if !self.mode.is_plain() {
            return self.write_not_plain(times, picks, sample, rows, written);
        }
        let fill = rows.fill;
        for (row, (&picked, written)) in picks.iter().zip(written).enumerate() {
            *written = write(picked, &sample, false, fill, rows.row(row)).max(*written);
        }
    }

    /// Does the work of [`write`](Self::write) for the modes that are not plain. It is not inlined, so that the plain modes
    /// keep more registers.
    #[inline(never)]
    fn write_not_plain<'a, S: Float, T: Float<Real = S::Real>>(
        &self,
        times: &[i64],
        picks: &[Pick],
        sample: impl Fn(usize) -> &'a [S],
        mut rows: Rows<'_, T>,
        written: &mut [Written],
    ) {
        for (row, &picked) in picks.iter().enumerate() {
            let fill = rows.fill;
            let out = rows.row(row);
            let is_finite = match picked {
                Pick::Invalid => {
                    out.fill(fill);
                    written[row] = written[row].max(Written::Fill);
                    continue;
                }
                Pick::Sample(i) => self.hold(sample(i), out),
                // Rotations are computed together, below.
                Pick::Between { .. } if self.mode.is_rotation() => continue,
                Pick::Between { before, after, weight } => {
                    let weight = S::Real::from_f64(weight);
                    if self.mode == Interpolation::Angle {
                        curve::angles_between(sample(before), sample(after), weight, out)
                    } else {
                        let knots = curve::Knots::of(times, before, after, self.limits.max_gap);
                        curve::between(self.mode, &knots, knots.samples.map(&sample), weight, out)
                    }
                }
            };
            rows.check(row, is_finite, written);
        }
        if self.mode.is_rotation() {
            rotation::between(self, picks, sample, |row, value| {
                let is_finite = write_each(rows.row(row), |channel| value[channel]);
                rows.check(row, is_finite, written);
            });
        }
    }

    /// Writes the value of a single sample to `out`: wraps angles, normalises rotations, and converts all other channels as
    /// they are. Returns true if the value is finite.
    fn hold<S: Float, T: Float<Real = S::Real>>(&self, sample: &[S], out: &mut [T]) -> bool {
        match self.mode {
            Interpolation::Angle => curve::angles_between(sample, sample, S::Real::from_f64(0.0), out),
            mode if mode.is_rotation() => rotation::hold(self, sample, out),
            _ => convert(sample, out),
        }
    }
}

/// Output buffer for the values at several targets, with one row for each target. A range of channels is written in each row.
pub struct Rows<'a, T> {
    /// The targets, one for each row, ns.
    pub targets: &'a [i64],
    /// The elements of all rows, one row after the other.
    pub out: &'a mut [T],
    /// Number of elements of a row.
    pub columns: usize,
    /// Range of elements to write in each row.
    pub channels: Range<usize>,
    /// Value to write at targets that have no valid value.
    pub fill: T,
}

impl<T: Float> Rows<'_, T> {
    /// Writes the value at each target, one group of channels at a time. A group without a valid value gets `fill`. [`pick`]
    /// chooses the samples; [`write()`] or the function of the mode computes the value.
    ///
    /// `times` are the ascending times of all samples, ns. `until(row)` returns the number of samples at or before the target
    /// of the row. Every sample must be one that the rules can [use](Rule::takes). `done` is called once for each row, with the
    /// worst outcome of its groups.
    #[inline(always)]
    pub fn write<'a, S: Float<Real = T::Real>>(
        self,
        times: &[i64],
        groups: impl Iterator<Item = (Range<usize>, Rule)> + Clone,
        mut until: impl FnMut(usize) -> usize,
        sample: impl Fn(usize) -> &'a [S],
        mut done: impl FnMut(usize, Written),
    ) {
        for (first, targets) in (0..).step_by(ROWS).zip(self.targets.chunks(ROWS)) {
            let mut counts = [0; ROWS];
            let mut picks = [Pick::Invalid; ROWS];
            let mut written = [Written::Value; ROWS];
            let (counts, picks) = (&mut counts[..targets.len()], &mut picks[..targets.len()]);
            for (row, place) in counts.iter_mut().enumerate() {
                *place = until(first + row);
            }
            let mut picked_by: Option<Rule> = None;
            for (channels, rule) in groups.clone() {
                if !picked_by.is_some_and(|other| rule.picks_like(&other)) {
                    for ((picked, &until), &target) in picks.iter_mut().zip(&*counts).zip(targets) {
                        *picked = pick(times, until, target, rule.mode, &rule.limits);
                    }
                    picked_by = Some(rule);
                }
                let rows = Rows {
                    targets,
                    out: &mut self.out[first * self.columns..],
                    channels: self.channels.start + channels.start..self.channels.start + channels.end,
                    ..self
                };
                rule.write(times, picks, |i| &sample(i)[channels.clone()], rows, &mut written);
            }
            for (row, written) in written.into_iter().take(targets.len()).enumerate() {
                done(first + row, written);
            }
        }
    }

    #[inline(always)]
    fn row(&mut self, row: usize) -> &mut [T] {
        &mut self.out[row * self.columns..][self.channels.clone()]
    }

    /// Checks a written row. If `is_finite` is false, replaces the row by the fill value and records an overflow.
    fn check(&mut self, row: usize, is_finite: bool, written: &mut [Written]) {
        if !is_finite {
            let fill = self.fill;
            self.row(row).fill(fill);
            written[row] = Written::Overflow;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Limits;
    use super::*;

    /// Compares rows that are computed together with the same rows computed alone. Some rows hold the newest sample, and some get
    /// the fill value.
    #[test]
    fn a_value_does_not_depend_on_the_other_rows() {
        let times: Vec<i64> = (0..30).map(|i| i * 10 + i % 7 + 50 * (i / 13)).collect();
        let targets: Vec<i64> = (0..60).map(|i| i * 8 - 20).collect();
        for mode in Interpolation::ALL {
            let width = mode.width().unwrap_or(3);
            let samples: Vec<f32> = (0..30 * width).map(|i| 3.0 * (i as f32 * 0.7).sin()).collect();
            let rule = Rule::new(
                mode,
                Limits {
                    max_age: 30,
                    max_gap: 30,
                    extrapolate: 40,
                },
            );
            let values = |targets: &[i64]| {
                let columns = width + 2;
                let mut out = vec![7.0f32; targets.len() * columns];
                let mut written = vec![None; targets.len()];
                let rows = Rows {
                    targets,
                    out: &mut out,
                    columns,
                    channels: 1..1 + width,
                    fill: -1.0,
                };
                let groups = std::iter::once((0..width, rule));
                let until = |row: usize| times.partition_point(|&t| t <= targets[row]);
                let sample = |i: usize| &samples[i * width..][..width];
                let done = |row: usize, came| assert_eq!(written[row].replace(came), None);
                rows.write(&times, groups, until, sample, done);
                (out.into_iter().map(f32::to_bits).collect::<Vec<_>>(), written)
            };
            let (together, written) = values(&targets);
            let alone: Vec<_> = targets.iter().map(|&target| values(&[target])).collect();
            assert_eq!(
                together,
                alone.iter().flat_map(|(bits, _)| bits.clone()).collect::<Vec<_>>()
            );
            assert_eq!(
                written,
                alone
                    .iter()
                    .flat_map(|(_, written)| written.clone())
                    .collect::<Vec<_>>()
            );
            let filled = written
                .iter()
                .filter(|&&written| written == Some(Written::Fill))
                .count();
            assert!((3..30).contains(&filled), "{mode:?}: {filled}");
        }
    }
}
