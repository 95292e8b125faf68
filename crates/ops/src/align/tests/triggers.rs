//! Tests of observations at the samples of a stream, at requests and at timer ticks.

use super::{MS, Notice, Refusal, Script, config, refusal};

#[test]
fn the_samples_of_a_stream_are_the_targets() {
    let keys = "window: 2, trigger: {stream: camera}";
    let mut t = Script::new(keys, &["input: camera", "input: arm, interpolation: linear"]);
    t.push("camera", 3, 1.0, &[]);
    t.push("arm", 0, 0.0, &[]);
    t.push("arm", 8, 8.0, &["-7: camera=0!@- arm=0!@- | 3: camera=1@0 arm=3@3"]);
    t.push("camera", 36, 2.0, &[]);
    t.push("camera", 41, 3.0, &[]); // rows are a period of 10 ms apart
    t.push(
        "arm",
        40,
        40.0,
        &["26: camera=1@23 arm=26@18 | 36: camera=2@0 arm=36@28"],
    );
    t.push(
        "arm",
        50,
        50.0,
        &["31: camera=1@28 arm=31@23 | 41: camera=3@0 arm=41@1"],
    );
    // At or before the last target: late, and no observation.
    assert!(t.push("camera", 41, 3.5, &[]).late);
    assert!(t.push("camera", 40, 3.6, &[]).late);
    t.push(
        "camera",
        42,
        4.0,
        &["32: camera=1@29 arm=32@24 | 42: camera=4@0 arm=42@2 late=2"],
    );
}

#[test]
fn rows_at_samples_are_those_of_the_stream_however_far_apart() {
    let keys = "window: 3, stride: 2, trigger: {stream: camera, rows: samples}";
    let mut t = Script::new(keys, &["input: camera", "input: arm, interpolation: nearest"]);
    t.push("arm", 0, 5.0, &[]);
    t.push("arm", 1000, 6.0, &[]);
    // Times before the first sample are in no row, whatever the other streams have.
    t.push(
        "camera",
        11,
        1.0,
        &["-29: camera=0!@- arm=0!@- | -9: camera=0!@- arm=0!@- | 11: camera=1@0 arm=5@11"],
    );
    t.push(
        "camera",
        44,
        2.0,
        &["-19: camera=0!@- arm=0!@- | 1: camera=0!@- arm=0!@- | 44: camera=2@0 arm=5@44"],
    );
    t.push(
        "camera",
        78,
        3.0,
        &["-9: camera=0!@- arm=0!@- | 11: camera=1@0 arm=5@11 | 78: camera=3@0 arm=5@78"],
    );
    t.push(
        "camera",
        300,
        4.0,
        &["1: camera=0!@- arm=0!@- | 44: camera=2@0 arm=5@44 | 300: camera=4@0 arm=5@300"],
    );
    t.push(
        "camera",
        600,
        5.0,
        &["11: camera=1@0 arm=5@11 | 78: camera=3@0 arm=5@78 | 600: camera=5@0 arm=6@600"],
    );
    // Samples that no window can need are forgotten.
    for i in 0..1000 {
        let pushed = t
            .timeline
            .push(0, (610 + i) * MS, robocache_device::Values::from_f32(&[1.0]))
            .unwrap();
        assert!(!pushed.overflowed && !pushed.late);
        t.timeline
            .push(1, (1001 + i) * MS, robocache_device::Values::from_f32(&[1.0]))
            .unwrap();
        while t.timeline.due().is_some() {}
    }
    assert!(
        t.timeline.history(0).times().len() < 8,
        "{:?}",
        t.timeline.history(0).times().len()
    );
}

#[test]
fn every_and_the_least_interval_count_from_the_last_target() {
    let mut t = Script::new("trigger: {stream: a, every: 3}", &["input: a"]);
    t.push("a", 7, 1.0, &["7: a=1@0"]);
    t.push("a", 8, 2.0, &[]);
    t.push("a", 9, 3.0, &[]);
    t.push("a", 13, 4.0, &["13: a=4@0"]);
    let keys = "trigger: {stream: a, every: 2, min_interval_ms: 10}";
    let mut t = Script::new(keys, &["input: a"]);
    t.push("a", 0, 1.0, &["0: a=1@0"]);
    t.push("a", 4, 2.0, &[]);
    t.push("a", 9, 3.0, &[]); // the second, but only 9 ms later
    t.push("a", 10, 4.0, &["10: a=4@0"]);
    t.push("a", 30, 5.0, &[]); // far enough, but the first
    t.push("a", 31, 6.0, &["31: a=6@0"]);
}

