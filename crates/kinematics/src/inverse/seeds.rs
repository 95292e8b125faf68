//! Initial guesses of inverse kinematics, which cover the ranges of the joints evenly. The same joints always have the same
//! guesses, and each guess is within the limits.

use crate::chain::{Joint, JointKind};
use crate::limits::inwards;
use robocache_geometry::Real;

/// Makes a table of `count` initial guesses, a row of joint values for each. The first is the middle of the limits. The next
/// ones are points of the sequence of Roberts, The unreasonable effectiveness of quasirandom sequences, 2018.
///
/// Guess `s` has joint `i` at `(1/2 + s / g^i) mod 1` of its range, where `g` solves `g^(n + 1) = g + 1`. The middle of a
/// continuous joint is 0, and its range a turn.
pub(super) fn table<R: Real>(joints: &[Joint], count: usize) -> Vec<R> {
    let ratio = 1.0 / root(joints.len());
    let mut alpha = 1.0;
    let mut table = vec![R::default(); count * joints.len()];
    for (i, joint) in joints.iter().enumerate() {
        alpha *= ratio;
        let [lower, upper] = joint.range();
        let [lowest, highest] = inwards::<R>(joint.limits);
        for (s, row) in table.chunks_exact_mut(joints.len()).enumerate() {
            let part = 0.5 + s as f64 * alpha;
            let value = match s {
                0 if joint.kind == JointKind::Continuous => 0.0,
                0 => 0.5 * (lower + upper),
                _ => lower + (part - part.floor()) * (upper - lower),
            };
            let value = R::from_f64(value);
            row[i] = if value < lowest {
                lowest
            } else if value > highest {
                highest
            } else {
                value
            };
        }
    }
    table
}

/// Computes the root of `g^(n + 1) = g + 1` above 1, by Newton's method.
fn root(n: usize) -> f64 {
    (0..64).fold(2.0, |g, _| {
        let power = (0..n).fold(1.0, |power, _| power * g);
        g - (power * g - g - 1.0) / ((n + 1) as f64 * power - 1.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::PI;

    fn joint(kind: JointKind, limits: [f64; 2]) -> Joint {
        Joint {
            name: "joint".to_owned(),
            kind,
            limits,
        }
    }

    #[test]
    fn the_root_of_one_joint_is_the_golden_ratio() {
        assert!((root(1) - (1.0 + 5f64.sqrt()) / 2.0).abs() < 1e-15);
        for n in 1..=16 {
            let g = root(n);
            assert!((g.powi(n as i32 + 1) - g - 1.0).abs() < 1e-14, "{n}");
        }
    }

    #[test]
    fn the_first_start_is_the_middle_and_all_lie_inside() {
        let joints = [
            joint(JointKind::Revolute, [-PI, PI]),
            joint(JointKind::Prismatic, [0.0, 0.04]),
            joint(JointKind::Continuous, [-8192.0, 8192.0]),
        ];
        let table = table::<f32>(&joints, 100);
        assert_eq!(table[..3], [0.0, 0.02, 0.0]);
        for row in table.chunks_exact(3) {
            for (joint, &value) in joints.iter().zip(row) {
                let [lower, upper] = joint.range();
                assert!((lower..=upper + 1e-6).contains(&f64::from(value)), "{row:?}");
            }
            assert!(f64::from(row[0].abs()) <= PI);
        }
    }
}
