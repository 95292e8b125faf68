//! Random rows of joint values, the same in every run.

use robocache_kinematics::{Chain, JointKind};

/// Random number generator (SplitMix64), which holds its state. Numbers are from 0 to 1.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Draws a row of joints, uniform within their limits.
    pub fn joints(&mut self, chain: &Chain) -> Vec<f64> {
        let joints = chain.joints().iter();
        let value = joints.map(|joint| {
            let [lower, upper] = match joint.kind {
                JointKind::Continuous => [-std::f64::consts::PI, std::f64::consts::PI],
                JointKind::Revolute | JointKind::Prismatic => joint.limits,
            };
            lower + self.next() * (upper - lower)
        });
        value.collect()
    }
}
