//! Tests of channels with a known lag, and of the reasons for which a lag is refused.

use super::*;

const MS: i64 = 1_000_000;

/// Returns a sum of sine waves below `hz`, as a function of the time in s: the same for each call with the same seed.
fn movement(seed: u64, hz: f64) -> impl Fn(f64) -> f64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let waves: Vec<(f64, f64, f64)> = (0..40)
        .map(|_| {
            (
                random(),
                std::f64::consts::TAU * hz * random(),
                std::f64::consts::TAU * random(),
            )
        })
        .collect();
    move |t| {
        waves
            .iter()
            .map(|(size, speed, phase)| size * (speed * t + phase).sin())
            .sum()
    }
}

fn sampled(signal: impl Fn(f64) -> f64, seconds: i64, step_us: i64, lag_ms: f64) -> (Vec<i64>, Vec<f64>) {
    let times: Vec<i64> = (0..seconds * 1_000_000 / step_us).map(|i| i * step_us * 1000).collect();
    let values = times
        .iter()
        .map(|&ns| signal(ns as f64 * 1e-9 - lag_ms * 1e-3))
        .collect();
    (times, values)
}

fn latency(a: &(Vec<i64>, Vec<f64>), b: &(Vec<i64>, Vec<f64>)) -> Result<Latency, LatencyError> {
    let channel = |of| -> Channel<'_> {
        let (times_ns, values): &(Vec<i64>, Vec<f64>) = of;
        Channel { times_ns, values }
    };
    Correlator::new(&LatencyConfig::default())
        .unwrap()
        .latency(channel(a), channel(b))
}

#[test]
fn known_lags_are_found_at_any_rates() {
    let mut most = 0f64;
    for seed in 1..=8 {
        for (lag_ms, step_us) in [
            (0.0, 2000),
            (120.0, 10_000),
            (-73.4, 4000),
            (310.25, 33_333),
            (-480.0, 1000),
        ] {
            let signal = movement(seed, 4.0);
            let a = sampled(&signal, 30, 2000, 0.0);
            let b = sampled(&signal, 30, step_us, lag_ms);
            let found = latency(&a, &b).unwrap();
            most = most.max((found.lag_ms - lag_ms).abs());
            assert!((found.lag_ms - lag_ms).abs() < 1.0, "{lag_ms}: {}", found.lag_ms);
            assert!(found.peak > 0.9 && found.second.is_none_or(|(_, second)| second < 0.9 * found.peak));
            assert_eq!(found.curve.values.len(), 1001);
        }
    }
    println!("40 cases: at most {most:.3} ms off");
}

#[test]
fn noise_a_level_and_another_unit_change_little() {
    let signal = movement(3, 4.0);
    let noise = movement(99, 400.0);
    let a = sampled(&signal, 60, 2000, 0.0);
    let b = sampled(|t| 1000.0 + 0.01 * (signal(t) + 0.3 * noise(t)), 60, 5000, 45.0);
    let found = latency(&a, &b).unwrap();
    assert!((found.lag_ms - 45.0).abs() < 2.0, "{}", found.lag_ms);
}

#[test]
fn outages_and_values_that_are_none_are_left_out() {
    let signal = movement(4, 4.0);
    let a = sampled(&signal, 30, 2000, 0.0);
    let mut b = sampled(&signal, 30, 5000, 60.0);
    for i in (0..6000).step_by(97) {
        b.1[i] = [f64::NAN, f64::INFINITY][i % 2];
    }
    let keep = |i: &usize| !(1000..1800).contains(i);
    let b = (0..6000).filter(keep).map(|i| (b.0[i], b.1[i])).unzip();
    let found = latency(&a, &b).unwrap();
    assert!((found.lag_ms - 60.0).abs() < 1.0, "{}", found.lag_ms);
}

#[test]
fn of_samples_with_the_same_time_the_later_one_counts() {
    let signal = movement(5, 4.0);
    let (a, clean) = (sampled(&signal, 30, 2000, 0.0), sampled(&signal, 30, 20_000, 60.0));
    let of_pairs = clean
        .0
        .iter()
        .zip(&clean.1)
        .flat_map(|(&ns, &value)| [(ns, 50.0 - value), (ns, value)]);
    let lag_ms = |b| latency(&a, b).unwrap().lag_ms;
    assert_eq!(lag_ms(&of_pairs.unzip()), lag_ms(&clean));
}

