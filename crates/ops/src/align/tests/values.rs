//! Tests of the value at a target time: interpolation modes, limits, latency, ages, groups.

use super::{Masks, Script, Values, config, cpu};
use crate::align::Timeline;
use half::{bf16, f16};
use robocache_device::Element;

#[test]
fn previous_holds_the_newest_sample_for_max_age() {
    let mut t = Script::new("", &["input: a, max_age_ms: 15", "input: clock"]);
    t.push("a", 0, 1.0, &[]);
    t.push("clock", 0, 0.0, &["0: a=1@0 clock=0@0"]);
    t.push("a", 5, 2.0, &[]);
    t.push("a", 100, 3.0, &[]);
    t.push("clock", 20, 0.0, &["10: a=2@5 clock=0@10", "20: a=2@15 clock=0@0"]);
    t.push("clock", 30, 0.0, &["30: a=0!@25 clock=0@0"]);
}

#[test]
fn nearest_takes_the_nearer_sample_and_the_earlier_of_a_tie() {
    let mut t = Script::new("window: 2", &["input: a, interpolation: nearest, max_age_ms: 6"]);
    t.push("a", 6, 1.0, &[]);
    t.push("a", 16, 2.0, &["0: a=1@- | 10: a=1@4"]); // at 0: 6 ahead, nothing before
    t.push("a", 24, 3.0, &["10: a=1@4 | 20: a=2@4"]); // a tie at 20
    t.push("a", 33, 4.0, &["20: a=2@4 | 30: a=4@6"]); // 33 is nearer than 24
    t.push(
        "a",
        60,
        5.0,
        &[
            "30: a=4@6 | 40: a=0!@7",
            "40: a=0!@7 | 50: a=0!@17",
            "50: a=0!@17 | 60: a=5@0",
        ],
    );
}

#[test]
fn linear_is_the_straight_line_where_the_gap_is_allowed() {
    let mut t = Script::new("", &["input: a, interpolation: linear, max_gap_ms: 16"]);
    t.push("a", 4, 0.0, &[]);
    t.push("a", 12, 8.0, &["10: a=6@6"]); // 6/8 of the way
    t.push("a", 28, 16.0, &["20: a=12@8"]); // the gap is 16
    t.push("a", 45, 17.0, &["30: a=0!@2", "40: a=0!@12"]); // 17 is too much
    t.push("a", 50, 1.0, &["50: a=1@0"]); // a sample at the target is its value
}

#[test]
fn a_sample_at_the_target_is_valid_whatever_the_limits() {
    let streams = [
        "input: a, max_age_ms: 0",
        "input: b, interpolation: nearest, max_age_ms: 0",
        "input: c, interpolation: linear, max_gap_ms: 0",
    ];
    let mut t = Script::new("", &streams);
    t.push("a", 10, 1.0, &[]);
    t.push("b", 10, 2.0, &[]);
    t.push("c", 10, 3.0, &["10: a=1@0 b=2@0 c=3@0"]);
}

#[test]
fn linear_after_the_newest_sample_is_held_for_extrapolate() {
    let streams = ["input: a, interpolation: linear, extrapolate_ms: 13", "input: clock"];
    let mut t = Script::new("max_wait_ms: 5", &streams);
    t.push("a", 7, 1.0, &[]);
    t.push("clock", 7, 0.0, &[]);
    t.push("clock", 15, 0.0, &["10: a=1@3 clock=0@3"]);
    t.push("clock", 25, 0.0, &["20: a=1@13 clock=0@5"]);
    t.push("clock", 35, 0.0, &["30: a=0!@23 clock=0@5"]);
}

#[test]
fn linear_without_a_limit_is_not_extrapolated() {
    let mut t = Script::new("", &["input: a, interpolation: linear", "input: clock"]);
    t.push("a", 9, 1.0, &[]);
    t.push("clock", 10, 0.0, &[]);
    t.close("a", &["10: a=0!@1 clock=0@0"]);
}

