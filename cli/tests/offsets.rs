//! Tests of streams whose stamps are ahead of, or behind, those of the other streams, in every command that uses stamps.

use crate::common::{Folder, MS, record, run, sample};
use robocache::stream::Message;

const START: i64 = 1_700_000_000_000 * MS;

const CONFIG: &str = "
fuse:
  rate_hz: 50
  modalities:
    - { input: arm, dim: 1, interpolation: linear, max_gap_ms: 50 }
    - { input: force, dim: 1, interpolation: linear, max_gap_ms: 50 }
  attach:
    - { input: cells, wait: false }
lerobot:
  features:
    - { name: observation.state, modalities: [arm, force] }
    - { name: action, stream: command, take: next }
";

/// Writes a recording of ten seconds, in which the clock of each stream is `ahead` by some ms. All messages arrive 3 ms after
/// the capture.
fn recorded(folder: &Folder, ahead: &[(&str, i64)]) {
    let mut messages: Vec<(&str, Message)> = Vec::new();
    for i in 0..500 {
        for name in ["arm", "force", "command", "cells"] {
            let ahead_ms = ahead.iter().find(|(of, _)| *of == name).map_or(0, |(_, ms)| *ms);
            let mut message = sample(START + (i * 20 + ahead_ms) * MS, &[i as f32]);
            message.arrival_ns = Some(START + (i * 20 + 3) * MS);
            messages.push((name, message));
        }
    }
    crate::common::record_with_arrivals(&folder.path("recording"), messages);
    folder.write("config.yml", CONFIG);
}

fn words(folder: &Folder, command: &str, more: &[&str]) -> Vec<String> {
    let path = |name: &str| folder.path(name).to_str().unwrap().to_owned();
    let own = match command {
        "try" => vec![path("config.yml"), path("recording")],
        "convert" => [
            path("recording"),
            path("dataset"),
            "--to".into(),
            "lerobot".into(),
            "--config".into(),
            path("config.yml"),
        ]
        .into(),
        _ => vec![
            path("recording"),
            "--config".into(),
            path("config.yml"),
            "-o".into(),
            path("report.html"),
        ],
    };
    let more = more.iter().map(|&word| word.to_owned());
    [command.to_owned()].into_iter().chain(own).chain(more).collect()
}

#[test]
fn a_stream_that_is_a_second_or_more_off_is_refused_unless_it_is_allowed_by_name() {
    // A modality, a stream beside the observations, and an attached stream.
    for (stream, ahead_ms, side) in [
        ("force", 2500, "ahead of"),
        ("command", -2500, "behind"),
        ("cells", 1200, "ahead of"),
    ] {
        let folder = Folder::new();
        recorded(&folder, &[(stream, ahead_ms)]);
        let said = format!(
            "`{stream}`: its stamps are {:.3} s {side} those of",
            ahead_ms.abs() as f64 * 1e-3
        );
        let allow = ["--allow-offset", stream];
        let done = run(words(&folder, "convert", &[]));
        assert_eq!((done.code, folder.path("dataset").exists()), (2, false), "{}", done.err);
        for part in [
            &said,
            "`latency_ms`",
            "`robocache-clock`",
            &format!("`--allow-offset {stream}`"),
        ] {
            assert!(done.err.contains(part), "{part}: {}", done.err);
        }
        let done = run(words(&folder, "convert", &allow));
        assert!(
            done.code == 0 && !done.out.contains("clocks:"),
            "{}{}",
            done.out,
            done.err
        );
        let done = run(words(&folder, "try", &[]));
        assert_eq!(done.code, 1, "{}", done.out);
        assert!(done.out.contains(&format!("\nno: {said}")), "{}", done.out);
        let json = run(words(&folder, "try", &["--json"])).json();
        assert_eq!(json["offsets"][0]["stream"], stream);
        assert!(
            (json["offsets"][0]["ahead_ms"].as_f64().unwrap() - ahead_ms as f64).abs() < 1.0,
            "{json:#}"
        );
        let done = run(words(&folder, "try", &allow));
        assert!(
            !done.out.contains("clocks:") && !done.out.contains("no: `"),
            "{}",
            done.out
        );
        let done = run(words(&folder, "report", &[]));
        assert!(
            done.code == 0 && done.out.contains(&format!("clocks: {said}")),
            "{}",
            done.out
        );
        assert!(
            std::fs::read_to_string(folder.path("report.html"))
                .unwrap()
                .contains(&said)
        );
    }
}

#[test]
fn one_that_is_a_little_off_is_warned_of() {
    let folder = Folder::new();
    recorded(&folder, &[("force", 300)]);
    for command in ["try", "report", "convert"] {
        let done = run(words(&folder, command, &[]));
        assert!(
            done.code == 0 && done.out.contains("clocks: `force`: its stamps are 0.300 s ahead of"),
            "{}{}",
            done.out,
            done.err
        );
    }
    // An offset that `latency_ms` accounts for is not reported.
    let text = CONFIG.replace("input: force,", "input: force, latency_ms: 300,");
    folder.write("config.yml", &text);
    std::fs::remove_dir_all(folder.path("dataset")).unwrap();
    for command in ["try", "report", "convert"] {
        let done = run(words(&folder, command, &[]));
        assert!(
            done.code == 0 && !done.out.contains("clocks:"),
            "{}{}",
            done.out,
            done.err
        );
    }
}

#[test]
fn a_recording_without_a_configuration_is_judged_by_its_report() {
    let folder = Folder::new();
    recorded(&folder, &[("cells", -700)]);
    let (recording, page) = (folder.path("recording"), folder.path("report.html"));
    let words = |more: &[&str]| {
        let own = ["report", recording.to_str().unwrap(), "-o", page.to_str().unwrap()];
        own.iter().chain(more).map(|&word| word.to_owned()).collect::<Vec<_>>()
    };
    let done = run(words(&[]));
    assert!(
        done.out.contains("clocks: `cells`: its stamps are 0.700 s behind"),
        "{}",
        done.out
    );
    assert!(!run(words(&["--allow-offset", "cells"])).out.contains("clocks:"));
}

#[test]
fn what_was_recorded_as_fast_as_it_went_raises_no_alarm() {
    let folder = Folder::new();
    let messages = (0..1000).flat_map(|i| {
        let stamp = START + i * 20 * MS;
        ["arm", "force"].map(|name| {
            let mut message = sample(stamp + if name == "force" { 2500 * MS } else { 0 }, &[i as f32]);
            message.arrival_ns = Some(START + 3_600_000 * MS + i * 1000);
            (name, message)
        })
    });
    crate::common::record_with_arrivals(&folder.path("recording"), messages);
    folder.write("config.yml", CONFIG);
    let done = run(words(&folder, "try", &[]));
    assert!(!done.out.contains("clocks:"), "{}", done.out);
    // A recording without arrivals has no offsets, either.
    let folder = Folder::new();
    record(
        &folder.path("recording"),
        (0..1000).map(|i| ("arm", sample(START + i * 20 * MS, &[1.0]))),
    );
    folder.write("config.yml", CONFIG);
    assert!(!run(words(&folder, "try", &[])).out.contains("clocks:"));
}
