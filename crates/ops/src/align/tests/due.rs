//! Tests of the times at which observations are due, and of their windows.

use super::{MS, Script, Timeline, Values, config};

#[test]
fn a_target_is_due_once_every_stream_is_at_or_past_it() {
    let mut t = Script::new("", &["input: a", "input: b", "input: c"]);
    t.push("a", 0, 1.0, &[]);
    t.push("b", 0, 2.0, &[]);
    t.push("c", 0, 3.0, &["0: a=1@0 b=2@0 c=3@0"]);
    t.push("a", 25, 1.5, &[]);
    t.push("b", 10, 2.5, &[]);
    t.push("c", 9, 3.5, &[]); // one ms short of the target
    t.push("c", 11, 3.7, &["10: a=1@10 b=2.5@0 c=3.5@1"]);
    t.push("b", 40, 2.9, &[]);
    t.push("c", 40, 3.9, &["20: a=1@20 b=2.5@10 c=3.7@9"]);
    t.push(
        "a",
        40,
        1.9,
        &["30: a=1.5@5 b=2.5@20 c=3.7@19", "40: a=1.9@0 b=2.9@0 c=3.9@0"],
    );
}

#[test]
fn targets_are_whole_multiples_of_the_rounded_period() {
    let mut t = Script::new("rate_hz: 30", &["input: a"]);
    t.push("a", 1, 1.0, &[]);
    t.push("a", 33, 2.0, &[]);
    t.push("a", 34, 3.0, &["33.333333: a=2@0.333333"]);
    t.push("a", 67, 4.0, &["66.666666: a=3@32.666666"]);
}

#[test]
fn capture_times_may_be_negative() {
    let mut t = Script::new("", &["input: a"]);
    t.push("a", -15, 1.0, &[]);
    t.push("a", -10, 2.0, &["-10: a=2@0"]);
    t.push("a", 1, 3.0, &["0: a=2@10"]);
}

#[test]
fn a_window_ends_at_its_target_and_starts_with_what_there_is() {
    let mut t = Script::new("window: 3", &["input: a"]);
    t.push("a", 0, 1.0, &["-20: a=0!@- | -10: a=0!@- | 0: a=1@0"]);
    t.push("a", 10, 2.0, &["-10: a=0!@- | 0: a=1@0 | 10: a=2@0"]);
    t.push("a", 20, 3.0, &["0: a=1@0 | 10: a=2@0 | 20: a=3@0"]);
    t.push("a", 30, 4.0, &["10: a=2@0 | 20: a=3@0 | 30: a=4@0"]);
}

#[test]
fn rows_before_the_first_target_are_computed_like_any_other() {
    let mut t = Script::new("window: 3", &["input: a", "input: b"]);
    t.push("a", 0, 1.0, &[]);
    t.push("a", 10, 2.0, &[]);
    t.push("a", 20, 3.0, &[]);
    t.push("b", 20, 9.0, &["0: a=1@0 b=0!@- | 10: a=2@0 b=0!@- | 20: a=3@0 b=9@0"]);
}

#[test]
fn stride_is_between_rows_and_emit_every_between_observations() {
    let mut t = Script::new("window: 2, stride: 3, emit_every: 2", &["input: a"]);
    t.push("a", 0, 1.0, &["-30: a=0!@- | 0: a=1@0"]);
    t.push("a", 10, 2.0, &[]);
    t.push("a", 20, 3.0, &["-10: a=0!@- | 20: a=3@0"]);
    t.push("a", 30, 4.0, &[]);
    t.push("a", 40, 5.0, &["10: a=2@0 | 40: a=5@0"]);
}

#[test]
fn observations_further_apart_than_their_window_need_nothing_between() {
    let mut t = Script::new("window: 1, emit_every: 5", &["input: a, interpolation: linear"]);
    t.push("a", 0, 0.0, &["0: a=0@0"]);
    for ms in [10, 20, 30] {
        t.push("a", ms, ms as f32, &[]);
    }
    t.push("a", 48, 48.0, &[]);
    t.push("a", 52, 52.0, &["50: a=50@2"]);
}

#[test]
fn without_max_wait_a_target_waits_for_ever() {
    let mut t = Script::new("", &["input: a", "input: b"]);
    t.push("b", 0, 9.0, &[]);
    t.push("a", 0, 1.0, &["0: a=1@0 b=9@0"]);
    t.push("a", 900, 2.0, &[]);
    t.push("a", 1_000_000, 3.0, &[]);
    t.push("b", 10, 9.5, &["10: a=1@10 b=9.5@0"]);
}

