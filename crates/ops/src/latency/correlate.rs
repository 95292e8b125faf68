//! Arithmetic of the search for a lag between two channels: resampling, rate of change, cross-correlation, peaks.
//!
//! A time step at which the value of a channel is not known is NaN in `levels` and 0 in `speed`, so it adds nothing
//! to a correlation.

use super::Channel;

/// Returns the rate of change of a channel at `steps` times from `start` on, `step_ns` apart: the value `half` steps later
/// minus the value `half` steps earlier. It is scaled to mean 0 and variance 1 over the steps where it is known, and is 0 at
/// all other steps.
pub(super) fn speed(of: Channel<'_>, start: i64, steps: usize, step_ns: i64, half: i64, max_gap_ns: i64) -> Vec<f32> {
    let levels = levels(of, start, steps, step_ns, max_gap_ns);
    let half = half as usize;
    let difference = |i: usize| match (i.checked_sub(half), levels.get(i + half)) {
        // Known if the levels at both ends are.
        (Some(before), Some(after)) => after - levels[before],
        _ => f64::NAN,
    };
    let speeds: Vec<f64> = (0..steps).map(difference).collect();
    let known = || speeds.iter().filter(|speed| speed.is_finite());
    let count = known().count().max(1) as f64;
    let mean = known().sum::<f64>() / count;
    let deviation = (known().map(|speed| (speed - mean).powi(2)).sum::<f64>() / count).sqrt();
    let scale = if deviation > 0.0 { 1.0 / deviation } else { 0.0 };
    let normal = |speed: &f64| if speed.is_finite() { (speed - mean) * scale } else { 0.0 };
    speeds.iter().map(|speed| normal(speed) as f32).collect()
}

/// Returns the value of a channel at `steps` times from `start` on, `step_ns` apart, interpolated linearly. It is NaN if the
/// samples around a time are further apart than `max_gap_ns`.
fn levels(of: Channel<'_>, start: i64, steps: usize, step_ns: i64, max_gap_ns: i64) -> Vec<f64> {
    let samples = of.times_ns.iter().copied().zip(of.values.iter().copied());
    let mut samples: Vec<(i64, f64)> = samples.filter(|(_, value)| value.is_finite()).collect();
    // If two samples have the same time, the later one counts, on both sides of a step.
    samples.dedup_by(|later, kept| {
        let is_repeated = later.0 == kept.0;
        kept.1 = if is_repeated { later.1 } else { kept.1 };
        is_repeated
    });
    let mut right = 0;
    let level = |step: usize| {
        // Steps end where both channels do, so the time does not overflow.
        let time = start.saturating_add(step_ns.saturating_mul(step as i64));
        while right < samples.len() && samples[right].0 <= time {
            right += 1;
        }
        let (Some(&(left_ns, left)), next) = (right.checked_sub(1).and_then(|at| samples.get(at)), samples.get(right))
        else {
            return f64::NAN;
        };
        if left_ns == time {
            return left;
        }
        match next {
            Some(&(right_ns, value)) if right_ns.abs_diff(left_ns) <= max_gap_ns.unsigned_abs() => {
                let weight = (time - left_ns) as f64 / (right_ns - left_ns) as f64;
                left + weight * (value - left)
            }
            _ => f64::NAN,
        }
    };
    (0..steps).map(level).collect()
}

/// Returns the normalized cross-correlation of two signals of mean 0, for each lag in `first..=last`. At a lag, `a[i]` is
/// paired with `b[i + lag]`. The sum of the products is divided by the root of the product of both energies, over the
/// steps that overlap.
pub fn correlation(a: &[f32], b: &[f32], first: i64, last: i64) -> Vec<f64> {
    let energy = |signal: &[f32]| {
        let sums = signal.iter().scan(0.0f64, |sum, &value| {
            *sum += f64::from(value) * f64::from(value);
            Some(*sum)
        });
        std::iter::once(0.0).chain(sums).collect::<Vec<f64>>()
    };
    let (energy_a, energy_b) = (energy(a), energy(b));
    let at = |lag: i64| {
        let shift = lag.unsigned_abs() as usize;
        let (from_a, from_b) = if lag < 0 { (shift, 0) } else { (0, shift) };
        let steps = a.len().saturating_sub(from_a).min(b.len().saturating_sub(from_b));
        if steps == 0 {
            return 0.0;
        }
        let (a, b) = (&a[from_a..from_a + steps], &b[from_b..from_b + steps]);
        let energies = (energy_a[from_a + steps] - energy_a[from_a]) * (energy_b[from_b + steps] - energy_b[from_b]);
        if energies > 0.0 {
            dot(a, b) / energies.sqrt()
        } else {
            0.0
        }
    };
    (first..=last).map(at).collect()
}

/// Returns the dot product of two signals: float32 sums in eight lanes over blocks of 1024 values, which are added in float64.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut sum = 0.0;
    for (a, b) in a.chunks(1024).zip(b.chunks(1024)) {
        let mut lanes = [0f32; 8];
        let (a8, b8) = (a.chunks_exact(8), b.chunks_exact(8));
        let rest = a8.remainder().iter().zip(b8.remainder());
        sum += rest.map(|(a, b)| f64::from(a * b)).sum::<f64>();
        for (a, b) in a8.zip(b8) {
            for lane in 0..8 {
                lanes[lane] += a[lane] * b[lane];
            }
        }
        sum += lanes.iter().map(|&lane| f64::from(lane)).sum::<f64>();
    }
    sum
}

/// Returns the standard deviation that chance gives the correlation of two unrelated signals. By Bartlett's formula, its square
/// is the sum over the lags of the products of both autocorrelations, divided by the number of steps.
pub(super) fn chance(a: &[f32], b: &[f32]) -> f64 {
    let steps = a.len().min(b.len());
    // Up to a lag of 1000 steps; further away there is nothing but noise.
    let most = (steps / 8).min(1000) as i64;
    let (of_a, of_b) = (correlation(a, a, 0, most), correlation(b, b, 0, most));
    let products: f64 = of_a.iter().zip(&of_b).skip(1).map(|(a, b)| a * b).sum();
    let known = |signal: &[f32]| signal.iter().filter(|value| **value != 0.0).count();
    let known = known(a).min(known(b)).max(1);
    ((1.0 + 2.0 * products).max(1.0) / known as f64).sqrt()
}

/// Returns the position and height of the vertex of the parabola through `(-1, before)`, `(0, at)` and `(1, after)`. The
/// position is within -0.5 to 0.5.
pub(super) fn vertex(before: f64, at: f64, after: f64) -> (f64, f64) {
    let bend = before - 2.0 * at + after;
    if bend >= 0.0 {
        return (0.0, at);
    }
    let place = (0.5 * (before - after) / bend).clamp(-0.5, 0.5);
    (place, at - 0.25 * (before - after) * place)
}

/// Returns the index of the highest local maximum outside the main peak at index `best`; `None` if there is none. The main peak
/// ends on each side where the values first fall to half of the value at `best`.
pub(super) fn second_peak(values: &[f64], best: usize) -> Option<usize> {
    let half = 0.5 * values[best];
    let right = values[best..].iter().position(|&value| value <= half).map(|n| best + n);
    let left = values[..best].iter().rposition(|&value| value <= half);
    let outside = left
        .map_or(0..0, |left| 0..left)
        .chain(right.map_or(0..0, |right| right..values.len()));
    let is_peak = |&i: &usize| i > 0 && i + 1 < values.len() && values[i] > values[i - 1] && values[i] >= values[i + 1];
    outside.filter(is_peak).max_by(|&a, &b| values[a].total_cmp(&values[b]))
}
