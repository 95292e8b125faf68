//! Align and fuse on random streams, compared with an oracle that finds everything by linear scans of all samples.

use crate::common::{MS, Recorder, Sent};
use proptest::collection::vec;
use proptest::prelude::*;
use robocache::device::{Placement, Values};
use robocache::ops;
use robocache::ops::align::{AlignConfig, Aligner, Window};
use std::collections::VecDeque;

/// A random stream: the interpolation rule of each channel group, and its samples (ms, values) in order of arrival.
#[derive(Clone, Debug)]
struct RandomStream {
    dim: usize,
    latency: i64,
    reorder: i64,
    wait: bool,
    /// Channel groups: for each, the channel at which it ends (exclusive), and its interpolation rule.
    groups: Vec<(usize, Rule)>,
    samples: Vec<(i64, Vec<f32>)>,
}

#[derive(Clone, Debug)]
struct Rule {
    mode: &'static str,
    max_age: Option<i64>,
    max_gap: Option<i64>,
    extrapolate: Option<i64>,
}

#[derive(Clone, Debug)]
struct Robot {
    window: usize,
    stride: i64,
    emit_every: i64,
    max_wait: Option<i64>,
    /// YAML of the trigger. The oracle supports only targets on the time grid (`null`).
    trigger: &'static str,
    streams: Vec<RandomStream>,
}

const PERIOD: i64 = 10;
const FILL: f32 = -99.0;

impl Robot {
    fn modalities_yaml(&self) -> String {
        let mut text = String::new();
        for (i, stream) in self.streams.iter().enumerate() {
            text += &format!(
                "\n  - {{ input: s{i}, dim: {}, latency_ms: {}, reorder_ms: {}, wait: {}, reset_ms: 1e6, groups: [",
                stream.dim, stream.latency, stream.reorder, stream.wait
            );
            let mut from = 0;
            for (to, rule) in &stream.groups {
                text += &format!("{{ channels: [{from}, {to}], interpolation: {}", rule.mode);
                let limits = [
                    ("max_age_ms", rule.max_age),
                    ("max_gap_ms", rule.max_gap),
                    ("extrapolate_ms", rule.extrapolate),
                ];
                for (key, limit) in limits {
                    text += &limit.map_or(String::new(), |ms| format!(", {key}: {ms}"));
                }
                text += " }, ";
                from = *to;
            }
            text += "] }";
        }
        text
    }

    fn yaml(&self) -> String {
        let max_wait = self.max_wait.map_or("null".to_owned(), |ms| ms.to_string());
        format!(
            "rate_hz: {}\nwindow: {}\nstride: {}\nemit_every: {}\nmax_wait_ms: {max_wait}\ntrigger: {}\nfill_value: {FILL}\n\
             modalities: {}",
            1000 / PERIOD,
            self.window,
            self.stride,
            self.emit_every,
            self.trigger,
            self.modalities_yaml()
        )
    }

    fn plugin_yaml(&self, plugin: &str) -> String {
        format!(
            "plugins:\n  - {plugin}:\n      {}",
            self.yaml().replace('\n', "\n      ")
        )
    }

    fn aligner(&self) -> Aligner {
        let config: AlignConfig = serde_yaml::from_str(&self.yaml()).unwrap();
        Aligner::fused(&config, &Placement::cpu("a test")).unwrap()
    }
}

/// An observation that align or fuse made, or that the oracle expects.
#[derive(Clone, Debug, PartialEq)]
struct Observation {
    ms: i64,
    late: i64,
    values: Vec<f32>,
    valid: Vec<i64>,
    age: Vec<i64>,
}

fn look(window: &mut Window<'_>) -> Observation {
    let mut values = vec![f32::NAN; window.output(0).layout().rows];
    window.write(0, &mut values);
    Observation {
        ms: window.target().time_ns / MS,
        late: window.target().late_samples,
        values,
        valid: window.masks().valid.clone(),
        age: window.masks().age_ns.clone(),
    }
}

