//! Tests of clock estimates with simulated devices, whose true time is known.

use super::*;

const MS: i64 = 1_000_000;
const S: i64 = 1_000_000_000;
/// Host time at which the simulations begin, ns.
const START: i64 = 1_700_000_000 * S;

fn device(keys: &str) -> DeviceClock {
    let config: ClockConfig = serde_yaml::from_str(&format!("inputs: [{{ input: imu{keys} }}]")).unwrap();
    DeviceClock::new(&config.checked().unwrap()[0])
}

/// Generator of pseudo-random numbers in 0..1.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.next()).ln()
    }
}

/// Simulates messages of a device whose clock is slow by `ppm`. Returns for each message its device time, its time of
/// publication, and the time of publication without jitter, ns.
fn messages(seed: u64, rate_hz: f64, seconds: f64, ppm: f64, jitter_ms: f64) -> Vec<(i64, i64, i64)> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let count = (rate_hz * seconds) as i64;
    let mut published = i64::MIN;
    let one = |i: i64| {
        let x = (i as f64 / rate_hz * 1e9) as i64;
        let truth = START + x + (x as f64 * ppm * 1e-6) as i64 + 3 * MS;
        // Messages of one edge of a dataflow stay in order.
        published = published.max(truth + (random.exponential(jitter_ms) * 1e6) as i64);
        (x, published, truth)
    };
    (0..count).map(one).collect()
}

/// Returns the errors of the host times that `clock` gives to `messages` with device time `from` or later, ns.
fn errors(clock: &mut DeviceClock, messages: &[(i64, i64, i64)], from: i64) -> Vec<f64> {
    let mut last = i64::MIN;
    let mut error = |&(x, y, truth): &(i64, i64, i64)| {
        let (stamp, _) = clock.push(x, y);
        assert!(stamp.host_ns > last, "in order");
        last = stamp.host_ns;
        assert!(stamp.is_locked || x < from);
        (x >= from).then(|| (stamp.host_ns - truth) as f64)
    };
    messages.iter().filter_map(&mut error).collect()
}

/// Returns the errors of least squares over the last minute, for comparison, ns. One error is for every tenth message from
/// device time `from` on.
fn least_squares(messages: &[(i64, i64, i64)], from: i64) -> Vec<f64> {
    let error = |end: usize| {
        let (x, _, truth) = messages[end];
        let first = messages.partition_point(|message| message.0 < x - 60 * S);
        let inside = &messages[first..=end];
        let n = inside.len() as f64;
        let of = |f: fn(f64, f64) -> f64| {
            let values = inside.iter().map(|m| f((m.0 - x) as f64, (m.1 - m.0 - START) as f64));
            values.sum::<f64>()
        };
        let (sx, sy, sxx, sxy) = (of(|x, _| x), of(|_, d| d), of(|x, _| x * x), of(|x, d| x * d));
        let slope = (n * sxy - sx * sy) / (n * sxx - sx * sx);
        (sy - slope * sx) / n - (truth - x - START) as f64
    };
    let first = messages.partition_point(|message| message.0 < from);
    (first..messages.len()).step_by(10).map(error).collect()
}

/// Summarises errors, us: their root mean square, and the median, the 99th percentile and the maximum of their magnitudes.
fn figures(mut errors: Vec<f64>) -> [f64; 4] {
    let rms = (errors.iter().map(|error| error * error).sum::<f64>() / errors.len() as f64).sqrt();
    errors.iter_mut().for_each(|error| *error = error.abs());
    errors.sort_unstable_by(f64::total_cmp);
    let last = errors.len() - 1;
    [rms, errors[last / 2], errors[last * 99 / 100], errors[last]].map(|ns| (ns * 1e-2).round() / 10.0)
}

/// Change to the simulated messages of a device, such as an outage.
type Story = fn(Vec<(i64, i64, i64)>) -> Vec<(i64, i64, i64)>;

/// Silences the device for 10 s after every 20 s.
fn outages(mut messages: Vec<(i64, i64, i64)>) -> Vec<(i64, i64, i64)> {
    messages.retain(|message| message.0 % (30 * S) < 20 * S);
    messages
}

/// Sets the device's clock to 0 after 100 s.
fn reset(mut messages: Vec<(i64, i64, i64)>) -> Vec<(i64, i64, i64)> {
    for message in messages.iter_mut().filter(|message| message.0 >= 100 * S) {
        message.0 -= 100 * S;
    }
    messages
}

/// Lets the device's skew grow by 1 ppm a minute.
fn warms_up(mut messages: Vec<(i64, i64, i64)>) -> Vec<(i64, i64, i64)> {
    for (x, published, truth) in &mut messages {
        let more = (0.5 * (*x as f64 * 1e-9).powi(2) * 1e3 / 60.0) as i64;
        (*published, *truth) = (*published + more, *truth + more);
    }
    messages
}