#[test]
fn samples_that_are_late_within_reorder_are_targets_in_the_order_of_time() {
    let keys = "trigger: {stream: a}";
    let mut t = Script::new(keys, &["input: a, reorder_ms: 10", "input: b"]);
    t.push("b", 100, 9.0, &[]);
    t.push("a", 20, 2.0, &[]);
    t.push("a", 29, 3.0, &[]);
    t.push("a", 12, 1.0, &[]); // b begins at 100: nothing before that is a target
    t.push("a", 125, 5.0, &[]);
    t.push("a", 119, 4.0, &[]);
    t.push("b", 140, 9.5, &[]);
    t.push("a", 135, 6.0, &["119: a=4@0 b=9@19", "125: a=5@0 b=9@25"]);
}

#[test]
fn max_wait_and_closed_inputs_do_as_on_the_grid() {
    let keys = "trigger: {stream: a}, max_wait_ms: 20";
    let mut t = Script::new(keys, &["input: a", "input: b, max_age_ms: 5"]);
    t.push("a", 3, 1.0, &[]);
    t.push("b", 3, 5.0, &["3: a=1@0 b=5@0"]);
    t.push("a", 13, 2.0, &[]);
    t.push("a", 32, 3.0, &[]);
    t.push("a", 33, 4.0, &["13: a=2@0 b=0!@10"]);
    assert!(t.push("b", 12, 5.5, &[]).late);
    t.close("b", &["32: a=3@0 b=0!@20 late=1", "33: a=4@0 b=0!@21 late=1"]);
    t.push("a", 50, 5.0, &["50: a=5@0 b=0!@38 late=1"]);
}

#[test]
fn a_leader_whose_clock_jumps_begins_anew() {
    for (stamp, epoch) in [(1_000_000, 1), (90_000, 1)] {
        let keys = "trigger: {stream: a}, max_wait_ms: 20";
        let mut t = Script::new(keys, &["input: a", "input: b"]);
        t.push("a", 100_000, 1.0, &[]);
        t.push("b", 100_000, 5.0, &["100000: a=1@0 b=5@0"]);
        let b = if stamp < 100_000 { "b=0!@-" } else { "b=5@900000" };
        let at = |ms: i64| format!("{ms}: a=2@0 {b} epoch={epoch}");
        if stamp < 100_000 {
            t.push("a", stamp, 2.0, &[]); // b is waited for until 20 ms after the first sample
            t.push("a", stamp + 20, 2.0, &[&at(stamp + 20)]);
            t.push("a", stamp + 25, 2.0, &[&at(stamp + 25)]);
        } else {
            t.push("a", stamp, 2.0, &[]);
            t.push("a", stamp + 20, 2.0, &[&at(stamp)]);
        }
        assert!(
            t.timeline
                .take_notices()
                .all(|notice| matches!(notice, Notice::StartedWithout { .. }))
        );
    }
    // Another stream's jump repeats nothing.
    let mut t = Script::new("trigger: {stream: a}", &["input: a", "input: b, reset_ms: 50"]);
    t.push("a", 100, 1.0, &[]);
    t.push("b", 100, 5.0, &["100: a=1@0 b=5@0"]);
    t.push("b", 10, 6.0, &[]);
    t.push("a", 110, 2.0, &[]);
    t.push("b", 111, 7.0, &["110: a=2@0 b=6@100 late=1 epoch=1"]);
}

#[test]
fn a_request_gets_the_time_that_it_asks_for_when_that_is_due() {
    let mut t = Script::new(
        "trigger: {request: ask}",
        &["input: a", "input: b, interpolation: linear"],
    );
    assert_eq!(t.ask(None, &[]), Ok(0)); // before the first sample
    t.push("a", 5, 1.0, &[]);
    t.push("b", 0, 0.0, &[]);
    t.push("b", 7, 7.0, &["5: a=1@0 b=5@5 #0"]);
    assert_eq!(t.ask(Some(3), &["3: a=0!@- b=3@3 #1"]), Ok(1));
    assert_eq!(t.ask(Some(9), &[]), Ok(2));
    assert_eq!(t.ask(None, &[]), Ok(3)); // waits its turn
    assert_eq!(t.ask(Some(5), &[]), Ok(4));
    assert_eq!(t.timeline.waiting_requests(), 3);
    t.push("a", 20, 2.0, &[]);
    t.push(
        "b",
        17,
        17.0,
        &["9: a=1@4 b=9@2 #2", "17: a=1@12 b=17@0 #3", "5: a=1@0 b=5@5 #4"],
    );
    // Samples are late for the newest target so far, 17.
    assert!(t.push("b", 16, 0.0, &[]).late && !t.push("b", 18, 18.0, &[]).late);
    assert_eq!(t.refused(), []);
}

