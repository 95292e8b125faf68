//! Tests of clocks that jump, and of stamps that are garbage.

use super::{MS, Notice, SampleError, Script, Values};

/// A time in the far future, ms, that is still within +-2^61 ns, the range of stamps.
const FAR: i64 = i64::MAX / 8 / MS;

#[test]
fn a_stamp_that_goes_back_by_more_than_reset_clears_the_stream_and_starts_the_grid_anew() {
    let mut t = Script::new("", &["input: a, reset_ms: 50", "input: b"]);
    t.push("a", 100, 1.0, &[]);
    t.push("b", 100, 5.0, &["100: a=1@0 b=5@0"]);
    let pushed = t.push("a", 49, 2.0, &[]);
    assert_eq!((pushed.jumped_ns, pushed.late), (Some(-51 * MS), true));
    // b is still at 100, so time did not go back, and 100 is not sent again
    t.push("a", 99, 3.0, &[]);
    t.push("a", 101, 4.0, &[]);
    t.push("b", 110, 6.0, &[]);
    t.push("a", 109, 6.5, &[]);
    t.push("a", 111, 7.0, &["110: a=6.5@1 b=6@0 late=2 epoch=1"]);
}

#[test]
fn a_stamp_that_goes_back_by_no_more_than_reset_is_only_late() {
    let mut t = Script::new("", &["input: a, reset_ms: 50"]);
    t.push("a", 100, 1.0, &["100: a=1@0"]);
    let pushed = t.push("a", 50, 2.0, &[]);
    assert_eq!((pushed.jumped_ns, pushed.late), (None, true));
    t.push("a", 110, 3.0, &["110: a=3@0 late=1"]);
}

#[test]
fn a_jump_between_two_observations_finds_the_samples_of_every_window_after_the_last_one() {
    let mut t = Script::new("window: 3, emit_every: 3", &["input: a", "input: b"]);
    for step in 0..=10 {
        t.push("a", 10 * step, step as f32, &[]);
    }
    t.push(
        "b",
        0,
        10.0,
        &["-20: a=0!@- b=0!@- | -10: a=0!@- b=0!@- | 0: a=0@0 b=10@0"],
    );
    t.push(
        "b",
        2000,
        11.0,
        &[
            "10: a=1@0 b=10@10 | 20: a=2@0 b=10@20 | 30: a=3@0 b=10@30",
            "40: a=4@0 b=10@40 | 50: a=5@0 b=10@50 | 60: a=6@0 b=10@60",
            "70: a=7@0 b=10@70 | 80: a=8@0 b=10@80 | 90: a=9@0 b=10@90",
        ],
    );
    t.push("b", 45, 12.0, &[]);
    // 120 ms would have come next; after the jump it is 100 ms, and its window begins at 80.
    t.push(
        "b",
        100,
        13.0,
        &["80: a=8@0 b=12@35 | 90: a=9@0 b=12@45 | 100: a=10@0 b=13@0 late=1 epoch=1"],
    );
}

#[test]
fn a_jump_of_a_stream_that_nobody_waits_for_skips_no_target() {
    let mut t = Script::new("emit_every: 7", &["input: a", "input: c, wait: false, reset_ms: 5"]);
    t.push("a", 0, 1.0, &["0: a=1@0 c=0!@-"]);
    t.push("c", 0, 5.0, &[]);
    t.push("a", 70, 2.0, &["70: a=2@0 c=5@70 late=1"]);
    t.push("c", 95, 6.0, &[]);
    t.push("c", 80, 7.0, &[]);
    t.push("a", 90, 3.0, &["80: a=2@10 c=7@0 late=1 epoch=1"]);
    t.push("a", 150, 4.0, &["150: a=4@0 c=7@70 late=1 epoch=1"]);
}

#[test]
fn reset_is_a_second_where_it_is_not_said() {
    let mut t = Script::new("", &["input: a"]);
    t.push("a", 2000, 1.0, &["2000: a=1@0"]);
    assert_eq!(t.push("a", 1000, 2.0, &[]).jumped_ns, None);
    assert_eq!(t.push("a", 999, 3.0, &[]).jumped_ns, Some(-1001 * MS));
    t.push("a", 1000, 4.0, &["1000: a=4@0 late=1 epoch=1"]);
}

