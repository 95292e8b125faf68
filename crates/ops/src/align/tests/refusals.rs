//! Tests of invalid configurations and the texts of their errors.

use super::{AlignConfig, Timeline, config, refusal};
use robocache_time::Interpolation;

#[track_caller]
fn refuses(keys: &str, modalities: &[&str], message: &str) {
    assert_eq!(refusal(&config(keys, modalities)), message);
}

#[test]
fn counts_are_at_least_one() {
    for key in ["window", "stride", "emit_every"] {
        refuses(
            &format!("{key}: 0"),
            &["input: a"],
            &format!("{key}: 0 (allowed: 1 to 1048576)"),
        );
        refuses(
            &format!("{key}: 1048577"),
            &["input: a"],
            &format!("{key}: 1048577 (allowed: 1 to 1048576)"),
        );
    }
}

#[test]
fn a_rate_is_a_rate() {
    for (rate, shown) in [
        ("0", "0"),
        ("-5", "-5"),
        (".nan", "NaN"),
        (".inf", "inf"),
        ("2e9", "2000000000"),
    ] {
        refuses(
            &format!("rate_hz: {rate}"),
            &["input: a"],
            &format!("rate_hz: {shown} (allowed: 1e-6 to 1e9)"),
        );
    }
}

#[test]
fn durations_are_not_negative_and_finite() {
    refuses(
        "max_wait_ms: -1",
        &["input: a"],
        "max_wait_ms: -1 is not a duration (allowed: 0 to 1e12 ms)",
    );
    for key in [
        "reorder_ms",
        "reset_ms",
        "jump_ms",
        "max_age_ms",
        "max_gap_ms",
        "extrapolate_ms",
    ] {
        for (value, shown) in [("-0.5", "-0.5"), (".nan", "NaN"), (".inf", "inf")] {
            refuses(
                "",
                &["input: x", &format!("input: a, {key}: {value}")],
                &format!("modalities[1].{key}: {shown} is not a duration (allowed: 0 to 1e12 ms)"),
            );
        }
    }
    refuses(
        "",
        &["input: a, dim: 2, groups: [{channels: [0, 1]}, {channels: [1, 2], max_age_ms: -3}]"],
        "modalities[0].groups[1].max_age_ms: -3 is not a duration (allowed: 0 to 1e12 ms)",
    );
}

/// Refuses a limit that no interpolation mode uses, so that nobody relies on it. A limit of a modality holds for those of its
/// groups that use it.
#[test]
fn a_limit_that_its_interpolation_has_no_use_for_is_refused() {
    let linear = "`linear` does not use this key (allowed with it: max_gap_ms, extrapolate_ms)";
    let nearest = "`nearest` does not use this key (allowed with it: max_age_ms)";
    let previous = "`previous` does not use this key (allowed with it: max_age_ms)";
    let groups = |keys: &str, first: &str, second: &str| {
        format!(
            "input: a, dim: 2, interpolation: previous, {keys}\
             groups: [{{channels: [0, 1], {first}}}, {{channels: [1, 2], {second}}}]"
        )
    };
    let refused = [
        (
            "input: a, interpolation: linear, max_age_ms: 5".to_owned(),
            format!("max_age_ms: {linear}"),
        ),
        (
            "input: a, interpolation: nearest, max_gap_ms: 5".to_owned(),
            format!("max_gap_ms: {nearest}"),
        ),
        (
            "input: a, extrapolate_ms: 0".to_owned(),
            format!("extrapolate_ms: {previous}"),
        ),
        (
            groups("", "interpolation: linear", "interpolation: linear, max_age_ms: 5"),
            format!("groups[1].max_age_ms: {linear}"),
        ),
        (
            groups("max_gap_ms: 5,", "interpolation: nearest", ""),
            format!("max_gap_ms: {nearest}"),
        ),
    ];
    for (modality, message) in refused {
        refuses("", &[&modality], &format!("modalities[0].{message}"));
    }
    for fits in [
        groups("max_gap_ms: 5, max_age_ms: 5,", "interpolation: linear", ""),
        groups("max_age_ms: 5,", "interpolation: linear", "max_age_ms: 7"),
        "input: a, dim: 2, interpolation: linear, max_gap_ms: 5, extrapolate_ms: 5".to_owned(),
    ] {
        assert!(Timeline::new(&config("", &[&fits])).is_ok(), "{fits}");
    }
}

/// Refuses a `reset_ms` below `reorder_ms`: a sample that is only late would clear the stream.
#[test]
fn reset_is_no_less_than_reorder() {
    refuses(
        "",
        &["input: a, reorder_ms: 1500, reset_ms: 1000"],
        "modalities[0].reset_ms: 1000 ms is less than reorder_ms, 1500: a sample that comes late would be a clock jump",
    );
    for fits in ["reorder_ms: 1500, reset_ms: 1500", "reorder_ms: 1500"] {
        assert!(Timeline::new(&config("", &[&format!("input: a, {fits}")])).is_ok());
    }
}

#[test]
fn a_latency_may_be_negative_but_is_a_number() {
    refuses(
        "",
        &["input: a, latency_ms: .nan"],
        "modalities[0].latency_ms: NaN (allowed: -1e12 to 1e12 ms)",
    );
    assert!(Timeline::new(&config("", &["input: a, latency_ms: -20"])).is_ok());
}

#[test]
fn there_is_a_modality_and_each_input_is_one() {
    refuses("", &[], "modalities: the list is empty (at least one is needed)");
    refuses(
        "",
        &["input: a", "input: b", "input: a"],
        "modalities[2].input: `a` is modalities[0] already",
    );
    refuses(
        "",
        &["input: a, wait: false", "input: b, wait: false"],
        "modalities: every modality has `wait: false`, so no stream decides when a target is due (at least one must wait)",
    );
}

