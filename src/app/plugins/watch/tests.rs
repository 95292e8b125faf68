//! Tests that the watch names the right stream and the right cause, and logs at its limited rate.

use super::*;
use robocache_device::Values;
use robocache_ops::align::AlignConfig;

fn timeline(keys: &str) -> Timeline {
    let text = format!(
        "{{ rate_hz: 100, {keys} modalities: [{{input: a, dim: 1, interpolation: previous}}, \
         {{input: b, dim: 1, interpolation: previous}}, {{input: c, dim: 1, interpolation: previous, wait: false}}] }}"
    );
    let config: AlignConfig = serde_yaml::from_str(&text).unwrap();
    Timeline::new(&config).unwrap()
}

fn push(timeline: &mut Timeline, watch: &mut Watch, stream: usize, stamp_ns: i64, at: Instant) {
    timeline.push(stream, stamp_ns, Values::from_f32(&[1.0])).unwrap();
    watch.streams[stream].came(at);
}

#[test]
fn it_says_which_stream_is_missing_or_behind_and_by_how_much() {
    let mut timeline = timeline("");
    let mut watch = Watch::new("fuse", &timeline);
    let start = Instant::now();
    assert_eq!(
        watch.why_silent(start, &timeline).unwrap().1,
        "`a` has sent nothing, `b` has sent nothing"
    );
    watch.refused(1, 1);
    push(&mut timeline, &mut watch, 0, 5_000_000_000, start);
    let now = start + Duration::from_secs(3);
    assert_eq!(
        watch.why_silent(now, &timeline).unwrap().1,
        "`b` sent 1 messages, none of which can be used, `a` sent its last sample 3.0 s ago"
    );
    push(&mut timeline, &mut watch, 1, 3_467_000_000, now);
    assert_eq!(
        watch.why_silent(now, &timeline).unwrap().1,
        "`a` sent its last sample 3.0 s ago, `b` is 1.533 s of capture time behind `a` and sent its last sample 0.0 s ago"
    );
    timeline.close(0);
    assert_eq!(
        watch.why_silent(now, &timeline).unwrap().1,
        "`b` sent its last sample 0.0 s ago"
    );
    timeline.close(1);
    timeline.close(2);
    assert_eq!(watch.why_silent(now, &timeline), None);
}

/// Returns the stream to blame and the reason, after 50 samples of both streams over a second. Samples of `b` come `b_apart_ns`
/// after their stamps.
fn of_clocks(b_apart_ns: i64) -> (usize, String) {
    let mut timeline = timeline("");
    let mut watch = Watch::new("fuse", &timeline);
    let (start, epoch_ns) = (Instant::now(), 1_700_000_000_000_000_000);
    for i in 0..50 {
        for (stream, apart_ns) in [(0, 2_000_000), (1, b_apart_ns)] {
            let stamp_ns = epoch_ns + 20_000_000 * i - apart_ns;
            push(
                &mut timeline,
                &mut watch,
                stream,
                stamp_ns,
                start + Duration::from_millis(20 * i as u64),
            );
            watch.streams[stream].judge(start, stamp_ns, None);
            watch.streams[stream].lead_ns = Some(-apart_ns);
        }
    }
    watch
        .why_silent(start + Duration::from_millis(1200), &timeline)
        .unwrap()
}

#[test]
fn the_stream_that_is_off_the_clock_of_this_host_is_named_first() {
    let day = 86_400_000_000_000;
    let (guilty, why) = of_clocks(-day);
    assert_eq!(guilty, 1);
    assert_eq!(
        why,
        "`b` is 86400.002 s of capture time ahead of `a` and sent its last sample 0.2 s ago"
    );
    let (guilty, why) = of_clocks(day);
    assert_eq!(guilty, 1);
    assert!(
        why.starts_with("`b` is 86399.998 s of capture time behind `a`"),
        "{why}"
    );
    assert_eq!(
        of_clocks(5_000_000).1,
        "`a` sent its last sample 0.2 s ago, `b` sent its last sample 0.2 s ago"
    );
}

