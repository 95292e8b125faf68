//! Clocks that jump, and stamps that are no time at all.

use super::{MS, Masks, SampleError, Timeline, Values};
use crate::ops::fuse;

/// More than the engine's `MAX_STAMP` is refused; this is not.
const FAR: i64 = i64::MAX / 8 / MS;

#[test]
fn a_stamp_that_goes_back_by_more_than_reset_clears_the_stream_and_starts_the_grid_anew() {
    let mut t = Timeline::new("", &["input: a, reset_ms: 50", "input: b"]);
    t.push("a", 100, 1.0, &[]);
    t.push("b", 100, 5.0, &["100: a=1@0 b=5@0"]);
    let pushed = t.push("a", 49, 2.0, &[]);
    assert_eq!((pushed.jumped_ns, pushed.late), (Some(-51 * MS), false));
    // b keeps its sample of 100, so that is where the grid starts; a's own sample of 100 is gone
    t.push("a", 99, 3.0, &[]);
    t.push("a", 101, 4.0, &["100: a=3@1 b=5@0 epoch=1"]);
    t.push("b", 110, 6.0, &[]);
    t.push("a", 110, 7.0, &["110: a=7@0 b=6@0 epoch=1"]);
}

#[test]
fn a_stamp_that_goes_back_by_no_more_than_reset_is_only_late() {
    let mut t = Timeline::new("", &["input: a, reset_ms: 50"]);
    t.push("a", 100, 1.0, &["100: a=1@0"]);
    let pushed = t.push("a", 50, 2.0, &[]);
    assert_eq!((pushed.jumped_ns, pushed.late), (None, true));
    t.push("a", 110, 3.0, &["110: a=3@0 late=1"]);
}

#[test]
fn reset_is_a_second_where_it_is_not_said() {
    let mut t = Timeline::new("", &["input: a"]);
    t.push("a", 2000, 1.0, &["2000: a=1@0"]);
    assert_eq!(t.push("a", 1000, 2.0, &[]).jumped_ns, None);
    assert_eq!(t.push("a", 999, 3.0, &[]).jumped_ns, Some(-1001 * MS));
    t.push("a", 1000, 4.0, &["1000: a=4@0 late=1 epoch=1"]);
}

#[test]
fn a_stamp_that_goes_forward_by_more_than_jump_does_the_same() {
    let mut t = Timeline::new("window: 2", &["input: a, jump_ms: 50", "input: b"]);
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
    let mut t = Timeline::new("emit_every: 100", &["input: a"]);
    t.push("a", 0, 1.0, &["0: a=1@0"]);
    assert_eq!(
        t.push("a", 2500, 2.0, &["1000: a=1@1000", "2000: a=1@2000"]).jumped_ns,
        None
    );
}

/// All clocks of a robot are set back by an hour, one stream after the other.
#[test]
fn when_every_clock_is_set_back_observations_go_on_at_the_new_time() {
    let mut t = Timeline::new("max_wait_ms: 20", &["input: a", "input: b"]);
    let hour = 3_600_000;
    t.push("a", hour, 1.0, &[]);
    t.push("b", hour, 5.0, &["3600000: a=1@0 b=5@0"]);
    t.push("a", 10, 2.0, &["3599980: a=2@3599970 b=0!@- epoch=1"]);
    t.push("b", 10, 6.0, &["10: a=2@0 b=6@0 epoch=2"]);
    t.push("a", 20, 3.0, &[]);
    t.push("b", 20, 7.0, &["20: a=3@0 b=7@0 epoch=2"]);
}

