//! The interpolation modes: how the value at a target is made from the samples around it.
//!
//! All that the CPU and the configuration know of a mode stands here: its name, its code in the kernels, the limits that
//! it uses, which samples it needs, which of them it [picks](pick) for a target, and what a [`Rule`] makes of them. The
//! plain modes, which take the samples channel by channel with one weight, are [written](write()) here, too; `curve.rs`
//! has those of four samples, and `rotation.rs` those of a rotation. [`Rows`] are where the values go.
//!
//! `kernels/time.cuh` says the same of the plain modes to a device, bit for bit, and `kernels/modes.cuh` of the others;
//! `tests/layout.py` holds the codes against these. Only `rotvec` is computed on the CPU alone:
//! [`Interpolation::is_on_cuda`].
//!
//! `docs/architecture.md` lists what a new mode touches.
//!
//! How many samples it `needs` on each side is what the watermark of `Timeline` of the operation align waits for
//! and `History::forget_before` keeps: up to two.

use super::{curve, rotation};
use robocache_device::{Float, Real, convert, zip_map};
use robocache_yaml::did_you_mean;
use serde::{Deserialize, Deserializer, de};
use std::ops::Range;

/// How the value at a target is made of the samples around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Interpolation {
    /// The newest sample at or before the target.
    Previous = 0,
    /// The nearer sample; a tie takes the earlier one.
    Nearest = 1,
    /// The straight line between the two samples around the target.
    Linear = 2,
    /// Angles, radians: the shorter way around the circle.
    Angle = 3,
    /// A unit quaternion: the shorter arc, at constant speed.
    Slerp = 4,
    /// The first two rows of a rotation matrix: through [`Slerp`](Self::Slerp).
    Rot6d = 5,
    /// The first two columns of a rotation matrix, one after the other: through [`Slerp`](Self::Slerp).
    Rot6dColumns = 6,
    /// A rotation vector, radians: through [`Slerp`](Self::Slerp).
    Rotvec = 7,
    /// A cubic Hermite curve with Bessel tangents.
    Cubic = 8,
    /// A monotone cubic Hermite curve, which does not overshoot: SciPy's `PchipInterpolator`.
    Pchip = 9,
}

/// What is known of a mode besides its meaning.
struct Facts {
    name: &'static str,
    /// The keys of the limits that it uses.
    limits: &'static [&'static str],
    /// How many samples it needs at or before a target, and how many after it.
    needs: [usize; 2],
    /// How many channels its group has, where that is fixed.
    width: Option<usize>,
}

/// The limits of the modes that make a value of the samples on both sides.
const BETWEEN: &[&str] = &["max_gap_ms", "extrapolate_ms"];

impl Facts {
    const fn of(name: &'static str, limits: &'static [&'static str], needs: [usize; 2], width: Option<usize>) -> Self {
        Self {
            name,
            limits,
            needs,
            width,
        }
    }
}

impl Interpolation {
    /// Every mode, in the order of their codes.
    pub const ALL: [Self; 10] = [
        Self::Previous,
        Self::Nearest,
        Self::Linear,
        Self::Angle,
        Self::Slerp,
        Self::Rot6d,
        Self::Rot6dColumns,
        Self::Rotvec,
        Self::Cubic,
        Self::Pchip,
    ];

    const fn facts(self) -> Facts {
        match self {
            Self::Previous => Facts::of("previous", &["max_age_ms"], [1, 0], None),
            Self::Nearest => Facts::of("nearest", &["max_age_ms"], [1, 1], None),
            Self::Linear => Facts::of("linear", BETWEEN, [1, 1], None),
            Self::Angle => Facts::of("angle", BETWEEN, [1, 1], None),
            Self::Slerp => Facts::of("slerp", BETWEEN, [1, 1], Some(4)),
            Self::Rot6d => Facts::of("rot6d", BETWEEN, [1, 1], Some(6)),
            Self::Rot6dColumns => Facts::of("rot6d_columns", BETWEEN, [1, 1], Some(6)),
            Self::Rotvec => Facts::of("rotvec", BETWEEN, [1, 1], Some(3)),
            Self::Cubic => Facts::of("cubic", BETWEEN, [2, 2], None),
            Self::Pchip => Facts::of("pchip", BETWEEN, [2, 2], None),
        }
    }

    /// Its name in a configuration.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// The names of all modes, for an error: `previous, nearest, linear`.
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// Its number in the kernels: that of `enum Interpolation` of kernels/time.cuh.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The keys of the [`Limits`] that it uses.
    pub const fn limits(self) -> &'static [&'static str] {
        self.facts().limits
    }