#[test]
fn what_can_t_be_known_is_refused() {
    let signal = movement(5, 4.0);
    let a = sampled(&signal, 30, 2000, 0.0);
    // The two movements have nothing to do with each other, whatever the seed.
    for seed in 10..30 {
        for seconds in [10, 30] {
            let a = sampled(&signal, seconds, 2000, 0.0);
            let refused = latency(&a, &sampled(movement(seed, 4.0), seconds, 5000, 0.0)).unwrap_err();
            assert!(matches!(refused, LatencyError::Weak { .. }), "{seed}: {refused}");
        }
    }
    let still = latency(&a, &sampled(|_| 3.0, 30, 5000, 0.0)).unwrap_err();
    assert_eq!(
        still.to_string(),
        "channel b hardly moves: it changes 0 times (needed: 10 or more)"
    );
    let step = latency(&a, &sampled(|t| f64::from(t > 15.0), 30, 5000, 0.0)).unwrap_err();
    assert!(matches!(
        step,
        LatencyError::Still {
            channel: 'b',
            changes: 1,
            ..
        }
    ));
    for seed in 1..=20 {
        let signal = movement(seed, 1.5);
        let (a, b) = (
            sampled(&signal, 60, 5000, 0.0),
            sampled(|t| -signal(t), 60, 5000, 100.0),
        );
        match latency(&a, &b).unwrap_err() {
            LatencyError::Weak { trough, .. } => assert!(trough < -0.9),
            LatencyError::Inverted { trough, trough_ms, .. } => {
                assert!(trough < -0.9 && (trough_ms - 100.0).abs() < 2.0);
            }
            LatencyError::AtEnd { .. } => {}
            other => panic!("{other}"),
        }
    }
    // A sine of 5 Hz is the same again after 200 ms.
    let sine = |t: f64| (std::f64::consts::TAU * 5.0 * t).sin();
    let again = latency(&sampled(sine, 30, 2000, 0.0), &sampled(sine, 30, 5000, 30.0)).unwrap_err();
    assert!(
        matches!(
            again,
            LatencyError::Ambiguous { .. } | LatencyError::AtEnd { .. } | LatencyError::Inverted { .. }
        ),
        "{again}"
    );
    let far = latency(&a, &sampled(&signal, 30, 5000, 520.0)).unwrap_err();
    assert!(
        matches!(far, LatencyError::AtEnd { .. } | LatencyError::Weak { .. }),
        "{far}"
    );
    let slow = movement(5, 0.1);
    let slow = latency(&sampled(&slow, 30, 2000, 0.0), &sampled(&slow, 30, 5000, 60.0)).unwrap_err();
    assert!(matches!(slow, LatencyError::Slow { .. }), "{slow}");
    let short = latency(&sampled(&signal, 1, 2000, 0.0), &a).unwrap_err();
    assert!(matches!(short, LatencyError::Short { .. }), "{short}");
    let apart = latency(&a, &(a.0.iter().map(|ns| ns + 86_400_000 * MS).collect(), a.1.clone())).unwrap_err();
    assert!(matches!(apart, LatencyError::Short { .. }), "{apart}");
}

#[test]
fn channels_that_make_no_sense_are_refused() {
    let signal = movement(6, 4.0);
    let a = sampled(&signal, 30, 2000, 0.0);
    let refused = |b| latency(&a, &b).unwrap_err().to_string();
    assert_eq!(
        refused((vec![1, 2], vec![1.0])),
        "channel b: 2 times and 1 values (allowed: as many)"
    );
    assert_eq!(
        refused((vec![1, 0], vec![1.0, 2.0])),
        "channel b: time 1 is earlier than the previous one (allowed: ascending times)"
    );
    assert!(refused((vec![], vec![])).contains("hardly moves"));
    let ends: Vec<f64> = (0..20).map(f64::from).collect();
    let mut times = vec![i64::MIN; 10];
    times.extend([i64::MAX; 10]);
    let huge = (times, ends);
    assert!(matches!(latency(&huge, &huge).unwrap_err(), LatencyError::Long { .. }));
    for (config, words) in [
        (
            LatencyConfig {
                step_ms: 0.0,
                ..Default::default()
            },
            "step_ms: 0 (allowed",
        ),
        (
            LatencyConfig {
                range_ms: (5.0, -5.0),
                ..Default::default()
            },
            "range_ms: 5 to -5 (allowed",
        ),
        (
            LatencyConfig {
                range_ms: (f64::NAN, 5.0),
                ..Default::default()
            },
            "range_ms: NaN to 5",
        ),
        (
            LatencyConfig {
                smooth_ms: 0.5,
                ..Default::default()
            },
            "smooth_ms: 0.5 (allowed",
        ),
        (
            LatencyConfig {
                max_gap_ms: -1.0,
                ..Default::default()
            },
            "max_gap_ms: -1",
        ),
        (
            LatencyConfig {
                min_peak: 2.0,
                ..Default::default()
            },
            "min_peak: 2 (allowed: 0 to 1)",
        ),
    ] {
        let refused = Correlator::new(&config).unwrap_err().to_string();
        assert!(refused.starts_with(words), "{refused}");
    }
}

#[test]
fn the_correlation_of_short_signals_by_hand() {
    let (a, b) = ([1.0f32, -1.0, 0.0, 0.0], [0.0f32, 1.0, -1.0, 0.0]);
    // b is a, one step later. At lag 0 the product is -1; at lag -1 only the 0 and the 1 of b meet a.
    let found = correlation(&a, &b, -1, 2);
    assert_eq!(found[2], 1.0);
    assert_eq!(found[1], -0.5);
    assert_eq!(correlation(&a, &[0.0; 4], 0, 0), [0.0]);
    assert_eq!(correlation(&a, &b, 9, 9), [0.0]);
}