#[test]
fn a_stamp_that_goes_forward_by_more_than_jump_does_the_same() {
    let mut t = Script::new("window: 2", &["input: a, jump_ms: 50", "input: b"]);
    t.push("a", 100, 1.0, &[]);
    t.push("b", 100, 5.0, &["90: a=0!@- b=0!@- | 100: a=1@0 b=5@0"]);
    assert_eq!(t.push("a", 150, 2.0, &[]).jumped_ns, None);
    assert_eq!(t.push("a", 201, 3.0, &[]).jumped_ns, Some(51 * MS));
    t.push("a", 210, 4.0, &[]);
    // b's samples from before the jump are kept, a's are not
    t.push("b", 210, 6.0, &["200: a=0!@- b=5@100 | 210: a=4@0 b=6@0 epoch=1"]);
}

#[test]
fn without_jump_a_stream_may_go_forward_as_far_as_it_likes() {
    let mut t = Script::new("emit_every: 100", &["input: a"]);
    t.push("a", 0, 1.0, &["0: a=1@0"]);
    assert_eq!(
        t.push("a", 2500, 2.0, &["1000: a=1@1000", "2000: a=1@2000"]).jumped_ns,
        None
    );
}

/// All clocks of a robot are set back by an hour, one stream after the other.
#[test]
fn when_every_clock_is_set_back_observations_go_on_at_the_new_time() {
    let mut t = Script::new("max_wait_ms: 20", &["input: a", "input: b"]);
    let hour = 3_600_000;
    t.push("a", hour, 1.0, &[]);
    t.push("b", hour, 5.0, &["3600000: a=1@0 b=5@0"]);
    t.push("a", 10, 2.0, &[]); // b is still where it was
    t.push("b", 10, 6.0, &["10: a=2@0 b=6@0 late=1 epoch=2"]);
    t.push("a", 20, 3.0, &[]);
    t.push("b", 20, 7.0, &["20: a=3@0 b=7@0 late=1 epoch=2"]);
}

#[test]
fn a_stamp_that_can_be_no_time_is_refused_and_the_stream_goes_on() {
    let mut t = Script::new("max_wait_ms: 20", &["input: a", "input: b"]);
    t.push("a", 0, 1.0, &[]);
    t.push("b", 0, 5.0, &["0: a=1@0 b=5@0"]);
    for stamp in [i64::MAX, i64::MAX / 2, i64::MIN, i64::MIN / 2] {
        let error = t.try_push("a", stamp, Values::from_f32(&[9.0])).unwrap_err();
        assert_eq!(error, SampleError::StampOutOfRange(stamp));
        t.falls_due(&[]);
    }
    t.push("a", 10, 2.0, &[]);
    t.push("b", 10, 6.0, &["10: a=2@0 b=6@0"]);
}

/// One sample has a stamp in the far future, and then the stream continues as before. The step back counts as one clock jump.
#[test]
fn a_garbage_stamp_costs_one_epoch_with_max_wait() {
    let mut t = Script::new("max_wait_ms: 20", &["input: a, interpolation: linear", "input: b"]);
    t.push("a", 0, 1.0, &[]);
    t.push("b", 0, 5.0, &["0: a=1@0 b=5@0"]);
    t.push("a", FAR, 9.0, &[]);
    assert!(t.push("a", 10, 2.0, &[]).jumped_ns.is_some());
    t.push("b", 10, 6.0, &["10: a=2@0 b=6@0 epoch=1"]);
    t.push("a", 20, 3.0, &[]);
    t.push("b", 20, 7.0, &["20: a=3@0 b=7@0 epoch=1"]);
}

/// The observations up to the far future are skipped: no other stream holds them up, and they are too many to send.
#[test]
fn a_garbage_stamp_does_not_stall_a_single_stream_that_waits_for_ever() {
    let mut t = Script::new("", &["input: a"]);
    t.push("a", 0, 1.0, &["0: a=1@0"]);
    t.push(
        "a",
        FAR,
        9.0,
        &["1152921504600: a=1@1152921504600 epoch=1"], // 1152921504606 is FAR
    );
    assert!(t.push("a", 10, 2.0, &["10: a=2@0 epoch=2"]).jumped_ns.is_some());
    t.push("a", 20, 3.0, &["20: a=3@0 epoch=2"]);
}