#[test]
fn linear_before_the_first_sample_is_invalid() {
    let mut t = Script::new("window: 2", &["input: a, interpolation: linear, extrapolate_ms: 1000"]);
    t.push("a", 10, 1.0, &["0: a=0!@- | 10: a=1@0"]);
}

#[test]
fn the_time_of_a_sample_is_its_stamp_less_the_latency() {
    let streams = ["input: a, latency_ms: 33", "input: b, latency_ms: -2"];
    let mut t = Script::new("", &streams);
    t.push("b", 0, 5.0, &[]); // at 2
    t.push("a", 42, 1.0, &[]); // at 9
    t.push("b", 8, 6.0, &[]); // at 10
    t.push("a", 43, 2.0, &["10: a=2@0 b=6@0"]);
}

#[test]
fn a_latency_that_is_set_holds_for_the_samples_that_come_then() {
    let mut t = Script::new("", &["input: a"]);
    t.push("a", 0, 1.0, &["0: a=1@0"]);
    t.timeline.set_latency_ms(0, 4.0).unwrap();
    t.push("a", 12, 2.0, &[]); // at 8
    t.push("a", 14, 3.0, &["10: a=3@0"]);
    for (ms, message) in [(f64::NAN, "NaN"), (1e13, "10000000000000")] {
        let refused = t.timeline.set_latency_ms(0, ms).unwrap_err().to_string();
        assert_eq!(refused, format!("latency_ms: {message} (allowed: -1e12 to 1e12 ms)"));
    }
    t.push("a", 24, 4.0, &["20: a=4@0"]);
}

/// A change of `latency_ms` also moves the times of the samples in the history.
#[test]
fn a_latency_that_changes_moves_the_samples_held_and_is_no_jump() {
    let mut t = Script::new("window: 2", &["input: a"]);
    t.push("a", 5000, 1.0, &["4990: a=0!@- | 5000: a=1@0"]);
    t.timeline.set_latency_ms(0, 2005.0).unwrap();
    let pushed = t.push("a", 7012, 2.0, &[]); // at 5007, after 2995
    assert_eq!(pushed.jumped_ns, None);
    t.push("a", 7016, 3.0, &["5000: a=1@2005 | 5010: a=2@3"]);
    t.timeline.set_latency_ms(0, 0.0).unwrap(); // 5000, 7012, 7016
    let sent = std::iter::from_fn(|| t.timeline.due()).count();
    assert_eq!(sent, 200); // 5020 to 7010
}

#[test]
fn a_max_wait_that_is_set_holds_at_once() {
    let mut t = Script::new("", &["input: a", "input: b"]);
    t.push("a", 0, 1.0, &[]);
    t.push("b", 0, 2.0, &["0: a=1@0 b=2@0"]);
    t.push("a", 30, 3.0, &[]);
    t.timeline.set_max_wait_ms(Some(15.0)).unwrap();
    t.falls_due(&["10: a=1@10 b=2@10"]);
    assert!(t.timeline.set_max_wait_ms(Some(-1.0)).is_err());
    t.timeline.set_max_wait_ms(None).unwrap();
    t.push("a", 500, 4.0, &[]);
}

#[test]
fn each_group_is_judged_and_filled_by_itself() {
    let groups = "input: a, dim: 4, groups: [\
        {channels: [3, 4], interpolation: nearest, max_age_ms: 3},\
        {channels: [0, 2], interpolation: linear, max_gap_ms: 20},\
        {channels: [2, 3], interpolation: previous, max_age_ms: 5}]";
    let mut t = Script::new("fill_value: -1", &[groups]);
    t.push_all("a", 0, &[0.0, 10.0, 1.0, 5.0], &["0: a=0,10,1,5@0"]);
    t.push_all("a", 8, &[8.0, 2.0, 2.0, 6.0], &[]);
    t.push_all("a", 18, &[18.0, 12.0, 3.0, 7.0], &["10: a=10,4,2,6@2"]);
    t.push_all(
        "a",
        40,
        &[40.0, 0.0, 4.0, 8.0],
        &[
            "20: a=-1,-1,3,7!@2",    // the gap is 22
            "30: a=-1,-1,-1,-1!@12", // and 18 is too old, 40 too far
            "40: a=40,0,4,8@0",
        ],
    );
    t.push_all("a", 44, &[44.0, 4.0, 5.0, 9.0], &[]);
    t.push_all("a", 54, &[54.0, 14.0, 6.0, 1.0], &["50: a=50,10,-1,-1!@6"]);
}

