//! The interpolation modes: how the value at a target is made from the samples around it.
//!
//! All that the CPU and the configuration know of a mode stands here: its name, its code in the kernels, the limits that
//! it uses, which samples it needs, which of them it [picks](pick) for a target, and what it [makes](write()) of them.
//! `kernels/time.cuh` says the same to a device, bit for bit, and `tests/layout.py` holds its codes against these.
//!
//! **A new mode** touches
//! 1. this file: a variant of [`Interpolation`], its `Facts`, and where its meaning is new an arm of [`pick`], of
//!    `hold` (the value at a sample) and of `between`;
//! 2. `kernels/time.cuh`: its code, and the same arms of `pick` and `blend`; `make kernels` then compiles them;
//! 3. `tests/common/resample.rs` and `tests/contract/oracle.rs`: what it should give, by a slow way;
//! 4. the user's documentation of the modes.
//!
//! A mode that needs two samples on one side of a target has to be waited for, and its samples kept: the watermark of
//! [`Timeline`](crate::ops::align::Timeline), [`History::forget_before`](crate::stream::History::forget_before) and
//! `Bracket` of `kernels/time.cuh` know of one on each side. A test of this file says so.

use crate::device::{Float, Real, convert, zip_map};
use serde::{Deserialize, Deserializer, de};

/// How a value between samples is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Interpolation {
    /// The newest sample at or before the target.
    Previous = 0,
    /// The nearer sample; a tie takes the earlier one.
    Nearest = 1,
    /// The straight line between the two samples around the target.
    Linear = 2,
}

/// What is known of a mode besides its meaning.
struct Facts {
    name: &'static str,
    /// The keys of the limits that it uses.
    limits: &'static [&'static str],
    /// How many samples it needs at or before a target, and how many after it.
    needs: [usize; 2],
}

/// Modes of later versions.
const LATER: [&str; 4] = ["angle", "slerp", "cubic", "pchip"];

impl Interpolation {
    /// Every mode, in the order of their codes.
    pub const ALL: [Self; 3] = [Self::Previous, Self::Nearest, Self::Linear];

    const fn facts(self) -> Facts {
        match self {
            Self::Previous => Facts {
                name: "previous",
                limits: &["max_age_ms"],
                needs: [1, 0],
            },
            Self::Nearest => Facts {
                name: "nearest",
                limits: &["max_age_ms"],
                needs: [1, 1],
            },
            Self::Linear => Facts {
                name: "linear",
                limits: &["max_gap_ms", "extrapolate_ms"],
                needs: [1, 1],
            },
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

    /// Writes the value at a sample's own time, or where that sample is held. Returns whether it is finite.
    #[inline(always)]
    fn hold<S: Float, T: Float<Real = S::Real>>(self, sample: &[S], out: &mut [T]) -> bool {
        match self {
            Self::Previous | Self::Nearest | Self::Linear => convert(sample, out),
        }
    }

    /// Writes the value between two samples, with the weight of the later one. Returns whether it is finite.
    #[inline(always)]
    fn between<S, T>(self, before: &[S], after: &[S], weight: S::Real, out: &mut [T]) -> bool
    where
        S: Float,
        T: Float<Real = S::Real>,
    {
        match self {
            // The first two are never between samples.
            Self::Previous | Self::Nearest | Self::Linear => zip_map(before, after, out, |a, b| a + weight * (b - a)),
        }
    }
}

impl<'de> Deserialize<'de> for Interpolation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if let Some(mode) = Self::ALL.into_iter().find(|mode| mode.name() == name) {
            return Ok(mode);
        }
        let allowed = Self::names();
        Err(de::Error::custom(if LATER.contains(&name.as_str()) {
            format!("interpolation `{name}` is not supported yet (allowed: {allowed})")
        } else {
            format!("`{name}` is no interpolation (allowed: {allowed})")
        }))
    }
}

/// How far from a target its samples may be, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `previous` and `nearest`: the largest distance to the sample.
    pub max_age: i64,
    /// `linear`: the largest distance between the two samples.
    pub max_gap: i64,
    /// `linear` after the newest sample: for how long that one is held.
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
    /// A value between two samples: for `linear`, `before + weight * (after - before)`.
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
        (Interpolation::Linear, Some((i, age)), Some(j)) => {
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
        (Interpolation::Linear, Some((i, age)), None) if age <= limits.extrapolate => Pick::Sample(i),
        _ => Pick::Invalid,
    }
}

/// What was written for a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Its value.
    Value,
    /// The fill value: no sample gives it a value.
    Fill,
    /// The fill value: the type can't hold the value.
    Overflow,
}

/// Writes the value at a target, one element for each channel, or `fill` where it has none.
///
/// `sample` gives the channels of a sample, all of them finite. Where `is_moderate` they are
/// [moderate](Float::all_moderate), too, so that no overflow needs to be looked for. The value is computed in float32,
/// with the weight rounded to it, or of float64 samples in float64.
#[inline(always)]
pub fn write<'a, S: Float, T: Float<Real = S::Real>>(
    mode: Interpolation,
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
        Pick::Sample(i) => mode.hold(sample(i), out),
        Pick::Between { before, after, weight } => {
            let is_finite = mode.between(sample(before), sample(after), S::Real::from_f64(weight), out);
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
        assert_eq!(Interpolation::names(), "previous, nearest, linear");
    }

    /// The watermark, the histories and the kernels' brackets know of no more: see the top of this file.
    #[test]
    fn no_mode_needs_more_than_one_sample_on_each_side() {
        for mode in Interpolation::ALL {
            assert!(mode.needs().iter().all(|&samples| samples <= 1), "{mode:?}");
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
        assert_eq!(
            write(Linear, between, sample, false, f16::NEG_ONE, &mut out),
            Written::Value
        );
        assert_eq!(out.map(f16::to_f32), [0.25, 1.375]);
        assert_eq!(
            write(Nearest, Pick::Sample(1), sample, false, f16::NEG_ONE, &mut out),
            Written::Value
        );
        assert_eq!(out.map(f16::to_f32), [1.0, 2.5]);
        assert_eq!(
            write(Linear, Pick::Invalid, sample, false, f16::NEG_ONE, &mut out),
            Written::Fill
        );
        assert_eq!(out, [f16::NEG_ONE; 2]);
    }

    #[test]
    fn a_value_that_the_type_cannot_hold_is_the_fill_value() {
        let ends = [[7e4f32, 0.0], [f32::MAX, 0.0], [f32::MIN, 0.0]];
        let sample = |i: usize| &ends[i][..];
        let mut out = [f16::ZERO; 2];
        let written = write(Previous, Pick::Sample(0), sample, false, f16::ONE, &mut out);
        assert_eq!((written, out), (Written::Overflow, [f16::ONE; 2]));
        let between = Pick::Between {
            before: 1,
            after: 2,
            weight: 0.5,
        };
        let mut out = [0.0f32; 2];
        let written = write(Linear, between, sample, false, -1.0, &mut out);
        assert_eq!((written, out), (Written::Overflow, [-1.0; 2]));
        let written = write(Previous, Pick::Sample(1), sample, false, -1.0, &mut out);
        assert_eq!((written, out), (Written::Value, [f32::MAX, 0.0]));
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
    fn modes_of_later_versions_are_refused_as_such() {
        for name in LATER {
            let refused = serde_yaml::from_str::<Interpolation>(name).unwrap_err().to_string();
            assert!(refused.contains("not supported yet"), "{refused}");
        }
        assert!(
            serde_yaml::from_str::<Interpolation>("spline")
                .unwrap_err()
                .to_string()
                .contains("allowed: previous")
        );
    }
}