/// Event of a stream: a sample (stream index, time in ms, values), or the stream index of a close or an open.
#[derive(Clone, Debug)]
enum Event {
    Sample(usize, i64, Vec<f32>),
    Close(usize),
    Open(usize),
}

fn run(robot: &Robot, events: &[Event]) -> Vec<Vec<Observation>> {
    let mut aligner = robot.aligner();
    let mut step = |event: &Event| {
        match event {
            Event::Sample(stream, ms, values) => {
                aligner.push(*stream, ms * MS, Values::from_f32(values)).unwrap();
            }
            Event::Close(stream) => aligner.close(*stream),
            Event::Open(stream) => aligner.open(*stream),
        }
        let mut seen = Vec::new();
        while let Some(target) = aligner.due() {
            seen.push(look(&mut aligner.window(target)));
        }
        seen
    };
    events.iter().map(&mut step).collect()
}

/// The oracle: keeps every sample, and finds everything by going through all samples.
struct Oracle<'a> {
    robot: &'a Robot,
    came: Vec<Vec<(i64, &'a [f32])>>,
    open: Vec<bool>,
    /// Grid clock: the newest time of the streams that are waited for, ms.
    clock: Option<i64>,
    sent: Option<i64>,
    late: i64,
}

impl<'a> Oracle<'a> {
    fn new(robot: &'a Robot) -> Self {
        Self {
            robot,
            came: vec![Vec::new(); robot.streams.len()],
            open: vec![true; robot.streams.len()],
            clock: None,
            sent: None,
            late: 0,
        }
    }

    fn happens(&mut self, event: &'a Event) -> Vec<Observation> {
        match event {
            Event::Sample(stream, stamp, values) => {
                let time = stamp - self.robot.streams[*stream].latency;
                self.late += i64::from(self.sent.is_some_and(|sent| time <= sent));
                self.came[*stream].retain(|(other, _)| *other != time);
                self.came[*stream].push((time, values));
                self.open[*stream] = true;
            }
            Event::Close(stream) => self.open[*stream] = false,
            Event::Open(stream) => self.open[*stream] = true,
        }
        self.clock = self.leaders_newest().or(self.clock);
        let mut seen = Vec::new();
        while let Some(next) = self.next().filter(|&next| self.is_due(next)) {
            seen.push(self.at(next));
            self.sent = Some(next);
        }
        seen
    }

    fn newest(&self, stream: usize) -> Option<i64> {
        self.came[stream].iter().map(|(time, _)| *time).max()
    }

    fn first(&self, stream: usize) -> Option<i64> {
        self.came[stream].iter().map(|(time, _)| *time).min()
    }

    fn streams(&self) -> std::ops::Range<usize> {
        0..self.robot.streams.len()
    }

    fn next(&self) -> Option<i64> {
        if let Some(sent) = self.sent {
            return Some(sent + self.robot.emit_every * PERIOD);
        }
        let earliest = self.streams().filter_map(|stream| self.first(stream)).min()?;
        let mut start = i64::MIN;
        for stream in self.streams().filter(|&stream| self.robot.streams[stream].wait) {
            let over = self.robot.max_wait.map(|wait| earliest + wait);
            let has_one = match (self.first(stream), over) {
                (Some(first), Some(over)) => first.min(over),
                (Some(first), None) => first,
                (None, _) if !self.open[stream] => continue,
                (None, Some(over)) => over,
                (None, None) => return None,
            };
            start = start.max(has_one);
        }
        let start = if start == i64::MIN { earliest } else { start };
        (-100..1000).map(|k| k * PERIOD).find(|&t| t >= start)
    }