#[test]
fn stamps_in_another_unit_are_to_blame_whoever_is_quiet() {
    let mut timeline = timeline("");
    let mut watch = Watch::new("fuse", &timeline);
    let start = Instant::now();
    push(&mut timeline, &mut watch, 1, 1_700_000_000, start);
    watch.streams[1].stamp_problem = Some("the time in seconds".into());
    assert_eq!(
        watch.why_silent(start + Duration::from_secs(3), &timeline).unwrap(),
        (1, "`b`: the time in seconds, `a` has sent nothing".into())
    );
}

/// Runs three seconds of observations, with a call of `each` for every sample. Returns the stream with a health issue, and the
/// issue.
fn invalid(mut each: impl FnMut(&mut Timeline, &mut Watch, Instant, i64)) -> Option<(usize, HealthIssue)> {
    let keys = "max_wait_ms: 50,";
    let mut timeline = timeline(keys);
    let mut watch = Watch::new("fuse", &timeline);
    let start = Instant::now();
    watch.check(start, None, &timeline);
    for i in 0..300 {
        let now = start + Duration::from_millis(10 * i);
        push(&mut timeline, &mut watch, 0, 10_000_000 * i as i64, now);
        watch.observed(0, 0, true);
        each(&mut timeline, &mut watch, now, 10_000_000 * i as i64);
    }
    watch.last_observation = Some(start + Duration::from_secs(3));
    watch.check(start + Duration::from_secs(3), None, &timeline);
    let of = (0..3).find_map(|input| Some((input, watch.health_issue(input)?.clone())));
    of.filter(|(input, _)| *input != 2)
}

#[test]
fn a_stream_that_is_hardly_valid_says_why() {
    let said = |found: Option<(usize, HealthIssue)>| {
        let (input, health_issue) = found.unwrap();
        assert_eq!((input, health_issue.level), (1, Level::Error));
        health_issue.to_string()
    };
    let closed = invalid(|timeline, watch, _, _| {
        timeline.close(1);
        watch.observed(1, -1, false);
    });
    assert_eq!(said(closed), "valid in 0.0 % of the observations: it is closed");
    let late = invalid(|timeline, watch, now, ns| {
        push(timeline, watch, 1, ns - 2_500_000_000, now);
        watch.observed(1, 2_500_000_000, ns == 0);
    });
    assert_eq!(
        said(late),
        "valid in 0.3 % of the observations: its newest sample is 2.500 s of capture time behind `a`: it comes late, or their \
         clocks differ (`latency_ms` or robocache-clock puts them right)"
    );
    let silent = invalid(|_, watch, _, _| watch.observed(1, -1, false));
    assert_eq!(
        said(silent),
        "valid in 0.0 % of the observations: it has sent nothing for 3.0 s"
    );
    // A share of one in ten is enough.
    let valid = |timeline: &mut Timeline, watch: &mut Watch, now, ns: i64| {
        push(timeline, watch, 1, ns, now);
        watch.observed(1, 0, ns % 100_000_000 == 0);
    };
    assert_eq!(invalid(valid), None);
}

