//! Tests of `robocache latency` and `clock`, on recordings whose latency and clocks are known, and on the recorded drive of a car.

use crate::common::{Done, Folder, MS, record, root, run, sample};
use robocache::ops::align;
use robocache::prelude::*;
use robocache::stream::form;
use std::ffi::OsStr;
use std::io::Write;
use std::time::{Duration, Instant};

fn on(folder: &Folder, command: &str, words: &[&str]) -> Done {
    let recording = folder.path("recording");
    let words = words.iter().map(|word| OsStr::new(*word));
    run([command.as_ref(), recording.as_os_str()].into_iter().chain(words))
}

/// Returns the value, at the time `t` in s, of a movement of several frequencies.
fn movement(t: f64) -> f64 {
    (3.1 * t).sin()
        + 0.6 * (7.7 * t + 1.0).sin()
        + 0.5 * (11.3 * t * (1.0 + 0.002 * t)).cos()
        + 0.7 * (5.3 * t * (1.0 + 0.001 * t)).sin()
}

#[test]
fn a_latency_is_found_and_a_drift_is_seen() {
    let folder = Folder::new();
    // `b` is 40 ms late, and its clock 50 ppm fast.
    let a = (0..90_000).map(|i| ("a", sample(i * 2 * MS, &[movement(i as f64 * 2e-3) as f32])));
    let b = (0..6_000).map(|i| {
        (
            "b",
            sample(
                i * 30 * MS + 40 * MS + i * 1500,
                &[0.0, -3.0 * movement(i as f64 * 0.03) as f32],
            ),
        )
    });
    record(&folder.path("recording"), a.chain(b));
    let inverted = on(&folder, "latency", &["--a", "a", "--b", "b[1]"]);
    assert_eq!(inverted.code, 1, "{}", inverted.out);
    assert!(
        inverted.out.contains("can't be known") && inverted.out.contains("inverted"),
        "{}",
        inverted.out
    );
    let still = on(&folder, "latency", &["--a", "a", "--b", "b[0]", "--json"]);
    assert_eq!(still.code, 1);
    assert!(
        still.json()["refused"].as_str().unwrap().contains("hardly moves"),
        "{}",
        still.out
    );

    let folder = Folder::new();
    let a = (0..90_000).map(|i| ("a", sample(i * 2 * MS, &[movement(i as f64 * 2e-3) as f32])));
    let b = (0..6_000).map(|i| {
        (
            "b",
            sample(
                i * 30 * MS + 40 * MS + i * 1500,
                &[3.0 * movement(i as f64 * 0.03) as f32],
            ),
        )
    });
    record(&folder.path("recording"), a.chain(b));
    let done = on(&folder, "latency", &["--a", "a[0]", "--b", "b[0]", "--json"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let json = done.json();
    // The latency is 40 ms at the start and 49 ms at the end.
    assert!((json["latency_ms"].as_f64().unwrap() - 44.5).abs() < 1.5, "{json:#}");
    let minutes: Vec<f64> = json["minutes"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|minute| minute["latency_ms"].as_f64())
        .collect();
    assert!(
        minutes.len() == 3
            && minutes
                .iter()
                .zip([41.5, 44.5, 47.5])
                .all(|(found, is)| (found - is).abs() < 0.5),
        "{minutes:?}"
    );
    assert!((json["drift_ppm"].as_f64().unwrap() - 50.0).abs() < 5.0, "{json:#}");
    let text = on(&folder, "latency", &["--a", "a[0]", "--b", "b[0]"]).out;
    assert!(
        text.contains("`b[0]` is 45.")
            && text.contains(" ppm faster than that of `a[0]`")
            && text.contains("latency_ms: 45."),
        "{text}"
    );
    let small = on(&folder, "latency", &["--a", "a", "--b", "b", "--range", "-10..20"]);
    assert_eq!(small.code, 1, "{}", small.out);
    for range in ["5", "5..-5", "..", "a..b", "NaN..5"] {
        let done = on(&folder, "latency", &["--a", "a", "--b", "b", "--range", range]);
        assert_eq!((done.code, done.out.as_str()), (2, ""), "{range}: {}", done.err);
    }
}

/// Records a message for each pair of a stamp, ns, and an arrival, ns after now. Returns the time from the first stamp to its
/// arrival, ms.
fn record_arrivals(folder: &Folder, pairs: impl Iterator<Item = (i64, i64)>) -> f64 {
    let path = folder.path("recording");
    let start = Instant::now();
    let mut writer = recording::Writer::create(&path).unwrap().with_arrivals();
    for (stamp_ns, arrival_ns) in pairs {
        let arrival = start + Duration::from_nanos(arrival_ns as u64);
        writer.append("imu", &sample(stamp_ns, &[1.0]), arrival).unwrap();
    }
    writer.finish().unwrap();
    let mut message = Message::default();
    recording::Reader::open(&path).unwrap().next_into(&mut message).unwrap();
    (message.arrival_ns.unwrap() - message.timestamp_ns()) as f64 * 1e-6
}

#[test]
fn the_clock_of_a_device_is_found_and_its_reset_told() {
    let folder = Folder::new();
    // The clock is 20 ppm slow, and messages are late by up to 10 ms, but for the first.
    let late = |i: i64| (i * 7919 % 11) * MS;
    let pairs = |from: i64| (0..6_000).map(move |i| (from + i * 10 * MS, i * 10 * MS + i * 200 + late(i) + 1000 * MS));
    let offset_ms = record_arrivals(&folder, pairs(5_000 * MS));
    let done = on(&folder, "clock", &["--json"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let clock = &done.json()["streams"][0];
    let figure = |key: &str| clock[key].as_f64().unwrap();
    assert!((figure("skew_ppm") - 20.0).abs() < 1.0, "{clock:#}");
    // At the end 60 s have passed, of which 20 ppm are 1.2 ms.
    assert!((figure("offset_ms") - offset_ms - 1.2).abs() < 0.1, "{clock:#}");
    assert!(
        figure("skew_sigma_ppm") < 10.0 && clock["notices"].as_array().unwrap().is_empty(),
        "{clock:#}"
    );
    assert!(
        on(&folder, "clock", &[])
            .out
            .contains("slower than the recorder's clock")
    );

    let folder = Folder::new();
    let restarted = pairs(0).map(|(stamp, arrival)| (stamp, arrival + 61_000 * MS));
    record_arrivals(&folder, pairs(5_000 * MS).chain(restarted));
    let done = on(&folder, "clock", &["--stream", "imu"]);
    assert_eq!(done.code, 0, "{}", done.out);
    assert!(done.out.contains("it was set by -"), "{}", done.out);

    let folder = Folder::new();
    record_arrivals(&folder, pairs(0).take(500));
    let short = on(&folder, "clock", &[]);
    assert_eq!(short.code, 1);
    assert!(
        short
            .out
            .contains("500 messages in 4.990 s are too little (needed: 8 messages and 10 s"),
        "{}",
        short.out
    );
    for (words, expected) in [
        (&["--stream", "gps"][..], "`gps`: no such stream (allowed: imu)"),
        (&["--lock-s", "0"], "lock_s"),
        (&["--window-s", "5"], "lock_s"),
    ] {
        let done = on(&folder, "clock", words);
        assert_eq!((done.code, done.out.as_str()), (2, ""), "{}", done.err);
        assert!(done.err.contains(expected), "{}", done.err);
    }
    let folder = Folder::new();
    record(&folder.path("recording"), (0..9).map(|i| ("a", sample(i, &[1.0]))));
    let done = on(&folder, "clock", &[]);
    assert_eq!(done.code, 2);
    assert!(
        done.err
            .contains("no message of a sensor says when it arrived (allowed: a recording with `arrival_ns`"),
        "{}",
        done.err
    );
}

/// Leaves observations out, as their stamps are targets.
#[test]
fn observations_have_no_clock() {
    let folder = Folder::new();
    let mut writer = recording::Writer::create(folder.path("recording"))
        .unwrap()
        .with_arrivals();
    let start = Instant::now();
    for i in 0..2_000 {
        let arrival = start + Duration::from_millis(i * 10);
        let mut fused = sample(i as i64 * 10 * MS, &[1.0]);
        form::modalities.set(&mut fused.header, ["imu"]);
        align::key::offsets.set(&mut fused.header, [0, 1]);
        writer.append("fused", &fused, arrival).unwrap();
        writer
            .append("imu", &sample(i as i64 * 10 * MS, &[1.0]), arrival)
            .unwrap();
    }
    writer.finish().unwrap();
    let done = on(&folder, "clock", &["--json"]);
    assert_eq!(done.code, 0, "{}", done.out);
    let clocks = done.json();
    let names: Vec<&str> = clocks["streams"]
        .as_array()
        .unwrap()
        .iter()
        .map(|clock| clock["stream"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["imu"]);
    assert_eq!(on(&folder, "clock", &["--stream", "fused"]).code, 2);
}

/// Reads the numbers of a NumPy file of float64.
fn numbers(path: &std::path::Path) -> Vec<f64> {
    let bytes = std::fs::read(path).unwrap();
    let header = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let values = bytes[10 + header..].chunks_exact(8);
    values
        .map(|value| f64::from_le_bytes(value.try_into().unwrap()))
        .collect()
}

/// Uses a minute of a drive (comma2k19): the speeds of a wheel and of the car are the same movement.
#[test]
fn a_drive_is_drawn_and_its_latency_found() {
    let data = root().join("../shared/data/comma2k19_drive_1min");
    if !data.is_dir() {
        let _ = writeln!(std::io::stderr(), "channels: skipped, {} is absent", data.display());
        return;
    }
    let folder = Folder::new();
    let stream = |name: &'static str, file: &str| {
        let times = numbers(&data.join(format!("{file}_t.npy")));
        let values = numbers(&data.join(format!("{file}_value.npy")));
        let dim = values.len() / times.len();
        let rows: Vec<Vec<f32>> = values
            .chunks(dim)
            .map(|row| row.iter().map(|&value| value as f32).collect())
            .collect();
        times
            .into_iter()
            .zip(rows)
            .map(move |(t, row)| (name, sample((t * 1e9) as i64, &row)))
    };
    record(
        &folder.path("recording"),
        stream("speed", "CAN_speed")
            .chain(stream("wheels", "CAN_wheel_speed"))
            .chain(stream("gyro", "IMU_gyro")),
    );
    let done = on(&folder, "latency", &["--a", "wheels[0]", "--b", "speed[0]", "--json"]);
    assert_eq!(done.code, 0, "{}", done.out);
    let json = done.json();
    assert!(
        json["latency_ms"].as_f64().unwrap().abs() < 20.0 && json["peak"].as_f64().unwrap() > 0.4,
        "{json:#}"
    );
    let page = folder.path("page.html");
    let words = ["wheels", "speed", "gyro[2]"].map(|channel| ["--channel", channel]);
    let words = [&["-o", page.to_str().unwrap()], words.as_flattened()].concat();
    let done = on(&folder, "report", &words);
    assert_eq!(done.code, 0, "{}", done.err);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("wheels[3]") && page.contains("gyro[2]"));
}
