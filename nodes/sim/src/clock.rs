//! Times of the samples of one simulated sensor: capture, stamp and publication.
//!
//! A sample's times depend only on the config, the seed and the sample's number.

use crate::config::StreamConfig;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Capture time, stamp and publication time of one sample, ns since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// True time of the capture, ns: the argument of the functions in [`crate::signals`].
    pub true_ns: i64,
    /// Time of the capture by the sensor's clock, ns.
    pub stamp_ns: i64,
    /// True time of the publication, ns.
    pub publish_ns: i64,
}

/// Simulated clock and network of one sensor, which give each sample its times.
///
/// Every sample draws the same number of random values, lost or not. So a change of the losses does not change the times of the
/// other samples.
pub struct StreamClock {
    rng: ChaCha8Rng,
    start_ns: i64,
    period_ns: i64,
    offset_ns: i64,
    jitter: Spread,
    latency_ns: i64,
    latency_jitter: Spread,
    drop_rate: f64,
    /// Intervals in which every sample is lost, start and end in ns since the robot's start.
    dropouts: Vec<[i64; 2]>,
    /// True if each message is published only after the message before it.
    in_order: bool,
    last_publish_ns: i64,
    next: i64,
}

impl StreamClock {
    /// Makes a clock whose first sample is nominally at `start_ns`. Its random numbers come from the stream `rng_stream` of a
    /// generator that is seeded with `seed`.
    ///
    /// `config` must have passed [`crate::config::SimConfig::validate`].
    pub fn new(config: &StreamConfig, seed: u64, rng_stream: u64, start_ns: i64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(rng_stream);
        let s_ns = |s: f64| (s * 1e9).round() as i64;
        Self {
            rng,
            start_ns,
            period_ns: config.period_ns(),
            offset_ns: ms_ns(config.clock_offset_ms),
            jitter: Spread::new(config.jitter_ms),
            latency_ns: ms_ns(config.latency_ms),
            latency_jitter: Spread::new(config.latency_jitter_ms),
            drop_rate: config.drop_rate,
            dropouts: config
                .dropouts
                .iter()
                .map(|dropout| [s_ns(dropout.start_s), s_ns(dropout.start_s + dropout.duration_s)])
                .collect(),
            // The configuration promises that messages overtake each other only if the jitter is more than a period.
            in_order: ms_ns(config.latency_jitter_ms) <= config.period_ns(),
            last_publish_ns: i64::MIN,
            next: 0,
        }
    }

    /// Nominal capture time of the next sample, ns: the true time without jitter.
    pub fn nominal_ns(&self) -> i64 {
        self.start_ns + self.next * self.period_ns
    }

    /// Earliest time at which the next sample, or any after it, can be published, ns.
    pub fn earliest_publish_ns(&self) -> i64 {
        self.nominal_ns() - self.jitter.limit_ns() + (self.latency_ns - self.latency_jitter.limit_ns()).max(0)
    }

    /// Upper bound of the number of samples that are captured and not yet published. It holds if a sample is captured only once
    /// [`Self::earliest_publish_ns`] is reached.
    pub fn in_flight_max(&self) -> usize {
        let spread = 2 * (self.jitter.limit_ns() + self.latency_jitter.limit_ns());
        (spread / self.period_ns) as usize + 2
    }

    /// Captures the next sample, and returns its times; `None` if the sample is lost.
    pub fn capture(&mut self) -> Option<Times> {
        let nominal_ns = self.nominal_ns();
        self.next += 1;
        let true_ns = nominal_ns + self.jitter.draw(&mut self.rng);
        let latency_ns = self.latency_ns + self.latency_jitter.draw(&mut self.rng);
        let lost = uniform(&mut self.rng) < self.drop_rate;
        let since_start = nominal_ns - self.start_ns;
        if lost
            || self
                .dropouts
                .iter()
                .any(|&[from, to]| from <= since_start && since_start < to)
        {
            return None;
        }
        let mut publish_ns = true_ns + latency_ns.max(0);
        if self.in_order {
            publish_ns = publish_ns.max(self.last_publish_ns);
            self.last_publish_ns = publish_ns;
        }
        Some(Times {
            true_ns,
            stamp_ns: true_ns + self.offset_ns,
            publish_ns,
        })
    }
}

/// A bell-shaped distribution about 0: the sum of three uniform ones over `-std..std`.
///
/// The standard deviation is exactly `std`, and no value is further than three deviations from 0. Unlike a truncated normal
/// distribution it needs no logarithm, which differs between platforms.
struct Spread {
    std_ns: f64,
}

impl Spread {
    fn new(std_ms: f64) -> Self {
        Self { std_ns: std_ms * 1e6 }
    }

    fn limit_ns(&self) -> i64 {
        (3.0 * self.std_ns).round() as i64
    }

    fn draw(&self, rng: &mut ChaCha8Rng) -> i64 {
        let sum: f64 = (0..3).map(|_| 2.0 * uniform(rng) - 1.0).sum();
        (self.std_ns * sum).round() as i64
    }
}

