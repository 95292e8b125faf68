//! Small cases of `group` whose sets a reader can check by hand.

use super::{Grouped, group, inputs};
use robocache::ops::ConfigError;
use robocache::ops::group::{DropReason, Grouper, GroupingConfig, GroupingPolicy};

const MS: i64 = 1_000_000;

fn config(policy: GroupingPolicy, streams: usize) -> GroupingConfig {
    GroupingConfig {
        policy,
        max_span_ms: (policy == GroupingPolicy::Epsilon).then_some(10.0),
        inputs: inputs(streams),
        ..GroupingConfig::default()
    }
}

/// Groups messages, given as pairs of stream and time, ms. Returns the times of the messages in each set, ms.
fn sets_ms(config: &GroupingConfig, messages: &[(usize, i64)]) -> Vec<Vec<i64>> {
    let stamped: Vec<_> = messages.iter().map(|&(stream, ms)| (stream, ms * MS)).collect();
    let (grouped, _) = group(config, &stamped);
    let sets = grouped.sets.into_iter();
    sets.map(|set| set.into_iter().map(|number| messages[number].1).collect())
        .collect()
}

#[test]
fn a_set_waits_until_no_better_one_can_come() {
    let config = config(GroupingPolicy::Approximate, 2);
    // A message of the first stream between 0 and 60 would be nearer to 30.
    assert!(sets_ms(&config, &[(0, 0), (1, 30)]).is_empty());
    assert_eq!(sets_ms(&config, &[(0, 0), (1, 30), (0, 40)]), [[40, 30]]);
    assert_eq!(sets_ms(&config, &[(0, 0), (1, 30), (0, 70)]), [[0, 30]]);
    // With the penalty of 0.1, 27 ms later count as 29.7 ms, and 28 ms as 30.8 ms. They must be less than 30.
    assert_eq!(sets_ms(&config, &[(0, 0), (1, 30), (0, 57)]), [[57, 30]]);
    assert_eq!(sets_ms(&config, &[(0, 0), (1, 30), (0, 58)]), [[0, 30]]);
}

#[test]
fn a_lower_bound_saves_the_wait() {
    let messages = [(0, 0), (1, 8)];
    let mut config = config(GroupingPolicy::Approximate, 2);
    assert!(sets_ms(&config, &messages).is_empty());
    config.inputs[0].min_period_ms = Some(80.0);
    assert_eq!(sets_ms(&config, &messages), [[0, 8]]);
}

#[test]
fn equal_stamps_are_a_set_at_once() {
    for policy in [
        GroupingPolicy::Approximate,
        GroupingPolicy::Exact,
        GroupingPolicy::Epsilon,
    ] {
        let sets = sets_ms(
            &config(policy, 3),
            &[(0, 10), (1, 10), (2, 10), (0, 20), (2, 20), (1, 20)],
        );
        assert_eq!(sets, [[10, 10, 10], [20, 20, 20]], "{policy}");
    }
}

#[test]
fn a_latency_moves_the_time_and_not_the_stamp() {
    let mut config = config(GroupingPolicy::Exact, 2);
    config.inputs[1].latency_ms = 33.0;
    assert_eq!(sets_ms(&config, &[(0, 10), (1, 10), (1, 43)]), [[10, 43]]);
    config.inputs[1].latency_ms = -5.5;
    let (grouped, _) = group(&config, &[(0, 10 * MS), (1, 4_500_000)]);
    assert_eq!(grouped.infos, [(10 * MS, 0, 0)]);
}

#[test]
fn epsilon_is_inclusive() {
    let config = config(GroupingPolicy::Epsilon, 2);
    assert_eq!(
        sets_ms(&config, &[(0, 10), (1, 20), (0, 30), (1, 41), (0, 45)]),
        [[10, 20], [45, 41]]
    );
}

#[test]
fn every_drop_has_its_reason() {
    let reasons = |config: &GroupingConfig, messages: &[(usize, i64)]| {
        let stamped: Vec<_> = messages.iter().map(|&(stream, ms)| (stream, ms * MS)).collect();
        let (grouped, _) = group(config, &stamped);
        grouped.dropped
    };
    use DropReason::*;
    let mut approximate = config(GroupingPolicy::Approximate, 2);
    approximate.queue_size = 2;
    assert_eq!(
        reasons(&approximate, &[(0, 0), (1, 30), (0, 40), (1, 60)]),
        [(0, 0, Displaced)]
    );
    assert_eq!(reasons(&approximate, &[(0, 0), (0, 10), (0, 20)]), [(0, 0, Overflow)]);
    approximate.max_span_ms = Some(10.0);
    assert_eq!(reasons(&approximate, &[(0, 0), (1, 11)]), [(0, 0, Span)]);
    approximate.inputs[0].reset_ms = 5.0;
    assert_eq!(reasons(&approximate, &[(0, 100), (0, 94)]), [(0, 0, Jump)]);
    let mut exact = config(GroupingPolicy::Exact, 2);
    exact.queue_size = 1;
    assert_eq!(reasons(&exact, &[(0, 0), (0, 10)]), [(0, 0, Overflow)]);
    exact.queue_size = 2;
    assert_eq!(reasons(&exact, &[(0, 0), (0, 10), (1, 10)]), [(0, 0, Displaced)]);
    assert_eq!(
        reasons(&exact, &[(0, 0), (0, 0)]),
        [(0, 0, Displaced)],
        "the later of two replaces the earlier"
    );
    assert_eq!(
        reasons(&config(GroupingPolicy::Epsilon, 2), &[(0, 0), (1, 11)]),
        [(0, 0, Span)]
    );

    let (mut grouper, mut grouped) = (Grouper::new(&approximate).unwrap(), Grouped::default());
    for ms in [10, 8] {
        let arrival = grouper.push(0, ms * MS, 1, || 0).unwrap();
        assert_eq!(arrival.dropped, (ms == 8).then_some(OutOfOrder));
    }
    grouped.take(&mut grouper);
    assert_eq!((grouper.dropped(0, OutOfOrder), grouped.dropped.len()), (1, 0));
}