#[test]
fn a_request_for_a_time_that_is_not_near_is_refused() {
    let mut t = Script::new("trigger: {request: ask}", &["input: a"]);
    assert_eq!(t.ask(Some(60_000), &[]), Ok(0)); // nothing tells the time yet
    assert_eq!(t.ask(Some(1_600), &[]), Ok(1));
    t.push("a", 2000, 1.0, &["1600: a=0!@- #1"]);
    let far_ahead = Refusal::FarAhead {
        asked_ns: 60_000 * MS,
        ahead_ns: 58_000 * MS,
    };
    assert_eq!(t.refused(), [(0, far_ahead)]);
    assert_eq!(t.ask(Some(12_000), &[]), Ok(2));
    let asked_ns = 12_000 * MS + 1;
    assert_eq!(
        t.timeline.ask(Some(asked_ns)),
        Err(Refusal::FarAhead {
            asked_ns,
            ahead_ns: 10_000 * MS + 1
        })
    );
    assert_eq!(t.timeline.ask(Some(1 << 62)), Err(Refusal::OutOfRange(1 << 62)));
    assert_eq!(
        t.timeline.ask(Some(1000 * MS - 1)),
        Err(Refusal::LongPast {
            asked_ns: 1000 * MS - 1,
            behind_ns: 1000 * MS + 1
        })
    );
    assert_eq!(
        Refusal::LongPast {
            asked_ns: 5,
            behind_ns: 2_500 * MS
        }
        .to_string(),
        "it asks for 5 ns, 2.500 s before the newest time that is due (allowed: up to 1 s before it)"
    );
    // One request waits, so that 255 more may.
    assert_eq!(t.timeline.waiting_requests(), 1);
    for number in 3..258 {
        assert_eq!(t.ask(Some(12_000), &[]), Ok(number));
    }
    assert_eq!(t.ask(None, &[]), Err(Refusal::TooMany));
    // A clock jump refuses requests that wait for a time, and once all streams are closed no request waits.
    t.push("a", 0, 2.0, &[]);
    assert_eq!(t.refused().len(), 256);
    assert_eq!(t.ask(Some(100), &[]), Ok(258));
    t.close("a", &[]);
    assert_eq!(t.refused(), [(258, Refusal::Closed)]);
    assert_eq!(t.ask(None, &["0: a=2@0 #259 epoch=1"]), Ok(259));
    assert_eq!(t.ask(Some(1), &[]), Ok(260));
    assert_eq!(t.refused(), [(260, Refusal::Closed)]);
}

#[test]
fn a_request_a_second_back_finds_its_whole_window() {
    let mut t = Script::new(
        "window: 11, trigger: {request: ask}",
        &["input: a, interpolation: linear"],
    );
    for ms in 0..3000 {
        t.push("a", ms, ms as f32, &[]);
    }
    let rows: Vec<String> = (0..11).map(|row| format!("{}: a={0}@0", 1899 + 10 * row)).collect();
    t.ask(Some(1999), &[&format!("{} #0", rows.join(" | "))]).unwrap();
    assert!(t.timeline.history(0).times().len() < 1200);
    // So does a request that waits for long.
    t.ask(Some(3000), &[]).unwrap();
    t.timeline.open(0);
    let rows: Vec<String> = (0..11).map(|row| format!("{}: a={0}@0", 2900 + 10 * row)).collect();
    t.push("a", 3000, 3000.0, &[&format!("{} #1", rows.join(" | "))]);
}

#[test]
fn a_request_without_a_time_waits_for_the_start_whatever_was_answered() {
    let mut t = Script::new("trigger: {request: ask}", &["input: a, reorder_ms: 100", "input: b"]);
    t.push("b", 0, 5.0, &[]);
    t.push("a", 110, 1.0, &[]); // a is past 10, and begins at 110
    t.push("b", 20, 6.0, &[]);
    t.ask(Some(5), &["5: a=0!@- b=5@5 #0"]).unwrap();
    t.ask(None, &[]).unwrap();
    t.push("b", 300, 7.0, &[]);
    t.push("a", 209, 2.0, &[]);
    t.push("a", 215, 3.0, &["115: a=1@5 b=6@95 #1"]);
}