fn ms_ns(ms: f64) -> i64 {
    (ms * 1e6).round() as i64
}

/// Draws a number uniformly from `[0, 1)`.
fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Dropout;

    const START: i64 = 1_700_000_000_000_000_000;
    const MS: i64 = 1_000_000;

    fn take(config: &StreamConfig, n: usize) -> Vec<Option<Times>> {
        let mut clock = StreamClock::new(config, 7, 0, START);
        (0..n).map(|_| clock.capture()).collect()
    }

    #[test]
    fn an_ideal_sensor_is_a_grid() {
        for (k, times) in take(&StreamConfig::ideal(1_000.0), 100).into_iter().enumerate() {
            let at = START + k as i64 * MS;
            assert_eq!(
                times,
                Some(Times {
                    true_ns: at,
                    stamp_ns: at,
                    publish_ns: at
                })
            );
        }
    }

    #[test]
    fn offset_moves_the_stamp_and_latency_the_publishing() {
        let config = StreamConfig {
            clock_offset_ms: -2.5,
            latency_ms: 40.0,
            ..StreamConfig::ideal(10.0)
        };
        let second = take(&config, 2)[1].expect("not lost");
        let true_ns = START + 100 * MS;
        assert_eq!(
            second,
            Times {
                true_ns,
                stamp_ns: true_ns - 2_500_000,
                publish_ns: true_ns + 40 * MS
            }
        );
    }

    #[test]
    fn jitter_has_its_deviation_and_its_limit_and_stamps_increase() {
        // the most that is allowed: three deviations are just short of half a period
        let config = StreamConfig {
            jitter_ms: 0.1666,
            ..StreamConfig::ideal(1_000.0)
        };
        let times: Vec<_> = take(&config, 50_000).into_iter().flatten().collect();
        assert!(times.is_sorted_by(|a, b| a.stamp_ns < b.stamp_ns));
        let off: Vec<_> = times
            .iter()
            .enumerate()
            .map(|(k, t)| (t.true_ns - START - k as i64 * MS) as f64)
            .collect();
        let mean = off.iter().sum::<f64>() / off.len() as f64;
        let std = (off.iter().map(|v| v * v).sum::<f64>() / off.len() as f64).sqrt();
        assert!(mean.abs() < 4.0 * 166_600.0 / (50_000f64).sqrt(), "{mean}");
        assert!((std / 166_600.0 - 1.0).abs() < 0.02, "{std}");
        assert!(off.iter().all(|v| v.abs() <= 3.0 * 166_600.0));
        assert!(off.iter().any(|v| v.abs() > 2.0 * 166_600.0));
    }

    #[test]
    fn latency_jitter_up_to_the_period_keeps_the_order_and_beyond_it_does_not() {
        let order = |latency_jitter_ms| {
            let config = StreamConfig {
                latency_ms: 10.0,
                latency_jitter_ms,
                ..StreamConfig::ideal(1_000.0)
            };
            let times: Vec<_> = take(&config, 10_000).into_iter().flatten().collect();
            assert!(times.iter().all(|t| t.publish_ns >= t.true_ns));
            times.is_sorted_by_key(|t| t.publish_ns)
        };
        assert!(order(1.0));
        assert!(!order(1.01));
    }

    #[test]
    fn drops_have_their_rate_and_do_not_move_what_is_left() {
        let whole = StreamConfig {
            jitter_ms: 0.1,
            latency_jitter_ms: 2.0,
            ..StreamConfig::ideal(1_000.0)
        };
        let lossy = StreamConfig {
            drop_rate: 0.2,
            dropouts: vec![Dropout {
                start_s: 3.0,
                duration_s: 0.5,
            }],
            ..whole.clone()
        };
        let (whole, lossy) = (take(&whole, 20_000), take(&lossy, 20_000));
        assert!(whole.iter().all(Option::is_some));
        assert!(lossy.iter().zip(&whole).all(|(l, w)| l.is_none() || l == w));
        // no sample is inside the drop-out, whose start belongs to it and whose end does not
        assert!(lossy[3_000..3_500].iter().all(Option::is_none));
        let lost = lossy.iter().filter(|t| t.is_none()).count() - 500;
        // 19500 draws at 0.2: 3900, standard deviation 56
        assert!((3_900 - 280..=3_900 + 280).contains(&lost), "{lost}");
    }

    #[test]
    fn the_earliest_publishing_is_a_bound() {
        let config = StreamConfig {
            jitter_ms: 0.1,
            latency_ms: 1.0,
            latency_jitter_ms: 0.9,
            ..StreamConfig::ideal(1_000.0)
        };
        let mut clock = StreamClock::new(&config, 1, 2, START);
        for _ in 0..10_000 {
            let bound = clock.earliest_publish_ns();
            assert!(clock.capture().expect("not lost").publish_ns >= bound);
        }
    }
}