    /// Returns the newest time of the streams that set the grid clock, ms; `None` without a sample. These are the open streams that
    /// are waited for, or, if all of these are closed, all streams with `wait: true`.
    fn leaders_newest(&self) -> Option<i64> {
        let is_waited_for = |stream: &usize| self.open[*stream] && self.robot.streams[*stream].wait;
        let newest_of =
            |streams: &mut dyn Iterator<Item = usize>| streams.filter_map(|stream| self.newest(stream)).max();
        match self.streams().any(|stream| is_waited_for(&stream)) {
            true => newest_of(&mut self.streams().filter(is_waited_for)),
            false => newest_of(&mut self.streams().filter(|&stream| self.robot.streams[stream].wait)),
        }
    }

    fn is_due(&self, t: i64) -> bool {
        let waited = self
            .robot
            .max_wait
            .is_some_and(|wait| self.clock.is_some_and(|clock| clock >= t + wait));
        waited || self.clock.is_some_and(|clock| clock >= t) && self.streams().all(|stream| self.is_past(stream, t))
    }

    fn is_past(&self, stream: usize, t: i64) -> bool {
        let rules = &self.robot.streams[stream];
        if !self.open[stream] || !rules.wait {
            return true;
        }
        let Some(newest) = self.newest(stream) else {
            return false;
        };
        let settled = newest - rules.reorder;
        let looks_ahead = rules.groups.iter().any(|(_, rule)| rule.mode != "previous");
        if looks_ahead && rules.reorder > 0 {
            self.came[stream].iter().any(|(time, _)| t <= *time && *time <= settled)
        } else {
            settled >= t
        }
    }

    fn at(&self, target: i64) -> Observation {
        let mut seen = Observation {
            ms: target,
            late: self.late,
            values: Vec::new(),
            valid: Vec::new(),
            age: Vec::new(),
        };
        for row in (0..self.robot.window as i64).rev() {
            let t = target - row * self.robot.stride * PERIOD;
            for stream in self.streams() {
                let came = &self.came[stream];
                let before = came.iter().filter(|(time, _)| *time <= t).max_by_key(|(time, _)| *time);
                let after = came.iter().filter(|(time, _)| *time > t).min_by_key(|(time, _)| *time);
                seen.age.push(before.map_or(-1, |(time, _)| (t - time) * MS));
                let mut all_valid = true;
                let mut from = 0;
                for (to, rule) in &self.robot.streams[stream].groups {
                    let value = value(t, before.copied(), after.copied(), rule, from..*to);
                    all_valid &= value.is_some();
                    seen.values.extend(value.unwrap_or(vec![FILL; to - from]));
                    from = *to;
                }
                seen.valid.push(i64::from(all_valid));
            }
        }
        seen
    }
}

type Sample<'a> = Option<(i64, &'a [f32])>;

fn value(t: i64, before: Sample, after: Sample, rule: &Rule, channels: std::ops::Range<usize>) -> Option<Vec<f32>> {
    let within = |distance: i64, limit: Option<i64>| limit.is_none_or(|limit| distance <= limit);
    let of = |sample: &[f32]| sample[channels.clone()].to_vec();
    match (rule.mode, before, after) {
        (_, Some((time, a)), _) if time == t => Some(of(a)),
        ("previous", Some((time, a)), _) => within(t - time, rule.max_age).then(|| of(a)),
        ("nearest", before, after) => {
            let nearest = before
                .into_iter()
                .chain(after)
                .min_by_key(|(time, _)| (time - t).abs())?;
            within((nearest.0 - t).abs(), rule.max_age).then(|| of(nearest.1))
        }
        ("linear", Some((l, a)), Some((r, b))) => {
            let w = ((t - l) as f64 / (r - l) as f64) as f32;
            let line = channels.clone().map(|c| a[c] + w * (b[c] - a[c])).collect();
            within(r - l, rule.max_gap).then_some(line)
        }
        ("linear", Some((l, a)), None) => (t - l <= rule.extrapolate.unwrap_or(0)).then(|| of(a)),
        _ => None,
    }
}