    /// How many samples it needs at or before a target, and how many after it.
    pub const fn needs(self) -> [usize; 2] {
        self.facts().needs
    }

    /// Whether it looks at a sample after the target, so that the value has to wait for that one.
    pub const fn looks_ahead(self) -> bool {
        self.needs()[1] > 0
    }

    /// How many channels a group of this mode has, where that is fixed: 4 for a quaternion.
    pub const fn width(self) -> Option<usize> {
        self.facts().width
    }

    /// Whether a value is a rotation, so that a sample may be none.
    pub const fn is_rotation(self) -> bool {
        self.width().is_some()
    }

    /// Whether it takes one sample, or two with one weight, channel by channel.
    #[inline(always)]
    pub const fn is_plain(self) -> bool {
        matches!(self, Self::Previous | Self::Nearest | Self::Linear)
    }

    /// Whether a CUDA device computes it. A configuration with a mode that none does is computed on the CPU.
    pub const fn is_on_cuda(self) -> bool {
        !matches!(self, Self::Rotvec)
    }
}

impl<'de> Deserialize<'de> for Interpolation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if let Some(mode) = Self::ALL.into_iter().find(|mode| mode.name() == name) {
            return Ok(mode);
        }
        let allowed = Self::names();
        Err(de::Error::custom(if name.starts_with("euler") {
            format!(
                "`{name}` is no interpolation: what lies between two triples of Euler angles is no shortest rotation; send a \
                 quaternion for `slerp`, or `rot6d`, `rotvec` (allowed: {allowed})"
            )
        } else {
            let hint = did_you_mean(&name, &Self::ALL.map(Self::name));
            format!("`{name}` is no interpolation{hint} (allowed: {allowed})")
        }))
    }
}

/// Where the w of a quaternion stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuaternionOrder {
    /// Last: ROS, SciPy.
    #[default]
    Xyzw,
    /// First: MuJoCo, Isaac.
    Wxyz,
}

impl<'de> Deserialize<'de> for QuaternionOrder {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "xyzw" => Ok(Self::Xyzw),
            "wxyz" => Ok(Self::Wxyz),
            other => Err(de::Error::custom(format!(
                "`{other}` is no order of a quaternion (allowed: xyzw, wxyz)"
            ))),
        }
    }
}

/// All that says how the values of a group of channels are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// How the value at a target is made of the samples around it.
    pub mode: Interpolation,
    /// How far from a target its samples may be.
    pub limits: Limits,
    /// `slerp`: of the two quaternions of a rotation, the one with w >= 0. Otherwise that in the hemisphere of the sample
    /// before the target.
    pub canonical: bool,
    /// `slerp`: where w stands.
    pub order: QuaternionOrder,
}

impl Rule {
    /// A mode with its limits, and no option.
    pub fn new(mode: Interpolation, limits: Limits) -> Self {
        Self {
            mode,
            limits,
            canonical: false,
            order: QuaternionOrder::default(),
        }
    }

    /// Whether the channels of a finite sample can be used: where they are to be a rotation, whether they are one.
    pub fn takes<S: Float>(&self, sample: &[S]) -> bool {
        !self.mode.is_rotation() || rotation::is_one(self.mode, sample)
    }

    /// Whether it picks the same samples as another, whatever the target.
    fn picks_like(&self, other: &Self) -> bool {
        let takes_one = |rule: &Self| matches!(rule.mode, Interpolation::Previous | Interpolation::Nearest);
        let modes_do = self.mode == other.mode || !takes_one(self) && !takes_one(other);
        modes_do && self.limits == other.limits
    }

    /// Writes the values of some rows, [`ROWS`] at most, that are made of the samples in `picks`. What was worse so far stays
    /// in `written`.
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
            return self.write_others(times, picks, sample, rows, written);
        }
        let fill = rows.fill;
        for (row, (&picked, written)) in picks.iter().zip(written).enumerate() {
            *written = write(picked, &sample, false, fill, rows.row(row)).max(*written);
        }
    }

    /// [`write`](Self::write) of the modes that are not plain. A call of its own: inlined, it takes the registers of the plain
    /// ones.
    #[inline(never)]
    fn write_others<'a, S: Float, T: Float<Real = S::Real>>(
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
                // All at once, below.
                Pick::Between { .. } if self.mode.is_rotation() => continue,
                Pick::Between { before, after, weight } => {
                    let weight = S::Real::from_f64(weight);
                    if self.mode == Interpolation::Angle {
                        curve::angles_between(sample(before), sample(after), weight, out)
                    } else {
                        let around = curve::Around::of(times, before, after, self.limits.max_gap);
                        curve::between(self.mode, &around, around.samples.map(&sample), weight, out)
                    }
                }
            };
            rows.check(row, is_finite, written);
        }
        if self.mode.is_rotation() {
            rotation::between(self, picks, sample, |row, value| {
                let is_finite = each(rows.row(row), |channel| value[channel]);
                rows.check(row, is_finite, written);
            });
        }
    }

    /// Writes the value at a sample's own time, or where that sample is held. Returns whether it is finite.
    fn hold<S: Float, T: Float<Real = S::Real>>(&self, sample: &[S], out: &mut [T]) -> bool {
        match self.mode {
            Interpolation::Angle => curve::angles_between(sample, sample, S::Real::from_f64(0.0), out),
            mode if mode.is_rotation() => rotation::hold(self, sample, out),
            _ => convert(sample, out),
        }
    }
}