#[test]
fn a_garbage_stamp_does_not_stall_the_flush_when_all_are_closed() {
    let mut t = Script::new("", &["input: a", "input: b"]);
    t.push("a", 0, 1.0, &[]);
    t.push("b", 0, 5.0, &["0: a=1@0 b=5@0"]);
    t.push("a", FAR, 9.0, &[]); // b holds it up
    t.push("b", 10, 6.0, &["10: a=1@10 b=6@0"]);
    t.close("a", &[]);
    t.close("b", &["1152921504600: a=1@1152921504600 b=6@1152921504590 epoch=1"]);
}

/// Observations continue with the other streams, in spite of one sample in the far future.
#[test]
fn a_garbage_stamp_changes_nothing_before_it_while_another_stream_holds_the_grid() {
    let mut t = Script::new("", &["input: a, interpolation: linear, max_gap_ms: 50", "input: b"]);
    t.push("a", 0, 1.0, &[]);
    t.push("b", 0, 5.0, &["0: a=1@0 b=5@0"]);
    t.push("a", FAR, 9.0, &[]);
    t.push("b", 10, 6.0, &["10: a=0!@10 b=6@0"]);
    t.push("a", 12, 2.0, &[]);
    t.push("a", 20, 3.0, &[]);
    t.push("b", 20, 7.0, &["20: a=3@0 b=7@0 epoch=1"]);
}

/// A first stamp in the far future or past does not stop observations: they continue once the other streams have
/// brought 8 samples.
#[test]
fn a_garbage_first_stamp_is_left_behind() {
    for far in [FAR, -FAR] {
        let mut t = Script::new("max_wait_ms: 20", &["input: a", "input: b"]);
        t.push("a", far, 9.0, &[]);
        for k in 0..20 {
            t.timeline.push(0, 10 * k * MS, Values::from_f32(&[1.0])).unwrap();
            t.timeline.push(1, 10 * k * MS, Values::from_f32(&[2.0])).unwrap();
            let mut sent = 0;
            while let Some(target) = t.timeline.due() {
                sent += 1;
                assert!(sent < 10);
                if k > 10 {
                    assert_eq!(
                        t.show(&target).split(" epoch").next().unwrap(),
                        format!("{}: a=1@0 b=2@0", 10 * k)
                    );
                }
            }
            assert!(k <= 10 || sent == 1, "{far}: {sent} at {k}");
        }
    }
}

/// A stream that died no longer delays observations once it is closed, however many have waited for it.
#[test]
fn targets_are_not_skipped_because_they_are_many() {
    for emit_every in [1, 7] {
        let keys = format!("emit_every: {emit_every}");
        let mut t = Script::new(&keys, &["input: a", "input: dead"]);
        t.push("dead", 0, 9.0, &[]);
        let count = 200_000;
        for k in 0..count {
            t.timeline.push(0, 10 * k * MS, Values::from_f32(&[k as f32])).unwrap();
        }
        t.timeline.close(1);
        let due = std::iter::from_fn(|| t.timeline.due());
        assert_eq!(
            due.filter(|target| target.epoch == 0).count() as i64,
            1 + (count - 1) / emit_every
        );
    }
}

#[test]
fn with_max_wait_a_stamp_ten_seconds_ahead_of_every_stream_is_aside() {
    let mut t = Script::new("max_wait_ms: 20", &["input: a", "input: b", "input: c, wait: false"]);
    t.push("a", 0, 1.0, &[]);
    t.push("b", 0, 5.0, &["0: a=1@0 b=5@0 c=0!@-"]);
    assert_eq!(t.push("c", 99_000, 7.0, &[]).jumped_ns, None); // its first sample, and nothing waits for it
    t.push("b", 10, 5.0, &[]);
    let ten = t.timeline.push(0, 10_000 * MS, Values::from_f32(&[2.0])).unwrap();
    assert_eq!(ten.jumped_ns, None); // only ten
    let fell = std::iter::from_fn(|| t.timeline.due()).last().unwrap();
    assert_eq!((fell.time_ns, fell.epoch), (9_980 * MS, 0));
    // b is 10.02 s ahead of itself, but a is there already
    assert_eq!(
        t.push(
            "b",
            10_030,
            6.0,
            &[
                "9990: a=1@9990 b=5@9980 c=0!@-",
                "10000: a=2@0 b=5@9990 c=0!@-",
                "10010: a=2@10 b=5@10000 c=0!@-"
            ]
        )
        .jumped_ns,
        None
    );
    // Nothing waits for a any more.
    let ahead = t.push(
        "a",
        20_031,
        3.0,
        &["10020: a=2@20 b=5@10010 c=0!@-", "10030: a=2@30 b=6@0 c=0!@-"],
    );
    assert_eq!(ahead.jumped_ns, None);
    assert_eq!(t.timeline.aside_ns(0), Some(10_001 * MS));
}

