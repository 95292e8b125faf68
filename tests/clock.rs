//! Stamps of devices converted to host time: the plugin in a graph, and packets of real devices.

use crate::common::{MS, Recorder, faults, graph, input, sample, samples};
use robocache::ops::clock::{ClockConfig, ClockInput, ClockKind, Clocks, difference_ns, now_ns};
use robocache::stream::Message;
use std::path::Path;

const S: i64 = 1_000_000_000;
const HOST: i64 = 1_700_000_000 * S;

fn at(mut message: Message, arrival_ns: i64) -> Message {
    message.arrival_ns = Some(arrival_ns);
    message
}

#[test]
fn what_comes_goes_on_in_host_time_under_its_own_name() {
    let mut graph = graph("plugins: [clock: { inputs: [{ input: imu, latency_ms: 2, lock_s: 1 }] }]").unwrap();
    let (imu, mut sink) = (input(&graph, "imu"), Recorder::default());
    assert_eq!(graph.outputs().collect::<Vec<_>>(), ["imu"]);
    for i in 0..200 {
        let device = i * 10 * MS;
        let mut message = sample(device, &[i as f32, 2.0]);
        message.header.frame_id.set("tool");
        let jitter = if i % 4 == 0 { 0 } else { 3 * MS };
        graph.message(imu, &at(message, HOST + device + 7 * MS + jitter), &mut sink);
    }
    let sent = sink.take();
    assert_eq!(sent.len(), 200);
    for (i, sent) in sent.iter().enumerate() {
        let device = 10 * MS * i as i64;
        assert_eq!(sent.values, [i as f32, 2.0]);
        assert_eq!(sent.header.frame_id.get(), Some("tool"));
        assert_eq!(sent.integer("device_timestamp_ns"), device);
        assert_eq!(
            sent.header.timestamp_ns.get().unwrap() - device,
            sent.integer("clock_offset_ns")
        );
        assert_eq!(sent.integer("epoch"), 0);
        let is_locked = i >= 100;
        assert_eq!(sent.integer("clock_locked"), i64::from(is_locked));
        let late = if i % 4 == 0 || is_locked { 0 } else { 3 * MS };
        assert_eq!(sent.header.timestamp_ns.get().unwrap(), HOST + device + 5 * MS + late);
    }
    // A message of several samples.
    let message = samples(&[1990 * MS, 2000 * MS], &[1.0, 2.0, 3.0, 4.0]);
    graph.message(imu, &at(message, HOST + 2010 * MS), &mut sink);
    let sent = sink.take();
    assert_eq!(sent[0].integers("timestamps_ns"), [HOST + 1995 * MS, HOST + 2005 * MS]);
}

#[test]
fn later_operations_of_the_process_take_host_time() {
    let text = "plugins:
  - clock: { inputs: [{ input: camera, clock: monotonic }, { input: joints, clock: realtime }] }
  - clock: { name: again, inputs: [{ input: camera, lock_s: 1 }] }
  - fuse:
      rate_hz: 100
      modalities:
        - { input: camera, dim: 1, interpolation: previous }
        - { input: joints, dim: 1, interpolation: previous }";
    let mut graph = graph(text).unwrap();
    let (camera, joints) = (input(&graph, "camera"), input(&graph, "joints"));
    let mut sink = Recorder::default();
    // The camera has stamps of the monotonic clock, the joints of the real-time clock.
    let difference = difference_ns(ClockKind::Monotonic).unwrap();
    let start = now_ns();
    for i in 0..50 {
        let now = start + i * 10 * MS;
        graph.message(camera, &at(sample(now - difference, &[i as f32]), now), &mut sink);
        graph.message(joints, &at(sample(now, &[i as f32]), now), &mut sink);
    }
    let sent = sink.take();
    let of = |output: &str| sent.iter().filter(|sent| sent.output == output).collect::<Vec<_>>();
    let (camera, again) = (of("camera"), of("again/camera"));
    for (i, sent) in camera.iter().enumerate() {
        let now = start + 10 * MS * i as i64;
        assert!((sent.header.timestamp_ns.get().unwrap() - now).abs() < MS && sent.integer("clock_locked") == 1);
        // A message that one operation hands to another has the arrival time of the message that it was made from.
        assert_eq!(again[i].header.timestamp_ns.get().unwrap(), now);
    }
    assert!(of("joints").iter().all(|sent| sent.integer("clock_offset_ns") == 0));
    assert!(of("fused").len() >= 48);
}