#[test]
fn max_wait_answers_requests_as_it_does_the_grid() {
    let keys = "trigger: {request: ask}, max_wait_ms: 20";
    let mut t = Script::new(keys, &["input: a", "input: b"]);
    t.push("a", 0, 1.0, &[]);
    t.ask(Some(5), &[]).unwrap();
    t.push("a", 24, 2.0, &[]);
    t.push("a", 25, 3.0, &["5: a=1@5 b=0!@- #0"]);
    // The start is at 20.
    t.ask(None, &[]).unwrap();
    t.push("a", 39, 4.0, &[]);
    t.push("a", 41, 5.0, &["21: a=1@21 b=0!@- #1"]);
}

#[test]
fn a_tick_gives_the_newest_time_that_is_due() {
    let mut t = Script::new("trigger: {timer: tick}", &["input: a", "input: b"]);
    t.tick(&[]);
    t.push("a", 13, 1.0, &[]);
    t.tick(&[]);
    t.push("b", 7, 5.0, &[]);
    t.tick(&[]); // a begins at 13
    t.push("b", 17, 6.0, &[]);
    t.tick(&["13: a=1@0 b=5@6"]);
    t.tick(&[]); // no newer time is due
    t.push("a", 40, 2.0, &[]);
    t.push("b", 39, 7.0, &[]);
    t.tick(&["39: a=1@26 b=7@0"]);
    t.close("a", &[]);
    t.push("b", 45, 8.0, &[]);
    t.tick(&["45: a=2@5 b=8@0"]);
    // However long no tick comes, only the samples of a window up to a second back are held.
    for ms in 46..4000 {
        t.push("b", ms, 0.0, &[]);
    }
    assert!(t.timeline.history(1).times().len() < 1010);
}

#[test]
fn a_tick_finds_its_window_where_what_is_due_has_gone_back() {
    let mut t = Script::new("window: 3, trigger: {timer: tick}", &["input: a", "input: b"]);
    t.push("a", 0, 1.0, &[]);
    t.push("b", 0, 5.0, &[]);
    t.close("b", &[]);
    for ms in 1..=500 {
        t.push("a", ms, ms as f32, &[]);
    }
    // All up to 500 ms was due, until b opened again.
    t.push("b", 300, 6.0, &[]);
    t.tick(&["280: a=280@0 b=5@280 | 290: a=290@0 b=5@290 | 300: a=300@0 b=6@0"]);
}

#[test]
fn a_request_that_was_near_is_refused_where_the_newest_sample_is_another_one() {
    let modalities = ["input: a", "input: b, wait: false"];
    let far_ahead = |asked: i64, ahead: i64| Refusal::FarAhead {
        asked_ns: asked * MS,
        ahead_ns: ahead * MS,
    };
    // A request that stays would hold up all requests after it for as long.
    let mut t = Script::new("trigger: {request: ask}", &modalities);
    t.push("b", 0, 5.0, &[]);
    t.ask(Some(60_000), &[]).unwrap();
    t.ask(None, &[]).unwrap();
    // `b` makes nothing due.
    t.close("a", &[]);
    assert_eq!(t.refused(), [(0, Refusal::Closed), (1, Refusal::Closed)]);

    let mut t = Script::new("trigger: {request: ask}", &modalities);
    t.push("a", 20_000, 1.0, &[]);
    t.ask(Some(21_000), &[]).unwrap();
    t.ask(None, &[]).unwrap();
    t.timeline.set_latency_ms(0, 18_000.0).unwrap();
    t.falls_due(&["2000: a=1@0 b=0!@- #1"]);
    assert_eq!(t.refused(), [(0, far_ahead(21_000, 19_000))]);
}