/// So many rows are written at a time: groups of channels share what is picked for them, and their rotations are computed
/// side by side.
pub(super) const ROWS: usize = 8;

/// Where the values at some targets go: some channels of each row.
pub struct Rows<'a, T> {
    /// The targets, one for each row, ns.
    pub targets: &'a [i64],
    /// The elements of all rows, row-major.
    pub out: &'a mut [T],
    /// How many elements a row has.
    pub columns: usize,
    /// Those that are written.
    pub channels: Range<usize>,
    /// What stands where there is no value.
    pub fill: T,
}

impl<T: Float> Rows<'_, T> {
    /// Writes the value at each target, group by group of channels, or `fill` where a group has none: [`pick`], then
    /// [`write()`] or what the mode does in its place.
    ///
    /// `until` says of a row how many samples are at or before its target, and each sample is one that the rules
    /// [take](Rule::takes). `done` hears once of each row what was written, the worst of its groups.
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
            let mut untils = [0; ROWS];
            let mut picks = [Pick::Invalid; ROWS];
            let mut written = [Written::Value; ROWS];
            let (untils, picks) = (&mut untils[..targets.len()], &mut picks[..targets.len()]);
            for (row, place) in untils.iter_mut().enumerate() {
                *place = until(first + row);
            }
            let mut picked_by: Option<Rule> = None;
            for (channels, rule) in groups.clone() {
                if !picked_by.is_some_and(|other| rule.picks_like(&other)) {
                    for ((picked, &until), &target) in picks.iter_mut().zip(&*untils).zip(targets) {
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

    /// Fills a row whose value the type can't hold, and notes that.
    fn check(&mut self, row: usize, is_finite: bool, written: &mut [Written]) {
        if !is_finite {
            let fill = self.fill;
            self.row(row).fill(fill);
            written[row] = Written::Overflow;
        }
    }
}

/// Writes a value for each channel. Returns whether all that it wrote is finite.
pub(super) fn each<T: Float>(out: &mut [T], value: impl Fn(usize) -> T::Real) -> bool {
    let mut is_finite = true;
    for (channel, out) in out.iter_mut().enumerate() {
        let value = value(channel);
        is_finite &= value.is_finite();
        *out = T::from_real(value);
    }
    is_finite && T::all_finite(out)
}

/// How far from a target its samples may be, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `previous` and `nearest`: the largest distance to the sample.
    pub max_age: i64,
    /// The others: the largest distance between the two samples.
    pub max_gap: i64,
    /// The others, after the newest sample: for how long that one is held.
    pub extrapolate: i64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_age: i64::MAX,
            max_gap: i64::MAX,
            extrapolate: 0,
        }
    }
}

/// The samples that give the value at a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pick {
    /// There is no valid value.
    Invalid,
    /// The value of this sample.
    Sample(usize),
    /// A value between two samples: for `linear`, `before + weight * (after - before)`. Which further samples count is
    /// said by the mode.
    Between {
        /// The newest sample before the target.
        before: usize,
        /// The oldest sample after the target.
        after: usize,
        /// `(t - before) / (after - before)`, in 0..1.
        weight: f64,
    },
}