#[test]
fn what_a_group_does_not_say_is_the_modality_s() {
    let groups = "input: a, dim: 2, interpolation: previous, max_age_ms: 5, groups: [\
        {channels: [0, 1]}, {channels: [1, 2], max_age_ms: 50}]";
    let mut t = Script::new("", &[groups]);
    t.push_all("a", 0, &[1.0, 2.0], &["0: a=1,2@0"]);
    t.push_all("a", 19, &[3.0, 4.0], &["10: a=0,2!@10"]);
}

#[test]
fn the_age_is_that_of_the_newest_sample_before_whatever_the_value_is_from() {
    let mut t = Script::new("", &["input: a, interpolation: nearest"]);
    t.push("a", 3, 1.0, &[]);
    t.push("a", 11, 2.0, &["10: a=2@7"]);
}

/// Returns the values and masks of an observation of two streams: one with the sample `sample`, and one without samples.
fn observed<E: Element>(sample: [f32; 3]) -> ([f32; 4], Masks) {
    let text = format!("dtype: {}, fill_value: 0.1", E::DTYPE);
    let streams = [
        "input: a, dim: 3, groups: [{channels: [0, 1]}, {channels: [1, 3]}]",
        "input: b, wait: false",
    ];
    let mut timeline = Timeline::new(&config(&text, &streams)).unwrap();
    assert_eq!(timeline.dtype(), E::DTYPE);
    timeline.push(0, 0, Values::from_f32(&sample)).unwrap();
    let target = timeline.due().unwrap();
    let (mut out, mut masks) = ([E::from_f32(9.0); 4], Masks::default());
    cpu::window(&timeline, &target, 0..timeline.modalities(), &mut out, &mut masks);
    (out.map(E::to_f32), masks)
}

fn published<E: Element>() -> [f32; 4] {
    observed::<E>([1.0 + f32::EPSILON, 1e-6, -65500.0]).0
}

#[test]
fn values_are_published_in_the_type_that_is_asked_for() {
    assert_eq!(published::<f32>(), [1.0 + f32::EPSILON, 1e-6, -65500.0, 0.1]);
    assert_eq!(
        published::<f16>(),
        [1.0, f16::from_f32(1e-6).to_f32(), -65504.0, f16::from_f32(0.1).to_f32()]
    );
    assert_eq!(
        published::<bf16>(),
        [
            1.0,
            bf16::from_f32(1e-6).to_f32(),
            bf16::from_f32(-65500.0).to_f32(),
            bf16::from_f32(0.1).to_f32()
        ]
    );
}

/// True if a group of two channels, one of which has `value`, is published in the type `E` and does not have the fill value.
/// Checks that the other group of the sample keeps its value.
fn holds<E: Element>(value: f32) -> bool {
    let (out, masks) = observed::<E>([7.0, 2.0, value]);
    let fill = E::from_f32(0.1).to_f32();
    assert_eq!(out[0], 7.0);
    let held = out[1] == 2.0;
    let expected = if held { E::from_f32(value).to_f32() } else { fill };
    assert_eq!((out[1], out[2]), (if held { 2.0 } else { fill }, expected));
    // Only values that the type can't hold are counted, not those of the stream without a sample.
    assert_eq!(
        (masks.valid, masks.overflows),
        (vec![held.into(), 0], vec![(!held).into(), 0])
    );
    held
}