#[test]
fn a_stamp_that_can_be_no_time_is_refused_and_the_stream_goes_on() {
    let mut t = Timeline::new("max_wait_ms: 20", &["input: a", "input: b"]);
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

/// One sample with a stamp of the far future, then the stream goes on: an epoch each, there and back.
#[test]
fn a_garbage_stamp_costs_two_epochs_with_max_wait() {
    let mut t = Timeline::new("max_wait_ms: 20", &["input: a, interpolation: linear", "input: b"]);
    t.push("a", 0, 1.0, &[]);
    t.push("b", 0, 5.0, &["0: a=1@0 b=5@0"]);
    t.try_push("a", FAR * MS, Values::from_f32(&[9.0])).unwrap();
    let mut sent = 0;
    while let Some(target) = t.aligner.due() {
        assert_eq!(target.epoch, 1);
        let (mut out, mut masks) = ([7f32; 2], Masks::default());
        fuse::cpu::fuse(&t.aligner, &target, &mut out, &mut masks);
        sent += 1;
    }
    assert!(sent <= 2, "{sent}");
    assert!(t.push("a", 10, 2.0, &[]).jumped_ns.is_some());
    t.push("b", 10, 6.0, &["10: a=2@0 b=6@0 epoch=2"]);
    t.push("a", 20, 3.0, &[]);
    t.push("b", 20, 7.0, &["20: a=3@0 b=7@0 epoch=2"]);
}

/// Nothing waits, so everything up to the far future would be due: it starts anew there instead.
#[test]
fn a_garbage_stamp_does_not_stall_a_single_stream_that_waits_for_ever() {
    let mut t = Timeline::new("", &["input: a"]);
    t.push("a", 0, 1.0, &["0: a=1@0"]);
    t.try_push("a", FAR * MS, Values::from_f32(&[9.0])).unwrap();
    t.falls_due(&[]);
    assert!(t.push("a", 10, 2.0, &["10: a=2@0 epoch=2"]).jumped_ns.is_some());
    t.push("a", 20, 3.0, &["20: a=3@0 epoch=2"]);
}

#[test]
fn a_garbage_stamp_does_not_stall_the_flush_when_all_are_closed() {
    let mut t = Timeline::new("", &["input: a", "input: b"]);
    t.push("a", 0, 1.0, &[]);
    t.push("b", 0, 5.0, &["0: a=1@0 b=5@0"]);
    t.push("a", FAR, 9.0, &[]); // b holds it up
    t.push("b", 10, 6.0, &["10: a=1@10 b=6@0"]);
    t.close("a", &[]);
    t.aligner.close(1);
    t.falls_due(&[]);
}

/// With more than one stream the others go on: a sample in the far future is only that.
#[test]
fn a_garbage_stamp_changes_nothing_before_it_while_another_stream_holds_the_grid() {
    let mut t = Timeline::new("", &["input: a, interpolation: linear, max_gap_ms: 50", "input: b"]);
    t.push("a", 0, 1.0, &[]);
    t.push("b", 0, 5.0, &["0: a=1@0 b=5@0"]);
    t.push("a", FAR, 9.0, &[]);
    t.push("b", 10, 6.0, &["10: a=0!@10 b=6@0"]);
    t.push("a", 12, 2.0, &[]);
    t.push("a", 20, 3.0, &[]);
    t.push("b", 20, 7.0, &["20: a=3@0 b=7@0 epoch=1"]);
}

#[test]
fn a_garbage_first_stamp_is_left_behind() {
    for far in [FAR, -FAR] {
        let mut t = Timeline::new("max_wait_ms: 20", &["input: a", "input: b"]);
        t.push("a", far, 9.0, &[]);
        for k in 0..20 {
            t.aligner.push(0, 10 * k * MS, Values::from_f32(&[1.0])).unwrap();
            t.aligner.push(1, 10 * k * MS, Values::from_f32(&[2.0])).unwrap();
            let mut sent = 0;
            while let Some(target) = t.aligner.due() {
                sent += 1;
                assert!(sent < 10);
                if k > 5 {
                    assert_eq!(
                        t.show(&target).split(" epoch").next().unwrap(),
                        format!("{}: a=1@0 b=2@0", 10 * k)
                    );
                }
            }
            assert!(k <= 5 || sent == 1, "{far}: {sent} at {k}");
        }
    }
}