/// Prints the errors of many simulated devices, from a minute after each start on, and those of least squares beside them.
/// Returns our greatest root mean square error, us, and the smallest ratio of the least-squares error to ours.
fn study(seeds: u64, kinds: &[(&str, Story, f64, f64, &str)]) -> (f64, f64) {
    println!("what | Hz | jitter ms | rms, p50, p99, max us | of least squares");
    let (mut greatest, mut least) = (0f64, f64::INFINITY);
    for &(what, story, rate, jitter, keys) in kinds {
        let (mut ours, mut peers) = (Vec::new(), Vec::new());
        for seed in 1..=seeds {
            let all = story(messages(seed, rate, 240.0, 20.0, jitter));
            let mut clock = device(keys);
            for part in all.chunk_by(|a, b| a.0 < b.0) {
                ours.extend(errors(&mut clock, part, part[0].0 + 60 * S));
                peers.extend(least_squares(part, part[0].0 + 60 * S));
            }
        }
        let (ours, peers) = (figures(ours), figures(peers));
        println!("{what}{keys} | {rate} | {jitter} | {ours:?} | {peers:?}");
        greatest = greatest.max(ours[0]);
        least = least.min(peers[0] / ours[0]);
    }
    (greatest, least)
}

#[test]
fn the_error_of_a_slow_clock_with_late_messages_is_small_after_a_minute() {
    let nothing: Story = |messages| messages;
    let kinds = [
        ("", nothing, 30.0, 5.0, ""),
        ("", nothing, 30.0, 20.0, ""),
        ("outages", outages, 30.0, 10.0, ""),
        ("reset", reset, 30.0, 10.0, ""),
    ];
    let (rms, peer) = study(5, &kinds);
    assert!(rms < 50.0 && peer > 100.0, "{rms} {peer}");
}

/// Prints the table of errors in `nodes/clock/README.md`.
#[test]
#[ignore = "takes minutes"]
fn errors_of_many_clocks() {
    let nothing: Story = |messages| messages;
    let mut kinds: Vec<(&str, Story, f64, f64, &str)> = Vec::new();
    for (what, story) in [
        ("", nothing),
        ("outages", outages),
        ("reset", reset),
        ("warms up", warms_up),
    ] {
        kinds.extend([5.0, 10.0, 20.0].map(|jitter| (what, story, 30.0, jitter, "")));
    }
    let wide = ", window_s: 120";
    kinds.extend([("", nothing, 100.0, 5.0, ""), ("", nothing, 10.0, 20.0, "")]);
    kinds.extend([
        ("", nothing, 30.0, 20.0, wide),
        ("warms up", warms_up, 30.0, 20.0, wide),
        ("warms up", warms_up, 30.0, 5.0, wide),
    ]);
    study(200, &kinds);
}

#[test]
fn outages_leave_the_estimate_as_it_was() {
    let all = messages(3, 30.0, 300.0, -35.0, 10.0);
    let is_there = |m: &&(i64, i64, i64)| !(80 * S..100 * S).contains(&m.0) && !(120 * S..200 * S).contains(&m.0);
    let heard: Vec<_> = all.iter().filter(is_there).copied().collect();
    let [rms, _, _, most] = figures(errors(&mut device(""), &heard, 60 * S));
    assert!(rms < 200.0 && most < 500.0, "{rms} {most}");
    let mut clock = device(", window_s: 10");
    for &(x, y, _) in &all[..600] {
        clock.push(x, y);
    }
    // After ten windows nothing is known.
    let (x, y, _) = all[600 + 31 * 110];
    let (stamp, notice) = clock.push(x, y);
    assert!(matches!(notice, Some(Notice::Silence { .. })) && !stamp.is_locked);
    assert_eq!(stamp.host_ns, y);
}

#[test]
fn a_device_that_restarts_is_told_of_and_found_again() {
    let mut clock = device(", latency_ms: 3");
    for &(x, y, truth) in &messages(5, 30.0, 60.0, 20.0, 5.0) {
        let (stamp, _) = clock.push(x, y);
        let wanted = if stamp.is_locked { truth } else { y };
        assert!((stamp.host_ns + 3 * MS - wanted).abs() < 2 * MS);
    }
    // The device's clock begins at 0 again, and the host's goes on.
    let mut notices = Vec::new();
    for &(x, y, truth) in &messages(6, 30.0, 120.0, 20.0, 5.0) {
        let (stamp, notice) = clock.push(x, y + 61 * S);
        notices.extend(notice.map(|notice| (x / S, notice.kind())));
        assert_eq!(stamp.epoch, 0);
        assert_eq!(stamp.is_locked, x >= 10 * S, "{x}");
        assert!(x < 60 * S || (stamp.host_ns + 3 * MS - 61 * S - truth).abs() < MS / 5);
    }
    assert_eq!(notices, [(0, "clock reset"), (10, "locked")]);
}