fn rule() -> impl Strategy<Value = Rule> {
    let limit = || prop::option::of(0..40i64);
    (
        prop::sample::select(vec!["previous", "nearest", "linear"]),
        limit(),
        limit(),
        limit(),
    )
        .prop_map(|(mode, max_age, max_gap, extrapolate)| Rule {
            mode,
            max_age: max_age.filter(|_| mode != "linear"),
            max_gap: max_gap.filter(|_| mode == "linear"),
            extrapolate: extrapolate.filter(|_| mode == "linear"),
        })
}

/// Generates a stream of distinct stamps, whose samples arrive out of order by less than `reorder`.
fn ordered_stream() -> impl Strategy<Value = RandomStream> + Clone {
    let groups = prop_oneof![
        rule().prop_map(|rule| vec![(2, rule)]),
        (rule(), rule()).prop_map(|(a, b)| vec![(1, a), (2, b)]),
    ];
    let times = prop::collection::btree_set(-20..300i64, 0..40);
    (
        groups,
        -7..8i64,
        prop_oneof![Just(0), 1..40i64],
        times,
        vec(0..1000u16, 40),
    )
        .prop_map(|(groups, latency, reorder, times, random)| {
            let mut arrivals: Vec<(i64, i64)> = times
                .into_iter()
                .zip(&random)
                .map(|(time, &random)| (time + i64::from(random) % reorder.max(1), time))
                .collect();
            arrivals.sort();
            let values = |time: i64| vec![(time * 37 % 101) as f32 / 7.0, (time * 11 % 53) as f32];
            RandomStream {
                dim: 2,
                latency,
                reorder,
                wait: true,
                groups,
                samples: arrivals.into_iter().map(|(_, time)| (time, values(time))).collect(),
            }
        })
}

fn robot(streams: impl Strategy<Value = RandomStream>) -> impl Strategy<Value = Robot> {
    (1..5usize, 1..4i64, 1..4i64, vec(streams, 1..4)).prop_map(|(window, stride, emit_every, streams)| Robot {
        window,
        stride,
        emit_every,
        max_wait: None,
        trigger: "null",
        streams,
    })
}

/// Generates a configuration and its streams. Its targets are the samples of the first stream, or every second one of them.
fn led(streams: impl Strategy<Value = RandomStream>) -> impl Strategy<Value = Robot> {
    let triggers = [
        "{ stream: s0 }",
        "{ stream: s0, rows: samples }",
        "{ stream: s0, every: 2, min_interval_ms: 9 }",
    ];
    (robot(streams), prop::sample::select(triggers.to_vec())).prop_map(|(robot, trigger)| Robot {
        emit_every: 1,
        trigger,
        ..robot
    })
}

/// Generates a configuration and its streams. The targets are on the time grid, or at the samples of the first stream.
fn any_robot(streams: impl Strategy<Value = RandomStream> + Clone) -> impl Strategy<Value = Robot> {
    prop_oneof![robot(streams.clone()), led(streams)]
}

/// Merges the streams into one list of events. The indices `turns` pick the stream of each next event. A stream closes after
/// its last sample.
fn merge(robot: &Robot, turns: &[usize]) -> Vec<Event> {
    let mut queues: Vec<VecDeque<Event>> = Vec::new();
    for (i, stream) in robot.streams.iter().enumerate() {
        let samples = stream.samples.iter();
        let mut queue: VecDeque<_> = samples
            .map(|(ms, values)| Event::Sample(i, *ms, values.clone()))
            .collect();
        queue.push_back(Event::Close(i));
        queues.push(queue);
    }
    let mut events = Vec::new();
    for turn in turns.iter().copied().cycle() {
        queues.retain(|queue| !queue.is_empty());
        let count = queues.len();
        let Some(queue) = queues.get_mut(turn % count.max(1)) else {
            break;
        };
        events.extend(queue.pop_front());
    }
    events
}

