//! Helpers for the tests of all operations.

#[path = "../common/kind.rs"]
mod kind;
#[path = "../common/random.rs"]
mod random;

pub use kind::kind;
pub use random::Random;
use robocache::device::gpu::{Gpu, device_count};
use robocache::time::Interpolation;
use std::collections::BTreeSet;
use std::io::Write;
use std::ops::Range;
use std::sync::Mutex;

/// Writes a line to stderr, whether the test passes or not.
pub fn say(line: &str) {
    // Not `eprintln!`, which the test harness captures.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Opens the first device. Without a device, prints a line and returns `None`.
pub fn gpu() -> Option<Gpu> {
    match device_count(kind()) {
        Ok(_) => Some(Gpu::open(kind(), 0).unwrap()),
        Err(why) => {
            static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
            let test = std::thread::current().name().unwrap_or("a test").to_owned();
            if SAID.lock().unwrap().insert(test.clone()) {
                say(&format!("gpu: skipped {test}: {why}"));
            }
            None
        }
    }
}

/// Prints how many cases a test ran on the device.
pub fn ran(gpu: &Gpu, what: &str, cases: usize) {
    say(&format!(
        "gpu: {what}: {cases} cases on {} ({})",
        gpu.name(),
        gpu.device()
    ));
}

/// Number of random cases to run: `ROBOCACHE_GPU_CASES`, else `few`.
pub fn random_cases(few: usize) -> usize {
    match std::env::var("ROBOCACHE_GPU_CASES") {
        Ok(text) => text.parse().unwrap(),
        Err(_) => few,
    }
}

impl Random {
    /// Draws groups that cover the `dim` channels of a sample, one of them of the mode `with`. If that mode is plain, all modes are
    /// plain, since these have kernels of their own.
    pub fn groups(&mut self, dim: usize, with: Option<Interpolation>) -> Vec<(Range<usize>, Interpolation)> {
        let mut groups = Vec::new();
        let mut from = 0;
        let width = with.map_or(0, |mode| mode.width().unwrap_or(1));
        let mut before = with.map(|_| self.below(dim - width + 1));
        while from < dim {
            let end = before.unwrap_or(dim);
            let mode = match with {
                Some(with) if before == Some(from) => {
                    before = None;
                    with
                }
                _ => self.mode(end - from, with.is_some_and(is_plain)),
            };
            let end = if before.is_none() { dim } else { end };
            let to = match mode.width() {
                Some(width) => from + width,
                None if self.once_in(2) => end,
                None => from + 1 + self.below(end - from),
            };
            groups.push((from..to, mode));
            from = to;
        }
        groups
    }

    /// Draws an interpolation mode that devices compute, for a group of at most `channels` channels.
    fn mode(&mut self, channels: usize, plain_only: bool) -> Interpolation {
        let fits = |mode: &Interpolation| {
            mode.width().is_none_or(|width| width <= channels) && (is_plain(*mode) || !plain_only)
        };
        let modes: Vec<Interpolation> = modes().into_iter().filter(fits).collect();
        self.pick(&modes)
    }

    /// Draws an angle of a few turns or near half a turn, or a component of a rotation.
    fn special(&mut self) -> f64 {
        use std::f64::consts::PI;
        match self.below(8) {
            0 => PI * (self.below(9) as f64 - 4.0),
            1 => f64::from((PI as f32).next_up()) * self.pick(&[1.0, -1.0]),
            2 => f64::from((PI as f32).next_down()) * self.pick(&[1.0, -1.0]),
            3 => self.signed() * 20.0,
            4 => self.pick(&[0.0, -0.0, 1.0, -1.0, 0.5, -0.5]),
            5 => self.signed() * 2e-6,
            _ => self.signed(),
        }
    }

    /// Sets channels of a group to values that are difficult for its mode. The channels `before` are those of the sample before it.
    pub fn channels(&mut self, mode: Interpolation, before: Option<&[f64]>, channels: &mut [f64]) {
        if mode.is_rotation() {
            return self.rotation(before, channels);
        }
        for (i, channel) in channels.iter_mut().enumerate() {
            match (mode, before) {
                (Interpolation::Angle, _) => *channel = self.special(),
                // The curve is level between equal values.
                (Interpolation::Cubic | Interpolation::Pchip, Some(before)) if self.once_in(4) => *channel = before[i],
                // A device interpolates a single sample's value between that sample and itself, which may lose the sign.
                _ if self.once_in(16) => *channel = -0.0,
                _ => {}
            }
        }
    }

    /// Sets the channels to a difficult rotation: half a turn from the one before, almost the same, or not a rotation at all.
    fn rotation(&mut self, before: Option<&[f64]>, channels: &mut [f64]) {
        for channel in channels.iter_mut() {
            *channel = self.signed();
        }
        match self.below(12) {
            0 => channels.fill(self.pick(&[0.0, 1e-7, 5e-7, 3e-6])),
            1 => channels.iter_mut().for_each(|channel| *channel *= 1e-6),
            2 => channels.iter_mut().for_each(|channel| *channel *= 1e20),
            3 => channels.iter_mut().for_each(|channel| *channel = channel.round()),
            4..=6 => {
                // The quaternion before or its negative, which is the same rotation, with or without noise.
                let Some(before) = before else { return };
                let (scale, noise) = (self.pick(&[1.0, -1.0]), self.pick(&[0.0, 1e-4]));
                for (to, from) in channels.iter_mut().zip(before) {
                    *to = scale * from + noise * *to;
                }
            }
            7 => {
                let Some(before) = before.filter(|before| before.len() == 4) else {
                    return;
                };
                channels.copy_from_slice(&[-before[1], before[0], -before[3], before[2]]);
            }
            _ => {}
        }
    }

    /// True in one of `times` calls on average.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Draws a number in -1..1.
    pub fn signed(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// True if a mode takes one sample, or two with one weight, channel by channel.
fn is_plain(mode: Interpolation) -> bool {
    use Interpolation::{Linear, Nearest, Previous};
    matches!(mode, Previous | Nearest | Linear)
}

/// The interpolation modes that devices compute.
pub fn modes() -> Vec<Interpolation> {
    Interpolation::ALL.into_iter().filter(|mode| mode.is_on_gpu()).collect()
}

/// Defines a test `check(mode)` for each mode, so that they run side by side.
macro_rules! for_each_mode {
    ($check:ident) => {
        $crate::support::for_each_mode!(
            $check: previous Previous, nearest Nearest, linear Linear, angle Angle, slerp Slerp, rot6d Rot6d,
            rot6d_columns Rot6dColumns, cubic Cubic, pchip Pchip
        );
    };
    ($check:ident: $($name:ident $mode:ident),*) => {
        $(
            #[test]
            fn $name() {
                super::$check(robocache::time::Interpolation::$mode);
            }
        )*

        #[test]
        fn no_mode_is_missing() {
            assert_eq!([$(robocache::time::Interpolation::$mode),*].as_slice(), $crate::support::modes());
        }
    };
}
pub(crate) use for_each_mode;