#[test]
fn bytes_are_bounded_and_the_greatest_goes_first() {
    for policy in [
        GroupingPolicy::Approximate,
        GroupingPolicy::Exact,
        GroupingPolicy::Epsilon,
    ] {
        let mut config = config(policy, 3);
        (config.queue_size, config.max_held_mb) = (1000, 1.0);
        let (mut grouper, mut grouped) = (Grouper::new(&config).unwrap(), Grouped::default());
        assert_eq!(grouper.max_held_bytes(), 1 << 20);
        for i in 0..200 {
            let (stream, bytes) = if i % 4 == 0 { (1, 1000) } else { (0, 20_000) };
            grouper.push(stream, i as i64 * MS, bytes, || i).unwrap();
            assert!(grouper.held_bytes() <= 1 << 20, "{policy}");
            grouped.take(&mut grouper);
        }
        let dropped = [0, 1].map(|stream| grouper.dropped(stream, DropReason::Memory));
        // 52 messages of 20,000 bytes fit, or 51 beside the small ones. Of an incomplete set, `exact` drops all messages.
        let expected = if policy == GroupingPolicy::Exact { dropped[1] } else { 0 };
        assert!(dropped[0] >= 98 && dropped[1] == expected, "{policy}: {dropped:?}");
        assert!(grouped.dropped.is_sorted_by_key(|&(_, number, _)| number));
        // A message that is larger than the limit is refused, and no other is dropped for it.
        let held = grouper.held_bytes();
        let arrival = grouper.push(2, 300 * MS, (1 << 20) + 1, || panic!("it is not held"));
        assert_eq!(arrival.unwrap().dropped, Some(DropReason::Memory));
        assert_eq!(grouper.held_bytes(), held);
    }
}

#[test]
fn a_clock_that_is_set_back_begins_an_epoch_and_sets_go_on() {
    let mut config = config(GroupingPolicy::Exact, 2);
    config.inputs.iter_mut().for_each(|input| input.reset_ms = 1000.0);
    // A recording is played twice: the second stream is still behind when the first begins again.
    let messages = [
        (0, 5000),
        (1, 5000),
        (0, 5100),
        (0, 0),
        (1, 5100),
        (1, 0),
        (0, 100),
        (1, 100),
    ];
    let stamped: Vec<_> = messages.iter().map(|&(stream, ms)| (stream, ms * MS)).collect();
    let (grouped, _) = group(&config, &stamped);
    let epochs: Vec<_> = grouped
        .infos
        .iter()
        .map(|&(newest, _, epoch)| (newest / MS, epoch))
        .collect();
    assert_eq!(epochs, [(5000, 0), (100, 2)]);
    // Both streams step back at once: one jump. A step back of exactly `reset_ms` is not a jump.
    let messages = [
        (0, 5000),
        (1, 5000),
        (0, 4000),
        (0, 2999),
        (1, 2999),
        (1, 3000),
        (0, 3000),
    ];
    let stamped: Vec<_> = messages.iter().map(|&(stream, ms)| (stream, ms * MS)).collect();
    let (grouped, _) = group(&config, &stamped);
    let epochs: Vec<_> = grouped
        .infos
        .iter()
        .map(|&(newest, _, epoch)| (newest / MS, epoch))
        .collect();
    assert_eq!(epochs, [(5000, 0), (2999, 1), (3000, 1)]);
}

#[test]
fn a_stamp_far_ahead_of_every_stream_is_a_jump_where_that_is_asked_for() {
    for (jump_ms, expected) in [(None, 1), (Some(10_000.0), 2)] {
        let mut config = config(GroupingPolicy::Approximate, 2);
        for input in &mut config.inputs {
            (input.reset_ms, input.jump_ms) = (1000.0, jump_ms);
        }
        let (mut grouper, mut grouped) = (Grouper::new(&config).unwrap(), Grouped::default());
        // One bad stamp, a day ahead. A day without messages is not a jump once one stream is past it.
        for (stream, ms) in [
            (0, 0),
            (1, 5),
            (0, 86_400_000),
            (0, 100),
            (1, 105),
            (0, 200),
            (1, 205),
            (0, 300),
        ] {
            grouper.push(stream, ms * MS, 1, || 0).unwrap();
            grouped.take(&mut grouper);
        }
        let last = grouped.infos.last().unwrap();
        assert_eq!((last.0, last.2), (205 * MS, expected), "{jump_ms:?}");
    }
}