#[test]
fn a_clock_that_is_set_ahead_or_back_is_told_of() {
    let all = messages(7, 30.0, 200.0, 20.0, 5.0);
    // Ahead: messages come before they can. Back, by less than what can be told from disorder: messages are late from then on.
    for (by, after, kind) in [
        (5 * S, 0, "clock reset"),
        (-S / 2, 0, "clock reset"),
        (S / 2, 0, "clock reset"),
    ] {
        let mut clock = device("");
        let mut told = Vec::new();
        for &(x, y, _) in &all {
            let x = if x < 100 * S { x } else { x + by };
            let (stamp, notice) = clock.push(x, y);
            told.extend(notice.map(|notice| (y - START - 100 * S, notice.kind(), stamp.epoch)));
        }
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(
            told[1].1 == kind && told[1].2 == 0 && (after..after + S).contains(&told[1].0),
            "{told:?}"
        );
    }
    // The host's clock is set ahead: every message of the device is late from then on, and after 5 s that is not a delay.
    // Set back: the output has to go back, too.
    for (by, epoch) in [(3 * S, 0), (-3 * S, 1)] {
        let mut clock = device("");
        let mut told = Vec::new();
        for &(x, y, truth) in &all {
            let set = if x < 100 * S { 0 } else { by };
            let (stamp, notice) = clock.push(x, y + set);
            told.extend(notice.map(|notice| (x / S, notice.kind())));
            if x > 180 * S {
                assert!((stamp.host_ns - truth - set).abs() < MS && stamp.epoch == epoch);
            }
        }
        let at = if by > 0 { 105 } else { 100 };
        assert_eq!(told, [(10, "locked"), (at, "clock reset"), (at + 10, "locked")]);
    }
}

/// Holds back the first messages of a simulated dataflow. The sender either waits before its first message, or its first
/// messages queue up and arrive all at once.
#[test]
fn what_is_held_up_at_the_start_is_no_clock_that_was_set() {
    for (rate_hz, hold) in [(100.0, 270 * MS), (100.0, 1500 * MS), (5.0, 1500 * MS), (1.0, 400 * MS)] {
        for is_queued in [false, true] {
            // A sender that waits captures nothing meanwhile. One that does not wait goes on, and all of it comes at once.
            let all = messages(3, rate_hz, 120.0, 20.0, 2.0);
            let comes = |&(x, y, truth): &(i64, i64, i64)| {
                let is_held = x == 0 || is_queued && x < hold;
                let is_captured = is_held || x >= hold;
                is_captured.then_some((x, if is_held { y.max(START + hold) } else { y }, truth))
            };
            let all: Vec<_> = all.iter().filter_map(comes).collect();
            for set in [0, 5 * S] {
                // A clock that is set a while after the start still counts as one, before or after it is known.
                for at in [60 * S, 9 * S] {
                    let mut clock = device("");
                    let (mut told, mut last) = (Vec::new(), i64::MIN);
                    for &(x, y, truth) in &all {
                        let (stamp, notice) = clock.push(x + if x >= at { set } else { 0 }, y);
                        told.extend(notice.map(|notice| notice.kind()).filter(|kind| *kind != "locked"));
                        assert!(stamp.host_ns > last && stamp.epoch == 0, "in order");
                        assert!(x < 110 * S || (stamp.host_ns - truth).abs() < 5 * MS);
                        last = stamp.host_ns;
                    }
                    let wanted: &[&str] = if set == 0 { &[] } else { &["clock reset"] };
                    assert_eq!(told, wanted, "{rate_hz} Hz, {hold} ns, {is_queued}, set {set} at {at}");
                }
            }
        }
    }
}

#[test]
fn a_changed_estimate_is_followed_slowly() {
    let mut clock = device("");
    let mut last = None;
    for i in 0..3000i64 {
        // From 30 s on the delay is 40 ms less.
        let x = i * 20 * MS;
        let y = START + x + if x < 30 * S { 50 * MS } else { 10 * MS };
        let (stamp, _) = clock.push(x, y);
        if let Some((before, host)) = last.replace((x, stamp.host_ns)).filter(|_| stamp.is_locked) {
            let pace = (stamp.host_ns - host) as f64 / (x - before) as f64;
            assert!((pace - 1.0).abs() <= MOST_PACE, "{pace}");
        }
    }
}
/// Greatest relative difference in pace between host time and device time: the largest accepted skew, plus the slew
/// and rounding.
const MOST_PACE: f64 = 2000e-6 + 500e-6 + 1e-6;