#[test]
fn max_wait_sends_a_target_with_what_is_missing_masked() {
    let streams = [
        "input: a",
        "input: b, max_age_ms: 15",
        "input: c, interpolation: linear",
    ];
    let mut t = Script::new("max_wait_ms: 25, fill_value: -7", &streams);
    t.push("a", 0, 1.0, &[]);
    t.push("b", 0, 2.0, &[]);
    t.push("c", 0, 3.0, &["0: a=1@0 b=2@0 c=3@0"]);
    t.push("a", 34, 1.1, &[]);
    t.push("a", 35, 1.2, &["10: a=1@10 b=2@10 c=-7!@10"]); // 35 - 25: the wait for 10 ran out
    // 64 is past 20 + 25 and 30 + 25; the value of c is 3 at 0 and 67 at 64
    t.push(
        "c",
        64,
        67.0,
        &["20: a=1@20 b=-7!@20 c=23@20", "30: a=1@30 b=-7!@30 c=33@30"],
    );
    t.push("b", 65, 2.2, &["40: a=1.2@5 b=-7!@40 c=43@40"]);
}

#[test]
fn samples_for_targets_that_were_sent_are_counted_and_still_of_use() {
    let mut t = Script::new("max_wait_ms: 20, window: 2", &["input: a", "input: b"]);
    t.push("a", 0, 1.0, &[]);
    t.push("b", 0, 5.0, &["-10: a=0!@- b=0!@- | 0: a=1@0 b=5@0"]);
    t.push("a", 30, 2.0, &["0: a=1@0 b=5@0 | 10: a=1@10 b=5@10"]);
    assert!(t.push("b", 10, 6.0, &[]).late); // for 10, which was sent
    assert!(!t.push("b", 11, 7.0, &[]).late);
    t.push("b", 20, 8.0, &["10: a=1@10 b=6@0 | 20: a=1@20 b=8@0 late=1"]);
    assert!(t.push("b", 12, 9.0, &[]).late);
    t.push("b", 30, 8.5, &["20: a=1@20 b=8@0 | 30: a=2@0 b=8.5@0 late=2"]);
}

#[test]
fn a_stream_that_is_not_waited_for_holds_nothing_up() {
    let mut t = Script::new("", &["input: a", "input: b, wait: false"]);
    t.push("a", 0, 1.0, &["0: a=1@0 b=0!@-"]);
    t.push("b", 4, 5.0, &[]);
    t.push("a", 10, 2.0, &["10: a=2@0 b=5@6"]);
    t.push("b", 90, 6.0, &[]); // nor does b make anything due
    t.push("a", 20, 3.0, &["20: a=3@0 b=5@16"]);
    assert!(t.push("b", 15, 7.0, &[]).late);
}

#[test]
fn a_closed_input_holds_nothing_up_and_all_closed_flush() {
    let mut t = Script::new("", &["input: a", "input: b, max_age_ms: 10"]);
    t.push("a", 0, 1.0, &[]);
    t.push("b", 0, 5.0, &["0: a=1@0 b=5@0"]);
    t.push("a", 25, 2.0, &[]);
    t.close("b", &["10: a=1@10 b=5@10", "20: a=1@20 b=0!@20"]);
    t.push("a", 30, 3.0, &["30: a=3@0 b=0!@30"]);
    t.push("a", 39, 4.0, &[]);
    t.close("a", &[]); // 39 is the newest sample, 40 lies after it
}

#[test]
fn when_all_are_closed_targets_up_to_the_newest_sample_are_flushed() {
    let streams = [
        "input: a, interpolation: linear, extrapolate_ms: 10",
        "input: b, reorder_ms: 100",
    ];
    let mut t = Script::new("max_wait_ms: 500", &streams);
    t.push("a", 0, 1.0, &[]);
    t.push("b", 0, 5.0, &[]);
    t.push("b", 24, 6.0, &[]);
    t.close("a", &[]); // b may still have something for 0
    t.close("b", &["0: a=1@0 b=5@0", "10: a=1@10 b=5@10", "20: a=0!@20 b=5@20"]);
}

