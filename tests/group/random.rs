//! Random streams for `group`, with jitter, drop-outs, equal stamps, delays, small queues, and lower bounds between messages,
//! some of which are wrong.

use super::oracle::{ApproximateEpsilonTime, ApproximateTime, ExactTime, Set};
use super::{Grouped, group, inputs};
use crate::common::random::Random;
use robocache::ops::group::{DropReason, GroupingConfig, GroupingPolicy};
use std::collections::BTreeSet;

const CASES: u64 = 10_000;
const MS: i64 = 1_000_000;

impl Random {
    /// Draws an integer in `range`.
    fn of(&mut self, range: std::ops::Range<i64>) -> i64 {
        range.start + (self.bits() % (range.end - range.start) as u64) as i64
    }

    fn percent(&mut self, percent: i64) -> bool {
        self.of(0..100) < percent
    }
}

struct Case {
    /// Stream and stamp, ns, of each message, in order of arrival.
    messages: Vec<(usize, i64)>,
    /// Least distance between two successive stamps, ns, for each stream.
    least: Vec<i64>,
    config: GroupingConfig,
}

/// Draws the streams of a case. Every stamp is a multiple of `unit`, so that a large unit makes many stamps equal.
fn case(seed: u64) -> Case {
    let random = &mut Random(seed);
    let streams = random.of(2..6) as usize;
    let unit = random.pick(&[1, MS, 10 * MS]);
    let (jitter, lost) = (random.pick(&[0, 10, 60]), random.pick(&[0, 0, 5, 30]));
    let is_ordered = random.percent(80);
    let same_rate = random.percent(40);
    let common = random.of(10..120) * MS;
    let mut arrivals = Vec::new();
    let mut least = Vec::new();
    for stream in 0..streams {
        let period = if same_rate { common } else { random.of(10..120) * MS };
        let (phase, delay) = (random.of(0..period), random.of(0..2 * period));
        let outage = random.percent(20).then(|| random.of(0..1000) * MS);
        let mut last: Option<i64> = None;
        let mut closest = i64::MAX;
        let mut arrival = 0;
        for i in 0..1500 * MS / period {
            let is_out = outage.is_some_and(|from| (from..from + 300 * MS).contains(&(i * period)));
            if random.percent(lost) || is_out {
                continue;
            }
            let shift = period * jitter / 100;
            let mut stamp = phase + i * period + random.of(-shift..shift + 1);
            if is_ordered {
                stamp = stamp.max(last.unwrap_or(i64::MIN));
            }
            stamp = stamp.div_euclid(unit) * unit;
            if let Some(last) = last {
                closest = closest.min(stamp - last);
            }
            last = Some(stamp);
            // Messages of a stream arrive in the order in which they were sent.
            arrival = (stamp + delay + random.of(0..period)).max(arrival);
            arrivals.push((arrival, arrivals.len(), stream, stamp));
        }
        least.push(closest.clamp(0, 10_000 * MS));
    }
    arrivals.sort_unstable();
    let mut config = GroupingConfig {
        queue_size: random.pick(&[1, 2, 3, 5, 10, 50]),
        inputs: inputs(streams),
        ..GroupingConfig::default()
    };
    config.age_penalty = random.pick(&[None, Some(0.0), Some(0.1), Some(0.37), Some(1.0)]);
    config.max_span_ms = random.pick(&[None, None, Some(0.0), Some(20.0), Some(50.5)]);
    let bounds = random.of(0..4);
    for (input, &least) in config.inputs.iter_mut().zip(&least) {
        input.min_period_ms = match bounds {
            0 => None,
            1 => Some(40.0),
            _ => Some(least as f64 * 1e-6),
        };
    }
    Case {
        messages: arrivals
            .into_iter()
            .map(|(_, _, stream, stamp)| (stream, stamp))
            .collect(),
        least,
        config,
    }
}