#[test]
fn a_size_is_one_that_fits() {
    refuses(
        "",
        &["input: a, dim: 0"],
        "modalities[0].dim: 0 (allowed: 1 to 268435456)",
    );
    refuses(
        "window: 1000000",
        &["input: a, dim: 200", "input: b, dim: 100"],
        "window: 1000000 rows of 300 columns (allowed: 268435456 elements)",
    );
}

#[test]
fn groups_are_all_channels_each_once() {
    let group = |groups: &str, message: &str| {
        let modality = format!("input: a, dim: 6, groups: [{groups}]");
        refuses("", &["input: x", &modality], message);
    };
    group(
        "{channels: [0, 4]}, {channels: [3, 6]}",
        "modalities[1].groups[1].channels: [3, 6] overlaps the group before it, which ends at 4 \
         (each channel is in one group)",
    );
    group(
        "{channels: [4, 6]}, {channels: [0, 3]}", // the error names the place in the file
        "modalities[1].groups[0].channels: [4, 6] leaves a hole before it, which ends at 3 \
         (each channel is in one group)",
    );
    group(
        "{channels: [0, 7]}",
        "modalities[1].groups[0].channels: [0, 7] (allowed: [from, to] with from < to <= dim = 6)",
    );
    group(
        "{channels: [2, 2]}",
        "modalities[1].groups[0].channels: [2, 2] (allowed: [from, to] with from < to <= dim = 6)",
    );
    group(
        "{channels: [0, 5]}",
        "modalities[1].groups: channels 5 to 6 are in no group (each channel is in one group)",
    );
}

#[test]
fn a_group_is_as_wide_as_its_mode_needs_it_and_says_what_its_mode_uses() {
    for (modality, message) in [
        (
            "dim: 3, interpolation: slerp",
            "modalities[0].dim: 3 channels (allowed with `slerp`: 4)",
        ),
        (
            "dim: 6, groups: [{channels: [0, 6], interpolation: rotvec}]",
            "modalities[0].groups[0].channels: 6 channels (allowed with `rotvec`: 3)",
        ),
        (
            "dim: 1, interpolation: angle, canonical: true",
            "modalities[0].canonical: `angle` does not use this key (allowed with: slerp)",
        ),
        (
            "dim: 1, min_period_ms: -1",
            "modalities[0].min_period_ms: -1 is not a duration (allowed: 0 to 1e12 ms)",
        ),
    ] {
        refuses("", &[&format!("input: a, {modality}")], message);
    }
}

#[test]
fn an_interpolation_is_said_by_the_modality_or_by_every_group() {
    let parse = |text: &str| serde_yaml::from_str::<AlignConfig>(text).unwrap();
    let missing = parse("{rate_hz: 50, modalities: [{input: a, dim: 2}]}");
    assert_eq!(
        refusal(&missing),
        format!(
            "modalities[0].interpolation: it is missing (allowed: {})",
            Interpolation::names()
        )
    );
    let in_a_group = parse(
        "{rate_hz: 50, modalities: [{input: a, dim: 2, groups: [\
         {channels: [0, 1], interpolation: linear}, {channels: [1, 2]}]}]}",
    );
    assert_eq!(
        refusal(&in_a_group),
        format!(
            "modalities[0].groups[1].interpolation: it is missing (allowed: {})",
            Interpolation::names()
        )
    );
}

#[test]
fn what_no_version_knows_is_refused_when_it_is_read() {
    let refused = |text: &str| serde_yaml::from_str::<AlignConfig>(text).unwrap_err().to_string();
    let cases = [
        ("{rate_hz: 50, modalities: [], windows: 3}", "unknown field `windows`"),
        ("{modalities: []}", "missing field `rate_hz`"),
        (
            "{rate_hz: 50, modalities: [], dtype: int8}",
            "`int8` can't be published",
        ),
        (
            "{rate_hz: 50, modalities: [], trigger: camera}",
            "trigger: invalid type: string \"camera\", expected a map such as { stream: camera }",
        ),
        (
            "{rate_hz: 50, modalities: [], trigger: {}}",
            "no kind of trigger is given (allowed: one of `stream`, `request`, `timer`; without `trigger` the grid)",
        ),
        (
            "{rate_hz: 50, modalities: [], trigger: {stream: a, timer: b}}",
            "`stream` and `timer` are given together (allowed: one of",
        ),
        (
            "{rate_hz: 50, modalities: [], trigger: {request: ask, rows: samples}}",
            "`rows` does not go with `request` (allowed: with `stream`)",
        ),
        (
            "{rate_hz: 50, modalities: [], trigger: {stream: a, step: 2}}",
            "unknown field `step`, expected one of `stream`, `every`",
        ),
        (
            "{rate_hz: 50, modalities: [], trigger: {stream: a, rows: frames}}",
            "unknown variant `frames`, expected `period` or `samples`",
        ),
        (
            "{rate_hz: 50, modalities: [{input: a, dim: -1}]}",
            "dim: invalid type: integer `-1`",
        ),
        (
            "{rate_hz: 50, modalities: [{input: a, dim: 1, interpolation: spline}]}",
            "`spline` is not an interpolation (allowed: previous",
        ),
        (
            "{rate_hz: 50, modalities: [{input: a, dim: 1, groups: [{channels: [0, 1], latency_ms: 3}]}]}",
            "unknown field `latency_ms`",
        ),
    ];
    for (text, message) in cases {
        let refused = refused(text);
        assert!(refused.contains(message), "{text}: {refused}");
    }
}