/// A stream whose clock alone is set back stays behind the other streams, and observations continue with these.
#[test]
fn a_stream_that_is_set_back_alone_does_not_silence_the_others() {
    let mut t = Script::new("max_wait_ms: 20", &["input: a", "input: b"]);
    t.push("a", 5000, 1.0, &[]);
    t.push("b", 5000, 5.0, &["5000: a=1@0 b=5@0"]);
    t.push("a", 3000, 2.0, &[]);
    t.push("b", 5030, 6.0, &["5010: a=2@2010 b=5@10 late=1 epoch=1"]);
    t.push("a", 3030, 3.0, &[]);
    t.push(
        "b",
        5060,
        7.0,
        &[
            "5020: a=3@1990 b=5@20 late=2 epoch=1",
            "5030: a=3@2000 b=6@0 late=2 epoch=1",
            "5040: a=3@2010 b=6@10 late=2 epoch=1",
        ],
    );
}

/// `b` sends one sample an hour ahead, and then none for 10 s. Observations continue with `a`, and do not wait for an hour.
#[test]
fn a_stream_alone_in_the_future_does_not_lead() {
    let hour = 3_600_000;
    let mut t = Script::new("max_wait_ms: 40", &["input: a", "input: b, max_age_ms: 5"]);
    t.push("a", 0, 1.0, &[]);
    t.push("b", 0, 5.0, &["0: a=1@0 b=5@0"]);
    assert_eq!(t.push("b", hour, 6.0, &[]).jumped_ns, None);
    let ahead_ns = hour * MS;
    let notices: Vec<_> = t.timeline.take_notices().collect();
    assert_eq!(notices, [Notice::Aside { modality: 1, ahead_ns }]);
    for k in 1..1000 {
        t.push("a", 10 * k, 2.0, &[&format!("{0}: a=2@0 b=0!@{0}", 10 * k)]);
    }
    // The clock of b is right again: that is a jump back.
    assert!(t.push("b", 10_000, 7.0, &[]).jumped_ns.is_some());
    t.push("a", 10_000, 3.0, &["10000: a=3@0 b=7@0 epoch=1"]);
}

/// A single sample makes at most the observations of the next `jump_ms` due.
#[test]
fn a_first_sample_far_ahead_of_a_running_grid_makes_nothing_due() {
    for (ahead, due) in [(3_600_000, 0), (10_001, 0), (10_000, 997)] {
        let mut t = Script::new("max_wait_ms: 20", &["input: a", "input: b"]);
        for k in 0..=10 {
            t.timeline.push(0, 10 * k * MS, Values::from_f32(&[1.0])).unwrap();
            while t.timeline.due().is_some() {}
        }
        t.timeline
            .push(1, (100 + ahead) * MS, Values::from_f32(&[1.0]))
            .unwrap();
        let fell: Vec<_> = std::iter::from_fn(|| t.timeline.due()).collect();
        // The targets of 90 and 100 ms waited for the first sample of b, and do not wait any more.
        let waited = if due == 0 { 2 } else { 3 };
        assert_eq!((fell.len(), fell[0].epoch), (due + waited, 0), "{ahead}");
    }
}

/// `a`, whose time decides what is due, stops, while `b` is an hour ahead from the start. The grid's clock moves to `b`.
#[test]
fn the_clock_moves_to_a_stream_aside_that_goes_on_alone() {
    let mut t = Script::new("max_wait_ms: 20", &["input: a", "input: b"]);
    let hour = 3_600_000;
    t.push("a", 0, 1.0, &[]);
    t.push("b", hour, 5.0, &["0: a=1@0 b=0!@-"]);
    for k in 1..=8 {
        t.push("b", hour + 10 * k, k as f32, &[]);
    }
    // 90 ms are more than 2 * 20 + 4 * 10.
    t.push("b", hour + 90, 9.0, &["3600070: a=1@3600070 b=7@0 epoch=1"]);
    t.push("b", hour + 100, 10.0, &["3600080: a=1@3600080 b=8@0 epoch=1"]);
    let notices: Vec<_> = t
        .timeline
        .take_notices()
        .skip_while(|n| matches!(n, Notice::Aside { .. }))
        .collect();
    let by_ns = (hour + 90) * MS;
    assert_eq!(notices, [Notice::Moved { modality: 1, by_ns }]);
    // `a` is late from now on, which is not a jump.
    assert!(t.push("a", 10, 2.0, &[]).late);
    t.push("b", hour + 110, 11.0, &["3600090: a=2@3600080 b=9@0 late=1 epoch=1"]);
}

