//! A small linear congruential generator, so that every run has the same inputs.

/// State of a generator of random numbers.
pub struct Random(u64);

impl Random {
    /// Makes a generator; equal seeds give equal numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next random number in 0..2^31.
    pub fn bits(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// Returns the next random number in 0..1.
    pub fn unit(&mut self) -> f32 {
        self.bits() as f32 / (1u64 << 31) as f32
    }

    /// Returns the next random integer in 0..`end`.
    pub fn below(&mut self, end: i64) -> i64 {
        ((self.bits() as i128 * end as i128) >> 31) as i64
    }
}