/// Picks the samples that give the value at `target`, by the ascending `times` of all samples.
///
/// `until` is how many of them are at or before the target, `times.partition_point(|&t| t <= target)`: the bracket, which
/// is found once for all groups of channels. A sample exactly at the target is picked whatever the mode.
#[inline]
pub fn pick(times: &[i64], until: usize, target: i64, mode: Interpolation, limits: &Limits) -> Pick {
    let before = until.checked_sub(1);
    let age = before.map(|i| target.saturating_sub(times[i]));
    if let (Some(i), Some(0)) = (before, age) {
        return Pick::Sample(i);
    }
    let after = (until < times.len()).then_some(until);
    let within = |i: usize, distance: i64| {
        if distance <= limits.max_age {
            Pick::Sample(i)
        } else {
            Pick::Invalid
        }
    };
    match (mode, before.zip(age), after) {
        (Interpolation::Previous, Some((i, age)), _) | (Interpolation::Nearest, Some((i, age)), None) => within(i, age),
        (Interpolation::Nearest, None, Some(i)) => within(i, times[i].saturating_sub(target)),
        (Interpolation::Nearest, Some((i, age)), Some(j)) => {
            let ahead = times[j].saturating_sub(target);
            if age <= ahead { within(i, age) } else { within(j, ahead) }
        }
        (_, Some((i, age)), Some(j)) => {
            let gap = times[j].saturating_sub(times[i]);
            if gap <= limits.max_gap {
                Pick::Between {
                    before: i,
                    after: j,
                    weight: age as f64 / gap as f64,
                }
            } else {
                Pick::Invalid
            }
        }
        (_, Some((i, age)), None) if age <= limits.extrapolate => Pick::Sample(i),
        _ => Pick::Invalid,
    }
}

/// What was written for a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Written {
    /// Its value.
    Value,
    /// The fill value: no sample gives it a value.
    Fill,
    /// The fill value: the type can't hold the value.
    Overflow,
}

/// Writes the value of a plain mode at a target, one element for each channel, or `fill` where it has none: `previous`,
/// `nearest` or `linear`.
///
/// `sample` gives the channels of a sample, all of them finite. Where `is_moderate` they are
/// [moderate](Float::all_moderate), too, so that no overflow needs to be looked for. The value is computed in float32,
/// with the weight rounded to it, or of float64 samples in float64.
#[inline(always)]
pub fn write<'a, S: Float, T: Float<Real = S::Real>>(
    picked: Pick,
    sample: impl Fn(usize) -> &'a [S],
    is_moderate: bool,
    fill: T,
    out: &mut [T],
) -> Written {
    let is_finite = match picked {
        Pick::Invalid => {
            out.fill(fill);
            return Written::Fill;
        }
        Pick::Sample(i) => convert(sample(i), out),
        Pick::Between { before, after, weight } => {
            let weight = S::Real::from_f64(weight);
            let is_finite = zip_map(sample(before), sample(after), out, |a, b| a + weight * (b - a));
            (is_moderate && S::DTYPE == T::DTYPE) || is_finite
        }
    };
    if is_finite {
        return Written::Value;
    }
    out.fill(fill);
    Written::Overflow
}

#[cfg(test)]
mod tests {
    use super::*;
    use Interpolation::{Linear, Nearest, Previous};
    use half::f16;

    const TIMES: [i64; 3] = [100, 200, 400];

    #[test]
    fn the_codes_are_the_indices_and_the_names_are_read_back() {
        for (code, mode) in (0..).zip(Interpolation::ALL) {
            assert_eq!(mode.code(), code);
            assert_eq!(serde_yaml::from_str::<Interpolation>(mode.name()).unwrap(), mode);
        }
        assert_eq!(
            Interpolation::names(),
            "previous, nearest, linear, angle, slerp, rot6d, rot6d_columns, rotvec, cubic, pchip"
        );
    }

    /// The watermark, the histories and the kernels know of no more: see the top of this file.
    #[test]
    fn no_mode_needs_more_than_two_samples_on_each_side() {
        for mode in Interpolation::ALL {
            assert!(mode.needs().iter().all(|&samples| samples <= 2), "{mode:?}");
        }
    }

    #[test]
    fn a_value_is_written_in_the_type_that_is_published() {
        let rows = [[0.0f32, 1.0], [1.0, 2.5]];
        let sample = |i: usize| &rows[i][..];
        let between = Pick::Between {
            before: 0,
            after: 1,
            weight: 0.25,
        };
        let mut out = [f16::ZERO; 2];
        assert_eq!(write(between, sample, false, f16::NEG_ONE, &mut out), Written::Value);
        assert_eq!(out.map(f16::to_f32), [0.25, 1.375]);
        assert_eq!(
            write(Pick::Sample(1), sample, false, f16::NEG_ONE, &mut out),
            Written::Value
        );
        assert_eq!(out.map(f16::to_f32), [1.0, 2.5]);
        assert_eq!(
            write(Pick::Invalid, sample, false, f16::NEG_ONE, &mut out),
            Written::Fill
        );
        assert_eq!(out, [f16::NEG_ONE; 2]);
    }