/// `b` is 5 s ahead and decides what is due. It stops, so the grid's clock moves to `a`. When `b` comes back, it is ignored
/// while it is more than a second ahead.
#[test]
fn a_leader_that_stops_is_left_aside() {
    let mut t = Script::new("max_wait_ms: 20", &["input: a", "input: b"]);
    t.push("a", 0, 1.0, &[]);
    t.push("b", 5000, 5.0, &["4980: a=1@4980 b=0!@-"]);
    let mut sent = Vec::new();
    for k in 1..100 {
        t.timeline.push(0, 10 * k * MS, Values::from_f32(&[k as f32])).unwrap();
        sent.extend(std::iter::from_fn(|| t.timeline.due()).map(|target| (target.time_ns / MS, target.epoch)));
    }
    // G moves with the ninth sample; from there on nothing waits for `b`.
    let expected: Vec<_> = std::iter::once((70, 1)).chain((8..100).map(|k| (10 * k, 1))).collect();
    assert_eq!(sent, expected);
    let notices: Vec<_> = t.timeline.take_notices().collect();
    let moved = Notice::Moved {
        modality: 0,
        by_ns: -4910 * MS,
    };
    let aside = |ahead: i64| Notice::Aside {
        modality: 1,
        ahead_ns: ahead * MS,
    };
    assert_eq!(notices[1..], [moved, aside(4910)]);
    // More than a second ahead, `b` does not lead again.
    t.push("b", 5010, 6.0, &[]);
    assert_eq!(t.timeline.take_notices().next(), Some(aside(4020)));
    t.push("a", 1000, 2.0, &["1000: a=2@0 b=0!@- late=8 epoch=1"]);
    assert!(t.push("b", 1011, 7.0, &[]).jumped_ns.is_some());
    t.push("a", 1010, 3.0, &[]); // b begins at 1011
    t.push("b", 1031, 8.0, &[]);
    t.push("b", 1040, 8.0, &["1020: a=3@10 b=7@9 late=8 epoch=2"]);
}

/// The grid's clock does not move to a stream that was silent and then brings its samples all at once.
#[test]
fn a_stream_that_catches_up_moves_nothing() {
    let mut t = Script::new("max_wait_ms: 20", &["input: a", "input: b"]);
    for batch in 0..5 {
        for stream in [0, 1] {
            for k in 0..100 {
                let at = (1000 * batch + 10 * k) * MS;
                t.timeline.push(stream, at, Values::from_f32(&[1.0])).unwrap();
                while let Some(target) = t.timeline.due() {
                    assert_eq!(target.epoch, 0, "{batch}");
                }
            }
        }
    }
}

#[test]
fn the_clock_goes_back_with_the_stream_that_it_came_from() {
    let mut t = Script::new("max_wait_ms: 20", &["input: a", "input: b"]);
    t.push("a", 0, 1.0, &[]);
    t.push("b", 0, 5.0, &["0: a=1@0 b=5@0"]);
    t.push("a", 40, 2.0, &["10: a=1@10 b=5@10", "20: a=1@20 b=5@20"]);
    let fell = t.timeline.push(1, 9000 * MS, Values::from_f32(&[6.0])).unwrap();
    assert_eq!(fell.jumped_ns, None);
    let last = std::iter::from_fn(|| t.timeline.due()).last().unwrap();
    assert_eq!(last.time_ns, 8980 * MS);
    // Both are before what was sent: time itself went back.
    assert!(t.push("b", 50, 7.0, &[]).jumped_ns.is_some());
    t.push("a", 60, 3.0, &["50: a=2@10 b=7@0 epoch=1"]);
}