/// Estimates a device's clock from the publication times of its messages, if they have them. Arrival times would add the delay
/// of the transport.
#[test]
fn the_estimate_is_of_the_times_of_publication() {
    let text = "plugins: [clock: { inputs: [{ input: imu, lock_s: 1 }] }, clock: { name: again, inputs: [{ input: imu, lock_s: 1 }] }]";
    let mut graph = graph(text).unwrap();
    let (imu, mut sink) = (input(&graph, "imu"), Recorder::default());
    for i in 0..200 {
        let device = i * 10 * MS;
        let mut message = at(sample(device, &[0.0]), HOST + device + 700 * MS + i % 7 * MS);
        message.published_ns = Some(HOST + device + 2 * MS);
        graph.message(imu, &message, &mut sink);
        // The second operation gets the same times through the first one.
        for sent in sink.take() {
            assert_eq!(
                sent.header.timestamp_ns.get().unwrap(),
                HOST + device + 2 * MS,
                "{}",
                sent.output
            );
        }
    }
}

/// A missing stamp, read as 0, would look like a clock that was set.
#[test]
fn a_message_without_a_stamp_is_refused_and_moves_nothing() {
    let mut graph = graph("plugins: [clock: { inputs: [{ input: imu, lock_s: 1 }] }]").unwrap();
    let (imu, mut sink) = (input(&graph, "imu"), Recorder::default());
    for i in 0..200 {
        let device = 1000 * S + i * 10 * MS;
        graph.message(imu, &at(sample(device, &[0.0]), HOST + i * 10 * MS), &mut sink);
        if i == 150 {
            let mut none = sample(0, &[0.0]);
            none.header.timestamp_ns.clear();
            graph.message(imu, &at(none, HOST + 1501 * MS), &mut sink);
        }
    }
    let sent = sink.take();
    assert_eq!((sent.len(), faults(&graph, "clock: input `imu`")), (200, 1));
    assert!(sent[100..].iter().all(|sent| sent.integer("clock_locked") == 1));
}

/// A message without a stamp of its own has the time of its publication as the stamp, which is in host time already.
#[test]
fn a_message_with_the_time_of_publication_alone_keeps_that() {
    let text =
        "plugins: [clock: { inputs: [{ input: imu, lock_s: 1 }, { input: camera, clock: monotonic, latency_ms: 5 }] }]";
    let mut graph = graph(text).unwrap();
    let (imu, camera, mut sink) = (input(&graph, "imu"), input(&graph, "camera"), Recorder::default());
    let unstamped = |published: i64| {
        let mut message = sample(published, &[0.0]);
        message.header.unstamped.set(1);
        at(message, published)
    };
    graph.message(camera, &unstamped(HOST), &mut sink);
    assert_eq!(sink.sent[0].header.timestamp_ns.get().unwrap(), HOST - 5 * MS);
    assert_eq!(
        (sink.sent[0].integer("clock_locked"), sink.sent[0].integer("unstamped")),
        (0, 1)
    );
    sink.take();
    for i in 0..200 {
        let device = 1000 * S + i * 10 * MS;
        graph.message(imu, &at(sample(device, &[0.0]), HOST + i * 10 * MS), &mut sink);
        graph.message(imu, &unstamped(HOST + (i * 10 + 5) * MS), &mut sink);
    }
    for (i, sent) in sink.take().iter().enumerate() {
        assert_eq!(sent.header.timestamp_ns.get().unwrap(), HOST + 5 * MS * i as i64);
        assert_eq!(sent.integer("clock_locked"), i64::from(i >= 200 && i % 2 == 0));
    }
    // The message has stamps of its samples but none of its own, so that the newest of them becomes its stamp.
    let mut message = samples(&[1000 * S + 1990 * MS, 1000 * S + 2000 * MS], &[1.0, 2.0]);
    message.header.timestamp_ns.set(HOST + 2003 * MS);
    message.header.unstamped.set(1);
    graph.message(imu, &at(message, HOST + 2003 * MS), &mut sink);
    let sent = &sink.take()[0];
    assert_eq!(sent.integers("timestamps_ns"), [HOST + 1990 * MS, HOST + 2000 * MS]);
    assert_eq!(sent.header.timestamp_ns.get().unwrap(), HOST + 2000 * MS);
    assert!(sent.header.get("unstamped").is_none());
    assert_eq!(
        faults(&graph, "clock: input `imu`") + faults(&graph, "clock: input `camera`"),
        0
    );
}