#[test]
fn what_a_stopped_leader_holds_up_goes_on_for_ticks_and_requests_too() {
    for trigger in ["{timer: tick}", "{request: ask}"] {
        let keys = format!("trigger: {trigger}, max_wait_ms: 20");
        let mut t = Script::new(&keys, &["input: a", "input: b"]);
        let mut last = None;
        for step in 0..200 {
            let ms = 10 * step;
            // `a` is 5 s ahead, and stops.
            if step < 50 {
                t.timeline
                    .push(0, (5000 + ms) * MS, robocache_device::Values::from_f32(&[1.0]))
                    .unwrap();
            }
            t.timeline
                .push(1, ms * MS, robocache_device::Values::from_f32(&[2.0]))
                .unwrap();
            match trigger {
                "{timer: tick}" => t.timeline.tick(),
                _ => drop(t.timeline.ask(None)),
            }
            while let Some(target) = t.timeline.due() {
                last = Some(target.time_ns / MS);
            }
        }
        assert_eq!(last, Some(1990), "{trigger}"); // nothing waits for a
    }
}

#[test]
fn the_wait_is_by_stamps_whatever_the_order_of_arrival() {
    let streams = [
        "input: a",
        "input: b, interpolation: linear",
        "input: c, reorder_ms: 4",
        "input: d, min_period_ms: 30",
    ];
    let samples = [
        (0, 0),
        (0, 12),
        (0, 25),
        (1, 0),
        (1, 7),
        (1, 18),
        (1, 21),
        (2, 0),
        (2, 11),
        (2, 30),
        (3, 0),
        (3, 31),
    ];
    let mut waits: Vec<Vec<(i64, i64)>> = Vec::new();
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
        let mut t = Script::new("", &streams);
        let mut seen = Vec::new();
        for stream in order {
            for (_, ms) in samples.iter().filter(|(of, _)| *of == stream) {
                t.timeline
                    .push(stream, ms * MS, robocache_device::Values::from_f32(&[0.0]))
                    .unwrap();
                while let Some(target) = t.timeline.due() {
                    seen.push((target.time_ns / MS, t.timeline.wait_ns(&target) / MS));
                }
            }
        }
        waits.push(seen);
    }
    // For the target 10, b has to come to 18, and c 4 ms past the target. For 20, a has to come to 25.
    assert_eq!(waits[0], [(0, 4), (10, 8), (20, 5)]);
    assert!(waits.iter().all(|seen| *seen == waits[0]), "{waits:?}");
    // With `max_wait_ms` the wait is at most that, plus the time to the next sample.
    let mut t = Script::new("max_wait_ms: 15", &["input: a", "input: b"]);
    t.push("a", 0, 0.0, &[]);
    t.push("b", 0, 0.0, &["0: a=0@0 b=0@0"]);
    t.push("a", 8, 0.0, &[]);
    t.timeline
        .push(0, 27 * MS, robocache_device::Values::from_f32(&[0.0]))
        .unwrap();
    let target = t.timeline.due().unwrap();
    assert_eq!((target.time_ns, t.timeline.wait_ns(&target)), (10 * MS, 17 * MS));
}

#[test]
fn a_trigger_that_can_not_be_is_refused() {
    let streams = ["input: a", "input: b, wait: false"];
    for (keys, expected) in [
        (
            "trigger: {stream: c}",
            "trigger.stream: `c` is the input of no modality (allowed: a, b)",
        ),
        (
            "trigger: {stream: b}",
            "modalities[1].wait: false, although the samples of `b` are the targets (allowed: true)",
        ),
        (
            "trigger: {stream: a, every: 0}",
            "trigger.every: 0 (allowed: 1 to 1048576)",
        ),
        (
            "trigger: {stream: a, min_interval_ms: -1}",
            "trigger.min_interval_ms: -1 is not a duration",
        ),
        (
            "trigger: {request: a}",
            "trigger.request: `a` is modalities[0] (allowed: an input of its own)",
        ),
        (
            "trigger: {timer: b}",
            "trigger.timer: `b` is modalities[1] (allowed: an input of its own)",
        ),
        (
            "trigger: {timer: ''}",
            "trigger.timer: it is empty (needed: the name of an input)",
        ),
        (
            "emit_every: 2, trigger: {stream: a}",
            "emit_every: 2 does not go with the trigger `stream`: `emit_every` counts targets of the grid (allowed: 1; `trigger.every` counts samples)",
        ),
        (
            "emit_every: 2, trigger: {timer: t}",
            "emit_every: 2 does not go with the trigger `timer`: `emit_every` counts targets of the grid (allowed: 1)",
        ),
    ] {
        let refused = refusal(&config(keys, &streams));
        assert!(
            refused.contains(expected),
            "{keys}\n  gives: {refused}\n  not:   {expected}"
        );
    }
    assert_eq!(config("trigger: null", &streams).trigger, None);
}