#[test]
fn a_leader_that_closes_silences_nobody() {
    let mut t = Script::new("max_wait_ms: 20", &["input: a", "input: b"]);
    t.push("b", 0, 0.0, &[]);
    t.push("a", 0, 0.0, &["0: a=0@0 b=0@0"]);
    let ahead: Vec<String> = (1..=18).map(|i| format!("{0}: a=0@{0} b=0@{0}", 10 * i)).collect();
    t.push("a", 200, 1.0, &ahead.iter().map(String::as_str).collect::<Vec<_>>());
    t.close("a", &[]);
    for i in 1..=8 {
        t.push("b", 10 * i, i as f32, &[]);
    }
    // b was behind 180 ms, which was published last, when its samples began to count: time goes back, to where the
    // samples of b are forgotten up to 70 ms.
    t.push(
        "b",
        90,
        9.0,
        &[
            "70: a=0@70 b=0!@- late=8 epoch=1",
            "80: a=0@80 b=8@0 late=8 epoch=1",
            "90: a=0@90 b=9@0 late=8 epoch=1",
        ],
    );
    t.push("b", 100, 10.0, &["100: a=0@100 b=10@0 late=8 epoch=1"]);
}

#[test]
fn a_latency_that_takes_the_lead_away_silences_nobody() {
    let mut t = Script::new("max_wait_ms: 20", &["input: a", "input: b"]);
    t.push("b", 0, 0.0, &[]);
    t.push("a", 0, 0.0, &["0: a=0@0 b=0@0"]);
    let ahead: Vec<String> = (1..=18).map(|i| format!("{0}: a=0@{0} b=0@{0}", 10 * i)).collect();
    t.push("a", 200, 1.0, &ahead.iter().map(String::as_str).collect::<Vec<_>>());
    t.timeline.set_latency_ms(0, 250.0).unwrap();
    for i in 1..=8 {
        // Other changes meanwhile take nothing away from what b has gone on by.
        t.timeline.set_latency_ms(0, 250.0 + i as f64).unwrap();
        t.timeline.set_max_wait_ms(Some(20.0)).unwrap();
        t.push("b", 10 * i, i as f32, &[]);
    }
    t.push("b", 90, 9.0, &["70: a=1@128 b=0!@- late=8 epoch=1"]);
}

#[test]
fn a_tick_repeats_no_time_after_a_clock_that_went_back_has_come_past_it() {
    let mut t = Script::new(
        "trigger: { timer: tick }, max_wait_ms: 20",
        &["input: a, reset_ms: 20", "input: b"],
    );
    t.push("a", 100, 1.0, &[]);
    t.push("b", 100, 1.0, &[]);
    t.tick(&["100: a=1@0 b=1@0"]);
    t.close("b", &[]);
    t.push("a", 50, 2.0, &[]);
    t.push("a", 90, 3.0, &[]);
    t.push("a", 100, 4.0, &[]);
    t.tick(&[]);
    t.push("a", 110, 5.0, &[]);
    t.tick(&["110: a=5@0 b=1@10 late=1 epoch=1"]);
}

#[test]
fn a_sole_stream_leads_and_skips_what_lies_between() {
    let mut t = Script::new("max_wait_ms: 20", &["input: a", "input: b"]);
    let hour = 3_600_000;
    t.push("a", 0, 1.0, &[]);
    t.push("b", hour, 5.0, &["0: a=1@0 b=0!@-"]);
    t.push("a", 10, 2.0, &["10: a=2@0 b=0!@-"]);
    t.close("a", &[]);
    t.push(
        "b",
        hour + 10,
        6.0,
        &[
            "3599990: a=2@3599980 b=0!@- epoch=1",
            "3600000: a=2@3599990 b=5@0 epoch=1",
            "3600010: a=2@3600000 b=6@0 epoch=1",
        ],
    );
    // A stream that is alone from its first sample on does so, too.
    let mut t = Script::new("max_wait_ms: 20", &["input: a", "input: b"]);
    t.push("a", 0, 1.0, &[]);
    t.close("b", &["0: a=1@0 b=0!@-"]);
    t.close("a", &[]);
    t.push(
        "b",
        hour,
        5.0,
        &[
            "3599980: a=1@3599980 b=0!@- epoch=1",
            "3599990: a=1@3599990 b=0!@- epoch=1",
            "3600000: a=1@3600000 b=5@0 epoch=1",
        ],
    );
}

/// The last stream that observations wait for closes, while a stream with `wait: false` is an hour ahead.
#[test]
fn a_stream_that_is_not_waited_for_makes_nothing_due() {
    for keys in ["max_wait_ms: 20", ""] {
        let mut t = Script::new(keys, &["input: a", "input: b, wait: false"]);
        t.push("a", 0, 1.0, &["0: a=1@0 b=0!@-"]);
        t.push("b", 3_600_000, 5.0, &[]);
        t.push("a", 15, 2.0, &["10: a=1@10 b=0!@-"]);
        t.close("a", &[]);
        t.push("b", 3_600_010, 5.0, &[]);
        t.close("b", &[]);
    }
    let mut t = Script::new("", &["input: a", "input: b, wait: false"]);
    t.push("b", 0, 5.0, &[]);
    t.close("a", &[]);
    t.close("b", &[]);
}