/// Runs `b` with a clock 0.5 s ahead: `max_wait_ms` counts from its samples, so that samples of the other streams come
/// too late.
#[test]
fn the_stream_that_is_ahead_is_to_blame_where_others_are_left_behind() {
    let mut timeline = timeline("max_wait_ms: 50,");
    let mut watch = Watch::new("fuse", &timeline);
    let start = Instant::now();
    watch.check(start, None, &timeline);
    for i in 0..300 {
        let now = start + Duration::from_millis(10 * i);
        for (stream, lead_ns) in [(0, -2_000_000), (1, 500_000_000), (2, -3_000_000)] {
            push(&mut timeline, &mut watch, stream, 10_000_000 * i as i64 + lead_ns, now);
            watch.streams[stream].lead_ns = Some(lead_ns);
            // A pause at the start, as of a process that is still starting, says nothing of clocks.
            watch.streams[stream].seen.record(|seen| seen.step_ns = 1_100_000_000);
            while timeline.due().is_some() {}
            watch.observed(stream, 0, stream == 1);
        }
    }
    assert!(timeline.late_samples(0) > 0);
    watch.last_observation = Some(start + Duration::from_secs(3));
    watch.check(start + Duration::from_secs(3), None, &timeline);
    let said = |input| watch.health_issue(input).unwrap().to_string();
    assert_eq!(
        said(1),
        "0.502 s ahead of the other streams, so that observations are sent before their samples come: its clock differs from \
         theirs (`latency_ms` or robocache-clock puts it right)"
    );
    for input in [0, 2] {
        assert_eq!(
            said(input),
            "valid in 0.0 % of the observations: `b` is 0.502 s ahead of the other streams, and observations are sent before \
             their samples come"
        );
    }
}

#[test]
fn it_speaks_after_two_seconds_and_every_ten() {
    let timeline = timeline("");
    let mut watch = Watch::new("fuse", &timeline);
    let start = Instant::now();
    let mut said = Vec::new();
    for half_seconds in 0..60 {
        let before = watch.said.last();
        watch.check(start + Duration::from_millis(500 * half_seconds), None, &timeline);
        if watch.said.last() != before {
            said.push(half_seconds / 2);
        }
    }
    assert_eq!(said, [2, 12, 22]);
    // A grid with a period of ten seconds is not silent after two seconds.
    let timeline = self::timeline("emit_every: 1000,");
    let mut slow = Watch::new("fuse", &timeline);
    slow.check(start, None, &timeline);
    slow.check(start + Duration::from_secs(19), None, &timeline);
    assert_eq!(slow.said.last(), None);
}

/// Returns the times, s, at which a watch logs a line. The watch is checked every half second for 20 s, and `each` runs before
/// each check.
fn said(keys: &str, mut each: impl FnMut(u32, &mut Timeline, &mut Watch, Instant) -> Option<Instant>) -> Vec<u32> {
    let mut timeline = timeline(keys);
    timeline.close(2);
    let mut watch = Watch::new("fuse", &timeline);
    let start = Instant::now();
    let mut said = Vec::new();
    for half_seconds in 0..40 {
        let now = start + Duration::from_millis(500 * u64::from(half_seconds));
        let asked = each(half_seconds, &mut timeline, &mut watch, now);
        let before = watch.said.last();
        watch.check(now, asked, &timeline);
        if watch.said.last() != before {
            said.push(half_seconds / 2);
        }
    }
    said
}

#[test]
fn a_request_that_does_not_come_is_no_silence_and_one_that_waits_is() {
    let keys = "trigger: { request: ask },";
    assert_eq!(said(keys, |_, _, _, _| None), [] as [u32; 0]);
    let mut came = None;
    let waits = said(keys, |half_seconds, timeline, _, now| {
        if half_seconds == 10 {
            timeline.ask(None).unwrap();
            came = Some(now);
        }
        came
    });
    assert_eq!(waits, [7, 17]);
    let mut timeline = timeline(keys);
    timeline.ask(None).unwrap();
    timeline.ask(None).unwrap();
    let watch = Watch::new("fuse", &timeline);
    assert_eq!(
        watch.why_silent(Instant::now(), &timeline).unwrap().1,
        "2 requests wait: `a` has sent nothing, `b` has sent nothing"
    );
}