#[test]
fn a_closed_input_is_not_waited_for() {
    let config = config(GroupingPolicy::Approximate, 2);
    let (mut grouper, mut grouped) = (Grouper::new(&config).unwrap(), Grouped::default());
    let mut number = 0;
    let mut push = |grouper: &mut Grouper<usize>, stream, ms: i64| {
        number += 1;
        grouper.push(stream, ms * MS, 1, || number).unwrap();
    };
    push(&mut grouper, 0, 0);
    push(&mut grouper, 1, 30);
    grouper.close(0);
    grouped.take(&mut grouper);
    assert_eq!(grouped.infos, [(30 * MS, 30 * MS, 0)]);
    // Messages of a closed stream are still used, and a stream that sends is open again.
    push(&mut grouper, 1, 60);
    push(&mut grouper, 0, 40);
    grouped.take(&mut grouper);
    assert_eq!(grouped.sets.len(), 1, "50 may come, and be nearer");
    grouper.close(0);
    grouper.close(1);
    grouped.take(&mut grouper);
    assert_eq!(grouped.infos[1..], [(60 * MS, 20 * MS, 0)]);
}

#[test]
fn stamps_that_are_no_times_are_refused() {
    let mut grouper = Grouper::new(&config(GroupingPolicy::Approximate, 2)).unwrap();
    for stamp in [i64::MIN, i64::MAX, (1 << 61) + 1] {
        let error = grouper.push(0, stamp, 1, || 0).unwrap_err();
        assert!(error.to_string().contains("allowed: +-2^61"), "{error}");
    }
    // The ends of the allowed range don't overflow.
    for (stream, stamp) in [(0, -(1 << 61)), (1, 1 << 61), (0, 1 << 61), (1, 1 << 61)] {
        grouper.push(stream, stamp, 1, || 0).unwrap();
    }
}

#[test]
fn a_configuration_that_cannot_work_is_refused_with_its_key() {
    type Change = fn(&mut GroupingConfig);
    let cases: [(Change, &str, &str); 15] = [
        (|config| config.inputs.truncate(1), "inputs", "is 1 (allowed"),
        (|config| config.inputs.clear(), "inputs", "2 or more"),
        (|config| config.inputs[1].input.clear(), "inputs[1].input", "empty"),
        (
            |config| config.inputs[1].input = "s0".into(),
            "inputs[1].input",
            "inputs[0]",
        ),
        (|config| config.queue_size = 0, "queue_size", "1 to 10000"),
        (|config| config.queue_size = 10_001, "queue_size", "10001"),
        (|config| config.max_held_mb = 0.0, "max_held_mb", "above 0"),
        (|config| config.max_held_mb = f64::NAN, "max_held_mb", "NaN"),
        (|config| config.age_penalty = Some(-0.1), "age_penalty", "0 to 1000"),
        (|config| config.max_span_ms = Some(-1.0), "max_span_ms", "-1"),
        (
            |config| config.inputs[0].min_period_ms = Some(f64::NAN),
            "inputs[0].min_period_ms",
            "NaN",
        ),
        (
            |config| config.inputs[0].latency_ms = 1e13,
            "inputs[0].latency_ms",
            "1e12",
        ),
        (|config| config.inputs[1].reset_ms = -1.0, "inputs[1].reset_ms", "-1"),
        (
            |config| config.inputs[1].jump_ms = Some(-1.0),
            "inputs[1].jump_ms",
            "-1",
        ),
        (
            |config| config.policy = GroupingPolicy::Epsilon,
            "max_span_ms",
            "needs it",
        ),
    ];
    let refused = |config: &GroupingConfig| -> ConfigError { Grouper::<()>::new(config).err().unwrap() };
    for (change, key, word) in cases {
        let mut config = config(GroupingPolicy::Approximate, 2);
        change(&mut config);
        let error = refused(&config);
        assert!(error.key == key && error.problem.contains(word), "{error}");
    }
    // Keys that the policy does not use.
    let unused: [(Change, &str); 3] = [
        (|config| config.age_penalty = Some(0.1), "age_penalty"),
        (|config| config.max_span_ms = Some(1.0), "max_span_ms"),
        (
            |config| config.inputs[0].min_period_ms = Some(1.0),
            "inputs[0].min_period_ms",
        ),
    ];
    for (change, key) in unused {
        let mut config = config(GroupingPolicy::Exact, 2);
        change(&mut config);
        let error = refused(&config);
        assert!(
            error.key == key && error.problem.contains("`exact` does not use this key"),
            "{error}"
        );
    }
    let unknown = serde_yaml::from_str::<GroupingConfig>("{ policy: fuzzy, inputs: [] }").unwrap_err();
    assert!(
        unknown.to_string().contains("`approximate`, `exact`, `epsilon`"),
        "{unknown}"
    );
}