#[test]
fn a_device_that_restarts_is_counted_and_published_on() {
    let mut graph = graph("plugins: [clock: { inputs: [{ input: imu }] }]").unwrap();
    let (imu, mut sink) = (input(&graph, "imu"), Recorder::default());
    for i in 0..100 {
        let device = (i % 50) * 10 * MS;
        graph.message(imu, &at(sample(device, &[0.0]), HOST + i * 10 * MS), &mut sink);
    }
    let stamps: Vec<_> = sink
        .take()
        .iter()
        .map(|sent| sent.header.timestamp_ns.get().unwrap())
        .collect();
    assert_eq!(stamps, (0..100).map(|i| HOST + i * 10 * MS).collect::<Vec<_>>());
    assert_eq!(faults(&graph, "clock: input `imu`"), 1);
}

/// The devices run at 0.1 Hz to 10 kHz, with outages, clocks that are set, disorder, and invalid stamps. Within an epoch host
/// time always ascends, and follows the estimate slowly.
#[test]
fn whatever_comes_host_time_goes_on_in_order() {
    let mut state = 1u64;
    let mut unit = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let (mut locked, mut notices, mut held) = (0, 0, 0);
    for scenario in 0..60 {
        let mut one_of = |choices: &[f64]| choices[(unit() * choices.len() as f64) as usize];
        let input = ClockInput {
            input: "imu".into(),
            window_s: one_of(&[5.0, 60.0, 600.0]),
            lock_s: one_of(&[1.0, 5.0]),
            reset_ms: one_of(&[5.0, 100.0, 1000.0]),
            ..ClockInput::default()
        };
        let mut clocks = Clocks::new(&ClockConfig { inputs: vec![input] }).unwrap();
        let (hz, jitter_ns) = (
            one_of(&[0.1, 1.0, 30.0, 1000.0, 10_000.0]),
            one_of(&[0.0, 1e5, 5e6, 2e8]),
        );
        let (skew, start) = (
            one_of(&[0.0, 20e-6, -490e-6, 5e-3]),
            one_of(&[0.0, -9.2e18, 9.2e18]) as i64,
        );
        let is_wild = scenario % 4 == 0;
        let (mut time, mut device_set, mut host_set) = (0.0, 0i64, 0i64);
        // The newest message in order: its device time, host time and epoch, whether it is locked, and whether it had to wait.
        let mut newest: Option<(i64, i64, i64, bool, bool)> = None;
        for _ in 0..2000 {
            let mut one_in = |n: f64| unit() * n < 1.0;
            time += 1e9 / hz * if one_in(200.0) { 40.0 } else { 1.0 };
            device_set += if one_in(500.0) { -90 * MS } else { 0 } + if one_in(500.0) { 86_400 * S } else { 0 };
            host_set += if one_in(900.0) { -S } else { 0 } + if one_in(900.0) { 50 * MS } else { 0 };
            let late_stamp = if one_in(100.0) { 80 * MS } else { 0 };
            let is_none = is_wild && one_in(50.0);
            let stamp = (start.saturating_add(device_set)).saturating_add((time * (1.0 - skew)) as i64 - late_stamp);
            let x = if is_none { i64::MAX } else { stamp };
            let y = HOST + host_set + (time - jitter_ns * (1.0 - unit()).ln()) as i64;
            let (got, notice) = clocks.push(0, x, Some(y));
            (locked, notices) = (locked + i32::from(got.is_locked), notices + i32::from(notice.is_some()));
            let before = newest.filter(|before| notice.is_none() && before.2 == got.epoch);
            if before.is_some_and(|before| x <= before.0) {
                continue;
            }
            let passed = before.map_or(0, |before| got.host_ns - before.1);
            assert!(before.is_none() || passed > 0, "scenario {scenario}: {passed}");
            if let Some((device, _, _, true, false)) = before.filter(|_| passed > 1 && got.is_locked) {
                let stamps = (x - device) as f64;
                assert!(
                    (passed as f64 - stamps).abs() <= 2501e-6 * stamps + 2.0,
                    "scenario {scenario}: {passed} {stamps}"
                );
            }
            let waits = newest.is_some_and(|before| got.host_ns - before.1 == 1);
            held += i32::from(waits);
            newest = Some((x, got.host_ns, got.epoch, got.is_locked, waits));
        }
    }
    assert!(
        locked > 10_000 && notices > 500 && held > 100,
        "{locked} {notices} {held}"
    );
}

#[test]
fn a_wrong_configuration_names_the_key() {
    for (text, words) in [
        (
            "plugins: [clock: { inputs: [] }]",
            "inputs: none (allowed: one or more)",
        ),
        (
            "plugins: [clock: { inputs: [{ input: a, lock: 1 }] }]",
            "inputs[0].lock",
        ),
        (
            "plugins: [clock: { inputs: [{ input: a, clock: utc }] }]",
            "inputs[0].clock: `utc` is not allowed (allowed: device",
        ),
        ("plugins: [clock: {}]", "clock: the key `inputs` is missing"),
    ] {
        let refused = graph(text).err().unwrap().to_string();
        assert!(refused.contains(words) && refused.contains("robot.yml"), "{refused}");
    }
}