    #[test]
    fn a_value_that_the_type_cannot_hold_is_the_fill_value() {
        let ends = [[7e4f32, 0.0], [f32::MAX, 0.0], [f32::MIN, 0.0]];
        let sample = |i: usize| &ends[i][..];
        let mut out = [f16::ZERO; 2];
        let written = write(Pick::Sample(0), sample, false, f16::ONE, &mut out);
        assert_eq!((written, out), (Written::Overflow, [f16::ONE; 2]));
        let between = Pick::Between {
            before: 1,
            after: 2,
            weight: 0.5,
        };
        let mut out = [0.0f32; 2];
        let written = write(between, sample, false, -1.0, &mut out);
        assert_eq!((written, out), (Written::Overflow, [-1.0; 2]));
        let written = write(Pick::Sample(1), sample, false, -1.0, &mut out);
        assert_eq!((written, out), (Written::Value, [f32::MAX, 0.0]));
    }

    /// Rows in all lanes and in some, held and filled ones among them.
    #[test]
    fn a_value_does_not_depend_on_the_other_rows() {
        let times: Vec<i64> = (0..30).map(|i| i * 10 + i % 7 + 50 * (i / 13)).collect();
        let targets: Vec<i64> = (0..60).map(|i| i * 8 - 20).collect();
        for mode in Interpolation::ALL {
            let width = mode.width().unwrap_or(3);
            let samples: Vec<f32> = (0..30 * width).map(|i| 3.0 * (i as f32 * 0.7).sin()).collect();
            let rule = Rule::new(mode, limits(30, 30, 40));
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

    fn at(target: i64, mode: Interpolation, limits: Limits) -> Pick {
        let until = TIMES.partition_point(|&t| t <= target);
        pick(&TIMES, until, target, mode, &limits)
    }

    fn limits(max_age: i64, max_gap: i64, extrapolate: i64) -> Limits {
        Limits {
            max_age,
            max_gap,
            extrapolate,
        }
    }

    #[test]
    fn a_sample_at_the_target_is_the_value_whatever_the_mode_and_the_limits() {
        for mode in Interpolation::ALL {
            assert_eq!(at(200, mode, limits(0, 0, 0)), Pick::Sample(1));
        }
    }

    #[test]
    fn previous_holds_a_sample_for_max_age() {
        assert_eq!(at(250, Previous, limits(50, 0, 0)), Pick::Sample(1));
        assert_eq!(at(251, Previous, limits(50, 0, 0)), Pick::Invalid);
        assert_eq!(at(99, Previous, Limits::default()), Pick::Invalid);
        assert_eq!(at(i64::MAX, Previous, Limits::default()), Pick::Sample(2));
    }

    #[test]
    fn nearest_takes_the_earlier_one_of_a_tie() {
        assert_eq!(at(300, Nearest, Limits::default()), Pick::Sample(1));
        assert_eq!(at(301, Nearest, Limits::default()), Pick::Sample(2));
        assert_eq!(at(301, Nearest, limits(98, 0, 0)), Pick::Invalid);
        assert_eq!(at(90, Nearest, limits(10, 0, 0)), Pick::Sample(0));
        assert_eq!(at(89, Nearest, limits(10, 0, 0)), Pick::Invalid);
        assert_eq!(at(410, Nearest, limits(10, 0, 0)), Pick::Sample(2));
    }

    #[test]
    fn linear_needs_both_neighbours_no_further_apart_than_max_gap() {
        let between = Pick::Between {
            before: 1,
            after: 2,
            weight: 0.25,
        };
        assert_eq!(at(250, Linear, Limits::default()), between);
        assert_eq!(at(250, Linear, limits(0, 200, 0)), between);
        assert_eq!(at(250, Linear, limits(0, 199, 500)), Pick::Invalid);
        assert_eq!(at(99, Linear, limits(0, 0, 500)), Pick::Invalid);
    }

    #[test]
    fn linear_holds_the_newest_sample_for_extrapolate() {
        assert_eq!(at(405, Linear, limits(0, 0, 5)), Pick::Sample(2));
        assert_eq!(at(406, Linear, limits(0, 0, 5)), Pick::Invalid);
    }

    #[test]
    fn what_is_no_mode_is_refused_with_those_that_are() {
        let refused = |name: &str| serde_yaml::from_str::<Interpolation>(name).unwrap_err().to_string();
        assert!(refused("spline").contains("`spline` is no interpolation (allowed: previous, nearest"));
        let euler = refused("euler");
        assert!(
            euler.contains("`slerp`") && euler.contains("allowed: previous"),
            "{euler}"
        );
        let refused = serde_yaml::from_str::<QuaternionOrder>("zyxw").unwrap_err().to_string();
        assert!(refused.contains("allowed: xyzw, wxyz"), "{refused}");
    }
}