/// The grid's clock does not move for a few late samples. Two observations are a million periods of eleven days apart, which is
/// more nanoseconds than int64 holds.
#[test]
fn observations_further_apart_than_time_goes_leave_nobody_behind() {
    let mut t = Script::new(
        "rate_hz: 1e-6, emit_every: 1048576, max_wait_ms: 10",
        &["input: a", "input: b"],
    );
    let target = 1_000_000_000;
    t.push("b", target - 500, 1.0, &[]);
    t.push("a", target - 500, 1.0, &[]);
    t.push("a", target + 10, 2.0, &["1000000000: a=1@500 b=1@500"]);
    for k in 1..20 {
        t.push("b", target - 500 + 10 * k, 1.0, &[]);
    }
    assert_eq!(t.timeline.take_notices().count(), 0);
}

#[test]
fn ticks_go_on_with_a_stream_that_opens_behind_what_closed_streams_made_due() {
    let mut t = Script::new("trigger: { timer: tick }, max_wait_ms: 20", &["input: a", "input: b"]);
    t.push("a", 5000, 1.0, &[]);
    t.push("b", 5000, 1.0, &[]);
    t.close("a", &[]);
    t.push("b", 0, 2.0, &[]);
    t.close("b", &[]);
    // With all closed, everything up to the newest sample is due.
    t.tick(&["5000: a=1@0 b=2@5000 epoch=1"]);
    t.open("b", &[]);
    for i in 1..=8 {
        t.push("b", 10 * i, 2.0, &[]);
        t.tick(&[]);
    }
    t.push("b", 90, 3.0, &[]);
    t.tick(&["90: a=0!@- b=3@0 late=8 epoch=2"]);
}

#[test]
fn a_sample_that_makes_targets_due_after_a_gap_moves_nothing() {
    let mut t = Script::new("max_wait_ms: 20", &["input: a"]);
    t.push("a", 0, 0.0, &["0: a=0@0"]);
    for ms in 1..=19 {
        let due: &[&str] = if ms == 10 { &["10: a=10@0"] } else { &[] };
        t.push("a", ms, ms as f32, due);
    }
    let due: Vec<String> = (2..=11).map(|i| format!("{}: a=19@{}", 10 * i, 10 * i - 19)).collect();
    let mut due: Vec<&str> = due.iter().map(String::as_str).collect();
    due.push("120: a=120@0");
    t.push("a", 120, 120.0, &due);
}

#[test]
fn with_ticks_jumps_of_another_stream_let_nothing_count_anew() {
    let mut t = Script::new(
        "trigger: { timer: tick }, max_wait_ms: 20",
        &["input: a", "input: b", "input: c, reset_ms: 50"],
    );
    t.push("b", 5000, 0.0, &[]);
    t.push("a", 0, 0.0, &[]);
    t.push("c", 700, 0.0, &[]);
    t.tick(&["4980: a=0@4980 b=0!@- c=0@4280"]);
    let mut observations = 0;
    for i in 1..=60 {
        t.push("a", 20 * i, 0.0, &[]);
        if i % 7 == 0 {
            t.push("c", 700 - 60 * i / 7, 0.0, &[]);
        }
        t.timeline.tick();
        observations += i64::from(t.timeline.due().is_some());
    }
    assert!(observations > 40, "{observations}");
}

#[test]
fn a_start_that_lies_too_far_behind_repeats_nothing() {
    let mut t = Script::new(
        "rate_hz: 50, max_wait_ms: 1000",
        &["input: a, wait: false", "input: b", "input: c"],
    );
    t.push("b", 7177, 0.0, &[]);
    t.timeline.push(0, 4240 * MS, Values::from_f32(&[0.0])).unwrap();
    let mut last = 0;
    while let Some(target) = t.timeline.due() {
        last = target.time_ns / MS;
    }
    assert_eq!(last, 6160);
    t.push("b", 20_879, 0.0, &[]);
    t.push("b", 19_679, 0.0, &[]);
}

