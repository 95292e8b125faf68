//! Sine and cosine of an angle in turns, the same bits on every machine.
//!
//! `f64::sin` is the platform's libm and may differ in the last bit from one to the next. These use only
//! additions and multiplications, which IEEE 754 fixes, and quarter turns are exact: the sine of half a turn
//! is 0, not 1.2e-16.

use std::f64::consts::TAU;

/// `(sin, cos)` of `turns` full turns, to within 3e-16.
///
/// Taylor's polynomials on an eighth of a turn to either side of the nearest quarter; what they leave out is
/// below 1e-16 there.
pub fn sin_cos(turns: f64) -> (f64, f64) {
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

/// Where `t_ns` lies in a cycle of `period_ns`, in turns, in `[0, 1)`.
///
/// The remainder is taken in integers, so a stamp of 1.7e18 ns loses nothing.
pub fn phase(t_ns: i64, period_ns: i64) -> f64 {
    t_ns.rem_euclid(period_ns) as f64 / period_ns as f64
}

/// The polynomial with `coefficients` (highest power first) at `x`.
fn horner(x: f64, coefficients: &[f64]) -> f64 {
    coefficients.iter().fold(0.0, |sum, c| sum * x + c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quarters_are_exact() {
        assert_eq!(sin_cos(0.0), (0.0, 1.0));
        assert_eq!(sin_cos(0.25), (1.0, 0.0));
        assert_eq!(sin_cos(0.5), (0.0, -1.0));
        assert_eq!(sin_cos(0.75), (-1.0, 0.0));
        assert_eq!(sin_cos(-0.25), (-1.0, 0.0));
        assert_eq!(sin_cos(7.25), (1.0, 0.0));
    }

    #[test]
    fn agrees_with_std() {
        for i in -50_000..50_000 {
            let turns = f64::from(i) / 99_991.0;
            let (sin, cos) = sin_cos(turns);
            let (s, c) = (turns * TAU).sin_cos();
            // std sees an argument that was rounded already, by up to 3.4e-16 of pi
            assert!((sin - s).abs() < 7e-16 && (cos - c).abs() < 7e-16, "{turns}");
        }
    }

    #[test]
    fn phase_keeps_nanoseconds_at_epoch_sized_stamps() {
        let t = 1_700_000_000_000_000_000;
        assert_eq!(phase(t + 1, 1_000_000_000), 1e-9);
        assert_eq!(phase(-1, 4), 0.75);
    }
}