#[test]
fn a_timer_that_does_not_tick_or_finds_nothing_is_named() {
    let keys = "trigger: { timer: tick },";
    assert_eq!(said(keys, |_, _, _, _| None), [2, 12]);
    // A timer that ticks every 8 s is not overdue, and has an observation each time.
    let slow = said(keys, |half_seconds, timeline, watch, now| {
        if half_seconds.is_multiple_of(16) {
            watch.trigger.samples += 1;
            watch.trigger.first.get_or_insert(now);
            watch.trigger.last = Some(now);
            watch.observation(timeline);
            watch.last_observation = Some(now);
        }
        None
    });
    assert_eq!(slow, [2]); // before the second it can't be known
    let timeline = timeline(keys);
    let mut watch = Watch::new("fuse", &timeline);
    let none = watch.why_silent(Instant::now(), &timeline).unwrap().1;
    assert_eq!(
        none,
        "the timer `tick` has not ticked: `a` has sent nothing, `b` has sent nothing"
    );
    watch.triggered();
    let nothing = watch.why_silent(Instant::now(), &timeline).unwrap().1;
    assert!(
        nothing.starts_with("the timer `tick` ticked last 0.0 s ago, and found nothing newer: `a` has"),
        "{nothing}"
    );
}

#[test]
fn a_stream_whose_samples_are_the_targets_may_be_slow() {
    // The targets are every third of samples that come 2 s apart, and each was used.
    let of = |every: u32| {
        move |half_seconds: u32, timeline: &mut Timeline, watch: &mut Watch, now| {
            if half_seconds.is_multiple_of(4) {
                watch.streams[0].samples += 1;
                watch.streams[0].first.get_or_insert(now);
                watch.streams[0].last = Some(now);
                if (half_seconds / 4).is_multiple_of(every) {
                    watch.observation(timeline);
                    watch.last_observation = Some(now);
                }
            }
            None
        }
    };
    assert_eq!(said("trigger: { stream: a, every: 3 },", of(3)), [] as [u32; 0]);
    // A leading stream whose targets are held up by another stream.
    assert_eq!(said("trigger: { stream: a },", of(1000)), [2, 12]);
    let timeline = timeline("trigger: { stream: a },");
    let watch = Watch::new("fuse", &timeline);
    assert_eq!(
        watch.why_silent(Instant::now(), &timeline).unwrap().1,
        "the targets are the samples of `a`: `a` has sent nothing, `b` has sent nothing"
    );
}

#[test]
fn a_stream_that_is_quiet_while_observations_go_on_is_named_every_ten_seconds() {
    let named = |observations| {
        let mut timeline = timeline("");
        let mut watch = Watch::new("fuse", &timeline);
        let start = Instant::now();
        timeline.close(2);
        let mut named = Vec::new();
        for half_seconds in 0..60 {
            let now = start + Duration::from_millis(500 * half_seconds);
            push(&mut timeline, &mut watch, 0, 500_000_000 * half_seconds as i64, now);
            watch.observations = observations;
            watch.last_observation = Some(now);
            let before = watch.streams[1].said_quiet.last();
            watch.check(now, None, &timeline);
            assert!(watch.streams[0].said_quiet.last().is_none() && watch.streams[2].said_quiet.last().is_none());
            if watch.streams[1].said_quiet.last() != before {
                named.push(half_seconds / 2);
            }
        }
        named
    };
    assert_eq!(named(1), [2, 12, 22]);
    assert_eq!(named(0), [] as [u64; 0]); // none goes on where none came
}

#[test]
fn a_stream_of_which_nothing_can_be_used_is_not_said_to_be_silent() {
    let mut timeline = timeline("");
    let mut watch = Watch::new("fuse", &timeline);
    let silence = |watch: &Watch| watch.streams[0].silence(Duration::from_secs(2));
    assert_eq!(silence(&watch), "has sent nothing for 2.0 s");
    watch.refused(0, 60);
    assert_eq!(
        silence(&watch),
        "has sent nothing that can be used for 2.0 s (60 messages were refused)"
    );
    push(&mut timeline, &mut watch, 0, 0, Instant::now());
    assert_eq!(silence(&watch), "has sent nothing for 2.0 s");
}