#[test]
fn a_stream_that_opens_again_far_ahead_floods_nobody() {
    for opens_first in [false, true] {
        let mut t = Script::new("max_wait_ms: 20", &["input: a", "input: b"]);
        t.push("b", 18_000, 5.0, &[]);
        t.close("b", &[]);
        t.push("a", 0, 0.0, &[]);
        t.push("a", 10, 1.0, &[]);
        t.push("a", 20, 2.0, &["20: a=2@0 b=0!@-"]);
        if opens_first {
            t.open("b", &[]);
        }
        t.push("b", 18_010, 6.0, &[]);
        t.push("a", 30, 3.0, &["30: a=3@0 b=0!@-"]);
    }
}

#[test]
fn a_due_time_that_comes_past_the_last_target_is_progress_after_a_jump_too() {
    let mut t = Script::new("trigger: { timer: tick }, max_wait_ms: 20", &["input: a", "input: b"]);
    t.push("a", 0, 0.0, &[]);
    t.push("b", 0, 0.0, &[]);
    t.tick(&["0: a=0@0 b=0@0"]);
    for ms in [-5000, -4980, -4960, -4940, -4920] {
        t.push("b", ms, 1.0, &[]);
    }
    t.push("a", 3000, 1.0, &[]);
    for ms in [-4900, -4880, -4860, -4840] {
        t.push("b", ms, 2.0, &[]);
    }
    t.tick(&["2980: a=0@2980 b=2@7820 late=9 epoch=1"]);
}

#[test]
fn a_target_that_min_period_made_due_is_not_ahead_of_its_stream() {
    let c = "input: c, min_period_ms: 100, jump_ms: 100";
    let mut t = Script::new("rate_hz: 10, max_wait_ms: 3000", &["input: a, jump_ms: 50", c]);
    t.push("c", 89, 0.0, &[]);
    t.push("a", 290, 0.0, &["100: a=0!@- c=0@11"]);
    t.push("c", 455, 1.0, &[]);
    t.close("a", &[]);
    // Targets go on after 100 ms: c reaches up to 188 ms with its first sample.
    t.push(
        "c",
        506,
        2.0,
        &[
            "200: a=0!@- c=0@111 late=1 epoch=1",
            "300: a=0@10 c=0@211 late=1 epoch=1",
            "400: a=0@110 c=0@311 late=1 epoch=1",
            "500: a=0@210 c=1@45 late=1 epoch=1",
            "600: a=0@310 c=2@94 late=1 epoch=1",
        ],
    );
}

#[test]
fn a_stream_that_was_aside_when_it_closed_opens_without_its_old_lead() {
    let mut t = Script::new("max_wait_ms: 20", &["input: a, reset_ms: 200", "input: b"]);
    t.push("a", 19_000, 0.0, &[]);
    t.push("b", 19_000, 0.0, &["19000: a=0@0 b=0@0"]);
    t.push("b", 60_000, 1.0, &[]);
    t.close("b", &[]);
    // The clock of a is set back.
    t.push("a", 0, 1.0, &["0: a=1@0 b=0!@- epoch=1"]);
    t.push("a", 10, 2.0, &["10: a=2@0 b=0!@- epoch=1"]);
    t.push("b", 60_010, 2.0, &[]);
    t.push("a", 20, 3.0, &["20: a=3@0 b=0!@- epoch=1"]);
}

#[test]
fn a_move_that_makes_nothing_due_lets_nobody_else_count_anew() {
    let limits = "rate_hz: 1, max_wait_ms: 20";
    let mut t = Script::new(limits, &["input: a, jump_ms: 5000", "input: b, jump_ms: 5000"]);
    t.push("a", 0, 0.0, &[]);
    t.push("b", 4000, 4.0, &["3000: a=0@3000 b=0!@-"]);
    let until_7000 = [
        "4000: a=0@4000 b=4@0",
        "5000: a=0@5000 b=4@1000",
        "6000: a=0@6000 b=4@2000",
        "7000: a=0@7000 b=4@3000",
    ];
    t.push("b", 8000, 8.0, &until_7000);
    t.push("a", 60_000, 60.0, &["8000: a=0@8000 b=8@0"]);
    // a is aside. As b closes, G goes back to where a led; as it opens, G moves to b, which makes nothing due.
    for ms in 61..68 {
        t.push("a", 1000 * ms, ms as f32, &[]);
        t.close("b", &[]);
        t.open("b", &[]);
    }
    t.push("a", 68_000, 68.0, &["67000: a=67@0 b=8@59000 epoch=2"]);
}