#[test]
fn a_clock_locks_after_a_whole_window_if_it_shall() {
    let mut clock = device(", lock_s: 2, window_s: 2");
    let locked = messages(9, 30.0, 3.0, 20.0, 1.0)
        .iter()
        .map(|&(x, y, _)| clock.push(x, y).0.is_locked)
        .filter(|is_locked| *is_locked)
        .count();
    assert!((29..=30).contains(&locked), "{locked}");
}

/// A clock that is off by a percent is never used, and a notice gives its pace.
#[test]
fn a_clock_of_another_pace_is_told_of() {
    for ppm in [-10_000.0, 10_000.0] {
        let mut clock = device("");
        let mut told = Vec::new();
        for &(x, y, _) in &messages(4, 30.0, 200.0, ppm, 2.0) {
            let (stamp, notice) = clock.push(x, y);
            assert!(!stamp.is_locked && (stamp.host_ns - y).abs() < MS);
            told.extend(notice);
        }
        let is_near =
            |notice: &Notice| matches!(notice, Notice::Pace { ratio } if (ratio - 1.0 + ppm * 1e-6).abs() < 1e-3);
        assert!((2..20).contains(&told.len()) && told.iter().all(is_near), "{told:?}");
    }
}

#[test]
fn samples_of_a_message_keep_their_distances() {
    let stamp = Stamp {
        host_ns: 1000 * S,
        offset_ns: 990 * S,
        skew: 100e-6,
        sigma_ns: 0,
        is_locked: true,
        epoch: 0,
    };
    assert_eq!(stamp.of_sample(10 * S, 10 * S), 1000 * S);
    assert_eq!(stamp.of_sample(10 * S, 9 * S), 999 * S - 100_000);
}

#[test]
fn no_stamps_are_too_strange() {
    let ends = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX];
    let mut random = Random(11);
    for case in 0..200 {
        let mut clock = device(", lock_s: 1, window_s: 2");
        let mut out = Vec::new();
        for i in 0..300i64 {
            let pick = |random: &mut Random, regular: i64| match case % 4 {
                0 => ends[(random.next() * 7.0) as usize],
                1 if random.next() < 0.05 => ends[(random.next() * 7.0) as usize],
                2 => 0,
                3 => regular.wrapping_mul(-1),
                _ => regular,
            };
            let x = pick(&mut random, i * 20 * MS);
            let y = if case % 8 < 4 {
                pick(&mut random, START + i * 20 * MS)
            } else {
                START + i * 20 * MS
            };
            out.push(clock.push(x, y).0);
        }
        assert!(out.iter().all(|stamp| stamp.skew.abs() < 0.01 && stamp.sigma_ns >= 0));
    }
    // A clock that stands still is not used: the time of publication is published.
    let mut clock = device("");
    let mut kinds = Vec::new();
    for i in 0..1000i64 {
        let y = START + i * 20 * MS;
        let (stamp, notice) = clock.push(5, y);
        assert!(!stamp.is_locked && stamp.host_ns == y);
        kinds.extend(notice.map(|notice| notice.kind()));
    }
    assert_eq!(kinds, ["pace of the clock"; 3]);
}

#[test]
fn a_configuration_that_can_t_work_is_refused_by_key() {
    let refused = |text: &str| {
        let config: ClockConfig = serde_yaml::from_str(text).unwrap();
        Clocks::new(&config).err().unwrap().to_string()
    };
    assert_eq!(refused("inputs: []"), "inputs: none (allowed: one or more)");
    let one = |keys: &str| refused(&format!("inputs: [{{ input: imu, {keys} }}]"));
    assert_eq!(one("window_s: 0"), "inputs[0].window_s: 0 (allowed: 1 to 3600 s)");
    assert_eq!(one("window_s: .nan"), "inputs[0].window_s: NaN (allowed: 1 to 3600 s)");
    assert_eq!(
        one("lock_s: 61"),
        "inputs[0].lock_s: 61 (allowed: at most `window_s`, 60)"
    );
    assert_eq!(one("reset_ms: -1"), "inputs[0].reset_ms: -1 (allowed: 1 to 1e9 ms)");
    assert_eq!(
        one("latency_ms: -1"),
        "inputs[0].latency_ms: -1 is not a duration (allowed: 0 to 1e12 ms)"
    );
    assert_eq!(
        one("clock: boottime, window_s: 30"),
        "inputs[0].window_s: `boottime` does not use this key (allowed with `clock: device`)"
    );
    assert_eq!(
        refused("inputs: [{ input: imu }, { input: imu }]"),
        "inputs[1].input: `imu` is listed twice (allowed: once)"
    );
    let words = serde_yaml::from_str::<ClockConfig>("inputs: [{ input: imu, clock: tai }]").unwrap_err();
    assert!(
        words
            .to_string()
            .contains("unknown variant `tai`, expected one of `device`"),
        "{words}"
    );
}
