//! Sine, cosine and arc tangent with the same bits on every machine.
//!
//! `f64::sin` is the platform's and may differ in the last bit from one machine to the next. The functions here use only additions,
//! multiplications, divisions and square roots, which IEEE 754 fixes.

use std::f64::consts::TAU;

/// Returns the sine and cosine of an angle, radians. They are power series at an eighth of the angle, to which the double-angle
/// formulas are applied three times.
pub fn sin_cos(angle: f64) -> (f64, f64) {
    let x = (angle - TAU * (angle / TAU).round_ties_even()) / 8.0;
    let square = x * x;
    let nested = |from: f64| {
        let terms = (0..9).rev().map(|i| from + 2.0 * f64::from(i));
        terms.fold(1.0, |sum, n| 1.0 - square / (n * (n + 1.0)) * sum)
    };
    let (mut sine, mut cosine) = (x * nested(2.0), nested(1.0));
    for _ in 0..3 {
        (sine, cosine) = (2.0 * sine * cosine, (cosine - sine) * (cosine + sine));
    }
    (sine, cosine)
}

/// Returns the angle in [0, pi / 2], radians, with this sine and cosine. It is eight times the power series of the arc tangent
/// at an eighth of the angle.
pub fn arc(sine: f64, cosine: f64) -> f64 {
    let mut tangent = sine / (1.0 + cosine);
    for _ in 0..2 {
        tangent /= 1.0 + (1.0 + tangent * tangent).sqrt();
    }
    let square = tangent * tangent;
    let terms = (0..13).rev().map(|i| 1.0 / f64::from(2 * i + 1));
    8.0 * tangent * terms.fold(0.0, |sum, term| term - square * sum)
}

/// `(sin, cos)` of `turns` full turns, to within 3e-16.
///
/// Quarter turns are exact: the sine of half a turn is 0, not 1.2e-16. Sine and cosine are Taylor polynomials of the distance to
/// the nearest quarter turn, at most an eighth of a turn. The omitted terms are below 1e-16 there.
pub fn sin_cos_of_turns(turns: f64) -> (f64, f64) {
    let quarter = (turns * 4.0).round();
    let a = (turns - quarter * 0.25) * TAU;
    let z = a * a;
    let sin = a * horner(
        z,
        &[
            -1.0 / 1_307_674_368_000.0,
            1.0 / 6_227_020_800.0,
            -1.0 / 39_916_800.0,
            1.0 / 362_880.0,
            -1.0 / 5_040.0,
            1.0 / 120.0,
            -1.0 / 6.0,
            1.0,
        ],
    );
    let cos = horner(
        z,
        &[
            1.0 / 20_922_789_888_000.0,
            -1.0 / 87_178_291_200.0,
            1.0 / 479_001_600.0,
            -1.0 / 3_628_800.0,
            1.0 / 40_320.0,
            -1.0 / 720.0,
            1.0 / 24.0,
            -0.5,
            1.0,
        ],
    );
    match quarter.rem_euclid(4.0) as u8 {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    }
}

/// Evaluates the polynomial with `coefficients`, the highest power first, at `x`.
fn horner(x: f64, coefficients: &[f64]) -> f64 {
    coefficients.iter().fold(0.0, |sum, c| sum * x + c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_are_those_of_the_functions() {
        for i in -4000..4000 {
            let angle = f64::from(i) * 0.01;
            let (sine, cosine) = sin_cos(angle);
            assert!(
                (sine - angle.sin()).abs() < 1e-13 && (cosine - angle.cos()).abs() < 1e-13,
                "{angle}"
            );
        }
        for i in 0..=1000 {
            let angle = f64::from(i) * std::f64::consts::FRAC_PI_2 / 1000.0;
            assert!((arc(angle.sin(), angle.cos()) - angle).abs() < 1e-14, "{angle}");
        }
    }

    #[test]
    fn quarters_are_exact() {
        assert_eq!(sin_cos_of_turns(0.0), (0.0, 1.0));
        assert_eq!(sin_cos_of_turns(0.25), (1.0, 0.0));
        assert_eq!(sin_cos_of_turns(0.5), (0.0, -1.0));
        assert_eq!(sin_cos_of_turns(0.75), (-1.0, 0.0));
        assert_eq!(sin_cos_of_turns(-0.25), (-1.0, 0.0));
        assert_eq!(sin_cos_of_turns(7.25), (1.0, 0.0));
    }

    #[test]
    fn agrees_with_std() {
        for i in -50_000..50_000 {
            let turns = f64::from(i) / 99_991.0;
            let (sin, cos) = sin_cos_of_turns(turns);
            let (s, c) = (turns * TAU).sin_cos();
            // std sees an argument that was rounded already, by up to 3.4e-16 of pi
            assert!((sin - s).abs() < 7e-16 && (cos - c).abs() < 7e-16, "{turns}");
        }
    }
}
