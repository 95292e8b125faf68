//! Tests of `robocache info` on recordings whose faults are known.

use crate::common::{Folder, MS, command, record, record_robot, run, sample};
use robocache::stream::form;
use serde_json::{Value, json};
use std::path::Path;

fn info(folder: &Path) -> (i32, Value) {
    let done = run(["info".as_ref(), folder.as_os_str(), "--json".as_ref()]);
    (done.code, done.json())
}

#[test]
fn gaps_order_duplicates_and_values_are_counted() {
    let folder = Folder::new();
    // At 100 Hz, 50 and 60 ms are lost, 30 ms comes after 40 ms, and 80 ms comes twice.
    let mut force: Vec<_> = [0, 10, 20, 40, 30, 70, 80, 80, 90, 100]
        .map(|ms| ("force", sample(ms * MS, &[0.0; 6])))
        .into();
    force[2].1 = sample(20 * MS, &[0.0, f32::NAN, f32::INFINITY, 0.0, 0.0, 0.0]);
    let camera = [15, 45, 75].map(|ms| ("camera", sample(ms * MS, &[1.0])));
    record(&folder.0, force.into_iter().chain(camera));

    let (code, info) = info(&folder.0);
    assert_eq!(code, 0);
    assert_eq!(info["duration_s"], 0.1);
    assert_eq!(info["problems"], json!([]));
    let force = &info["streams"][1];
    let want = [
        ("name", json!("force")),
        ("messages", json!(10)),
        ("samples", json!(10)),
        ("out_of_order", json!(1)),
        ("duplicates", json!(1)),
        // One sample is lost from 20 to 40 ms, as 30 ms is out of order, and two from 40 to 70 ms.
        ("gaps", json!(2)),
        ("lost", json!(3)),
        ("nonfinite", json!(2)),
        ("start_s", json!(0.0)),
        ("end_s", json!(0.0)),
        ("step_ms", json!({ "p50": 10.0, "p99": 30.0, "max": 30.0 })),
        ("payload", json!("float32 [6]")),
        ("is_finished", json!(true)),
    ];
    for (key, value) in want {
        assert_eq!(force[key], value, "{key}");
    }
    let camera = &info["streams"][0];
    assert_eq!((&camera["start_s"], &camera["end_s"]), (&json!(0.015), &json!(0.025)));
    assert!((camera["rate_hz"].as_f64().unwrap() - 1e3 / 30.0).abs() < 1e-9);

    let done = run(["info".as_ref(), folder.0.as_os_str()]);
    let line = done.out.lines().find(|line| line.starts_with("force")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(
        words[..10],
        ["force", "10", "70.0", "10.0", "30.0", "30.0", "2", "3", "1", "1"],
        "{}",
        done.out
    );
}

#[test]
fn a_window_counts_once_and_a_batch_by_its_samples() {
    let folder = Folder::new();
    let batch = |ms: i64| {
        let mut message = sample(ms * MS, &[0.0; 3]);
        message
            .header
            .timestamps_ns
            .set([(ms - 2) * MS, (ms - 1) * MS, ms * MS]);
        message
    };
    let window = |ms: i64| {
        let mut message = batch(ms);
        form::modalities.set(&mut message.header, ["a"]);
        message
    };
    let batches = [2, 5, 8].map(|ms| ("imu", batch(ms)));
    record(
        &folder.0,
        batches.into_iter().chain([2, 3, 4].map(|ms| ("fused", window(ms)))),
    );
    let (_, info) = info(&folder.0);
    let counts = |stream: usize| {
        let stream = &info["streams"][stream];
        (
            stream["samples"].as_u64().unwrap(),
            stream["step_ms"]["p50"].as_f64().unwrap(),
        )
    };
    assert_eq!((counts(0), counts(1)), ((3, 1.0), (9, 1.0)));
}

#[test]
fn of_a_broken_recording_what_can_be_had_is_told() {
    let folder = Folder::new();
    record(&folder.0, (0..2000).map(|i| ("force", sample(i * MS, &[0.0; 6]))));
    record(&folder.0, (0..2000).map(|i| ("torn", sample(i * MS, &[0.0; 6]))));
    let torn = folder.path("torn.arrow");
    let bytes = std::fs::read(&torn).unwrap();
    std::fs::write(&torn, &bytes[..bytes.len() - 20]).unwrap();
    folder.write("text.arrow", "no Arrow at all");

    let (code, told) = info(&folder.0);
    assert_eq!(code, 1);
    let streams = told["streams"].as_array().unwrap();
    assert_eq!(streams.len(), 2);
    assert_eq!(
        (&streams[0]["messages"], &streams[1]["messages"]),
        (&json!(2000), &json!(2000))
    );
    assert_eq!(streams[1]["is_finished"], false);
    let problems = told["problems"].to_string();
    assert!(problems.contains("text.arrow: not an Arrow IPC file"), "{problems}");
    assert!(problems.contains("torn.arrow: no valid footer"), "{problems}");
    let text = run(["info".as_ref(), folder.0.as_os_str()]);
    assert!(text.out.contains("can't be read: ") && text.code == 1, "{}", text.out);
}

#[test]
fn a_recording_of_the_robot_has_its_rates() {
    let folder = Folder::new();
    let sim = "{ duration_s: 2, real_time: false, start_ns: 0, streams: { lidar: null } }";
    record_robot(&folder.path("out"), sim, &["camera", "force", "proprio"]);
    let (code, info) = info(&folder.path("out"));
    assert_eq!(code, 0);
    for (stream, rate) in [(0, 30.0), (1, 1000.0), (2, 500.0)] {
        let came = info["streams"][stream]["rate_hz"].as_f64().unwrap();
        assert!((came - rate).abs() < 0.1 * rate, "{came}");
        assert!(info["streams"][stream]["delay_ms"]["p50"].is_number());
    }
}

#[test]
fn what_is_no_recording_is_refused() {
    let folder = Folder::new();
    for path in [folder.path("nothing"), folder.0.clone()] {
        let done = run(["info".as_ref(), path.as_os_str()]);
        assert_eq!((done.code, done.out.as_str()), (2, ""));
        assert!(done.err.contains(&path.display().to_string()), "{}", done.err);
        assert!(done.err.matches("No such file").count() <= 1, "{}", done.err);
    }
    assert_eq!(run(["info"]).code, 2);
    assert!(run(["info", "--help"]).out.contains("Exit codes:"));
}

#[test]
fn a_result_that_can_not_be_written_is_no_success() {
    let folder = Folder::new();
    record(&folder.path("recording"), [("a", sample(0, &[1.0]))]);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let status = command(["info".as_ref(), folder.path("recording").as_os_str()])
        .stdout(full)
        .stderr(std::process::Stdio::null())
        .status();
    assert_eq!(status.unwrap().code(), Some(2));
}
