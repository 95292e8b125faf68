//! Tests of the first target: the first whole multiple of the period at which every modality has a sample, or has been waited
//! for as long as `max_wait_ms`.

use super::{MS, Notice, Script};

#[test]
fn it_is_where_every_stream_has_a_sample() {
    let mut t = Script::new("", &["input: a", "input: b", "input: c"]);
    t.push("a", 0, 1.0, &[]);
    t.push("c", 31, 3.0, &[]);
    t.push("b", 12, 2.0, &[]); // the newest of the first samples is 31
    t.push("a", 50, 1.5, &[]);
    t.push("b", 50, 2.5, &[]);
    t.push("c", 40, 3.5, &["40: a=1@40 b=2@28 c=3.5@0"]);
}

#[test]
fn a_first_sample_on_the_grid_is_at_the_first_target() {
    let mut t = Script::new("", &["input: a", "input: b"]);
    t.push("a", 0, 1.0, &[]);
    t.push("b", 20, 2.0, &[]);
    t.push("a", 20, 1.5, &["20: a=1.5@0 b=2@0"]);
}

#[test]
fn a_stream_without_a_sample_is_waited_for_as_long_as_max_wait() {
    let mut t = Script::new("max_wait_ms: 25", &["input: a", "input: b"]);
    for ms in [3, 13, 23, 33, 43, 53] {
        t.push("a", ms, ms as f32, &[]);
    }
    t.push("a", 63, 63.0, &["30: a=23@7 b=0!@-"]); // 3 + 25 = 28, so 30, which is sent at 55 or later
    t.push("a", 65, 65.0, &["40: a=33@7 b=0!@-"]);
}

#[test]
fn a_first_sample_within_max_wait_is_waited_for() {
    let mut t = Script::new("max_wait_ms: 25", &["input: a", "input: b"]);
    t.push("a", 3, 1.0, &[]);
    t.push("b", 14, 2.0, &[]); // before 28
    t.push("a", 22, 3.0, &[]);
    t.push("b", 22, 4.0, &["20: a=1@17 b=2@6"]);
}

#[test]
fn a_first_sample_after_max_wait_does_not_move_it() {
    let mut t = Script::new("max_wait_ms: 25", &["input: a", "input: b"]);
    t.push("a", 3, 1.0, &[]);
    t.push("b", 47, 2.0, &[]); // after 28
    t.push("a", 47, 3.0, &["30: a=1@27 b=0!@-", "40: a=1@37 b=0!@-"]);
}

#[test]
fn it_is_the_same_whichever_stream_comes_first() {
    let mut t = Script::new("", &["input: a", "input: b"]);
    t.push("b", 31, 2.0, &[]);
    t.push("b", 45, 2.5, &[]);
    t.push("a", 0, 1.0, &[]);
    t.push("a", 39, 1.2, &[]);
    t.push("a", 40, 1.5, &["40: a=1.5@0 b=2@9"]);
}

/// Observations start at the first samples of the streams that are waited for, wherever the first sample of a stream with
/// `wait: false` is.
#[test]
fn a_stream_that_is_not_waited_for_does_not_hold_it_up() {
    let mut t = Script::new("", &["input: a", "input: b, wait: false"]);
    t.push("b", 3, 5.0, &[]);
    t.push("a", 28, 1.0, &[]);
    t.push("a", 30, 2.0, &["30: a=2@0 b=5@27"]);
}

#[test]
fn an_input_that_closes_without_a_sample_does_not_hold_it_up() {
    let mut t = Script::new("", &["input: a", "input: b"]);
    t.push("a", 5, 1.0, &[]);
    t.push("a", 20, 2.0, &[]);
    t.close("b", &["10: a=1@5 b=0!@-", "20: a=2@0 b=0!@-"]);
}

/// A sample that arrives late, but within `reorder_ms`, may become the first sample of its stream.
#[test]
fn the_first_sample_is_the_earliest_and_not_the_first_to_come() {
    let mut t = Script::new("", &["input: a, reorder_ms: 20"]);
    t.push("a", 12, 2.0, &[]);
    t.push("a", 8, 1.0, &[]);
    t.push("a", 30, 3.0, &["10: a=1@2"]);
}

/// The first target is at most a second behind the time that `max_wait_ms` makes due. If it were further behind, the clocks of
/// the streams would disagree, so observations start at the newest target that is due.
#[test]
fn with_max_wait_it_is_no_more_than_a_second_behind() {
    let mut t = Script::new("max_wait_ms: 20", &["input: a", "input: b"]);
    t.push("a", 0, 1.0, &[]);
    t.push("b", 9000, 2.0, &["8980: a=1@8980 b=0!@-"]);
    t.push("b", 9010, 2.5, &["8990: a=1@8990 b=0!@-"]);
}

/// A slow stream alone has no other clock to disagree with, however late its observations are due.
#[test]
fn a_slow_stream_alone_loses_nothing() {
    for other in ["", "input: silent"] {
        let streams = ["input: a", other];
        let streams = &streams[..1 + usize::from(!other.is_empty())];
        let mut t = Script::new("rate_hz: 2, max_wait_ms: 40", streams);
        let silent = if other.is_empty() { "" } else { " silent=0!@-" };
        t.push("a", 400, 1.0, &[]);
        let due = [500, 1000, 1500, 2000].map(|ms| format!("{ms}: a=1@{}{silent}", ms - 400));
        t.push("a", 2400, 2.0, &due.each_ref().map(String::as_str));
    }
}

/// Observations start at the newest target that is due, and not at a later one, even if samples lie between two targets.
#[test]
fn with_max_wait_streams_further_apart_than_a_second_start_at_once() {
    let mut t = Script::new("max_wait_ms: 20", &["input: a", "input: b"]);
    t.push("a", 3, 1.0, &[]);
    t.push("b", 1536, 2.0, &["1510: a=1@1507 b=0!@-"]);
    let notice = Notice::StartedWithout {
        modality: 0,
        behind_ns: Some(1507 * MS),
    };
    assert_eq!(t.timeline.take_notices().next(), Some(notice));
    t.push("a", 13, 1.5, &[]);
    t.push("b", 1546, 2.5, &["1520: a=1.5@1507 b=0!@- late=1"]);
    t.push(
        "b",
        1566,
        2.7,
        &["1530: a=1.5@1517 b=0!@- late=1", "1540: a=1.5@1527 b=2@4 late=1"],
    );
    assert_eq!(t.timeline.take_notices().next(), None);
}