fn recording(path: &str) -> Option<String> {
    let found = ["../shared/data", "../../shared/data"]
        .iter()
        .map(|folder| Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(path))
        .find(|path| path.exists());
    if found.is_none() {
        eprintln!("skipped: ../shared/data/{path} is absent");
    }
    found.map(|path| std::fs::read_to_string(path).unwrap())
}

/// The packets are those of a Velodyne at rest: its clock steps by 663 or 664 us, and the host's stamps jitter. The true times
/// are not known, but the steps of the output must be as even as those of the device's clock.
#[test]
fn packets_of_a_real_lidar_come_out_as_even_as_its_clock() {
    let Some(text) = recording("velodyne_vlp16_4scans/packets.csv") else {
        return;
    };
    let packets: Vec<(i64, i64)> = text
        .lines()
        .skip(1)
        .map(|line| {
            let mut cells = line.split(',').skip(1).map(|cell| cell.trim().parse::<i64>().unwrap());
            let (host, device_us) = (cells.next().unwrap(), cells.next().unwrap());
            (device_us * 1000, host)
        })
        .collect();
    // The recording lasts 0.4 s, so it is slowed down a hundred times: jitter and steps are milliseconds then.
    let slow = |ns: i64, first: i64| first + 100 * (ns - first);
    let (x0, y0) = packets[0];
    let input = ClockInput {
        input: "lidar".into(),
        lock_s: 10.0,
        reset_ms: 1000.0,
        ..ClockInput::default()
    };
    let mut clocks = Clocks::new(&ClockConfig { inputs: vec![input] }).unwrap();
    let stamps: Vec<_> = packets
        .iter()
        .map(|&(x, y)| {
            (
                slow(x, x0),
                slow(y, y0),
                clocks.push(0, slow(x, x0), Some(slow(y, y0))).0,
            )
        })
        .collect();
    let steps = |value: &dyn Fn(usize) -> i64| {
        let mut off: Vec<i64> = (stamps.len() / 2..stamps.len())
            .map(|i| (value(i) - value(i - 1) - (stamps[i].0 - stamps[i - 1].0)).abs())
            .collect();
        off.sort_unstable();
        (off[off.len() / 2] / 100, off[off.len() - 1] / 100)
    };
    let (before, after) = (steps(&|i| stamps[i].1), steps(&|i| stamps[i].2.host_ns));
    println!(
        "{} packets; steps off by p50, max ns: host stamps {before:?}, host time {after:?}",
        stamps.len()
    );
    assert!(
        stamps[stamps.len() / 2..]
            .iter()
            .all(|(_, y, stamp)| stamp.is_locked && stamp.host_ns <= *y + 100_000)
    );
    assert!(after.1 * 10 < before.1);
}

/// The stamps are those of an Ouster's IMU. The delays are simulated, since the recording has no times of arrival.
#[test]
fn stamps_of_a_real_imu_with_delays_are_found_again() {
    let Some(text) = recording("ouster_os1_128_3scans/imu.csv") else {
        return;
    };
    let mut lines = text.lines();
    let column = lines
        .next()
        .unwrap()
        .split(',')
        .position(|name| name.trim() == "t_ns")
        .unwrap();
    let stamps: Vec<i64> = lines
        .map(|line| line.split(',').nth(column).unwrap().trim().parse().unwrap())
        .collect();
    let (first, last) = (stamps[0], stamps[stamps.len() - 1]);
    let lap = last - first + (last - first) / (stamps.len() as i64 - 1);
    let input = ClockInput {
        input: "imu".into(),
        ..ClockInput::default()
    };
    let mut clocks = Clocks::new(&ClockConfig { inputs: vec![input] }).unwrap();
    let (mut state, mut most) = (1u64, 0);
    // Repeats the recording for two minutes.
    for i in 0..400 * stamps.len() {
        let x = stamps[i % stamps.len()] + lap * (i / stamps.len()) as i64;
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let unit = (state >> 11) as f64 / (1u64 << 53) as f64;
        let truth = HOST + (x - first) + (x - first) / 50_000;
        let (stamp, notice) = clocks.push(0, x, Some(truth + (-5e6 * (1.0 - unit).ln()) as i64));
        assert!(notice.is_none() || stamp.is_locked);
        if x - first > 60 * S {
            most = most.max((stamp.host_ns - truth).abs());
        }
    }
    println!(
        "100 Hz, 20 ppm, 5 ms of jitter: at most {:.3} ms off after a minute",
        most as f64 * 1e-6
    );
    assert!(most < MS / 5);
}