/// Returns number, stream and stamp (ns) of the messages that arrive in order: none is older than an earlier message
/// of its stream.
fn in_order(messages: &[(usize, i64)]) -> impl Iterator<Item = (usize, usize, i64)> {
    let mut newest = [i64::MIN; 8];
    messages
        .iter()
        .enumerate()
        .filter_map(move |(number, &(stream, stamp))| {
            let is_ordered = stamp >= newest[stream];
            newest[stream] = newest[stream].max(stamp);
            is_ordered.then_some((number, stream, stamp))
        })
}

/// Checks the properties of every policy: no message is used or dropped twice, and each set has the right times and epoch.
/// Unless `may_cross`, each stream's message in a set comes before its message in the next set.
fn check(case: &Case, grouped: &Grouped, may_cross: bool, seed: u64) {
    let mut seen = BTreeSet::new();
    let members = grouped.sets.iter().flatten();
    for &number in members.chain(grouped.dropped.iter().map(|(_, number, _)| number)) {
        assert!(seen.insert(number), "seed {seed}: message {number} comes twice");
    }
    for (set, &(newest, span, epoch)) in grouped.sets.iter().zip(&grouped.infos) {
        let times: Vec<i64> = set.iter().map(|&number| case.messages[number].1).collect();
        let (first, last) = (*times.iter().min().unwrap(), *times.iter().max().unwrap());
        assert_eq!((newest, span, epoch), (last, last - first, 0), "seed {seed}");
        for (stream, &number) in set.iter().enumerate() {
            assert_eq!(case.messages[number].0, stream);
        }
    }
    for pair in grouped.sets.windows(2).filter(|_| !may_cross) {
        assert!(
            pair[0].iter().zip(&pair[1]).all(|(a, b)| a < b),
            "seed {seed}: {pair:?} cross"
        );
    }
}

#[test]
fn approximate_gives_the_sets_of_approximate_time() {
    let mut sets = 0;
    for seed in 0..CASES {
        let case = case(seed);
        let config = &case.config;
        let ns = |ms: f64| (ms * 1e6).round() as i64;
        let bounds = config.inputs.iter().map(|input| ns(input.min_period_ms.unwrap_or(0.0)));
        let bounds: Vec<i64> = bounds.collect();
        let span = config.max_span_ms.map_or(i64::MAX, ns);
        let mut expected = ApproximateTime::new(&bounds, config.queue_size, config.age_penalty.unwrap_or(0.1), span);
        in_order(&case.messages).for_each(|(number, stream, stamp)| expected.add(stream, stamp, number));
        let (grouped, grouper) = group(config, &case.messages);
        assert_eq!(grouped.sets, expected.sets, "seed {seed}");
        check(&case, &grouped, false, seed);
        let late = case.messages.len() - in_order(&case.messages).count();
        let counted: u64 = (0..config.inputs.len())
            .map(|input| grouper.dropped(input, DropReason::OutOfOrder))
            .sum();
        assert_eq!(late as u64, counted, "seed {seed}");
        sets += grouped.sets.len();
    }
    assert!(sets > 8 * CASES as usize, "{sets}");
}