#[test]
fn a_sample_opens_a_closed_input_again() {
    let mut t = Script::new("", &["input: a", "input: b"]);
    t.push("a", 0, 1.0, &[]);
    t.push("b", 0, 5.0, &["0: a=1@0 b=5@0"]);
    t.close("b", &[]);
    t.push("a", 10, 2.0, &["10: a=2@0 b=5@10"]);
    t.push("b", 12, 6.0, &[]);
    t.push("a", 20, 3.0, &[]); // waits for b again
    t.push("b", 20, 7.0, &["20: a=3@0 b=7@0"]);
}

#[test]
fn an_input_that_opens_is_waited_for_before_it_has_a_sample() {
    let mut t = Script::new("", &["input: a", "input: b"]);
    t.close("b", &[]);
    t.push("a", 0, 1.0, &["0: a=1@0 b=0!@-"]);
    t.open("b", &[]);
    t.push("a", 10, 2.0, &[]);
    t.close("b", &["10: a=2@0 b=0!@-"]);
}

#[test]
fn reorder_holds_a_target_back_until_late_samples_are_in_their_place() {
    let mut t = Script::new("", &["input: a, reorder_ms: 15"]);
    t.push("a", 0, 1.0, &[]);
    t.push("a", 14, 3.0, &[]);
    t.push("a", 5, 2.0, &[]);
    t.push("a", 15, 4.0, &["0: a=1@0"]);
    t.push("a", 9, 2.5, &[]);
    t.push("a", 25, 5.0, &["10: a=2.5@1"]);
}

/// The target of 10 ms lies between the samples of 8 and 20 ms. It waits as long as another sample, such as one of 12 ms, may
/// still come between these two.
#[test]
fn where_a_mode_looks_ahead_the_sample_after_the_target_must_be_settled_too() {
    let mut t = Script::new("", &["input: a, interpolation: linear, reorder_ms: 15"]);
    t.push("a", 0, 0.0, &[]);
    t.push("a", 8, 8.0, &[]);
    t.push("a", 20, 0.0, &["0: a=0@0"]); // settled up to 5: 0 is
    t.push("a", 25, 0.0, &[]); // settled up to 10, but the sample after 10 is not
    t.push("a", 12, 16.0, &[]);
    t.push("a", 26, 0.0, &[]);
    t.push("a", 27, 0.0, &["10: a=12@2"]); // settled up to 12: between 8 at 8 and 16 at 12
}

/// Streams may have different `reorder_ms`: observations wait for the stream with the longest.
#[test]
fn reorder_of_one_stream_holds_the_others_up() {
    let mut t = Script::new("", &["input: a", "input: b, reorder_ms: 5"]);
    t.push("a", 0, 1.0, &[]);
    t.push("b", 0, 5.0, &[]);
    t.push("b", 4, 6.0, &[]);
    t.push("b", 5, 7.0, &["0: a=1@0 b=5@0"]);
}

/// A camera with `min_period_ms: 30` sends no frame sooner than 30 ms after its newest frame. So observations before then need
/// not wait for it.
#[test]
fn min_period_sends_what_no_sample_can_come_for() {
    let mut t = Script::new("", &["input: a", "input: camera, min_period_ms: 30"]);
    t.push("camera", 0, 1.0, &[]);
    t.push("a", 0, 5.0, &["0: a=5@0 camera=1@0"]);
    t.push("a", 20, 6.0, &["10: a=5@10 camera=1@10", "20: a=6@0 camera=1@20"]);
    t.push("a", 30, 7.0, &[]); // at 30 ms it may
    t.push("camera", 31, 2.0, &["30: a=7@0 camera=1@30"]);
    t.push(
        "a",
        61,
        8.0,
        &[
            "40: a=7@10 camera=2@9",
            "50: a=7@20 camera=2@19",
            "60: a=7@30 camera=2@29",
        ],
    );
}

/// Checks that no observation is sent twice. Time has not gone back when the clock of `b` jumps, because the samples of `a` are
/// past 100 ms.
#[test]
fn what_was_sent_ahead_of_a_sample_is_not_sent_again() {
    let mut t = Script::new(
        "",
        &["input: a, min_period_ms: 40", "input: b, wait: false, reset_ms: 50"],
    );
    t.push("b", 100, 5.0, &[]);
    t.push(
        "a",
        70,
        1.0,
        &[
            "70: a=1@0 b=0!@-",
            "80: a=1@10 b=0!@-",
            "90: a=1@20 b=0!@-",
            "100: a=1@30 b=5@0",
        ],
    );
    t.push("b", 20, 6.0, &[]);
    t.push(
        "a",
        111,
        2.0,
        &[
            "110: a=1@40 b=6@90 late=1 epoch=1",
            "120: a=2@9 b=6@100 late=1 epoch=1",
            "130: a=2@19 b=6@110 late=1 epoch=1",
            "140: a=2@29 b=6@120 late=1 epoch=1",
            "150: a=2@39 b=6@130 late=1 epoch=1",
        ],
    );
}