/// Generates a configuration and random events: samples up to 60 ms late, with repeated stamps, and inputs that close and open
/// at any time.
fn chaos() -> impl Strategy<Value = (Robot, Vec<Event>)> {
    let any_robot = (
        robot(ordered_stream()),
        prop::option::of(0..60i64),
        vec(any::<bool>(), 3),
    )
        .prop_map(|(mut robot, max_wait, waits)| {
            robot.max_wait = max_wait;
            for (stream, wait) in robot.streams.iter_mut().zip(waits).skip(1) {
                stream.wait = wait;
            }
            robot
        });
    // Stamps mostly ascend: samples are up to 60 ms late, and some stamps come twice.
    let event = (0..12u8, 0..3usize, 0..60i64, -50.0..50f32);
    (any_robot, vec(event, 0..150)).prop_map(|(robot, drawn)| {
        let events = drawn.into_iter().enumerate().map(|(i, (kind, stream, back, value))| {
            let stream = stream % robot.streams.len();
            match kind {
                0 => Event::Close(stream),
                1 => Event::Open(stream),
                _ => Event::Sample(stream, 3 * i as i64 - back, vec![value, i as f32]),
            }
        });
        let events = events.collect();
        (robot, events)
    })
}

fn publish(config: &str, messages: &[(usize, robocache::stream::Message)]) -> Vec<Sent> {
    let mut graph = crate::common::graph(config).unwrap();
    let mut sink = Recorder::default();
    for (stream, message) in messages {
        let input = crate::common::input(&graph, &format!("s{stream}"));
        graph.message(input, message, &mut sink);
    }
    graph.close_all(&mut sink);
    let mut sent = sink.take();
    for message in &mut sent {
        message.header.remove(ops::key::compute_us.name);
    }
    sent
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// The order of arrival has no influence without `max_wait_ms`: neither the interleaving of streams, nor disorder within
    /// `reorder_ms`.
    #[test]
    fn any_interleaving_and_any_disorder_within_reorder_give_the_same_observations(
        robot in robot(ordered_stream()),
        turns in vec(0..60usize, 1..60),
        other_turns in vec(0..60usize, 1..60),
    ) {
        let came = run(&robot, &merge(&robot, &turns)).concat();
        prop_assert_eq!(&came, &run(&robot, &merge(&robot, &other_turns)).concat());
        let mut in_order = robot.clone();
        for stream in &mut in_order.streams {
            stream.samples.sort_by_key(|(ms, _)| *ms);
        }
        let sorted = merge(&in_order, &[0]);
        prop_assert_eq!(&came, &run(&in_order, &sorted).concat());
        // The oracle gets the complete lists: every sample first, then every close.
        let mut oracle = Oracle::new(&robot);
        for event in sorted.iter().filter(|event| matches!(event, Event::Sample(..))) {
            if let Event::Sample(stream, ms, values) = event {
                oracle.came[*stream].push((ms - robot.streams[*stream].latency, values));
            }
        }
        oracle.open.fill(false);
        oracle.clock = oracle.leaders_newest();
        let mut want = Vec::new();
        while let Some(next) = oracle.next().filter(|&next| oracle.is_due(next)) {
            want.push(oracle.at(next));
            oracle.sent = Some(next);
        }
        prop_assert_eq!(came, want);
    }

    #[test]
    fn any_interleaving_gives_the_same_observations_at_the_samples_of_a_stream(
        robot in led(ordered_stream()),
        turns in vec(0..60usize, 1..60),
        other_turns in vec(0..60usize, 1..60),
    ) {
        let came = run(&robot, &merge(&robot, &turns)).concat();
        prop_assert_eq!(&came, &run(&robot, &merge(&robot, &other_turns)).concat());
        prop_assert!(came.iter().all(|seen| robot.streams[0].samples.iter().any(|(ms, _)| ms - robot.streams[0].latency == seen.ms)));
    }

    /// Compares the engine with the oracle after each event: with `max_wait_ms`, late and repeated samples, streams that are
    /// not waited for, and inputs that close and open.
    #[test]
    fn whatever_happens_the_engine_does_as_the_oracle((robot, events) in chaos()) {
        let mut oracle = Oracle::new(&robot);
        for (i, (event, seen)) in events.iter().zip(run(&robot, &events)).enumerate() {
            prop_assert_eq!(seen, oracle.happens(event), "at event {}: {:?}", i, event);
        }
    }

    /// The same samples are sent one by one, and several in a message.
    #[test]
    fn splitting_a_stream_into_chunks_changes_nothing(
        robot in any_robot(ordered_stream()),
        max_wait in prop::option::of(0..60i64),
        turns in vec(0..60usize, 1..60),
        sizes in vec(1..7usize, 1..20),
    ) {
        let robot = Robot { max_wait, ..robot };
        // Runs of consecutive samples of one stream, cut at lengths that `sizes` draws.
        let mut chunks: Vec<(usize, Vec<i64>, Vec<f32>)> = Vec::new();
        let mut sizes = sizes.iter().copied().cycle();
        let mut room = 0;
        for event in merge(&robot, &turns) {
            let Event::Sample(stream, ms, values) = event else { continue };
            match chunks.last_mut().filter(|chunk| chunk.0 == stream && room > 0) {
                Some(chunk) => {
                    chunk.1.push(ms * MS);
                    chunk.2.extend(values);
                    room -= 1;
                }
                None => {
                    chunks.push((stream, vec![ms * MS], values));
                    room = sizes.next().unwrap_or(1);
                }
            }
        }
        let whole: Vec<_> = chunks.iter().map(|(stream, at, values)| (*stream, crate::common::samples(at, values))).collect();
        let single: Vec<_> = chunks
            .iter()
            .flat_map(|(stream, at, values)| {
                let singles = at.iter().zip(values.chunks(2));
                singles.map(|(&at, values)| (*stream, crate::common::sample(at, values)))
            })
            .collect();
        let config = robot.plugin_yaml("fuse");
        prop_assert_eq!(publish(&config, &whole), publish(&config, &single));
    }

    #[test]
    fn aligned_outputs_side_by_side_are_the_fused_one(
        robot in any_robot(ordered_stream()),
        max_wait in prop::option::of(0..60i64),
        turns in vec(0..60usize, 1..60),
    ) {
        let robot = Robot { max_wait, ..robot };
        let messages: Vec<_> = merge(&robot, &turns)
            .into_iter()
            .filter_map(|event| match event {
                Event::Sample(stream, ms, values) => Some((stream, crate::common::sample(ms * MS, &values))),
                _ => None,
            })
            .collect();
        let fused = publish(&robot.plugin_yaml("fuse"), &messages);
        let aligned = publish(&robot.plugin_yaml("align"), &messages);
        let count = robot.streams.len();
        prop_assert_eq!(aligned.len(), fused.len() * count);
        for (fused, aligned) in fused.iter().zip(aligned.chunks(count)) {
            let side_by_side = |key: &str| -> Vec<i64> {
                (0..robot.window).flat_map(|row| aligned.iter().map(move |one| one.integers(key)[row])).collect()
            };
            prop_assert_eq!(fused.integers("valid"), side_by_side("valid"));
            prop_assert_eq!(fused.integers("age_ns"), side_by_side("age_ns"));
            let values: Vec<f32> = (0..robot.window)
                .flat_map(|row| aligned.iter().flat_map(move |one| &one.values[2 * row..2 * row + 2]))
                .copied()
                .collect();
            prop_assert_eq!(&fused.values, &values);
            for (i, one) in aligned.iter().enumerate() {
                prop_assert_eq!(&one.output, &format!("s{i}"));
                for key in ["timestamp_ns", "epoch", "late_samples", "wait_ns"] {
                    prop_assert_eq!(fused.integer(key), one.integer(key));
                }
                prop_assert_eq!(fused.integers("timestamps_ns"), one.integers("timestamps_ns"));
            }
        }
    }
}