#[test]
fn approximate_sets_are_contiguous_and_of_least_span() {
    let mut checked = 0;
    for seed in 0..2000 {
        let mut case = case(seed);
        let is_known = case.config.inputs[0].min_period_ms != Some(40.0) && case.least.iter().all(|&least| least > 0);
        if !is_known || case.config.inputs.len() > 3 {
            continue;
        }
        case.config.queue_size = 1000;
        case.config.max_span_ms = None;
        case.config.age_penalty = Some(0.0);
        let (grouped, _) = group(&case.config, &case.messages);
        let streams = case.config.inputs.len();
        let mut of: Vec<Vec<usize>> = vec![Vec::new(); streams];
        for (number, stream, _) in in_order(&case.messages) {
            of[stream].push(number);
        }
        let place = |stream: usize, number: usize| of[stream].iter().position(|&other| other == number).unwrap();
        let span = |set: &[usize]| {
            let times = || set.iter().map(|&number| case.messages[number].1);
            times().max().unwrap() - times().min().unwrap()
        };
        for pair in grouped.sets.windows(2).take(12) {
            let next: Vec<usize> = (0..streams).map(|stream| place(stream, pair[0][stream]) + 1).collect();
            let gaps: Vec<usize> = (0..streams)
                .map(|stream| place(stream, pair[1][stream]) - next[stream])
                .collect();
            assert!(gaps.contains(&0), "seed {seed}: {pair:?} lost a message of each stream");
            // Every alternative set of the next few messages that skips none of some stream.
            let mut shifts = vec![0; streams];
            loop {
                let others = (0..streams).map(|stream| of[stream].get(next[stream] + shifts[stream]).copied());
                if let (Some(other), true) = (others.collect::<Option<Set>>(), shifts.contains(&0)) {
                    assert!(
                        span(&other) >= span(&pair[1]),
                        "seed {seed}: {other:?} is narrower than {:?}",
                        pair[1]
                    );
                }
                let Some(stream) = (0..streams).find(|&stream| shifts[stream] < 8) else {
                    break;
                };
                shifts[stream] += 1;
                shifts[..stream].fill(0);
            }
            checked += 1;
        }
    }
    assert!(checked > 3000, "{checked}");
}

#[test]
fn epsilon_gives_the_sets_of_approximate_epsilon_time() {
    let mut sets = 0;
    for seed in 0..CASES {
        let mut case = case(seed);
        let random = &mut Random(!seed);
        let span = random.pick(&[0, 1, 5 * MS, 20 * MS, 100 * MS]);
        case.config.policy = GroupingPolicy::Epsilon;
        case.config.max_span_ms = Some(span as f64 * 1e-6);
        case.config.age_penalty = None;
        case.config
            .inputs
            .iter_mut()
            .for_each(|input| input.min_period_ms = None);
        let mut expected = ApproximateEpsilonTime::new(case.config.inputs.len(), case.config.queue_size, span);
        in_order(&case.messages).for_each(|(number, stream, stamp)| expected.add(stream, stamp, number));
        let (grouped, _) = group(&case.config, &case.messages);
        assert_eq!(grouped.sets, expected.sets, "seed {seed}");
        assert!(grouped.infos.iter().all(|&(_, of_set, _)| of_set <= span));
        check(&case, &grouped, false, seed);
        sets += grouped.sets.len();
    }
    assert!(sets > 4 * CASES as usize, "{sets}");
}

#[test]
fn exact_gives_the_sets_of_exact_time() {
    let mut sets = 0;
    for seed in 0..CASES {
        let mut case = case(seed);
        // Rounds the stamps, so that some are equal.
        let unit = Random(!seed).pick(&[10 * MS, 50 * MS]);
        for (_, stamp) in &mut case.messages {
            *stamp = stamp.div_euclid(unit) * unit;
        }
        case.config.policy = GroupingPolicy::Exact;
        (case.config.age_penalty, case.config.max_span_ms) = (None, None);
        case.config
            .inputs
            .iter_mut()
            .for_each(|input| input.min_period_ms = None);
        let mut expected = ExactTime {
            streams: case.config.inputs.len(),
            queue_size: case.config.queue_size,
            waiting: std::collections::BTreeMap::new(),
            sets: Vec::new(),
        };
        for (number, &(stream, stamp)) in case.messages.iter().enumerate() {
            expected.add(stream, stamp, number);
        }
        let (grouped, grouper) = group(&case.config, &case.messages);
        assert_eq!(grouped.sets, expected.sets, "seed {seed}");
        // An older set may come later, if it is complete later.
        check(&case, &grouped, true, seed);
        let waiting: usize = expected.waiting.values().flatten().flatten().count();
        assert_eq!(grouper.held_bytes(), waiting, "seed {seed}");
        sets += grouped.sets.len();
    }
    assert!(sets > 4 * CASES as usize, "{sets}");
}