#[test]
fn a_group_that_the_type_cannot_hold_is_filled_and_not_valid() {
    let below = |x: f32| f32::from_bits(x.to_bits() - 1);
    for sign in [1.0, -1.0] {
        // From halfway to 65536 on, which float16 does not have, a value is rounded up to it.
        assert!(holds::<f16>(sign * 65504.0));
        assert!(holds::<f16>(sign * below(65520.0)));
        assert!(!holds::<f16>(sign * 65520.0));
        assert!(!holds::<f16>(sign * f32::MAX));
        let halfway = f32::from_bits(0x7f7f_8000);
        assert!(holds::<bf16>(sign * below(halfway)));
        assert!(!holds::<bf16>(sign * halfway));
        assert!(!holds::<bf16>(sign * f32::MAX));
        assert!(holds::<f32>(sign * f32::MAX));
    }
}

#[test]
fn a_line_whose_values_float32_cannot_hold_is_filled_and_not_valid() {
    let streams = [
        "input: a, dim: 2, interpolation: linear",
        "input: b, interpolation: linear",
    ];
    let mut t = Script::new("fill_value: -1", &streams);
    t.push_all("a", 5, &[2e38, 1.0], &[]);
    t.push("b", 5, 1e38, &[]);
    t.push_all("a", 15, &[-2e38, 3.0], &[]); // 4e38 apart
    t.push("b", 15, -1e38, &["10: a=-1,-1!@5 b=0@5"]);
    t.push_all("a", 20, &[2e38, 5.0], &[]);
    t.push(
        "b",
        20,
        0.0,
        &["20: a=200000000000000000000000000000000000000,5@0 b=0@0"],
    );
}

#[test]
fn a_fill_value_that_the_type_cannot_hold_is_refused() {
    for (keys, allowed) in [
        ("dtype: float16, fill_value: 65520", "-6.5504e4 to 6.5504e4"),
        (
            "dtype: bfloat16, fill_value: -3.4e38",
            "-3.3895313892515355e38 to 3.3895313892515355e38",
        ),
        ("fill_value: 1e39", "-3.4028234663852886e38 to 3.4028234663852886e38"),
        ("fill_value: .nan", "-3.4028234663852886e38 to 3.4028234663852886e38"),
    ] {
        let said = super::refusal(&config(keys, &["input: a"]));
        let (start, end) = (
            said.starts_with("fill_value: "),
            said.ends_with(&format!(": {allowed})")),
        );
        assert!(start && end, "{said}");
    }
    assert!(Timeline::new(&config("dtype: float16, fill_value: 65519", &["input: a"])).is_ok());
}

#[test]
fn a_modality_by_itself_is_its_columns_of_all() {
    let streams = ["input: a, dim: 2", "input: b, interpolation: linear, max_gap_ms: 5"];
    let mut timeline = Timeline::new(&config("window: 2", &streams)).unwrap();
    for ms in [0, 9, 20] {
        timeline
            .push(0, ms * super::MS, Values::from_f32(&[ms as f32, 1.0]))
            .unwrap();
        timeline
            .push(1, ms * super::MS, Values::from_f32(&[-ms as f32]))
            .unwrap();
        while let Some(target) = timeline.due() {
            let (mut both, mut masks) = ([0f32; 6], Masks::default());
            cpu::window(&timeline, &target, 0..timeline.modalities(), &mut both, &mut masks);
            let (mut a, mut b) = ([0f32; 4], [0f32; 2]);
            let (mut masks_a, mut masks_b) = (Masks::default(), Masks::default());
            cpu::window(&timeline, &target, 0..1, &mut a, &mut masks_a);
            cpu::window(&timeline, &target, 1..2, &mut b, &mut masks_b);
            assert_eq!(both, [a[0], a[1], b[0], a[2], a[3], b[1]]);
            assert_eq!(
                masks.valid,
                [masks_a.valid[0], masks_b.valid[0], masks_a.valid[1], masks_b.valid[1]]
            );
            assert_eq!(
                masks.age_ns,
                [
                    masks_a.age_ns[0],
                    masks_b.age_ns[0],
                    masks_a.age_ns[1],
                    masks_b.age_ns[1]
                ]
            );
            assert_eq!(masks.timestamps_ns, masks_a.timestamps_ns);
        }
    }
}