#[test]
fn a_sample_that_comes_sooner_than_min_period_is_counted_as_late() {
    let mut t = Script::new("", &["input: a, min_period_ms: 15"]);
    t.push("a", 0, 1.0, &["0: a=1@0", "10: a=1@10"]);
    let pushed = t.push("a", 12, 2.0, &["20: a=2@8 late=1"]);
    assert_eq!((pushed.late, pushed.too_soon_ns), (true, Some(12 * super::MS)));
    let pushed = t.push("a", 27, 3.0, &["30: a=3@3 late=1", "40: a=3@13 late=1"]);
    assert_eq!((pushed.late, pushed.too_soon_ns), (false, None));
}

/// Samples between which no other sample fits, by `min_period_ms`, count as final before `reorder_ms` is over.
#[test]
fn min_period_settles_samples_that_nothing_fits_between() {
    let mut t = Script::new(
        "",
        &["input: a, interpolation: linear, reorder_ms: 50, min_period_ms: 10"],
    );
    t.push("a", 0, 0.0, &[]);
    t.push("a", 50, 50.0, &["0: a=0@0"]);
    t.push("a", 15, 15.0, &["10: a=10@10"]); // 15 - 0 < 20
    t.push(
        "a",
        34,
        34.0,
        &["20: a=20@5", "30: a=30@15", "40: a=40@6", "50: a=50@0"],
    );
}

/// A curve (`cubic`, `pchip`) needs the tangent at the sample after the target, and so also the sample after that one.
#[test]
fn a_mode_of_four_samples_waits_for_one_more() {
    for mode in ["cubic", "pchip"] {
        let mut t = Script::new("", &[&format!("input: a, interpolation: {mode}")]);
        t.push("a", 0, 0.0, &[]);
        t.push("a", 8, 8.0, &["0: a=0@0"]);
        t.push("a", 12, 12.0, &[]); // 8 is settled, and 12 may get another neighbour
        t.push("a", 20, 20.0, &["10: a=10@2"]);
        t.close("a", &["20: a=20@0"]);
    }
}

#[test]
fn reorder_and_a_mode_of_four_samples_add_up() {
    let mut t = Script::new("", &["input: a, interpolation: cubic, reorder_ms: 15"]);
    t.push("a", 0, 0.0, &[]);
    t.push("a", 8, 8.0, &[]);
    t.push("a", 24, 24.0, &["0: a=0@0"]);
    t.push("a", 12, 12.0, &[]);
    t.push("a", 39, 39.0, &["10: a=10@2"]); // 0, 8, 12 and 24 are settled
}

#[test]
fn a_sample_that_no_window_needs_may_still_settle_those_after_it() {
    let keys = "emit_every: 6";
    let mut t = Script::new(keys, &["input: a, reorder_ms: 15, min_period_ms: 8"]);
    t.push("a", 900, 1.0, &[]);
    t.push("a", 924, 2.0, &["900: a=1@0"]);
    t.push("a", 948, 3.0, &[]);
    t.push("a", 959, 4.0, &[]);
    // 948 is settled now, and nothing fits between it and 959, nor between that and 971.
    t.push("a", 971, 5.0, &["960: a=4@1"]);
}

/// Measures samples in order and in reverse in one run, so that other work of the machine slows both down. If each sample moved
/// all later samples, the reverse would take 1,000 times as long.
#[test]
fn samples_in_reverse_cost_what_samples_in_order_cost() {
    let seconds = |reverse: bool| {
        let config = config(
            "rate_hz: 1",
            &["input: a, dim: 6, reorder_ms: 1000000, reset_ms: 1000000"],
        );
        let mut timeline = Timeline::new(&config).unwrap();
        let start = std::time::Instant::now();
        for n in 0..200_000 {
            let n = if reverse { 199_999 - n } else { n };
            timeline.push(0, n * MS, Values::from_f32(&[n as f32; 6])).unwrap();
            assert!(timeline.due().is_none());
        }
        start.elapsed().as_secs_f64()
    };
    let (order, reverse) = (seconds(false), seconds(true));
    println!("{order:.4} s in order, {reverse:.4} s in reverse");
    assert!(reverse < 20.0 * order);
}
